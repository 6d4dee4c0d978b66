"""Find the ROIs and frames of every scan that carry signal, and test whether missing ROIs reveal the site."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..cohort import Cohort
from ..signal import find_live_rois, find_valid_frames

PERMUTATIONS = 999
MOST_SCANS = 3000
"""Most scans in the permutation test; of a larger cohort, a fixed random sample of this size is used."""
LEAST_DEAD = 3
"""Fewer scans with ROIs without signal are not tested."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """Where the scans of a cohort have signal.

    Shapes: alive [N, P], valid [T_i], finite [N].
    """

    alive: np.ndarray  # ROIs with signal, in the sense of brio.cohort.signal.clean_scan
    valid: tuple[np.ndarray, ...]  # frames in which every ROI with signal is finite
    finite: np.ndarray  # whether the scan holds any finite value at all

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
    """Read every scan once, one in memory at a time, and find where it has signal."""
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
    """Whether the set of ROIs without signal, which may be empty, predicts the site (nearest neighbour)."""

    n_scans: int  # scans that entered the test
    accuracy: float
    by_chance: float  # mean accuracy with the sites permuted
    p: float  # p value: share of 999 permutations of the sites (seed 0) that reach this accuracy


def predict_site_from_patterns(alive: np.ndarray, sites: np.ndarray, ids: np.ndarray) -> PatternTest | None:
    """Predict the site of each scan from its ROIs without signal, and test the accuracy by permutation.

    Scans without such ROIs take part, their pattern being empty: a region that is dead at one whole site reveals that
    site by being dead, not only by differing from regions that are dead elsewhere. Patterns are compared by their
    Jaccard overlap and not by the number of ROIs that differ: most patterns have one to three ROIs, and any two of
    these differ in few. Where several nearest neighbours tie, a scan counts with the share of them at its own site, so
    that the order of the participants does not matter.

    Shapes: alive [N, P], sites, ids [N].

    Returns None if fewer than three scans have ROIs without signal, or all scans are of one site.
    """
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    chosen = np.argsort(ids)
    if len(chosen) > MOST_SCANS:
        chosen = chosen[np.sort(rng.choice(len(chosen), MOST_SCANS, replace=False))]
    names, site = np.unique(sites[chosen], return_inverse=True)
    patterns, pattern, size = np.unique(~alive[chosen], axis=0, return_inverse=True, return_counts=True)
    pattern = pattern.reshape(-1)
    if (~alive[chosen]).any(axis=1).sum() < LEAST_DEAD or len(names) < 2:
        return None
    dead = patterns.astype(np.float32)
    both = (dead @ dead.T).astype(np.float64)  # whole numbers, so that equal overlaps are equal bit for bit
    union = dead.sum(axis=1)[:, None] + dead.sum(axis=1)[None, :] - both
    overlap = np.where(union > 0, both / np.maximum(union, 1), 1.0)
    overlap[np.diag_indices(len(size))] = np.where(size > 1, 1.0, -1.0)  # a scan is not its own neighbour
    nearest = overlap == overlap.max(axis=1, keepdims=True)  # [patterns, patterns]
    n_nearest = (nearest @ size - nearest.diagonal())[pattern]
    is_own = nearest.diagonal()[pattern]
    neighbours = csr_array(nearest.astype(np.float64))

    def accuracy(site: np.ndarray) -> float:
        count = np.bincount(pattern * len(names) + site, minlength=len(size) * len(names)).reshape(len(size), -1)
        return float((((neighbours @ count)[pattern, site] - is_own) / n_nearest).mean())

    observed = accuracy(site)
    permuted = np.array([accuracy(rng.permutation(site)) for _ in range(PERMUTATIONS)])
    return PatternTest(
        n_scans=len(chosen),
        accuracy=observed,
        by_chance=float(permuted.mean()),
        p=(1 + int((permuted >= observed - 1e-12).sum())) / (1 + PERMUTATIONS),
    )
