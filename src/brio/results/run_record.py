"""``run.json``: what is stored of one finished run, besides its weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from ..protocol import PROTOCOLS
from ..schemas import (
    FieldsOf,
    Name,
    SameLength,
    Setting,
    StoredCount,
    StoredNonNegative,
    StoredShare,
    formerly,
    to_json,
)
from ..schemas.stored_values import one_of

ProtocolName = Annotated[str, one_of(*PROTOCOLS)]


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One row of ``results.csv``; a score is None where it has no meaning or training diverged.

    ``n_source``, ``n_validation`` and ``n_test`` count participants, each once however many scans they have.
    ``trained_epochs`` and ``steps`` are the epochs until the run stopped and its optimisation steps in them; None where
    nothing is trained by epochs, and in records of versions that did not keep them.
    """

    cohort: str
    method: Name
    protocol: ProtocolName
    fold: Name
    test_sites: str
    validation_sites: str
    seed: StoredCount
    n_source: StoredCount
    n_validation: StoredCount
    n_test: StoredCount
    auc: StoredShare | None
    acc: StoredShare | None
    balanced_acc: StoredShare | None
    sensitivity: StoredShare | None
    specificity: StoredShare | None
    brier: StoredShare | None
    validation_auc: StoredShare | None
    selected_epoch: StoredCount | None
    trained_epochs: StoredCount | None = None
    steps: StoredCount | None = None
    block_length: StoredNonNegative | None
    seconds: StoredNonNegative
    device: str
    note: str = ""


@dataclass(frozen=True)
class RunDetails:
    """Details of runs that brio reads again; a method may leave others."""

    trained_epochs: StoredCount | None = None
    calibration: tuple[float, float] = (1.0, 0.0)  # slope and intercept that turn margins into logits
    validation_curve: tuple[tuple[StoredCount, StoredShare | None], ...] = ()


Details = Annotated[dict[str, Any], FieldsOf(RunDetails)]


@dataclass(frozen=True)
class Predictions:
    """What a run predicts for its test participants, in their order; ``logit`` is None where training diverged.

    The logit of a participant with several scans is the mean of theirs.
    """

    participant_id: tuple[str, ...] = ()
    site: Annotated[tuple[str, ...], SameLength("participant_id")] = ()
    label: Annotated[tuple[Literal[0, 1], ...], SameLength("participant_id")] = ()
    logit: Annotated[tuple[float, ...] | None, SameLength("participant_id")] = None


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is stored of a finished run."""

    row: RunRow
    details: Details = field(default_factory=dict, metadata=formerly("notes"))
    settings: dict[str, Setting]  # of the method
    source_sites: tuple[str, ...]  # sites that the model learned from, sorted
    predictions: Predictions
    versions: dict[str, str] = field(default_factory=dict)  # of brio, torch and numpy

    def to_json(self) -> dict[str, Any]:
        """Return the record as it is written to ``run.json``."""
        return to_json(self)
