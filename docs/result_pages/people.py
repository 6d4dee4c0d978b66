"""Statistics over participants at fixed sites, where jobs keep ``sites.csv`` and ``covariances.csv``.

Jobs of version 0.1.0 keep neither: their tables have no such columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from brio.formatting import format_signed
from brio.report import gather_jobs
from brio.results import ESTIMANDS, PAIR_WEIGHTED, StoredJob, assess_auc, compare_over_people

from .markdown import fixed, signed_interval, write_table


def pair_weighted(jobs: Sequence[StoredJob]) -> dict[str, float]:
    """Return the pair-weighted AUC of each method of leave-one-site-out jobs, in percent, where they keep it."""
    joined = gather_jobs(jobs)
    scores: dict[str, float] = {}
    for method in dict.fromkeys(joined.sites["method"]):
        tests = assess_auc(joined.sites, joined.covariances, method)
        scores |= {method: 100 * tests[PAIR_WEIGHTED].mean} if tests else {}
    return scores


def pair_cells(scores: dict[str, float], name: str) -> list[str]:
    """Return the table cell of the pair-weighted AUC of a method; none where no method has one."""
    return [fixed(scores[name]) if name in scores else ""] if scores else []


def pair_header(scores: dict[str, float]) -> list[str]:
    """Return the head of that column; none where no method has a pair-weighted AUC."""
    return [PAIR_WEIGHTED] if scores else []


def compare_people(jobs: Sequence[StoredJob], reference: str) -> pd.DataFrame:
    """Return the differences of all methods to a reference over participants at these sites, in percent.

    Parameters
    ----------
    jobs : sequence of StoredJob
        Leave-one-site-out jobs of one cohort.
    reference : str

    Returns
    -------
    DataFrame
        By method and estimand, see :func:`brio.results.compare_over_people`; empty where no covariances are kept.
    """
    joined = gather_jobs(jobs)
    table = compare_over_people(joined.sites, joined.covariances, reference).set_index(["method", "estimand"])
    numbers = ["mean_difference", "low", "high"]
    return table.assign(**{name: 100 * table[name] for name in numbers}).rename(columns={"mean_difference": "mean"})


def write_people(jobs: Sequence[StoredJob], reference: str, order: Iterable[str]) -> list[str]:
    """Return a paragraph and a table of the differences to a method over participants; nothing where they are not kept.

    Parameters
    ----------
    jobs : sequence of StoredJob
        Leave-one-site-out jobs of one cohort.
    reference : str
    order : names
        Of the methods.
    """
    table = compare_people(jobs, reference)
    if table.empty:
        return []
    compared = set(table.index.get_level_values("method"))
    rows, header = [], ["method"]
    for name in (name for name in order if name in compared):
        row = [f"`{name}`"]
        for estimand in ESTIMANDS:
            part = table.xs(estimand, level="estimand")
            row += [
                format_signed(part.loc[name, "mean"]),
                signed_interval(part.loc[name, "low"], part.loc[name, "high"]),
            ]
        rows.append(row)
    for estimand in ESTIMANDS:
        header += [f"minus {reference}, {estimand}", "95 % interval"]
    return [
        "The same differences over participants with the sites fixed: what holds for new participants at these sites "
        "(DeLong's variance, corrected for shared training scans). The p value of a pair is the one over sites.",
        write_table(header, rows),
    ]
