"""A figure of a job: the AUC of every method at every test site, or in every fold of every seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ..drawing import STYLES, make_panels, save_figure
from ..formatting import format_count
from ..results import Summary, average_seeds, name_units, unit_columns
from ..results.format import format_percent


def draw_sites(rows: pd.DataFrame, summary: Summary, path: str | Path, title: str = "") -> Path:
    """Draw the AUC at each test site (mean over seeds) and, below it, the mean over sites with its 95 % interval.

    Under k-fold, folds of different seeds are different folds: each has its own line. A smoke run is marked as such
    above the title.
    """
    by = unit_columns(summary.protocol)
    scores = 100 * average_seeds(rows, units=by)
    sizes = rows.groupby(by)["n_test"].first()
    methods = list(summary.methods)
    order = scores.mean(axis=1).sort_values(na_position="first").index
    height = np.arange(len(order), dtype=float) + 1.8
    figure, (axis,) = make_panels(1, 7.2, 1.9 + 0.3 * (len(order) + len(methods)))
    for y in height:
        axis.axhline(y, color="0.92", linewidth=0.8, zorder=0)
    for k, name in enumerate(methods):
        colour, marker = STYLES[k % len(STYLES)]
        shift = min(0.22, 0.75 / len(methods)) * ((len(methods) - 1) / 2 - k)
        axis.scatter(scores.loc[order, name], height + shift, s=30, color=colour, marker=marker, zorder=3)
        auc = summary.methods[name].auc
        if auc.mean is None:
            continue
        y = 0.6 - 0.42 * k
        if auc.interval is not None:
            axis.plot(100 * np.array(auc.interval), [y, y], color=colour, linewidth=2.5, solid_capstyle="butt")
        axis.scatter([100 * auc.mean], [y], s=56, color=colour, marker=marker, zorder=3)
        ends = [100 * v for v in auc.interval or [auc.mean]]
        right = ends[-1] < 82  # else the label stands to the left, inside the figure
        axis.annotate(
            f"{name}  {format_percent(auc.mean)}",
            (ends[-1] if right else ends[0], y),
            xytext=(9 if right else -9, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=9,
            color=colour,
        )
    axis.axvline(50, color="0.55", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axis.annotate("chance", (50, height[-1] + 0.55), ha="center", va="bottom", fontsize=8, color="0.4", bbox=box)
    axis.axhline(1.2, color="0.35", linewidth=0.8)
    lowest = 0.6 - 0.42 * (len(methods) - 1)
    axis.set_yticks([(0.6 + lowest) / 2, *height])
    unit = "site" if summary.protocol == "loso" else "fold"
    names = [f"{name}  (n = {sizes[place]})" for name, place in zip(name_units(order), order, strict=True)]
    axis.set_yticklabels([f"mean over {unit}s,\n95 % interval", *names], fontsize=9)
    axis.set_ylim(lowest - 0.5, height[-1] + 0.9)
    least = float(scores.min().min())
    axis.set_xlim(min(45.0, 50.0 if np.isnan(least) else least - 4), 102)
    axis.set_xticks([t for t in range(0, 101, 10) if t >= axis.get_xlim()[0]])
    axis.set_xlabel(f"AUC {'at' if unit == 'site' else 'in'} the test {unit}, %")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    counts = (format_count(len(order), f"test {unit}"), format_count(len(summary.seeds), "seed"))
    note = ", ".join([f"{summary.n_scans} scans", *counts])
    axis.set_title(f"{title or summary.cohort}: {note}", loc="left", fontsize=10)
    if summary.smoke_run:
        figure.suptitle(summary.smoke_note, x=0.01, ha="left", fontsize=9, color="#B00020")
    return save_figure(figure, path)
