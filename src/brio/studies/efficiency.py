"""Seconds per epoch and peak memory of training, on this device."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ..drawing import label_axis, make_panels, series_style
from ..methods import find_method, make_method
from ..protocol import Fold, make_folds, make_inner_folds
from .comparison import list_compared_arms
from .context import Arm, StudyContext, display_name
from .study import Finding, register_study
from .summaries import FACTS, describe_left_out

WARM, COUNTED = 5, 6
"""Epochs before the measurement, in which kernels are chosen and recorded, and epochs that are measured.

BRIO refreshes its qualifications every M epochs. A multiple of M is measured, so that refreshes count in proportion."""

FEW_K, MANY_K, HALF = "brio, K = 2", "brio, K = 16", "brio, half of the scans"
COLUMNS = ["arm", "family", "seconds_an_epoch", "peak_memory_mib", "source_scans", "device", *FACTS]
_HEADERS = {
    "seconds_an_epoch": "seconds per epoch",
    "peak_memory_mib": "peak memory, MiB",
    "source_scans": "source scans",
}


@register_study("efficiency", lambda context: [])
def measure_efficiency(context: StudyContext, arms: list[Arm]) -> Finding:
    """Measure seconds per epoch and peak memory of every neural network, one run at a time.

    BRIO is also measured with few and many re-estimates, and with half of the source scans.
    """
    from ..training import NeuralMethod

    fold = make_folds(context.cohort, context.job.spec.protocol, 0, context.job.protocol_settings)[0]
    if not len(fold.validation):
        fold = make_inner_folds(context.cohort, fold, 0)[0]  # one training at a time is measured
    methods = [a.method for a in list_compared_arms(context)]
    names = [name for name in methods if issubclass(find_method(name).method_class, NeuralMethod)]
    measured: list[tuple[str, str, Fold, dict[str, Any]]] = [(name, name, fold, {}) for name in names]
    if "brio" in names:
        if "K" not in context.job.spec.settings_of("brio"):
            measured += [(FEW_K, "brio", fold, {"K": 2}), (MANY_K, "brio", fold, {"K": 16})]
        cells = [context.cohort.sites[fold.source], context.cohort.labels[fold.source]]
        every_second = pd.Series(fold.source).groupby(cells).cumcount().to_numpy() % 2 == 0  # of each site and class
        measured.append((HALF, "brio", replace(fold, source=np.sort(fold.source[every_second])), {}))
    rows = [measure_training(context, *one) for one in measured]
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"K": "Int64"})
    text = [f"Device: {context.job.device.describe()}."]
    if rows:
        fastest = table.loc[table["seconds_an_epoch"].idxmin()]
        seconds = fastest["seconds_an_epoch"]
        text[0] += f" {display_name(fastest['arm'])} is the fastest: {seconds:.3g} seconds per epoch."
    else:
        text.append("None of the compared methods is trained in epochs.")
    memory = table.set_index("arm")["peak_memory_mib"]
    if memory.isna().any():
        text.append("Peak memory is measured only on a GPU.")
    elif FEW_K in memory:
        text.append(
            f"BRIO's peak memory is {memory[FEW_K]:.0f} MiB at K = 2, {memory['brio']:.0f} MiB at its default K, "
            f"{memory[MANY_K]:.0f} MiB at K = 16, and {memory[HALF]:.0f} MiB with half of the source scans."
        )
    text += describe_left_out(context)
    return Finding(table, table.rename(columns=_HEADERS), text, lambda: _draw(table))


def measure_training(
    context: StudyContext, label: str, name: str, fold: Fold, settings: dict[str, Any]
) -> dict[str, Any]:
    """Train one run for a few epochs and measure its time and memory."""
    import torch

    from ..training import Run

    connectomes, device = context.connectomes, context.connectomes.device
    entry = find_method(name)
    own = {**context.job.spec.settings_of(name), **settings}
    every = make_method(name, own).settings.M if "M" in entry.settings else 1
    counted = -(-COUNTED // every) * every
    epochs = WARM + counted + 1  # an epoch ends where the next one starts, so the last one cannot be measured
    short = {"epochs": epochs, "patience": None} | ({"T_w": 2} if "T_w" in entry.settings else {})
    method = make_method(name, own | short)
    starts: list[float] = []

    def record_start(message: str, share: float) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()
        starts.append(time.perf_counter())

    before = 0
    if device.type == "cuda":
        # workspaces of libraries and cached inputs of networks are made once for all methods: no method is charged
        make_method(name, own | short | {"epochs": WARM}).fit(connectomes, [Run(fold, 0)])
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    method.fit(connectomes, [Run(fold, 0)], record_start)
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20 if device.type == "cuda" else np.nan
    seconds = float(np.diff(starts)[WARM : WARM + counted].mean())
    context.say(f"  {label}: {seconds:.3g} seconds per epoch")
    return {
        "arm": label,
        "family": entry.family,
        "seconds_an_epoch": seconds,
        "peak_memory_mib": peak,
        "source_scans": len(fold.source),
        "device": context.job.device.describe(),
        "folds": 1,
        "seeds": 1,
        "epochs": epochs,
        "K": getattr(method.settings, "K", None),
    }


def _draw(table: pd.DataFrame) -> Any:
    with_memory = table["peak_memory_mib"].notna().all()
    count, width = (2, 8.4) if with_memory else (1, 5.4)
    figure, axes = make_panels(count, width, 1.0 + 0.26 * len(table), sharey=True)
    columns = [("seconds_an_epoch", "seconds per epoch, one run"), ("peak_memory_mib", "peak memory, MiB")]
    for k, (axis, (column, label)) in enumerate(zip(axes, columns, strict=False)):
        bars = axis.barh(np.arange(len(table)), table[column], color=series_style(k)["color"], height=0.7)
        axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        label_axis(axis, label, xmargin=0.15)
    axes[0].set_yticks(np.arange(len(table)), table["arm"].map(display_name), fontsize=8)
    axes[0].invert_yaxis()
    return figure
