"""From the output of pytest-benchmark to a table of ratios, and a small JSON file to keep.

    python benchmarks/bench/ratios.py RESULT.json [--keep FILE.json]

Each row is one piece of work by other code: its median time over that of brio in the same run. Kept are machine,
versions and medians, no name of the computer.
"""

import argparse
import json
import platform
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "nilearn", "arch", "POT", "geomloss")


def read_medians(path: Path) -> dict[str, dict[str, float]]:
    """Read the median seconds of each contender, by work."""
    work: dict[str, dict[str, float]] = defaultdict(dict)
    for one in json.loads(path.read_text())["benchmarks"]:
        contender = str(one["params"].get("contender") or "brio") if one["params"] else "brio"
        cohort = [part for part in one["param"].split("-") if part.endswith("ROIs")] if one["param"] else []
        work[", ".join([one["group"], *cohort])][contender] = one["stats"]["median"]
    return dict(work)


def describe_machine(path: Path) -> dict[str, str]:
    """Describe the machine and the versions."""
    found = json.loads(path.read_text())["machine_info"]
    facts = {"processor": found["cpu"].get("brand_raw") or found["machine"], "python": platform.python_version()}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except ModuleNotFoundError:
            facts[package] = "not installed"
    return facts


def main() -> None:
    """Print the table, and keep what it is made of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    work = read_medians(args.result)
    print("| work | brio, s | against | s | ratio |\n| --- | --- | --- | --- | --- |")
    for name, seconds in work.items():
        (own,) = (s for contender, s in seconds.items() if contender.startswith("brio"))
        others = {contender: s for contender, s in seconds.items() if not contender.startswith("brio")}
        for contender, s in others.items() or {"": None}.items():
            ratio = "" if s is None else f"{s / own:.1f}"
            print(f"| {name} | {own:.3g} | {contender} | {'' if s is None else f'{s:.3g}'} | {ratio} |")
    if args.keep:
        args.keep.write_text(json.dumps({"machine": describe_machine(args.result), "seconds": work}, indent=1) + "\n")


if __name__ == "__main__":
    main()
