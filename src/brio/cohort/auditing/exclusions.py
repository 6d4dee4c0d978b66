"""Propose which scans to exclude from an analysis, with reasons.

The rule is fixed before any training. It reads labels for one purpose only: to see whether copies of a scan disagree.
A scan is excluded if

1. it holds no finite value;
2. more than ``max_dead_fraction`` of its ROIs have no signal in any atlas: that of the cohort, that of a companion (the
   same participants in another parcellation) or one named by a participants column ``dead_fraction_<atlas>``;
3. fewer than ``min_frames`` of its frames are valid, in the cohort or a companion;
4. it is a duplicate. If all copies have one label and one site, the first participant in sorted order that nothing else
   excludes is kept and the others are excluded. If labels or sites disagree, none of the copies can be trusted, and
   all are excluded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from ...domains import Domain, Share
from ...schemas import OMIT_NONE
from ...settings import check_domains
from .findings import DEAD_FRACTION_PREFIX, DeadRois, DuplicatePair, NonFiniteFrames, TooShort


@dataclass(frozen=True)
class AuditRules:
    """Thresholds of the audit.

    Attributes
    ----------
    max_dead_fraction : float
        A scan is excluded if more than this share of its ROIs has no signal in any atlas.
    duplicate_correlation : float
        Two scans are duplicates if the median over ROIs of their rank correlation over time exceeds this.
    min_frames : int
        A scan with fewer valid frames is excluded. The block-length rule searches lags up to half the scan; below 40
        frames that is less than three times the horizon of about 7 frames measured on resting-state scans.
    min_class : int
        A site with fewer participants than this in a class is reported, not excluded.
    covariate_auc : float
        A covariate that separates the classes at least so well within sites is a warning, if that is significant. For a
        category with two values, 0.57 is a difference of 14 percentage points, for a normal covariate 0.25 SD.
    """

    max_dead_fraction: Share = 0.25
    duplicate_correlation: Share = 0.5
    min_frames: Annotated[int, Domain(4, 1_000_000)] = 40
    min_class: Annotated[int, Domain(0, 1_000_000)] = 5
    covariate_auc: Annotated[float, Domain(0.5, 1.0)] = 0.57

    def __post_init__(self) -> None:
        check_domains(self, "audit.")


DEFAULT_RULES = AuditRules()


@dataclass(frozen=True)
class ExclusionReason:
    """Why a scan is excluded: a code with its parameters, as files have it; ``str`` writes the sentence."""

    code: Literal["empty", "dead_rois", "short", "duplicate", "conflict", "recorded"]
    atlas: str | None = field(default=None, metadata=OMIT_NONE)  # of empty, dead_rois and short
    n: int | None = field(default=None, metadata=OMIT_NONE)
    of: int | None = field(default=None, metadata=OMIT_NONE)
    share: float | None = field(default=None, metadata=OMIT_NONE)
    copies: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    stays: bool | None = field(default=None, metadata=OMIT_NONE)  # whether the copy that comes first is used
    differ: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    text: str | None = field(default=None, metadata=OMIT_NONE)

    def __str__(self) -> str:
        copies = self.copies or ()
        if self.code == "empty":
            return f"no finite value in {self.atlas}"
        if self.code == "dead_rois" and self.share is not None:
            column = f"{DEAD_FRACTION_PREFIX}{self.atlas}"
            return f"{self.share:.0%} of the ROIs without signal in {self.atlas} (column {column})"
        if self.code == "dead_rois":
            return f"{self.n} of {self.of} ROIs without signal in {self.atlas}"
        if self.code == "short":
            return f"{self.n} valid frames in {self.atlas}"
        if self.code == "duplicate":
            return f"the same scan as {_join_names(copies)}" + (", which stays" if self.stays else "")
        if self.code == "conflict":
            return f"one scan under different {' and '.join(self.differ or ())}, with {_join_names(copies)}"
        return self.text or ""


def propose_exclusions(
    rules: AuditRules,
    non_finite: Iterable[NonFiniteFrames],
    dead: Iterable[DeadRois],
    short: Iterable[TooShort],
    duplicates: Sequence[DuplicatePair],
    label_of: Mapping[str, Hashable],
) -> dict[str, tuple[ExclusionReason, ...]]:
    """Propose the participants to exclude, by the rule of this module."""
    reasons: dict[str, list[ExclusionReason]] = {}
    empty = set()
    for scan in non_finite:
        if scan.empty:
            empty.add((scan.participant_id, scan.atlas))
            reasons.setdefault(scan.participant_id, []).append(ExclusionReason("empty", scan.atlas))
    for rois in dead:
        if rois.share > rules.max_dead_fraction and (rois.participant_id, rois.atlas) not in empty:
            reasons.setdefault(rois.participant_id, []).append(_explain_dead_rois(rois))
    for frames in short:
        if (frames.participant_id, frames.atlas) not in empty:
            reasons.setdefault(frames.participant_id, []).append(
                ExclusionReason("short", frames.atlas, n=frames.n_valid)
            )
    for participant, reason in _explain_duplicates(duplicates, label_of, set(reasons)).items():
        reasons.setdefault(participant, []).append(reason)
    return {participant: tuple(reasons[participant]) for participant in sorted(reasons)}


def _explain_dead_rois(rois: DeadRois) -> ExclusionReason:
    stated = rois.share if rois.n_rois is None else None
    return ExclusionReason("dead_rois", rois.atlas, n=rois.n_rois, of=rois.of, share=stated)


def _explain_duplicates(
    pairs: Sequence[DuplicatePair], label_of: Mapping[str, Hashable], excluded: set[str]
) -> dict[str, ExclusionReason]:
    """Apply rule 4: the reason of each copy that is excluded."""
    site_of = {
        participant: site
        for pair in pairs
        for participant, site in zip((pair.first, pair.second), pair.sites, strict=True)
    }
    reasons: dict[str, ExclusionReason] = {}
    for copies in _group_copies(pairs):
        conflicts = tuple(
            name
            for name, value_of in (("labels", label_of), ("sites", site_of))
            if len({value_of[copy] for copy in copies}) > 1
        )
        retained = next((copy for copy in copies if copy not in excluded), copies[0])
        for copy in copies:
            if conflicts:
                others = tuple(other for other in copies if other != copy)
                reasons[copy] = ExclusionReason("conflict", copies=others, differ=conflicts)
            elif copy != retained:
                reasons[copy] = ExclusionReason("duplicate", copies=(retained,), stays=retained not in excluded)
    return reasons


def _group_copies(pairs: Sequence[DuplicatePair]) -> list[list[str]]:
    """Group participants that are linked by pairs, directly or in a chain; each group is sorted."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    members = sorted({participant for pair in pairs for participant in (pair.first, pair.second)})
    if not members:
        return []
    position = {participant: k for k, participant in enumerate(members)}
    links = ([position[pair.first] for pair in pairs], [position[pair.second] for pair in pairs])
    graph = coo_array((np.ones(len(pairs)), links), shape=(len(members), len(members)))
    n_groups, group = connected_components(graph, directed=False)
    return [[members[k] for k in np.flatnonzero(group == g)] for g in range(n_groups)]


def _join_names(names: Sequence[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
