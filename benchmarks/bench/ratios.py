"""From the output of pytest-benchmark to a table of ratios, and a small JSON file to keep.

    python benchmarks/bench/ratios.py RESULT.json [LATER.json ...] [--keep FILE.json] [--note TEXT]

Each row is one piece of work by other code: the least of its times over the least of brio's in the same run. Work that
a later run measured again replaces that of an earlier one, brio and the others together. Kept are machine, versions,
conditions, when each work was measured, and times, no name of the computer. ``make results`` makes a page of the kept
file.
"""

import argparse
import json
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("brio", "torch", "numpy", "scipy", "scikit-learn", "nilearn", "arch", "POT", "geomloss")


def read_work(path: Path) -> dict[str, dict[str, Any]]:
    """Read the least seconds of each contender, targets and floor, by work."""
    work: dict[str, dict[str, Any]] = {}
    result = json.loads(path.read_text())
    measured = result["datetime"][:16].replace("T", " ")
    for one in result["benchmarks"]:
        facts, params = one["extra_info"], one["params"] or {}
        contender = str(params.get("contender", "brio"))
        cohort = [part for part in (one["param"] or "").split("-") if part.endswith("ROIs")]
        seconds, floor = one["stats"]["min"] * facts["times"], facts.get("floor")
        entry = work.setdefault(", ".join([one["group"], *cohort]), _make_entry(facts.get("most_seconds"), measured))
        entry["seconds"][contender] = entry["seconds"].get(contender, 0.0) + seconds
        if floor:
            entry["floor"] = (entry["floor"] or 0.0) + floor
        if facts.get("target"):
            entry["targets"][contender] = facts["target"]
        if facts.get("part_of"):
            entry["part_of"] = {"name": facts["part_of"], "most_seconds": facts["most_seconds_together"]}
    return work


def _make_entry(most_seconds: float | None, measured: str) -> dict[str, Any]:
    return {"measured": measured, "seconds": {}, "targets": {}, "most_seconds": most_seconds, "floor": None}


def add_sums(work: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add work that consists of others, as the sum of its parts; call it when the results of all runs are joined."""
    whole: dict[str, dict[str, Any]] = {}
    for name, entry in work.items():
        whole[name] = {key: value for key, value in entry.items() if key != "part_of"}
        part_of = entry.get("part_of")
        if part_of is None:
            continue
        total = whole.setdefault(part_of["name"], _make_entry(part_of["most_seconds"], entry["measured"]))
        total["measured"] = max(total["measured"], entry["measured"])
        for contender, seconds in entry["seconds"].items():
            total["seconds"][contender] = total["seconds"].get(contender, 0.0) + seconds
        if entry["floor"]:
            total["floor"] = (total["floor"] or 0.0) + entry["floor"]
    return whole


def describe_machine(path: Path) -> dict[str, str]:
    """Describe the machine and the versions."""
    machine = json.loads(path.read_text())["machine_info"]
    facts = {"processor": machine["cpu"].get("brand_raw") or machine["machine"], "python": platform.python_version()}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def _list_distinct(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items that differ: runs on unlike machines or under unlike conditions are not put together."""
    distinct: list[dict[str, Any]] = []
    for item in items:
        if item not in distinct:
            distinct.append(item)
    return distinct


def main() -> None:
    """Print the table, and keep what it is made of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--note", default="", help="what a reader must know of these runs")
    args = parser.parse_args()
    work: dict[str, dict[str, Any]] = {}
    for result in args.results:
        work |= read_work(result)
    work = add_sums(work)
    print("| work | brio, s | at most, s | over the floor | against | s | ratio | target |\n" + "| --- " * 8 + "|")
    for name, entry in work.items():
        own = entry["seconds"]["brio"]
        distance = f"{own / entry['floor']:.1f}x" if entry["floor"] else ""
        others = {contender: s for contender, s in entry["seconds"].items() if contender != "brio"}
        for contender, s in others.items() or {"": None}.items():
            times = ["", ""] if s is None else [f"{s:.3g}", f"{s / own:.1f}"]
            most, target = str(entry["most_seconds"] or ""), str(entry["targets"].get(contender, ""))
            print(f"| {' | '.join([name, f'{own:.3g}', most, distance, contender, *times, target])} |")
    if args.keep:
        (conditions,) = _list_distinct(json.loads(result.read_text())["conditions"] for result in args.results)
        (machine,) = _list_distinct(describe_machine(result) for result in args.results)
        kept = {"machine": machine, "conditions": conditions, "note": args.note, "work": work}
        args.keep.parent.mkdir(parents=True, exist_ok=True)
        args.keep.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
