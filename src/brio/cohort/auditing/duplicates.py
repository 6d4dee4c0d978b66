"""Duplicates: scans that are in a cohort twice, under two names, possibly trimmed or processed a little differently.

Comparing arrays for equality finds copies only. Two scans are one here when the rank correlation over time,
taken for each ROI and then the median over ROIs, exceeds a threshold: different people at rest stay near zero
(below 0.2 for any two of a thousand), a scan that was processed twice stays near one. Ranks, and a linear trend
taken out of them, keep a spike or a drift that all scans share from making everyone a duplicate.

All pairs are screened with a few matrix products: the ROIs of a scan are summed with 16 fixed sets of signs, and
the ranks of these 16 series over a window are compared for all scans at once. Only pairs that pass are compared on
all ROIs and all common frames. Windows are counted from the first frame and, separately, from the last, so a copy
that lost frames at one end is found; a copy that lost frames at both ends is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import rankdata

from ..cohort import Cohort
from .coverage import Coverage

__all__ = ["DuplicateSearch", "Match", "find_duplicates"]

DIRECTIONS = 16
"""Signed sums of the ROIs that stand for a scan in the screening."""
WINDOWS = (1, 2, 4)
"""Lengths of the screening window in units of the shortest scan allowed; a pair uses the longest both can fill."""
SCREEN = 0.3
"""Correlation of the signed sums from which a pair is compared in full; unrelated pairs scatter by 0.04 to 0.07."""
NEAREST = 50
"""Pairs below ``SCREEN`` that are compared in full all the same, to say how close unrelated scans come."""
MOST_COMPARED = 20_000
"""Pairs compared in full at most, the most similar first; bounds the time where scans share a stimulus."""
ROWS = 512
"""Scans a matrix product compares with all others at a time: bounds memory."""

Aligned = Literal["start", "end", "both"]


@dataclass(frozen=True)
class Match:
    """Two scans compared on all ROIs and all common frames; ``i`` and ``j`` are rows of the cohort.

    Attributes
    ----------
    correlation : float
        Median over the ROIs with signal in both of the rank correlation over time.
    aligned : {"start", "end", "both"}
        The end of the longer scan at which the shorter was laid on it; "both" where they are of one length.
    common_frames : int
        Valid frames that both scans have.
    identical : bool
        Same frames, and equal to 1e-4 after standardising each ROI.
    """

    i: int
    j: int
    correlation: float
    aligned: Aligned
    common_frames: int
    identical: bool


@dataclass(frozen=True)
class DuplicateSearch:
    """What the search found.

    Attributes
    ----------
    matches : tuple of Match
        Pairs over the threshold, most similar first.
    next_closest : Match or None
        The most similar pair under the threshold: how far unrelated scans are from being taken for one.
    not_compared : int
        Pairs that passed the screening but not the limit on full comparisons; 0 but for odd cohorts.
    """

    matches: tuple[Match, ...]
    next_closest: Match | None
    not_compared: int


def find_duplicates(
    cohort: Cohort, coverage: Coverage, threshold: float = 0.5, min_frames: int = 40
) -> DuplicateSearch:
    """Find pairs of scans that are one.

    Parameters
    ----------
    cohort : Cohort
    coverage : Coverage
        Of the same cohort, see :func:`brio.cohort.auditing.coverage.read_coverage`.
    threshold : float
        Median over ROIs of the correlation over time above which two scans are one.
    min_frames : int
        Scans with fewer valid frames take no part: by chance alone short series correlate.

    Examples
    --------
    >>> from .coverage import read_coverage
    >>> scans = [np.random.default_rng(i).normal(size=(60, 20)) for i in range(5)]
    >>> scans[3] = scans[0][4:] + 0.1 * scans[1][4:]
    >>> cohort = Cohort.from_scans(scans, site=["A"] * 5, label=[0, 1, 0, 1, 0])
    >>> [(m.i, m.j, m.aligned) for m in find_duplicates(cohort, read_coverage(cohort)).matches]
    [(0, 3, 'end')]
    """
    taking_part = np.flatnonzero((coverage.n_valid >= min_frames) & coverage.alive.any(axis=1))
    scores: list[np.ndarray] = []
    pairs: list[np.ndarray] = []
    windows: list[Aligned] = ["start", "end"]
    for aligned, sketches in zip(windows, _sketches(cohort, coverage, taking_part, min_frames), strict=True):
        lengths = cohort.n_frames[taking_part]
        for score, first, second in _screen(sketches, lengths, min_frames):
            scores.append(score)
            end = np.full(len(score), windows.index(aligned))
            pairs.append(np.stack([taking_part[first], taking_part[second], end], axis=1))
    score = np.concatenate(scores) if scores else np.empty(0)
    pair = np.concatenate(pairs) if pairs else np.empty((0, 3), dtype=np.int64)
    order = np.lexsort((pair[:, 2], pair[:, 1], pair[:, 0], -score))
    passed = int((score > SCREEN).sum())
    compared = min(passed, MOST_COMPARED)
    best: dict[tuple[int, int], Match] = {}
    for a, b, end in pair[np.concatenate([order[:compared], order[passed : passed + NEAREST]])].tolist():
        match = compare(cohort, coverage, min(a, b), max(a, b), windows[end], min_frames)
        if match is not None:
            known = best.setdefault((match.i, match.j), match)
            best[match.i, match.j] = match if match.correlation > known.correlation else known
    ranked = sorted(best.values(), key=lambda m: (-m.correlation, m.i, m.j))
    over = tuple(m for m in ranked if m.correlation > threshold)
    under = next((m for m in ranked if m.correlation <= threshold), None)
    return DuplicateSearch(over, under, passed - compared)


def compare(
    cohort: Cohort, coverage: Coverage, i: int, j: int, aligned: Aligned = "start", min_frames: int = 40
) -> Match | None:
    """Compare two scans on all ROIs with signal in both and all common frames; None where too little is common."""
    common = int(min(cohort.n_frames[i], cohort.n_frames[j]))
    part = slice(0, common) if aligned == "start" else slice(-common, None)
    valid = coverage.valid[i][part] & coverage.valid[j][part]
    rois = coverage.alive[i] & coverage.alive[j]
    if valid.sum() < min_frames or not rois.any():
        return None
    a, b = (cohort.scan(k)[part][valid][:, rois].astype(np.float64) for k in (i, j))
    x, y = (_without_trend(rankdata(s.T, axis=1)) for s in (a, b))
    size = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    r = (x * y).sum(axis=1)[size > 0] / size[size > 0]
    if len(r) == 0:
        return None
    same_shape = cohort.n_frames[i] == cohort.n_frames[j] and (coverage.alive[i] == coverage.alive[j]).all()
    same_frames = same_shape and (coverage.valid[i] == coverage.valid[j]).all()
    if cohort.n_frames[i] == cohort.n_frames[j]:
        aligned = "both"
    identical = bool(same_frames and np.abs(_standardised(a) - _standardised(b)).max() <= 1e-4)
    return Match(i, j, float(np.median(r)), aligned, int(valid.sum()), identical)


def _sketches(
    cohort: Cohort, coverage: Coverage, taking_part: np.ndarray, min_frames: int
) -> tuple[np.ndarray, np.ndarray]:
    """Signed sums of the ROIs over the first frames, and over the last frames backwards. Each [n, 16, W].

    Backwards, so that two scans aligned at their ends lie on each other from index 0 on. Frames that are
    missing or not valid are NaN.
    """
    longest = int(cohort.n_frames[taking_part].max(initial=0))
    width = min(WINDOWS[-1] * min_frames, longest)
    rng = np.random.default_rng(0)
    # as many plus as minus signs: a signal that all ROIs share, such as motion or breathing, falls out
    half = np.where(np.arange(cohort.n_rois) % 2, 1.0, -1.0).astype(np.float32)
    signs = np.stack([rng.permutation(half) for _ in range(DIRECTIONS)], axis=1)
    head = np.full((len(taking_part), DIRECTIONS, width), np.nan, dtype=np.float32)
    tail = head.copy()
    for row, i in enumerate(taking_part):
        valid = coverage.valid[i]
        frames = np.where(coverage.alive[i], cohort.scan(int(i)), 0.0)[valid].astype(np.float32, copy=False)
        sums = np.full((DIRECTIONS, len(valid)), np.nan, dtype=np.float32)
        sums[:, valid] = (_standardised(frames) @ signs).T
        head[row, :, : len(valid)] = sums[:, :width]
        tail[row, :, : len(valid)] = sums[:, ::-1][:, :width]
    return head, tail


def _screen(
    sketches: np.ndarray, lengths: np.ndarray, min_frames: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Score all pairs; yield those over ``SCREEN`` and the nearest of each scan below it, as (score, first, second)."""
    windows = np.array([min_frames * w for w in WINDOWS])
    level = np.searchsorted(windows, lengths, side="right") - 1
    order = np.argsort(-level, kind="stable")
    for k in range(len(windows) - 1, -1, -1):
        # scans of this level meet those of the same or a longer window, so that each pair is met once
        start, stop = int((level > k).sum()), int((level >= k).sum())
        if start == stop:
            continue
        unit = np.empty((stop, windows[k] * DIRECTIONS), dtype=np.float32)
        for a in range(0, stop, ROWS):
            block = order[a : min(a + ROWS, stop)]
            unit[a : a + ROWS] = _unit_ranks(sketches[block, :, : windows[k]]).reshape(len(block), -1)
        for a in range(start, stop, ROWS):
            b = min(a + ROWS, stop)
            score = unit[a:b] @ unit[:b].T
            score[:, a:b][np.triu_indices(b - a)] = -2.0
            row, column = np.nonzero(score > SCREEN)
            yield score[row, column], order[a + row], order[column]
            score[row, column] = -2.0
            column = score.argmax(axis=1)
            row = np.flatnonzero(score.max(axis=1) > -2.0)
            yield score[row, column[row]], order[a + row], order[column[row]]


def _unit_ranks(x: np.ndarray) -> np.ndarray:
    """Ranks over time (last axis) without trend; the squares of a scan sum to one. NaN and flat series give 0.

    Parameters
    ----------
    x : ndarray of float32, shape [n, Q, T]
        NaN in the same frames of all Q series of a scan.
    """
    valid = np.isfinite(x[:, :1])
    ranks = x.argsort(axis=2).argsort(axis=2).astype(np.float32)  # NaN is sorted last
    flat = np.fmax.reduce(x, axis=2) <= np.fmin.reduce(x, axis=2)
    ranks[flat] = 0.0
    ranks = _without_trend(ranks, valid)
    size = np.sqrt(np.einsum("nqt,nqt->nq", ranks, ranks))
    return ranks / (np.maximum(size, 1e-3) * np.float32(np.sqrt(x.shape[1])))[:, :, None]


def _without_trend(x: np.ndarray, valid: np.ndarray | None = None) -> np.ndarray:
    """Series (last axis) without mean and linear trend over their valid values, 0 elsewhere.

    The trend is taken out of ranks: in the values one spike at an end would bend it, and leave the same ramp in
    every scan that has the spike.

    Parameters
    ----------
    x : ndarray, shape [..., Q, T]
    valid : ndarray of bool, shape [..., 1, T], optional
    """
    w = np.ones((1, x.shape[-1]), dtype=x.dtype) if valid is None else valid.astype(x.dtype)
    count = np.maximum(w.sum(axis=-1, keepdims=True), 1)
    t = np.arange(x.shape[-1], dtype=x.dtype)
    t = (t - (w * t).sum(axis=-1, keepdims=True) / count) * w
    x = x * w
    x = x - x.sum(axis=-1, keepdims=True) / count * w
    slope = (x @ np.swapaxes(t, -1, -2)) / np.maximum((t * t).sum(axis=-1, keepdims=True), 1)
    return x - slope * t


def _standardised(x: np.ndarray) -> np.ndarray:
    """Series (columns) with mean 0 and standard deviation 1; flat ones are 0."""
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
