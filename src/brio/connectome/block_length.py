"""The block length of the resampling: how long frames of a scan stay correlated (paper, appendix on preprocessing)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .. import draws


@dataclass(frozen=True)
class BlockRule:
    """Constants of the block-length rule."""

    subjects: int = 128  # most participants that the estimate of a fold reads
    signals: int = 24  # ROI signals, and products of two ROI signals, that are drawn from each scan
    products: int = 48
    tau_ac: float = 0.10  # an autocorrelation below this magnitude counts as none
    largest_lag: int = 30  # longest lag in frames
    quantile: float = 0.75  # over the series of a scan
    l_min: int = 2  # shortest and longest block in frames
    l_max: int = 30


def autocorrelation_horizon(series: Tensor, n: Tensor, tau: float, largest_lag: int) -> Tensor:
    """Find the smallest lag at which |autocorrelation| is below ``tau`` at this lag and the next.

    Lags are searched up to min(largest_lag, n // 2). If there is no such lag, the horizon is the last lag searched: the
    series is correlated for at least that long, and a longer block is the cautious choice. The paper does not treat
    this case.

    Shapes: series [m, T], n [m]; returns [m].
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

    Shapes: ids [n], site [n], label [n].
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

    Shapes: x [T, P], alive [P].
    """
    series = _sample_series(x, alive, id_, rule, seed)
    length = torch.full((len(series),), series.shape[1], device=series.device)
    horizon = autocorrelation_horizon(series, length, rule.tau_ac, rule.largest_lag)
    return float(np.quantile(horizon.cpu().numpy(), rule.quantile))


def pool_horizons(horizon: np.ndarray, site: np.ndarray) -> float:
    """Pool horizons into the block length l_b of a fold, unrounded: the median over sites of the medians within sites.

    Shapes: horizon [n], site [n].
    """
    return float(np.median([np.median(horizon[site == e]) for e in np.unique(site)]))


def clip_block_length(l_b: float, n_frames: np.ndarray | int, rule: BlockRule) -> np.ndarray:
    """Compute the block length of each scan: clip(round(l_b), l_min, min(l_max, T // 2)).

    Shapes: n_frames [n]; returns [n].
    """
    longest = np.minimum(rule.l_max, np.asarray(n_frames) // 2)
    return np.clip(int(np.floor(l_b + 0.5)), rule.l_min, np.maximum(longest, rule.l_min))
