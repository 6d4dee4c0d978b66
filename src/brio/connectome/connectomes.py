"""The connectomes of a cohort on a device: full-scan FC in memory, re-estimates on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..cohort import Cohort
from ..cohort.signal import clean_scan
from ..device import chunk_budget, resident_budget
from ..errors import BrioError
from .blocks import BlockRule, balanced_subset, fold_block_length, subject_horizon
from .bold import BoldRule, bold_positions, bold_window
from .fc import psi, standardise
from .resampling import Resamples, block_indices, block_starts, reestimate
from .support import edge_cut, site_mean, site_median

__all__ = ["Connectomes"]


class Connectomes:
    """Full-scan FC graphs A^(0) of every scan, and what is needed to re-estimate them.

    Nothing here is learned: each row depends on its own scan alone.

    Parameters
    ----------
    cohort : Cohort
    device : torch.device or str
    dtype : torch.dtype

    Attributes
    ----------
    full : Tensor, shape [N, P, P]
        Full-scan FC, zero rows for ROIs without signal.
    alive : Tensor of bool, shape [N, P]
    n_frames : ndarray of int64, shape [N]
        Valid frames of each scan.
    """

    def __init__(self, cohort: Cohort, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.cohort = cohort
        self.device = torch.device(device)
        self.dtype = dtype
        self.ids = draws.addresses(cohort.ids)
        n, p = len(cohort), cohort.n_rois
        self.full = torch.empty(n, p, p, dtype=dtype, device=self.device)
        alive = np.empty((n, p), dtype=bool)
        self.n_frames = np.empty(n, dtype=np.int64)
        size = int(cohort.n_frames.sum()) * p * self.full.element_size()
        resident = size <= resident_budget(self.device)
        kept = torch.empty(int(cohort.n_frames.sum()) if resident else 0, p, dtype=dtype, device=self.device)
        self._first = np.zeros(n, dtype=np.int64)  # where a scan begins in what is kept
        end = 0
        for i in range(n):
            frames, alive[i] = clean_scan(cohort.scan(i))
            self.n_frames[i] = len(frames)
            if len(frames) < 4 or not alive[i].any():
                raise BrioError(
                    f"participant {cohort.ids[i]}: {len(frames)} usable frames and {int(alive[i].sum())} ROIs "
                    "with signal; exclude the scan ('brio audit' lists such scans)"
                )
            x = self._standardised(frames)
            self.full[i] = psi(x, torch.tensor(len(x), device=self.device))
            self._first[i], end = end, end + len(x)
            if resident:
                kept[self._first[i] : end] = x
        self._resident = kept[:end] if resident else None
        self.alive = torch.from_numpy(alive).to(self.device)
        self._alive = alive
        self._medians: dict[bytes, Tensor] = {}
        self._means: dict[bytes, Tensor] = {}
        self._bold: dict[BoldRule, Tensor] = {}
        self._cuts: dict[float, Tensor] = {}
        self._horizons: dict[tuple[BlockRule, int], dict[int, float]] = {}

    def __len__(self) -> int:
        return len(self.full)

    @property
    def n_rois(self) -> int:
        return int(self.full.shape[-1])

    def scan(self, i: int) -> Tensor:
        """Standardised valid frames of scan i. Shape [T_i, P]."""
        if self._resident is not None:
            return self._resident[self._first[i] :][: self.n_frames[i]]
        return self._standardised(clean_scan(self.cohort.scan(i))[0])

    def site_median(self, members: np.ndarray) -> Tensor:
        """Cached :func:`brio.connectome.support.site_median` of the given scans."""
        return self._cached(self._medians, members, site_median)

    def site_mean(self, members: np.ndarray) -> Tensor:
        """Cached :func:`brio.connectome.support.site_mean` of the given scans."""
        return self._cached(self._means, members, site_mean)

    def block_length(
        self, source: np.ndarray, site: np.ndarray, label: np.ndarray, rule: BlockRule, seed: int
    ) -> float:
        """Fold-level block length l_b from the given source scans (positions), unrounded."""
        subset = balanced_subset(self.ids[source], site, label, rule.subjects, seed)
        known = self._horizons.setdefault((rule, seed), {})  # all folds of a seed share them
        for i in source[subset].tolist():
            if i not in known:
                known[i] = subject_horizon(self.scan(i), self._alive[i], int(self.ids[i]), rule, seed)
        return fold_block_length(np.array([known[i] for i in source[subset].tolist()]), site[subset])

    def reestimates(self, asked: Resamples, room: int | None = None) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield re-estimates of the given scans chunk by chunk, Eq. (2); scans of like length together.

        A chunk takes ``room`` bytes at most, resampled frames included, where that is less than what the device has
        for it.

        Yields
        ------
        positions : ndarray
            Into ``asked.scans``.
        A : Tensor, shape [n, K, P, P]
        """
        lengths, block_length, keys = self.n_frames[asked.scans], asked.block_length.astype(np.int64), self._keys(asked)
        for chunk in self._chunks(lengths, asked.K, room):
            found = []
            for some in self._alike(chunk, lengths):
                frames, first = self._frames(asked.scans[some])
                found.append(reestimate(frames, first, lengths[some], block_length[some], keys[some], asked.K))
            yield chunk, torch.cat(found) if len(found) > 1 else found[0]

    def _keys(self, asked: Resamples) -> np.ndarray:
        """Address of the draws of each scan, int64."""
        return draws.key(asked.seed, "re-estimates", asked.refresh, self.ids[asked.scans]).view(np.int64)

    def edge_cut(self, share: float) -> Tensor:
        """Cached :func:`brio.connectome.support.edge_cut` of every full-scan FC. Shape [N]."""
        if share not in self._cuts:
            self._cuts[share] = edge_cut(self.full, share)
        return self._cuts[share]

    def bold(self, rule: BoldRule, tr: np.ndarray | None) -> Tensor:
        """z-scored BOLD of every scan under a rule for its length and clock, cached. Shape [N, frames, P]."""
        if rule not in self._bold:
            self._bold[rule] = torch.stack([self._window(i, self.scan(i), rule, tr) for i in range(len(self))])
        return self._bold[rule]

    def resampled_bold(self, asked: Resamples, rule: BoldRule, tr: np.ndarray | None) -> Tensor:
        """BOLD windows of the resamples whose FC :meth:`reestimates` gives. Shape [n * K, frames, P]."""
        out = []
        for i, block, key in zip(asked.scans, asked.block_length, self._keys(asked), strict=True):
            x = self.scan(int(i))
            size = torch.tensor([len(x)], device=self.device)
            length = torch.tensor([int(block)], device=self.device)
            starts = block_starts(
                torch.tensor([key], device=self.device), size, asked.K, -(-len(x) // max(1, int(block)))
            )
            index = block_indices(starts, length, size, len(x))[0]  # [K, T]
            out.append(self._window(int(i), x[index], rule, tr))
        return torch.cat(out)

    def _window(self, i: int, x: Tensor, rule: BoldRule, tr: np.ndarray | None) -> Tensor:
        position = bold_positions(x.shape[-2], None if tr is None else float(tr[i]), rule)
        return bold_window(x, position.to(self.device))

    def _standardised(self, frames: np.ndarray) -> Tensor:
        x = torch.from_numpy(frames.astype(np.float64)).to(self.device)
        return standardise(x, torch.ones(len(x), dtype=torch.bool, device=self.device)).to(self.dtype)

    def _frames(self, scans: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Standardised frames that hold the given scans, and where each of them begins."""
        if self._resident is not None:
            return self._resident, self._first[scans]
        lengths = self.n_frames[scans]
        return torch.cat([self.scan(int(i)) for i in scans]), np.cumsum(lengths) - lengths

    def _chunks(self, lengths: np.ndarray, copies: int, room: int | None) -> Iterator[np.ndarray]:
        """Split scans so that ``copies`` of each chunk stay within a share of memory, and within ``room``.

        On a GPU scans of like length go together.
        """
        on_gpu = self.device.type == "cuda"
        order = np.argsort(lengths, kind="stable") if on_gpu else np.arange(len(lengths))
        itemsize = torch.empty(0, dtype=self.dtype).element_size()
        per_scan = copies * self.n_rois * (on_gpu * int(lengths.max()) + self.n_rois) * itemsize
        most = chunk_budget(self.device)
        size = max(1, (most if room is None else min(most, room)) // per_scan)
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def _alike(self, chunk: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Split a chunk into scans that are re-estimated in one go, the shorter ones padded.

        On a GPU the longest has at most a quarter more frames than the shortest. On a CPU, where going together saves
        nothing, each goes alone; what it gives there does not depend on other scans, bit for bit.
        """
        start = 0
        for stop in range(1, len(chunk) + 1):
            ends = self.device.type == "cpu" or stop == len(chunk)
            if ends or lengths[chunk[stop]] > 1.25 * lengths[chunk[start]]:
                yield chunk[start:stop]
                start = stop

    def _cached(
        self, cache: dict[bytes, Tensor], members: np.ndarray, function: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        name = members.tobytes()
        if name not in cache:
            where = torch.from_numpy(members).to(self.device)
            cache[name] = function(self.full[where], self.alive[where])
        return cache[name]
