"""Find scans that are in a cohort twice, under two participants, possibly trimmed or processed differently.

Comparing arrays for equality would find exact copies only. Here two scans are duplicates if their rank correlation over
time, computed for each ROI and then the median over ROIs, exceeds a threshold. Resting-state scans of different people
stay near zero (below 0.2 for any two of a thousand); a scan that was processed twice stays near one. Ranks, with a
linear trend removed, keep a spike or a drift that all scans share from making every pair a duplicate.

All pairs are screened with a few matrix products: each scan is reduced to 16 sums of its ROIs with fixed random signs,
and the ranks of these 16 series over a window are compared for all scans at once. Only pairs that pass are compared on
all ROIs and all common frames. Windows start at the first frame and, separately, at the last, so a copy that lost
frames at one end is found. A copy that lost frames at both ends is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from ..cohort import Cohort
from .coverage import Coverage

DIRECTIONS = 16
"""Signed sums of the ROIs that represent a scan in the screening."""
WINDOWS = (1, 2, 4)
"""Lengths of the screening window, in units of ``min_frames``; a pair uses the longest that both scans fill."""
SCREEN = 0.3
"""Pairs whose signed sums correlate more than this are compared in full; unrelated pairs have an SD of 0.04 to 0.07."""
NEAREST = 50
"""Pairs below ``SCREEN`` that are compared in full as well, to report how similar unrelated scans are."""
MOST_COMPARED = 20_000
"""Most pairs compared in full, the most similar first; bounds the time where scans share a stimulus."""
ROWS = 512
"""Scans compared with all others in one matrix product; bounds memory."""
IGNORED = -2.0
"""Score of pairs that are not considered: below any correlation."""
_LARGEST_SQUARED = 1e15  # sums of squares of larger values overflow in single precision

Aligned = Literal["start", "end", "both"]


@dataclass(frozen=True)
class Match:
    """Two scans compared on all ROIs and all common frames."""

    i: int  # positions in the cohort
    j: int
    correlation: float  # rank correlation over time, median over the ROIs with signal in both
    aligned: Aligned  # end of the longer scan at which the shorter one was aligned; "both" for scans of one length
    common_frames: int  # frames that are valid in both scans
    identical: bool  # same valid frames, and equal to within 1e-4 after standardising each ROI


@dataclass(frozen=True)
class DuplicateSearch:
    """Result of the search for duplicates."""

    matches: tuple[Match, ...]  # pairs above the threshold, most similar first
    next_closest: Match | None
    not_compared: int  # pairs that passed the screening but exceeded the limit on full comparisons; usually 0


def find_identical_connectomes(cohort: Cohort) -> DuplicateSearch:
    """Find pairs of participants with the same connectome, in a cohort of connectomes without frames."""
    members: dict[bytes, list[int]] = {}
    for i in range(len(cohort)):
        members.setdefault(hashlib.sha256(np.ascontiguousarray(cohort.scan(i)).data).digest(), []).append(i)
    pairs = [pair for group in members.values() for pair in combinations(group, 2)]
    return DuplicateSearch(tuple(Match(i, j, 1.0, "both", 0, True) for i, j in sorted(pairs)), None, 0)


def find_duplicates(
    cohort: Cohort, coverage: Coverage, threshold: float = 0.5, min_frames: int = 40
) -> DuplicateSearch:
    """Find pairs of duplicate scans."""
    eligible = np.flatnonzero((coverage.n_valid >= min_frames) & coverage.alive.any(axis=1))
    scores: list[np.ndarray] = []
    pairs: list[np.ndarray] = []
    alignments: list[Aligned] = ["start", "end"]
    for aligned, sketches in zip(alignments, _sketch_scans(cohort, coverage, eligible, min_frames), strict=True):
        lengths = cohort.n_frames[eligible]
        for score, first, second in _screen_pairs(sketches, lengths, min_frames):
            scores.append(score)
            end = np.full(len(score), alignments.index(aligned))
            pairs.append(np.stack([eligible[first], eligible[second], end], axis=1))
    score = np.concatenate(scores) if scores else np.empty(0)
    pair = np.concatenate(pairs) if pairs else np.empty((0, 3), dtype=np.int64)
    order = np.lexsort((pair[:, 2], pair[:, 1], pair[:, 0], -score))
    passed = int((score > SCREEN).sum())
    compared = min(passed, MOST_COMPARED)
    best: dict[tuple[int, int], Match] = {}
    done: set[tuple[int, int]] = set()
    for a, b, end in pair[np.concatenate([order[:compared], order[passed : passed + NEAREST]])].tolist():
        i, j = min(a, b), max(a, b)
        if (i, j) in done and cohort.n_frames[i] == cohort.n_frames[j]:  # both alignments are the same frames
            continue
        done.add((i, j))
        match = compare_scans(cohort, coverage, i, j, alignments[end], min_frames)
        if match is not None:
            previous = best.setdefault((match.i, match.j), match)
            best[match.i, match.j] = match if match.correlation > previous.correlation else previous
    ranked = sorted(best.values(), key=lambda m: (-m.correlation, m.i, m.j))
    above = tuple(m for m in ranked if m.correlation > threshold)
    below = next((m for m in ranked if m.correlation <= threshold), None)
    return DuplicateSearch(above, below, passed - compared)


def compare_scans(
    cohort: Cohort, coverage: Coverage, i: int, j: int, aligned: Aligned = "start", min_frames: int = 40
) -> Match | None:
    """Compare two scans on all ROIs with signal in both and all common frames.

    Returns None if the scans have too few valid frames, or no ROI with signal, in common.
    """
    common = int(min(cohort.n_frames[i], cohort.n_frames[j]))
    part = slice(0, common) if aligned == "start" else slice(-common, None)
    valid = coverage.valid[i][part] & coverage.valid[j][part]
    rois = coverage.alive[i] & coverage.alive[j]
    if valid.sum() < min_frames or not rois.any():
        return None
    a, b = (cohort.scan(k)[part][valid][:, rois].astype(np.float64) for k in (i, j))
    correlation = correlate_scans(a, b)
    if correlation is None:
        return None
    same_shape = cohort.n_frames[i] == cohort.n_frames[j] and (coverage.alive[i] == coverage.alive[j]).all()
    same_frames = same_shape and (coverage.valid[i] == coverage.valid[j]).all()
    if cohort.n_frames[i] == cohort.n_frames[j]:
        aligned = "both"
    identical = bool(same_frames and np.abs(_standardise(a) - _standardise(b)).max() <= 1e-4)
    return Match(i, j, correlation, aligned, int(valid.sum()), identical)


def correlate_scans(a: np.ndarray, b: np.ndarray) -> float | None:
    """Compute the rank correlation over time of two scans, without their linear trend; median over ROIs.

    Shapes: a, b [T, P].

    Returns None if every ROI is flat in one of them.
    """
    from scipy.stats import rankdata

    x, y = (_remove_trend(rankdata(scan.T, axis=1)) for scan in (a, b))
    size = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    r = (x * y).sum(axis=1)[size > 0] / size[size > 0]
    return float(np.median(r)) if len(r) else None


def _sketch_scans(
    cohort: Cohort, coverage: Coverage, eligible: np.ndarray, min_frames: int
) -> tuple[np.ndarray, np.ndarray]:
    """Compute signed sums of the ROIs over the first frames, and over the last frames backwards. Each [n, 16, W].

    Backwards, so that two scans aligned at their ends match from index 0 on. Missing or invalid frames are NaN.
    """
    longest = int(cohort.n_frames[eligible].max(initial=0))
    width = min(WINDOWS[-1] * min_frames, longest)
    rng = np.random.default_rng(0)
    # as many plus as minus signs: a signal that all ROIs share, such as motion or breathing, cancels
    half = np.where(np.arange(cohort.n_rois) % 2, 1.0, -1.0).astype(np.float32)
    signs = np.stack([rng.permutation(half) for _ in range(DIRECTIONS)], axis=1)
    head = np.full((len(eligible), DIRECTIONS, width), np.nan, dtype=np.float32)
    tail = head.copy()
    for row, i in enumerate(eligible):
        valid = coverage.valid[i]
        frames = np.where(coverage.alive[i], cohort.scan(int(i)), 0.0)[valid].astype(np.float32, copy=False)
        sums = np.full((DIRECTIONS, len(valid)), np.nan, dtype=np.float32)
        sums[:, valid] = (_standardise(frames) @ signs).T
        head[row, :, : len(valid)] = sums[:, :width]
        tail[row, :, : len(valid)] = sums[:, ::-1][:, :width]
    return head, tail


def _screen_pairs(
    sketches: np.ndarray, lengths: np.ndarray, min_frames: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Score all pairs; yield (score, first, second) of those above ``SCREEN`` and of the best of each scan below it."""
    windows = np.array([min_frames * w for w in WINDOWS])
    level = np.searchsorted(windows, lengths, side="right") - 1
    order = np.argsort(-level, kind="stable")
    for k in range(len(windows) - 1, -1, -1):
        # scans of this level are compared with those of the same or a longer window: each pair once
        start, stop = int((level > k).sum()), int((level >= k).sum())
        if start == stop:
            continue
        unit = np.empty((stop, windows[k] * DIRECTIONS), dtype=np.float32)
        for a in range(0, stop, ROWS):
            block = order[a : min(a + ROWS, stop)]
            unit[a : a + ROWS] = _compute_unit_ranks(sketches[block, :, : windows[k]]).reshape(len(block), -1)
        for a in range(start, stop, ROWS):
            b = min(a + ROWS, stop)
            score = unit[a:b] @ unit[:b].T
            score[:, a:b][np.triu_indices(b - a)] = IGNORED  # a scan with itself, and pairs scored in the other half
            row, column = np.nonzero(score > SCREEN)
            yield score[row, column], order[a + row], order[column]
            score[row, column] = IGNORED
            column = score.argmax(axis=1)
            row = np.flatnonzero(score.max(axis=1) > IGNORED)
            yield score[row, column[row]], order[a + row], order[column[row]]


def _compute_unit_ranks(x: np.ndarray) -> np.ndarray:
    """Rank over time (last axis) and remove the trend; the squares of a scan sum to one. NaN and flat series give 0.

    Shapes: x [n, Q, T].
    """
    valid = np.isfinite(x[:, :1])
    ranks = x.argsort(axis=2).argsort(axis=2).astype(np.float32)  # NaN is sorted last
    flat = np.fmax.reduce(x, axis=2) <= np.fmin.reduce(x, axis=2)
    ranks[flat] = 0.0
    ranks = _remove_trend(ranks, valid)
    size = np.sqrt(np.einsum("nqt,nqt->nq", ranks, ranks))
    return ranks / (np.maximum(size, 1e-3) * np.float32(np.sqrt(x.shape[1])))[:, :, None]


def _remove_trend(x: np.ndarray, valid: np.ndarray | None = None) -> np.ndarray:
    """Remove mean and linear trend over the valid values of each series (last axis); invalid values become 0.

    This is applied to ranks: in raw values a spike at one end would tilt the trend and leave the same ramp in every
    scan that has the spike.

    Shapes: x [..., Q, T], valid [..., 1, T].
    """
    w = np.ones((1, x.shape[-1]), dtype=x.dtype) if valid is None else valid.astype(x.dtype)
    count = np.maximum(w.sum(axis=-1, keepdims=True), 1)
    t = np.arange(x.shape[-1], dtype=x.dtype)
    t = (t - (w * t).sum(axis=-1, keepdims=True) / count) * w
    x = x * w
    x = x - x.sum(axis=-1, keepdims=True) / count * w
    slope = (x @ np.swapaxes(t, -1, -2)) / np.maximum((t * t).sum(axis=-1, keepdims=True), 1)
    return x - slope * t


def _standardise(x: np.ndarray) -> np.ndarray:
    """Scale series (columns) to mean 0 and standard deviation 1; flat ones become 0."""
    if np.abs(x).max(initial=0.0) > _LARGEST_SQUARED:
        x = x.astype(np.float64)
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
