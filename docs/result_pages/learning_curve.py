"""What would more sites or more participants bring?"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from brio.formatting import format_signed
from brio.protocol import t_interval

from .evidence import read_study_summary
from .markdown import (
    STATISTICS,
    atlas_label,
    fixed,
    in_words,
    signed_interval,
    state,
    value_with_interval,
    write_page,
    write_table,
)
from .own_studies import (
    ATLASES,
    describe_study,
    name_sources,
    read_arms,
    show_figures,
    study_folder,
    write_study_commands,
)

FILE = "learning-curve.md"
TITLE = "What would more sites or more participants bring?"
STUDY = "learning-curve"
METHOD = "ridge"
AXES = ("sites", "participants")


@cache
def curve(atlas: str, axis: str) -> pd.DataFrame:
    """Return the points of a curve by size, smallest first.

    Returns
    -------
    DataFrame
        Mean sizes, mean AUC over test sites with its interval (``auc low``, ``auc high``), and the gain of all source
        scans over it, paired at each test site, with its interval (``low``, ``high``); in percent.
    """
    rows = read_arms(STUDY, atlas)[METHOD].query("axis == @axis")
    by_site = 100 * rows.groupby(["size", "fold"])["auc"].mean().unstack("fold")  # draws and seeds averaged
    points = rows.groupby("size")[["source_sites", "source_participants"]].mean().assign(auc=by_site.mean(axis=1))
    gain = by_site.loc["all"] - by_site
    points["gain"] = gain.mean(axis=1)
    for values, ends in ((by_site, ["auc low", "auc high"]), (gain, ["low", "high"])):
        points[ends] = [t_interval(row.to_numpy()) for _, row in values.iterrows()]
    return points.sort_values("source_participants", kind="stable")


def compare_axes(atlas: str) -> pd.Series:
    """Return how much the curve of sites lies above that of participants at the same numbers of participants.

    The second curve is interpolated along the logarithm of the number of participants.
    """
    few_sites, all_sites = (curve(atlas, axis) for axis in AXES)
    few_sites = few_sites.drop("all")
    x, known = np.log(few_sites["source_participants"]), np.log(all_sites["source_participants"])
    return few_sites["auc"] - np.interp(x, known, all_sites["auc"])


def _table() -> str:
    rows = []
    for atlas in ATLASES:
        pair_weighted = iter(read_study_summary(study_folder(STUDY, atlas))["pair-weighted AUC"])
        for axis in AXES:
            for size, point in curve(atlas, axis).iterrows():
                sizes = [f"{point[column]:.0f}" for column in ("source_sites", "source_participants")]
                scores = [value_with_interval(point["auc"], point["auc low"], point["auc high"]), next(pair_weighted)]
                gain = f"{format_signed(point['gain'])} ({signed_interval(point['low'], point['high'])})"
                rows.append([atlas_label(atlas), axis, *sizes, *scores, gain if size != "all" else ""])
    header = ["atlas", "varied", "sites", "participants", "AUC (95 % interval)", "pair-weighted"]
    return write_table([*header, "gain of all (95 % interval)"], rows)


def _last_step(atlas: str, axis: str) -> str:
    """Describe what the last step of a curve gained."""
    step = curve(atlas, axis).iloc[-2]
    return f"{format_signed(step['gain'])} points ({signed_interval(step['low'], step['high'])})"


def page() -> str:
    """Return the page."""
    last = {axis: [curve(atlas, axis).iloc[-2] for atlas in ATLASES] for axis in AXES}
    first = {axis: [curve(atlas, axis).iloc[0] for atlas in ATLASES] for axis in AXES}
    rises = all(curve(atlas, axis)["auc"].is_monotonic_increasing for atlas in ATLASES for axis in AXES)
    draws = read_arms(STUDY, "aal116")[METHOD]["draw"].nunique()
    apart = max(compare_axes(atlas).abs().max() for atlas in ATLASES)
    sites, participants, every = (*(first[axis][0] for axis in AXES), curve("aal116", "sites").iloc[-1])
    return write_page(
        TITLE,
        state(
            "**AUC rises with every step, and on AAL116 the rise has not ended.** The last step, from "
            f"{last['sites'][0]['source_sites']:.0f} to {every['source_sites']:.0f} source sites, gains `{METHOD}` "
            f"{_last_step('aal116', 'sites')} there; the gain on CC200, {_last_step('cc200', 'sites')}, could be none. "
            f"From three quarters of the participants to all of them it gains {_last_step('aal116', 'participants')} "
            f"and {_last_step('cc200', 'participants')}.",
            rises and [step["low"] > 0 for step in last["sites"]] == [True, False],
        ),
        "The study asks how the AUC at a new site depends on what a model was trained on. Each fold keeps its test "
        "site; its source scans are reduced to random source sites, or to a random share of the participants of "
        f"every source site and class, {draws} draws for each fold and seed. The penalty is chosen anew. "
        f"{describe_study(STUDY)} Intervals are over test sites (t); differences to all source scans are paired. "
        f"{STATISTICS}",
        write_study_commands(STUDY),
        _table(),
        *show_figures(STUDY, f"AUC of {METHOD} against the number of source sites and of source participants"),
        "## What it shows",
        f"From {sites['source_sites']:.0f} source sites to all, AUC gains "
        f"{in_words(fixed(p['gain']) for p in first['sites'])} points (AAL116, CC200); from "
        f"{participants['source_participants']:.0f} participants to all, "
        f"{in_words(fixed(p['gain']) for p in first['participants'])}. "
        + state(
            "At the same number of participants the means of the two curves "
            f"differ by at most {fixed(apart)} points. That it matters whether they come from few sites or many is not "
            "seen; these differences have no intervals here.",
            apart < 1.5,
        ),
        "## What it cannot show",
        "Nothing beyond these sites: the curves do not say where they level off. Intervals of single points speak of "
        "other test sites and overlap; the paired differences are the ones to read. Subsets of one draw are nested, "
        "and a random subset of three sites is not three sites that were chosen well. Methods that need more data "
        f"than `{METHOD}` may have steeper curves; none was run.",
        name_sources(STUDY),
    )
