"""What the scans looked like that a model learned from, and whether a new scan is like them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..cohort import Cohort
from ..connectome import Connectomes, source_mean
from ..errors import BrioError
from ..schemas import NOT_EMPTY, StoredCount, StoredNonNegative

__all__ = ["ScanRanges", "check_ranges", "describe_reasons", "learn_ranges", "rank_distances"]

SHORT_SHARE = 0.05
"""All but this share of the source scans have at least the frames that a new scan is compared with."""

TOLERATED_SHARE = 0.95
"""A scan is short where it has less than this share of them; a few frames do not matter."""

UNLIKE_SHARE = 0.01
"""A scan is unlike the source scans where no more than this share of them lies as far from the mean connectome."""

_N_DISTANCES = 101
LEAST_SITES_OF_MODEL = 2
ONE_SITE = (
    f"a model for other hospitals needs at least {LEAST_SITES_OF_MODEL} sites with both classes: how far a new "
    "hospital may lie is read from how far sites lie from each other; add sites, or see with 'brio run COHORT "
    "--protocol kfold --out DIR' what can be learned within one"
)


@dataclass(frozen=True)
class ScanRanges:
    """Ranges of the source scans of a model.

    Attributes
    ----------
    least_frames : float
        Frames that 95 % of the source scans have at least.
    tr, motion, edge_sd : tuple of two float, or None
        Smallest and largest repetition time in seconds, mean framewise displacement, and standard deviation of the
        edges of a connectome. None where the cohort does not say.
    dead_rois : int
        Largest number of ROIs without signal.
    distances : tuple of float
        Quantiles, evenly spaced from 0 to 1, of the distance of a source scan to the mean connectome of all other
        source sites, see :func:`measure_distances`.
    """

    least_frames: StoredNonNegative
    tr: tuple[float, float] | None
    motion: tuple[float, float] | None
    edge_sd: tuple[float, float] | None
    dead_rois: StoredCount
    distances: Annotated[tuple[float, ...], NOT_EMPTY]


def learn_ranges(connectomes: Connectomes, source: np.ndarray) -> tuple[ScanRanges, Tensor]:
    """Learn the ranges of source scans, and their mean connectome.

    Parameters
    ----------
    connectomes : Connectomes
    source : ndarray of int64, shape [n]
        Positions of the source scans.

    Returns
    -------
    ranges : ScanRanges
    mean : Tensor, shape [P, P]
        Mean connectome, every source site with the same weight. On the CPU.

    Raises
    ------
    BrioError
        If all source scans are of one site.
    """
    sites = connectomes.cohort.sites[source]
    names = np.unique(sites)
    if len(names) < LEAST_SITES_OF_MODEL:
        raise BrioError(ONE_SITE)
    means = {e: connectomes.site_mean(source[sites == e]) for e in names}
    distances = np.empty(len(source))
    for e in names:
        others = source_mean([means[other] for other in names if other != e])
        distances[sites == e] = measure_distances(connectomes, source[sites == e], others)
    facts = _describe_scans(connectomes).iloc[source]
    ranges = ScanRanges(
        least_frames=float(np.quantile(facts["frames"], SHORT_SHARE)),
        tr=_find_range(facts["tr"]),
        motion=_find_range(facts["motion"]),
        edge_sd=_find_range(facts["edge_sd"]),
        dead_rois=int(facts["dead_rois"].max()),
        distances=tuple(np.quantile(distances, np.linspace(0, 1, _N_DISTANCES)).tolist()),
    )
    return ranges, source_mean(list(means.values())).cpu()


def measure_distances(connectomes: Connectomes, scans: np.ndarray, mean: Tensor) -> np.ndarray:
    """Measure how far connectomes lie from a mean connectome: one minus the correlation over edges with signal.

    A correlation ignores how strong the edges of a scan are as a whole. The distance is near one for regions in
    another order, for another atlas and for noise.

    Parameters
    ----------
    connectomes : Connectomes
    scans : ndarray of int64, shape [n]
    mean : Tensor, shape [P, P]

    Returns
    -------
    ndarray of float64, shape [n]
    """
    u, v = torch.triu_indices(connectomes.n_rois, connectomes.n_rois, 1, device=connectomes.device)
    y = mean.to(connectomes.full)[u, v].double()
    distances = np.empty(len(scans))
    for k, i in enumerate(scans.tolist()):
        live = connectomes.alive[i]
        used = live[u] & live[v]
        pair = torch.stack([connectomes.full[i][u, v].double()[used], y[used]])
        distances[k] = 1.0 - float(torch.corrcoef(pair)[0, 1].nan_to_num(0.0))
    return distances


def rank_distances(ranges: ScanRanges, distances: np.ndarray) -> np.ndarray:
    """Return the share of source scans that lie at least as far from the mean connectome as each scan. Shape [n]."""
    return 1.0 - np.searchsorted(np.array(ranges.distances), distances, side="left") / len(ranges.distances)


def check_ranges(ranges: ScanRanges, mean: Tensor, connectomes: Connectomes) -> pd.DataFrame:
    """Compare scans with the source scans of a model.

    Parameters
    ----------
    ranges : ScanRanges
    mean : Tensor, shape [P, P]
        Mean connectome of the source sites.
    connectomes : Connectomes
        Of the scans to predict.

    Returns
    -------
    DataFrame, one row per scan
        ``distance_rank``, see :func:`rank_distances`; ``in_range``, ``yes`` or ``no``; ``reasons``, in words, for
        ``no``, and what could not be checked.
    """
    facts = _describe_scans(connectomes)
    rank = rank_distances(ranges, measure_distances(connectomes, np.arange(len(connectomes)), mean))
    reasons: list[list[str]] = [[] for _ in range(len(facts))]
    for found, scan, rank_of_scan in zip(reasons, facts.to_dict("records"), rank, strict=True):
        if scan["frames"] < TOLERATED_SHARE * ranges.least_frames:
            found.append(f"short: {scan['frames']} frames, usual {ranges.least_frames:.0f} or more")
        if scan["dead_rois"] > ranges.dead_rois:
            found.append(f"{scan['dead_rois']} ROIs without signal, at most {ranges.dead_rois} in training")
        for name, words, tolerance in _LIMITS:
            limits, value = getattr(ranges, name), scan[name]
            if limits is None or np.isnan(value):
                continue
            if not limits[0] * (1 - tolerance) <= value <= limits[1] * (1 + tolerance):
                found.append(words.format(value, *limits))
        if rank_of_scan <= UNLIKE_SHARE:
            share = f"{1 - UNLIKE_SHARE:.0%}"
            found.append(f"unlike the source scans: farther from their mean connectome than {share} of them")
    unknown = ["repetition time unknown" if ranges.tr and np.isnan(tr) else "" for tr in facts["tr"]]
    return pd.DataFrame(
        {
            "distance_rank": rank,
            "in_range": ["no" if found else "yes" for found in reasons],
            "reasons": ["; ".join(filter(None, [*found, u])) for found, u in zip(reasons, unknown, strict=True)],
        }
    )


def describe_reasons(checked: pd.DataFrame) -> str:
    """Count for what reasons scans are out of range.

    Parameters
    ----------
    checked : DataFrame, one row per scan
        With the columns ``in_range`` and ``reasons`` of :func:`check_ranges`.

    Returns
    -------
    str
        Commonest first; a scan may have several reasons. Empty where all scans are in range.

    Examples
    --------
    >>> reasons = ["short: 20 frames, usual 100 or more", "short: 30 frames; repetition time 3 s", ""]
    >>> describe_reasons(pd.DataFrame({"in_range": ["no", "no", "yes"], "reasons": reasons}))
    '2 short, 1 repetition time'
    """
    outside = checked["reasons"][checked["in_range"] == "no"]
    counts = {kind: int(outside.str.contains(kind).sum()) for kind in _KINDS}
    ordered = sorted((kind for kind in _KINDS if counts[kind]), key=lambda kind: -counts[kind])
    return ", ".join(f"{counts[kind]} {_KINDS[kind]}" for kind in ordered)


_KINDS = {
    "short: ": "short",
    "ROIs without signal": "ROIs without signal",
    r"repetition time \d": "repetition time",
    "mean framewise displacement": "motion",
    "spread of the edges": "spread of the edges",
    "unlike the source scans": "unlike the source scans",
}
"""Regular expression by which a reason is recognised, and its name in a count."""

_LIMITS = (
    ("tr", "repetition time {:.3g} s, {:.3g} to {:.3g} s in training", 0.01),
    ("motion", "mean framewise displacement {:.2f} mm, {:.2f} to {:.2f} mm in training", 0.0),
    ("edge_sd", "spread of the edges {:.2f}, {:.2f} to {:.2f} in training", 0.0),
)
"""Quantities with a lower and an upper limit: name, words for a scan outside, tolerance as a share."""


def _describe_scans(connectomes: Connectomes) -> pd.DataFrame:
    """One row per scan: frames, repetition time, motion, ROIs without signal, spread of the edges."""
    u, v = torch.triu_indices(connectomes.n_rois, connectomes.n_rois, 1, device=connectomes.device)
    alive = connectomes.alive
    spread = []
    for A, live in zip(connectomes.full, alive, strict=True):
        used = live[u] & live[v]
        spread.append(float(A[u, v][used].double().std(correction=0)))
    return pd.DataFrame(
        {
            "frames": connectomes.n_frames,
            "tr": _read_numbers(connectomes.cohort, "tr"),
            "motion": _read_numbers(connectomes.cohort, "mean_fd"),
            "dead_rois": (~alive).sum(1).cpu().numpy(),
            "edge_sd": spread,
        }
    )


def _read_numbers(cohort: Cohort, column: str) -> np.ndarray:
    if column not in cohort.participants:
        return np.full(len(cohort), np.nan)
    return pd.to_numeric(cohort.participants[column], errors="coerce").to_numpy(dtype=float)


def _find_range(values: pd.Series) -> tuple[float, float] | None:
    known = values.dropna()
    return (float(known.min()), float(known.max())) if len(known) else None
