"""Which factors carry over to unseen sites: keep some of them, with the classifier as it is."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..diagnostics import (
    RANKINGS,
    FactorEvidence,
    compute_contributions,
    gather_factor_evidence,
    rank_factors,
    retained_margin,
)
from ..drawing import horizontal_offset, make_panels, series_style
from ..protocol import auc, bootstrap_interval, compare_over_sites
from ..results.format import format_signed, state_p
from ..training import FittedRun
from .arms import Arm, arm
from .context import StudyContext
from .study import Finding, study
from .summaries import error_bars

__all__ = ["retention"]

RANDOM_ORDERS = 20
"""Random rankings whose AUCs are averaged for each run."""


def _arms(context: StudyContext) -> list[Arm]:
    return [arm("brio")]


@study(
    "retention",
    "Factors kept, by qualification, relevance, support or chance",
    "full qualification has the highest AUC at partial retention, most when few factors are kept; support alone is "
    "weaker; all rankings agree at full retention.",
    _arms,
)
def retention(context: StudyContext) -> Finding:
    """AUC at held-out sites from the best factors alone, fixed classifier; factors ranked on source sites."""
    rows = _rows(context)
    by_site = rows.groupby(["ranking", "share", "fold"], sort=False)["auc"].mean()
    means = 100 * by_site.groupby(["ranking", "share"], sort=False).mean().unstack("share")
    text = []
    for share in [s for s in means.columns if s < 100]:
        scores = 100 * by_site.xs(share, level="share").unstack("ranking")
        best = means[share].idxmax()
        tests = compare_over_sites(scores, "qualification").set_index("method")
        told = [f"{m} {format_signed(-t['mean_difference'])} ({state_p(t['p_holm'])})" for m, t in tests.iterrows()]
        text.append(f"{share:g} % of the factors: highest mean AUC by {best}; qualification against {', '.join(told)}.")
    full = means[100.0]
    text.append(f"All factors: {full.iloc[0]:.1f} under every ranking.")
    facts = context.trained_results(arm("brio")).facts
    summary = means.rename(columns=lambda s: f"{s:g} %").reset_index().assign(**facts)
    return Finding(rows.assign(**facts), summary, text, lambda: _draw(by_site))


def _rows(context: StudyContext) -> pd.DataFrame:
    method, fitted_runs = context.fitted_runs(arm("brio"))
    lengths = [context.block_length(o.run) for o in fitted_runs]
    inputs = method.inputs(context.connectomes)
    rows = []
    for fitted, evidence in zip(
        fitted_runs, gather_factor_evidence(method, fitted_runs, context.connectomes, lengths), strict=True
    ):
        fold = fitted.run.fold
        test = torch.from_numpy(fold.test).to(context.connectomes.device)
        a = compute_contributions(method, fitted, inputs.take(test))
        scores = _scores(evidence, a, fitted, context.cohort.labels[fold.test])
        rows.append(scores.assign(fold=fold.name, seed=fitted.run.seed))
    told = pd.concat(rows, ignore_index=True)
    return told[["fold", "seed", "ranking", "factors", "share", "auc"]]


def _scores(evidence: FactorEvidence, a: Tensor, fitted: FittedRun, label: np.ndarray) -> pd.DataFrame:
    """AUC of one run on its test scans with more and more factors, under each ranking."""
    J = a.shape[1]

    @cache  # orders share most of the sets of factors that they keep
    def score(kept: frozenset[int]) -> float:
        return auc(label, retained_margin(a, fitted, sorted(kept)))

    rows = []
    for by in RANKINGS:
        orders = [rank_factors(evidence, by, seed) for seed in range(RANDOM_ORDERS if by == "random" else 1)]
        for kept in range(1, J + 1):
            sets = [frozenset(order[:kept].tolist()) for order in (orders if kept < J else orders[:1])]
            mean = float(np.mean([score(one) for one in sets]))
            rows.append({"ranking": by, "factors": kept, "share": 100 * kept / J, "auc": mean})
    return pd.DataFrame(rows)


def _draw(by_site: pd.Series) -> Any:
    figure, (axis,) = make_panels(1, 5.6, 3.8)
    for k, by in enumerate(RANKINGS):
        table = 100 * by_site.loc[by].unstack("share")
        low, high = np.array([bootstrap_interval(table[s].to_numpy()) for s in table.columns]).T
        mean, x = table.mean(), table.columns + horizontal_offset(k, len(RANKINGS), 100 / len(table.columns))
        axis.errorbar(x, mean, yerr=error_bars(mean, low, high), capsize=2, linewidth=1.2, label=by, **series_style(k))
        axis.set_xticks(table.columns, [f"{s:.0f}" for s in table.columns])
    axis.set_xlabel("factors kept, %", fontsize=9)
    axis.set_ylabel("AUC at held-out sites, % (95 % interval)", fontsize=9)
    axis.legend(fontsize=8, frameon=False)
    return figure
