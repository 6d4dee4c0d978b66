"""Audit a cohort: find defects that would distort a result, and propose which scans to exclude.

The exclusion rule is in :mod:`brio.cohort.auditing.exclusions`. Everything else is reported and left to the reader:
frames with missing values, patterns of ROIs without signal that reveal the site, sites with one class or few
participants in one, associations of label, scan length and repetition time with the site, and of covariates with the
label. Numbers about sites
describe the cohort that remains after the proposed exclusions. Repeated scans of a participant are not duplicates: only
the same scan under two names is one. Counts by class and site, and tests, are about participants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BrioError
from ...schemas import to_json
from ..cohort import FORMER_LABEL, Cohort
from ..given_fc import holds_fc
from ..sessions import index_participants
from .associations import (
    CovariateByLabel,
    LabelBySite,
    LengthByLabel,
    LengthBySite,
    RepetitionTime,
    SiteCounts,
    count_by_site,
    count_classes,
    measure_covariates_by_label,
    measure_label_by_site,
    measure_length_by_label,
    measure_length_by_site,
    select_first_scans,
    summarise_repetition_times,
)
from .coverage import PatternTest, predict_site_from_patterns, read_coverage
from .duplicates import find_duplicates, find_identical_connectomes
from .exclusions import DEFAULT_RULES, AuditRules, ExclusionReason, propose_exclusions
from .findings import (
    DeadRois,
    DuplicatePair,
    NonFiniteFrames,
    TooShort,
    describe_pair,
    find_dead_rois,
    find_non_finite_frames,
    find_short_scans,
    read_stated_dead_rois,
)

FC_CHECKS = (
    "scans that are alike but not identical",
    "frames with missing values",
    "short scans",
    "how scan length depends on site and label",
)
"""What needs the frames of scans."""


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Result of :func:`audit`. :func:`brio.cohort.format_audit` turns it into text.

    Shapes: keep [N].
    """

    cohort: str  # name and fingerprint of the audited cohort
    fingerprint: str
    atlases: dict[str, int]
    classes: tuple[str, str]  # names of the labels 0 and 1
    rules: AuditRules
    n_before: int  # scans as supplied, and without the proposed exclusions
    n_after: int
    classes_before: tuple[int, int]  # participants of each class, before and after
    classes_after: tuple[int, int]
    exclusions: dict[str, tuple[ExclusionReason, ...]]
    duplicates: tuple[DuplicatePair, ...]
    next_closest: dict[str, DuplicatePair]  # the most similar pair that is not a duplicate
    not_compared: int  # similar pairs that were not compared in full because there were too many
    dead_rois: tuple[DeadRois, ...]
    dead_by_site: dict[str, dict[str, int]]  # scans with at least one ROI without signal, most first
    dead_patterns: dict[str, PatternTest]  # whether the pattern of ROIs without signal predicts the site
    non_finite: tuple[NonFiniteFrames, ...]
    too_short: tuple[TooShort, ...]
    sites: tuple[SiteCounts, ...]
    one_class: tuple[str, ...]
    small_class: tuple[str, ...]
    label_by_site: LabelBySite | None
    length_by_site: LengthBySite | None
    length_by_label: LengthByLabel | None
    repetition_time: RepetitionTime | None
    site_of: dict[str, str]
    participant_of: dict[str, str]
    keep: np.ndarray  # scans that remain: cohort.select(result.keep)
    not_checked: tuple[str, ...] = ()  # what cannot be checked, because the cohort holds connectomes without frames
    covariates: tuple[CovariateByLabel, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Audit({self.cohort!r}: {self.n_before} scans, {len(self.exclusions)} proposed exclusions, "
            f"{len(self.duplicates)} pairs of duplicates)"
        )

    @property
    def has_repeated_scans(self) -> bool:
        """Whether a participant has several scans."""
        return len(set(self.participant_of.values())) < self.n_before

    def explain_exclusions(self) -> dict[str, list[str]]:
        """Say why scans are excluded: a list of sentences for each."""
        return {scan: [str(reason) for reason in reasons] for scan, reasons in self.exclusions.items()}

    def to_dict(self) -> dict[str, Any]:
        """Convert to dictionaries and lists that ``json.dumps`` accepts; without ``keep`` and names of all scans."""
        left_out = ("keep", "site_of", "participant_of", *(() if self.not_checked else ("not_checked",)))
        found = {name: value for name, value in asdict(self).items() if name not in left_out}
        return found | {"exclusions": to_json(self.exclusions)}


def audit(cohort: Cohort | str | Path, rules: AuditRules = DEFAULT_RULES, companions: Sequence[Cohort] = ()) -> Audit:
    """Find the defects of a cohort and propose scans to exclude.

    Parameters
    ----------
    cohort : Cohort, str or Path
        N scans, or the folder of a cohort.
    rules : AuditRules
    companions : sequence of Cohort
        The same participants in other parcellations. A scan that fails there is excluded here too, because a parcel
        outside the field of view may be missing in one atlas and not in another.

    Returns
    -------
    Audit

    Raises
    ------
    BrioError
        If a scan has no site or label, or a companion has no participant of the cohort, or states another site or label
        for one.

    Examples
    --------
    >>> scans = [np.random.default_rng(i).normal(size=(60, 20)) for i in range(8)]
    >>> scans[2][:, :9] = 0.0
    >>> scans[7] = scans[5].copy()
    >>> result = audit(Cohort.from_scans(scans, site=list("AAAABBBB"), label=[0, 1] * 4))
    >>> result.explain_exclusions()
    {'s00003': ['9 of 20 ROIs without signal in unknown'], 's00008': ['the same scan as s00006, which stays']}
    """
    if not isinstance(cohort, Cohort):
        cohort = Cohort.load(cohort)
    for audited in (cohort, *companions):
        audited.require_labels()
    by_atlas = _match_companions(cohort, companions)
    non_finite: list[NonFiniteFrames] = []
    dead: list[DeadRois] = []
    short: list[TooShort] = []
    patterns: dict[str, PatternTest] = {}
    pairs: dict[tuple[str, str], DuplicatePair] = {}
    next_closest: dict[str, DuplicatePair] = {}
    not_compared = 0
    for atlas, parcellated in by_atlas.items():
        coverage = read_coverage(parcellated)
        first, _ = index_participants(parcellated.participant_ids)  # nearest scans must be of other people
        pattern = predict_site_from_patterns(coverage.alive[first], parcellated.sites[first], parcellated.ids[first])
        if pattern is not None:
            patterns[atlas] = pattern
        dead += find_dead_rois(parcellated, coverage, atlas)
        if holds_fc(parcellated.participants):
            search = find_identical_connectomes(parcellated)
        else:
            non_finite += find_non_finite_frames(parcellated, coverage, atlas)
            short += find_short_scans(parcellated, coverage, atlas, rules.min_frames)
            search = find_duplicates(parcellated, coverage, rules.duplicate_correlation, rules.min_frames)
        for match in search.matches:
            pair = describe_pair(parcellated, match, atlas, "identical" if match.identical else "near")
            earlier = pairs.get((pair.first, pair.second))
            pairs[pair.first, pair.second] = replace(earlier, atlases=(*earlier.atlases, atlas)) if earlier else pair
        if search.next_closest is not None:
            next_closest[atlas] = describe_pair(parcellated, search.next_closest, atlas, "different")
        not_compared += search.not_compared
    dead += read_stated_dead_rois(cohort, by_atlas)
    duplicates = tuple(sorted(pairs.values(), key=lambda pair: (pair.first, pair.second)))

    ids = cohort.ids.tolist()
    # copies under two diagnoses are two participants for every other question too: which of them is it?
    asked = cohort.label_covariate is not None and FORMER_LABEL in cohort.participants
    former = cohort.participants[FORMER_LABEL].tolist() if asked else [""] * len(cohort)
    label_of = dict(zip(ids, zip(cohort.labels.tolist(), former, strict=True), strict=True))
    exclusions = propose_exclusions(rules, non_finite, dead, short, duplicates, label_of)
    keep = np.array([participant not in exclusions for participant in ids])
    remaining = cohort.select(keep)
    with_length = len(remaining) > 0 and not holds_fc(cohort.participants)
    people_before, people = select_first_scans(cohort), select_first_scans(remaining)
    counts = count_by_site(cohort, keep)
    return Audit(
        cohort=cohort.name,
        fingerprint=cohort.fingerprint,
        atlases={atlas: len(parcellated) for atlas, parcellated in by_atlas.items()},
        classes=cohort.classes,
        rules=rules,
        n_before=len(cohort),
        n_after=len(remaining),
        classes_before=count_classes(people_before.labels),
        classes_after=count_classes(people.labels),
        exclusions=exclusions,
        duplicates=duplicates,
        next_closest=next_closest,
        not_compared=not_compared,
        dead_rois=tuple(dead),
        dead_by_site=_count_dead_by_site(dead),
        dead_patterns=patterns,
        non_finite=tuple(non_finite),
        too_short=tuple(short),
        sites=counts,
        one_class=tuple(c.site for c in counts if min(c.after) == 0 < max(c.after)),
        small_class=tuple(c.site for c in counts if 0 < min(c.after) < rules.min_class),
        label_by_site=measure_label_by_site(people) if len(people) else None,
        length_by_site=measure_length_by_site(people) if with_length else None,
        length_by_label=measure_length_by_label(people) if with_length else None,
        repetition_time=summarise_repetition_times(people),
        site_of=dict(zip(ids, cohort.sites.tolist(), strict=True)),
        participant_of=dict(zip(ids, cohort.participant_ids.tolist(), strict=True)),
        keep=keep,
        not_checked=FC_CHECKS if holds_fc(cohort.participants) else (),
        covariates=measure_covariates_by_label(people, rules.covariate_auc) if len(people) else (),
    )


def _match_companions(cohort: Cohort, companions: Sequence[Cohort]) -> dict[str, Cohort]:
    """Map each atlas to its cohort, companions reduced to the participants of the cohort."""
    by_atlas = {cohort.atlas.name: cohort}
    own = cohort.participants.set_index(cohort.ids)
    for companion in companions:
        shared = companion.select(np.isin(companion.ids, cohort.ids))
        if len(shared) == 0:
            raise BrioError(
                f"companion '{companion.name}' has no participant of '{cohort.name}'; check the column participant_id"
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
        while name in by_atlas:
            name = f"{name} ({companion.name})"
        by_atlas[name] = shared
    return by_atlas


def _count_dead_by_site(dead: Sequence[DeadRois]) -> dict[str, dict[str, int]]:
    """Count the scans with ROIs without signal by atlas and site, most first."""
    counts: dict[str, Counter[str]] = {}
    for finding in dead:
        counts.setdefault(finding.atlas, Counter())[finding.site] += 1
    return {atlas: dict(sorted(c.items(), key=lambda item: (-item[1], item[0]))) for atlas, c in counts.items()}
