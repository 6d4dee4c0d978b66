"""From the output of pytest-benchmark to a table of ratios, and a small JSON file to keep.

    python benchmarks/bench/ratios.py RESULT.json [--keep FILE.json]

Each row is one piece of work by other code: the least of its times over the least of brio's in the same run. Kept are
machine, versions, conditions and times, no name of the computer. ``make results`` makes a page of the kept file.
"""

import argparse
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("brio", "torch", "numpy", "scipy", "scikit-learn", "nilearn", "arch", "POT", "geomloss")


def read_work(path: Path) -> dict[str, dict[str, Any]]:
    """Read the least seconds of each contender, targets and floor, by work; work that has parts is their sum."""
    work: dict[str, dict[str, Any]] = {}
    for one in json.loads(path.read_text())["benchmarks"]:
        facts, params = one["extra_info"], one["params"] or {}
        contender = str(params.get("contender", "brio"))
        cohort = [part for part in (one["param"] or "").split("-") if part.endswith("ROIs")]
        seconds, floor = one["stats"]["min"] * facts["times"], facts.get("floor")
        entry = work.setdefault(", ".join([one["group"], *cohort]), _make_entry(facts.get("most_seconds")))
        entries = [entry]
        if facts.get("part_of"):
            entries.append(work.setdefault(facts["part_of"], _make_entry(facts["most_seconds_together"])))
        for entry in entries:
            entry["seconds"][contender] = entry["seconds"].get(contender, 0.0) + seconds
            if floor:
                entry["floor"] = (entry["floor"] or 0.0) + floor
        if facts.get("target"):
            entries[0]["targets"][contender] = facts["target"]
    return work


def _make_entry(most_seconds: float | None) -> dict[str, Any]:
    return {"seconds": {}, "targets": {}, "most_seconds": most_seconds, "floor": None}


def describe_machine(path: Path) -> dict[str, str]:
    """Describe the machine and the versions."""
    found = json.loads(path.read_text())["machine_info"]
    facts = {"processor": found["cpu"].get("brand_raw") or found["machine"], "python": platform.python_version()}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def main() -> None:
    """Print the table, and keep what it is made of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    work = read_work(args.result)
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
        conditions = json.loads(args.result.read_text())["conditions"]
        kept = {"machine": describe_machine(args.result), "conditions": conditions, "work": work}
        args.keep.parent.mkdir(parents=True, exist_ok=True)
        args.keep.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
