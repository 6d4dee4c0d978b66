"""Which factors carry over to unseen sites: keep some of them, with the classifier as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from ..diagnostics import RANKINGS, contributions, factor_evidence, factor_ranking, retained_margin
from ..drawing import panels, style
from ..protocol import auc, bootstrap_interval, compare
from .arms import Arm, arm
from .bench import Bench
from .study import Finding, study

__all__ = ["retention"]

RANDOM_ORDERS = 20
"""Random rankings whose AUCs are averaged for each run."""


def _arms(bench: Bench) -> list[Arm]:
    return [arm("brio")]


@study(
    "retention",
    "Factors kept, by qualification, relevance, support or chance",
    "full qualification has the highest AUC at partial retention, most when few factors are kept; support alone is "
    "weaker; all "
    "rankings agree at full retention.",
    _arms,
)
def retention(bench: Bench) -> Finding:
    """AUC at held-out sites from the best factors alone, fixed classifier; factors ranked on source sites."""
    rows = _rows(bench)
    by_site = rows.groupby(["ranking", "share", "fold"], sort=False)["auc"].mean()
    means = 100 * by_site.groupby(["ranking", "share"], sort=False).mean().unstack("share")
    text = []
    for share in [s for s in means.columns if s < 100]:
        scores = 100 * by_site.xs(share, level="share").unstack("ranking")
        best = means[share].idxmax()
        tests = compare(scores, "qualification").set_index("method")
        told = ", ".join(f"{m} {-t['mean_difference']:+.1f} (p = {t['p_holm']:.2g})" for m, t in tests.iterrows())
        text.append(f"{share:g} % of the factors: highest mean AUC by {best}; qualification against {told}.")
    full = means[100.0]
    text.append(f"All factors: {full.iloc[0]:.1f} under every ranking.")
    facts = bench.finished(arm("brio")).facts
    summary = means.rename(columns=lambda s: f"{s:g} %").reset_index().assign(**facts)
    return Finding(rows.assign(**facts), summary, text, lambda: _draw(by_site))


def _rows(bench: Bench) -> pd.DataFrame:
    method, outcomes = bench.fitted(arm("brio"))
    lengths = [bench.block_length(o.run) for o in outcomes]
    inputs, cohort = method.inputs(bench.graphs), bench.cohort
    rows = []
    for outcome, evidence in zip(outcomes, factor_evidence(method, outcomes, bench.graphs, lengths), strict=True):
        test = outcome.run.fold.test
        a = contributions(method, outcome, inputs.take(torch.from_numpy(test).to(bench.graphs.device)))
        label, J = cohort.labels[test], a.shape[1]
        for by in RANKINGS:
            orders = [factor_ranking(evidence, by, seed) for seed in range(RANDOM_ORDERS if by == "random" else 1)]
            for kept in range(1, J + 1):
                scores = [auc(label, retained_margin(a, outcome, order[:kept])) for order in orders]
                who = {"fold": outcome.run.fold.name, "seed": outcome.run.seed, "ranking": by}
                rows.append({**who, "factors": kept, "share": 100 * kept / J, "auc": float(np.mean(scores))})
    return pd.DataFrame(rows)


def _draw(by_site: pd.Series) -> Any:
    figure, (axis,) = panels(1, 5.6, 3.8)
    for k, by in enumerate(RANKINGS):
        table = 100 * by_site.loc[by].unstack("share")
        low, high = np.array([bootstrap_interval(table[s].to_numpy()) for s in table.columns]).T
        shift = 1.2 * (k - 1.5)
        mean = table.mean()
        axis.errorbar(
            table.columns + shift, mean, yerr=[mean - low, high - mean], capsize=2, linewidth=1.2, label=by, **style(k)
        )
    axis.set_xlabel("factors kept, %", fontsize=9)
    axis.set_ylabel("AUC at held-out sites, % (95 % interval)", fontsize=9)
    axis.legend(fontsize=8, frameon=False)
    return figure
