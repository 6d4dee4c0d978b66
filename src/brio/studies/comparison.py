"""AUC of methods, of parts of BRIO and of its settings: comparison, in-distribution, ablation and sensitivity."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ..drawing import make_panels
from ..methods import list_methods
from .context import Arm, StudyContext, display_name, make_arm
from .study import Finding, register_study
from .summaries import (
    describe_differences,
    describe_left_out,
    draw_arms,
    draw_intervals,
    label_axis,
    summarise_arms,
    tidy_rows,
)


def list_compared_arms(context: StudyContext, protocol: str = "loso") -> list[Arm]:
    """List the arms of a comparison of methods.

    These are the methods of the context or, where it names none, all methods that the cohort has the inputs for.
    Variants of another method and methods that were loaded from a file take part only if they are named.
    """
    every = [entry.name for entry in list_methods() if not entry.fixed and not entry.file]
    return [make_arm(name, protocol, tuned=True) for name in context.methods or context.select_runnable_methods(every)]


def choose_reference(arms: list[Arm]) -> str:
    """Choose the arm that the others are compared with: BRIO where it takes part, else the first."""
    names = [a.name for a in arms]
    return "brio" if "brio" in names else names[0]


@register_study(
    "comparison",
    "All methods at unseen sites",
    "BRIO outperforms all baselines on every dataset. General OOD methods are not consistently better than GNNs, and "
    "the best brain network methods are better than graph OOD methods. The table has no linear models.",
    list_compared_arms,
)
def compare_methods(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare all methods, leaving one site out: mean and SD of AUC and ACC over test sites."""
    return _rank_arms(context, arms)


@register_study(
    "in-distribution",
    "All methods at sites they were trained on",
    "BRIO ranks first or second in AUC and ACC in all settings. It has the highest mean AUC on ABIDE in both atlases. "
    "BrainNetTF (AAL116) and DeCI (CC200) have the highest ACC there.",
    partial(list_compared_arms, protocol="kfold"),
    kfold=True,
)
def compare_methods_in_distribution(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare all methods in ten folds stratified by site and class: mean and SD of AUC and ACC over test folds."""
    return _rank_arms(context, arms)


def _rank_arms(context: StudyContext, arms: list[Arm]) -> Finding:
    """Rank arms by mean AUC and compare each with the reference."""
    reference = choose_reference(arms)
    rows = context.collect_rows(arms)
    summary = summarise_arms(rows, reference).sort_values("AUC", ascending=False).reset_index(drop=True)
    best = summary.iloc[0]
    details = [f"95 % interval {best['low']:.1f} to {best['high']:.1f}"] if best["low"] == best["low"] else []
    details += [f"SD {best['SD']:.1f}"] if best["SD"] == best["SD"] else []
    bracket = f" ({', '.join(details)})" if details else ""
    text = [f"{display_name(best['arm'])} has the highest mean AUC: {best['AUC']:.1f} %{bracket}."]
    text += describe_differences(summary, reference) if len(arms) > 1 else []
    tuned = [display_name(a.name) for a in arms if context.results_of(a).summary.is_tuned]
    if tuned:
        rest = "" if len(tuned) == len(arms) else " The other methods were not tuned."
        text.append(f"Settings of {', '.join(tuned)} were chosen on validation scans.{rest}")
    text += describe_left_out(context)
    return Finding(tidy_rows(rows), summary, text, lambda: draw_arms(summary, reference))


PAPERS = ("brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf")
OURS = ("brio-wo-qg", "backbone", "brio-shuffled", "backbone-shuffled")


@register_study(
    "ablation",
    "Contribution of each part of qualification",
    "The full method has a higher AUC and ACC than w/o RS, w/o TR, w/o SM and w/o SF on every dataset. On ABIDE CC200 "
    "w/o RS loses most. The paper reports neither w/o QG, the backbone nor shuffled site names.",
    lambda context: [make_arm(name) for name in ("brio", *PAPERS, *OURS)],
    kfold=True,
)
def compare_ablations(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare BRIO with the paper's four ablations of Eqs. (18) and (19), w/o QG, the backbone and shuffled sites."""
    rows = context.collect_rows(arms)
    summary = summarise_arms(rows, "brio")
    summary.insert(1, "reported by", ["ours" if name in OURS else "paper" for name in summary["arm"]])
    by_arm = summary.set_index("arm")
    n_lower, mean = sum(by_arm.loc[name, "minus brio"] < 0 for name in PAPERS), by_arm["AUC"]
    text = [
        f"BRIO has a higher mean AUC than {n_lower} of the paper's four ablations.",
        *describe_differences(summary, "brio"),
        f"Alignment adds {mean['brio'] - mean['backbone']:+.1f} points to the backbone; where names of source sites "
        f"are shuffled within classes, {mean['brio-shuffled'] - mean['backbone-shuffled']:+.1f}.",
    ]

    def label(name: str) -> str:
        return f"{display_name(name)} (ours)" if name in OURS else display_name(name)

    return Finding(tidy_rows(rows), summary, text, lambda: draw_arms(summary, "brio", label))


K_VALUES, J_VALUES, SCALES = (2, 4, 8, 16), (1, 2, 4, 8, 16), (0.5, 1.0, 2.0)
_LABELS = {"K": "re-estimates K", "J": "factors J", "block": "block length, times its estimate"}


def make_setting_arms(context: StudyContext) -> dict[str, dict[float, Arm]]:
    """Make the arms along each setting; the default is the plain method, which other studies share."""
    own = context.settings_of("brio")
    width, plain = own.J * own.d_t, make_arm("brio")
    varied: dict[str, dict[float, Arm]] = {
        "K": {K: make_arm("brio", K=K) for K in K_VALUES} | {own.K: plain},
        "J": {J: make_arm("brio", J=J, d_t=width // J) for J in J_VALUES if width % J == 0} | {own.J: plain},
        "block": {scale: make_arm("brio", block_scale=scale) for scale in SCALES} | {own.block_scale: plain},
    }
    return {setting: dict(sorted(arms.items())) for setting, arms in varied.items()}


def _list_setting_arms(context: StudyContext) -> list[Arm]:
    return list(dict.fromkeys(a for group in make_setting_arms(context).values() for a in group.values()))


@register_study(
    "sensitivity",
    "Sensitivity to re-estimates, factors and block length",
    "AUC rises with K from small values and then levels off. Intermediate J are better than very small or large ones. "
    "The estimated block length is better than half and twice that length.",
    _list_setting_arms,
    kfold=True,
)
def vary_settings(context: StudyContext, arms: list[Arm]) -> Finding:
    """Vary K, J (with the total width J d_t fixed) and the block length (half and twice its unrounded estimate)."""
    rows = context.collect_rows(arms)
    repetition_time = np.nan  # median, in seconds
    if "tr" in context.cohort.participants:
        repetition_time = pd.to_numeric(context.cohort.participants["tr"], errors="coerce").median()
    tables, summaries, text = [], [], []
    for setting, group in make_setting_arms(context).items():
        runs = pd.concat([rows[rows["arm"] == a.name].assign(value=value) for value, a in group.items()])
        tables.append(tidy_rows(runs.assign(setting=setting), "setting", "value", "block_length"))
        summary = summarise_arms(runs, "brio")
        summary.insert(0, "setting", setting)
        summary.insert(1, "value", list(group))
        frames = [runs[runs["arm"] == a.name]["block_length"].mean() for a in group.values()]
        seconds = ["" if np.isnan(repetition_time) else f" ({n * repetition_time:.1f})" for n in frames]
        summary.insert(2, "block, frames (s)", [f"{n:.1f}{s}" for n, s in zip(frames, seconds, strict=True)])
        summaries.append(summary)
        best = summary.loc[summary["AUC"].idxmax()]
        label = _LABELS[setting][0].upper() + _LABELS[setting][1:]
        text.append(f"{label}: the highest mean AUC is {best['AUC']:.1f} %, at {best['value']:g}.")
        text += describe_differences(summary, "brio")
    summary = pd.concat(summaries, ignore_index=True)
    unit = "sites" if context.job.spec.protocol == "loso" else "folds"
    shown = summary.assign(value=summary["value"].map("{:g}".format))
    return Finding(pd.concat(tables, ignore_index=True), shown, text, lambda: _draw_settings(summary, unit))


def _draw_settings(summary: pd.DataFrame, unit: str) -> Any:
    figure, axes = make_panels(3, 9.6, 3.2, sharey=True)
    for k, (axis, (setting, table)) in enumerate(zip(axes, summary.groupby("setting", sort=False), strict=True)):
        draw_intervals(axis, list(table["value"]), table["AUC"], table["low"], table["high"], k, capsize=3)
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(table["value"]), [f"{value:g}" for value in table["value"]])
        axis.minorticks_off()
        label_axis(axis, _LABELS[str(setting)], "" if k else f"AUC, % (95 % interval over {unit})", grid="y")
    return figure
