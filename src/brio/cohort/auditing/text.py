"""Format an audit as plain text: one section per question, short lists in full, long ones counted by site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...formatting import format_count, state_p
from ..values import shorten_list
from .audit import LONGEST_LIST, Audit, rank_counts
from .findings import SIGNIFICANCE, DuplicatePair


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
