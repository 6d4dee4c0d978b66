"""All settings that a job takes: those of methods, protocol, audit and harmonisation."""

from __future__ import annotations

from dataclasses import dataclass

from ..cohort import AuditRules
from ..connectome import HarmonisationRule
from ..methods import find_method, list_methods
from ..methods.registry import MethodEntry
from ..protocol import ProtocolSettings
from ..setting_facts import SettingFacts, list_setting_facts
from ..settings import format_setting


@dataclass(frozen=True)
class ListedSetting:
    """A setting as ``--set`` takes it."""

    key: str  # with its prefix, such as audit.
    default: str | None  # None where methods have different defaults
    values: str  # which values it takes, in words
    tuned_over: str  # which values a search tries; empty where it is not tuned, or methods differ
    meaning: str
    fixed: bool = False  # whether the name of the method fixes it
    methods: tuple[str, ...] = ()  # methods that have it, where several are listed together


def list_settings(method: str | None = None) -> dict[str, list[ListedSetting]]:
    """List settings under headings."""
    parts = {"protocol": ProtocolSettings, "audit": AuditRules, "harmonise": HarmonisationRule}
    others = {part: [_describe(f, part) for f in list_setting_facts(settings)] for part, settings in parts.items()}
    if method is None:
        return others | {"methods": _list_all_methods()}
    entry = find_method(method)
    return {f"method {entry.name}": _list_method(entry)} | others


def _describe(facts: SettingFacts, part: str) -> ListedSetting:
    return ListedSetting(
        f"{part}.{facts.name}", format_setting(facts.default), facts.values, facts.tuned_over, facts.meaning
    )


def _list_method(entry: MethodEntry) -> list[ListedSetting]:
    listed = []
    for facts in list_setting_facts(entry.method_class.Settings):
        fixed = facts.name in entry.fixed
        value, tuned_over = entry.settings[facts.name], "" if fixed else facts.tuned_over
        listed.append(ListedSetting(facts.name, format_setting(value), facts.values, tuned_over, facts.meaning, fixed))
    return listed


def _list_all_methods() -> list[ListedSetting]:
    """Settings of all methods; one with several meanings stands there once for each.

    A variant stands with the settings that its name leaves open.
    """
    having: dict[tuple[str, str, str], list[tuple[MethodEntry, SettingFacts]]] = {}
    for entry in list_methods():
        for facts in list_setting_facts(entry.method_class.Settings):
            if facts.name not in entry.fixed:
                having.setdefault((facts.name, facts.values, facts.meaning), []).append((entry, facts))
    listed = []
    for (name, values, meaning), methods in having.items():
        defaults = {format_setting(entry.settings[name]) for entry, _ in methods}
        tuned = {facts.tuned_over for _, facts in methods}
        default, tuned_over = (group.pop() if len(group) == 1 else None for group in (defaults, tuned))
        names = tuple(entry.name for entry, _ in methods)
        listed.append(ListedSetting(name, default, values, tuned_over or "", meaning, False, names))
    return listed
