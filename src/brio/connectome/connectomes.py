"""Connectomes of a cohort, their re-estimates, and BOLD windows of one length.

Scans differ in repetition time and in length, and both reveal the site. For methods that read time series instead of
connectomes, every scan is therefore interpolated linearly to frames ``tr`` seconds apart. Then either its middle
``frames`` are used, or several windows of this length, spread evenly over the scan. A scan that is too short is
extended by its mirror image at both ends. Nothing is learned from data.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..cohort import Cohort
from ..cohort.scans import clean_scan, find_live_rois, find_valid_frames, holds_fc, require_frames
from ..device import chunk_budget, find_free_memory, resident_budget
from ..errors import BrioError
from ..formatting import format_count
from ..machine import require_memory
from ..settings import require
from . import resampling
from .fc import average_fc, map_parts, standardise, standardise_frames
from .resampling import BlockRule, ReestimateRequest
from .support import edge_cut, site_mean, site_median


@dataclass(frozen=True)
class BoldRule:
    """Length and repetition time of the BOLD windows that a method reads.

    Attributes
    ----------
    frames : int
        Number of frames in a window.
    tr : float or None
        Seconds between its frames; None keeps each scan's own frames.
    windows : int
        Number of windows in a scan. A single window lies in the middle. Several windows are spread evenly from the
        start to the end of the scan, and overlap if the scan is short.
    """

    frames: int = 100
    tr: float | None = 2.0
    windows: int = 1

    def __post_init__(self) -> None:
        require(self.frames >= 8, "bold_frames", self.frames, "at least 8")
        require(self.windows >= 1, "bold_windows", self.windows, "at least 1")
        require(self.tr is None or self.tr > 0, "bold_tr", self.tr, "above 0, or none to use the frames as they are")


def bold_positions(n_frames: int, tr: float | None, rule: BoldRule) -> Tensor:
    """Compute the positions of the windows' frames in a scan.

    Shapes: returns [windows * frames].
    """
    ratio = 1.0 if rule.tr is None or tr is None else rule.tr / tr
    length = int((n_frames - 1) / ratio + 1e-9) + 1
    room, last = length - rule.frames, rule.windows - 1
    starts = [room * k // last for k in range(rule.windows)] if last and room > 0 else [room // 2] * rule.windows
    at = (torch.tensor(starts)[:, None] + torch.arange(rule.frames)).flatten()
    if length > 1:
        at = at.remainder(2 * (length - 1))
        at = torch.minimum(at, 2 * (length - 1) - at)
    else:
        at = torch.zeros_like(at)
    return (at.double() * ratio).clamp_max(n_frames - 1)


def interpolate_frames(x: Tensor, position: Tensor) -> Tensor:
    """Interpolate a scan linearly at fractional positions.

    Shapes: x [..., T, P], position [n]; returns [..., n, P].
    """
    before = position.floor().long().clamp_max(x.shape[-2] - 1)
    after = (before + 1).clamp_max(x.shape[-2] - 1)
    share = (position - before).to(x.dtype).unsqueeze(-1)
    return x.index_select(-2, before) * (1 - share) + x.index_select(-2, after) * share


SCANS_AT_A_TIME = 256
"""Number of scans whose connectomes are gathered together if the whole cohort would take too much memory."""
LEAST_FRAMES = 4
"""Minimum number of valid frames in a scan."""
LEAST_ROIS = 2
"""Minimum number of ROIs in a connectome."""
SCANS_PER_BATCH = 64
"""Largest number of scans that are re-estimated together on a CPU."""


class Connectomes:
    """Full-scan FC graphs A^(0) of every scan, and their re-estimates.

    Nothing here is learned: each row depends on its own scan alone. If a scan was imported as an average over sessions,
    each of its connectomes is the mean over these sessions, see :mod:`brio.connectome.resampling`.

    Shapes: full [N, P, P], alive [N, P], n_frames [N], ids [N].
    """

    def __init__(self, cohort: Cohort, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.cohort = cohort
        self.device = torch.device(device)
        self.dtype = dtype
        self.ids = draws.addresses(cohort.ids)
        self._sessions = resampling.list_sessions(cohort)
        n, p = len(cohort), cohort.n_rois
        if p < LEAST_ROIS:
            raise BrioError(f"cohort '{cohort.name}' has {p} ROI; use an atlas with at least {LEAST_ROIS}")
        require_memory(
            n * p * p * dtype.itemsize,
            f"{n} connectomes of {p} ROIs need",
            "select fewer scans, or choose an atlas with fewer ROIs",
            free=find_free_memory(self.device),
        )
        self.full = torch.empty(n, p, p, dtype=dtype, device=self.device)
        alive = np.empty((n, p), dtype=bool)
        self.n_frames = np.empty(n, dtype=np.int64)
        size = int(cohort.n_frames.sum()) * p * self.full.element_size()
        self.without_frames = holds_fc(cohort.participants)
        resident = size <= resident_budget(self.device) and not self.without_frames
        stored = torch.empty(int(cohort.n_frames.sum()) if resident else 0, p, dtype=dtype, device=self.device)
        self._first = np.cumsum(cohort.n_frames) - cohort.n_frames  # first frame of each scan in the stored frames

        self._gaps: dict[int, np.ndarray] = {}  # of scans with missing frames, the positions of those kept

        def clean(i: int) -> np.ndarray:
            scan = cohort.scan(i)
            frames, alive[i] = clean_scan(scan)
            if len(frames) < len(scan):
                kept = np.flatnonzero(find_valid_frames(scan, find_live_rois(scan)))
                self._gaps[i] = kept - kept[:1]
            self.n_frames[i] = len(frames)
            if (len(frames) < LEAST_FRAMES and not self.without_frames) or not alive[i].any():
                problem = f"{format_count(len(frames), 'valid frame')}, but at least {LEAST_FRAMES} are needed"
                problem = problem if alive[i].any() else "no ROI has signal"
                problem = "all correlations are 0 or missing" if self.without_frames else problem
                raise BrioError(f"participant {cohort.ids[i]}: {problem}; exclude the scan")
            return frames

        if self.device.type == "cpu" and not self.without_frames:
            self._estimate_on_cores(clean, stored.numpy() if resident else None)
        else:
            for i in range(n):
                frames = clean(i)
                if self.without_frames:
                    self.full[i], self.n_frames[i] = torch.tensor(frames, dtype=dtype), 0
                    continue
                sessions = self._standardise_sessions(i, frames)
                self.full[i] = resampling.average_psi(sessions)
                if resident:
                    stored[self._first[i] :][: len(frames)] = torch.cat(sessions)
        self._resident = stored if resident else None
        self.alive = torch.from_numpy(alive).to(self.device)
        self._alive = alive
        self._fc_summaries: dict[Hashable, Tensor] = {}  # medians and means of sites, and cuts
        self._bold: dict[BoldRule, Tensor] = {}
        self._horizons: dict[tuple[BlockRule, int], dict[int, float]] = {}

    def _estimate_on_cores(self, clean: Callable[[int], np.ndarray], stored: np.ndarray | None) -> None:
        """Estimate the FC of all scans on a CPU, and store their standardised frames where there is room."""
        full = self.full.numpy()

        def estimate(part: slice) -> None:
            sessions, n_sessions = [], []
            for i in range(part.start, part.stop):
                frames = clean(i)
                x = np.empty(frames.shape, full.dtype) if stored is None else stored[self._first[i] :][: len(frames)]
                own = self._split_sessions(i, x)
                for session, out in zip(self._split_sessions(i, frames), own, strict=True):
                    standardise_frames(session, out)
                sessions += own
                n_sessions.append(len(own))
            full[part] = average_fc(sessions, n_sessions)

        map_parts(estimate, len(full))

    def __len__(self) -> int:
        return len(self.full)

    @property
    def n_rois(self) -> int:
        """Number of ROIs, P."""
        return int(self.full.shape[-1])

    def scan(self, i: int) -> Tensor:
        """Return the standardised valid frames of scan i. Shape [T_i, P]."""
        if self._resident is not None:
            return self._resident[self._first[i] :][: self.n_frames[i]]
        purpose, or_else = "re-estimating connectomes or reading BOLD", ", or use methods that need only connectomes"
        require_frames(self.cohort.participants, self.cohort.name, purpose, f"{or_else}, such as ridge")
        return torch.cat(self._standardise_sessions(i, clean_scan(self.cohort.scan(i))[0]))

    def site_median(self, members: np.ndarray) -> Tensor:
        """Return :func:`brio.connectome.support.site_median` of the scans at these positions, cached."""
        return self._summarise_site(site_median, members)

    def site_mean(self, members: np.ndarray) -> Tensor:
        """Return :func:`brio.connectome.support.site_mean` of the scans at these positions, cached."""
        return self._summarise_site(site_mean, members)

    def _summarise_site(self, summarise: Callable[[Tensor, Tensor], Tensor], members: np.ndarray) -> Tensor:
        key = summarise, members.tobytes()
        if key not in self._fc_summaries:
            index = torch.from_numpy(members).to(self.full.device)  # self.device may be the current GPU of a thread
            self._fc_summaries[key] = summarise(self.full[index], self.alive[index])
        return self._fc_summaries[key]

    def estimate_block_length(
        self, source: np.ndarray, site: np.ndarray, label: np.ndarray, rule: BlockRule, seed: int
    ) -> float:
        """Estimate the block length l_b of a fold from its source scans, unrounded.

        Shapes: source [n], site, label [n].
        """
        subset = resampling.choose_balanced_subset(self.ids[source], site, label, rule.subjects, seed)
        horizons = self._horizons.setdefault((rule, seed), {})  # all folds of a seed share them
        for i in source[subset].tolist():
            if i not in horizons:
                horizons[i] = resampling.estimate_horizon(self.scan(i), self._alive[i], int(self.ids[i]), rule, seed)
        return resampling.pool_horizons(np.array([horizons[i] for i in source[subset].tolist()]), site[subset])

    def iterate_reestimates(
        self, request: ReestimateRequest, max_bytes: int | None = None
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield re-estimates of scans chunk by chunk, Eq. (2); on a GPU, scans of similar length come together.

        Shapes: returns positions [n], A [n, K, P, P].
        """
        lengths = self.n_frames[request.scans]
        block_length, keys = request.block_length.astype(np.int64), self._draw_keys(request)
        sizes = lengths
        if request.balanced:
            sizes = resampling.find_design_blocks(block_length, lengths, request.K) * (request.K // 2)
        most_sessions = 1 if self._sessions is None else max(len(self._sessions[i]) for i in request.scans)
        for chunk in self._chunks(sizes, request.K * most_sessions, max_bytes):
            parts = []
            for batch in self._batches(chunk, sizes):
                frames, first = self._frames(request.scans[batch])
                gaps = self._find_gaps(request.scans[batch])
                how = block_length[batch], keys[batch], request.K, request.balanced, gaps
                if self._sessions is None:
                    parts.append(resampling.reestimate(frames, first, lengths[batch], *how))
                else:
                    own = resampling.index_sessions([self._sessions[i] for i in request.scans[batch]], lengths[batch])
                    parts.append(resampling.reestimate_sessions(frames, first, own, *how))
            yield chunk, torch.cat(parts) if len(parts) > 1 else parts[0]

    def _find_gaps(self, scans: np.ndarray) -> dict[int, np.ndarray]:
        """Positions of the kept frames of those scans that have gaps, by their place among these scans."""
        return {row: self._gaps[i] for row, i in enumerate(scans.tolist()) if i in self._gaps}

    def find_design_scales(self, request: ReestimateRequest) -> np.ndarray:
        """Return :func:`~brio.connectome.resampling.find_design_scale` of each scan, averaged over its sessions."""
        lengths = self.n_frames[request.scans]
        if self._sessions is None:
            return resampling.find_design_scale(request.block_length, lengths, request.K)
        own = resampling.index_sessions([self._sessions[i] for i in request.scans], lengths)
        blocks = resampling.clip_session_blocks(request.block_length, own)
        scale = resampling.find_design_scale(blocks, own.n_frames, request.K)
        return np.bincount(own.owner, scale) / own.n_sessions

    def find_block_changes(self, i: int, count: int, block_length: int | None = None) -> np.ndarray:
        """Return :func:`~brio.connectome.resampling.find_block_changes` of each session over which scan i is averaged.

        Shapes: returns [count * sessions, P, P].
        """
        sessions = self._split_sessions(i, self.scan(i).cpu().numpy())
        changes = [resampling.find_block_changes(x, count, block_length) for x in sessions]
        return np.concatenate(changes) / len(sessions)

    def _draw_keys(self, request: ReestimateRequest) -> np.ndarray:
        """Key of the draws of each scan, int64; of a balanced design its stride."""
        if request.balanced:
            return np.ones(len(request.scans), dtype=np.int64)
        return draws.key(request.seed, "re-estimates", request.refresh, self.ids[request.scans]).view(np.int64)

    def edge_cut(self, share: float) -> Tensor:
        """Return :func:`brio.connectome.support.edge_cut` of every full-scan FC, cached. Shape [N]."""
        if share not in self._fc_summaries:
            self._fc_summaries[share] = edge_cut(self.full, share)
        return self._fc_summaries[share]

    def bold(self, rule: BoldRule, tr: np.ndarray | None) -> Tensor:
        """Return the z-scored BOLD windows of every scan, cached.

        Shapes: tr [N]; returns [N, windows * frames, P].
        """
        if rule not in self._bold:
            self._bold[rule] = torch.stack([self._bold_window(i, self.scan(i), rule, tr) for i in range(len(self))])
        return self._bold[rule]

    def resampled_bold(self, request: ReestimateRequest, rule: BoldRule, tr: np.ndarray | None) -> Tensor:
        """Return the BOLD windows of the same resamples whose FC :meth:`iterate_reestimates` yields.

        Shapes: returns [n * K, windows * frames, P].
        """
        out = []
        for i, block, key in zip(request.scans, request.block_length, self._draw_keys(request), strict=True):
            x = self.scan(int(i))
            length, own, start = (np.array([number], dtype=np.int64) for number in (len(x), block, key))
            kept = self._find_gaps(np.array([i]))
            index, _ = resampling.index_resamples(length, own, start, request.K, request.balanced, self.device, kept)
            out.append(self._bold_window(int(i), x[index[0]], rule, tr))
        return torch.cat(out)

    def _bold_window(self, i: int, x: Tensor, rule: BoldRule, tr: np.ndarray | None) -> Tensor:
        position = bold_positions(x.shape[-2], None if tr is None else float(tr[i]), rule)
        return interpolate_frames(x, position.to(self.device))

    def _split_sessions(self, i: int, frames: np.ndarray) -> list[np.ndarray]:
        """Frames of each session over which scan i is averaged; of one, all its valid frames."""
        if self._sessions is None or len(self._sessions[i]) == 1:
            return [frames]
        return np.split(frames, np.cumsum(self._sessions[i])[:-1])

    def _standardise_sessions(self, i: int, frames: np.ndarray) -> list[Tensor]:
        """Z-scores of each ROI within each session of scan i."""
        return [self._standardise(part) for part in self._split_sessions(i, frames)]

    def _standardise(self, frames: np.ndarray) -> Tensor:
        if self.device.type == "cpu":
            z = torch.empty(frames.shape, dtype=self.dtype)
            standardise_frames(frames, z.numpy())
            return z
        return standardise(torch.from_numpy(frames.astype(np.float64)).to(self.device)).to(self.dtype)

    def _frames(self, scans: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Standardised frames of some scans, one after the other, and the first frame of each."""
        if self._resident is not None:
            return self._resident, self._first[scans]
        lengths = self.n_frames[scans]
        return torch.cat([self.scan(int(i)) for i in scans]), np.cumsum(lengths) - lengths

    def _chunks(self, lengths: np.ndarray, copies: int, max_bytes: int | None) -> Iterator[np.ndarray]:
        """Split scans into chunks of which ``copies`` fit into memory; on a GPU, in the order of their lengths."""
        on_gpu = self.device.type == "cuda"
        order = np.argsort(lengths, kind="stable") if on_gpu else np.arange(len(lengths))
        itemsize = torch.empty(0, dtype=self.dtype).element_size()
        per_scan = copies * self.n_rois * (on_gpu * int(lengths.max()) + self.n_rois) * itemsize
        budget = chunk_budget(self.device)
        size = max(1, (budget if max_bytes is None else min(budget, max_bytes)) // per_scan)
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def _batches(self, chunk: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Split a chunk into scans that are re-estimated together.

        On a GPU they are padded, and the longest has at most a quarter more frames than the shortest. On a CPU the
        re-estimates of a scan do not depend on other scans, bit for bit; the batches bound the memory of indices.
        """
        if self.device.type == "cpu":
            yield from np.array_split(chunk, -(-len(chunk) // SCANS_PER_BATCH))
            return
        start = 0
        for stop in range(1, len(chunk) + 1):
            if stop == len(chunk) or lengths[chunk[stop]] > 1.25 * lengths[chunk[start]]:
                yield chunk[start:stop]
                start = stop
