"""What shorter scans of unseen sites cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..connectome import Connectomes
from ..diagnostics import POSITIONS, window_connectomes
from ..drawing import horizontal_offset, make_panels, series_style
from ..protocol import auc, bootstrap_interval, compare_over_sites
from .arms import Arm, arm, printed
from .bench import Bench
from .comparison import reference_of
from .study import Finding, study
from .summaries import bars, p_in_words, signed

__all__ = ["scan_length"]

SHARES = (0.75, 0.5)
METHODS = ("brio", "brio-wo-rs", "brio-wo-qg")


def _arms(bench: Bench) -> list[Arm]:
    return [arm(name) for name in bench.methods or METHODS]


@study(
    "scan-length",
    "Shorter scans at unseen sites",
    "all models lose AUC when fewer time points are kept; BRIO loses least, w/o RS less than w/o QG, more so at half "
    "the scan.",
    _arms,
)
def scan_length(bench: Bench) -> Finding:
    """Change of AUC when held-out FC is made from 75 or 50 % of the frames: first, middle, last; checkpoints fixed."""
    rows = _rows(bench)
    shorter = rows[rows["share"] < 100]
    change = 100 * shorter.groupby(["arm", "share", "fold"], sort=False)["change"].mean()  # over windows and seeds
    table = change.groupby(["arm", "share"], sort=False).mean().unstack("share")
    text = []
    first = reference_of(_arms(bench))
    for share in table.columns:
        told = ", ".join(f"{printed(str(a))} {signed(v)}" for a, v in table[share].items())
        text.append(f"With {share:g} % of the frames the mean AUC changes by {told}.")
        scores = change.xs(share, level="share").unstack("arm")
        if scores.shape[1] > 1:
            tests = compare_over_sites(scores, first)
            said = ", ".join(
                f"{printed(t['method'])} ({signed(t['mean_difference'])}, {p_in_words(t['p_holm'])})"
                for _, t in tests.iterrows()
            )
            text.append(f"Compared with the change of {printed(first)}: {said}.")
    facts = pd.DataFrame([{"arm": a.name, **bench.trained(a).facts} for a in _arms(bench)])
    facts = facts.astype({"epochs": "Int64", "K": "Int64"})
    summary = table.rename(columns=lambda s: f"change at {s:g} %").reset_index().merge(facts, on="arm")
    return Finding(rows.merge(facts, on="arm"), summary, text, lambda: _draw(change))


def _rows(bench: Bench) -> pd.DataFrame:
    views: dict[tuple[float, str], Connectomes] = {(1.0, "all"): bench.graphs}
    views |= {
        (share, position): window_connectomes(bench.graphs, share, position)
        for share in SHARES
        for position in POSITIONS
    }
    rows = []
    for a in _arms(bench):
        method, fitted_runs = bench.fitted(a)
        for fitted in fitted_runs:
            fold = fitted.run.fold
            label = bench.cohort.labels[fold.test]
            who = {"arm": a.name, "fold": fold.name, "seed": fitted.run.seed}
            found = {key: auc(label, method.margins(fitted, view, fold.test)) for key, view in views.items()}
            for (share, position), score in found.items():
                change = score - found[1.0, "all"]
                rows.append({**who, "share": 100 * share, "window": position, "auc": score, "change": change})
    return pd.DataFrame(rows)


def _draw(change: pd.Series) -> Any:
    figure, (axis,) = make_panels(1, 5.6, 3.6)
    names = list(dict.fromkeys(change.index.get_level_values("arm")))
    for k, name in enumerate(names):
        table = change.loc[name].unstack("share")
        shares = [100.0, *table.columns]
        mean = [0.0, *table.mean()]
        low, high = np.array([(0.0, 0.0), *(bootstrap_interval(table[s].to_numpy()) for s in table.columns)]).T
        # the axis is inverted: the first arm is drawn on the left
        x = [s - horizontal_offset(k, len(names), 25.0) for s in shares]
        axis.errorbar(
            x, mean, yerr=bars(mean, low, high), capsize=2, linewidth=1.2, label=printed(name), **series_style(k)
        )
        axis.set_xticks(shares, [f"{s:g}" for s in shares])
    axis.invert_xaxis()
    axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    axis.set_xlabel("frames of each held-out scan, %", fontsize=9)
    axis.set_ylabel("change of AUC, points (95 % interval)", fontsize=9)
    axis.legend(fontsize=8, frameon=False)
    return figure
