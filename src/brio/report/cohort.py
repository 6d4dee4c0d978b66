"""The cohort and its audit in a report, and the figure of all sites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..cohort.covariates import ClassNames
from ..drawing import STYLES, make_panels, save_figure
from ..formatting import format_count, format_number, format_percent, join_names, state_p
from ..results import StoredJob, Summary, average_seeds, name_units, unit_columns
from .comparisons import ALPHA

AuditLine = tuple[str, str]
"""``"ok"``, ``"note"`` or ``"warn"``, and a sentence."""


def find_audit_warnings(audit: dict[str, Any], classes: ClassNames) -> dict[str, str]:
    """Find shortcuts for a classifier, doubtful labels, and sites that are unfit for testing.

    Both the verdict and the lines of the audit use these warnings, so they agree.
    """
    warnings = {}
    conflicting = sum(not pair["same_label"] for pair in audit.get("duplicates") or ())
    if conflicting:
        pairs = format_count(conflicting, "pair of duplicate scans has", "pairs of duplicate scans have")
        warnings["duplicates"] = f"{pairs} different labels"
    if _is_significant(audit.get("label_by_site")):
        warnings["labels"] = f"the share of {classes.positives} differs between sites"
    differing = [_name_covariate(one["column"]) for one in audit.get("covariates") or () if one["warn"]]
    if differing:
        verb = "differs" if len(differing) == 1 else "differ"
        warnings["covariates"] = f"{join_names(differing)} {verb} between classes"
    if any(_is_significant(test) for test in (audit.get("dead_patterns") or {}).values()):
        warnings["dead regions"] = "regions without signal reveal the site"
    if audit.get("one_class"):
        sites = format_count(len(audit["one_class"]), "site has", "sites have")
        warnings["one class"] = f"{sites} one class only"
    if audit.get("similar_sites"):
        warnings["site names"] = f"sites with similar names: {join_names(map(join_names, audit['similar_sites']))}"
    return warnings


def _name_covariate(column: str) -> str:
    return {"n_frames": "scan length", "mean_fd": "motion", "tr": "repetition time"}.get(column, column)


def _is_significant(test: dict[str, Any] | None) -> bool:
    p = (test or {}).get("p")
    return p is not None and p < ALPHA


def list_audit_lines(job: StoredJob, classes: ClassNames) -> list[AuditLine]:
    """List the findings of the audit of a job, one sentence per question."""
    plan, audit = job.require_plan(), job.audit
    if plan.audit is None:
        return [("warn", "No audit was applied (--keep-all).")]
    used, n_excluded = job.summary.n_scans, len(plan.excluded)
    lines: list[AuditLine] = [("ok", f"The audit excluded none of {format_count(used, 'scan')}.")]
    if n_excluded:
        total = format_count(used + n_excluded, "scan")
        lines = [("note", f"The audit excluded {n_excluded:,} of {total}.")]
    if audit is None:
        return [*lines, ("note", "The other findings of the audit are not stored in this folder.")]
    warnings = find_audit_warnings(audit, classes)
    lines += [*_describe_scans(audit, warnings), *_describe_labels(audit, warnings, classes)]
    if audit.get("covariates"):
        lines += _describe_covariates(audit["covariates"], classes)
    tr = audit["repetition_time"]
    values = sorted({float(value) for by_value in tr["by_site"].values() for value in by_value}) if tr else []
    if tr is None:
        lines.append(("note", "The repetition time is not given."))
    elif len(values) > 1:
        lines.append(("note", f"Repetition times range from {values[0]:.2f} to {values[-1]:.2f} s."))
    return lines


def _describe_scans(audit: dict[str, Any], warnings: dict[str, str]) -> Iterator[AuditLine]:
    """Describe duplicates, regions without signal, and defects of frames."""
    pairs, not_checked = audit["duplicates"], audit.get("not_checked")
    if pairs:
        conflicting = sum(not pair["same_label"] for pair in pairs)
        extra = f", {conflicting} of them with different labels" if conflicting else ""
        level = "warn" if "duplicates" in warnings else "note"
        yield level, f"Duplicate scans: {format_count(len(pairs), 'pair')}{extra}."
    else:
        yield "ok", "No identical connectomes." if not_checked else "No duplicate scans."
    for atlas, by_site in audit["dead_by_site"].items():
        text = f"{format_count(sum(by_site.values()), 'scan has', 'scans have')} regions without signal in {atlas}"
        test = audit["dead_patterns"].get(atlas)
        if test is None:
            yield "note", f"{text}."
        elif _is_significant(test):
            accuracy, chance = format_percent(test["accuracy"]), format_percent(test["by_chance"])
            size = f"{accuracy}% of scans assigned to the correct site, {chance}% by chance"
            yield "warn", f"{text}; these regions reveal the site ({size})."
        else:
            yield "note", f"{text}; these regions do not significantly predict the site."
    if not audit["dead_by_site"]:
        yield "ok", "Every region has signal in every scan."
    if not_checked:
        yield "note", f"Not checked, because connectomes have no frames: {join_names(not_checked)}."
    if audit["non_finite"]:
        scans = format_count(len(audit["non_finite"]), "scan has", "scans have")
        yield "note", f"{scans} frames with missing values."
    if audit["too_short"]:
        scans = format_count(len(audit["too_short"]), "scan has", "scans have")
        yield "note", f"{scans} fewer than {audit['rules']['min_frames']} valid frames."


def _describe_labels(audit: dict[str, Any], warnings: dict[str, str], classes: ClassNames) -> Iterator[AuditLine]:
    """Describe the classes at sites, and scan length by site."""
    if audit["one_class"]:
        sites = join_names(audit["one_class"])
        yield "warn", f"Sites with one class only, which have no AUC and are not used for training: {sites}."
    elif audit["small_class"]:
        least, sites = audit["rules"]["min_class"], join_names(audit["small_class"])
        yield "note", f"Sites with fewer than {least} participants in a class: {sites}."
    else:
        yield "ok", "Every site has both classes."
    for names in audit.get("similar_sites") or ():
        yield "warn", f"Perhaps one site under several names, which count as {len(names)} sites: {join_names(names)}."
    label, by_site = (audit[key] or {} for key in ("label_by_site", "length_by_site"))
    if label.get("cramers_v") is not None and label.get("p") is not None:
        strength, chance = format_number(label["cramers_v"]), format_number(label["by_chance"])
        size = f"Cramér's V {strength}, {chance} by chance, {state_p(label['p'])}"
        level, found = ("warn", "differs") if "labels" in warnings else ("ok", "does not differ significantly")
        yield level, f"The share of {classes.positives} {found} between sites ({size})."
    if by_site.get("eta_squared") is not None:
        frames = f"{by_site['shortest']} to {by_site['longest']} frames"
        share = f"{100 * by_site['eta_squared']:.0f}% of the variance in length"
        yield "note", f"Scans have {frames}; sites explain {share}."


def _describe_covariates(covariates: Sequence[dict[str, Any]], classes: ClassNames) -> Iterator[AuditLine]:
    """Describe each covariate that differs between classes, and count the others."""
    for one in (one for one in covariates if one["warn"]):
        zero, own = one["typical"]
        means = f"mean {own:.4g} in {classes.positives}, {zero:.4g} in {classes.negatives}"
        if one["kind"] == "category":
            means = f"{own:.0%} {one['value']} in {classes.positives}, {zero:.0%} in {classes.negatives}"
        inside = one["auc_inside"] is not None
        auc, p = (one["auc_inside"], one["p_inside"]) if inside else (one["auc"], one["p"])
        where = "within sites" if inside else "over all sites"
        p = f"{state_p(min(1.0, p * len(covariates)))}, corrected for {format_count(len(covariates), 'covariate')}"
        size = f"{means}; AUC {format_percent(auc)}% {where}, {p}"
        name = _name_covariate(one["column"])
        yield "warn", f"{name[:1].upper()}{name[1:]} differs between classes ({size})."
    similar = [_name_covariate(one["column"]) for one in covariates if not one["warn"]]
    if similar:
        yield "ok", f"No clear difference between classes: {join_names(similar)}."


def draw_sites(rows: pd.DataFrame, summary: Summary, path: str | Path, title: str = "") -> Path:
    """Draw the AUC at each test site (mean over seeds) and, below it, the mean over sites with its 95% interval.

    Under k-fold, folds of different seeds are different folds: each has its own line. A smoke run is marked as such
    above the title.
    """
    by = unit_columns(summary.protocol)
    scores = 100 * average_seeds(rows, units=by)
    sizes = rows.groupby(by)["n_test"].first()
    methods = list(summary.methods)
    order = scores.mean(axis=1).sort_values(na_position="first").index
    height = np.arange(len(order), dtype=float) + 1.8
    figure, (axis,) = make_panels(1, 7.2, 1.9 + 0.3 * (len(order) + len(methods)))
    for y in height:
        axis.axhline(y, color="0.92", linewidth=0.8, zorder=0)
    for k, name in enumerate(methods):
        colour, marker = STYLES[k % len(STYLES)]
        shift = min(0.22, 0.75 / len(methods)) * ((len(methods) - 1) / 2 - k)
        axis.scatter(scores.loc[order, name], height + shift, s=30, color=colour, marker=marker, zorder=3)
        auc = summary.methods[name].auc
        if auc.mean is None:
            continue
        y = 0.6 - 0.42 * k
        if auc.interval is not None:
            axis.plot(100 * np.array(auc.interval), [y, y], color=colour, linewidth=2.5, solid_capstyle="butt")
        axis.scatter([100 * auc.mean], [y], s=56, color=colour, marker=marker, zorder=3)
        ends = [100 * v for v in auc.interval or [auc.mean]]
        right = ends[-1] < 82  # else the label stands to the left, inside the figure
        axis.annotate(
            f"{name}  {format_percent(auc.mean)}",
            (ends[-1] if right else ends[0], y),
            xytext=(9 if right else -9, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=9,
            color=colour,
        )
    axis.axvline(50, color="0.55", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axis.annotate("chance", (50, height[-1] + 0.55), ha="center", va="bottom", fontsize=8, color="0.4", bbox=box)
    axis.axhline(1.2, color="0.35", linewidth=0.8)
    lowest = 0.6 - 0.42 * (len(methods) - 1)
    axis.set_yticks([(0.6 + lowest) / 2, *height])
    unit = "site" if summary.protocol == "loso" else "fold"
    names = [f"{name}  (n = {sizes[place]})" for name, place in zip(name_units(order), order, strict=True)]
    axis.set_yticklabels([f"mean over {unit}s,\n95% interval", *names], fontsize=9)
    axis.set_ylim(lowest - 0.5, height[-1] + 0.9)
    least = float(scores.min().min())
    axis.set_xlim(min(45.0, 50.0 if np.isnan(least) else least - 4), 102)
    axis.set_xticks([t for t in range(0, 101, 10) if t >= axis.get_xlim()[0]])
    axis.set_xlabel(f"AUC {'at' if unit == 'site' else 'in'} the test {unit}, %")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    counts = (format_count(len(order), f"test {unit}"), format_count(len(summary.seeds), "seed"))
    note = ", ".join([f"{summary.n_scans} scans", *counts])
    axis.set_title(f"{title or summary.cohort}: {note}", loc="left", fontsize=10)
    if summary.smoke_run:
        figure.suptitle(summary.smoke_note, x=0.01, ha="left", fontsize=9, color="#B00020")
    return save_figure(figure, path)
