"""How much AUC shorter scans of test sites cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..drawing import make_panels
from ..formatting import format_signed, state_p
from ..protocol import auc, average_margins, compare_over_sites
from .comparison import choose_reference
from .context import Arm, StudyContext, display_name, make_arm
from .study import Finding, register_study
from .summaries import draw_over_sites, label_axis

if TYPE_CHECKING:
    from ..connectome import Connectomes

SHARES = (0.75, 0.5)
"""Shares of the frames of a test scan that are kept."""

METHODS = ("brio", "brio-wo-rs", "brio-wo-qg")


@register_study(
    "scan-length",
    "Shorter scans at unseen sites",
    "All models lose AUC when fewer time points are kept. BRIO loses least, and w/o RS loses less than w/o QG. The "
    "differences are larger at half of the scan.",
    lambda context: [make_arm(name) for name in context.methods or METHODS],
)
def shorten_scans(context: StudyContext, arms: list[Arm]) -> Finding:
    """Score test scans rebuilt from 75 or 50 % of their frames (first, middle, last); trained models are fixed."""
    rows = _score_windows(context, arms)
    shorter = rows[rows["share"] < 100]
    change = 100 * shorter.groupby(["arm", "share", "fold"], sort=False)["change"].mean()  # over windows and seeds
    means = change.groupby(["arm", "share"], sort=False).mean().unstack("share")
    reference, text = choose_reference(arms), []
    for share in means.columns:
        changes = ", ".join(f"{display_name(str(name))} {format_signed(value)}" for name, value in means[share].items())
        text.append(f"Change of mean AUC with {share:g} % of the frames, in points: {changes}.")
        by_arm = change.xs(share, level="share").unstack("arm")
        if by_arm.shape[1] > 1:
            differences = ", ".join(
                f"{display_name(test['method'])} {format_signed(test['mean_difference'])} ({state_p(test['p_holm'])})"
                for _, test in compare_over_sites(by_arm, reference).iterrows()
            )
            text.append(f"Change minus that of {display_name(reference)}, in points: {differences}.")
    facts = pd.DataFrame([{"arm": a.name, **context.trained_results(a).facts} for a in arms])
    facts = facts.astype({"epochs": "Int64", "K": "Int64"})
    summary = means.rename(columns=lambda share: f"change at {share:g} %").reset_index().merge(facts, on="arm")
    return Finding(rows.merge(facts, on="arm"), summary, text, lambda: _draw(change))


def _score_windows(context: StudyContext, arms: list[Arm]) -> pd.DataFrame:
    """Score every run on its test scans, whole and in each window: one row per run and window."""
    from ..diagnostics import PLACEMENTS, estimate_window_connectomes

    windows: dict[tuple[float, str], Connectomes] = {(1.0, "all"): context.connectomes}
    windows |= {
        (share, placement): estimate_window_connectomes(context.connectomes, share, placement)
        for share in SHARES
        for placement in PLACEMENTS
    }
    rows = []
    for a in arms:
        method, fitted_runs = context.load_fitted_runs(a)
        for fitted in fitted_runs:
            fold, of_whole_scans = fitted.run.fold, np.nan
            for (share, placement), connectomes in windows.items():  # whole scans come first
                margins = method.predict_margins(fitted, connectomes, fold.test)
                first, averaged = average_margins(context.cohort, fold.test, margins)
                score = auc(context.cohort.labels[first], averaged)
                of_whole_scans = score if share == 1 else of_whole_scans
                run = {"arm": a.name, "fold": fold.name, "seed": fitted.run.seed, "share": 100 * share}
                rows.append({**run, "window": placement, "auc": score, "change": score - of_whole_scans})
    return pd.DataFrame(rows)


def _draw(change: pd.Series) -> Any:
    figure, (axis,) = make_panels(1, 6.8, 3.6)
    names = list(dict.fromkeys(change.index.get_level_values("arm")))
    for k, name in enumerate(names):
        table = change.loc[name].unstack("share")
        table.insert(0, 100.0, 0.0)  # whole scans
        draw_over_sites(axis, table, k, len(names), -25.0, display_name(name))  # the axis is inverted
        axis.set_xticks(table.columns, [f"{share:g}" for share in table.columns])
    axis.invert_xaxis()
    axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    label_axis(axis, "frames kept of each test scan, %", "change of AUC, points (95 % interval)")
    axis.legend(fontsize=8, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")
    return figure
