"""``plan.json``: everything that decides the numbers of a job, written before the first run is trained."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ..cohort import AuditRules
from ..cohort.auditing.exclusions import ExclusionReason
from ..connectome.harmonisation_rule import HarmonisationRule
from ..errors import REPEAT_JOB
from ..protocol import ProtocolSettings
from ..schemas import (
    OMIT_NONE,
    Hex,
    Name,
    Setting,
    SettingsOf,
    StoredCount,
    StoredPositiveCount,
    formerly,
    from_json,
    to_json,
)
from .files import PLAN, read_json
from .run_record import ProtocolName

__all__ = ["Plan", "PlannedMethod", "TunedChoice"]


@dataclass(frozen=True)
class TunedChoice:
    """Settings of a method that a search chose for each fold.

    Attributes
    ----------
    budget : int
        Configurations that were tried.
    cohort, atlas : str
        Where it searched.
    folds : dict
        Fold -> values of the tuned settings.
    """

    budget: StoredCount
    cohort: str
    atlas: str
    folds: dict[str, dict[str, Setting]]


@dataclass(frozen=True)
class PlannedMethod:
    """What a plan says about one method.

    Attributes
    ----------
    version : int
        Of the method.
    settings : dict
        All settings; of a tuned method those that it has without the tuned values.
    code : str or None
        Hash of the file of a user's own method.
    configurations : tuple of dict or None
        In the plan of a search: values of the tuned settings that are tried.
    tuned : TunedChoice or None
        Settings chosen for each fold.
    """

    version: int
    settings: dict[str, Setting]
    code: str | None = field(default=None, metadata=OMIT_NONE)
    configurations: tuple[dict[str, Setting], ...] | None = field(default=None, metadata=OMIT_NONE)
    tuned: TunedChoice | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that decides the numbers of a job.

    Attributes
    ----------
    brio : str
        Version.
    cohort, atlas : str
    label : str or None
        The question that gave the labels (``--label``); None for the cohort's own.
    fingerprint_before_exclusions, fingerprint : str
        Of the cohort as it was given, and of the scans that are used.
    n_scans : int
        Scans that are used.
    excluded : dict
        Scan -> reasons, as :class:`brio.cohort.auditing.exclusions.ExclusionReason`. Scans have the names of
        :attr:`brio.Cohort.ids`: those of participants, unless some have several scans.
    audit : dict or None
        Rules of the audit; None where its exclusions were not applied.
    methods : dict of PlannedMethod
    protocol : {"loso", "kfold"}
    protocol_settings : dict
    fold_rule : int or None
        Version of the rule that made the folds of k-fold (:data:`brio.protocol.FOLD_RULE`); None for the first,
        and under leave-one-site-out.
    harmonise : dict or None
    seeds : tuple of int
    folds : tuple of str or None
        Folds that were asked for; None for all.
    device : str
        As ``--device`` takes it.
    threads : int or None
        On a CPU.
    stacks : tuple of tuple of str
        Keys of the runs that train together; an interrupted job is resumed with the same stacks.
    reused_from : str or None
        Folder whose rows stand here for an arm of a study.
    hashes : str or None
        File of the folder that has the hashes of the others; None where an earlier version wrote none.
    """

    brio: str
    cohort: str
    atlas: str
    fingerprint_before_exclusions: str
    fingerprint: str
    n_scans: StoredCount
    excluded: dict[str, tuple[ExclusionReason, ...]]
    audit: Annotated[dict[str, Any], SettingsOf(AuditRules)] | None
    methods: dict[str, PlannedMethod]
    protocol: ProtocolName
    protocol_settings: Annotated[dict[str, Any], SettingsOf(ProtocolSettings)]
    harmonise: Annotated[dict[str, Any], SettingsOf(HarmonisationRule)] | None
    seeds: tuple[StoredCount, ...]
    folds: tuple[str, ...] | None
    device: Name
    threads: StoredPositiveCount | None
    stacks: tuple[tuple[Hex, ...], ...] = ()
    fold_rule: StoredPositiveCount | None = field(default=None, metadata=OMIT_NONE)
    label: str | None = field(default=None, metadata=OMIT_NONE)
    reused_from: str | None = field(default=None, metadata=OMIT_NONE | formerly("handed_in"))
    hashes: str | None = field(default=None, metadata=OMIT_NONE)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as it is written to ``plan.json``."""
        return to_json(self)

    def identify(self) -> dict[str, Any]:
        """Return what makes a job this job, as JSON has it: no stacks, no hashes, and no reasons of exclusions."""
        identity = dataclasses.replace(self, excluded=dict.fromkeys(self.excluded, ()), stacks=(), hashes=None)
        return json.loads(json.dumps(identity.to_json()))

    @classmethod
    def read(cls, folder: Path, remedy: str = REPEAT_JOB) -> Plan:
        """Read the plan of a job folder."""
        path = folder / PLAN
        return from_json(cls, _convert_reasons(read_json(path, remedy)), path, remedy)


def _convert_reasons(document: dict[str, Any]) -> dict[str, Any]:
    """Turn the sentences that an earlier version stored into reasons that hold them as they are."""
    if not isinstance(excluded := document.get("excluded"), dict):
        return document
    converted = {
        scan: [{"code": "recorded", "text": one} if isinstance(one, str) else one for one in reasons]
        if isinstance(reasons, list)
        else reasons
        for scan, reasons in excluded.items()
    }
    return document | {"excluded": converted}
