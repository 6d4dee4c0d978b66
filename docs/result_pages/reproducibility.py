"""Are the numbers reproducible?"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pandas as pd

from .comparisons import compare_pair, site_scores
from .evidence import STUDIED_RUNS, read_jobs, read_measurement, read_runs

EARLIER, TODAY = "repeats/aal116-earlier-code", STUDIED_RUNS


def list_arms() -> list[str]:
    """List the arms that were trained with earlier and with today's code, BRIO first."""
    return sorted(read_runs(EARLIER)["method"].unique(), key=lambda name: (name != "brio", name))


@cache
def compare_jobs(method: str) -> pd.Series:
    """Compare an arm in the two jobs, which have the same folds and seeds: second minus first.

    The paired difference over sites, ``first`` and ``second`` (mean AUC), ``largest`` (the largest difference of a
    single run in points), ``typical`` (their mean), ``equal`` and ``same_epoch`` (counts of runs), ``runs``.
    """
    jobs = [runs[runs["method"] == method] for runs in (read_runs(EARLIER), read_runs(TODAY))]
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
    pair = compare_pair(sites, "second", "first", "repeats", method)
    return pd.concat([pair, pd.Series(more, dtype=object)])


def compare_all() -> pd.DataFrame:
    """Compare the two jobs of all arms."""
    return pd.DataFrame({arm: compare_jobs(arm) for arm in list_arms()}).T


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
