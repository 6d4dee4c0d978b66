"""What do BRIO's factors carry?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import format_signed, state_p
from brio.protocol import adjust_holm
from brio.results import average_seeds

from .comparisons import Verdict, compare_sites, difference_cells, judge, name_family, record_verdicts, reverse, shown
from .evidence import (
    describe_runs_of_today,
    link_figure,
    name_source,
    read_paper,
    read_paper_claim,
    read_sentence,
    read_study,
    read_study_summary,
)
from .markdown import fixed, in_words, state, write_page, write_table

FILE = "factors.md"
TITLE = "What do BRIO's factors carry?"
STUDIES, OLD = "studies/aal116-version-2", "studies/aal116"
RANKINGS = ["qualification", "relevance", "support", "random"]
TOP = 5


@cache
def kept_scores(share: float, folder: str = f"{STUDIES}/retention") -> pd.DataFrame:
    """Return the AUC at each test site with a share of the factors kept, by ranking."""
    rows = read_study(folder)
    return 100 * average_seeds(rows[rows["share"] == share], column="ranking")[RANKINGS]


@cache
def kept_differences(folder: str = f"{STUDIES}/retention") -> dict[float, pd.DataFrame]:
    """Return the differences in AUC of the other rankings to qualification, by share.

    p is corrected for the comparisons of all shares together.
    """
    tables = {
        share: compare_sites(
            kept_scores(share, folder), "qualification", "factors", f"{share:g} %, {folder.split('/')[1]}"
        )
        for share in _shares()
    }
    together = pd.concat(tables)
    together["p_holm"] = adjust_holm(together["p"].to_numpy())
    for share in tables:
        record_verdicts(together.loc[share], "qualification", "factors", f"{share:g} %, {folder.split('/')[1]}")
    return {share: together.loc[share] for share in tables}


def _shares() -> list[float]:
    return sorted(share for share in read_study(f"{STUDIES}/retention")["share"].unique() if share < 100)


def _retention() -> list[str]:
    factors = read_study(f"{STUDIES}/retention").groupby("share")["factors"].first()
    means, tests = [], []
    for share in [*_shares(), 100.0]:
        means.append([f"{factors[share]} of {factors[100.0]}", *(fixed(v) for v in kept_scores(share).mean())])
    for share in _shares():
        table = reverse(kept_differences()[share])
        for other in RANKINGS[1:]:
            row, cells = table.loc[other], difference_cells(table, other)
            same = f"{row['n'] - row['better'] - row['worse']} of {row['n']}"
            tests.append([f"{factors[share]} of {factors[100.0]}", other, *cells, same])
    old = kept_differences(f"{OLD}/retention")[_shares()[0]].loc["random"]
    return [
        "## Which factors carry over to unseen sites?",
        "Only some factors are kept, with the classifier as it is. Factors are ranked on source sites; the random "
        "order is the mean of twenty orders. AUC at test sites:",
        write_table(["factors kept", *RANKINGS], means),
        f"Qualification minus the other rankings. {name_family('factors')}",
        write_table(
            ["factors kept", "ranking", "qualification minus it", "95 % interval", "p", "sites with equal AUC"], tests
        ),
        f"With the settings of version 0.1.0 one qualified factor was {format_signed(-old['mean'])} points above a "
        f"random one ({state_p(old['p_holm'])}, corrected likewise).",
        f"The paper: {read_paper_claim(f'{STUDIES}/retention')}",
        link_figure(f"{STUDIES}/retention/figure.svg", "AUC with some of the factors kept"),
    ]


@cache
def regions(folder: str = f"{STUDIES}/regions") -> pd.DataFrame:
    """Return all regions with their score and rank, highest first."""
    table = read_study(folder).sort_values("S_hat", ascending=False).set_index("roi")
    return table.assign(rank=range(1, len(table) + 1))


def _regions() -> list[str]:
    table, theirs = regions(), read_paper()["highest_regions"]
    old = set(regions(f"{OLD}/regions").index[:TOP])
    again = [name for name in table.index[:TOP] if name in old]
    ours = [
        [f"{row['rank']:g}", name, fixed(row["times_1_over_P"], 2), fixed(row["SD"] * len(table), 2)]
        for name, row in table[:TOP].iterrows()
    ]
    return [
        "## Where do the qualified factors lie?",
        "Highest mean scores over runs, in multiples of the uniform score 1/P:",
        write_table(["rank", "region", "score", "SD over runs"], ours),
        "The five regions that the paper names:",
        write_table(
            ["region", f"rank here, of {len(table)}", "score"],
            [[name, str(table.loc[name, "rank"]), fixed(table.loc[name, "times_1_over_P"], 2)] for name in theirs],
        ),
        f"{read_sentence(f'{STUDIES}/regions', 'Of the 5 highest')} {len(again)} of our five are also among the five "
        "highest with the settings of version 0.1.0" + (f" ({in_words(again)})." if again else "."),
        link_figure(f"{STUDIES}/regions/figure.svg", "Regions of the factors that qualify"),
    ]


@cache
def propositions() -> dict[str, str]:
    """Return what the two propositions come to in trained models, by quantity."""
    return read_study_summary(f"{STUDIES}/propositions").set_index("quantity")["value"].to_dict()


def _propositions() -> list[str]:
    return [
        "## Do the propositions hold in trained models?",
        "Both propositions are theorems, so a violation would be an error in the code. There is none. How tight they "
        "are the paper does not report.",
        write_table(["quantity", "value"], [[name, value] for name, value in propositions().items()]),
        link_figure(f"{STUDIES}/propositions/figure.svg", "Propositions 1 and 2 in trained models"),
    ]


def page() -> str:
    """Return the page."""
    tables = kept_differences()
    named = [name for name in read_paper()["highest_regions"] if regions().loc[name, "rank"] <= TOP]
    return write_page(
        TITLE,
        state(
            "**That factors which qualify carry more than others is not shown, and which regions they stress changes "
            "from run to run.** With one factor kept, the AUC of the qualified one differs from that of a random one "
            f"by {format_signed(-tables[_shares()[0]].loc['random', 'mean'])} points "
            f"({state_p(tables[_shares()[0]].loc['random', 'p_holm'])}). {len(named)} of the five regions named by the "
            "paper are among our five highest.",
            all((table["p_holm"] > 0.05).all() for table in tables.values()),
        ),
        f"AAL116; {describe_runs_of_today()}",
        *_retention(),
        *_regions(),
        *_propositions(),
        name_source(*(f"{STUDIES}/{s}" for s in ("retention", "regions", "propositions")), f"{OLD}/retention"),
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdicts on retention, regions and propositions."""
    tables = kept_differences().values()
    below, above, n = (
        sum(map(len, part)) for part in zip(*((shown(t, -1), shown(t, 1), t) for t in tables), strict=True)
    )
    chance = sum(t.loc["random", "p_holm"] <= 0.05 for t in tables)
    named = [name for name in read_paper()["highest_regions"] if regions().loc[name, "rank"] <= TOP]
    holds = {propositions()["Prop. 1: bound holds, %"], propositions()["Prop. 2: identities hold, %"]} == {"100.0"}
    return [
        Verdict(
            "Ranking factors by qualification has the highest AUC when some are kept",
            f"shown in {below} of {n} comparisons, {chance} of them against a random order",
            judge(below, above, n),
            FILE,
        ),
        Verdict(
            "Five regions have the highest scores",
            f"{len(named)} of them among our {TOP} highest; ranks "
            f"{in_words(str(regions().loc[r, 'rank']) for r in read_paper()['highest_regions'])} of {len(regions())}",
            "agrees" if len(named) == TOP else "in part" if named else "not shown",
            FILE,
        ),
        Verdict(
            "Propositions 1 and 2",
            f"hold for all {propositions()['Prop. 1: sites and factors']} sites and factors and "
            f"{propositions()['Prop. 2: pairs of sites and classes']} pairs of sites and classes",
            "agrees" if holds else "contradicted",
            FILE,
        ),
    ]
