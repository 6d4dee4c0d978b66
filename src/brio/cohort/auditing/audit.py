"""Audit: defects of a cohort that would end up in a result, and the scans that should not enter one.

The exclusion rule is in :mod:`brio.cohort.auditing.exclusions`. Everything else is reported and left to the reader:
frames with missing values, patterns of ROIs without signal that give the site away, sites with one class or few
subjects in one, and label, scan length and repetition time by site. The figures about sites describe the cohort
that remains after the proposed exclusions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import BrioError
from ..cohort import Cohort
from .associations import (
    LabelBySite,
    LengthByLabel,
    LengthBySite,
    RepetitionTime,
    SiteCounts,
    class_counts,
    label_by_site,
    length_by_label,
    length_by_site,
    repetition_time,
    site_counts,
)
from .coverage import PatternTest, pattern_test, read_coverage
from .duplicates import find_duplicates
from .exclusions import DEFAULT_RULES, AuditRules, propose_exclusions
from .findings import (
    DeadRois,
    DuplicatePair,
    NonFiniteFrames,
    TooShort,
    dead_rois,
    duplicate_pair,
    non_finite_frames,
    stated_dead_rois,
    too_short,
)

__all__ = ["Audit", "AuditRules", "audit"]


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found; made by :func:`audit`.

    Attributes
    ----------
    cohort, fingerprint : str
        Name and fingerprint of the audited cohort.
    atlases : dict of str to int
        Atlases read, the cohort's own first, and the participants of the cohort found in each.
    classes : tuple of two str
        What labels 0 and 1 mean.
    rules : AuditRules
    n_before, n_after : int
        Scans as supplied and without the proposed exclusions.
    classes_before, classes_after : tuple of two int
        The same for the two classes.
    exclusions : dict of participant to list of str
        Proposed exclusions with all their reasons.
    duplicates : tuple of DuplicatePair
    next_closest : dict of atlas to DuplicatePair
        The most similar pair that is not a duplicate.
    not_compared : int
        Similar pairs left out of the search for duplicates because there were too many.
    dead_rois : tuple of DeadRois
    dead_by_site : dict of atlas to dict of site to int
        Scans with at least one ROI without signal, most first.
    dead_patterns : dict of atlas to PatternTest
        Whether the pattern of ROIs without signal tells the site.
    non_finite : tuple of NonFiniteFrames
    too_short : tuple of TooShort
    sites : tuple of SiteCounts
    one_class, small_class : tuple of str
        Sites that keep one class only, and sites that keep both but one below ``min_class``.
    label_by_site, length_by_site, length_by_label, repetition_time
        See :mod:`brio.cohort.auditing.associations`; None where nothing remains or nothing is known.
    keep : ndarray of bool, shape [N]
        The scans that stay: ``cohort.select(found.keep)``.
    """

    cohort: str
    fingerprint: str
    atlases: dict[str, int]
    classes: tuple[str, str]
    rules: AuditRules
    n_before: int
    n_after: int
    classes_before: tuple[int, int]
    classes_after: tuple[int, int]
    exclusions: dict[str, list[str]]
    duplicates: tuple[DuplicatePair, ...]
    next_closest: dict[str, DuplicatePair]
    not_compared: int
    dead_rois: tuple[DeadRois, ...]
    dead_by_site: dict[str, dict[str, int]]
    dead_patterns: dict[str, PatternTest]
    non_finite: tuple[NonFiniteFrames, ...]
    too_short: tuple[TooShort, ...]
    sites: tuple[SiteCounts, ...]
    one_class: tuple[str, ...]
    small_class: tuple[str, ...]
    label_by_site: LabelBySite | None
    length_by_site: LengthBySite | None
    length_by_label: LengthByLabel | None
    repetition_time: RepetitionTime | None
    site_of: dict[str, str] = field(repr=False)
    keep: np.ndarray = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Everything found, as dictionaries and lists that ``json.dumps`` takes."""
        return {name: value for name, value in asdict(self).items() if name not in ("keep", "site_of")}

    def lines(self) -> list[str]:
        """What was found as lines of plain text; long lists are summarised by site."""
        from .text import audit_lines

        return audit_lines(self)


def audit(cohort: Cohort, rules: AuditRules = DEFAULT_RULES, companions: Sequence[Cohort] = ()) -> Audit:
    """Look for defects of a cohort and propose the scans to exclude.

    Parameters
    ----------
    cohort : Cohort
    rules : AuditRules
    companions : sequence of Cohort
        The same participants in other parcellations. A scan that fails there is excluded here too: parcels outside
        the field of view may escape one atlas and not the other.

    Examples
    --------
    >>> scans = [np.random.default_rng(i).normal(size=(60, 20)) for i in range(8)]
    >>> scans[2][:, :9] = 0.0
    >>> scans[7] = scans[5].copy()
    >>> found = audit(Cohort.from_scans(scans, site=list("AAAABBBB"), label=[0, 1] * 4))
    >>> found.exclusions
    {'s00003': ['9 of 20 ROIs without signal in unknown'], 's00008': ['the same scan as s00006, which stays']}
    """
    sources = _sources(cohort, companions)
    non_finite: list[NonFiniteFrames] = []
    dead: list[DeadRois] = []
    short: list[TooShort] = []
    patterns: dict[str, PatternTest] = {}
    pairs: dict[tuple[str, str], DuplicatePair] = {}
    next_closest: dict[str, DuplicatePair] = {}
    not_compared = 0
    for atlas, source in sources.items():
        coverage = read_coverage(source)
        non_finite += non_finite_frames(source, coverage, atlas)
        dead += dead_rois(source, coverage, atlas)
        short += too_short(source, coverage, atlas, rules.min_frames)
        pattern = pattern_test(coverage.alive, source.sites, source.ids)
        if pattern is not None:
            patterns[atlas] = pattern
        search = find_duplicates(source, coverage, rules.duplicate_correlation, rules.min_frames)
        for match in search.matches:
            pair = duplicate_pair(source, match, atlas, "identical" if match.identical else "near")
            known = pairs.get((pair.first, pair.second))
            pairs[pair.first, pair.second] = replace(known, atlases=(*known.atlases, atlas)) if known else pair
        if search.next_closest is not None:
            next_closest[atlas] = duplicate_pair(source, search.next_closest, atlas, "different")
        not_compared += search.not_compared
    dead += stated_dead_rois(cohort, sources)
    duplicates = tuple(sorted(pairs.values(), key=lambda pair: (pair.first, pair.second)))

    ids = cohort.ids.tolist()
    label_of = dict(zip(ids, cohort.labels.tolist(), strict=True))
    exclusions = propose_exclusions(rules, non_finite, dead, short, duplicates, label_of)
    keep = np.array([who not in exclusions for who in ids])
    kept = cohort.select(keep)
    counts = site_counts(cohort, keep)
    return Audit(
        cohort=cohort.name,
        fingerprint=cohort.fingerprint,
        atlases={atlas: len(source) for atlas, source in sources.items()},
        classes=cohort.classes,
        rules=rules,
        n_before=len(cohort),
        n_after=len(kept),
        classes_before=class_counts(cohort.labels),
        classes_after=class_counts(kept.labels),
        exclusions=exclusions,
        duplicates=duplicates,
        next_closest=next_closest,
        not_compared=not_compared,
        dead_rois=tuple(dead),
        dead_by_site=_dead_by_site(dead),
        dead_patterns=patterns,
        non_finite=tuple(non_finite),
        too_short=tuple(short),
        sites=counts,
        one_class=tuple(c.site for c in counts if min(c.after) == 0 < max(c.after)),
        small_class=tuple(c.site for c in counts if 0 < min(c.after) < rules.min_class),
        label_by_site=label_by_site(kept) if len(kept) else None,
        length_by_site=length_by_site(kept) if len(kept) else None,
        length_by_label=length_by_label(kept) if len(kept) else None,
        repetition_time=repetition_time(kept),
        site_of=dict(zip(ids, cohort.sites.tolist(), strict=True)),
        keep=keep,
    )


def _sources(cohort: Cohort, companions: Sequence[Cohort]) -> dict[str, Cohort]:
    """The cohort and its companions by atlas, each companion reduced to the participants of the cohort."""
    sources = {cohort.atlas.name: cohort}
    own = cohort.participants.set_index("participant_id")
    for companion in companions:
        shared = companion.select(np.isin(companion.ids, cohort.ids))
        if len(shared) == 0:
            raise BrioError(
                f"companion '{companion.name}' has no participant of '{cohort.name}'; compare participant_id"
            )
        for column in ("site", "label"):
            here = own.loc[shared.ids, column].to_numpy()
            there = shared.participants[column].to_numpy()
            if (here != there).any():
                k = int(np.flatnonzero(here != there)[0])
                raise BrioError(
                    f"participant {shared.ids[k]} has {column} {there[k]} in companion '{companion.name}' and "
                    f"{here[k]} in '{cohort.name}'; correct the participants of one of them"
                )
        name = companion.atlas.name
        while name in sources:
            name = f"{name} ({companion.name})"
        sources[name] = shared
    return sources


def _dead_by_site(dead: Sequence[DeadRois]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for finding in dead:
        counts.setdefault(finding.atlas, Counter())[finding.site] += 1
    return {atlas: dict(sorted(c.items(), key=lambda item: (-item[1], item[0]))) for atlas, c in counts.items()}
