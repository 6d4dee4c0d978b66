"""How much the settings that the paper varies matter: K, J, block length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from ..drawing import make_panels
from .arms import Arm, arm
from .context import StudyContext
from .study import Finding, study
from .summaries import describe_differences, draw_lines, summarise_arms, tidy_rows

__all__ = ["sensitivity"]

K_VALUES, J_VALUES, SCALES = (2, 4, 8, 16), (1, 2, 4, 8, 16), (0.5, 1.0, 2.0)


def _groups(context: StudyContext) -> dict[str, dict[float, Arm]]:
    """Arms along each setting; the default is the plain method, shared with other studies."""
    own = context.settings_of("brio")
    width = own.J * own.d_t

    def along(values: Iterable[float], default: float, vary: Callable[[Any], Arm]) -> dict[float, Arm]:
        return {v: arm("brio") if v == default else vary(v) for v in sorted({*values, default})}

    return {
        "K": along(K_VALUES, own.K, lambda k: arm("brio", K=k)),
        "J": along([j for j in J_VALUES if width % j == 0], own.J, lambda j: arm("brio", J=j, d_t=width // j)),
        "block": along(SCALES, own.block_scale, lambda scale: arm("brio", block_scale=scale)),
    }


def _arms(context: StudyContext) -> list[Arm]:
    return list(dict.fromkeys(a for along in _groups(context).values() for a in along.values()))


@study(
    "sensitivity",
    "Number of re-estimates, number of factors, block length",
    "AUC rises with K from small values and then no longer; intermediate J are better than very small or large ones; "
    "the estimated block length is better than half and twice of it.",
    _arms,
)
def sensitivity(context: StudyContext) -> Finding:
    """K, J with the total width J d_t fixed, and the block length at half and twice its unrounded estimate."""
    groups = _groups(context)
    rows = context.rows(_arms(context))
    seconds = _seconds(context)
    parts, tables = [], []
    for setting, along in groups.items():
        names = [a.name for a in along.values()]
        mine = pd.concat([rows[rows["arm"] == name].assign(value=v) for v, name in zip(along, names, strict=True)])
        parts.append(tidy_rows(mine.assign(setting=setting), "setting", "value", "block_length"))
        table = summarise_arms(mine, "brio")
        table.insert(0, "setting", setting)
        table.insert(1, "value", list(along))
        lengths = [_length(mine[mine["arm"] == name]["block_length"], seconds) for name in names]
        table.insert(2, "block, frames (s)", lengths)
        tables.append(table)
    summary = pd.concat(tables, ignore_index=True)
    text = []
    for setting, table in summary.groupby("setting", sort=False):
        best = table.loc[table["AUC"].idxmax()]
        text.append(f"{_TITLES[str(setting)]}: highest mean AUC {best['AUC']:.1f} at {best['value']:g}.")
        text += describe_differences(table, "brio")
    return Finding(pd.concat(parts, ignore_index=True), summary, text, lambda: _draw(summary))


_TITLES = {"K": "Re-estimates K", "J": "Factors J", "block": "Block length, times the estimate"}


def _seconds(context: StudyContext) -> float | None:
    """Median repetition time of the cohort, where it is known."""
    if "tr" not in context.cohort.participants:
        return None
    median = pd.to_numeric(context.cohort.participants["tr"], errors="coerce").median()
    return None if np.isnan(median) else float(median)


def _length(lengths: pd.Series, seconds: float | None) -> str:
    """Mean block length in frames, and in seconds where the repetition time is known."""
    mean = lengths.mean()
    return f"{mean:.1f}" + (f" ({mean * seconds:.1f})" if seconds is not None else "")


def _draw(summary: pd.DataFrame) -> Any:
    figure, axes = make_panels(3, 9.6, 3.2, sharey=True)
    for k, (axis, (setting, table)) in enumerate(zip(axes, summary.groupby("setting", sort=False), strict=True)):
        draw_lines(axis, table["value"], table, k)
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(table["value"]), [f"{v:g}" for v in table["value"]])
        axis.minorticks_off()
        axis.set_xlabel(_TITLES[str(setting)], fontsize=9)
        axis.grid(axis="y", color="0.93")
    axes[0].set_ylabel("AUC, % (95 % interval over sites)", fontsize=9)
    return figure
