"""The block length of the resampling: how long frames of a scan stay correlated (paper, appendix on preprocessing)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .. import draws

__all__ = [
    "BlockRule",
    "autocorrelation_horizon",
    "choose_balanced_subset",
    "clip_block_length",
    "estimate_horizon",
    "pool_horizons",
]


@dataclass(frozen=True)
class BlockRule:
    """Constants of the block-length rule.

    Attributes
    ----------
    subjects : int
        Most participants that the estimate of a fold reads.
    signals, products : int
        ROI signals, and products of two ROI signals, that are drawn from each scan.
    tau_ac : float
        An autocorrelation below this magnitude counts as none.
    largest_lag : int
        Longest lag in frames.
    quantile : float
        Over the series of a scan.
    l_min, l_max : int
        Shortest and longest block in frames.
    """

    subjects: int = 128
    signals: int = 24
    products: int = 48
    tau_ac: float = 0.10
    largest_lag: int = 30
    quantile: float = 0.75
    l_min: int = 2
    l_max: int = 30


def autocorrelation_horizon(series: Tensor, n: Tensor, tau: float, largest_lag: int) -> Tensor:
    """Find the smallest lag at which |autocorrelation| is below ``tau`` at this lag and the next.

    Lags are searched up to min(largest_lag, n // 2). If there is no such lag, the horizon is the last lag searched: the
    series is correlated for at least that long, and a longer block is the cautious choice. The paper does not treat
    this case.

    Parameters
    ----------
    series : Tensor, shape [m, T]
        Centred series, zero beyond their own length.
    n : Tensor of int64, shape [m]
        Their lengths.
    tau : float
    largest_lag : int

    Returns
    -------
    Tensor of int64, shape [m]
    """
    energy = series.square().sum(-1)
    last = torch.minimum(torch.full_like(n, largest_lag), n // 2)
    below = []
    for lag in range(1, largest_lag + 1):
        product = (series[:, lag:] * series[:, :-lag]).sum(-1) if lag < series.shape[1] else torch.zeros_like(energy)
        below.append(product.abs() < tau * energy)
    quiet = torch.stack(below, -1)  # [m, lags]
    lags = torch.arange(1, largest_lag, device=series.device)
    both_quiet = quiet[:, :-1] & quiet[:, 1:] & (lags + 1 <= last[:, None])
    first = torch.where(both_quiet, lags, torch.full_like(lags, largest_lag + 1)).amin(-1)
    return torch.where(both_quiet.any(-1), first, last)


def choose_balanced_subset(ids: np.ndarray, site: np.ndarray, label: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Choose participants at random, equally many from each site and class as far as there are enough.

    Parameters
    ----------
    ids : ndarray of int64, shape [n]
        Addresses of the participants (:func:`brio.draws.addresses`).
    site : ndarray of str, shape [n]
    label : ndarray of int, shape [n]
    most : int
        Largest size of the subset.
    seed : int

    Returns
    -------
    ndarray of int64
        Positions in ``ids``, ascending.
    """
    cells: dict[tuple[str, int], list[int]] = {}
    for i, cell in enumerate(zip(site.tolist(), label.tolist(), strict=True)):
        cells.setdefault(cell, []).append(i)
    quota = max(1, most // len(cells))
    order = draws.draw_uniform(seed, "block length subjects", ids)
    chosen = [i for members in cells.values() for i in sorted(members, key=lambda i: order[i])[:quota]]
    return np.sort(np.array(sorted(chosen, key=lambda i: order[i])[:most], dtype=np.int64))


def _sample_series(x: Tensor, alive: np.ndarray, id_: int, rule: BlockRule, seed: int) -> Tensor:
    """ROI signals and products of ROI pairs of one scan, centred. Shape [<= signals + products, T]."""
    live = np.flatnonzero(alive)
    rank = np.argsort(draws.draw_uniform(seed, "block length signals", id_, live), kind="stable")
    signals = x[:, live[rank[: rule.signals]]].T
    if len(live) < 2:
        return signals - signals.mean(-1, keepdim=True)
    slot = np.arange(rule.products)
    u = (draws.draw_uniform(seed, "product, first ROI", id_, slot) * len(live)).astype(np.int64)
    step = (draws.draw_uniform(seed, "product, second ROI", id_, slot) * (len(live) - 1)).astype(np.int64) + 1
    v = (u + step) % len(live)
    pairs = np.unique(np.sort(np.stack([live[u], live[v]], 1), axis=1), axis=0)
    products = (x[:, pairs[:, 0]] * x[:, pairs[:, 1]]).T
    series = torch.cat([signals, products])
    return series - series.mean(-1, keepdim=True)


def estimate_horizon(x: Tensor, alive: np.ndarray, id_: int, rule: BlockRule, seed: int) -> float:
    """Estimate how long the frames of one scan stay correlated: a quantile of the horizons of its sampled series.

    The result depends on this scan alone.

    Parameters
    ----------
    x : Tensor, shape [T, P]
        Standardised scan.
    alive : ndarray of bool, shape [P]
        Whether an ROI has signal.
    id_ : int
        Address of the participant (:func:`brio.draws.addresses`).
    rule : BlockRule
    seed : int

    Returns
    -------
    float
        Frames.
    """
    series = _sample_series(x, alive, id_, rule, seed)
    length = torch.full((len(series),), series.shape[1], device=series.device)
    horizon = autocorrelation_horizon(series, length, rule.tau_ac, rule.largest_lag)
    return float(np.quantile(horizon.cpu().numpy(), rule.quantile))


def pool_horizons(horizon: np.ndarray, site: np.ndarray) -> float:
    """Pool horizons into the block length l_b of a fold, unrounded: the median over sites of the medians within sites.

    Parameters
    ----------
    horizon : ndarray, shape [n]
        Of a balanced subset of the source scans.
    site : ndarray, shape [n]

    Returns
    -------
    float
        Frames.

    Examples
    --------
    >>> pool_horizons(np.array([4.0, 6.0, 9.0]), np.array(["a", "a", "b"]))
    7.0
    """
    return float(np.median([np.median(horizon[site == e]) for e in np.unique(site)]))


def clip_block_length(l_b: float, n_frames: np.ndarray | int, rule: BlockRule) -> np.ndarray:
    """Compute the block length of each scan: clip(round(l_b), l_min, min(l_max, T // 2)).

    Parameters
    ----------
    l_b : float
        Block length of the fold, see :func:`pool_horizons`.
    n_frames : ndarray of int64, shape [n], or int
    rule : BlockRule

    Returns
    -------
    ndarray of int64, shape [n]

    Examples
    --------
    >>> clip_block_length(6.6, np.array([200, 10]), BlockRule())
    array([7, 5])
    """
    longest = np.minimum(rule.l_max, np.asarray(n_frames) // 2)
    return np.clip(int(np.floor(l_b + 0.5)), rule.l_min, np.maximum(longest, rule.l_min))
