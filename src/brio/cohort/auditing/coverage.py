"""Coverage: which ROIs and frames of every scan carry signal, and whether missing ROIs give the site away."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..cohort import Cohort
from ..signal import live_rois, valid_frames

__all__ = ["Coverage", "PatternTest", "pattern_test", "read_coverage"]

PERMUTATIONS = 999
MOST_PATTERNS = 1000
"""Patterns that enter the permutation test; a larger cohort is represented by a fixed draw of this size."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """Where the scans of a cohort have signal.

    Attributes
    ----------
    alive : ndarray of bool, shape [N, P]
        ROIs with signal, in the sense of :func:`brio.cohort.signal.usable`.
    valid : tuple of N ndarrays of bool, shape [T_i]
        Frames in which every ROI with signal is finite.
    finite : ndarray of bool, shape [N]
        Whether the scan holds any finite value at all.
    """

    alive: np.ndarray
    valid: tuple[np.ndarray, ...]
    finite: np.ndarray

    @cached_property
    def n_valid(self) -> np.ndarray:
        return np.array([mask.sum() for mask in self.valid], dtype=np.int64)

    @cached_property
    def n_invalid(self) -> np.ndarray:
        return np.array([(~mask).sum() for mask in self.valid], dtype=np.int64)

    @cached_property
    def n_dead(self) -> np.ndarray:
        return (~self.alive).sum(axis=1)

    @cached_property
    def dead_fraction(self) -> np.ndarray:
        return self.n_dead / self.alive.shape[1]


def read_coverage(cohort: Cohort) -> Coverage:
    """Read every scan once, one in memory at a time, and note where it has signal.

    Examples
    --------
    >>> scans = [np.random.default_rng(i).normal(size=(50, 4)) for i in range(2)]
    >>> scans[1][:, 2] = 0.0
    >>> read_coverage(Cohort.from_scans(scans, site=["A", "B"], label=[0, 1])).n_dead
    array([0, 1])
    """
    alive, valid, finite = [], [], []
    for i in range(len(cohort)):
        scan = cohort.scan(i)
        values = np.isfinite(scan)
        has_signal = live_rois(scan)
        frames = np.ones(len(scan), dtype=bool)
        if not values.all():
            # without a single ROI with signal "every such ROI is finite" would hold for an empty frame
            frames = valid_frames(scan, has_signal) if has_signal.any() else values.any(axis=1)
            has_signal = has_signal & live_rois(scan[frames])
        alive.append(has_signal)
        valid.append(frames)
        finite.append(bool(values.any()))
    return Coverage(np.array(alive), tuple(valid), np.array(finite))


@dataclass(frozen=True)
class PatternTest:
    """Does the set of ROIs without signal tell the site? Leave-one-out, nearest neighbour.

    Attributes
    ----------
    n_scans : int
        Scans with at least one ROI without signal that took part.
    accuracy : float
        Share of scans whose nearest pattern (largest Jaccard overlap of the missing ROIs) comes from the same site.
    by_chance : float
        The same with the sites permuted, on average.
    largest_site : float
        Share of the site with most of these scans: what naming that site every time would reach.
    p : float
        Share of permutations of the sites that do at least as well (999 permutations, seed 0).
    """

    n_scans: int
    accuracy: float
    by_chance: float
    largest_site: float
    p: float


def pattern_test(alive: np.ndarray, sites: np.ndarray, ids: np.ndarray) -> PatternTest | None:
    """Predict the site from the pattern of ROIs without signal, among scans that have any.

    Overlap and not the number of ROIs that differ: most patterns are one to three ROIs, and by that number any two
    of these are close. Scans whose nearest neighbours tie count with the share of neighbours from their own site, so
    that the order of the participants does not matter. None where fewer than three such scans or one site are there.

    Examples
    --------
    >>> alive = np.ones((40, 6), dtype=bool)
    >>> alive[:20, 0] = alive[20:, 5] = False
    >>> result = pattern_test(alive, np.repeat(["A", "B"], 20), np.arange(40).astype(str))
    >>> result.accuracy, result.largest_site, result.p
    (1.0, 0.5, 0.001)
    """
    rng = np.random.default_rng(0)
    chosen = np.flatnonzero(~alive.all(axis=1))
    chosen = chosen[np.argsort(ids[chosen])]
    if len(chosen) > MOST_PATTERNS:
        chosen = chosen[np.sort(rng.choice(len(chosen), MOST_PATTERNS, replace=False))]
    names, site = np.unique(sites[chosen], return_inverse=True)
    if len(chosen) < 3 or len(names) < 2:
        return None
    dead = (~alive[chosen]).astype(np.float32)
    both = (dead @ dead.T).astype(np.float64)  # whole numbers, so that equal overlaps are equal bit by bit
    size = np.diag(both)
    overlap = both / (size[:, None] + size[None, :] - both)
    np.fill_diagonal(overlap, -1.0)
    row, column = np.nonzero(overlap == overlap.max(axis=1, keepdims=True))
    share = 1.0 / np.bincount(row)[row]

    def accuracy(site: np.ndarray) -> float:
        return min(1.0, float(share @ (site[row] == site[column])) / len(chosen))

    observed = accuracy(site)
    permuted = np.array([accuracy(rng.permutation(site)) for _ in range(PERMUTATIONS)])
    return PatternTest(
        n_scans=len(chosen),
        accuracy=observed,
        by_chance=float(permuted.mean()),
        largest_site=float(np.bincount(site).max() / len(chosen)),
        p=(1 + int((permuted >= observed - 1e-12).sum())) / (1 + PERMUTATIONS),
    )
