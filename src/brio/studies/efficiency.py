"""What training costs: seconds an epoch and memory, on this device."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..drawing import make_panels, series_style
from ..methods import find_method, make_method
from ..protocol import Fold, make_folds
from ..training import NeuralMethod, Run
from .arms import display_name
from .comparison import compared, without
from .context import StudyContext
from .study import Finding, study

__all__ = ["efficiency", "measured"]

WARM, COUNTED = 5, 6
"""Epochs that are not counted, since kernels are chosen and recorded in them, and epochs that are.

BRIO refreshes its qualifications every M steps: M epochs are counted of it, which hold as many refreshes as an epoch
has steps, however many these are."""

COLUMNS = [
    *("arm", "family", "seconds_an_epoch", "peak_memory_mib", "source_scans", "device"),
    *("folds", "seeds", "epochs", "K"),
]


@study(
    "efficiency",
    "Seconds an epoch and memory",
    "BRIO takes more time and memory than FC-HGNN and CORE, less time than BrainOOD with slightly more memory, and "
    "less of both than DiSCO; peak memory does not depend on K or on the number of source subjects.",
    lambda context: [],
)
def efficiency(context: StudyContext) -> Finding:
    """Seconds an epoch of one run alone and peak memory, all trained methods; BRIO's memory against K and scans."""
    fold = make_folds(context.cohort, "loso", 0, context.job.spec.protocol_settings)[0]
    names = [a.method for a in compared(context) if issubclass(find_method(a.method).method_class, NeuralMethod)]
    rows = [measured(context, name, name, fold, {}) for name in names]
    if "brio" in names:
        half = _half(context, fold)
        for label, where, settings in (
            ("brio, K = 2", fold, {"K": 2}),
            ("brio, K = 16", fold, {"K": 16}),
            ("brio, half of the scans", half, {}),
        ):
            if "K" not in context.job.spec.settings_of("brio") or "K" not in settings:
                rows.append(measured(context, label, "brio", where, settings))
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"K": "Int64"})
    text = [f"Device: {context.job.device.describe()}."]
    if rows:
        fastest = table.loc[table["seconds_an_epoch"].idxmin()]
        text[0] += f" Fastest: {fastest['arm']}, one run alone."
    else:
        text.append("None of the methods compared is trained in epochs.")
    memory = table.set_index("arm")["peak_memory_mib"]
    if "brio, K = 2" in memory and memory.notna().all():
        text.append(
            f"BRIO's peak memory: {memory['brio, K = 2']:.0f} MiB at K = 2, {memory['brio']:.0f} at its own K, "
            f"{memory['brio, K = 16']:.0f} at K = 16, {memory['brio, half of the scans']:.0f} with half of the "
            "source scans."
        )
    elif memory.isna().any():
        text.append("Peak memory is measured on a GPU only.")
    text += without(context)
    return Finding(table, table, text, lambda: _draw(table))


def measured(context: StudyContext, label: str, name: str, fold: Fold, settings: dict[str, Any]) -> dict[str, Any]:
    """Train one run for a few epochs and measure."""
    graphs, device = context.connectomes, context.connectomes.device
    kind = find_method(name)
    known = {f.name for f in dataclasses.fields(kind.method_class.Settings)}
    given = {**context.job.spec.settings_of(name), **settings}
    counted = make_method(name, given).settings.M if "M" in known else COUNTED
    epochs = WARM + counted + 1  # the last one has no next, at whose beginning it would end
    short = {"epochs": epochs, "patience": None} | ({"T_w": 2} if "T_w" in known else {})
    method = make_method(name, given | short)
    starts: list[float] = []

    def watch(message: str, share: float) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()
        starts.append(time.perf_counter())

    before = 0
    if device.type == "cuda":
        # libraries' workspaces, and what networks see of scans, are made once for all methods: they are no method's own
        make_method(name, given | short | {"epochs": WARM}).fit(graphs, [Run(fold, 0)])
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    method.fit(graphs, [Run(fold, 0)], watch)
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20 if device.type == "cuda" else np.nan
    seconds = float(np.diff(starts)[WARM : WARM + counted].mean())
    context.say(f"  {label}: {seconds:.3g} s an epoch")
    return {
        "arm": label,
        "family": kind.family,
        "seconds_an_epoch": seconds,
        "peak_memory_mib": peak,
        "source_scans": len(fold.source),
        "device": context.job.device.describe(),
        "folds": 1,
        "seeds": 1,
        "epochs": epochs,
        "K": getattr(method.settings, "K", None),
    }


def _half(context: StudyContext, fold: Fold) -> Fold:
    """The fold with every second source scan of each site and class, at least one of each."""
    kept = []
    cells = list(
        zip(context.cohort.sites[fold.source].tolist(), context.cohort.labels[fold.source].tolist(), strict=True)
    )
    for cell in dict.fromkeys(cells):
        kept += [i for i, c in zip(fold.source, cells, strict=True) if c == cell][::2]
    return dataclasses.replace(fold, source=np.sort(np.array(kept)))


def _draw(table: pd.DataFrame) -> Any:
    with_memory = table["peak_memory_mib"].notna().all()
    figure, axes = make_panels(
        2 if with_memory else 1, 8.4 if with_memory else 5.4, 1.0 + 0.26 * len(table), sharey=True
    )
    columns = [("seconds_an_epoch", "seconds an epoch, one run"), ("peak_memory_mib", "peak memory, MiB")]
    for k, (axis, (column, label)) in enumerate(zip(axes, columns, strict=False)):
        bars = axis.barh(np.arange(len(table)), table[column], color=series_style(k)["color"], height=0.7)
        axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        axis.margins(x=0.15)
        axis.set_xlabel(label, fontsize=9)
    axes[0].set_yticks(np.arange(len(table)), table["arm"].map(display_name), fontsize=8)
    axes[0].invert_yaxis()
    return figure
