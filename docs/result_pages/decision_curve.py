"""Is deciding by the model better than treating all or none?"""

from __future__ import annotations

from functools import cache

import pandas as pd
from brio.studies.decision_curve import average_net_benefit

from brio.formatting import format_number, format_signed

from .markdown import STATISTICS, atlas_label, signed_interval, state, write_page, write_table
from .own_studies import ATLASES, describe_study, name_sources, read_arms, show_figure, write_study_commands

FILE = "decision-curve.md"
TITLE = "Is deciding by the model better than treating all or none?"
STUDY = "decision-curve"
SHOWN = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Thresholds in the table; the figure has more."""


@cache
def curves(atlas: str) -> dict[str, pd.DataFrame]:
    """Return net benefit and its gain over the better simple rule, by method. [threshold x columns]."""
    return {method: average_net_benefit(rows) for method, rows in read_arms(STUDY, atlas).items()}


def _benefit_table(atlas: str) -> str:
    by_method = curves(atlas)
    treat_all = next(iter(by_method.values()))["treat_all"]
    rows = []
    for threshold in SHOWN:
        benefits = [treat_all[threshold], 0.0, *(curve.loc[threshold, "net_benefit"] for curve in by_method.values())]
        rows.append([f"{threshold:.1f}", *(format_number(benefit, 3) for benefit in benefits)])
    return write_table(["threshold", "treat all", "treat none", *(f"`{method}`" for method in by_method)], rows)


def _gain_table(atlas: str) -> str:
    rows = []
    for threshold in SHOWN:
        points = [curve.loc[threshold] for curve in curves(atlas).values()]
        gains = (f"{format_signed(p['gain'], 3)} ({signed_interval(p['gain low'], p['gain high'], 3)})" for p in points)
        rows.append([f"{threshold:.1f}", *gains])
    return write_table(["threshold", *(f"gain of `{method}` (95 % interval)" for method in curves(atlas))], rows)


def _show_atlas(atlas: str) -> list[str]:
    caption = "Net benefit against the threshold, and its gain over the better simple rule"
    return [
        f"## {atlas_label(atlas)}",
        show_figure(STUDY, atlas, caption),
        "Net benefit per scan:",
        _benefit_table(atlas),
        "Gain over the better of treating all and treating none at that threshold, paired at each site:",
        _gain_table(atlas),
    ]


def shown_thresholds(curve: pd.DataFrame) -> pd.Index:
    """Return the thresholds at which the interval of the gain is above zero."""
    return curve.index[(curve["gain low"] > 0).to_numpy()]


def page() -> str:
    """Return the page."""
    every = [(atlas, method, curve) for atlas in ATLASES for method, curve in curves(atlas).items()]
    common = sorted(set.intersection(*(set(shown_thresholds(curve)) for _, _, curve in every)))
    half = [curve.loc[0.5, "gain"] for _, _, curve in every]
    outside = [t for t in every[0][2].index if not any(t in shown_thresholds(curve) for _, _, curve in every)]
    first = read_arms(STUDY, ATLASES[0])["ridge"]
    share = first.loc[first["threshold"] == 0.5, "treat_all"].mean() / 2 + 0.5  # treat all at 0.5 gains 2 share - 1
    sites = first["fold"].nunique()
    low = max(t for t in outside if t < common[0])
    return write_page(
        TITLE,
        state(
            f"**Yes, at thresholds of {common[0]:.2f} to {common[-1]:.2f}.** There the net benefit of every method on "
            "both atlases is above that of treating all and of treating none. The gain is largest near 0.5: "
            f"{format_number(min(half), 3)} to {format_number(max(half), 3)} net true positives per scan.",
            _are_consecutive(common) and all(curve["gain"].idxmax() in (0.45, 0.5, 0.55) for _, _, curve in every),
        ),
        "The study asks whether acting on a prediction serves participants better than treating everybody alike. Net "
        "benefit counts true positives, less false positives times the odds of the threshold, per scan (Vickers & "
        "Elkin 2006), averaged over test sites. The threshold says what a false positive is worth: at 0.2, one true "
        f"positive outweighs four false ones. {describe_study(STUDY)} {STATISTICS}",
        write_study_commands(STUDY),
        *(block for atlas in ATLASES for block in _show_atlas(atlas)),
        "## What it shows",
        state(
            f"Treating nobody has a net benefit of 0. Up to a threshold of {low:.2f}, where a missed patient costs "
            "more than several false alarms, no method is shown to be better than treating all. Above the middle the "
            "gain fades: few predicted probabilities are that high.",
            all(t in outside for t in every[0][2].index if t <= low),
        ),
        "## What it cannot show",
        f"What a clinic would gain. Net benefit depends on the share of patients: {100 * share:.0f} % on average "
        "here, by design, which is not that of a clinic. It says nothing about harms of a treatment, nor which "
        f"threshold is right. Intervals are over {sites} sites and not corrected for the {len(every[0][2])} "
        "thresholds looked at; a single threshold outside the range where the gain is above zero is no finding.",
        name_sources(STUDY),
    )


def _are_consecutive(thresholds: list[float]) -> bool:
    """Say whether thresholds are neighbours on the grid of the study."""
    return len(thresholds) > 1 and len(thresholds) == round((thresholds[-1] - thresholds[0]) / 0.05) + 1
