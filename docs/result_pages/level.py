"""Do tests and intervals keep their nominal level?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.studies.context import display_name

from .comparisons import LEVEL, VERDICTS, group_rows
from .evidence import ATLASES, read_measured_table  # noqa: F401 (for the template)
from .unseen_sites import join_families  # noqa: F401 (for the template)

MEASUREMENT = "interval-coverage.txt"
MOST_ALLOWED = 7.0
"""Largest upper bound of a rate of false positives, in percent, with which a test or an interval is printed."""


@cache
def measured() -> pd.DataFrame:
    """Return the measured rates, one row per cohort, setting, signal, quantity and test."""
    return read_measured_table(MEASUREMENT, ["rejected, %", "at most, %", "power, %", "half-width, points"])


def worst_rates() -> list[list[str]]:
    """Return the worst rates of each quantity and test over both atlases, views and all signals; used ones first."""
    table = measured()
    table = table.assign(quantity=table["quantity"].str.replace(r", (FC|log)", "", regex=True))
    rows = []
    for names, part in table[table["standing"] != ""].groupby(["quantity", "test", "standing"], sort=False):
        cells = []
        for setting in table["setting"].unique():
            own = part[part["setting"] == setting]
            power = "" if own["power, %"].isna().all() else f"; {own['power, %'].min():.0f}"
            rates = f"{own['rejected, %'].max():.1f} ({own['at most, %'].max():.1f}){power}"
            cells.append("" if own.empty else rates)
        rows.append([*names, *cells])
    return sorted(rows, key=lambda row: row[2] != "used")


def list_verdicts() -> pd.DataFrame:
    """Return the comparisons that all other pages have made, and whether they were and are significant."""
    rows = [
        (family, where, f"{display_name(name)} minus {display_name(reference)}", *values)
        for (family, where, name, reference), values in VERDICTS.items()
    ]
    table = pd.DataFrame(sorted(rows), columns=["family", "where", "pair", "mean", "p_before", "p_now"])
    return table.assign(before=table["p_before"] <= LEVEL, now=table["p_now"] <= LEVEL)


def list_rates() -> pd.DataFrame:
    """Return the worst rate of tests of today and before with its upper end, under their standing, for the figure."""
    worst = measured().groupby(["standing", "setting"], sort=False)[["rejected, %", "at most, %"]].max()
    worst = worst.rename(columns={"rejected, %": "mean", "at most, %": "high"}).assign(low=lambda own: own["mean"])
    return group_rows({"current tests": worst.loc["used"], "earlier tests": worst.loc["old"]})
