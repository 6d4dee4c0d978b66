"""Which factors carry over to unseen sites: AUC from some of them, with the classifier fixed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..drawing import horizontal_offset, make_panels, series_style
from ..formatting import format_signed, state_p
from ..protocol import auc, average_margins, compare_over_sites, t_interval
from .context import Arm, StudyContext, make_arm
from .study import Finding, register_study
from .summaries import compute_error_bars

if TYPE_CHECKING:
    from torch import Tensor

    from ..diagnostics import FactorEvidence
    from ..training import FittedRun

RANDOM_ORDERS = 20
"""Random rankings whose AUCs are averaged for each run."""


def _list_arms(context: StudyContext) -> list[Arm]:
    return [make_arm("brio")]


@register_study(
    "retention",
    "AUC from the best-ranked factors alone",
    "Ranking by full qualification has the highest AUC when some factors are kept, most clearly when few are kept. "
    "Support alone is weaker. All rankings agree when all factors are kept.",
    _list_arms,
)
def retain_factors(context: StudyContext) -> Finding:
    """Score test sites with the best-ranked factors alone; factors are ranked on source sites, the classifier is fixed.

    Rankings are by qualification, relevance, support, and at random.
    """
    rows = _score_runs(context)
    by_site = rows.groupby(["ranking", "share", "fold"], sort=False)["auc"].mean()
    means = 100 * by_site.groupby(["ranking", "share"], sort=False).mean().unstack("share")
    text = []
    for share in [s for s in means.columns if s < 100]:
        scores = 100 * by_site.xs(share, level="share").unstack("ranking")
        tests = compare_over_sites(scores, "qualification").set_index("method")
        differences = ", ".join(
            f"{ranking} {format_signed(-test['mean_difference'])} points ({state_p(test['p_holm'])})"
            for ranking, test in tests.iterrows()
        )
        text.append(
            f"With {share:g} % of the factors, ranking by {means[share].idxmax()} has the highest mean AUC. AUC of "
            f"qualification minus that of the others: {differences}."
        )
    full = means[100.0]
    text.append(f"With all factors, AUC is {full.iloc[0]:.1f} % under every ranking.")
    facts = context.trained_results(make_arm("brio")).facts
    summary = means.rename(columns=lambda share: f"{share:g} %").reset_index().assign(**facts)
    return Finding(rows.assign(**facts), summary, text, lambda: _draw(by_site))


def _score_runs(context: StudyContext) -> pd.DataFrame:
    """Score every run under every ranking: one row per run, ranking and number of factors."""
    import torch

    from ..diagnostics import compute_contributions, gather_factor_evidence

    method, fitted_runs = context.load_fitted_runs(make_arm("brio"))
    lengths = [context.estimate_block_length(fitted.run) for fitted in fitted_runs]
    evidences = gather_factor_evidence(method, fitted_runs, context.connectomes, lengths)
    inputs = method.gather_inputs(context.connectomes)
    rows = []
    for fitted, evidence in zip(fitted_runs, evidences, strict=True):
        fold = fitted.run.fold
        test = torch.from_numpy(fold.test).to(context.connectomes.device)
        a = compute_contributions(method, fitted, inputs.take(test))
        people, averaged = average_margins(context.cohort, fold.test, a.double().cpu().numpy())
        a = torch.from_numpy(averaged).to(a)  # margins are linear in contributions, so this averages margins too
        scores = _score_rankings(evidence, a, fitted, context.cohort.labels[people])
        rows.append(scores.assign(fold=fold.name, seed=fitted.run.seed))
    return pd.concat(rows, ignore_index=True)[["fold", "seed", "ranking", "factors", "share", "auc"]]


def _score_rankings(evidence: FactorEvidence, a: Tensor, fitted: FittedRun, labels: np.ndarray) -> pd.DataFrame:
    """Score one run on its test scans with 1 to J factors under each ranking; a has shape [participants, J]."""
    from ..diagnostics import RANKINGS, rank_factors, retained_margin

    J = a.shape[1]

    @cache  # rankings share most of their sets of factors
    def score(factors: frozenset[int]) -> float:
        return auc(labels, retained_margin(a, fitted, sorted(factors)))

    rows = []
    for ranking in RANKINGS:
        n_orders = RANDOM_ORDERS if ranking == "random" else 1
        orders = [rank_factors(evidence, ranking, seed) for seed in range(n_orders)]
        for n_factors in range(1, J + 1):
            sets = [frozenset(order[:n_factors].tolist()) for order in (orders if n_factors < J else orders[:1])]
            mean = float(np.mean([score(factors) for factors in sets]))
            rows.append({"ranking": ranking, "factors": n_factors, "share": 100 * n_factors / J, "auc": mean})
    return pd.DataFrame(rows)


def _draw(by_site: pd.Series) -> Any:
    from ..diagnostics import RANKINGS

    figure, (axis,) = make_panels(1, 7.0, 3.8)
    for k, ranking in enumerate(RANKINGS):
        table = 100 * by_site.loc[ranking].unstack("share")
        low, high = np.array([t_interval(table[share].to_numpy()) for share in table.columns]).T
        mean, x = table.mean(), table.columns + horizontal_offset(k, len(RANKINGS), 100 / len(table.columns))
        bars = compute_error_bars(mean, low, high)
        axis.errorbar(x, mean, yerr=bars, capsize=2, linewidth=1.2, label=ranking, **series_style(k))
        axis.set_xticks(table.columns, [f"{share:.0f}" for share in table.columns])
    axis.set_xlabel("factors kept, %", fontsize=9)
    axis.set_ylabel("AUC at test sites, % (95 % interval)", fontsize=9)
    outside = {"bbox_to_anchor": (1.01, 1), "loc": "upper left"}  # bars need the room inside
    axis.legend(fontsize=8, frameon=False, title="factors ranked by", title_fontsize=8, **outside)
    return figure
