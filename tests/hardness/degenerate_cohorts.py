"""Cohorts at the edge of what can be computed: scans and ROIs that are equal, constant, tiny, huge or few."""

import dataclasses
from collections.abc import Callable

import numpy as np

from brio.cohort import Atlas, Cohort
from brio.cohort.simulate import Simulation, simulate

BASE = Simulation(n_sites=5, per_class=4, n_rois=8, frames=50, stable=1.0, dynamics=1.0, seed=3)

Change = Callable[[list[np.ndarray]], list[np.ndarray]]


def rebuild(cohort: Cohort, scans: list[np.ndarray], **covariates: object) -> Cohort:
    """The same participants with other scans, and perhaps other covariates."""
    table = cohort.participants.assign(**covariates)
    extra = [c for c in table.columns if c not in ("participant_id", "site", "label", "n_frames")]
    n_rois = scans[0].shape[1]
    atlas = dataclasses.replace(cohort.atlas, rois=cohort.atlas.rois.iloc[:n_rois].reset_index(drop=True))
    return Cohort.from_scans(
        scans,
        site=table["site"],
        label=table["label"],
        participant_id=table["participant_id"],
        covariates=table[extra],
        atlas=atlas if len(atlas) == n_rois else Atlas.unnamed(n_rois),
    )


def _copy_one(scans: list[np.ndarray]) -> list[np.ndarray]:
    return [*scans[:-1], scans[0].copy()]  # the last scan is of another site than the first


def _copy_all(scans: list[np.ndarray]) -> list[np.ndarray]:
    return [scans[0].copy() for _ in scans]


def _set_column(scan: np.ndarray, column: int, value: object) -> np.ndarray:
    changed = scan.copy()
    changed[:, column] = value
    return changed


DEGENERATE: dict[str, Change] = {
    "two identical scans": _copy_one,
    "all scans identical": _copy_all,
    "two identical ROIs": lambda scans: [_set_column(scan, 1, scan[:, 0]) for scan in scans],
    "two opposite ROIs": lambda scans: [_set_column(scan, 1, -scan[:, 0]) for scan in scans],
    "all ROIs identical": lambda scans: [np.repeat(scan[:, :1], scan.shape[1], axis=1) for scan in scans],
    "a constant ROI in one scan": lambda scans: [_set_column(scans[0], 0, 7.0), *scans[1:]],
    "a constant ROI in all scans": lambda scans: [_set_column(scan, 0, 7.0) for scan in scans],
    "all but one ROI constant in one scan": lambda scans: [np.where(np.arange(8) == 3, scans[0], 1.0), *scans[1:]],
    "one ROI": lambda scans: [scan[:, :1] for scan in scans],
    "two ROIs": lambda scans: [scan[:, :2] for scan in scans],
    "three ROIs": lambda scans: [scan[:, :3] for scan in scans],
    "values of 1e30": lambda scans: [scan * np.float32(1e30) for scan in scans],
    "values of 1e-30": lambda scans: [scan * np.float32(1e-30) for scan in scans],
    "values of 1e-44": lambda scans: [scan * np.float32(1e-44) for scan in scans],
    "one value of 3e38": lambda scans: [np.where(np.arange(len(scans[0]))[:, None] == 5, 3e38, scans[0]), *scans[1:]],
    "a large offset": lambda scans: [scan + np.float32(1e5) for scan in scans],
    "five frames": lambda scans: [scan[:5] for scan in scans],
    "four frames": lambda scans: [scan[:4] for scan in scans],
    "one scan of five frames": lambda scans: [scans[0][:5], *scans[1:]],
    "two values": lambda scans: [np.sign(scan) for scan in scans],
    "a spike": lambda scans: [np.where(np.arange(len(scan))[:, None] == 9, scan, 0.0) for scan in scans],
}
"""What is done to the scans of a small simulated cohort."""


def make_degenerate(name: str) -> Cohort:
    """The small simulated cohort with one of the changes in ``DEGENERATE``."""
    cohort = simulate(BASE)
    scans = [np.array(cohort.scan(i)) for i in range(len(cohort))]
    return rebuild(cohort, [scan.astype(np.float32) for scan in DEGENERATE[name](scans)])
