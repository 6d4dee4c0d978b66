"""The main table: all methods at sites they were not trained on."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from ..methods import list_methods
from .context import Arm, StudyContext, display_name, make_arm
from .study import Finding, register_study
from .summaries import describe_differences, draw_arms, summarise_arms, tidy_rows


def list_compared_arms(context: StudyContext, protocol: str = "loso") -> list[Arm]:
    """List the arms of a comparison of methods.

    These are the methods of the context or, where it names none, all methods that the cohort has the inputs for.
    Variants of another method and methods that were loaded from a file take part only if they are named.
    """
    every = [entry.name for entry in list_methods() if not entry.fixed and not entry.file]
    return [make_arm(name, protocol, tuned=True) for name in context.methods or context.select_runnable_methods(every)]


def describe_left_out(context: StudyContext, names: Collection[str] | None = None) -> list[str]:
    """Say which methods were left out and why, a sentence each."""
    return [f"Left out: {why}." for name, why in context.left_out.items() if names is None or name in names]


def choose_reference(arms: list[Arm]) -> str:
    """Choose the arm that the others are compared with: BRIO where it takes part, else the first."""
    names = [a.name for a in arms]
    return "brio" if "brio" in names else names[0]


def rank_arms(context: StudyContext, arms: list[Arm]) -> Finding:
    """Rank arms by mean AUC and compare each with the reference."""
    reference = choose_reference(arms)
    rows = context.collect_rows(arms)
    summary = summarise_arms(rows, reference).sort_values("AUC", ascending=False).reset_index(drop=True)
    text = [_describe_best(summary)]
    text += describe_differences(summary, reference) if len(arms) > 1 else []
    text += _describe_tuning(context, arms)
    text += describe_left_out(context)
    return Finding(tidy_rows(rows), summary, text, lambda: draw_arms(summary, reference))


def _describe_best(summary: pd.DataFrame) -> str:
    best = summary.iloc[0]
    details = [f"95 % interval {best['low']:.1f} to {best['high']:.1f}"] if best["low"] == best["low"] else []
    details += [f"SD {best['SD']:.1f}"] if best["SD"] == best["SD"] else []
    bracket = f" ({', '.join(details)})" if details else ""
    return f"{display_name(best['arm'])} has the highest mean AUC: {best['AUC']:.1f} %{bracket}."


def _describe_tuning(context: StudyContext, arms: list[Arm]) -> list[str]:
    """Name the methods whose settings were chosen on validation scans, if there are any."""
    names = [display_name(a.name) for a in arms if context.results_of(a).summary.is_tuned]
    if not names:
        return []
    rest = "" if len(names) == len(arms) else " The other methods were not tuned."
    return [f"Settings of {', '.join(names)} were chosen on validation scans.{rest}"]


@register_study(
    "comparison",
    "All methods at unseen sites",
    "BRIO outperforms all baselines on every dataset. General OOD methods are not consistently better than GNNs, and "
    "the best brain network methods are better than graph OOD methods. The table has no linear models.",
    list_compared_arms,
)
def compare_methods(context: StudyContext) -> Finding:
    """Compare all methods, leaving one site out: mean and SD of AUC and ACC over test sites."""
    return rank_arms(context, list_compared_arms(context))
