"""Are predicted probabilities calibrated at new sites?"""

from __future__ import annotations

from functools import cache

import pandas as pd
from scipy.special import expit

from brio.protocol.calibration import SiteMean, average_over_sites

from .comparisons import group_rows
from .evidence import ATLASES, read_arms

STUDY = "calibration"
QUANTITIES = {"slope": ("slope", 1.0), "in_the_large": ("in the large", 0.0)}
"""Quantities estimated at each site: display name, and value if probabilities are calibrated."""


@cache
def sites(atlas: str, method: str) -> pd.DataFrame:
    """Return slope and calibration in the large at each test site with their standard errors, averaged over seeds."""
    return read_arms(STUDY, atlas)[method].groupby("fold").mean(numeric_only=True)


@cache
def mean(atlas: str, method: str, quantity: str) -> SiteMean:
    """Return the random-effects mean of a quantity over sites, and its interval at a new site."""
    own = sites(atlas, method)
    return average_over_sites(own[quantity].to_numpy(), own[f"{quantity}_se"].to_numpy())


def miscalibrated(atlas: str, method: str, quantity: str) -> list[str]:
    """Return the sites whose 95% interval excludes the value of calibrated probabilities."""
    own = sites(atlas, method)
    distance = (own[quantity] - QUANTITIES[quantity][1]).abs()
    return [str(name) for name in own.index[distance > 1.96 * own[f"{quantity}_se"]]]


def list_means(quantity: str) -> pd.DataFrame:
    """Return the mean of a quantity per atlas and method, whether its interval includes the ideal, and sites off."""
    rows = []
    for atlas in ATLASES:
        for method in read_arms(STUDY, atlas):
            own, ideal = mean(atlas, method, quantity), QUANTITIES[quantity][1]
            off = len(miscalibrated(atlas, method, quantity))
            rows.append((atlas, method, own, own.mean, own.low, own.high, own.low <= ideal <= own.high, off))
    return pd.DataFrame(rows, columns=["atlas", "method", "own", "estimate", "low", "high", "holds", "off"])


def find_reach(quantity: str) -> tuple[float, float]:
    """Return the lowest and highest limit of the intervals at a new site over all methods and atlases."""
    own = list_means(quantity)["own"]
    return min(mean.new_low for mean in own), max(mean.new_high for mean in own)


def share_at(logit: float) -> float:
    """Return the share of patients at a logit, in percent."""
    return 100 * float(expit(logit))


def list_sites(atlas: str, method: str, quantity: str) -> pd.DataFrame:
    """Return the rows of the figure: mean, interval at a new site, then the value at each site (lowest first)."""
    own, every = sites(atlas, method).sort_values(quantity), mean(atlas, method, quantity)
    reach = 1.96 * own[f"{quantity}_se"]
    table = pd.DataFrame({"mean": own[quantity], "low": own[quantity] - reach, "high": own[quantity] + reach})
    over = {"mean": (every.mean, every.low, every.high), "a new site": (every.mean, every.new_low, every.new_high)}
    columns = ["mean", "low", "high"]
    return group_rows(
        {"all sites": pd.DataFrame.from_dict(over, orient="index", columns=columns), "each test site": table}
    )
