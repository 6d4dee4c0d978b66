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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ...domains import Domain, Share
from ...settings import check_domains
from .findings import DEAD_FRACTION_PREFIX, DeadRois, DuplicatePair, NonFiniteFrames, TooShort

__all__ = ["DEFAULT_RULES", "AuditRules", "propose_exclusions"]


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
    """

    max_dead_fraction: Share = 0.25
    duplicate_correlation: Share = 0.5
    min_frames: Annotated[int, Domain(4, 1_000_000)] = 40
    min_class: Annotated[int, Domain(0, 1_000_000)] = 5

    def __post_init__(self) -> None:
        check_domains(self, "audit.")


DEFAULT_RULES = AuditRules()


def propose_exclusions(
    rules: AuditRules,
    non_finite: Iterable[NonFiniteFrames],
    dead: Iterable[DeadRois],
    short: Iterable[TooShort],
    duplicates: Sequence[DuplicatePair],
    label_of: Mapping[str, int],
) -> dict[str, list[str]]:
    """Propose the participants to exclude, by the rule of this module.

    Parameters
    ----------
    rules : AuditRules
    non_finite : iterable of NonFiniteFrames
    dead : iterable of DeadRois
    short : iterable of TooShort
    duplicates : sequence of DuplicatePair
        Findings in the cohort and its companions.
    label_of : mapping of participant to label
        Read only for participants in ``duplicates``.

    Returns
    -------
    dict of participant to list of str
        All reasons of each excluded participant, sorted by participant.

    Notes
    -----
    A job stores the reasons in its plan and compares plans word by word when it is resumed: rewording a reason makes
    unfinished jobs impossible to resume.
    """
    reasons: dict[str, list[str]] = {}
    empty = set()
    for scan in non_finite:
        if scan.empty:
            empty.add((scan.participant_id, scan.atlas))
            reasons.setdefault(scan.participant_id, []).append(f"no finite value in {scan.atlas}")
    for rois in dead:
        if rois.share > rules.max_dead_fraction and (rois.participant_id, rois.atlas) not in empty:
            reasons.setdefault(rois.participant_id, []).append(_explain_dead_rois(rois))
    for frames in short:
        if (frames.participant_id, frames.atlas) not in empty:
            reasons.setdefault(frames.participant_id, []).append(f"{frames.n_valid} valid frames in {frames.atlas}")
    for participant, reason in _explain_duplicates(duplicates, label_of, set(reasons)).items():
        reasons.setdefault(participant, []).append(reason)
    return {participant: reasons[participant] for participant in sorted(reasons)}


def _explain_dead_rois(rois: DeadRois) -> str:
    if rois.n_rois is None:
        return (
            f"{rois.share:.0%} of the ROIs without signal in {rois.atlas} (column {DEAD_FRACTION_PREFIX}{rois.atlas})"
        )
    return f"{rois.n_rois} of {rois.of} ROIs without signal in {rois.atlas}"


def _explain_duplicates(
    pairs: Sequence[DuplicatePair], label_of: Mapping[str, int], excluded: set[str]
) -> dict[str, str]:
    """Apply rule 4: the reason of each copy that is excluded."""
    site_of = {
        participant: site
        for pair in pairs
        for participant, site in zip((pair.first, pair.second), pair.sites, strict=True)
    }
    reasons: dict[str, str] = {}
    for copies in _group_copies(pairs):
        conflicts = [
            name
            for name, value_of in (("labels", label_of), ("sites", site_of))
            if len({value_of[copy] for copy in copies}) > 1
        ]
        retained = next((copy for copy in copies if copy not in excluded), copies[0])
        for copy in copies:
            if conflicts:
                others = [other for other in copies if other != copy]
                reasons[copy] = f"one scan under different {' and '.join(conflicts)}, with {_join_names(others)}"
            elif copy != retained:
                reasons[copy] = f"the same scan as {retained}" + ("" if retained in excluded else ", which stays")
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
