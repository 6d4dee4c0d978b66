"""Do the numbers come back?"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pandas as pd

from brio.studies.context import display_name

from .comparisons import compare_pair, site_scores
from .evidence import read_jobs, read_measurement, read_runs

FULL = "repeats/aal116-full-precision"
BEFORE_KERNELS = "repeats/aal116-before-encoder-kernels/arms"
BEFORE_ORDER = "repeats/aal116-before-ordered-sums"
STUDY_ARMS = "studies/aal116/arms"
GCN_FULL, GCN_TF32 = "repeats/cc200-gcn-full-precision", "repeats/cc200-gcn-tf32"
PRECISION = [  # what differs, method, first and second job
    ("BRIO, AAL116: full precision, TF32 with later code", "brio", FULL, BEFORE_KERNELS),
    ("BRIO, AAL116: full precision, TF32 with still later code", "brio", FULL, f"{STUDY_ARMS}/brio"),
    ("GCN, CC200: full precision, TF32", "gcn", GCN_FULL, GCN_TF32),
]
ORDER = [
    (f"`{name}`: same command, twice", name, f"{BEFORE_ORDER}/{name}", f"{STUDY_ARMS}/{name}")
    for name in ("gsat", "brainood")
]


def list_kernels() -> list[tuple[str, str, str, str]]:
    """List the arms that ran before and after the encoder's kernels, BRIO first."""
    arms = sorted(read_runs(BEFORE_KERNELS)["method"].unique(), key=lambda name: (name != "brio", name))
    words = "before and after the encoder's kernels"
    return [(f"{display_name(arm)}: {words}", arm, BEFORE_KERNELS, f"{STUDY_ARMS}/{arm}") for arm in arms]


@cache
def compare_jobs(method: str, first: str, second: str) -> pd.Series:
    """Compare a method in two jobs with the same folds and seeds: second minus first.

    The paired difference over sites, ``first`` and ``second`` (mean AUC), ``largest`` (the largest difference of a
    single run in points), ``typical`` (their mean), ``equal`` and ``same_epoch`` (counts of runs), ``runs``.
    """
    jobs = [runs[runs["method"] == method] for runs in (read_runs(first), read_runs(second))]
    sites = pd.DataFrame({k: site_scores(runs)[method] for k, runs in zip(("first", "second"), jobs, strict=True)})
    a, b = (runs.set_index(["fold", "seed"]).sort_index() for runs in jobs)
    moved = 100 * (b["auc"] - a["auc"]).abs()
    more = sites.mean().to_dict() | {
        "largest": moved.max(),
        "typical": moved.mean(),
        "equal": int((moved < 1e-9).sum()),  # the last bit of an AUC depends on the version that computed it
        "same_epoch": int((a["selected_epoch"] == b["selected_epoch"]).sum()),
        "runs": len(moved),
    }
    pair = compare_pair(sites, "second", "first", "repeats", f"{method}, {second}")
    return pd.concat([pair, pd.Series(more, dtype=object)])


def compare_all(pairs: list[tuple[str, str, str, str]]) -> pd.DataFrame:
    """Compare the jobs of several pairs, by what differs."""
    return pd.DataFrame({label: compare_jobs(*pair) for label, *pair in pairs}).T


def count_fingerprints() -> list[tuple[tuple[str, str], int]]:
    """Count the stored jobs by atlas and cohort fingerprint."""
    return sorted(Counter((job.summary.atlas, job.summary.fingerprint) for job in read_jobs(".")).items())


def list_repeated() -> list[str]:
    """List what was measured of each network that was trained twice, one line each."""
    lines = read_measurement("repeated-training.txt").splitlines()
    return lines[next(i for i, line in enumerate(lines, 1) if line.startswith("method")) :]


def are_all_the_same() -> bool:
    """Return whether every network that was trained twice has the same weights."""
    return all("  the same  " in line for line in list_repeated())
