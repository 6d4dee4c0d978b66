"""The specification of a job: its engine, ``JobSpec``, and all settings that it accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from ..cohort import AuditRules, Cohort, leave_out_sites, relabel
from ..cohort.values import normalise_text
from ..connectome import HarmonisationRule
from ..errors import BrioError, nearest
from ..methods import find_method, list_methods, make_method
from ..methods.registry import MethodEntry
from ..protocol import PROTOCOLS, ProtocolSettings
from ..results import RunStore, TuningRecord
from ..results.summarise import FULL_SEEDS
from ..settings import (
    RunsPerStack,
    Seconds,
    Seeds,
    SettingFacts,
    check_domains,
    check_types,
    fit_value,
    format_setting,
    list_setting_facts,
    read_number,
    replace_values,
    require,
)


def list_settings(method: str | None = None) -> dict[str, list[SettingFacts]]:
    """List settings under headings."""
    parts = {"protocol": ProtocolSettings, "audit": AuditRules, "harmonise": HarmonisationRule}
    others = {part: list_setting_facts(settings, f"{part}.") for part, settings in parts.items()}
    if method is None:
        return others | {"methods": _list_all_methods()}
    entry, listed = find_method(method), []
    for facts in list_setting_facts(entry.method_class.Settings):
        fixed, default = facts.key in entry.fixed, format_setting(entry.settings[facts.key])
        listed.append(replace(facts, default=default, tuned_over="" if fixed else facts.tuned_over, fixed=fixed))
    return {f"method {entry.name}": listed} | others


def _list_all_methods() -> list[SettingFacts]:
    """List settings of all methods, once for each meaning; variants stand with those that their names leave open."""
    having: dict[tuple[str, str, str], list[tuple[MethodEntry, SettingFacts]]] = {}
    for entry in list_methods():
        for facts in list_setting_facts(entry.method_class.Settings):
            if facts.key not in entry.fixed:
                having.setdefault((facts.key, facts.values, facts.meaning), []).append((entry, facts))
    listed = []
    for methods in having.values():
        first = methods[0][1]
        defaults = {format_setting(entry.settings[first.key]) for entry, _ in methods}
        tuned = {facts.tuned_over for _, facts in methods}
        default, tuned_over = (group.pop() if len(group) == 1 else None for group in (defaults, tuned))
        names = tuple(entry.name for entry, _ in methods)
        listed.append(replace(first, default=default, tuned_over=tuned_over or "", methods=names))
    return listed


# what docs/methods.md recommends to begin with, and the word for those of them that the cohort suits
RECOMMENDED_METHODS = ("log-ridge", "ridge", "covariates-only", "length-only", "dead-rois-only")
RECOMMENDED = "recommended"


def choose_seeds(methods: Sequence[str], seeds: int | None) -> int:
    """Return the number of seeds, by default three for the recommended methods, one for those that are named."""
    return seeds if seeds is not None else FULL_SEEDS if RECOMMENDED in methods else 1


Question = tuple[str, int]  # what relabel is asked, and its min_class
Shard = tuple[int, int]  # its number, from 1, and how many there are


class Engine(Protocol):
    """What executes the stacks of a plan that are not finished: ``LocalEngine`` of ``jobs/run.py``, ``DaskEngine``."""

    @property
    def shares_folder(self) -> bool: ...

    @property
    def shard(self) -> Shard | None: ...

    def train(self, job: Any, plan: Any, store: RunStore, allow_divergence: bool = False) -> None:
        """Train stacks that are not finished; each is trained as a whole and stored run by run."""


@dataclass(frozen=True, eq=False)
class JobSpec:
    """The specification of a job."""

    cohort: Cohort | str | Path  # what methods are evaluated on
    methods: Sequence[str] = ()  # names, see brio methods, "all" or "recommended"; stored as a tuple without duplicates
    protocol: str = "loso"
    seeds: Seeds = 1  # seeds 0 to seeds - 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    folds: Sequence[str] | None = None  # names of the folds to run: test sites, or numbers under k-fold; None for all
    label: str | None = None
    leave_out: tuple[str, ...] = ()  # sites that are not used
    companions: Sequence[Cohort] = ()
    exclude: bool = True  # apply the exclusions that the audit proposes
    device: str = "auto"  # where runs are computed; auto is a GPU if there is one
    runs_per_stack: RunsPerStack | None = None  # runs that train together; by default as many as memory allows
    records_only: bool = False  # store no weights
    tuned: TuningRecord | None = None  # settings chosen for each fold by an earlier search
    checkpoint_every: Seconds = 120.0
    engine: Engine | None = None  # what executes the stacks; None for this process. It changes no number
    method_settings: dict[str, Any] = field(init=False)  # settings without a prefix
    audit_rules: AuditRules = field(init=False)  # settings with a prefix, over the defaults
    protocol_settings: ProtocolSettings = field(init=False)
    harmonisation_rule: HarmonisationRule = field(init=False)

    def __post_init__(self) -> None:
        check_domains(self)
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        for name, kind in {"methods": str, "folds": str, "leave_out": str, "companions": Cohort}.items():
            given[name] = (given[name],) if isinstance(given[name], kind) else given[name]
        for name, value in check_types(JobSpec, given).items():
            object.__setattr__(self, name, value)
        require(self.protocol in PROTOCOLS, "protocol", self.protocol, " or ".join(PROTOCOLS))
        parts = split_settings(self.settings)
        values = {
            "methods": tuple(dict.fromkeys(self.methods)),
            "settings": dict(self.settings),
            "folds": None if self.folds is None else tuple(map(normalise_text, self.folds)),
            "leave_out": tuple(map(normalise_text, self.leave_out)),
            "companions": tuple(self.companions),
            "method_settings": parts[""],
            "audit_rules": replace_values(AuditRules(), parts["audit"], "audit."),
            "protocol_settings": replace_values(ProtocolSettings(), parts["protocol"], "protocol."),
            "harmonisation_rule": replace_values(HarmonisationRule(), parts["harmonise"], "harmonise."),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def question(self) -> Question | None:
        """The question whose answers are the labels; None for the cohort's own labels."""
        return None if self.label is None else (self.label, self.audit_rules.min_class if self.exclude else 0)

    def relabel(self, cohort: Cohort) -> Cohort:
        """Return a cohort with the labels that the job asks for, without the sites that it leaves out."""
        cohort = leave_out_sites(cohort, self.leave_out)
        return cohort if self.question is None else relabel(cohort, *self.question)

    def settings_of(self, method: str) -> dict[str, Any]:
        """Return the given settings that a method has and that its name does not fix."""
        entry = find_method(method)
        return {k: v for k, v in self.method_settings.items() if k in entry.settings and k not in entry.fixed}


def split_settings(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Split settings into those of the methods (under ``""``), the protocol, the audit and the harmonisation."""
    parts: dict[str, dict[str, Any]] = {"": {}, "protocol": {}, "audit": {}, "harmonise": {}}
    for name, value in values.items():
        part, _, key = name.rpartition(".")
        if part not in parts:
            prefixes = " or ".join(f"'{p}.'" for p in parts if p)
            raise BrioError(f"setting '{name}' is unknown; settings with a dot must begin with {prefixes}")
        parts[part][key] = value
    return parts


def check_settings(names: Sequence[str], values: Mapping[str, Any]) -> None:
    """Check that methods are known and that each setting belongs to one of them; needs no torch."""
    entries = [find_method(name) for name in names]
    known = {key for entry in entries for key in entry.settings}
    for key, value in values.items():
        if key not in known:
            raise BrioError(f"setting '{key}' is unknown to {', '.join(names)}; {nearest(key, known)}")
        having = [entry for entry in entries if key in entry.settings]
        if all(key in entry.fixed for entry in having):
            raise BrioError(
                f"method '{having[0].name}' fixes '{key}' to {having[0].fixed[key]!r}; leave out the setting"
            )
        for entry in having:
            if key in entry.numbers and key not in entry.fixed:
                fit_value(value, read_number(entry.numbers[key]), f"setting '{key}'=", strict=False)


def settle_without_validation(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a method with the one under which it needs no validation scans, unless it is given."""
    method = make_method(name, dict(values))
    key, _, value = method.facts.setting_without_validation.partition("=")
    return {**values, key: value} if method.needs_validation and key and key not in values else dict(values)
