"""What the demonstration prints: every sentence is made from the numbers, or from the parameters of the simulation."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..api import Result
from ..cohort import Audit, Cohort
from ..cohort.simulate import Simulation
from ..formatting import format_count
from ..models.predict import find_called, find_flagged
from ..models.reasons import describe_codes
from ..results.format import format_interval, format_percent, format_points, format_signed, join_names

if TYPE_CHECKING:
    import pandas as pd

    from ..models.evidence import Estimate
    from .new_hospital import AppliedModel, NetworkEvidence

PLANTED = ("stable", "unstable", "site")
"""Networks of the simulation in which the demonstration plants something."""


def describe_simulation(simulation: Simulation, cohort: Cohort) -> list[str]:
    """Say what was simulated and what is planted in it."""
    sites = np.unique(cohort.sites).tolist()
    same, turned = sites[: -simulation.reversed_sites], sites[-simulation.reversed_sites :]
    planted = (
        "stronger coupling in patients, in every minute, at every site",
        f"one short burst: in patients at {_span(same)}, in controls at {_span(turned)}",
        "coupling that depends on the scanner, not on the class",
    )
    duplicates = [f"the scan of {one} is there a second time, as {two}" for one, two in cohort.provenance["duplicates"]]
    scans = f"{len(cohort)} scans at {len(sites)} sites, {cohort.n_rois} regions, seed {simulation.seed}"
    return [
        f"1  Simulate: {scans}. Planted:",
        *(f"   {name:<9} {words}" for name, words in zip(PLANTED, planted, strict=True)),
        *(f"   {line}" for line in duplicates),
    ]


def describe_audit(audited: Audit) -> list[str]:
    """Say which scans the audit excludes and how far copies lie from different scans."""
    excluded = [
        f"   {name} at {audited.site_of[name]}: {'; '.join(why)}" for name, why in audited.explain_exclusions().items()
    ]
    closest = max((pair.correlation for pair in audited.next_closest.values()), default=float("nan"))
    found = [
        f"   rank correlation over time of {pair.first} and {pair.second}: {pair.correlation:.2f}; "
        f"of the most similar different scans: {closest:.2f}"
        for pair in audited.duplicates
    ]
    return [f"2  Audit: {audited.n_after} of {audited.n_before} scans stay", *excluded, *found]


def describe_evaluation(result: Result, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Tabulate the evaluation at left-out sites and say how BRIO was trained."""
    summary, (header, rows) = result.summary, result.text_table()
    changed = ", ".join(f"{name}={value:g} (own: {defaults[name]:g})" for name, value in settings.items())
    return [
        f"3  Evaluate: each of {format_count(len(summary.folds), 'site')} is tested by models trained on others "
        f"({format_count(len(summary.seeds), 'seed')}, {summary.n_scans} scans)",
        *_align([header, *rows]),
        f"   To save time BRIO has {changed}.",
    ]


def describe_new_hospital(
    result: Result, site: str, applied: Mapping[str, AppliedModel], differences: Sequence[Estimate], unpenalised: float
) -> list[str]:
    """Tabulate the AUC at the new hospital beside that of the evaluation."""
    n_sites, n_scans = len(result.summary.folds), len(applied["ridge"].predictions.table)
    rows = [["method", f"AUC, {n_sites} sites", "95 % interval", f"AUC, {site}", "95 % interval", "change"]]
    for name, method in result.summary.methods.items():
        before, after = method.auc, applied[name].auc
        change = None if before.mean is None or after.value is None else after.value - before.mean
        scores = [format_percent(before.mean), format_interval(before.interval), format_percent(after.value)]
        rows.append([name, *scores, _write_interval(after), format_points(change)])
    here, there = (f"{format_points(d.value)} ({_write_interval(d, format_points)})" for d in differences)
    return [
        f"4  Fit to the {n_sites} sites, predict {n_scans} scans of {site}, a new hospital",
        *_align(rows),
        f"   Intervals are over sites (t) and over the participants of {site} (DeLong).",
        f"   brio-plus minus ridge in points: {here} at the {n_sites} sites, {there} at {site}.",
        _describe_range(applied["brio-plus"].predictions.table),
        f"   AUC at {site} of brio-plus without its penalty on unstable evidence (lambda_re=0): "
        f"{format_percent(unpenalised)}.",
    ]


def _describe_range(table: pd.DataFrame) -> str:
    """Say how many scans brio-plus flags and why, how many have a note, and how many it calls."""
    flagged, noted, called = find_flagged(table), table["notes"] != "", find_called(table)
    why = f" ({describe_codes(table['flag'])})" if flagged.any() else ""
    crossing = int((called & (table["interval_crosses_half"] == "yes")).sum())
    return (
        f"   Flagged by brio-plus: {int(flagged.sum())} of {len(table)} scans{why}; with a note: {int(noted.sum())}; "
        f"called: {int(called.sum())}, of these with an interval across one half: {crossing}."
    )


def describe_networks(networks: Sequence[NetworkEvidence], site: str, n_sites: int) -> list[str]:
    """Tabulate the evidence by network and name what turns round."""
    rows = [["network", f"ridge, {n_sites} sites", site, f"brio-plus, {n_sites} sites", site]]
    for network in networks:
        shares = [format_signed(100 * share, 0) + " %" for share in (*network.ridge, *network.plus)]
        rows.append([network.name, *shares])
    turned = join_names([network.name for network in networks if network.turns_round]) or "none"
    return [
        "5  Why: what each network adds to the distance between patients and controls",
        *_align(rows),
        f"   In percent of the whole distance at the {n_sites} sites. brio-plus gives less weight to evidence that",
        f"   changes between parts of a scan, which can be measured at these {n_sites} sites.",
        f"   Evidence that turns round at {site}: {turned}.",
    ]


def describe_files(out: Path) -> list[str]:
    """Name the files to look at and the commands to try next."""

    def quote(*parts: str) -> str:
        return shlex.quote(str(out.joinpath(*parts)))

    plus = quote("models", "brio-plus")
    return [
        f"6  Open {out / 'report.html'} and {out / 'predictions' / 'brio-plus' / 'predictions.html'}, then try",
        f"   brio audit {quote('cohort')}",
        f"   brio compare {quote('results')}",
        f"   brio explain {plus} --cohort {quote('cohort')} --sites --out {quote('explanation')}",
    ]


def _write_interval(estimate: Estimate, write: Callable[[float], str] = format_percent) -> str:
    low, high = estimate.low, estimate.high
    return format_interval(None if low is None or high is None else [low, high], write)


def _span(sites: Sequence[str]) -> str:
    return sites[0] if len(sites) == 1 else f"{sites[0]} to {sites[-1]}"


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: the first to the left, the others, which hold numbers, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("   " + "  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    return lines
