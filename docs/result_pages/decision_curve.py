"""Is using the model better than treating all or none?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.studies.calibration import average_net_benefit

from .comparisons import group_rows
from .evidence import ATLASES, read_arms

STUDY = "decision-curve"
SHOWN = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Thresholds in the table; the figure has more."""


@cache
def curves(atlas: str) -> dict[str, pd.DataFrame]:
    """Return net benefit and its gain over the better simple rule, by method. [threshold x columns]."""
    return {method: average_net_benefit(rows) for method, rows in read_arms(STUDY, atlas).items()}


def shown_thresholds(curve: pd.DataFrame) -> pd.Index:
    """Return the thresholds at which the interval of the gain is above zero."""
    return curve.index[(curve["gain low"] > 0).to_numpy()]


def gains() -> pd.DataFrame:
    """Return the gain of each method on each atlas. [threshold x (atlas, method)]."""
    return pd.DataFrame({(atlas, m): curve["gain"] for atlas in ATLASES for m, curve in curves(atlas).items()})


def find_thresholds() -> tuple[list[float], list[float]]:
    """Find the thresholds at which every method gains on both atlases, and those at which none does."""
    gained = [set(shown_thresholds(curve)) for atlas in ATLASES for curve in curves(atlas).values()]
    return sorted(set.intersection(*gained)), [t for t in gains().index if t not in set.union(*gained)]


def are_consecutive(thresholds: list[float]) -> bool:
    """Say whether thresholds are neighbours on the grid of the study."""
    return len(thresholds) > 1 and len(thresholds) == round((thresholds[-1] - thresholds[0]) / 0.05) + 1


def list_gains(atlas: str) -> pd.DataFrame:
    """Return the gain at each threshold, under its method, for the figure."""
    numbers = {"gain": "mean", "gain low": "low", "gain high": "high"}
    return group_rows({name: curve.loc[list(SHOWN)].rename(columns=numbers) for name, curve in curves(atlas).items()})
