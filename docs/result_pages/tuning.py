"""Did tuning help?"""

from __future__ import annotations

from collections import Counter

import pandas as pd

from brio.protocol import adjust_holm
from brio.results import TuningRecord

from .comparisons import compare_pair, site_scores
from .evidence import read_jobs, read_runs
from .markdown import in_words

TUNED = "tuning/aal116"
OWN = "unseen-sites/aal116"
ARMS = "studies/aal116/arms"
CHANGED_METHODS = ("brio-plus", "xg-gnn", "disco", "deci")
"""Methods that compute something else than in version 0.1.0, by which they were tuned, but not run otherwise."""
OWN_OF_EARLIER_VERSION = ["brio", "core"]
"""Methods that have changed since they were tuned, but were run with their own settings by the same version."""
SOURCES = (TUNED, OWN, *(f"{ARMS}/{name}" for name in OWN_OF_EARLIER_VERSION))


def read_tuning() -> dict[str, TuningRecord]:
    """Read the search of each tuned method."""
    return {method: job.tuning for job in read_jobs(TUNED) if job.tuning for method in job.tuning.choices}


def compare_tuned() -> pd.DataFrame:
    """Return the differences of tuned to own settings by method, highest first; p is corrected."""
    tuned, own = site_scores(read_runs(TUNED)), site_scores(read_runs(OWN))
    own = own.assign(**{name: site_scores(read_runs(f"{ARMS}/{name}"))[name] for name in OWN_OF_EARLIER_VERSION})
    rows = {}
    for name in tuned.columns.drop(list(CHANGED_METHODS), errors="ignore"):
        d = compare_pair(pd.DataFrame({"tuned": tuned[name], "own": own[name]}), "tuned", "own", "tuning", name)
        rows[name] = d.to_dict() | {"tuned": tuned[name].mean(), "own": own[name].mean()}
    table = pd.DataFrame(rows).T.sort_values("mean", ascending=False)
    return table.assign(p=adjust_holm(table["p"].to_numpy(float)))


def describe_budgets() -> str:
    """Say how many methods were tuned among how many configurations."""
    budgets = Counter(record.tried[name] for name, record in read_tuning().items())
    return in_words(f"{n} of them among {budget} configurations" for budget, n in budgets.items())


def describe_strengths() -> str:
    """Say which strength of alignment was chosen for BRIO, at how many test sites."""
    strengths = Counter(site["lambda_env"] for site in read_tuning()["brio"].choices["brio"].values())
    return in_words(f"{value:g} at {n} test sites" for value, n in sorted(strengths.items()))
