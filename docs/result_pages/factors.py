"""What information do BRIO's factors carry?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.protocol import adjust_holm
from brio.results import average_seeds

from .comparisons import (
    LEVEL,
    Verdict,
    compare_sites,
    count_shown,
    group_rows,
    judge,
    judge_parts,
    record_verdicts,
    reverse,
)
from .evidence import read_paper, read_study, read_study_summary
from .markdown import in_words

STUDIES = "studies/aal116"
RANKINGS = ["qualification", "relevance", "support", "random"]
TOP = 5


@cache
def kept_scores(share: float) -> pd.DataFrame:
    """Return the AUC at each test site with a share of the factors kept, by ranking."""
    rows = read_study(f"{STUDIES}/retention")
    return 100 * average_seeds(rows[rows["share"] == share], column="ranking")[RANKINGS]


def count_factors() -> pd.Series:
    """Return the number of factors that are kept, by share in percent."""
    return read_study(f"{STUDIES}/retention").groupby("share")["factors"].first()


@cache
def kept_differences() -> pd.DataFrame:
    """Return the differences in AUC of the other rankings to qualification, by share and ranking.

    p is corrected for the comparisons of all shares together.
    """
    shares = {share: f"{share:g}%" for share in count_factors().index if share < 100}
    tables = {s: compare_sites(kept_scores(s), "qualification", "factors", at) for s, at in shares.items()}
    together = pd.concat(tables)
    together["p_holm"] = adjust_holm(together["p"].to_numpy())
    for share, at in shares.items():
        record_verdicts(together.loc[share], "qualification", "factors", at)
    return together


@cache
def regions() -> pd.DataFrame:
    """Return all regions with their score and rank, highest first."""
    table = read_study(f"{STUDIES}/regions").sort_values("S_hat", ascending=False).set_index("roi")
    return table.assign(rank=range(1, len(table) + 1))


def paper_ranks() -> pd.Series:
    """Return our ranks of the regions that the paper names."""
    return regions().loc[read_paper()["highest_regions"], "rank"]


@cache
def propositions() -> dict[str, str]:
    """Return the results on the two propositions in trained models, by quantity."""
    return read_study_summary(f"{STUDIES}/propositions").set_index("quantity")["value"].to_dict()


def list_gains() -> pd.DataFrame:
    """Return qualification minus each other ranking for the figure, grouped by the number of factors kept."""
    kept, factors = reverse(kept_differences()), count_factors()
    return group_rows({f"{factors[s]} of {factors[100.0]} factors kept": kept.loc[s] for s in kept.index.unique(0)})


@cache
def judge_claims() -> list[Verdict]:
    """Return the verdicts on retention, regions and propositions."""
    below, above, n = count_shown([kept_differences()])
    by_chance = kept_differences().xs("random", level=1)
    chance = int((by_chance["p_holm"] <= LEVEL).sum())
    ranks = paper_ranks()
    among = int((ranks <= TOP).sum())
    held = [propositions()[name] == "100.0" for name in ("Prop. 1: bound holds, %", "Prop. 2: identities hold, %")]
    return [
        (
            "When only some factors are kept, ranking by qualification gives the highest AUC",
            f"significant in {below} of {n} comparisons, among them {chance} of {len(by_chance)} with random order",
            judge(below, above, n),
        ),
        (
            "Five regions have the highest scores",
            "not reproduced; our ranking changes from run to run; "
            f"{among or 'none'} of the five are among our {TOP} highest-scoring regions; "
            f"their ranks are {in_words(map(str, ranks))} of {len(regions())}",
            judge_parts(ranks <= TOP),
        ),
        (
            "Propositions 1 and 2",
            f"hold for all {int(propositions()['Prop. 1: sites and factors']):,} combinations of site and factor and "
            f"{int(propositions()['Prop. 2: pairs of sites and classes']):,} combinations of site pair and class",
            judge_parts(held),
        ),
    ]
