"""What shorter scans of unseen sites cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..connectome import Connectomes
from ..diagnostics import POSITIONS, window_connectomes
from ..drawing import horizontal_offset, make_panels, series_style
from ..protocol import auc, bootstrap_interval, compare_over_sites
from ..results.format import format_signed, state_p
from .arms import Arm, arm, display_name
from .comparison import reference_of
from .context import StudyContext
from .study import Finding, study
from .summaries import error_bars

__all__ = ["scan_length"]

SHARES = (0.75, 0.5)
METHODS = ("brio", "brio-wo-rs", "brio-wo-qg")


def _arms(context: StudyContext) -> list[Arm]:
    return [arm(name) for name in context.methods or METHODS]


@study(
    "scan-length",
    "Shorter scans at unseen sites",
    "all models lose AUC when fewer time points are kept; BRIO loses least, w/o RS less than w/o QG, more so at half "
    "the scan.",
    _arms,
)
def scan_length(context: StudyContext) -> Finding:
    """Change of AUC when held-out FC is made from 75 or 50 % of the frames: first, middle, last; checkpoints fixed."""
    rows = _rows(context)
    shorter = rows[rows["share"] < 100]
    change = 100 * shorter.groupby(["arm", "share", "fold"], sort=False)["change"].mean()  # over windows and seeds
    table = change.groupby(["arm", "share"], sort=False).mean().unstack("share")
    text = []
    first = reference_of(_arms(context))
    for share in table.columns:
        told = ", ".join(f"{display_name(str(a))} {format_signed(v)}" for a, v in table[share].items())
        text.append(f"With {share:g} % of the frames the mean AUC changes by {told}.")
        scores = change.xs(share, level="share").unstack("arm")
        if scores.shape[1] > 1:
            tests = compare_over_sites(scores, first)
            said = ", ".join(
                f"{display_name(t['method'])} ({format_signed(t['mean_difference'])}, {state_p(t['p_holm'])})"
                for _, t in tests.iterrows()
            )
            text.append(f"Compared with the change of {display_name(first)}: {said}.")
    facts = pd.DataFrame([{"arm": a.name, **context.trained_results(a).facts} for a in _arms(context)])
    facts = facts.astype({"epochs": "Int64", "K": "Int64"})
    summary = table.rename(columns=lambda s: f"change at {s:g} %").reset_index().merge(facts, on="arm")
    return Finding(rows.merge(facts, on="arm"), summary, text, lambda: _draw(change))


def _rows(context: StudyContext) -> pd.DataFrame:
    views: dict[tuple[float, str], Connectomes] = {(1.0, "all"): context.connectomes}
    views |= {
        (share, position): window_connectomes(context.connectomes, share, position)
        for share in SHARES
        for position in POSITIONS
    }
    rows = []
    for a in _arms(context):
        method, fitted_runs = context.fitted_runs(a)
        for fitted in fitted_runs:
            fold = fitted.run.fold
            label = context.cohort.labels[fold.test]
            run = {"arm": a.name, "fold": fold.name, "seed": fitted.run.seed}
            scores = {key: auc(label, method.margins(fitted, view, fold.test)) for key, view in views.items()}
            for (share, position), score in scores.items():
                change = score - scores[1.0, "all"]
                rows.append({**run, "share": 100 * share, "window": position, "auc": score, "change": change})
    return pd.DataFrame(rows)


def _draw(change: pd.Series) -> Any:
    figure, (axis,) = make_panels(1, 5.6, 3.6)
    names = list(dict.fromkeys(change.index.get_level_values("arm")))
    for k, name in enumerate(names):
        table = change.loc[name].unstack("share")
        shares = [100.0, *table.columns]
        mean = [0.0, *table.mean()]
        low, high = np.array([(0.0, 0.0), *(bootstrap_interval(table[s].to_numpy()) for s in table.columns)]).T
        x = [s - horizontal_offset(k, len(names), 25.0) for s in shares]  # the axis is inverted
        bars = error_bars(mean, low, high)
        axis.errorbar(x, mean, yerr=bars, capsize=2, linewidth=1.2, label=display_name(name), **series_style(k))
        axis.set_xticks(shares, [f"{s:g}" for s in shares])
    axis.invert_xaxis()
    axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    axis.set_xlabel("frames of each held-out scan, %", fontsize=9)
    axis.set_ylabel("change of AUC, points (95 % interval)", fontsize=9)
    axis.legend(fontsize=8, frameon=False)
    return figure
