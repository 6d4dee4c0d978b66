"""How new scans compare with those of a model: whether the model has seen them, and how they differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..cohort import Cohort
from ..cohort.cohort import locate_scans
from ..cohort.scans import SESSION_FRAMES, find_live_rois, find_valid_frames, read_session_frames
from ..cohort.values import read_numbers
from ..connectome import Connectomes, source_mean
from ..connectome.connectomes import LEAST_FRAMES
from ..draws import draw_uniform
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
"""Distance from which a scan may be foreign to a model; for most models a smaller one is enough, see `ScanRanges`."""

LEAST_LIKENESS, LEAST_ABOVE_CHANCE, _ORDERS = 0.3, 4.0, 100
"""A distant scan is only noisy if its correlation with the mean, corrected for its reliability, is at least the first,
and this many standard deviations above that of random orders of regions, of which so many are drawn."""

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


def find_foreign(
    connectomes: Connectomes, scans: np.ndarray, mean: Tensor, distance: np.ndarray, limit: float
) -> np.ndarray:
    """Find scans that are too far from a mean connectome, and not only because their signal is weak.

    Noise makes the correlation with the mean smaller by the root of the reliability of a connectome, which follows from
    the correlation of its halves (Spearman 1910; Brown 1910). A distant scan is not foreign if its correlation, divided
    by this root, is large enough, and is far above that with the mean of regions in random orders.

    Shapes: scans [n], mean [P, P], distance [n]; returns [n], bool.
    """
    foreign = distance > limit
    if not foreign.any() or connectomes.without_frames:
        return foreign
    far, correlation = scans[foreign], 1 - distance[foreign]
    orders = np.argsort(draw_uniform("orders of regions", np.arange(_ORDERS)[:, None], np.arange(len(mean))))
    by_chance = 1 - measure_distances(connectomes, far, torch.stack([mean[order][:, order] for order in orders]))
    weak = correlation - by_chance.mean(1) > LEAST_ABOVE_CHANCE * by_chance.std(1)
    *halves, usable = halve_usable_scans(connectomes.cohort.select(far))
    agreement = np.zeros(len(far))
    if usable.any():
        first, second = (Connectomes(half, connectomes.device) for half in halves)
        agreement[usable] = [
            1 - measure_distances(first, np.array([k]), matrix[None])[0, 0] for k, matrix in enumerate(second.full)
        ]
    with np.errstate(divide="ignore", invalid="ignore"):
        weak &= correlation / np.sqrt(2 * agreement / (1 + agreement)) >= LEAST_LIKENESS  # false for NaN
    foreign[foreign] = ~weak
    return foreign


def check_ranges(
    ranges: ScanRanges, mean: Tensor, connectomes: Connectomes, known: np.ndarray, flags: Iterable[str] = ()
) -> pd.DataFrame:
    """Describe how each scan differs from the source scans of a model.

    Shapes: mean [P, P], known [n].

    Returns ``distance`` to the mean connectome; ``flag`` and ``notes``, codes separated by spaces, see
    :data:`REASONS`; ``reasons``, all of them in words.
    """
    facts = _compare_with_mean(connectomes, _describe_scans(connectomes), mean, ranges)
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


def _compare_with_mean(connectomes: Connectomes, facts: pd.DataFrame, mean: Tensor, ranges: ScanRanges) -> pd.DataFrame:
    """Add the columns distance and foreign to facts, whose index is that of the scans."""
    scans = facts.index.to_numpy(copy=True)
    distance = measure_distances(connectomes, scans, mean[None])[:, 0]
    foreign = find_foreign(connectomes, scans, mean, distance, ranges.foreign_distance)
    return facts.assign(distance=distance, foreign=foreign)


def _find_reasons(ranges: ScanRanges, facts: pd.DataFrame) -> pd.DataFrame:
    """Find which reasons apply to each scan, except those that need the scans themselves. One bool column per code."""
    nan = np.nan  # no number lies beyond it
    least_frames, dead_rois, distance = (
        nan if limit is None else limit for limit in (ranges.least_frames, ranges.dead_rois, ranges.distance)
    )
    reasons = {
        "foreign": facts["foreign"],
        "short": facts["frames"] < TOLERATED_SHARE * least_frames,
        "dead_rois": facts["dead_rois"] > dead_rois,
        "far": (facts["distance"] > distance) & ~facts["foreign"],
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


def halve_scans(cohort: Cohort) -> tuple[Cohort, Cohort]:
    """Return a cohort of the first halves of all scans, and a cohort of their second halves.

    Both halves of a scan have the same number of valid frames; if the number is odd, the last frame is left out. If a
    scan is averaged over sessions, its halves are those of all its sessions.
    """
    sessions = read_session_frames(cohort.participants) or [np.empty(0, dtype=np.int64)] * len(cohort)
    parts: list[list[np.ndarray]] = []  # valid frames of each session of each scan
    for i, own in enumerate(sessions):
        scan, ends = cohort.scan(i), np.cumsum(own)[:-1]
        valid = np.split(find_valid_frames(scan, find_live_rois(scan)), ends)
        parts.append([part[own] for part, own in zip(np.split(scan, ends), valid, strict=True)])
    lengths = np.array([sum(len(part) // 2 for part in own) for own in parts], dtype=np.int64)
    table = cohort.participants.assign(n_frames=lengths)
    if SESSION_FRAMES in table:
        halved = ["+".join(str(len(part) // 2) for part in own) if len(own) > 1 else None for own in parts]
        table[SESSION_FRAMES] = halved
    changed = {"starts": locate_scans(lengths), "n_frames": lengths, "participants": table, "path": None}
    sessions = [part for own in parts for part in own]
    first = np.concatenate([part[: len(part) // 2] for part in sessions])
    second = np.concatenate([part[len(part) // 2 : len(part) // 2 * 2] for part in sessions])
    return replace(cohort, frames=first, **changed), replace(cohort, frames=second, **changed)


def halve_usable_scans(cohort: Cohort) -> tuple[Cohort, Cohort, np.ndarray]:
    """Return both halves of the scans whose halves have a connectome, and which scans these are. Shape [n], bool."""
    halves = halve_scans(cohort)
    frames = [[half.scan(i) for i in range(len(half))] for half in halves]
    fitting = [[len(own) >= LEAST_FRAMES and bool(find_live_rois(own).any()) for own in half] for half in frames]
    usable = np.all(fitting, axis=0)
    first, second = (half.select(usable) for half in halves)
    return first, second, usable


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
        parts.append(_find_reasons(ranges, _compare_with_mean(connectomes, facts.iloc[here], mean, ranges)))
    return pd.concat(parts).sort_index().groupby(cohort.participant_ids).any()


def _describe_scans(connectomes: Connectomes) -> pd.DataFrame:
    """One row per scan: frames, repetition time, motion, ROIs without signal, spread of the edges."""
    u, v = torch.triu_indices(connectomes.n_rois, connectomes.n_rois, 1, device=connectomes.device)
    alive, table = connectomes.alive, connectomes.cohort.participants
    spread = []
    for A, live in zip(connectomes.full, alive, strict=True):
        used = live[u] & live[v]
        spread.append(float(A[u, v][used].double().std(correction=0)))
    gaps = pd.Series(np.nan, table.index)
    tr, motion = (read_numbers(table.get(name, gaps)).to_numpy() for name in ("tr", "mean_fd"))
    dead_rois = (~alive).sum(1).cpu().numpy()
    facts = {"frames": connectomes.n_frames, "tr": tr, "motion": motion, "dead_rois": dead_rois, "edge_sd": spread}
    return pd.DataFrame(facts)


def describe_codes(codes: Iterable[str]) -> str:
    """Count the reasons in the column ``flag`` or ``notes`` of some scans, most common first."""
    counts = pd.Series([code for cell in codes for code in cell.split()], dtype=object).value_counts()
    return ", ".join(f"{REASONS[str(code)]} ({n})" for code, n in counts.items())


def find_code(flags: pd.Series, code: str) -> np.ndarray:
    """Find the scans whose flags contain a code. Shape [n], bool."""
    return flags.str.split().map(lambda codes: code in codes).to_numpy(dtype=bool)
