"""Calibration of predicted probabilities, and the mean ROC curve over sites with its band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from ..errors import BrioError
from .intervals import FoldOverlap, t_interval
from .metrics import merge_ties

BinStrategy = Literal["uniform", "quantile"]
"""Bins of equal width, or with equal numbers of scans."""


def _assign_bins(probability: np.ndarray, bins: int, strategy: BinStrategy) -> tuple[np.ndarray, np.ndarray]:
    """Edges of the bins [bins + 1] and the bin of each probability [n]; a value on an edge is in the lower bin."""
    if bins < 1:
        raise BrioError(f"bins={bins}: at least 1 is needed")
    if strategy not in ("uniform", "quantile"):
        raise BrioError(f"bin strategy '{strategy}' is unknown; known: quantile, uniform")
    if not ((probability >= 0) & (probability <= 1)).all():
        raise BrioError("probabilities must lie between 0 and 1; convert logits to probabilities first")
    grid = np.linspace(0, 1, bins + 1)
    edges = grid if strategy == "uniform" else np.unique(np.quantile(probability, grid))
    if len(edges) == 1:  # all probabilities are the same
        edges = np.repeat(edges, 2)
    return edges, np.searchsorted(edges[1:-1], probability)


def reliability_curve(
    label: np.ndarray,
    probability: np.ndarray,
    bins: int = 10,
    strategy: BinStrategy = "uniform",
    site: np.ndarray | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Compute the reliability curve: the share of patients among scans with similar predicted probabilities.

    Shapes: label [n], probability [n], site [n].

    Returns one row per bin: ``left``, ``right``, ``count``, mean ``probability`` and ``observed`` share of patients;
    NaN for an empty bin.
    """
    label, probability = np.asarray(label), np.asarray(probability, dtype=float)
    edges, bin_of = _assign_bins(probability, bins, strategy)
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
    """Bootstrap interval over sites of the share of patients in each bin; NaN where a bin has one site only."""
    names, site_of = np.unique(site, return_inverse=True)
    cell, n_cells = site_of * n_bins + bin_of, len(names) * n_bins
    scans = np.bincount(cell, minlength=n_cells).reshape(-1, n_bins)  # [sites, bins]
    patients = np.bincount(cell, label, n_cells).reshape(-1, n_bins)
    drawn = np.random.default_rng(0).integers(0, len(names), (resamples, len(names)))
    with np.errstate(invalid="ignore"):  # a draw may miss all sites of a bin
        shares = patients[drawn].sum(axis=1) / scans[drawn].sum(axis=1)  # [resamples, bins]
    several_sites = (scans > 0).sum(axis=0) > 1
    interval = np.full((2, n_bins), np.nan)
    interval[:, several_sites] = np.nanquantile(shares[:, several_sites], [(1 - level) / 2, (1 + level) / 2], axis=0)
    return interval[0], interval[1]


def calibration_error(
    label: np.ndarray, probability: np.ndarray, bins: int = 10, strategy: BinStrategy = "uniform"
) -> float:
    """Compute the expected calibration error: the mean gap between observed and predicted share of patients.

    Bins are weighted by their number of scans. The error is above zero even for a perfectly calibrated model, the more
    so the fewer scans a bin holds.
    """
    curve = reliability_curve(label, probability, bins, strategy)
    gap = (curve["observed"] - curve["probability"]).abs()
    return float((gap * curve["count"]).sum() / curve["count"].sum())


@dataclass(frozen=True, eq=False)
class RocBand:
    """The mean ROC curve over sites.

    Shapes: false_positive_rate [points], true_positive_rate, low, high [points].
    """

    false_positive_rate: np.ndarray
    true_positive_rate: np.ndarray  # mean over sites and its t interval, separately at each false-positive rate
    low: np.ndarray
    high: np.ndarray
    auc: float  # mean over sites of the exact AUC, and its t interval
    auc_low: float
    auc_high: float
    n_sites: int  # sites with a curve
    one_class_units: tuple[str, ...]  # sites (or folds) with one class only, which have no curve


def roc_band(
    predictions: pd.DataFrame,
    by: Sequence[str] = ("fold",),
    points: int = 201,
    level: float = 0.95,
    correction: FoldOverlap | None = None,
) -> RocBand:
    """Compute the mean ROC curve over sites and its band of t intervals.

    The curve of each site is interpolated on common false-positive rates. Curves of the seeds of a site are averaged
    first. Sites have equal weight, whatever their size, and scans of different sites are not ranked against each other.
    """
    grid = np.linspace(0, 1, points)
    curves, areas, one_class_units = [], [], []
    for name, unit in predictions.groupby(list(by)):
        if unit["label"].nunique() < 2:
            one_class_units.append(", ".join(map(str, name)))
            continue
        runs = unit.groupby("seed")
        steps = [_trace_roc(run["label"].to_numpy(), run["logit"].to_numpy(float)) for _, run in runs]
        # on a vertical step, np.interp returns the upper end
        curves.append(np.mean([np.interp(grid, *step) for step in steps], axis=0))
        areas.append(np.mean([np.trapezoid(true, false) for false, true in steps]))
    if not curves:
        raise BrioError(f"no ROC curve: one class only at {'; '.join(one_class_units) or 'nothing'}")
    limits = (0.0, 1.0)
    band = np.array([t_interval(rates, correction, level=level, limits=limits) for rates in np.transpose(curves)])
    mean = np.mean(curves, axis=0)
    if len(curves) > 1:
        band = np.where(np.isnan(band), mean[:, None], band)  # where all curves meet, as at both ends
    low, high = t_interval(areas, correction, level=level, limits=limits)
    return RocBand(
        false_positive_rate=grid,
        true_positive_rate=mean,
        low=band[:, 0],
        high=band[:, 1],
        auc=float(np.mean(areas)),
        auc_low=low,
        auc_high=high,
        n_sites=len(curves),
        one_class_units=tuple(one_class_units),
    )


def _trace_roc(label: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return false- and true-positive rates at the corners of a ROC curve, from (0, 0) to (1, 1).

    As ``sklearn.metrics.roc_curve``, whose checks of its input take many times as long as the curve of one site.
    """
    if not np.isfinite(score).all():
        raise BrioError("no ROC curve: a logit is missing or infinite")
    score = merge_ties(score)
    order = np.argsort(score, kind="stable")[::-1]
    last_of_ties = np.flatnonzero(np.diff(score[order], append=np.nan) != 0)
    true = np.cumsum(label[order] == 1)[last_of_ties]
    false = last_of_ties + 1 - true
    turns = (np.diff(false, 2) != 0) | (np.diff(true, 2) != 0)  # points inside a straight line are left out
    corner = np.concatenate([[True], turns, [True]]) if len(true) > 1 else np.array([True])
    true, false = (np.concatenate([[0], count[corner]]) for count in (true, false))
    return false / false[-1], true / true[-1]
