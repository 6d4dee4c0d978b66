"""Propose which scans to exclude from an analysis, with reasons, and format all findings as text.

The rule is fixed before any training. It uses labels only to check whether copies of a scan have different labels.
A scan is excluded if

1. it holds no finite value;
2. more than ``max_dead_fraction`` of its ROIs have no signal in some atlas: that of the cohort, that of a companion
   (the same participants in another atlas) or one named by a participants column ``dead_fraction_<atlas>``;
3. fewer than ``min_frames`` of its frames are valid, in the cohort or a companion;
4. it is a duplicate. If all copies have one label and one site, the first participant in sorted order that nothing else
   excludes is kept and the others are excluded. If labels or sites disagree, none of the copies can be trusted, and
   all are excluded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from ...errors import BrioError
from ...formatting import format_count, state_p
from ...schemas import OMIT_NONE, to_json
from ...settings import Share, check_arguments, check_domains
from ..cohort import FORMER_LABEL, Cohort
from ..scans import holds_fc, index_participants
from ..values import group_alike, shorten_list
from . import findings
from .findings import SIGNIFICANCE, DeadRois, DuplicatePair, NonFiniteFrames, TooShort


@dataclass(frozen=True)
class AuditRules:
    """Thresholds of the audit.

    Attributes
    ----------
    max_dead_fraction : float
        A scan is excluded if more than this share of its ROIs has no signal in some atlas.
    duplicate_correlation : float
        Two scans are duplicates if the median over ROIs of their rank correlation over time exceeds this value.
    min_frames : int
        A scan with fewer valid frames is excluded, because it is too short to estimate the block length.
    min_class : int
        The audit reports sites with fewer participants than this in a class, but does not exclude them. A job with
        another label (``label``) leaves these sites out.
    covariate_auc : float
        The audit warns if a covariate separates the classes significantly and with at least this AUC, or at most 1
        minus this AUC. The AUC is computed within sites or, if no site has both classes, over all sites. An AUC of 0.57
        corresponds to a difference of 14 percentage points for a category with two values, and of 0.25 SD for a
        normally distributed covariate.

    Examples
    --------
    >>> AuditRules(min_frames=100).min_frames
    100
    """

    max_dead_fraction: Share = 0.25
    duplicate_correlation: Share = 0.5
    min_frames: Annotated[int, Meta(ge=4, le=1_000_000)] = 40
    min_class: Annotated[int, Meta(ge=0, le=1_000_000)] = 5
    covariate_auc: Annotated[float, Meta(ge=0.5, le=1.0)] = 0.57

    def __post_init__(self) -> None:
        check_domains(self, "audit.")


DEFAULT_RULES = AuditRules()
LONGEST_LIST = 12  # longer lists are cut or counted by site; ``Audit.to_dict`` has them in full


@dataclass(frozen=True)
class ExclusionReason:
    """Why a scan is excluded: a code with its parameters, as files have it; ``str`` writes the sentence."""

    code: Literal["empty", "dead_rois", "short", "duplicate", "conflict"]
    atlas: str | None = field(default=None, metadata=OMIT_NONE)  # of empty, dead_rois and short
    n: int | None = field(default=None, metadata=OMIT_NONE)
    of: int | None = field(default=None, metadata=OMIT_NONE)
    share: float | None = field(default=None, metadata=OMIT_NONE)
    copies: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    stays: bool | None = field(default=None, metadata=OMIT_NONE)  # whether the copy that comes first is used
    differ: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)

    def __str__(self) -> str:
        dead, column = f"{self.n} of {self.of}", ""
        if self.share is not None:
            dead, column = f"{self.share:.0%} of the", f" (column {findings.DEAD_FRACTION_PREFIX}{self.atlas})"
        copies = shorten_list(self.copies or (), most=3)
        sentences = {
            "empty": f"no finite value in {self.atlas}",
            "dead_rois": f"{dead} ROIs without signal in {self.atlas}{column}",
            "short": f"only {format_count(self.n or 0, 'valid frame')} in {self.atlas}",
            "duplicate": f"the same scan as {copies}" + (", which is kept" if self.stays else ""),
            "conflict": f"the same scan as {copies}, but with different {' and '.join(self.differ or ())}",
        }
        return sentences[self.code]


def _propose_exclusions(
    rules: AuditRules,
    non_finite: Iterable[NonFiniteFrames],
    dead: Iterable[DeadRois],
    short: Iterable[TooShort],
    pairs: Sequence[DuplicatePair],
    values: Mapping[str, Mapping[str, Hashable]],
) -> dict[str, tuple[ExclusionReason, ...]]:
    """Propose the participants to exclude, by the rule of this module; copies must agree in the values of each kind."""
    empty = [(scan.participant_id, scan.atlas) for scan in non_finite if scan.empty]
    reasons = defaultdict[str, list[ExclusionReason]](list)
    for participant, atlas in empty:
        reasons[participant].append(ExclusionReason("empty", atlas))
    for rois in dead:
        if rois.share > rules.max_dead_fraction and (rois.participant_id, rois.atlas) not in empty:
            stated = rois.share if rois.n_rois is None else None
            reason = ExclusionReason("dead_rois", rois.atlas, n=rois.n_rois, of=rois.of, share=stated)
            reasons[rois.participant_id].append(reason)
    for frames in short:
        if (frames.participant_id, frames.atlas) not in empty:
            reasons[frames.participant_id].append(ExclusionReason("short", frames.atlas, n=frames.n_valid))
    excluded = set(reasons)
    for copies in _group_copies(pairs):
        conflicts = tuple(name for name, of in values.items() if len({of[copy] for copy in copies}) > 1)
        retained = next((copy for copy in copies if copy not in excluded), copies[0])
        for copy in copies:
            if conflicts:
                others = tuple(other for other in copies if other != copy)
                reasons[copy].append(ExclusionReason("conflict", copies=others, differ=conflicts))
            elif copy != retained:
                stays = retained not in excluded
                reasons[copy].append(ExclusionReason("duplicate", copies=(retained,), stays=stays))
    return {participant: tuple(reasons[participant]) for participant in sorted(reasons)}


def _group_copies(pairs: Sequence[DuplicatePair]) -> list[list[str]]:
    """Group participants that are linked by pairs, directly or in a chain; each group is sorted."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not pairs:
        return []
    members, links = np.unique([(pair.first, pair.second) for pair in pairs], return_inverse=True)
    graph = coo_array((np.ones(len(pairs)), links.reshape(-1, 2).T), shape=(len(members), len(members)))
    n_groups, group = connected_components(graph, directed=False)
    return [members[group == g].tolist() for g in range(n_groups)]


# What needs the frames of scans.
FC_CHECKS = (
    "scans that are similar but not identical",
    "frames with missing values",
    "short scans",
    "how scan length depends on the site and the label",
)


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
    dead_patterns: dict[str, findings.PatternTest]  # whether the pattern of ROIs without signal predicts the site
    non_finite: tuple[NonFiniteFrames, ...]
    too_short: tuple[TooShort, ...]
    sites: tuple[findings.SiteCounts, ...]
    one_class: tuple[str, ...]
    small_class: tuple[str, ...]
    label_by_site: findings.LabelBySite | None
    length_by_site: findings.LengthBySite | None
    length_by_label: findings.LengthByLabel | None
    repetition_time: findings.RepetitionTime | None
    site_of: dict[str, str]
    participant_of: dict[str, str]
    keep: np.ndarray  # scans that remain: cohort.select(result.keep)
    not_checked: tuple[str, ...] = ()  # what cannot be checked, because the cohort holds connectomes without frames
    covariates: tuple[findings.CovariateByLabel, ...] = ()
    similar_sites: tuple[tuple[str, ...], ...] = ()  # names that may be of one site

    def __repr__(self) -> str:
        return (
            f"Audit({self.cohort!r}: {format_count(self.n_before, 'scan')}, "
            f"{format_count(len(self.exclusions), 'proposed exclusion')}, "
            f"{format_count(len(self.duplicates), 'pair of duplicates', 'pairs of duplicates')})"
        )

    @property
    def has_repeated_scans(self) -> bool:
        """Whether a participant has several scans."""
        return len(set(self.participant_of.values())) < self.n_before

    def explain_exclusions(self) -> dict[str, list[str]]:
        """List the reasons for excluding each scan, in words."""
        return {scan: [str(reason) for reason in reasons] for scan, reasons in self.exclusions.items()}

    def to_dict(self) -> dict[str, Any]:
        """Convert to dictionaries and lists that ``json.dumps`` accepts; without ``keep`` and names of all scans."""
        left_out = ("keep", "site_of", "participant_of", *(() if self.not_checked else ("not_checked",)))
        found = {name: value for name, value in asdict(self).items() if name not in left_out}
        return found | {"exclusions": to_json(self.exclusions)}


@check_arguments
def audit(cohort: Cohort | str | Path, rules: AuditRules = DEFAULT_RULES, companions: Sequence[Cohort] = ()) -> Audit:
    """Find the defects of a cohort, and propose scans to exclude.

    Parameters
    ----------
    cohort : Cohort, str or Path
        Cohort of N scans, or its folder.
    rules : AuditRules
    companions : sequence of Cohort
        The same participants in other atlases. A scan that is excluded from a companion is also excluded from the
        cohort, because a region outside the field of view may be missing in one atlas but not in another.

    Returns
    -------
    Audit

    Raises
    ------
    BrioError
        If a scan has no site or label, or if a companion shares no scan with the cohort or has a different site or
        label for a participant.

    Examples
    --------
    >>> scans = [np.random.default_rng(i).normal(size=(60, 20)) for i in range(8)]
    >>> scans[2][:, :9] = 0.0
    >>> scans[7] = scans[5].copy()
    >>> result = audit(Cohort.from_scans(scans, site=list("AAAABBBB"), label=[0, 1] * 4))
    >>> result.explain_exclusions()
    {'s00003': ['9 of 20 ROIs without signal in unknown'], 's00008': ['the same scan as s00006, which is kept']}
    """
    if not isinstance(cohort, Cohort):
        cohort = Cohort.load(cohort)
    for audited in (cohort, *companions):
        audited.require_labels()
    parcellations = _match_companions(cohort, companions)
    non_finite, dead, short = list[NonFiniteFrames](), list[DeadRois](), list[TooShort]()
    patterns: dict[str, findings.PatternTest] = {}
    pairs: dict[tuple[str, str], DuplicatePair] = {}
    next_closest: dict[str, DuplicatePair] = {}
    not_compared = 0
    for parcellated in parcellations:
        atlas, coverage = parcellated.atlas.name, findings.read_coverage(parcellated)
        first, _ = index_participants(parcellated.participant_ids)  # nearest scans must be of other people
        sites, names = parcellated.sites[first], parcellated.ids[first]
        pattern = findings.predict_site_from_patterns(coverage.alive[first], sites, names)
        patterns |= {} if pattern is None else {atlas: pattern}
        with_gaps, with_dead_rois, too_short = findings.find_defects(parcellated, coverage, rules.min_frames)
        dead += with_dead_rois
        if holds_fc(parcellated.participants):
            copies = findings.find_identical_connectomes(parcellated)
        else:
            non_finite, short = non_finite + with_gaps, short + too_short
            limits = rules.duplicate_correlation, rules.min_frames
            copies, closest, not_compared_here = findings.find_duplicates(parcellated, coverage, *limits)
            next_closest |= {} if closest is None else {atlas: closest}
            not_compared += not_compared_here
        for pair in copies:
            known = pairs.get((pair.first, pair.second))
            pairs[pair.first, pair.second] = replace(known, atlases=(*known.atlases, atlas)) if known else pair
    atlases = {parcellated.atlas.name: len(parcellated) for parcellated in parcellations}
    dead += findings.read_stated_dead_rois(cohort, atlases)
    dead_by_site = {
        atlas: rank_counts(rois.site for rois in dead if rois.atlas == atlas)
        for atlas in dict.fromkeys(rois.atlas for rois in dead)
    }
    duplicates = tuple(pairs[key] for key in sorted(pairs))
    ids = cohort.ids.tolist()
    site_of = dict(zip(ids, cohort.sites.tolist(), strict=True))
    # copies under two diagnoses are two participants for every other question too: which of them is it?
    asked = cohort.label_covariate is not None and FORMER_LABEL in cohort.participants
    former = cohort.participants[FORMER_LABEL].tolist() if asked else [""] * len(cohort)
    label_of = dict(zip(ids, zip(cohort.labels.tolist(), former, strict=True), strict=True))
    values: dict[str, Mapping[str, Hashable]] = {"labels": label_of, "sites": site_of}
    exclusions = _propose_exclusions(rules, non_finite, dead, short, duplicates, values)
    keep = np.array([participant not in exclusions for participant in ids])
    remaining = cohort.select(keep)
    with_length = len(remaining) > 0 and not holds_fc(cohort.participants)
    people_before, people = findings.select_first_scans(cohort), findings.select_first_scans(remaining)
    counts = findings.count_by_site(people_before, people)
    return Audit(
        cohort=cohort.name,
        fingerprint=cohort.fingerprint,
        atlases=atlases,
        classes=cohort.classes,
        rules=rules,
        n_before=len(cohort),
        n_after=len(remaining),
        classes_before=findings.count_classes(people_before.labels),
        classes_after=findings.count_classes(people.labels),
        exclusions=exclusions,
        duplicates=duplicates,
        next_closest=next_closest,
        not_compared=not_compared,
        dead_rois=tuple(dead),
        dead_by_site=dead_by_site,
        dead_patterns=patterns,
        non_finite=tuple(non_finite),
        too_short=tuple(short),
        sites=counts,
        one_class=tuple(c.site for c in counts if min(c.after) == 0 < max(c.after)),
        small_class=tuple(c.site for c in counts if 0 < min(c.after) < rules.min_class),
        label_by_site=findings.measure_label_by_site(people) if len(people) else None,
        length_by_site=findings.measure_length_by_site(people) if with_length else None,
        length_by_label=findings.measure_length_by_label(people) if with_length else None,
        repetition_time=findings.summarise_repetition_times(people),
        site_of=site_of,
        participant_of=dict(zip(ids, cohort.participant_ids.tolist(), strict=True)),
        keep=keep,
        not_checked=FC_CHECKS if holds_fc(cohort.participants) else (),
        covariates=findings.measure_covariates_by_label(people, rules.covariate_auc) if len(people) else (),
        similar_sites=group_alike(dict.fromkeys(site_of.values())),
    )


def _match_companions(cohort: Cohort, companions: Sequence[Cohort]) -> list[Cohort]:
    """List the cohort and its companions, reduced to its participants; each atlas has a name of its own."""
    parcellations = [cohort]
    own = cohort.participants.set_index(cohort.ids)
    for companion in companions:
        shared = companion.select(np.isin(companion.ids, cohort.ids))
        if len(shared) == 0:
            raise BrioError(
                f"companion '{companion.name}' has no scan in common with cohort '{cohort.name}'; check the columns "
                "participant_id and session of both participants tables"
            )
        for column in ("site", "label"):
            here = own.loc[shared.ids, column].to_numpy()
            there = shared.participants[column].to_numpy()
            if (here != there).any():
                k = int(np.flatnonzero(here != there)[0])
                differ = f"{column} {there[k]} in companion '{companion.name}' and {here[k]} in '{cohort.name}'"
                remedy = "correct one of the two participants tables and import again"
                raise BrioError(f"participant {shared.ids[k]} has {differ}; {remedy}")
        while shared.atlas.name in [other.atlas.name for other in parcellations]:
            name = f"{shared.atlas.name} ({companion.name})"
            shared = replace(shared, atlas=replace(shared.atlas, name=name))
        parcellations.append(shared)
    return parcellations


def rank_counts(values: Iterable[str]) -> dict[str, int]:
    """Count values, most frequent first."""
    return dict(Counter(sorted(values)).most_common())


def format_audit(audit: Audit) -> str:
    """Format an audit as text to print, most important findings first."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "count": format_count,
        "p": state_p,
        "percent": "{:.0%}".format,
        "rank": lambda scans: rank_counts(audit.site_of[scan] for scan in scans),
        "each": lambda values, pattern: [pattern.format(*item) for item in values.items()],
        "some": lambda names, most=LONGEST_LIST: shorten_list(list(map(str, names)), most) or "none",
    }
    names = short_names = audit.classes
    if any(name.isdigit() for name in names):  # bare digits would read as numbers next to the counts
        short_names = (f"label {names[0]}", f"label {names[1]}")
        names = (f"with {short_names[0]}", f"with {short_names[1]}")
    sizes = sorted((sum(counts.after), counts.site) for counts in audit.sites if any(counts.after))
    context = {"audit": audit, "class_names": names, "short_names": short_names, "sizes": sizes}
    text = environment.get_template("audit.txt.j2").render(context, longest=LONGEST_LIST, significance=SIGNIFICANCE)
    return "\n".join(_align_columns(text.splitlines()))


def _align_columns(lines: Iterable[str]) -> Iterator[str]:
    """Align the cells of successive lines that are separated by tabs."""
    for is_table, block in groupby(lines, lambda line: "\t" in line):
        rows = [line.split("\t") for line in block]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if is_table else [0]
        yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
