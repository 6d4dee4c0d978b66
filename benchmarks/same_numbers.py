"""Compare the numbers of two versions of brio, bit for bit.

Compute the same jobs with each version (``PYTHONPATH`` chooses it), then compare the two folders::

    PYTHONPATH=OLD/src python benchmarks/same_numbers.py compute old
    PYTHONPATH=NEW/src python benchmarks/same_numbers.py compute new
    python benchmarks/same_numbers.py compare old new

The jobs: every method with small settings on a simulated cohort, at two test sites and under k-fold; its model of all
sites, what that predicts for new scans and its explanation, by the commands ``fit``, ``predict`` and ``explain``; then
a few methods with ComBat, refitted on all sites, and tuned. With ``--cohort FOLDER`` a cohort of your own instead, with
``--method NAME`` (repeatable), all folds and the methods' own settings. Compared are the scores and predictions of
every run, the means over sites, the stored weights, whatever name a version stores a tensor under, and all tables of
models. A method that one version refuses must be refused by the other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

SMALL = {
    "epochs": 4,
    "patience": "none",
    "cell_batch": 2,
    "T_w": 2,
    "K": 2,
    "M": 3,
    "sinkhorn_iterations": 8,
    "assignment_iterations": 10,
    "block_signals": 4,
    "block_products": 4,
    "bold_frames": 40,
}
FOLDS = ["site02", "site05"]
NOT_NUMBERS = {"seconds", "device"}


def compute(out: Path, cohort_folder: Path | None, methods: list[str], device: str) -> None:
    """Compute all jobs of a comparison with the version of brio that is imported."""
    import brio

    print(f"brio {brio.__version__} from {Path(brio.__file__).parent}")
    if cohort_folder is not None:
        for name in methods:
            brio.run(cohort_folder, [name], out=out / name, device=device)
            print(f"  {name}")
        return
    cohort = brio.simulate(
        brio.Simulation(n_sites=6, per_class=5, n_rois=12, frames=60, stable=1.0, dynamics=1.0, dead_share=0.2, seed=3)
    )
    listing = subprocess.run(
        [sys.executable, "-m", "brio", "methods", "--json"], check=True, capture_output=True, text=True
    )
    known = {m["name"]: set(m["settings"]) for m in json.loads(listing.stdout)}
    fixed = {"backbone": {"lambda_env"}}

    def small(name: str, **more: Any) -> dict[str, Any]:
        return {k: v for k, v in {**SMALL, **more}.items() if k in known[name] - fixed.get(name, set())}

    for name in known:
        brio.run(cohort, [name], out=out / name, folds=FOLDS, seeds=2, settings=small(name), device=device)
        print(f"  {name}")
        settings = {**small(name), "protocol.n_folds": 4}
        brio.run(
            cohort, [name], out=out / f"{name}, kfold", protocol="kfold", seeds=1, settings=settings, device=device
        )
    scans, new = out / "cohort", out / "new"
    run_command("simulate", "--sites", "4", "--per-class", "6", "--rois", "12", "--frames", "60", "--out", str(scans))
    run_command("simulate", "--sites", "2", "--per-class", "4", "--rois", "12", "--frames", "60", "--seed", "9",
                "--out", str(new))  # fmt: skip
    for name in known:
        given = [word for key, value in small(name).items() for word in ("--set", f"{key}={value}")]
        model = str(out / f"{name}, model")
        where = ["--device", device]
        run_command("fit", str(scans), "--method", name, "--holds-scans", *given, *where, "--quiet", "--out", model)
        run_command("predict", model, str(new), *where, "--out", f"{model}/predictions")
        run_command("explain", model, "--cohort", str(scans), *where, "--quiet", "--out", f"{model}/explanation")
        print(f"  {name}, model")
    for name in ("ridge", "gcn", "brio"):
        brio.tune(
            cohort, [name], out=out / f"{name}, tuned", budget=2, folds=FOLDS, settings=small(name), device=device
        )
    combat = {"harmonise.kind": "combat", "harmonise.unseen": "pooled"}
    for name in ("ridge", "gcn"):
        settings = {**small(name), **combat}
        brio.run(cohort, [name], out=out / f"{name}, combat", folds=FOLDS, settings=settings, device=device)
    for name in ("gcn", "brio"):
        settings = small(name, refit="true")
        brio.run(cohort, [name], out=out / f"{name}, refit", folds=FOLDS, settings=settings, device=device)


def run_command(*words: str) -> None:
    """Run a command of brio in this process; a refusal leaves its outputs away, which the comparison finds."""
    sys.argv = ["brio", *words]
    try:
        runpy.run_module("brio", run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        if stop.code:
            print(f"    refused: brio {words[0]} of {words[-1]}")


def compare(one: Path, other: Path) -> int:
    """Print what differs between two folders of jobs; returns how many jobs differ."""
    jobs = sorted({p.parent.relative_to(root) for root in (one, other) for p in root.glob("*/summary.json")})
    differ = 0
    for job in jobs:
        wrong = [f"not in {root}" for root in (one, other) if not (root / job / "summary.json").is_file()]
        if not wrong:
            wrong = [
                *_differing_columns("results.csv", one / job, other / job, ["method", "fold", "seed"]),
                *_differing_columns(
                    "predictions.csv", one / job, other / job, ["method", "fold", "seed", "participant_id"]
                ),
                *_differing_means(one / job, other / job),
            ]
            if _tensors(one / job) != _tensors(other / job):
                wrong.append("weights")
        differ += bool(wrong)
        print(f"{job!s:28} {'equal' if not wrong else '; '.join(wrong)}")
    models = sorted({p.relative_to(root) for root in (one, other) for p in root.glob("*, model")})
    for model in models:
        wrong = _differing_files(one / model, other / model)
        differ += bool(wrong)
        print(f"{model!s:28} {'equal' if not wrong else '; '.join(wrong)}")
    print(f"{len(jobs)} jobs and {len(models)} models, {differ} differ")
    return differ


def _differing_files(one: Path, other: Path) -> list[str]:
    """Tables and weights of a model, of its predictions and of its explanation that differ."""
    names = sorted({p.relative_to(root) for root in (one, other) for p in root.rglob("*.csv")})
    wrong = []
    for name in names:
        texts = [(root / name).read_text() if (root / name).is_file() else "" for root in (one, other)]
        if texts[0] != texts[1]:
            wrong.append(str(name))
    if _tensors(one, "**/*.safetensors") != _tensors(other, "**/*.safetensors"):
        wrong.append("weights")
    return wrong


def _differing_columns(file: str, one: Path, other: Path, key: list[str]) -> list[str]:
    """Columns of a table whose text differs; floats are written so that they can be read back exactly."""
    tables = [pd.read_csv(folder / file, dtype=str, keep_default_na=False) for folder in (one, other)]
    if len(tables[0]) != len(tables[1]):
        return [f"{file}: {len(tables[0])} and {len(tables[1])} rows"]
    first, second = (t.sort_values(key).reset_index(drop=True) for t in tables)
    shared = [c for c in first if c in second and c not in NOT_NUMBERS]
    gone = sorted(set(first) ^ set(second))
    unequal = [c for c in shared if not first[c].equals(second[c])]
    return [f"{file}: column {c}" for c in unequal] + [f"{file}: only in one: {c}" for c in gone]


def _differing_means(one: Path, other: Path) -> list[str]:
    """Metrics whose mean, SD or interval over sites differs between the summaries of a job."""
    first, second = (json.loads((folder / "summary.json").read_text())["methods"] for folder in (one, other))
    return [
        f"summary.json: {metric} of {name}"
        for name in first
        for metric in ("auc", "acc", "balanced_acc", "sensitivity", "specificity", "brier", "auc_of_averaged_logits")
        if first[name][metric] != second.get(name, {}).get(metric)
    ]


def _tensors(folder: Path, pattern: str = "runs/*/weights.safetensors") -> dict[str, int]:
    """How often each stored tensor occurs, by a hash of its type, shape and bytes."""
    from safetensors.numpy import load_file

    count: dict[str, int] = {}
    for path in sorted(folder.glob(pattern)):
        for tensor in load_file(path).values():
            content = f"{tensor.dtype}{tensor.shape}".encode() + tensor.tobytes()
            name = hashlib.sha256(content).hexdigest()
            count[name] = count.get(name, 0) + 1
    return count


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    computing = commands.add_parser("compute", help="compute the jobs with the version that is imported")
    computing.add_argument("out", type=Path)
    computing.add_argument("--cohort", type=Path)
    computing.add_argument("--method", action="append", default=[])
    computing.add_argument("--device", default="cpu")
    comparing = commands.add_parser("compare", help="compare two folders of jobs")
    comparing.add_argument("one", type=Path)
    comparing.add_argument("other", type=Path)
    args = parser.parse_args()
    if args.command == "compute":
        compute(args.out, args.cohort, args.method, args.device)
    else:
        sys.exit(1 if compare(args.one, args.other) else 0)


if __name__ == "__main__":
    main()
