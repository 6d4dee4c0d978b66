"""The block length of the resampling: how long neighbouring frames stay correlated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .. import draws

__all__ = [
    "BlockRule",
    "autocorrelation_horizon",
    "balanced_subset",
    "clip_block_length",
    "fold_block_length",
    "subject_horizon",
]


@dataclass(frozen=True)
class BlockRule:
    """Constants of the block-length rule (paper, appendix on preprocessing)."""

    subjects: int = 128
    signals: int = 24
    products: int = 48
    tau_ac: float = 0.10
    largest_lag: int = 30
    quantile: float = 0.75
    l_min: int = 2
    l_max: int = 30


def autocorrelation_horizon(series: Tensor, n: Tensor, tau: float, largest_lag: int) -> Tensor:
    """Smallest lag at which |autocorrelation| stays below ``tau`` for two consecutive lags.

    Lags are searched up to min(largest_lag, n // 2). Where no such pair of lags exists the horizon
    is the last lag searched: dependence at least that long was seen, and a longer block is the
    cautious choice (the paper does not say).

    Parameters
    ----------
    series : Tensor, shape [m, T]
        Centred series, zero beyond their own length.
    n : Tensor of int64, shape [m]
        Their lengths.

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
    found = quiet[:, :-1] & quiet[:, 1:] & (lags + 1 <= last[:, None])
    first = torch.where(found, lags, torch.full_like(lags, largest_lag + 1)).amin(-1)
    return torch.where(found.any(-1), first, last)


def balanced_subset(ids: np.ndarray, site: np.ndarray, label: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Positions of at most ``most`` subjects, equally many from each site and class where they have them."""
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


def subject_horizon(x: Tensor, alive: np.ndarray, id_: int, rule: BlockRule, seed: int) -> float:
    """The 0.75 quantile of the horizons over the sampled series of a subject, who alone decides it.

    Parameters
    ----------
    x : Tensor, shape [T, P]
        Standardised scan.
    alive : ndarray of bool, shape [P]
    id_ : int
        Address of the participant (:func:`brio.draws.addresses`).
    """
    series = _sample_series(x, alive, id_, rule, seed)
    length = torch.full((len(series),), series.shape[1], device=series.device)
    horizon = autocorrelation_horizon(series, length, rule.tau_ac, rule.largest_lag)
    return float(np.quantile(horizon.cpu().numpy(), rule.quantile))


def fold_block_length(horizon: np.ndarray, site: np.ndarray) -> float:
    """Fold-level block length l_b, unrounded: median over the subjects of a site, median over sites.

    Parameters
    ----------
    horizon : ndarray, shape [n]
        Of each of a balanced subset of the source subjects.
    site : ndarray, shape [n]

    Examples
    --------
    >>> fold_block_length(np.array([4.0, 6.0, 9.0]), np.array(["a", "a", "b"]))
    7.0
    """
    return float(np.median([np.median(horizon[site == e]) for e in np.unique(site)]))


def clip_block_length(l_b: float, n_frames: np.ndarray | int, rule: BlockRule) -> np.ndarray:
    """Block length for each scan: clip(round(l_b), l_min, min(l_max, T // 2)).

    Examples
    --------
    >>> clip_block_length(6.6, np.array([200, 10]), BlockRule())
    array([7, 5])
    """
    longest = np.minimum(rule.l_max, np.asarray(n_frames) // 2)
    return np.clip(int(np.floor(l_b + 0.5)), rule.l_min, np.maximum(longest, rule.l_min))
