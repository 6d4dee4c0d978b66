"""Which parts of BRIO raise its AUC?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import format_signed
from brio.studies.context import display_name

from .comparisons import Verdict, compare_pair, compare_sites, judge, shown, site_scores
from .evidence import ATLASES, atlas_label, read_runs
from .markdown import in_words

JOBS = {atlas: f"brio-versions/{atlas}/version-3" for atlas in ATLASES}
PAPER_ARMS = ["brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf"]
ARMS = {  # what is left out, the weights of factors, the strength of alignment, names of source sites
    "brio-wo-rs": ("re-estimation support", "relevance", "1", "true"),
    "brio-wo-tr": ("task relevance", "support", "mean support", "true"),
    "brio-wo-sm": ("strength modulation", "relevance × support", "1", "true"),
    "brio-wo-sf": ("support in the weights", "relevance", "sum of relevance × support", "true"),
    "brio-wo-qg": ("qualification guidance", "equal", "1", "true"),
    "backbone": ("alignment", "", "0", "true"),
    "brio-shuffled": ("true site names", "relevance × support", "sum of relevance × support", "shuffled"),
    "backbone-shuffled": ("alignment and true site names", "", "0", "shuffled"),
}


@cache
def scores(atlas: str, metric: str = "auc") -> pd.DataFrame:
    """Return the score of each arm at each test site."""
    return site_scores(read_runs(JOBS[atlas]), metric)[["brio", *ARMS]]


@cache
def differences(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC of all arms to BRIO."""
    return compare_sites(scores(atlas), "brio", "ablation", atlas_label(atlas))


def compare_arms(atlas: str, first: str, second: str, where: str = "") -> pd.Series:
    """Compare two arms: first minus second; one pair, not corrected."""
    return compare_pair(scores(atlas), first, second, "single pairs", atlas_label(atlas) + where)


def gains_at(first: int) -> list[float]:
    """Return BRIO minus backbone at every second site by name, from the first (development sites) or the second on."""
    parts = [scores(atlas).sort_index().iloc[first::2] for atlas in ATLASES]
    return [float((auc["brio"] - auc["backbone"]).mean()) for auc in parts]


@cache
def judge_claims() -> list[Verdict]:
    """Return the verdicts on the paper's ablation."""
    verdicts = []
    for atlas in ATLASES:
        table, acc = differences(atlas).loc[PAPER_ARMS], scores(atlas, "acc").mean()
        below, above, n = shown(table, -1), shown(table, 1), len(table)
        named = f" ({in_words(map(display_name, below.index))}, {in_words(map(format_signed, below['mean']))})"
        higher = int((acc[PAPER_ARMS] < acc["brio"]).sum())
        verdicts.append(
            (
                f"The full method has a higher AUC and ACC than its four ablations ({atlas_label(atlas)})",
                f"AUC significantly above {len(below)} of {n} ablations{named if len(below) else ''}; "
                f"mean ACC above {higher} of {n}",
                judge(len(below), len(above), n),
            )
        )
    return verdicts
