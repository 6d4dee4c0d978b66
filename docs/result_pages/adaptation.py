"""How much does a new hospital gain from a few labelled scans?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.models import PriorWidths
from brio.studies import calibration as study

from .comparisons import group_rows
from .evidence import ATLASES, read_arms

STUDY = "adaptation"
DRAWS, LEAST_REST, WIDTHS = study.DRAWS, study.LEAST_REST, PriorWidths()
KINDS = {"adapted": "default", "half": "half the widths", "double": "double the widths", "unshrunk": "not shrunk"}
"""Kinds of adaptation in the study, in words."""


@cache
def points(atlas: str, method: str) -> pd.DataFrame:
    """Return scores before adaptation and their changes, by number of local scans."""
    return study.summarise_sizes(read_arms(STUDY, atlas)[method])


def list_points() -> pd.DataFrame:
    """Return one row per atlas, method and number of local scans."""
    parts = {(atlas, method): points(atlas, method) for atlas in ATLASES for method in read_arms(STUDY, atlas)}
    return pd.concat(parts, names=["atlas", "method", "size"]).reset_index()


def missing_sites(size: int) -> list[str]:
    """Return the sites that are too small for a number of local scans."""
    rows = read_arms(STUDY, ATLASES[0])["ridge"]
    return sorted(set(rows["fold"]) - set(rows.loc[rows["size"] == size, "fold"]))


def list_changes_of(atlas: str) -> pd.DataFrame:
    """Return the change of the Brier score by number of local scans, under its method, for the figure."""
    names = {"brier adapted": "mean", "brier adapted low": "low", "brier adapted high": "high"}
    tables = {m: points(atlas, m).drop(index=0).rename(columns=names) for m in read_arms(STUDY, atlas)}
    return group_rows({m: table.rename(index="{} local scans".format) for m, table in tables.items()})
