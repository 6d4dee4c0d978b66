"""Compute the GPU hours of a large study from the stored times of runs, and write ``docs/cluster_hours.md``.

    python docs/count_hours.py

``make results`` runs it. Times are the column ``seconds`` of the runs in ``evidence``, so that no number is typed.
"""

from pathlib import Path

import pandas as pd

from brio.formatting import format_table, join_names

HERE = Path(__file__).resolve().parent
TABLE = HERE / "cluster_hours.md"
EVIDENCE = HERE.parent / "evidence"
COHORTS = ("aal116", "cc200")
SEEDS, OF_EACH, CONFIGURATIONS = 5, 2, 4
GPUS = (1, 4, 8)


def mean_seconds(folder: Path, on_gpu: bool = True) -> pd.Series:
    """Return the mean seconds of a run of each job below a folder that ran on a GPU, or on a CPU, by method or arm."""
    means = {}
    for path in sorted(folder.glob("**/results.csv")):
        rows = pd.read_csv(path)
        rows = rows[rows["device"].str.startswith("cuda") == on_gpu]
        for method, seconds in rows.groupby("method")["seconds"]:
            name = f"{path.parent.name}/{method}" if "arms" in path.parts else str(method)
            means[name] = float(seconds.mean())
    return pd.Series(means, dtype=float)


def count_folds(protocol: str = "unseen-sites") -> int:
    """Count the folds of BRIO, which is evaluated on all."""
    return pd.read_csv(EVIDENCE / protocol / COHORTS[0] / "brio" / "results.csv")["fold"].nunique()


def fill_from(other: pd.Series, here: pd.Series, ratio: float) -> pd.Series:
    """Add what was measured on the other cohort alone, times a ratio."""
    return pd.concat([here, other[~other.index.isin(here.index)] * ratio])


def count_parts() -> dict[str, dict[str, tuple[int, float]]]:
    """Count the runs and GPU seconds of each part of the study on one cohort, by part and cohort."""
    n_folds = count_folds()
    unseen = {c: mean_seconds(EVIDENCE / "unseen-sites" / c) for c in COHORTS}
    small, large = (unseen[cohort] for cohort in COHORTS)
    common = small.index.intersection(large.index)
    ratio = float(large[common].sum() / small[common].sum())
    parts = {
        "neural networks at unseen sites": ("unseen-sites", n_folds * SEEDS),
        "BRIO, its ablations and shuffled sites": ("brio-versions", n_folds * SEEDS),
        # the runs with seed 0 of what a search chose are copied from it
        "neural networks, tuned": ("unseen-sites", n_folds * (CONFIGURATIONS + SEEDS - 1)),
        "neural networks at known sites": ("in-distribution", count_folds("in-distribution") * SEEDS),
    }
    counted: dict[str, dict[str, tuple[int, float]]] = {}
    for part, (folder, runs) in parts.items():
        below = {
            c: unseen[c]
            if folder == "unseen-sites"
            else mean_seconds(EVIDENCE / folder / c / ("version-3" if folder == "brio-versions" else ""))
            for c in COHORTS
        }
        below["cc200"] = fill_from(below["aal116"], below["cc200"], ratio)
        below["aal116"] = fill_from(below["cc200"], below["aal116"], 1 / ratio)
        counted[part] = {c: (runs * len(below[c]), runs * float(below[c].sum())) for c in COHORTS}
    return counted


def format_hours() -> str:
    """Write the table in Markdown."""
    counted = count_parts()
    rows = []
    for part, by_cohort in counted.items():
        (runs, small), (_, large) = (by_cohort[cohort] for cohort in COHORTS)
        total = OF_EACH * (small + large)
        rows.append([part, f"{runs:,}", *(f"{seconds / 3600:.2f}" for seconds in (small, large, total))])
    sums = [sum(by_cohort[cohort][1] for by_cohort in counted.values()) for cohort in COHORTS]
    runs = sum(by_cohort["aal116"][0] for by_cohort in counted.values())
    total = OF_EACH * sum(sums)
    rows.append(["total", f"{runs:,}", *(f"{seconds / 3600:.2f}" for seconds in (*sums, total))])
    header = ["part", "runs per cohort", "GPU hours, 116 ROIs", "GPU hours, 200 ROIs", "GPU hours, four cohorts"]
    cpu = SEEDS * count_folds() * sum(mean_seconds(EVIDENCE / "unseen-sites" / c, on_gpu=False).sum() for c in COHORTS)
    shared = join_names(f"{total / 3600 / n:.1f} hours on {n} GPU{'s' if n > 1 else ''}" for n in GPUS)
    sentences = (
        f"If the work is divided evenly, it takes {shared}. In addition, linear models and confound baselines at "
        f"unseen sites take {OF_EACH * cpu / 3600:.1f} hours on a CPU."
    )
    return f"{format_table(header, rows)}\n\n{sentences}\n"


if __name__ == "__main__":
    TABLE.write_text(format_hours(), encoding="utf-8")
