"""Circular moving-block resamples, the block length, and FC averaged over sessions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..cohort import Cohort
from ..cohort.scans import read_session_frames
from ..draws import draw_uniform_tensor
from ..errors import BrioError
from .fc import LARGEST_CORRELATION, psi, reestimate_fc

NO_GAPS: Mapping[int, np.ndarray] = {}


class ReestimateRequest(NamedTuple):
    """Which re-estimates to make: K for each scan. Draws depend only on the seed, the refresh and the participant.

    Shapes: scans [n], block_length [n].
    """

    scans: np.ndarray  # positions in the cohort
    block_length: np.ndarray  # frames, see brio.connectome.clip_block_length
    seed: int
    refresh: int  # number of the refresh; another number gives other draws
    K: int  # number of re-estimates of each scan
    balanced: bool = False

    def select(self, chunk: np.ndarray) -> ReestimateRequest:
        """Return the same request for some of the scans, by position in ``scans``."""
        return self._replace(scans=self.scans[chunk], block_length=self.block_length[chunk])


def draw_block_starts(keys: Tensor, n_frames: Tensor, n_reestimates: int, n_blocks: int) -> Tensor:
    """Draw the first frame of every block uniformly, one draw for each scan, resample and block.

    Shapes: keys [n], n_frames [n]; returns [n, K, n_blocks].
    """
    k = torch.arange(n_reestimates, device=keys.device)[None, :, None]
    b = torch.arange(n_blocks, device=keys.device)[None, None, :]
    u = draw_uniform_tensor(keys[:, None, None], k, b)
    return (u * n_frames[:, None, None]).long()


def block_indices(starts: Tensor, block_length: Tensor, n_frames: Tensor, width: int) -> Tensor:
    """Compute the frames of circular moving-block resamples: blocks end to end, cut to the length of the scan.

    Shapes: starts [n, K, n_blocks], block_length, n_frames [n]; returns [n, K, width].
    """
    t = torch.arange(width, device=starts.device)
    length = block_length[:, None, None]
    block = (t // length).clamp_max(starts.shape[-1] - 1).expand(*starts.shape[:2], width)
    return (starts.gather(-1, block) + t % length) % n_frames[:, None, None]


def skip_gaps(kept: np.ndarray, block_length: int, key: int, n_reestimates: int) -> Tensor:
    """Compute the frames of the resamples of a scan with gaps: blocks of time, until there are as many as in the scan.

    Shapes: kept [T], positions in time from 0; returns [K, T], positions among the kept frames.
    """
    span, n_blocks = int(kept[-1]) + 1, -(-int(kept[-1] + 1) // block_length)
    position = torch.full((span,), -1)
    position[torch.from_numpy(kept)] = torch.arange(len(kept))
    while True:
        starts = draw_block_starts(torch.tensor([key]), torch.tensor([span]), n_reestimates, n_blocks)[0]
        index = position[(starts[..., None] + torch.arange(block_length)) % span].flatten(1)
        if ((index >= 0).sum(-1) >= len(kept)).all():
            return index.gather(-1, (index < 0).sort(dim=-1, stable=True).indices[:, : len(kept)])
        n_blocks *= 2


def find_design_size(least: int) -> int:
    """Find the size of the smallest balanced design with at least this many re-estimates."""
    size = max(3, least)
    while size % 4 != 3 or any(size % divisor == 0 for divisor in range(3, int(size**0.5) + 1, 2)):
        size += 1
    return size


def find_design_blocks(block_length: np.ndarray, n_frames: np.ndarray, size: int) -> np.ndarray:
    """Find the block lengths of a balanced design, which are at least the distances between the blocks.

    Shapes: block_length, n_frames [n].
    """
    return np.maximum(block_length, -(-n_frames // size))


def find_design_scale(block_length: np.ndarray, n_frames: np.ndarray, size: int) -> np.ndarray:
    """Find by how much the variance of drawn re-estimates exceeds the sample variance over a balanced design.

    A drawn resample of T frames has T / l blocks. A resample of the design has (q - 1) / 2 of q blocks, and each pair
    of blocks is in equally many resamples.

    Shapes: block_length, n_frames [n]; returns [n].
    """
    length = find_design_blocks(block_length, n_frames, size)
    return (size - 1) ** 3 * length / (size * (size + 1) * n_frames)


def _balance_block_starts(n_frames: Tensor, size: int, stride: Tensor) -> Tensor:
    """First frames of the blocks of a balanced design; re-estimate k has set k * stride. Shape [n, q, q // 2]."""
    squares = torch.arange(1, size // 2 + 1, device=n_frames.device).square() % size
    shift = torch.arange(size, device=n_frames.device) * stride[:, None]  # [n, q]
    block = (squares.sort().values + shift[..., None]) % size
    return block * n_frames[:, None, None] // size


def index_resamples(
    n_frames: np.ndarray,
    block_length: np.ndarray,
    keys: np.ndarray,
    n_reestimates: int,
    balanced: bool = False,
    device: torch.device | str = "cpu",
    kept: Mapping[int, np.ndarray] = NO_GAPS,
) -> tuple[Tensor, np.ndarray]:
    """Find the frames of the resamples of scans; a balanced design is laid over the frames that were kept.

    Shapes: n_frames, block_length, keys [n], kept [T] of scans with gaps; returns index [n, K, width], size [n].
    """
    if balanced:
        block_length = find_design_blocks(block_length, n_frames, n_reestimates)
    size = block_length * (n_reestimates // 2) if balanced else n_frames
    width = int(size.max())
    n_blocks = -(-width // max(1, int(block_length.min())))
    length, block, key = torch.from_numpy(np.stack([n_frames, block_length, keys])).to(device)
    if balanced:
        starts = _balance_block_starts(length, n_reestimates, key)
    else:
        starts = draw_block_starts(key, length, n_reestimates, n_blocks)
    index = block_indices(starts, block, length, width)
    for i, positions in (NO_GAPS if balanced else kept).items():
        own = skip_gaps(positions, int(block_length[i]), int(keys[i]), n_reestimates)
        index[i, :, : len(positions)] = own.to(device)
    return index, size


def reestimate(
    frames: Tensor,
    first: np.ndarray,
    n_frames: np.ndarray,
    block_length: np.ndarray,
    keys: np.ndarray,
    n_reestimates: int,
    balanced: bool = False,
    kept: Mapping[int, np.ndarray] = NO_GAPS,
) -> Tensor:
    """Re-estimate the FC of scans from resampled frames: A^(k) = Psi(R_k(X)), Eq. (2).

    All ROIs of a resample share its frames, so they keep their temporal correspondence.

    Shapes: frames [F, P], first [n]; returns [n, K, P, P].
    """
    index, size = index_resamples(n_frames, block_length, keys, n_reestimates, balanced, frames.device, kept)
    index += torch.from_numpy(first).to(frames.device)[:, None, None]
    if frames.device.type == "cpu":
        return torch.from_numpy(reestimate_fc(frames.numpy(), index.numpy(), size))
    n, width = torch.from_numpy(size).to(frames.device), index.shape[-1]
    x = frames.index_select(0, index.flatten()).view(*index.shape, -1)
    if size.min() < width:
        x *= (torch.arange(width, device=x.device) < n[:, None])[:, None, :, None]
    return psi(x, n[:, None].expand(-1, n_reestimates))


def find_block_changes(x: np.ndarray, count: int, block_length: int | None) -> np.ndarray:
    """Compute how blocks of a scan change its Fisher z, to first order.

    Blocks start evenly over the scan, which is a circle; by default, they are as long as the square root of the scan
    (Flegal & Jones, Ann Stat 2010). The sum of the squares of w' change is the variance of w' A over the circular
    moving-block resamples of Eq. (2), in closed form: nothing is drawn.

    Shapes: x [T, P], standardised; returns [count, P, P].
    """
    n = len(x)
    length = min(max(1, n // 2), block_length or math.isqrt(n - 1) + 1)
    index = (np.arange(count)[:, None] * n // count + np.arange(length)) % n
    R = x.T @ x / n
    blocks = x[index]
    change = blocks.mT @ blocks / length - R
    own = np.diagonal(change, axis1=1, axis2=2) / 2
    change -= R * (own[:, :, None] + own[:, None, :])
    steepness = 1.0 / (1.0 - R.clip(-LARGEST_CORRELATION, LARGEST_CORRELATION) ** 2)  # of Fisher z
    return np.asarray(change * (steepness * np.sqrt(length / (n * count)).astype(x.dtype)))


@dataclass(frozen=True)
class BlockRule:
    """Constants of the block-length rule.

    Attributes
    ----------
    subjects : int
        Largest number of participants used for the estimate of a fold.
    signals, products : int
        Numbers of ROI signals, and of products of two ROI signals, drawn from each scan.
    tau_ac : float
        An autocorrelation below this magnitude counts as zero.
    largest_lag : int
        Longest lag in frames.
    quantile : float
        Quantile taken over the series of a scan.
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
    series is correlated for at least that long, and a longer block is the cautious choice. The paper does not cover
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
    """Choose participants at random, in equal numbers from each site and class as far as possible.

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


class SessionIndex(NamedTuple):
    """The sessions of some scans, one after the other.

    Shapes: owner [m], offset, n_frames [m], number [m], n_sessions [n].
    """

    owner: np.ndarray  # position of the scan of each session
    offset: np.ndarray  # first frame of the session in its scan, and its number of frames
    n_frames: np.ndarray
    number: np.ndarray  # of the session in its scan, from 0
    n_sessions: np.ndarray  # sessions of each scan


def list_sessions(cohort: Cohort) -> list[np.ndarray] | None:
    """List the frames of the sessions of each scan, if connectomes are means over sessions.

    Returns None if no scan consists of several sessions.
    """
    sessions = read_session_frames(cohort.participants)
    if sessions is None:
        return None
    for i, lengths in enumerate(sessions):
        if len(lengths) > 1 and lengths.sum() != cohort.n_frames[i]:
            differ = f"its {len(lengths)} sessions have {lengths.sum()} frames, but the scan has {cohort.n_frames[i]}"
            remedy = "a scan with an averaged connectome cannot be cut; import it with --sessions join or all"
            raise BrioError(f"participant {cohort.ids[i]}: {differ}; {remedy}")
    return [lengths if len(lengths) > 1 else cohort.n_frames[i : i + 1] for i, lengths in enumerate(sessions)]


def index_sessions(sessions: Sequence[np.ndarray], n_frames: np.ndarray) -> SessionIndex:
    """Index the sessions of some scans.

    Shapes: n_frames [n].
    """
    count = np.array([len(lengths) for lengths in sessions])
    own = [lengths if len(lengths) > 1 else np.array([n]) for lengths, n in zip(sessions, n_frames, strict=True)]
    return SessionIndex(
        owner=np.repeat(np.arange(len(count)), count),
        offset=np.concatenate([np.cumsum(lengths) - lengths for lengths in own]),
        n_frames=np.concatenate(own),
        number=np.concatenate([np.arange(len(lengths)) for lengths in own]),
        n_sessions=count,
    )


def clip_session_blocks(block_length: np.ndarray, sessions: SessionIndex) -> np.ndarray:
    """Clip the block lengths of scans to half of each session. Shape [n] -> [m]."""
    return np.minimum(block_length[sessions.owner], np.maximum(sessions.n_frames // 2, 1))


def average_psi(parts: Sequence[Tensor]) -> Tensor:
    """Average the FC of the sessions of a scan.

    Shapes: parts [T_s, P]; returns [P, P].
    """
    connectomes = [psi(x, torch.tensor(len(x), device=x.device)) for x in parts]
    return torch.stack(connectomes).mean(0) if len(parts) > 1 else connectomes[0]


def reestimate_sessions(
    frames: Tensor,
    first: np.ndarray,
    sessions: SessionIndex,
    block_length: np.ndarray,
    keys: np.ndarray,
    n_reestimates: int,
    balanced: bool = False,
    kept: Mapping[int, np.ndarray] = NO_GAPS,
) -> Tensor:
    """Re-estimate each session of some scans, and average over the sessions of a scan.

    Shapes: frames [F, P], first, block_length, keys [n]; returns [n, K, P, P].
    """
    owner, blocks = sessions.owner, clip_session_blocks(block_length, sessions)
    own_keys = draws.key(keys[owner], "session of a mean connectome", sessions.number).view(np.int64)
    own_keys = np.where(sessions.n_sessions[owner] > 1, own_keys, keys[owner])  # a scan of one session keeps its draws
    if balanced:
        own_keys = 1 + sessions.number % (n_reestimates - 1)
    start, kept = first[owner] + sessions.offset, {row: kept[i] for row, i in enumerate(owner.tolist()) if i in kept}
    A = reestimate(frames, start, sessions.n_frames, blocks, own_keys, n_reestimates, balanced, kept)
    weight = torch.from_numpy(1.0 / sessions.n_sessions[owner]).to(A)
    mean = A.new_zeros(len(first), *A.shape[1:])
    return mean.index_add_(0, torch.from_numpy(owner).to(A.device), A * weight[:, None, None, None])
