"""Would more sites or more participants raise the AUC?"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from brio.protocol import t_interval

from .comparisons import group_rows
from .evidence import ATLASES, read_arms, read_study_summary

STUDY = "learning-curve"
METHOD = "ridge"
AXES = ("sites", "participants")


@cache
def curve(atlas: str, axis: str) -> pd.DataFrame:
    """Return the points of a curve by size, smallest first, in percent.

    Mean sizes, mean AUC over test sites with its interval (``auc low``, ``auc high``), and the gain of all source scans
    over it, paired at each test site, with its interval (``gain low``, ``gain high``).
    """
    rows = read_arms(STUDY, atlas)[METHOD].query("axis == @axis")
    by_site = 100 * rows.groupby(["size", "fold"])["auc"].mean().unstack("fold")  # draws and seeds averaged
    points = rows.groupby("size")[["source_sites", "source_participants"]].mean()
    for name, values in (("auc", by_site), ("gain", by_site.loc["all"] - by_site)):
        points[name] = values.mean(axis=1)
        points[[f"{name} low", f"{name} high"]] = [t_interval(row.to_numpy()) for _, row in values.iterrows()]
    return points.sort_values("source_participants", kind="stable")


def stack_axes(atlas: str) -> pd.DataFrame:
    """Return the points of both curves with their pair-weighted AUC, which the text of the study has in their order."""
    points = pd.concat([curve(atlas, axis).assign(axis=axis) for axis in AXES]).reset_index()
    summary = read_study_summary(f"studies/{atlas}/{STUDY}")
    return points.assign(pair_weighted=summary["pair-weighted AUC"].to_list())


def point(axis: str, position: int) -> pd.DataFrame:
    """Return the point of a curve at a position on each atlas."""
    return pd.DataFrame({atlas: curve(atlas, axis).iloc[position] for atlas in ATLASES}).T


def rises() -> bool:
    """Return whether every step of every curve raises the mean."""
    return all(curve(atlas, axis)["auc"].is_monotonic_increasing for atlas in ATLASES for axis in AXES)


def compare_axes(atlas: str) -> pd.Series:
    """Return how much the curve of sites lies above that of participants at the same numbers of participants.

    The second curve is interpolated along the logarithm of the number of participants.
    """
    few_sites, all_sites = (curve(atlas, axis) for axis in AXES)
    few_sites = few_sites.drop("all")
    x, known = np.log(few_sites["source_participants"]), np.log(all_sites["source_participants"])
    return few_sites["auc"] - np.interp(x, known, all_sites["auc"])


def list_points(atlas: str) -> pd.DataFrame:
    """Return the AUC of each point, named by its mean size, under what was varied, for the figure."""
    names = {axis: curve(atlas, axis)[f"source_{axis}"].map("{:.0f}".format) for axis in AXES}
    numbers = {"auc": "mean", "auc low": "low", "auc high": "high"}
    return group_rows({f"source {a}": curve(atlas, a).set_index(names[a]).rename(columns=numbers) for a in AXES})
