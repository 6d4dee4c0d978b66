"""Scores over sites or participants, paired differences between methods, and the verdict on a claim.

The tests are those of :mod:`brio.protocol`. All scores are in percent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from brio.methods.registry import rank_block
from brio.protocol.statistics import (
    EQUIVALENCE_MARGIN,
    FoldOverlap,
    adjust_holm,
    compare_by_corrected_t,
    compare_family,
    fold_correction,
)
from brio.report.comparisons import gather_jobs
from brio.results import (
    PAIR_WEIGHTED,
    MethodSummary,
    StoredJob,
    assess_auc,
    average_seeds,
    compare_over_people,
    summarise_scores,
    unit_columns,
)

from .markdown import change_with_interval, p_cell

LEVEL = 0.05


def site_scores(runs: pd.DataFrame, metric: str = "auc") -> pd.DataFrame:
    """Return the score of each method at each test site, averaged over seeds. Shape [sites, methods]."""
    return 100 * average_seeds(runs, metric)


def fold_scores(runs: pd.DataFrame, metric: str = "auc") -> pd.DataFrame:
    """Return the score of each method in each fold of each seed of k-fold. Shape [seeds x folds, methods]."""
    return 100 * average_seeds(runs, metric, units=unit_columns("kfold"))


def arm_scores(rows: pd.DataFrame, column: str = "auc", factor: float = 100.0) -> pd.DataFrame:
    """Return a quantity of each arm of a study in each fold, averaged over seeds. Shape [folds, arms]."""
    return factor * average_seeds(rows, column, column="arm")


def describe_scores(scores: pd.DataFrame, correction: FoldOverlap | None = None) -> pd.DataFrame:
    """Return mean, SD and 95% corrected t interval over sites (or folds) of each method, highest mean first.

    Parameters
    ----------
    scores : DataFrame, shape [sites, methods]
    correction : FoldOverlap, optional
        :func:`brio.results.mean_correction` for the folds of k-fold.
    """
    summaries = {name: _summarise(tuple(scores[name]), correction) for name in scores}
    rows = {name: [s.mean, s.sd, *(s.interval or (None, None))] for name, s in summaries.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "sd", "low", "high"])
    return table.sort_values("mean", ascending=False, kind="stable")


_summarise = cache(summarise_scores)  # several pages describe the same scores


FAMILIES = {
    "unseen sites": "every other method versus ridge, on one atlas",
    "baselines": "every baseline of the paper's table versus BRIO, on one atlas",
    "averaged seeds": "every neural network versus ridge, both with margins averaged over seeds, on one atlas",
    "labels": "every other method versus ridge, on one atlas, for one label or for all labels together",
    "site penalties": "each penalty versus the GCN to which it is added, on one atlas",
    "graph OOD": "each graph OOD method versus the best brain-network method, on one atlas",
    "sister sites": "each linear model with versus without the other sample of the institution, on both atlases",
    "single pairs": "one pair, not corrected",
    "ablation": "every other arm versus BRIO, on one atlas",
    "BRIO plus": "every other method versus BRIO plus, on one atlas",
    "in distribution": "every other method versus BRIO, over the folds of one atlas",
    "harmonisation": "each policy versus no ComBat",
    "sensitivity": "each other value of a setting versus BRIO's default, on one atlas",
    "factors": "each other ranking versus qualification, for all numbers of factors together",
    "stability": "every other arm versus BRIO, for one quantity of one study",
    "scan length": "each other arm versus BRIO at one scan length; in a separate family, each arm at one scan length "
    "versus full scans",
    "repeats": "one pair, not corrected",
}
"""Families of comparisons (pairs corrected together by Holm's method). Families are declared only here."""
VERDICTS: dict[tuple[str, str, str, str], tuple[float, float, float]] = {}
"""(Family, where, method, reference) -> difference and corrected p values by the earlier and the current test."""


def name_family(family: str) -> str:
    """Return the sentence that names the test of a page and its family."""
    text = FAMILIES[family]
    test = "p values come from the corrected t test over sites"
    if text.endswith(", not corrected"):
        return f"{test} and are not adjusted for multiple comparisons (family *{family}*)."
    return f"{test} and are adjusted by Holm's method. The family of comparisons is *{family}*: {text}."


def compare_sites(
    scores: pd.DataFrame, reference: str, family: str, where: str = "", *, lower_is_better: bool = False
) -> pd.DataFrame:
    """Return the differences of all methods to a reference over sites, by method: each method minus the reference.

    Parameters
    ----------
    scores : DataFrame, shape [sites, methods]
    reference : str
    family : str
        One of :data:`FAMILIES`.
    where : str
        Which one of it, such as the atlas.
    lower_is_better : bool
    """
    table = compare_family(scores, reference, lower_is_better=lower_is_better, margin=100 * EQUIVALENCE_MARGIN)
    table = table.set_index("method").rename(columns={"mean_difference": "mean"})
    differences = {name: (scores[name] - scores[reference]).dropna().round(12).to_numpy() for name in table.index}
    before = adjust_holm([_signed_rank_p(d) for d in differences.values()])
    record_verdicts(table.assign(p_before=before), reference, family, where)
    return table.assign(p_before=before)


def record_verdicts(table: pd.DataFrame, reference: str, family: str, where: str) -> None:
    """Store the comparisons of a family for the page on the level of tests."""
    if family not in FAMILIES:
        raise KeyError(f"the family {family} is not declared")
    for name, row in table.iterrows():
        VERDICTS[family, where, str(name), reference] = (row["mean"], row["p_before"], row["p_holm"])


def _signed_rank_p(differences: np.ndarray) -> float:
    """Two-sided p of the exact signed-rank test, which was used before."""
    signed = differences[differences != 0]
    doubled = np.rint(2 * rankdata(np.abs(signed))).astype(int)
    chance = np.zeros(doubled.sum() + 1)
    chance[0] = 1.0
    for rank in doubled:
        chance[rank:] += chance[: len(chance) - rank].copy()
        chance /= 2
    observed = int(doubled[signed > 0].sum())
    return min(1.0, 2 * float(min(chance[: observed + 1].sum(), chance[observed:].sum())))


def compare_kfold(runs: pd.DataFrame, reference: str, where: str) -> pd.DataFrame:
    """Return the differences of all methods to a reference over folds, by method."""
    sizes = runs[["n_test", "n_source"]].mean()
    scores = fold_scores(runs)
    correction = fold_correction(sizes["n_test"], sizes["n_source"], scores.index.get_level_values("fold").nunique())
    table = compare_family(scores, reference, correction, margin=100 * EQUIVALENCE_MARGIN)
    table = table.set_index("method").rename(columns={"mean_difference": "mean"})
    before = sizes["n_test"] / sizes["n_source"]
    p = [compare_by_corrected_t(scores[name], scores[reference], before).p for name in table.index]
    table["p_before"] = adjust_holm(p)
    record_verdicts(table, reference, "in distribution", where)
    return table


def reverse(differences: pd.DataFrame) -> pd.DataFrame:
    """Return the same comparisons as reference minus method."""
    turned = differences.copy()
    turned[["mean", "low", "high"]] = -differences[["mean", "high", "low"]].to_numpy()
    return turned


def compare_pair(scores: pd.DataFrame, first: str, second: str, family: str, where: str = "") -> pd.Series:
    """Return the difference of two methods over sites: first minus second."""
    return compare_sites(scores[[first, second]], second, family, where).loc[first]


def difference_cells(differences: pd.DataFrame, name: str, digits: int = 1) -> str:
    """Return the two table cells of one comparison: difference with interval, corrected p; empty for the reference."""
    if name not in differences.index:
        return " | "
    row = differences.loc[name]
    return f"{change_with_interval(row, digits=digits)} | {p_cell(row['p_holm'])}"


def group_rows(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Stack tables as the rows of a figure, each under its heading."""
    return pd.concat([table.assign(group=heading) for heading, table in tables.items()])


def shown(differences: pd.DataFrame, direction: int) -> pd.DataFrame:
    """Return the significant comparisons (corrected p at most 0.05) in one direction: 1 above, -1 below."""
    return differences[(differences["p_holm"] <= LEVEL) & (direction * differences["mean"] > 0)]


Verdict = tuple[str, str, str]
"""Claim of the paper, measured result, and verdict (see :func:`judge`)."""


def judge(n_shown: int, n_opposite: int, n: int) -> str:
    """Return the verdict on a claim of ``n`` comparisons, some of them significant as claimed or the other way round.

    Examples
    --------
    >>> judge(4, 0, 4), judge(2, 0, 4), judge(1, 0, 4), judge(3, 1, 4)
    ('agrees', 'in part', 'not significant', 'contradicted')
    """
    if n_opposite:
        return "contradicted"
    return "agrees" if n_shown == n else "in part" if 2 * n_shown >= n else "not significant"


def judge_parts(held: Iterable[bool]) -> str:
    """Return the verdict on a claim that needs no test, from whether each of its parts holds."""
    parts = list(held)
    return "agrees" if all(parts) else "in part" if any(parts) else "does not hold"


def count_shown(tables: Iterable[pd.DataFrame]) -> tuple[int, int, int]:
    """Return the numbers of comparisons significantly below and above the reference, and of all comparisons."""
    together = pd.concat(tables)
    return len(shown(together, -1)), len(shown(together, 1)), len(together)


JUDGEMENT = (
    "A tested claim consists of one or more paired comparisons. A comparison is significant if its p value, corrected "
    f"by Holm's method, is at most {LEVEL}.\n\n"
    "- *Contradicted*: at least one comparison is significant in the opposite direction. Otherwise, *agrees*: all "
    "comparisons are significant; *in part*: at least half are; *not significant*: fewer than half are.\n"
    "- Claims without a test (ranks, regions, time, memory, propositions) agree if all of their parts hold, "
    "agree in part if some of them hold, and do not hold if none does.\n"
    "- Two claims say that an effect is *not* consistent. The claim on general OOD methods agrees unless the effect is "
    "significant in all comparisons. The claim on site discrepancy agrees unless the interval of Spearman's rho lies "
    "above zero."
)


_join = cache(gather_jobs)  # several pages compare the same jobs


@cache
def pair_weighted(jobs: tuple[StoredJob, ...]) -> dict[str, float]:
    """Return the pair-weighted AUC of each method of leave-one-site-out jobs, where they keep ``covariances.csv``."""
    joined = _join(jobs)
    tests = {method: assess_auc(joined.sites, joined.covariances, method) for method in joined.sites["method"].unique()}
    return {method: 100 * test[PAIR_WEIGHTED].mean for method, test in tests.items() if test}


def compare_people(jobs: Sequence[StoredJob], reference: str) -> pd.DataFrame:
    """Return the differences to a method over participants at the sites of leave-one-site-out jobs of one cohort.

    By method and estimand, see :func:`brio.results.compare_over_people`; empty where no covariances are kept.
    """
    joined = _join(tuple(jobs))
    table = compare_over_people(joined.sites, joined.covariances, reference).set_index(["method", "estimand"])
    numbers = ["mean_difference", "low", "high"]
    return table.assign(**{name: 100 * table[name] for name in numbers}).rename(columns={"mean_difference": "mean"})


def group_by_block(names: Iterable[str], methods: dict[str, MethodSummary]) -> list[tuple[str, list[str]]]:
    """Group names of methods by the block of tables that they belong to; names stay in their order."""
    blocks: dict[str, list[str]] = {}
    for name in names:
        blocks.setdefault(methods[name].block, []).append(name)
    titles = {block: block.replace("controls", "confound baselines") for block in blocks}  # stored results say controls
    return [
        (f"{titles[block][0].upper()}{titles[block][1:]}", blocks[block]) for block in sorted(blocks, key=rank_block)
    ]
