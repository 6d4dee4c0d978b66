"""How new scans compare with those of a model: whether the model has seen them, and how they differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..connectome import Connectomes, source_mean
from ..errors import BrioError
from ..formatting import format_count
from ..protocol import average_margins, find_two_class_sites
from ..schemas import StoredCount, StoredNonNegative

REASONS = {
    "foreign": "another atlas or order of regions, or noise",
    "known": "known to the model",
    "short": "fewer frames",
    "dead_rois": "ROIs without signal",
    "tr": "repetition time",
    "motion": "head motion",
    "edge_sd": "spread of the edges",
    "far": "far from the mean connectome",
    "tr_unknown": "repetition time unknown",
}
"""Codes of the remarks that a scan may get, and their names in counts."""

CANNOT_BE_MEANT = ("foreign", "known")
"""Reasons that always flag."""

PARTICIPANTS_BEHIND = 10
"""At least this many participants lie beyond every stored limit, or beyond the quartiles it is computed from."""

LEAST_PARTICIPANTS = 4 * PARTICIPANTS_BEHIND
"""With fewer participants, too few lie beyond the quartiles, and the ranges are not stored."""

SHORT_SHARE = 0.05
"""A new scan is compared with a number of frames that all but this share of the source participants have."""

TOLERATED_SHARE = 0.95
"""A scan is short if it has less than this share of that number; a few frames do not matter."""

FENCE = 1.5
"""Continuous quantities are usual up to this many interquartile ranges (of their logarithm) beyond the quartiles."""

FOREIGN_DISTANCE = 0.9
"""Distance from which a scan is foreign to every model; for most models a smaller one is enough, see `ScanRanges`."""

LEAST_SITES_OF_MODEL = 2
ONE_SITE = (
    f"a model for other hospitals needs at least {LEAST_SITES_OF_MODEL} sites with both classes; add sites, or "
    "evaluate within one site with 'brio run COHORT --protocol kfold --out DIR'"
)


@dataclass(frozen=True)
class ScanRanges:
    """What is usual among the source participants of a model; all values are None if there are fewer than 40."""

    least_frames: StoredNonNegative | None = (
        None  # frames that 95% of the source participants (or all but nine) have at least
    )
    tr: tuple[float, float] | None = None
    motion: tuple[float, float] | None = None
    edge_sd: tuple[float, float] | None = None
    dead_rois: StoredCount | None = None  # ROIs without signal that ten participants or more have at least
    distance: StoredNonNegative | None = None

    @property
    def foreign_distance(self) -> float:
        """Halfway between the usual distance and one, the distance of connectomes that have nothing in common."""
        return FOREIGN_DISTANCE if self.distance is None else min(FOREIGN_DISTANCE, (1 + self.distance) / 2)


def learn_ranges(
    connectomes: Connectomes, source: np.ndarray, facts: pd.DataFrame | None = None
) -> tuple[ScanRanges, Tensor]:
    """Learn the ranges of source scans, and their mean connectome.

    Shapes: source [n]; returns mean [P, P].
    """
    cohort, sites = connectomes.cohort, connectomes.cohort.sites[source]
    names, own = np.unique(sites, return_inverse=True)
    if len(names) < LEAST_SITES_OF_MODEL:
        raise BrioError(ONE_SITE)
    means = [connectomes.site_mean(source[sites == e]) for e in names]
    mean = source_mean(means).cpu()
    if len(np.unique(cohort.participant_ids[source])) < LEAST_PARTICIPANTS:
        return ScanRanges(), mean
    others = torch.stack([source_mean(means[:e] + means[e + 1 :]) for e in range(len(means))])
    distances = measure_distances(connectomes, source, others)[np.arange(len(source)), own]
    facts = (_describe_scans(connectomes) if facts is None else facts).iloc[source].assign(distance=distances)
    usual = pd.DataFrame(average_margins(cohort, source, facts.to_numpy())[1], columns=facts.columns)
    dead_rois, distance = _find_limits(usual["dead_rois"]), _find_fences(usual["distance"])
    frames = _find_limits(usual["frames"], SHORT_SHARE)
    ranges = ScanRanges(
        least_frames=None if frames is None else frames[0],
        tr=_find_limits(usual["tr"]),
        motion=_find_fences(usual["motion"]),
        edge_sd=_find_fences(usual["edge_sd"]),
        dead_rois=None if dead_rois is None else int(dead_rois[1]),
        distance=None if distance is None else distance[1],
    )
    return ranges, mean


def _find_limits(values: pd.Series, share: float = 0.0) -> tuple[float, float] | None:
    """Find the lower and upper limits beyond which a share of the participants lies, at least ten of them."""
    known = np.sort(values.dropna())
    beyond = max(PARTICIPANTS_BEHIND, int(share * len(known)))
    return (float(known[beyond - 1]), float(known[-beyond])) if len(known) >= LEAST_PARTICIPANTS else None


def _find_fences(values: pd.Series) -> tuple[float, float] | None:
    """Find Tukey's fences on a logarithmic scale, which depend on participants only through the quartiles."""
    known = values.dropna()
    if len(known) < LEAST_PARTICIPANTS:
        return None
    low, high = np.quantile(np.log(known.clip(lower=1e-6)), [0.25, 0.75])
    return float(np.exp(low - FENCE * (high - low))), float(np.exp(high + FENCE * (high - low)))


FACTS = ("frames", "tr", "motion", "edge_sd", "dead_rois")
_QUARTILE, _FEWEST_FRAMES = 0.6744897501960817, 1.6448536269514722
"""Quantiles of the normal distribution: of a quarter, and of the 5% of scans with the fewest frames."""


def sum_facts(connectomes: Connectomes) -> np.ndarray:
    """Sum the logarithms of frames, repetition time, motion, spread, and regions without signal plus one.

    Returns one row per quantity: number, sum and sum of squares. Shape [5, 3].
    """
    facts, ids = _describe_scans(connectomes), connectomes.cohort.participant_ids
    return np.stack([sum_logs(facts[name].to_numpy(dtype=float) + (name == "dead_rois"), ids) for name in FACTS])


def sum_logs(values: np.ndarray, participant_ids: np.ndarray) -> np.ndarray:
    """Return number, sum and sum of squares of the logarithms of known values; zeros if too few participants have one.

    Shapes: values [n], participant_ids [n]; returns [3].
    """
    known = np.isfinite(values)
    if len(np.unique(participant_ids[known])) < PARTICIPANTS_BEHIND:
        return np.zeros(3)
    logs = np.log(np.maximum(values[known], 1e-6))
    return np.array([len(logs), logs.sum(), (logs**2).sum()])


def read_ranges(sums: np.ndarray, distance: np.ndarray) -> ScanRanges:
    """Compute ranges from sums over scans that are never pooled; logarithms are assumed to be normal.

    Shapes: sums [5, 3], as :func:`sum_facts` returns them, distance [3].
    """
    limits: dict[str, tuple[float, float]] = {}
    for name, (n, total, squares) in zip((*FACTS, "distance"), (*sums, distance), strict=True):
        if n >= LEAST_PARTICIPANTS:
            sd = np.sqrt(max(squares / n - (total / n) ** 2, 0.0))
            beyond = sd * (_FEWEST_FRAMES if name == "frames" else _QUARTILE * (1 + 2 * FENCE))
            limits[name] = (float(np.exp(total / n - beyond)), float(np.exp(total / n + beyond)))
    frames, dead_rois, far = (limits.get(name) for name in ("frames", "dead_rois", "distance"))
    return ScanRanges(
        least_frames=frames[0] if frames and frames[1] > 1 else None,  # imported connectomes have none
        tr=limits.get("tr"),
        motion=limits.get("motion"),
        edge_sd=limits.get("edge_sd"),
        dead_rois=int(dead_rois[1] - 1) if dead_rois else None,
        distance=far[1] if far else None,
    )


def measure_distances(connectomes: Connectomes, scans: np.ndarray, means: Tensor) -> np.ndarray:
    """Measure how far connectomes lie from mean connectomes: one minus the correlation over edges with signal.

    A correlation ignores the overall strength of the edges of a scan. The distance is near one for another atlas, for
    regions in another order and for noise.

    Shapes: scans [n], means [m, P, P]; returns [n, m].
    """
    u, v = torch.triu_indices(connectomes.n_rois, connectomes.n_rois, 1, device=connectomes.device)
    y = means.to(connectomes.full)[:, u, v].double().T
    distances = []
    for chunk in torch.from_numpy(scans).split(256):
        live = connectomes.alive[chunk]
        w = (live[:, u] & live[:, v]).double()  # [c, edges]
        x = connectomes.full[chunk][:, u, v].double() * w
        n = w.sum(1, keepdim=True)
        sum_x, sum_y = x.sum(1, keepdim=True), w @ y
        covariance = x @ y - sum_x * sum_y / n
        variances = ((x * x).sum(1, keepdim=True) - sum_x**2 / n, w @ (y * y) - sum_y**2 / n)
        correlation = covariance / (variances[0] * variances[1]).clamp_min(0.0).sqrt()
        distances.append(1.0 - correlation.nan_to_num(0.0, 0.0, 0.0).clamp(-1.0, 1.0).cpu().numpy())
    return np.concatenate(distances)


def check_ranges(
    ranges: ScanRanges, mean: Tensor, connectomes: Connectomes, known: np.ndarray, flags: Iterable[str] = ()
) -> pd.DataFrame:
    """Describe how each scan differs from the source scans of a model.

    Shapes: mean [P, P], known [n].

    Returns ``distance`` to the mean connectome; ``flag`` and ``notes``, codes separated by spaces, see
    :data:`REASONS`; ``reasons``, all of them in words.
    """
    facts = _describe_scans(connectomes)
    facts["distance"] = measure_distances(connectomes, np.arange(len(facts)), mean[None])[:, 0]
    found = _find_reasons(ranges, facts)
    found["known"] = known
    flagging = {*CANNOT_BE_MEANT, *flags}
    codes = [[code for code in REASONS if scan[code]] for scan in found.to_dict("records")]
    return pd.DataFrame(
        {
            "distance": facts["distance"],
            "flag": [" ".join(c for c in own if c in flagging) for own in codes],
            "notes": [" ".join(c for c in own if c not in flagging) for own in codes],
            "reasons": [
                "; ".join(_write_reason(code, scan, ranges) for code in own)
                for own, scan in zip(codes, facts.to_dict("records"), strict=True)
            ],
        }
    )


def _find_reasons(ranges: ScanRanges, facts: pd.DataFrame) -> pd.DataFrame:
    """Find which reasons apply to each scan, except those that need the scans themselves. One bool column per code."""
    nan = np.nan  # no number lies beyond it
    least_frames, dead_rois, distance = (
        nan if limit is None else limit for limit in (ranges.least_frames, ranges.dead_rois, ranges.distance)
    )
    foreign = facts["distance"] > ranges.foreign_distance
    reasons = {
        "foreign": foreign,
        "short": facts["frames"] < TOLERATED_SHARE * least_frames,
        "dead_rois": facts["dead_rois"] > dead_rois,
        "far": (facts["distance"] > distance) & ~foreign,
        "tr_unknown": facts["tr"].isna() & (ranges.tr is not None),
    }
    for name, tolerance in (("tr", 0.01), ("motion", 0.0), ("edge_sd", 0.0)):
        low, high = getattr(ranges, name) or (nan, nan)
        reasons[name] = (facts[name] < low * (1 - tolerance)) | (facts[name] > high * (1 + tolerance))
    return pd.DataFrame(reasons)


def _write_reason(code: str, scan: dict[Any, Any], ranges: ScanRanges) -> str:
    """Write a reason as words, with the number of the scan and what is usual."""
    usual_tr = " to ".join(dict.fromkeys(f"{limit:.3g}" for limit in ranges.tr or ()))
    limits = {"short": ranges.least_frames, "dead_rois": ranges.dead_rois, "far": ranges.distance, "tr": usual_tr}
    usual = limits.get(code)
    words = {
        "foreign": "distance to the mean connectome {distance:.2f} (1: nothing in common), as for another atlas, "
        "regions in another order, or noise",
        "known": "known to the model",
        "short": "short: {frames} frames, usually {usual:.0f} or more",
        "dead_rois": "{n_dead} without signal, usually at most {usual}",
        "tr_unknown": "repetition time unknown",
        "far": "distance to the mean connectome {distance:.2f}, usually at most {usual:.2f}",
        "tr": "repetition time {tr:.3g} s, usually {usual} s",
        "motion": "mean framewise displacement {motion:.2f} mm, usually {limits[0]:.2f} to {limits[1]:.2f} mm",
        "edge_sd": "spread of the edges {edge_sd:.2f}, usually {limits[0]:.2f} to {limits[1]:.2f}",
    }[code]
    n_dead = format_count(scan["dead_rois"], "ROI")
    return words.format(**scan, n_dead=n_dead, usual=usual, limits=getattr(ranges, code, None))


def check_left_out_sites(connectomes: Connectomes) -> pd.DataFrame:
    """Check the scans of each site against the ranges of the other two-class sites, as if the site were new.

    Returns a table with index ``participant_id`` and one bool column per code, true if it applies to any of their
    scans.
    """
    cohort, facts = connectomes.cohort, _describe_scans(connectomes)
    learned = np.flatnonzero(np.isin(cohort.sites, find_two_class_sites(cohort)))
    parts = []
    for site in np.unique(cohort.sites):
        here = np.flatnonzero(cohort.sites == site)
        ranges, mean = learn_ranges(connectomes, learned[cohort.sites[learned] != site], facts)
        own = facts.iloc[here].assign(distance=measure_distances(connectomes, here, mean[None])[:, 0])
        parts.append(_find_reasons(ranges, own))
    return pd.concat(parts).sort_index().groupby(cohort.participant_ids).any()


def _describe_scans(connectomes: Connectomes) -> pd.DataFrame:
    """One row per scan: frames, repetition time, motion, ROIs without signal, spread of the edges."""
    u, v = torch.triu_indices(connectomes.n_rois, connectomes.n_rois, 1, device=connectomes.device)
    alive, table = connectomes.alive, connectomes.cohort.participants
    spread = []
    for A, live in zip(connectomes.full, alive, strict=True):
        used = live[u] & live[v]
        spread.append(float(A[u, v][used].double().std(correction=0)))
    tr, motion = (
        pd.to_numeric(table.get(name, pd.Series(np.nan, table.index)), errors="coerce").to_numpy(dtype=float)
        for name in ("tr", "mean_fd")
    )
    dead_rois = (~alive).sum(1).cpu().numpy()
    facts = {"frames": connectomes.n_frames, "tr": tr, "motion": motion, "dead_rois": dead_rois, "edge_sd": spread}
    return pd.DataFrame(facts)


def describe_codes(codes: Iterable[str]) -> str:
    """Count the reasons in the column ``flag`` or ``notes`` of some scans, most common first."""
    counts = pd.Series([code for cell in codes for code in cell.split()], dtype=object).value_counts()
    return ", ".join(f"{REASONS[str(code)]} ({n})" for code, n in counts.items())
