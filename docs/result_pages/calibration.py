"""Do predicted probabilities hold at new sites?"""

from __future__ import annotations

from functools import cache

import pandas as pd
from scipy.special import expit

from brio.formatting import format_number
from brio.protocol.calibration import SiteMean, average_over_sites

from .evidence import read_study_summary
from .markdown import STATISTICS, atlas_label, interval, state, value_with_interval, write_page, write_table
from .own_studies import (
    ATLASES,
    describe_study,
    name_sources,
    read_arms,
    show_figures,
    study_folder,
    write_study_commands,
)

FILE = "calibration.md"
TITLE = "Do predicted probabilities hold at new sites?"
STUDY = "calibration"
QUANTITIES = {"slope": ("slope", 1.0), "in_the_large": ("in the large", 0.0)}
"""What is estimated at each site: words for it, and its value where probabilities hold."""


@cache
def sites(atlas: str, method: str) -> pd.DataFrame:
    """Return slope and calibration in the large at each test site with their standard errors, averaged over seeds."""
    return read_arms(STUDY, atlas)[method].groupby("fold").mean(numeric_only=True)


@cache
def mean(atlas: str, method: str, quantity: str) -> SiteMean:
    """Return the mean of a quantity over sites (random effects), and where it lies at a new site."""
    own = sites(atlas, method)
    return average_over_sites(own[quantity].to_numpy(), own[f"{quantity}_se"].to_numpy())


def miscalibrated(atlas: str, method: str, quantity: str) -> list[str]:
    """Return the sites whose 95 % interval excludes the value of calibrated probabilities."""
    own = sites(atlas, method)
    distance = (own[quantity] - QUANTITIES[quantity][1]).abs()
    return [str(name) for name in own.index[distance > 1.96 * own[f"{quantity}_se"]]]


def _mean_table(quantity: str) -> str:
    rows = []
    for atlas in ATLASES:
        for method in read_arms(STUDY, atlas):
            m, off = mean(atlas, method, quantity), len(miscalibrated(atlas, method, quantity))
            estimate = value_with_interval(m.mean, m.low, m.high, 2)
            new_site = interval(m.new_low, m.new_high, 2)
            rows.append([atlas_label(atlas), f"`{method}`", estimate, new_site, f"{off} of {m.n}"])
    words, ideal = QUANTITIES[quantity]
    return write_table(["atlas", "method", f"{words}, ideal {ideal:g} (95 % interval)", "new site", "sites off"], rows)


def _brier_table() -> str:
    columns = ["Brier score", "miscalibration", "discrimination", "uncertainty"]
    rows = []
    for atlas in ATLASES:
        for _, row in read_study_summary(study_folder(STUDY, atlas)).iterrows():
            parts = (format_number(float(row[column]), 3) for column in columns)
            rows.append([atlas_label(atlas), f"`{row['method']}`", *parts])
    return write_table(["atlas", "method", *columns], rows)


def _site_table(method: str) -> str:
    rows = []
    for name in sites(ATLASES[0], method).index:
        first = sites(ATLASES[0], method).loc[name]
        row = [str(name), f"{first['patients']:.0f}/{first['controls']:.0f}"]
        for atlas in ATLASES:
            here = sites(atlas, method).loc[name]
            for q in QUANTITIES:
                reach = 1.96 * here[f"{q}_se"]
                row.append(value_with_interval(here[q], here[q] - reach, here[q] + reach, 2))
        rows.append(row)
    header = ["test site", "patients/controls"]
    for atlas in ATLASES:
        header += [f"{atlas_label(atlas)}, {words}" for words, _ in QUANTITIES.values()]
    return write_table(header, rows)


def page() -> str:
    """Return the page."""
    arms = [(atlas, method) for atlas in ATLASES for method in read_arms(STUDY, atlas)]
    means = {(a, m, q): mean(a, m, q) for a, m in arms for q in QUANTITIES}
    hold = all(m.low <= QUANTITIES[q][1] <= m.high for (_, _, q), m in means.items())
    slopes = [means[a, m, "slope"] for a, m in arms]
    ridge = {q: mean("aal116", "ridge", q) for q in QUANTITIES}
    far = ridge["in_the_large"].new_high
    share = sites("aal116", "ridge").eval("patients / (patients + controls)")
    off = {q: [len(miscalibrated(a, m, q)) for a, m in arms] for q in QUANTITIES}
    return write_page(
        TITLE,
        state(
            "**On average yes, at a single new site not surely.** The mean slope over sites is "
            f"{format_number(min(m.mean for m in slopes))} to {format_number(max(m.mean for m in slopes))}, and "
            "calibrated values lie in the intervals of all means. But the interval for `ridge` at a new site reaches "
            f"from {interval(ridge['slope'].new_low, ridge['slope'].new_high, 2)} for the slope and from "
            f"{interval(ridge['in_the_large'].new_low, ridge['in_the_large'].new_high, 2)} for calibration in the "
            "large (AAL116).",
            hold,
        ),
        "The study asks whether of scans with a predicted probability of 70 %, seven in ten are patients. At each "
        "test site, labels are regressed on the logits of the predicted probabilities. The slope is 1 where "
        "probabilities hold, and below 1 where they are too extreme. Calibration in the large is the intercept with "
        "the slope fixed to 1: 0 where they hold, below 0 where there are fewer patients than predicted. Linear "
        f"models are calibrated on inner folds over their source sites. {describe_study(STUDY)} {STATISTICS}",
        write_study_commands(STUDY),
        "Means over sites are of a random-effects model. *New site*: where the value of a new site lies, 95 % "
        "interval. *Sites off*: the site's own 95 % interval excludes the ideal.",
        *(_mean_table(quantity) for quantity in QUANTITIES),
        "The Brier score of all test scans is miscalibration, which recalibration could remove, less discrimination, "
        "plus uncertainty, which is that of the share of patients:",
        _brier_table(),
        *show_figures(STUDY, "Reliability of all test scans, and slope and calibration in the large at each site"),
        "Estimates of `ridge` at each test site, with 95 % intervals:",
        _site_table("ridge"),
        "## What it shows",
        state(
            "Calibration on source sites carries over to new sites on average. At single sites it is the level that "
            f"fails, more often than the slope: {min(off['in_the_large'])} to {max(off['in_the_large'])} of "
            f"{len(sites('aal116', 'ridge'))} sites are off in the large, {min(off['slope'])} to {max(off['slope'])} "
            "in the slope.",
            all(level > slope for level, slope in zip(off["in_the_large"], off["slope"], strict=True)),
        )
        + f" At the upper end for a new site, {far:.2f}, {100 * expit(far):.0f} % of the scans with a predicted 50 % "
        "would be patients.",
        "## What it cannot show",
        "Single sites are small: their intervals are wide, and a site that is not off is not shown to be calibrated. "
        f"Among {len(sites('aal116', 'ridge'))} sites one is expected to be off by chance. Patients are "
        f"{100 * share.min():.0f} to {100 * share.max():.0f} % of a site here, by design. At a clinic with another "
        "share of patients, the level would be off for that reason alone.",
        name_sources(STUDY),
    )
