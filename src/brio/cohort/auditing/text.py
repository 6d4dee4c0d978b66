"""An audit as lines of plain text: a heading for each question, short lists in full, long ones by site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .audit import Audit
    from .findings import DuplicatePair

__all__ = ["audit_lines"]

LONGEST_LIST = 12
"""A longer list is given by site; all of it is in ``Audit.to_dict``."""


def audit_lines(found: Audit) -> list[str]:
    """The whole audit, most important first."""
    sections = {
        "": _head(found),
        "Proposed exclusions": _exclusions(found),
        "Scans that are there twice": _duplicates(found),
        "ROIs without signal": _dead(found),
        "Frames with missing values": _non_finite(found),
        f"Scans with fewer than {found.rules.min_frames} valid frames": _short(found),
        "Sites that remain": _sites(found),
        "Scan length": _length(found),
        "Repetition time": _repetition_time(found),
    }
    lines: list[str] = []
    for heading, body in sections.items():
        lines += (
            ([""] if lines else []) + ([heading] if heading else []) + ["  " * bool(heading) + line for line in body]
        )
    return lines


def _head(found: Audit) -> list[str]:
    own, *others = found.atlases
    also = [
        f"{name} ({n} of {found.n_before})" if n < found.n_before else name
        for name, n in list(found.atlases.items())[1:]
    ]
    return [
        f"Audit of {found.cohort}, {own}"
        + (f", with {', '.join(also)}" if others else "")
        + f" [{found.fingerprint[:12]}]",
        f"{found.n_before} scans at {len(found.sites)} sites: {_classes(found, found.classes_before)}",
    ]


def _exclusions(found: Audit) -> list[str]:
    if not found.exclusions:
        return ["none"]
    lines = [
        f"{len(found.exclusions)} of {found.n_before} scans; "
        f"{found.n_after} remain ({_classes(found, found.classes_after)})"
    ]
    if len(found.exclusions) > LONGEST_LIST:
        return [*lines, _by_site(found.site_of[who] for who in found.exclusions)]
    rows = [(who, found.site_of[who], "; ".join(why)) for who, why in found.exclusions.items()]
    return lines + _table(rows)


def _duplicates(found: Audit) -> list[str]:
    lines = [f"rank correlation over time, median over ROIs, above {found.rules.duplicate_correlation:g}"]
    if not found.duplicates:
        lines.append("none")
    elif len(found.duplicates) > LONGEST_LIST:
        lines.append(f"{len(found.duplicates)} pairs: {_by_site(pair.sites[0] for pair in found.duplicates)}")
    else:
        lines += _table([(p.first, p.second, f"{p.correlation:.2f}", _verdict(p)) for p in found.duplicates])
    closest = [f"{pair.correlation:.2f} in {atlas}" for atlas, pair in found.next_closest.items()]
    if closest:
        lines.append(f"closest pair of different scans: {', '.join(closest)}")
    if found.not_compared:
        lines.append(f"{found.not_compared} further similar pairs were not compared: do the scans share a task?")
    return lines


def _verdict(pair: DuplicatePair) -> str:
    trimmed = f", the {pair.common_frames} frames at the {pair.aligned} of the longer" if pair.aligned != "both" else ""
    doubts = [name for name, same in (("labels", pair.same_label), ("sites", pair.same_site)) if not same]
    return f"{pair.kind}{trimmed}; " + (
        f"DIFFERENT {' and '.join(doubts).upper()}" if doubts else "same label and site"
    )


def _dead(found: Audit) -> list[str]:
    lines = []
    for atlas, by_site in found.dead_by_site.items():
        here = [rois for rois in found.dead_rois if rois.atlas == atlas]
        over = sum(rois.share > found.rules.max_dead_fraction for rois in here)
        most = max(here, key=lambda rois: rois.share)
        worst = f"up to {most.n_rois} of {most.of} ROIs" if most.of else f"up to {most.share:.0%} of the ROIs"
        limit = f"over {found.rules.max_dead_fraction:.0%}: {over or 'none'}"
        lines += [f"{atlas}: {len(here)} scans, {worst} ({limit})", f"  {_counts(by_site)}"]
        if atlas in found.dead_patterns:
            test = found.dead_patterns[atlas]
            chance = f"{test.by_chance:.0%} by chance, {_p(test.p)}; largest site {test.largest_site:.0%}"
            lines += [
                f"  the pattern {'goes' if test.p < 0.05 else 'does not go'} with the site: "
                f"nearest pattern from the same site in {test.accuracy:.0%} ({chance})"
            ]
    return lines or ["none"]


def _non_finite(found: Audit) -> list[str]:
    scans = found.non_finite
    if len(scans) > LONGEST_LIST:
        return [f"{len(scans)} scans, up to {max(s.n_frames for s in scans)} frames", _by_site(s.site for s in scans)]
    return _table([(s.participant_id, s.site, f"{s.n_frames} of {s.of} frames in {s.atlas}") for s in scans]) or [
        "none"
    ]


def _short(found: Audit) -> list[str]:
    scans = found.too_short
    if len(scans) > LONGEST_LIST:
        return [f"{len(scans)} scans", _by_site(s.site for s in scans)]
    return _table([(s.participant_id, s.site, f"{s.n_valid} valid frames in {s.atlas}") for s in scans]) or ["none"]


def _sites(found: Audit) -> list[str]:
    sizes = {c.site: sum(c.after) for c in found.sites if sum(c.after)}
    if not sizes:
        return ["none"]
    small, large = min(sizes, key=lambda s: (sizes[s], s)), max(sizes, key=lambda s: (sizes[s], s))
    lines = [f"{len(sizes)} sites, from {sizes[small]} scans ({small}) to {sizes[large]} ({large})"]
    lost = [c.site for c in found.sites if not sum(c.after)]
    if lost:
        lines.append(f"without any scan after the exclusions: {_some(lost)}")
    after = {c.site: f"{c.site} {c.after[0]}/{c.after[1]}" for c in found.sites}
    names = "/".join(found.classes)
    lines.append(f"one class only: {_some([after[s] for s in found.one_class]) or 'none'}")
    lines.append(
        f"fewer than {found.rules.min_class} in a class: "
        + (f"{_some([after[s] for s in found.small_class])} ({names})" if found.small_class else "none")
    )
    label = found.label_by_site
    if label is not None and label.cramers_v is not None and label.p is not None:
        chance = f"about {label.by_chance:.2f} by chance, chi-square {_p(label.p)}"
        lines.append(f"label by site: Cramer's V {label.cramers_v:.2f} ({chance})")
    return lines


def _length(found: Audit) -> list[str]:
    site, label = found.length_by_site, found.length_by_label
    if site is None or label is None:
        return ["none"]
    if site.eta_squared is None:
        return [f"{site.shortest} frames, all scans alike"]
    between = f"{site.eta_squared:.0%} of the variance lies between sites (eta squared)"
    lines = [f"{site.shortest} to {site.longest} frames; {between}"]
    if site.differs_inside:
        lines.append(f"differs inside {_some([f'{s} ({a}-{b})' for s, (a, b) in site.differs_inside.items()])}")
    if site.all_shortest:
        who = _some([f"{s} ({n})" for s, n in site.all_shortest.items()])
        lines.append(f"all scans have the shortest, {site.shortest} frames, at {who}")
    if label.auc is not None and label.p is not None:
        text = f"as a score for {found.classes[1]}: AUC {label.auc:.2f} over all sites (Mann-Whitney {_p(label.p)})"
        if label.auc_inside is not None:
            text += f", {label.auc_inside:.2f} inside the {len(label.auc_by_site)} sites where it differs"
        lines.append(text)
    return lines


def _repetition_time(found: Audit) -> list[str]:
    tr = found.repetition_time
    if tr is None:
        return ["not stated (no column tr)"]
    values = tr.sites_by_value
    lines = _table([(f"{value} s", _some(sites, most=6)) for value, sites in list(values.items())[:LONGEST_LIST]])
    if len(values) > LONGEST_LIST:
        lines.append(f"and {len(values) - LONGEST_LIST} more values")
    if tr.differs_inside:
        lines.append(f"several values at {_some(tr.differs_inside)}")
    if tr.unknown:
        lines.append(f"not stated for {tr.unknown} scans")
    return lines


def _classes(found: Audit, counts: tuple[int, int]) -> str:
    return ", ".join(f"{n} {name}" for n, name in zip(counts, _class_names(found), strict=True))


def _class_names(found: Audit) -> tuple[str, str]:
    zero, one = found.classes
    # bare digits would read as numbers next to the counts
    return (f"with label {zero}", f"with label {one}") if zero.isdigit() or one.isdigit() else (zero, one)


def _by_site(sites: Iterable[str]) -> str:
    ranked = sorted(Counter(sites).items(), key=lambda item: (-item[1], item[0]))
    return "by site: " + _counts(dict(ranked))


def _counts(by_site: Mapping[str, int]) -> str:
    return _some([f"{site} {n}" for site, n in by_site.items()])


def _some(names: Sequence[str], most: int = LONGEST_LIST) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with their columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"
