"""What all methods of a job have in common: the audited cohort, the protocol, the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..cohort import Audit, AuditRules, Cohort, audit
from ..connectome import Connectomes, HarmonisationRule
from ..device import ComputeDevice, resolve_device
from ..errors import BrioError
from ..methods import find_method, make_method
from ..progress import Progress, silent
from ..protocol import PROTOCOLS, ProtocolSettings
from ..settings import require
from ..training.inputs import check_needs
from ..version import __version__
from .plan import Candidates, Plan, harmonise_of, make_plan, protocol_of, rules_of, split_settings

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A cohort, audited, with everything that is the same for all methods of a job."""

    used: Cohort
    whole: Cohort
    audit: Audit | None
    rules: AuditRules
    protocol: str
    protocol_settings: ProtocolSettings
    harmonise: HarmonisationRule
    of_methods: dict[str, Any]
    seeds: range
    folds: Sequence[str] | None
    device: ComputeDevice
    estimate: Callable[[], Connectomes]
    runs_per_stack: int | None
    records_only: bool
    progress: Progress
    say: Callable[[str], None]

    @property
    def graphs(self) -> Connectomes:
        """The connectomes of the cohort, estimated once, when they are first asked for."""
        return self.estimate()

    @property
    def protocol_facts(self) -> dict[str, Any]:
        """What names the folds: the protocol and, for k-fold, the scans it deals out."""
        facts = {"name": self.protocol, "settings": dataclasses.asdict(self.protocol_settings)}
        return facts | ({"fingerprint": self.used.fingerprint} if self.protocol == "kfold" else {})

    def given(self, name: str) -> dict[str, Any]:
        """Of the settings of methods that were given, those that a method has and its name does not fix."""
        kind = find_method(name)
        known = {f.name for f in dataclasses.fields(kind.method_class.Settings)} - set(kind.fixed)
        return {k: v for k, v in self.of_methods.items() if k in known}

    def lack(self, name: str) -> str:
        """What the cohort lacks for a method, in words; empty where it has all that the method needs."""
        method = make_method(name, self.given(name))
        try:
            check_needs(self.used, method.needs, method.settings, f"method '{name}'")
        except BrioError as lack:
            return str(lack)
        return ""

    def fed(self, names: Sequence[str]) -> list[str]:
        """Those of some methods whose needs the cohort meets; of each other one a line says what it lacks."""
        lacks = {name: self.lack(name) for name in names}
        for lack in filter(None, lacks.values()):
            self.say(f"left out: {lack}")
        return [name for name, lack in lacks.items() if not lack]

    def plan(self, methods: dict[str, dict[str, Any]], candidates: dict[str, Candidates], seeds: Sequence[int]) -> Plan:
        """The runs of some methods on this cohort."""
        return make_plan(
            self.used,
            self.whole,
            self.audit,
            self.rules,
            methods,
            candidates,
            self.protocol,
            self.protocol_settings,
            self.harmonise,
            seeds,
            self.folds,
            self.device,
            __version__,
        )


def prepare(
    cohort: Cohort | str | Path,
    *,
    protocol: str = "loso",
    seeds: int = 1,
    settings: dict[str, Any] | None = None,
    folds: Sequence[str] | None = None,
    companions: Sequence[Cohort] = (),
    exclude: bool = True,
    device: str = "auto",
    runs_per_stack: int | None = None,
    records_only: bool = False,
    progress: Progress = silent,
    say: Callable[[str], None] = lambda line: None,
) -> Prepared:
    """Check the words of a job, then the cohort; see :func:`run` for what they mean."""
    require(seeds >= 1, "seeds", seeds, "at least 1")
    require(runs_per_stack is None or runs_per_stack >= 1, "runs_per_stack", runs_per_stack, "at least 1")
    require(protocol in PROTOCOLS, "protocol", protocol, " or ".join(PROTOCOLS))
    whole = cohort if isinstance(cohort, Cohort) else Cohort.load(cohort)
    parts = split_settings(dict(settings or {}))
    rules, of_folds, harmonise = (
        rules_of(parts["audit"]),
        protocol_of(parts["protocol"]),
        harmonise_of(parts["harmonise"]),
    )
    target = resolve_device(device)
    whole.verify()
    found = audit(whole, rules, companions) if exclude else None
    used = whole if found is None else whole.select(found.keep)
    if len(used) == 0:
        raise BrioError(f"{whole.name}: the audit excludes every scan; see 'brio audit', or change its rules")
    return Prepared(
        used,
        whole,
        found,
        rules,
        protocol,
        of_folds,
        harmonise,
        parts[""],
        range(seeds),
        folds,
        target,
        cache(lambda: Connectomes(used, target.torch_device)),
        runs_per_stack,
        records_only,
        progress,
        say,
    )
