"""Exclusions: which scans should not enter an analysis, and why.

The rule is fixed before anything is trained and reads no label, but to see that two copies of one scan disagree.
A scan is excluded when

1. it holds no finite value;
2. more than ``max_dead_fraction`` of its ROIs have no signal, in any atlas supplied: the cohort's own, that of a
   companion (the same participants in another parcellation) or one named by a column ``dead_fraction_<atlas>``;
3. fewer than ``min_frames`` of its frames are valid, in the cohort or a companion;
4. it is in the cohort more than once. Where all copies have one label and one site, the first participant in sorted
   order that nothing else excludes stays and the others go. Where labels or sites disagree none can be trusted, the
   label to learn from nor the site to hold out, and all go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ...errors import BrioError
from .findings import COLUMN, DeadRois, DuplicatePair, NonFiniteFrames, TooShort

__all__ = ["DEFAULT_RULES", "AuditRules", "propose_exclusions"]


@dataclass(frozen=True)
class AuditRules:
    """When a scan is excluded and when a site is named.

    Attributes
    ----------
    max_dead_fraction : float
        A scan is excluded when over this share of its ROIs has no signal in any atlas supplied.
    duplicate_correlation : float
        Two scans are one when the median over ROIs of their correlation over time is above this.
    min_frames : int
        A scan is excluded with fewer valid frames: the block-length rule searches lags up to half the scan, and below
        40 frames that is less than three times the horizon of about 7 frames measured on scans at rest.
    min_class : int
        A site with fewer subjects than this in a class is named, not excluded.
    """

    max_dead_fraction: float = 0.25
    duplicate_correlation: float = 0.5
    min_frames: int = 40
    min_class: int = 5

    def __post_init__(self) -> None:
        for name in ("max_dead_fraction", "duplicate_correlation"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise BrioError(f"audit rule {name} is {getattr(self, name)}; it must lie between 0 and 1")
        if self.min_frames < 4:
            raise BrioError(
                f"audit rule min_frames is {self.min_frames}; a correlation over time needs at least 4 frames"
            )


DEFAULT_RULES = AuditRules()


def propose_exclusions(
    rules: AuditRules,
    non_finite: Iterable[NonFiniteFrames],
    dead: Iterable[DeadRois],
    short: Iterable[TooShort],
    duplicates: Sequence[DuplicatePair],
    label_of: Mapping[str, int],
) -> dict[str, list[str]]:
    """Participants to exclude, sorted, with all their reasons; the rule is that of the module.

    Parameters
    ----------
    rules : AuditRules
    non_finite, dead, short, duplicates
        Findings in the cohort and its companions.
    label_of : mapping of participant to label
        Read for participants in ``duplicates`` alone.
    """
    reasons: dict[str, list[str]] = {}
    empty = set()
    for scan in non_finite:
        if scan.empty:
            empty.add((scan.participant_id, scan.atlas))
            reasons.setdefault(scan.participant_id, []).append(f"no finite value in {scan.atlas}")
    for rois in dead:
        if rois.share > rules.max_dead_fraction and (rois.participant_id, rois.atlas) not in empty:
            reasons.setdefault(rois.participant_id, []).append(_dead_reason(rois))
    for frames in short:
        if (frames.participant_id, frames.atlas) not in empty:
            reasons.setdefault(frames.participant_id, []).append(f"{frames.n_valid} valid frames in {frames.atlas}")
    for who, reason in _duplicate_reasons(duplicates, label_of, set(reasons)).items():
        reasons.setdefault(who, []).append(reason)
    return {who: reasons[who] for who in sorted(reasons)}


def _dead_reason(rois: DeadRois) -> str:
    if rois.n_rois is None:
        return f"{rois.share:.0%} of the ROIs without signal in {rois.atlas} (column {COLUMN}{rois.atlas})"
    return f"{rois.n_rois} of {rois.of} ROIs without signal in {rois.atlas}"


def _duplicate_reasons(
    pairs: Sequence[DuplicatePair], label_of: Mapping[str, int], excluded: set[str]
) -> dict[str, str]:
    """Who goes of each group of copies, rule 4; pairs that share a participant form one group."""
    site_of = {who: site for pair in pairs for who, site in zip((pair.first, pair.second), pair.sites, strict=True)}
    reasons: dict[str, str] = {}
    for copies in _groups(pairs):
        doubts = [name for name, of in (("labels", label_of), ("sites", site_of)) if len({of[c] for c in copies}) > 1]
        stays = next((who for who in copies if who not in excluded), copies[0])
        for who in copies:
            if doubts:
                others = [other for other in copies if other != who]
                reasons[who] = f"one scan under different {' and '.join(doubts)}, with {_listed(others)}"
            elif who != stays:
                reasons[who] = f"the same scan as {stays}" + ("" if stays in excluded else ", which stays")
    return reasons


def _groups(pairs: Sequence[DuplicatePair]) -> list[list[str]]:
    """Participants that are linked by pairs, each group sorted."""
    members = sorted({who for pair in pairs for who in (pair.first, pair.second)})
    if not members:
        return []
    place = {who: k for k, who in enumerate(members)}
    links = ([place[pair.first] for pair in pairs], [place[pair.second] for pair in pairs])
    graph = coo_array((np.ones(len(pairs)), links), shape=(len(members), len(members)))
    n_groups, group = connected_components(graph, directed=False)
    return [[members[k] for k in np.flatnonzero(group == g)] for g in range(n_groups)]


def _listed(names: Sequence[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
