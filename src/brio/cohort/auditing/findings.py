"""Findings of an audit: defects of scans, and associations that let a classifier succeed without seeing the brain.

Defects are ROIs without signal, duplicates, frames that are not finite, and scans that are too short. Associations are
those between site and label, scan length and site, covariates (and scan length) and label, and repetition time and
site. If participants have several scans, only their first scans are tested, so that no participant counts twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, repeat
from typing import Literal

import numpy as np
import pandas as pd

from ...errors import BrioError
from ..cohort import REQUIRED_COLUMNS, TEXT_COLUMNS, Cohort
from ..scans import FC_ONLY, find_live_rois, find_valid_frames, hash_scan, index_participants
from ..values import ColumnValues, fold_value, means_sex, read_numbers

PERMUTATIONS = 999
MOST_SCANS = 3000  # most scans in the permutation test; of a larger cohort, a fixed random sample of this size is used
LEAST_DEAD = 3  # fewer scans with ROIs without signal are not tested


@dataclass(frozen=True, eq=False)
class Coverage:
    """The ROIs and frames in which the scans of a cohort have signal.

    Shapes: alive [N, P], valid [T_i], n_valid, finite [N].
    """

    alive: np.ndarray  # ROIs with signal, in the sense of brio.cohort.scans.clean_scan
    valid: tuple[np.ndarray, ...]  # frames in which every ROI with signal is finite
    n_valid: np.ndarray  # number of these frames
    finite: np.ndarray  # whether the scan holds any finite value at all


def read_coverage(cohort: Cohort) -> Coverage:
    """Read every scan once, one in memory at a time, and find where it has signal."""
    alive, valid, finite = [], [], []
    for scan in map(cohort.scan, range(len(cohort))):
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
    n_valid = np.array([frames.sum() for frames in valid], dtype=np.int64)
    return Coverage(np.array(alive), tuple(valid), n_valid, np.array(finite))


@dataclass(frozen=True)
class PatternTest:
    """Whether the set of ROIs without signal, which may be empty, predicts the site (nearest neighbour)."""

    n_scans: int  # scans that entered the test
    accuracy: float
    by_chance: float  # mean accuracy with the sites permuted
    p: float  # p value: share of 999 permutations of the sites (seed 0) that reach this accuracy


def predict_site_from_patterns(alive: np.ndarray, sites: np.ndarray, ids: np.ndarray) -> PatternTest | None:
    """Predict the site of each scan from its ROIs without signal, and test the accuracy by permutation.

    Scans without such ROIs are included with an empty pattern: a region that is dead at one whole site reveals that
    site by being dead, not only by differing from regions that are dead elsewhere. Patterns are compared by their
    Jaccard overlap and not by the number of ROIs that differ, because most patterns have one to three ROIs and any two
    of these differ in few. If several nearest neighbours tie, a scan counts as the share of them at its own site, so
    the order of the participants does not matter.

    Shapes: alive [N, P], sites, ids [N]. Returns None if fewer than three scans have ROIs without signal, or all scans
    are of one site.
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


DIRECTIONS = 16  # signed sums of the ROIs that represent a scan in the screening
# Lengths of the screening window, in units of min_frames; a pair uses the longest that both scans fill.
WINDOWS = (1, 2, 4)
# Pairs whose signed sums correlate more than this are compared in full; unrelated pairs have an SD of 0.04 to 0.07.
SCREEN = 0.3
NEAREST = 50  # pairs below ``SCREEN`` that are compared in full as well, to report how similar unrelated scans are
# Most pairs compared in full, the most similar first; bounds the time where scans share a stimulus.
MOST_COMPARED = 20_000
ROWS = 512  # scans compared with all others in one matrix product; bounds memory
IGNORED = -2.0  # score of pairs that are not considered: below any correlation
_LARGEST_SQUARED = 1e15  # sums of squares of larger values overflow in single precision

Aligned = Literal["start", "end", "both"]
Kind = Literal["identical", "near", "different"]


@dataclass(frozen=True)
class DuplicatePair:
    """Two participants with the same scan or, if ``kind`` is "different", with the most similar different scans."""

    first: str  # participants, in sorted order
    second: str
    sites: tuple[str, str]
    kind: Kind  # equal after standardising; one scan processed or trimmed in two ways; two different scans
    correlation: float  # rank correlation over time, median over ROIs
    aligned: Aligned  # end of the longer scan at which the shorter one was aligned; "both" for scans of one length
    common_frames: int  # frames that are valid in both scans
    same_label: bool
    same_site: bool
    atlases: tuple[str, ...]  # atlases in which the pair was found; the numbers are those of the first


def find_identical_connectomes(cohort: Cohort) -> list[DuplicatePair]:
    """Find pairs of participants with the same connectome, in a cohort of connectomes without frames."""
    members: dict[str, list[int]] = {}
    for i in range(len(cohort)):
        members.setdefault(hash_scan(cohort.scan(i)), []).append(i)
    pairs = sorted(pair for group in members.values() for pair in combinations(group, 2))
    return [_make_pair(cohort, i, j, "identical", 1.0, "both", 0) for i, j in pairs]


def find_duplicates(
    cohort: Cohort, coverage: Coverage, threshold: float = 0.5, min_frames: int = 40
) -> tuple[list[DuplicatePair], DuplicatePair | None, int]:
    """Find pairs of duplicate scans.

    Returns those above the threshold, most similar first; the most similar pair below it; and how many pairs passed the
    screening but exceeded the limit on full comparisons, usually none.
    """
    eligible = np.flatnonzero((coverage.n_valid >= min_frames) & coverage.alive.any(axis=1))
    scores = [np.empty(0, dtype=np.float32)]
    pairs = [np.empty((0, 3), dtype=np.int64)]
    alignments: list[Aligned] = ["start", "end"]
    for end, sketches in enumerate(_sketch_scans(cohort, coverage, eligible, min_frames)):
        for score, first, second in _screen_pairs(sketches, cohort.n_frames[eligible], min_frames):
            scores.append(score)
            pairs.append(np.stack([eligible[first], eligible[second], np.full(len(score), end)], axis=1))
    score, pair = np.concatenate(scores), np.concatenate(pairs)
    order = np.lexsort((pair[:, 2], pair[:, 1], pair[:, 0], -score))
    passed = int((score > SCREEN).sum())
    compared = min(passed, MOST_COMPARED)
    best: dict[tuple[int, int], DuplicatePair] = {}
    done: set[tuple[int, int]] = set()
    for a, b, end in pair[np.concatenate([order[:compared], order[passed : passed + NEAREST]])].tolist():
        i, j = min(a, b), max(a, b)
        if (i, j) in done and cohort.n_frames[i] == cohort.n_frames[j]:  # both alignments are the same frames
            continue
        done.add((i, j))
        found = compare_scans(cohort, coverage, i, j, alignments[end], min_frames)
        if found is not None and ((i, j) not in best or found.correlation > best[i, j].correlation):
            best[i, j] = found
    ranked = [best[key] for key in sorted(best, key=lambda key: (-best[key].correlation, key))]
    above = sum(found.correlation > threshold for found in ranked)
    closest = replace(ranked[above], kind="different") if len(ranked) > above else None
    return ranked[:above], closest, passed - compared


def compare_scans(
    cohort: Cohort, coverage: Coverage, i: int, j: int, aligned: Aligned = "start", min_frames: int = 40
) -> DuplicatePair | None:
    """Compare two scans on all ROIs with signal in both and all common frames.

    Returns None if the scans have too few valid frames, or no ROI with signal, in common.
    """
    common = int(min(cohort.n_frames[i], cohort.n_frames[j]))
    part = slice(0, common) if aligned == "start" else slice(-common, None)
    valid = coverage.valid[i][part] & coverage.valid[j][part]
    rois = coverage.alive[i] & coverage.alive[j]
    a, b = (cohort.scan(k)[part] for k in (i, j))
    correlation = correlate_scans(a, b, valid, rois, min_frames)
    if correlation is None:
        return None
    kind: Kind = "near"
    if cohort.n_frames[i] == cohort.n_frames[j]:
        aligned = "both"
        if all((of[i] == of[j]).all() for of in (coverage.alive, coverage.valid)):
            x, y = (_standardise(scan[valid][:, rois].astype(np.float64)) for scan in (a, b))
            kind = "identical" if np.abs(x - y).max() <= 1e-4 else "near"
    return _make_pair(cohort, i, j, kind, correlation, aligned, int(valid.sum()))


def _make_pair(
    cohort: Cohort, i: int, j: int, kind: Kind, correlation: float, aligned: Aligned, common_frames: int
) -> DuplicatePair:
    order = sorted((i, j), key=lambda k: str(cohort.ids[k]))
    (first, second), (one, two), (a, b) = (of[order].tolist() for of in (cohort.ids, cohort.sites, cohort.labels))
    return DuplicatePair(
        first, second, (one, two), kind, correlation, aligned, common_frames, a == b, one == two, (cohort.atlas.name,)
    )


def correlate_scans(a: np.ndarray, b: np.ndarray, valid: np.ndarray, rois: np.ndarray, min_frames: int) -> float | None:
    """Compute the rank correlation over time of two scans, without their linear trend; median over ROIs.

    Shapes: a, b [T, P], valid [T], rois [P]. Returns None if too few frames are valid, or every ROI is flat in one of
    the scans.
    """
    from scipy.stats import rankdata

    if valid.sum() < min_frames or not rois.any():
        return None
    x, y = (_remove_trend(rankdata(scan[valid][:, rois].T, axis=1)) for scan in (a, b))
    size = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    r = (x * y).sum(axis=1)[size > 0] / size[size > 0]
    return float(np.median(r)) if len(r) else None


def _sketch_scans(
    cohort: Cohort, coverage: Coverage, eligible: np.ndarray, min_frames: int
) -> tuple[np.ndarray, np.ndarray]:
    """Compute signed sums of the ROIs over the first frames, and over the last frames backwards. Each [n, 16, W].

    The last frames are reversed, so that two scans aligned at their ends match from index 0 on. Missing or invalid
    frames are NaN.
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

    This is applied to ranks. In raw values, a spike at one end would tilt the trend and leave the same ramp in every
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


# A participants column dead_fraction_<atlas> states the share of ROIs without signal in that atlas.
DEAD_FRACTION_PREFIX = "dead_fraction_"


@dataclass(frozen=True)
class Defect:
    """A scan with a defect, and the atlas in which it has it."""

    participant_id: str
    site: str
    atlas: str


@dataclass(frozen=True)
class NonFiniteFrames(Defect):
    """A scan with frames that are NaN or infinite in an ROI that has signal."""

    n_frames: int  # such frames
    of: int  # frames of the scan
    empty: bool  # whether the scan holds no finite value at all


@dataclass(frozen=True)
class DeadRois(Defect):
    """A scan with ROIs without signal: constant, or missing in every frame."""

    n_rois: int | None
    of: int | None
    share: float  # share of ROIs without signal, 0 to 1


@dataclass(frozen=True)
class TooShort(Defect):
    """A scan with fewer valid frames than the rules require."""

    n_valid: int  # its valid frames


Defects = tuple[list[NonFiniteFrames], list[DeadRois], list[TooShort]]


def find_defects(cohort: Cohort, coverage: Coverage, min_frames: int) -> Defects:
    """Find the scans with frames that must be dropped, with ROIs without signal, and with too few valid frames."""
    scans = list(zip(cohort.ids.tolist(), cohort.sites.tolist(), repeat(cohort.atlas.name)))
    n_frames, n_valid, finite = cohort.n_frames.tolist(), coverage.n_valid.tolist(), coverage.finite.tolist()
    n_dead, n_rois = (~coverage.alive).sum(axis=1).tolist(), cohort.n_rois
    gaps = zip(scans, n_valid, n_frames, finite, strict=True)
    non_finite = [NonFiniteFrames(*scan, n - valid, n, not any_) for scan, valid, n, any_ in gaps if valid < n]
    dead = [DeadRois(*scan, n, n_rois, n / n_rois) for scan, n in zip(scans, n_dead, strict=True) if n]
    short = [TooShort(*scan, n) for scan, n in zip(scans, n_valid, strict=True) if n < min_frames]
    return non_finite, dead, short


def read_stated_dead_rois(cohort: Cohort, audited_atlases: Collection[str]) -> list[DeadRois]:
    """Read shares of ROIs without signal from the columns ``dead_fraction_<atlas>`` of the participants table."""
    findings, ids, sites = list[DeadRois](), cohort.ids, cohort.sites
    for column in map(str, cohort.participants.columns):
        atlas = column.removeprefix(DEAD_FRACTION_PREFIX)
        if not column.startswith(DEAD_FRACTION_PREFIX) or atlas in audited_atlases:
            continue
        values = cohort.participants[column]
        share = read_numbers(values).to_numpy()
        invalid = values.notna().to_numpy() & ~((share >= 0.0) & (share <= 1.0))
        if invalid.any():
            i = int(np.flatnonzero(invalid)[0])
            raise BrioError(
                f"participant {ids[i]}: {column} is '{values.iloc[i]}'; write a share from 0 to 1, and import again"
            )
        for i in np.flatnonzero(share > 0.0).tolist():
            findings.append(DeadRois(str(ids[i]), str(sites[i]), atlas, None, None, float(share[i])))
    return findings


@dataclass(frozen=True)
class SiteCounts:
    """Participants of one site, as supplied and without the proposed exclusions."""

    site: str
    before: tuple[int, int]  # participants with label 0 and label 1, each counted once however many scans there are
    after: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.site} {self.after[0]}/{self.after[1]}"


@dataclass(frozen=True)
class LabelBySite:
    """Whether the site predicts the label."""

    cramers_v: float | None = None
    by_chance: float | None = None  # cramer's V expected if site and label were independent; not 0 in a finite cohort
    p: float | None = None  # p value of the chi-square test of independence


@dataclass(frozen=True)
class LengthBySite:
    """Whether the scan length predicts the site."""

    shortest: int  # frames of the shortest and the longest scan
    longest: int
    eta_squared: float | None
    differs_inside: dict[str, tuple[int, int]]  # sites whose scans differ in length
    all_shortest: dict[str, int]


@dataclass(frozen=True)
class LengthByLabel:
    """Whether the scan length predicts the label."""

    auc: float | None  # AUC with the number of frames as the score for label 1, all sites pooled. None with one class
    p: float | None  # p value of the two-sided Mann-Whitney test, all sites pooled
    auc_inside: float | None  # mean of the AUCs within sites, over the sites that have both classes and several lengths
    auc_by_site: dict[str, float]  # the AUCs that enter this mean


@dataclass(frozen=True)
class CovariateByLabel:
    """Whether a covariate predicts the label, over all sites and within them."""

    column: str
    kind: str
    n: tuple[int, int]  # participants of each class that have a value
    typical: tuple[float, float]
    value: str  # that value; empty for a number
    auc: float
    p: float
    auc_inside: float | None
    p_inside: float | None
    n_sites: int
    warn: bool = False


@dataclass(frozen=True)
class RepetitionTime:
    """Repetition times of each site, from the column ``tr`` of the participants table."""

    unknown: int  # scans without a repetition time
    by_site: dict[str, dict[str, int]]  # seconds are text, rounded to milliseconds
    differs_inside: tuple[str, ...]  # sites with several repetition times

    @property
    def sites_by_value(self) -> dict[str, list[str]]:
        """Sites that use each repetition time, in increasing order of the time."""
        values = sorted({tr for counts in self.by_site.values() for tr in counts}, key=float)
        return {tr: [site for site, counts in self.by_site.items() if tr in counts] for tr in values}


def count_classes(labels: np.ndarray) -> tuple[int, int]:
    """Count the labels that are 0 and those that are 1.

    Shapes: labels [N].
    """
    return int((labels == 0).sum()), int((labels == 1).sum())


def count_by_site(before: Cohort, after: Cohort) -> tuple[SiteCounts, ...]:
    """Count the participants of each site and class, of cohorts with one scan of each."""
    return tuple(
        SiteCounts(str(s), *(count_classes(part.labels[part.sites == s]) for part in (before, after)))
        for s in np.unique(before.sites)
    )


def select_first_scans(cohort: Cohort) -> Cohort:
    """Select the first scan of each participant, so that counts and tests are about participants."""
    return cohort.select(index_participants(cohort.participant_ids)[0])


def measure_label_by_site(cohort: Cohort) -> LabelBySite:
    """Measure the association of site and label by Cramer's V, with a chi-square test."""
    from scipy.stats import chi2_contingency

    table = pd.crosstab(cohort.sites, cohort.labels).to_numpy()
    if min(table.shape) < 2:
        return LabelBySite()
    test = chi2_contingency(table, correction=False)
    size = table.sum() * (min(table.shape) - 1)
    return LabelBySite(
        cramers_v=float(np.sqrt(test.statistic / size)),
        # the chi-square statistic of independent variables is n / (n - 1) times its degrees of freedom on average
        by_chance=float(min(1.0, np.sqrt(test.dof / size))),
        p=float(test.pvalue),
    )


def measure_length_by_site(cohort: Cohort) -> LengthBySite:
    """Measure how scan length differs between and within sites. All acquired frames count, whether valid or not."""
    lengths = pd.Series(cohort.n_frames.astype(np.float64))
    groups = lengths.groupby(cohort.sites)
    total = float(((lengths - lengths.mean()) ** 2).sum())
    between = float((groups.size() * (groups.mean() - lengths.mean()) ** 2).sum())
    low, high = groups.min(), groups.max()
    shortest = low[(high == lengths.min()) & (lengths.max() > lengths.min())].index
    return LengthBySite(
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        eta_squared=min(1.0, between / total) if total > 0 else None,
        differs_inside={str(s): (int(low[s]), int(high[s])) for s in low.index[low < high]},
        all_shortest={str(s): int(groups.size()[s]) for s in shortest},
    )


def measure_length_by_label(cohort: Cohort) -> LengthByLabel:
    """Measure how well scan length predicts the label, over all sites and within each."""
    sites, lengths, labels = cohort.sites, cohort.n_frames, cohort.labels
    within: dict[str, float] = {}
    for site in np.unique(sites):
        at_site = sites == site
        auc, _ = _compute_auc(lengths[at_site], labels[at_site])
        if auc is not None and len(np.unique(lengths[at_site])) > 1:
            within[str(site)] = auc
    auc, p = _compute_auc(lengths, labels)
    return LengthByLabel(auc, p, float(np.mean(list(within.values()))) if within else None, within)


FEWEST_VALUES = 3  # participants of each class that must have a value for a covariate to be compared
MOST_CATEGORIES = 20  # text with more different values is no category
SIGNIFICANCE = 0.05
_IDENTIFIER = re.compile(r"(.*[_ ])?(id|uid|guid|index|file|filename|name|unnamed: ?0)", re.IGNORECASE)


def measure_covariates_by_label(cohort: Cohort, threshold: float) -> tuple[CovariateByLabel, ...]:
    """Measure how well each covariate, and the scan length, predicts the label by itself."""
    measured = [_measure_covariate(cohort, *covariate) for covariate in _list_covariates(cohort)]
    warned = []
    for one in measured:
        auc, p = (one.auc, one.p) if one.auc_inside is None else (one.auc_inside, one.p_inside)
        differs = auc is not None and abs(auc - 0.5) >= threshold - 0.5
        warned.append(replace(one, warn=differs and (1.0 if p is None else p) * len(measured) < SIGNIFICANCE))
    return tuple(warned)


def _list_covariates(cohort: Cohort) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """List name, values (numbers or text) and participants with a value of each column that can be compared."""
    source = cohort.provenance.get("options")
    own_label = str(source.get("label_column")) if isinstance(source, dict) else ""
    left_out = {*REQUIRED_COLUMNS, *TEXT_COLUMNS, FC_ONLY, cohort.label_covariate or own_label}
    left_out |= {"n_frames"} if FC_ONLY in cohort.participants else set()
    for column in map(str, cohort.participants.columns):
        values = cohort.participants[column]
        read = ColumnValues(values, column, means_sex(column))
        known = np.array([value is not None for value in read.values])
        counts = count_classes(cohort.labels[known])
        if column in left_out or column.startswith(DEAD_FRACTION_PREFIX) or min(counts) < FEWEST_VALUES:
            continue
        text = [value for value in read.values if value is not None]
        n_values = len(read.spellings)
        if n_values < 2 or (n_values == known.sum() and _IDENTIFIER.fullmatch(column)):
            continue
        if read.are_numbers:
            yield column, read_numbers(values[known]).to_numpy(), known
        elif n_values <= MOST_CATEGORIES and not _names_classes(np.array(text), cohort.labels[known], cohort.classes):
            yield column, np.array(list(map(read.name, text))), known


def _names_classes(text: np.ndarray, labels: np.ndarray, classes: tuple[str, str]) -> bool:
    """Return whether a column states the class in words, as sex does if the classes are the sexes."""
    by_class = [set(text[labels == label]) for label in (0, 1)]
    folded = [{fold_value(value, is_sex=True) for value in values} for values in by_class]
    return folded == [{fold_value(name, is_sex=True)} for name in classes]


def _measure_covariate(cohort: Cohort, column: str, values: np.ndarray, known: np.ndarray) -> CovariateByLabel:
    """Measure one covariate over all sites, and within those that have both classes."""
    labels, sites = cohort.labels[known], cohort.sites[known]
    is_number = values.dtype.kind == "f"
    everywhere = np.zeros(len(labels), dtype=np.int64)
    _, site = np.unique(sites, return_inverse=True)
    n_ones, n_all = np.bincount(site, labels), np.bincount(site)
    both = ((n_ones > 0) & (n_ones < n_all))[site]
    auc, p, shares = _compare_classes(values, labels, everywhere)
    inside = _compare_classes(values[both], labels[both], site[both]) if both.any() else (None, None, {})
    value = "" if is_number else max(shares, key=lambda name: abs(shares[name]))
    typical = [float(np.mean(values[labels == k] if is_number else values[labels == k] == value)) for k in (0, 1)]
    kind, n, n_sites = "number" if is_number else "category", count_classes(labels), len(set(site[both]))
    return CovariateByLabel(
        column, kind, n, (typical[0], typical[1]), str(value), auc, p, inside[0], inside[1], n_sites
    )


def _compare_classes(
    values: np.ndarray, labels: np.ndarray, strata: np.ndarray
) -> tuple[float, float, dict[str, float]]:
    """Compare the classes inside strata that have both: AUC, p value and, of a category, differences of shares."""
    from scipy.stats import chi2, rankdata

    is_number = values.dtype.kind == "f"
    names = [""] if is_number else sorted(set(values))
    scores = np.zeros((len(values), len(names)))
    difference = np.zeros(len(names))
    covariance, total = np.zeros((len(names), len(names))), 0.0
    for stratum in np.unique(strata):
        inside = np.flatnonzero(strata == stratum)
        n, n1 = len(inside), int(labels[inside].sum())
        n0 = n - n1
        if is_number:  # ranks from 0 to 1: their means differ by AUC - 0.5
            scores[inside, 0] = (rankdata(values[inside]) - 0.5) / n
        else:
            scores[inside] = values[inside, None] == np.array(names)
        x, ones = scores[inside], labels[inside] == 1
        contrast = x[ones].mean(axis=0) - x[~ones].mean(axis=0)
        weight = n0 * n1 / n
        difference += weight * contrast
        covariance += weight / (n - 1) * (x - x.mean(axis=0)).T @ (x - x.mean(axis=0))
        total += weight
    rank = int(np.linalg.matrix_rank(covariance))
    p = float(chi2.sf(difference @ np.linalg.pinv(covariance) @ difference, rank)) if rank else 1.0
    difference /= total
    if is_number:
        return 0.5 + float(difference[0]), p, {}
    return 0.5 + float(np.abs(difference).sum()) / 4, p, dict(zip(names, difference.tolist(), strict=True))


def summarise_repetition_times(cohort: Cohort) -> RepetitionTime | None:
    """Count the repetition times of each site.

    Returns None if the cohort states no repetition time.
    """
    tr = read_numbers(cohort.participants.get("tr", pd.Series(np.nan, range(len(cohort)))))
    stated = tr.notna().to_numpy()
    if not stated.any():
        return None
    by_site: dict[str, dict[str, int]] = {}
    for site, own in tr[stated].round(3).groupby(cohort.sites[stated]):
        by_site[str(site)] = {f"{value:g}": int(n) for value, n in own.value_counts().sort_index().items()}
    several = tuple(site for site, values in by_site.items() if len(values) > 1)
    return RepetitionTime(int((~stated).sum()), by_site, several)


def _compute_auc(score: np.ndarray, label: np.ndarray) -> tuple[float | None, float | None]:
    """Compute the AUC and its Mann-Whitney p value; both are None with one class."""
    from scipy.stats import mannwhitneyu

    one, zero = score[label == 1], score[label == 0]
    if len(one) == 0 or len(zero) == 0:
        return None, None
    if len(np.unique(score)) == 1:  # the test divides by the spread of the ranks
        return 0.5, 1.0
    test = mannwhitneyu(one, zero, alternative="two-sided", method="asymptotic")
    return float(test.statistic / (len(one) * len(zero))), float(test.pvalue)
