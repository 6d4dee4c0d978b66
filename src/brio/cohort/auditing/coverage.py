"""Find the ROIs and frames of every scan that carry signal, and test whether missing ROIs reveal the site."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..cohort import Cohort
from ..signal import find_live_rois, find_valid_frames

__all__ = ["Coverage", "PatternTest", "predict_site_from_patterns", "read_coverage"]

PERMUTATIONS = 999
MOST_PATTERNS = 1000
"""Most patterns in the permutation test; of a larger cohort, a fixed random sample of this size is used."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """Where the scans of a cohort have signal.

    Attributes
    ----------
    alive : ndarray of bool, shape [N, P]
        ROIs with signal, in the sense of :func:`brio.cohort.signal.clean_scan`.
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
        """Valid frames of each scan. Shape [N], int64."""
        return np.array([mask.sum() for mask in self.valid], dtype=np.int64)

    @cached_property
    def n_invalid(self) -> np.ndarray:
        """Frames of each scan that are not valid. Shape [N], int64."""
        return np.array([(~mask).sum() for mask in self.valid], dtype=np.int64)

    @cached_property
    def n_dead(self) -> np.ndarray:
        """ROIs without signal of each scan. Shape [N], int64."""
        return (~self.alive).sum(axis=1)


def read_coverage(cohort: Cohort) -> Coverage:
    """Read every scan once, one in memory at a time, and find where it has signal.

    Parameters
    ----------
    cohort : Cohort
        N scans with P ROIs.

    Returns
    -------
    Coverage

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
        finite_values = np.isfinite(scan)
        has_signal = find_live_rois(scan)
        frames = np.ones(len(scan), dtype=bool)
        if not finite_values.all():
            # with no ROI alive, "every live ROI is finite" would hold even for an empty frame
            frames = find_valid_frames(scan, has_signal) if has_signal.any() else finite_values.any(axis=1)
            has_signal = has_signal & find_live_rois(scan[frames])
        alive.append(has_signal)
        valid.append(frames)
        finite.append(bool(finite_values.any()))
    return Coverage(np.array(alive), tuple(valid), np.array(finite))


@dataclass(frozen=True)
class PatternTest:
    """Whether the set of ROIs without signal predicts the site (nearest neighbour, leave-one-out).

    Attributes
    ----------
    n_scans : int
        Scans with at least one ROI without signal that entered the test.
    accuracy : float
        Share of scans whose nearest pattern (largest Jaccard overlap of the missing ROIs) comes from the same site.
    by_chance : float
        Mean accuracy with the sites permuted.
    largest_site : float
        Share of these scans at the most frequent site: the accuracy of always predicting that site.
    p : float
        p value: share of 999 permutations of the sites (seed 0) that reach this accuracy.
    """

    n_scans: int
    accuracy: float
    by_chance: float
    largest_site: float
    p: float


def predict_site_from_patterns(alive: np.ndarray, sites: np.ndarray, ids: np.ndarray) -> PatternTest | None:
    """Predict the site of each scan from its ROIs without signal, and test the accuracy by permutation.

    Patterns are compared by their Jaccard overlap and not by the number of ROIs that differ: most patterns have one to
    three ROIs, and any two of these differ in few. Where several nearest neighbours tie, a scan counts with the share
    of them at its own site, so that the order of the participants does not matter.

    Parameters
    ----------
    alive : ndarray of bool, shape [N, P]
        ROIs with signal. Scans with signal in every ROI take no part.
    sites, ids : ndarray of str, shape [N]
        Site and participant of each scan.

    Returns
    -------
    PatternTest or None
        None if fewer than three scans, or one site only, have ROIs without signal.

    Examples
    --------
    >>> alive = np.ones((40, 6), dtype=bool)
    >>> alive[:20, 0] = alive[20:, 5] = False
    >>> result = predict_site_from_patterns(alive, np.repeat(["A", "B"], 20), np.arange(40).astype(str))
    >>> round(result.accuracy, 3), result.largest_site, result.p
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
    both = (dead @ dead.T).astype(np.float64)  # whole numbers, so that equal overlaps are equal bit for bit
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
