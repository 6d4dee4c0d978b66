"""How AUC depends on the settings that the paper varies: K, J and the block length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from ..drawing import make_panels
from .context import Arm, StudyContext, make_arm
from .study import Finding, register_study
from .summaries import describe_differences, draw_lines, summarise_arms, tidy_rows

K_VALUES, J_VALUES, SCALES = (2, 4, 8, 16), (1, 2, 4, 8, 16), (0.5, 1.0, 2.0)
_LABELS = {"K": "re-estimates K", "J": "factors J", "block": "block length, times its estimate"}


def _make_groups(context: StudyContext) -> dict[str, dict[float, Arm]]:
    """Make the arms along each setting; the default is the plain method, which other studies share."""
    own = context.settings_of("brio")
    width = own.J * own.d_t

    def vary(values: Iterable[float], default: float, make: Callable[[Any], Arm]) -> dict[float, Arm]:
        return {value: make_arm("brio") if value == default else make(value) for value in sorted({*values, default})}

    return {
        "K": vary(K_VALUES, own.K, lambda K: make_arm("brio", K=K)),
        "J": vary([J for J in J_VALUES if width % J == 0], own.J, lambda J: make_arm("brio", J=J, d_t=width // J)),
        "block": vary(SCALES, own.block_scale, lambda scale: make_arm("brio", block_scale=scale)),
    }


def _list_arms(context: StudyContext) -> list[Arm]:
    return list(dict.fromkeys(a for group in _make_groups(context).values() for a in group.values()))


@register_study(
    "sensitivity",
    "Sensitivity to re-estimates, factors and block length",
    "AUC rises with K from small values and then levels off. Intermediate J are better than very small or large ones. "
    "The estimated block length is better than half and twice that length.",
    _list_arms,
    kfold=True,
)
def vary_settings(context: StudyContext) -> Finding:
    """Vary K, J (with the total width J d_t fixed) and the block length (half and twice its unrounded estimate)."""
    rows = context.collect_rows(_list_arms(context))
    repetition_time = _median_repetition_time(context)
    tables, summaries, text = [], [], []
    for setting, group in _make_groups(context).items():
        names = [a.name for a in group.values()]
        parts = [rows[rows["arm"] == name].assign(value=value) for value, name in zip(group, names, strict=True)]
        runs = pd.concat(parts)
        tables.append(tidy_rows(runs.assign(setting=setting), "setting", "value", "block_length"))
        summary = summarise_arms(runs, "brio")
        summary.insert(0, "setting", setting)
        summary.insert(1, "value", list(group))
        lengths = [_format_length(part["block_length"].mean(), repetition_time) for part in parts]
        summary.insert(2, "block, frames (s)", lengths)
        summaries.append(summary)
        best = summary.loc[summary["AUC"].idxmax()]
        label = _LABELS[setting][0].upper() + _LABELS[setting][1:]
        text.append(f"{label}: the highest mean AUC is {best['AUC']:.1f} %, at {best['value']:g}.")
        text += describe_differences(summary, "brio")
    summary = pd.concat(summaries, ignore_index=True)
    unit = "sites" if context.job.spec.protocol == "loso" else "folds"
    shown = summary.assign(value=summary["value"].map("{:g}".format))
    return Finding(pd.concat(tables, ignore_index=True), shown, text, lambda: _draw(summary, unit))


def _median_repetition_time(context: StudyContext) -> float | None:
    """Return the median repetition time of the cohort in seconds; None if it is unknown."""
    if "tr" not in context.cohort.participants:
        return None
    median = pd.to_numeric(context.cohort.participants["tr"], errors="coerce").median()
    return None if np.isnan(median) else float(median)


def _format_length(frames: float, repetition_time: float | None) -> str:
    """Write a block length in frames and, with a repetition time, in seconds."""
    return f"{frames:.1f}" + (f" ({frames * repetition_time:.1f})" if repetition_time is not None else "")


def _draw(summary: pd.DataFrame, unit: str) -> Any:
    figure, axes = make_panels(3, 9.6, 3.2, sharey=True)
    for k, (axis, (setting, table)) in enumerate(zip(axes, summary.groupby("setting", sort=False), strict=True)):
        draw_lines(axis, table["value"], table, k)
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(table["value"]), [f"{value:g}" for value in table["value"]])
        axis.minorticks_off()
        axis.set_xlabel(_LABELS[str(setting)], fontsize=9)
        axis.grid(axis="y", color="0.93")
    axes[0].set_ylabel(f"AUC, % (95 % interval over {unit})", fontsize=9)
    return figure
