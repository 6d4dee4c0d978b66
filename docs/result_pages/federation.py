"""Is a model of sites that share no scans as good as a model of pooled scans?"""

from __future__ import annotations

from functools import cache
from typing import Any

import pandas as pd

from .evidence import EVIDENCE, read_jobs

FOLDER = "federation"
DEFAULT, CONVERGED = 2, 12
"""Iterations by default, and those after which scores are compared with those of pooled scans."""
EXPERIMENTS = {
    ("all", "log-ridge"): "`log-ridge`, all sites",
    ("all", "ridge"): "`ridge`, all sites",
    ("evenly", "log-ridge"): "`log-ridge`, sites of all sizes, from the largest to the smallest",
    ("thinned", "log-ridge"): "`log-ridge`, five sites; the largest has only half of its patients",
}


@cache
def read_scores() -> pd.DataFrame:
    """Read the measured scores; iterations are texts, among them ``pooled``."""
    return pd.read_csv(EVIDENCE / FOLDER / "scores.csv", dtype={"iterations": str})


def list_experiments(kind: str, method: str) -> list[tuple[pd.Series, dict[str, pd.Series]]]:
    """List the cohorts of a kind: what they have in common, and the row of each number of iterations."""
    table = read_scores()
    own = table[(table["kind"] == kind) & (table["method"] == method)]
    keys = ["atlas", "question", "sites"]
    return [(rows.iloc[0], {row["iterations"]: row for _, row in rows.iterrows()}) for _, rows in own.groupby(keys)]


def find(**wanted: Any) -> pd.Series:
    """Find the one row with some values."""
    table = read_scores()
    for name, value in wanted.items():
        table = table[table[name] == value]
    (row,) = table.to_dict("records")
    return pd.Series(row)


def read_processes() -> list[dict[str, Any]]:
    """Read what each round took where every site was a process: means over sites, and their number."""
    rounds = pd.read_csv(EVIDENCE / FOLDER / "processes.csv").groupby(["atlas", "round"])
    return rounds.mean(numeric_only=True).join(rounds["site"].count()).reset_index().to_dict("records")


def count_largest_site() -> int:
    """Count the scans of the largest site of ABIDE I."""
    sites = read_jobs("unseen-sites/aal116/ridge")[0].sites
    assert sites is not None
    return int((sites["n_patients"] + sites["n_controls"]).max())


def read_attacks() -> str:
    """Read what the attacks printed."""
    return (EVIDENCE / "measurements" / "federation-attacks.txt").read_text(encoding="utf-8").rstrip()


def measure_gaps() -> list[float]:
    """Differences of the AUC with the default number of iterations from that of pooled scans, all sites, in points."""
    gaps = []
    for _, rows in list_experiments("all", "log-ridge"):
        gaps.append(100 * (rows[str(DEFAULT)]["auc"] - rows["pooled"]["auc"]))
    return gaps


def list_gaps(iterations: int) -> pd.DataFrame:
    """Return the differences of the AUC to that of pooled scans, all sites, in points, for the figure."""
    rows = [
        (
            f"{about['atlas'].upper()}, {about['question'].replace('>', ' above ').replace('site-', '')}",
            100 * (own[str(iterations)]["auc"] - own["pooled"]["auc"]),
            method,
        )
        for method in ("log-ridge", "ridge")
        for about, own in list_experiments("all", method)
    ]
    return pd.DataFrame(rows, columns=["name", "mean", "group"]).set_index("name")
