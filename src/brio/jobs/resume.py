"""Going on with a job: is this folder new, the same job begun earlier, or somebody else's?"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ..errors import BrioError
from .facts import FACTS
from .plan import Plan
from .store import RunStore

__all__ = ["earlier_plan", "going_on"]

_WHERE = ("device", "threads")


def earlier_plan(folder: Path) -> dict[str, Any] | None:
    """The plan of a job begun earlier in this folder, None for a new folder; an error if it is not one of ours."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise BrioError(f"{place}: is a file, not a folder; choose another --out")
    # what a job leaves that was killed while planning, and a search that comes before it
    before_the_plan = {FACTS, "audit.json", "exclusions.tsv", "plan.json", ".lock"}
    before_the_plan |= {"search", "tuning.json", "configurations.csv"}
    names = {p.name.removesuffix(".partial") for p in folder.iterdir()} if folder.is_dir() else set()
    path = folder / "plan.json"
    if not path.is_file():
        if names <= before_the_plan:
            return None
        raise BrioError(f"{folder}: holds files that are not of a brio run; choose another --out")
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BrioError(f"{path}: not valid JSON ({error}); choose another --out") from error
    if not isinstance(earlier, dict) or not isinstance(earlier.get("stacks"), list):
        raise BrioError(f"{path}: not the plan of a brio run; choose another --out")
    return earlier


def going_on(earlier: dict[str, Any], plan: Plan, folder: Path, anywhere: bool = True) -> Plan:
    """The plan of the same job begun earlier, with its stacks; an error that says what differs if it is another job.

    A job whose runs are all finished may be read on another device than it was computed on, where ``anywhere``; its
    plan still says where that was.
    """
    mine = json.loads(json.dumps(plan.facts))
    theirs = {k: v for k, v in earlier.items() if k != "stacks"}
    elsewhere = mine | {name: theirs[name] for name in _WHERE if name in theirs}
    store = RunStore(folder / "runs")
    if anywhere and all(key in store for key in plan.jobs):
        mine = elsewhere
    if theirs == mine:
        return dataclasses.replace(plan, facts=mine, stacks=earlier["stacks"])
    if theirs == elsewhere and theirs["device"] != mine["device"]:
        raise BrioError(
            f"{folder}: was begun on another device and is not finished (device: {theirs['device']} there, "
            f"{mine['device']} here); go on with --device {theirs['device']}, or choose another --out"
        )
    found = [f"{name}: {was} there, {now} here" for name, was, now in _differences(theirs, mine)]
    if theirs.get("threads") != mine["threads"]:
        found.append("numbers repeat exactly only with as many threads, see OMP_NUM_THREADS")
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    raise BrioError(f"{folder}: belongs to another run ({'; '.join(found[:3])}{more}); choose another --out")


def _differences(a: Any, b: Any, name: str = "") -> list[tuple[str, str, str]]:
    """Where two plans differ: dotted name and both values, shortened."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = sorted({*a, *b})
        return [d for k in keys for d in _differences(a.get(k), b.get(k), f"{name}.{k}" if name else k)]
    return [] if a == b else [(name, str(a)[:40], str(b)[:40])]
