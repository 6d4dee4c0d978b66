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


@dataclass(frozen=True)
class TunedChoice:
    """Settings of a method that a search chose for each fold."""

    budget: StoredCount  # configurations that were tried
    cohort: str  # where it searched
    atlas: str
    folds: dict[str, dict[str, Setting]]  # fold -> values of the tuned settings


@dataclass(frozen=True)
class PlannedMethod:
    """What a plan says about one method."""

    version: int  # of the method
    settings: dict[str, Setting]  # all settings; of a tuned method those that it has without the tuned values
    code: str | None = field(default=None, metadata=OMIT_NONE)  # hash of the file of a user's own method
    configurations: tuple[dict[str, Setting], ...] | None = field(default=None, metadata=OMIT_NONE)
    tuned: TunedChoice | None = field(default=None, metadata=OMIT_NONE)  # settings chosen for each fold


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that decides the numbers of a job."""

    brio: str  # version
    cohort: str
    atlas: str
    fingerprint_before_exclusions: str  # of the cohort as it was given, and of the scans that are used
    fingerprint: str
    n_scans: StoredCount  # scans that are used
    excluded: dict[str, tuple[ExclusionReason, ...]]
    audit: Annotated[dict[str, Any], SettingsOf(AuditRules)] | None
    methods: dict[str, PlannedMethod]
    protocol: ProtocolName
    protocol_settings: Annotated[dict[str, Any], SettingsOf(ProtocolSettings)]
    harmonise: Annotated[dict[str, Any], SettingsOf(HarmonisationRule)] | None
    seeds: tuple[StoredCount, ...]
    folds: tuple[str, ...] | None  # folds that were asked for; None for all
    device: Name  # as --device takes it
    threads: StoredPositiveCount | None  # on a CPU
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
