"""Is BRIO plus better than linear models?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.protocol.statistics import Difference, adjust_holm, compare_by_corrected_t, compare_groups
from brio.results import PAIR_WEIGHTED

from .comparisons import compare_pair, compare_people, compare_sites, reverse, site_scores
from .evidence import ATLASES, EVIDENCE, atlas_label, read_jobs, read_measured_table, read_runs

SOURCES = 19
FOLDERS = {atlas: f"brio-plus/{atlas}-{SOURCES}-source-sites" for atlas in ATLASES}
PARTS = {
    "log-ridge": "`log-ridge`",
    "version 5": "BRIO plus: with the re-estimation penalty",
    "chosen view": "view chosen in each run, instead of the penalty",
    "one kernel": "kernel on 32 principal coordinates, instead of the penalty",
    "four kernels": "kernels of four factors, instead of the penalty",
    "version 4": "version 4: penalty, chosen view and kernels of four factors",
}
"""Arms of the table of parts, and what readers see."""
QUESTIONS = {
    "own": "diagnosis",
    "age>site-median": "age above site median",
    "age>14.5": "age above 14.5",
    "sex": "sex",
}
DEVELOPED = ("brio-plus", "log-ridge", "fc-tangent-ridge")
"""Methods that were developed here; the last was not, but has a gain at the same sites."""


@cache
def scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of each method at each test site."""
    return site_scores(read_runs(FOLDERS[atlas]), metric)


@cache
def gains(atlas: str, where: str = "") -> pd.DataFrame:
    """Return BRIO plus minus each other method."""
    at = where or f"{atlas_label(atlas)}, {SOURCES} source sites"
    return reverse(compare_sites(scores(atlas), "brio-plus", "BRIO plus", at))


def gain_over_people(atlas: str) -> pd.Series:
    """Return BRIO plus minus ridge over participants, in pair-weighted AUC."""
    return compare_people(read_jobs(FOLDERS[atlas]), "ridge").loc[("brio-plus", PAIR_WEIGHTED)]


def development_parts(atlas: str) -> dict[str, list[str]]:
    """Return the sites where BRIO plus was developed (every second one by name), and the rest."""
    names = sorted(scores(atlas).index)
    return {"development sites": names[::2], "other sites": names[1::2]}


@cache
def compare_part(atlas: str, part: str, method: str) -> pd.Series:
    """Return BRIO plus minus a method at one half of the sites."""
    sites = development_parts(atlas)[part]
    return compare_pair(scores(atlas).loc[sites], "brio-plus", method, "single pairs", f"{atlas_label(atlas)}, {part}")


@cache
def interaction(atlas: str, method: str) -> Difference:
    """Return the gain of a method over ridge at the development sites minus that at the others, in points."""
    first, second = split_gain(atlas, method)
    return compare_groups(first.to_numpy(), second.to_numpy())


def split_gain(atlas: str, method: str) -> list[pd.Series]:
    """Return the gain of a method over ridge at each development site, and at each other."""
    gain = scores(atlas)[method] - scores(atlas)["ridge"]
    return [gain[sites] for sites in development_parts(atlas).values()]


def correct_interactions(atlas: str) -> dict[str, float]:
    """Return the p values of interactions, corrected for the two methods that were developed here."""
    developed = DEVELOPED[:2]
    return dict(zip(developed, adjust_holm([interaction(atlas, name).p for name in developed]), strict=True))


@cache
def read_parts() -> pd.DataFrame:
    """Read the AUC in percent of each arm (columns) for each label and development site (rows)."""
    rows = pd.read_csv(EVIDENCE / "brio-plus" / "parts.csv")
    return 100 * rows.pivot_table(index=["question", "site"], columns="arm", values="auc", sort=False)


def compare_parts() -> pd.DataFrame:
    """Return the differences of each arm to ``log-ridge``, with labels averaged at each site."""
    together = read_parts().groupby("site").mean()
    tests = {arm: compare_by_corrected_t(together[arm], together["log-ridge"]) for arm in PARTS if arm != "log-ridge"}
    rows = {arm: (test.mean, test.low, test.high, test.p) for arm, test in tests.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high", "p_holm"])


def read_regimes() -> pd.DataFrame:
    """Read what was measured in simulated regimes, by regime and arm: also AUC and ``low`` as numbers."""
    table = read_measured_table("simulated-regimes.txt").set_index(["regime", "arm"])
    low = table["95% interval"].str.split(" to ").str[0]
    return table.assign(auc=table["AUC"].astype(float), low=pd.to_numeric(low, errors="coerce"))
