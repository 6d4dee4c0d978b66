"""What differs between the job that a folder holds and the one that is asked for, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..settings import format_setting

_SCANS = ("cohort", "atlas", "fingerprint_before_exclusions", "fingerprint", "n_scans", "excluded", "label")
"""What a plan says about scans: one difference, however many entries it shows in."""

_DESCRIBED = {*_SCANS, "brio", "methods", "protocol", "seeds", "folds", "protocol_settings", "harmonise", "audit"} | {
    "device",
    "fold_rule",
    "threads",
}
"""Entries of a plan that have words of their own here."""


def describe_clash(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Describe in which options two plans differ."""
    return list(_iterate_differences(there, here))


def _iterate_differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    def differs(name: str) -> bool:
        return there.get(name) != here.get(name)

    if differs("brio"):
        yield f"it was computed by brio {there.get('brio')}, now {here.get('brio')}"
    if differs("fingerprint_before_exclusions"):
        yield f"it is on cohort {_name_cohort(there)}, now {_name_cohort(here)}"
    if differs("methods"):
        yield from _compare_methods(there["methods"], here["methods"])
    if differs("protocol"):
        yield f"its protocol is {there.get('protocol')}, now {here.get('protocol')}"
    if differs("seeds"):
        yield f"it has {_count_seeds(there['seeds'])}, now {_count_seeds(here['seeds'], there['seeds'])}"
    if differs("folds"):
        yield f"it has {_list_folds(there['folds'])}, now {_list_folds(here['folds'])}"
    yield from _compare_settings("protocol.", there.get("protocol_settings"), here.get("protocol_settings"))
    if differs("fold_rule") and not differs("protocol"):
        yield "its folds were made by an earlier rule, under which classes were not balanced"
    if differs("harmonise"):
        none = {"kind": "none"}
        yield from _compare_settings("harmonise.", there["harmonise"] or none, here["harmonise"] or none)
    if differs("audit"):
        if there["audit"] is None or here["audit"] is None:
            kept = here["audit"] is None
            yield (
                "it leaves out what the audit excludes, now --keep-all keeps it"
                if kept
                else "it keeps all scans (--keep-all), now those that the audit excludes are left out"
            )
        else:
            yield from _compare_settings("audit.", there["audit"], here["audit"])
    elif any(map(differs, _SCANS)) and not differs("fingerprint_before_exclusions"):
        yield (
            f"it uses {there.get('n_scans')} scans, now {here.get('n_scans')}: the audit excludes others, perhaps "
            "because of --with"
        )
    if differs("device"):
        yield f"it was computed with --device {there.get('device')}, now {here.get('device')}"
    if differs("threads"):
        yield (
            f"it was computed with {there.get('threads')} threads, now {here.get('threads')} (see OMP_NUM_THREADS; "
            "numbers repeat exactly only with as many)"
        )
    for name in {**there, **here}:
        if name not in _DESCRIBED and differs(name):
            yield f"its {name.replace('_', ' ')} is {_compare(there.get(name), here.get(name))}"


def _name_cohort(plan: Mapping[str, Any]) -> str:
    """A cohort with the start of its fingerprint, since two may have one name."""
    fingerprint = str(plan["fingerprint_before_exclusions"])[:12]
    return f"'{plan.get('cohort')}' ({plan.get('n_scans')} scans, fingerprint {fingerprint})"


def _compare_methods(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    if list(there) != list(here):
        yield f"it has {_join('method', there)}, now {', '.join(here)}"
    for name in [name for name in there if name in here and there[name] != here[name]]:
        was, now = there[name], here[name]
        if was.get("version") != now.get("version"):
            yield f"its method {name} is in version {was.get('version')}, now {now.get('version')}"
        if was.get("code") != now.get("code"):
            yield f"the file of method {name} has changed since"
        yield from _compare_settings("", was.get("settings"), now.get("settings"), f" of {name}")
        if was.get("configurations") != now.get("configurations"):
            yield f"its search tries other configurations of {name}"
        if was.get("tuned") != now.get("tuned"):
            yield f"its tuned settings of {name} are others"


def _compare_settings(
    prefix: str, there: Mapping[str, Any] | None, here: Mapping[str, Any] | None, owner: str = ""
) -> Iterator[str]:
    was, now = there or {}, here or {}
    for name in {**was, **now}:
        if was.get(name) != now.get(name):
            yield f"its setting {prefix}{name}{owner} is {_compare(was.get(name), now.get(name))}"


def _compare(was: Any, now: Any) -> str:
    return f"{format_setting(was)}, now {format_setting(now)}"


def _count_seeds(seeds: list[int], other: list[int] | None = None) -> str:
    if seeds != list(range(len(seeds))):
        return f"seeds {', '.join(map(str, seeds))}"
    return str(len(seeds)) if other is not None else f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"


def _list_folds(folds: list[str] | None) -> str:
    return "all folds" if folds is None else ", ".join(folds)


def _join(noun: str, names: Mapping[str, Any]) -> str:
    return f"{noun}{'s' if len(names) > 1 else ''} {', '.join(names)}"
