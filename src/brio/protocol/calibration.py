"""Whether probabilities mean what they say, and the ROC curve over sites with its band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from sklearn.metrics import roc_curve

from ..errors import BrioError
from .metrics import bootstrap_interval

__all__ = ["RocBand", "calibration_error", "reliability", "roc_band"]

Bins = Literal["uniform", "quantile"]


def _bin_of(probability: np.ndarray, bins: int, strategy: Bins) -> tuple[np.ndarray, np.ndarray]:
    """Edges of the bins, shape [bins + 1], and the bin of each probability; a value on an edge is in the lower bin."""
    if bins < 1:
        raise BrioError(f"bins={bins}: at least 1 is needed")
    if strategy not in ("uniform", "quantile"):
        raise BrioError(f"bins of kind '{strategy}' are unknown; known: quantile, uniform")
    if not ((probability >= 0) & (probability <= 1)).all():
        raise BrioError("probabilities must lie between 0 and 1; turn logits into probabilities first")
    at = np.linspace(0, 1, bins + 1)
    edges = at if strategy == "uniform" else np.unique(np.quantile(probability, at))
    if len(edges) == 1:  # all probabilities are the same
        edges = np.repeat(edges, 2)
    return edges, np.searchsorted(edges[1:-1], probability)


def reliability(
    label: np.ndarray,
    probability: np.ndarray,
    bins: int = 10,
    strategy: Bins = "uniform",
    site: np.ndarray | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Reliability curve: how often those were patients of whom it was said with about the same probability.

    Parameters
    ----------
    label : ndarray, shape [n]
        1 for patients, 0 for controls.
    probability : ndarray, shape [n]
    bins : int
    strategy : {"uniform", "quantile"}
        Bins of equal width, or with equally many scans (fewer where many probabilities are the same).
    site : ndarray, shape [n], optional
        If given, ``low`` and ``high`` hold an interval of ``observed`` that draws sites with replacement.

    Returns
    -------
    DataFrame
        One row a bin: ``left``, ``right``, ``count``, mean ``probability`` and ``observed`` share of patients, NaN
        where a bin is empty.

    Examples
    --------
    >>> found = reliability(np.array([0, 0, 1, 1]), np.array([0.1, 0.3, 0.4, 0.9]), bins=2)
    >>> found[["left", "right", "count", "observed"]].to_numpy().round(3).tolist()
    [[0.0, 0.5, 3.0, 0.333], [0.5, 1.0, 1.0, 1.0]]
    """
    label, probability = np.asarray(label), np.asarray(probability, dtype=float)
    edges, bin_of = _bin_of(probability, bins, strategy)
    n_bins = len(edges) - 1
    count = np.bincount(bin_of, minlength=n_bins)
    with np.errstate(invalid="ignore"):  # 0 / 0 in empty bins
        table = pd.DataFrame(
            {
                "left": edges[:-1],
                "right": edges[1:],
                "count": count,
                "probability": np.bincount(bin_of, probability, n_bins) / count,
                "observed": np.bincount(bin_of, label, n_bins) / count,
            }
        )
    if site is not None:
        table["low"], table["high"] = _observed_interval(label, bin_of, np.asarray(site), n_bins, level)
    return table


def _observed_interval(
    label: np.ndarray, bin_of: np.ndarray, site: np.ndarray, n_bins: int, level: float, resamples: int = 2_000
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval of the share of patients in each bin, sites drawn with replacement; NaN for one site."""
    names, site_of = np.unique(site, return_inverse=True)
    cell, n_cells = site_of * n_bins + bin_of, len(names) * n_bins
    scans = np.bincount(cell, minlength=n_cells).reshape(-1, n_bins)  # [sites, bins]
    patients = np.bincount(cell, label, n_cells).reshape(-1, n_bins)
    drawn = np.random.default_rng(0).integers(0, len(names), (resamples, len(names)))
    with np.errstate(invalid="ignore"):  # a draw may miss all sites of a bin
        shares = patients[drawn].sum(axis=1) / scans[drawn].sum(axis=1)  # [resamples, bins]
    several = (scans > 0).sum(axis=0) > 1
    interval = np.full((2, n_bins), np.nan)
    interval[:, several] = np.nanquantile(shares[:, several], [(1 - level) / 2, (1 + level) / 2], axis=0)
    return interval[0], interval[1]


def calibration_error(label: np.ndarray, probability: np.ndarray, bins: int = 10, strategy: Bins = "uniform") -> float:
    """Expected calibration error: the mean gap between observed and predicted share, bins weighed by their scans.

    It is above zero even for a perfectly calibrated model, the more so the fewer scans a bin holds.

    References
    ----------
    Naeini, Cooper & Hauskrecht, AAAI 2015.

    Examples
    --------
    >>> round(calibration_error(np.array([0, 0, 1, 1]), np.array([0.25, 0.25, 0.75, 0.75]), bins=2), 6)
    0.25
    """
    found = reliability(label, probability, bins, strategy)
    gap = (found["observed"] - found["probability"]).abs()
    return float((gap * found["count"]).sum() / found["count"].sum())


@dataclass(frozen=True, eq=False)
class RocBand:
    """The mean ROC curve over sites.

    Attributes
    ----------
    false_positive_rate : ndarray, shape [points]
    true_positive_rate, low, high : ndarray, shape [points]
        Mean over sites and its interval, at each false-positive rate by itself.
    auc, auc_low, auc_high : float
        Mean over sites of the exact AUC, and its interval.
    n_sites : int
    left_out : tuple of str
        Sites with one class, which have no curve.
    """

    false_positive_rate: np.ndarray
    true_positive_rate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    auc: float
    auc_low: float
    auc_high: float
    n_sites: int
    left_out: tuple[str, ...]


def roc_band(
    predictions: pd.DataFrame,
    by: Sequence[str] = ("fold",),
    points: int = 201,
    level: float = 0.95,
    resamples: int = 2_000,
) -> RocBand:
    """ROC curves of the sites, each interpolated on common false-positive rates, their mean and its bootstrap band.

    The curves of a site's seeds are averaged first. Sites count equally, whatever their size: scans of different
    sites are not ranked against each other.

    Parameters
    ----------
    predictions : DataFrame
        ``predictions.csv`` of one method: fold, seed, label, logit.
    by : names of columns
        What has a curve: a site (fold); ``("seed", "fold")`` under k-fold, where another seed makes other folds.
    points : int
        False-positive rates, equally spaced from 0 to 1.

    Examples
    --------
    >>> said = pd.DataFrame({"fold": ["A"] * 4 + ["B"] * 2, "seed": 0, "label": [0, 1, 0, 1, 1, 1], "logit": range(6)})
    >>> band = roc_band(said, points=3)
    >>> band.n_sites, band.left_out, band.auc, band.true_positive_rate.tolist()
    (1, ('B',), 0.75, [0.5, 1.0, 1.0])
    """
    grid = np.linspace(0, 1, points)
    curves, areas, left_out = [], [], []
    for name, unit in predictions.groupby(list(by)):
        if unit["label"].nunique() < 2:
            left_out.append(", ".join(map(str, name)))
            continue
        steps = [roc_curve(run["label"], run["logit"])[:2] for _, run in unit.groupby("seed")]
        # on a vertical step np.interp takes the upper end
        curves.append(np.mean([np.interp(grid, *step) for step in steps], axis=0))
        areas.append(np.mean([np.trapezoid(true, false) for false, true in steps]))
    if not curves:
        raise BrioError(f"no ROC curve: one class only at {'; '.join(left_out) or 'nothing'}")
    # one seed, so the same draws of sites at every false-positive rate
    band = np.array([bootstrap_interval(rates, level, resamples) for rates in np.transpose(curves)])
    low, high = bootstrap_interval(np.array(areas), level)
    return RocBand(
        false_positive_rate=grid,
        true_positive_rate=np.mean(curves, axis=0),
        low=band[:, 0],
        high=band[:, 1],
        auc=float(np.mean(areas)),
        auc_low=low,
        auc_high=high,
        n_sites=len(curves),
        left_out=tuple(left_out),
    )
