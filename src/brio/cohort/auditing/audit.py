"""Propose which scans to exclude from an analysis, with reasons, and format all findings as text.

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

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from ...errors import BrioError
from ...formatting import format_count, state_p
from ...schemas import OMIT_NONE, to_json
from ...settings import Share, check_domains
from ..cohort import FORMER_LABEL, Cohort
from ..scans import holds_fc, index_participants
from ..values import shorten_list
from . import findings
from .findings import SIGNIFICANCE, DeadRois, DuplicatePair, NonFiniteFrames, TooShort


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
            "short": f"{self.n} valid frames in {self.atlas}",
            "duplicate": f"the same scan as {copies}" + (", which stays" if self.stays else ""),
            "conflict": f"one scan under different {' and '.join(self.differ or ())}, with {copies}",
        }
        return sentences[self.code]


def _propose_exclusions(
    rules: AuditRules,
    non_finite: Iterable[NonFiniteFrames],
    dead: Iterable[DeadRois],
    short: Iterable[TooShort],
    duplicates: Sequence[DuplicatePair],
    label_of: Mapping[str, Hashable],
) -> dict[str, tuple[ExclusionReason, ...]]:
    """Propose the participants to exclude, by the rule of this module."""
    reasons = defaultdict[str, list[ExclusionReason]](list)
    empty = [(scan.participant_id, scan.atlas) for scan in non_finite if scan.empty]
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
    for participant, reason in _explain_duplicates(duplicates, label_of, set(reasons)).items():
        reasons[participant].append(reason)
    return {participant: tuple(reasons[participant]) for participant in sorted(reasons)}


def _explain_duplicates(
    pairs: Sequence[DuplicatePair], label_of: Mapping[str, Hashable], excluded: set[str]
) -> dict[str, ExclusionReason]:
    """Apply rule 4: the reason of each copy that is excluded."""
    sites = {pair.first: pair.sites[0] for pair in pairs} | {pair.second: pair.sites[1] for pair in pairs}
    values = {"labels": label_of, "sites": sites}
    reasons: dict[str, ExclusionReason] = {}
    for copies in _group_copies(pairs):
        conflicts = tuple(name for name, of in values.items() if len({of[copy] for copy in copies}) > 1)
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


# What needs the frames of scans.
FC_CHECKS = (
    "scans that are alike but not identical",
    "frames with missing values",
    "short scans",
    "how scan length depends on site and label",
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
    patterns: dict[str, findings.PatternTest] = {}
    pairs: dict[tuple[str, str], DuplicatePair] = {}
    next_closest: dict[str, DuplicatePair] = {}
    not_compared = 0
    for atlas, parcellated in by_atlas.items():
        coverage = findings.read_coverage(parcellated)
        first, _ = index_participants(parcellated.participant_ids)  # nearest scans must be of other people
        sites, names = parcellated.sites[first], parcellated.ids[first]
        pattern = findings.predict_site_from_patterns(coverage.alive[first], sites, names)
        patterns |= {} if pattern is None else {atlas: pattern}
        with_gaps, with_dead_rois, too_short = findings.find_defects(parcellated, coverage, atlas, rules.min_frames)
        dead += with_dead_rois
        closest, not_compared_here = None, 0
        if holds_fc(parcellated.participants):
            copies = findings.find_identical_connectomes(parcellated)
        else:
            non_finite, short = non_finite + with_gaps, short + too_short
            limits = rules.duplicate_correlation, rules.min_frames
            copies, closest, not_compared_here = findings.find_duplicates(parcellated, coverage, *limits)
        for pair in copies:
            found = pairs.setdefault((pair.first, pair.second), pair)
            pairs[pair.first, pair.second] = replace(found, atlases=(*found.atlases, atlas))
        next_closest |= {} if closest is None else {atlas: replace(closest, atlases=(atlas,))}
        not_compared += not_compared_here
    dead += findings.read_stated_dead_rois(cohort, by_atlas)
    dead_by_site = {
        atlas: rank_counts(rois.site for rois in dead if rois.atlas == atlas)
        for atlas in dict.fromkeys(rois.atlas for rois in dead)
    }
    duplicates = tuple(sorted(pairs.values(), key=lambda pair: (pair.first, pair.second)))
    ids = cohort.ids.tolist()
    # copies under two diagnoses are two participants for every other question too: which of them is it?
    asked = cohort.label_covariate is not None and FORMER_LABEL in cohort.participants
    former = cohort.participants[FORMER_LABEL].tolist() if asked else [""] * len(cohort)
    label_of = dict(zip(ids, zip(cohort.labels.tolist(), former, strict=True), strict=True))
    exclusions = _propose_exclusions(rules, non_finite, dead, short, duplicates, label_of)
    keep = np.array([participant not in exclusions for participant in ids])
    remaining = cohort.select(keep)
    with_length = len(remaining) > 0 and not holds_fc(cohort.participants)
    people_before, people = findings.select_first_scans(cohort), findings.select_first_scans(remaining)
    counts = findings.count_by_site(people_before, people)
    return Audit(
        cohort=cohort.name,
        fingerprint=cohort.fingerprint,
        atlases={atlas: len(parcellated) for atlas, parcellated in by_atlas.items()},
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
        site_of=dict(zip(ids, cohort.sites.tolist(), strict=True)),
        participant_of=dict(zip(ids, cohort.participant_ids.tolist(), strict=True)),
        keep=keep,
        not_checked=FC_CHECKS if holds_fc(cohort.participants) else (),
        covariates=findings.measure_covariates_by_label(people, rules.covariate_auc) if len(people) else (),
    )


def _match_companions(cohort: Cohort, companions: Sequence[Cohort]) -> dict[str, Cohort]:
    """Map each atlas to its cohort, companions reduced to the participants of the cohort."""
    by_atlas = {cohort.atlas.name: cohort}
    own = cohort.participants.set_index(cohort.ids)
    for companion in companions:
        shared = companion.select(np.isin(companion.ids, cohort.ids))
        if len(shared) == 0:
            raise BrioError(f"companion '{companion.name}' has no participant of '{cohort.name}'; check participant_id")
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


def rank_counts(values: Iterable[str]) -> dict[str, int]:
    """Count values, most frequent first."""
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


# ---------------------------------------------------------------- text: short lists in full, long ones by site


def format_audit(audit: Audit) -> str:
    """Format an audit as text to print, most important findings first."""
    sections = {
        "Proposed exclusions": _format_exclusions(audit),
        "Duplicate scans": _format_duplicates(audit),
        "ROIs without signal": _format_dead_rois(audit),
    }
    if not audit.not_checked:
        gaps, short = audit.non_finite, audit.too_short
        most = f"{len(gaps)} scans, up to {max((scan.n_frames for scan in gaps), default=0)} frames"
        sections["Frames with missing values"] = _list_scans(gaps, most, lambda s: f"{s.n_frames} of {s.of} frames")
        sections[f"Scans with fewer than {audit.rules.min_frames} valid frames"] = _list_scans(
            short, f"{len(short)} scans", lambda s: f"{s.n_valid} valid frames"
        )
    sections["Remaining sites"] = _format_sites(audit)
    if not audit.not_checked:
        sections["Scan length"] = _format_length(audit)
    sections["Repetition time"] = _format_repetition_time(audit)
    sections["Covariates by class"] = _format_covariates(audit)
    if audit.not_checked:  # a cohort of connectomes without frames
        sections["Not checked, since connectomes have no frames"] = list(audit.not_checked)
    lines = _format_head(audit)
    for heading, body in sections.items():
        lines += ["", heading, *(f"  {line}" for line in body)]
    return "\n".join(lines)


def _format_head(audit: Audit) -> list[str]:
    own, *others = audit.atlases
    companions = [
        f"{name} ({audit.atlases[name]} of {audit.n_before})" if audit.atlases[name] < audit.n_before else name
        for name in others
    ]
    return [
        f"Audit of {audit.cohort}, {own}"
        + (f", with {', '.join(companions)}" if companions else "")
        + f" [{audit.fingerprint[:12]}]",
        f"{audit.n_before} scans{_count_people(audit, audit.classes_before)} at "
        f"{format_count(len(audit.sites), 'site')}: {_format_classes(audit, audit.classes_before)}",
    ]


def _count_people(audit: Audit, classes: tuple[int, int]) -> str:
    return f" of {sum(classes)} participants" if audit.has_repeated_scans else ""


def _format_exclusions(audit: Audit) -> list[str]:
    if not audit.exclusions:
        return ["none"]
    scans = f" scans{_count_people(audit, audit.classes_after)}" if audit.has_repeated_scans else ""
    remaining = f"{audit.n_after}{scans} remain"
    classes = _format_classes(audit, audit.classes_after)
    summary = f"{len(audit.exclusions)} of {audit.n_before} scans; {remaining} ({classes})"
    if len(audit.exclusions) > LONGEST_LIST:
        return [summary, _count_by_site(audit.site_of[participant] for participant in audit.exclusions)]
    rows = [
        (participant, audit.site_of[participant], "; ".join(reasons))
        for participant, reasons in audit.explain_exclusions().items()
    ]
    return [summary, *_align_columns(rows)]


def _format_duplicates(audit: Audit) -> list[str]:
    pairs = audit.duplicates
    lines = [f"rank correlation over time, median over ROIs, above {audit.rules.duplicate_correlation:g}"]
    if audit.not_checked:
        lines = ["identical connectomes"]
    if not pairs:
        lines.append("none")
    elif len(pairs) > LONGEST_LIST:
        lines.append(f"{len(pairs)} pairs: {_count_by_site(pair.sites[0] for pair in pairs)}")
    else:
        lines += _align_columns([(p.first, p.second, f"{p.correlation:.2f}", _describe_pair(audit, p)) for p in pairs])
    closest = [f"{pair.correlation:.2f} in {atlas}" for atlas, pair in audit.next_closest.items()]
    if closest:
        lines.append(f"most similar pair of different scans: {', '.join(closest)}")
    if audit.not_compared:
        lines.append(f"{audit.not_compared} more similar pairs were not compared; do the scans share a task?")
    return lines


def _describe_pair(audit: Audit, pair: DuplicatePair) -> str:
    if audit.participant_of[pair.first] == audit.participant_of[pair.second]:
        return f"{pair.kind}; ONE SCAN UNDER TWO SESSIONS"
    trimmed = f", the {pair.common_frames} frames at the {pair.aligned} of the longer" if pair.aligned != "both" else ""
    conflicts = [name for name, same in (("LABELS", pair.same_label), ("SITES", pair.same_site)) if not same]
    return f"{pair.kind}{trimmed}; " + (f"DIFFERENT {' AND '.join(conflicts)}" if conflicts else "same label and site")


def _format_dead_rois(audit: Audit) -> list[str]:
    lines = []
    limit = audit.rules.max_dead_fraction
    for atlas, by_site in audit.dead_by_site.items():
        scans = [scan for scan in audit.dead_rois if scan.atlas == atlas]
        above = sum(scan.share > limit for scan in scans)
        worst = max(scans, key=lambda scan: scan.share)
        most = f"up to {worst.n_rois} of {worst.of} ROIs" if worst.of else f"up to {worst.share:.0%} of the ROIs"
        lines += [
            f"{atlas}: {format_count(len(scans), 'scan')}, {most} (above {limit:.0%}: {above or 'none'})",
            f"  {_format_counts(by_site)}",
        ]
        if atlas in audit.dead_patterns:
            test = audit.dead_patterns[atlas]
            reference = f"{test.by_chance:.0%} by chance, {state_p(test.p)}"
            lines.append(
                f"  the missing ROIs {'predict' if test.p < SIGNIFICANCE else 'do not significantly predict'} the "
                f"site: nearest scan from the same site in {test.accuracy:.0%} ({reference})"
            )
    return lines or ["none"]


def _list_scans(scans: Sequence[Any], summary: str, describe: Callable[[Any], str]) -> list[str]:
    """List scans with what is wrong with each; many are summarised and counted by site."""
    if len(scans) > LONGEST_LIST:
        return [summary, _count_by_site(scan.site for scan in scans)]
    rows = [(scan.participant_id, scan.site, f"{describe(scan)} in {scan.atlas}") for scan in scans]
    return _align_columns(rows) if rows else ["none"]


def _format_sites(audit: Audit) -> list[str]:
    sizes = {counts.site: sum(counts.after) for counts in audit.sites if sum(counts.after)}
    if not sizes:
        return ["none"]
    smallest, largest = min(sizes, key=lambda s: (sizes[s], s)), max(sizes, key=lambda s: (sizes[s], s))
    unit = "participant" if audit.has_repeated_scans else "scan"
    count = format_count(sizes[smallest], unit)
    spread = f"from {count} ({smallest}) to {sizes[largest]} ({largest})"
    if sizes[smallest] == sizes[largest]:
        spread = count if len(sizes) == 1 else f"{count} at each"
    lines = [f"{format_count(len(sizes), 'site')}, {spread}"]
    lost = [counts.site for counts in audit.sites if not sum(counts.after)]
    if lost:
        lines.append(f"without any scan after the exclusions: {shorten_list(lost, LONGEST_LIST)}")
    classes = {counts.site: f"{counts.site} {counts.after[0]}/{counts.after[1]}" for counts in audit.sites}
    lines.append(f"one class only: {shorten_list([classes[s] for s in audit.one_class], LONGEST_LIST) or 'none'}")
    small = f"{shorten_list([classes[s] for s in audit.small_class], LONGEST_LIST)} ({'/'.join(audit.classes)})"
    lines.append(f"fewer than {audit.rules.min_class} in a class: {small if audit.small_class else 'none'}")
    label = audit.label_by_site
    if label is not None and label.cramers_v is not None and label.p is not None:
        reference = f"about {label.by_chance:.2f} by chance, chi-square {state_p(label.p)}"
        lines.append(f"label by site: Cramer's V {label.cramers_v:.2f} ({reference})")
    return lines


def _format_length(audit: Audit) -> list[str]:
    site = audit.length_by_site
    if site is None:
        return ["none"]
    scan, scans = "scan", "scans"
    if audit.has_repeated_scans:  # tests need one value per participant
        scan, scans = "first scan of a participant", "first scans of participants"
    if site.eta_squared is None:
        return [f"{site.shortest} frames in every {scan}"]
    between = f"{site.eta_squared:.0%} of the variance lies between sites (eta squared)"
    of_first = f" in {scans}" if audit.has_repeated_scans else ""
    lines = [f"{site.shortest} to {site.longest} frames{of_first}; {between}"]
    if site.differs_inside:
        ranges = [f"{name} ({low}-{high})" for name, (low, high) in site.differs_inside.items()]
        lines.append(f"differs within {shorten_list(ranges, LONGEST_LIST)}")
    if site.all_shortest:
        sites = shorten_list([f"{name} ({n})" for name, n in site.all_shortest.items()], LONGEST_LIST)
        lines.append(f"all {scans} have the minimum of {site.shortest} frames at {sites}")
    return lines


def _format_repetition_time(audit: Audit) -> list[str]:
    tr = audit.repetition_time
    if tr is None:
        return ["not stated (no column tr)"]
    values = tr.sites_by_value
    rows = [(f"{value} s", shorten_list(sites, most=6)) for value, sites in list(values.items())[:LONGEST_LIST]]
    lines = _align_columns(rows)
    if len(values) > LONGEST_LIST:
        lines.append(f"and {len(values) - LONGEST_LIST} more values")
    if tr.differs_inside:
        lines.append(f"several values at {shorten_list(tr.differs_inside, LONGEST_LIST)}")
    if tr.unknown:
        unit = "participant" if audit.has_repeated_scans else "scan"
        lines.append(f"not stated for {format_count(tr.unknown, unit)}")
    return lines


def _format_covariates(audit: Audit) -> list[str]:
    if not audit.covariates:
        return ["none to compare"]
    rows = []
    for one in audit.covariates:
        means = [f"{share:.0%} {one.value}" if one.kind == "category" else f"mean {share:.4g}" for share in one.typical]
        within = "no site has both classes"
        if one.auc_inside is not None:
            within = f"{one.auc_inside:.2f} within {format_count(one.n_sites, 'site')}, {state_p(one.p_inside)}"
        described = [f"{name} {mean}" for name, mean in zip(audit.classes, means, strict=True)]
        differs = "WARNING: differs between classes" if one.warn else ""
        rows.append((one.column, *described, f"AUC {one.auc:.2f} over all sites, {within}", differs))
    limit = audit.rules.covariate_auc
    rule = (
        f"AUC of the covariate alone; a warning from {limit:g} up or {1 - limit:g} down "
        f"within sites, if p < {SIGNIFICANCE:g} after correction for {format_count(len(rows), 'covariate')}"
    )
    return [rule, *_align_columns(rows)]


def _format_classes(audit: Audit, counts: tuple[int, int]) -> str:
    names = audit.classes
    if any(name.isdigit() for name in names):  # bare digits would read as numbers next to the counts
        names = (f"with label {names[0]}", f"with label {names[1]}")
    return ", ".join(f"{n} {name}" for n, name in zip(counts, names, strict=True))


def _count_by_site(sites: Iterable[str]) -> str:
    return "by site: " + _format_counts(rank_counts(sites))


def _format_counts(by_site: Mapping[str, int]) -> str:
    return shorten_list([f"{site} {n}" for site, n in by_site.items()], LONGEST_LIST)


def _align_columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
