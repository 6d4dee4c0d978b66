"""The demonstration: simulated hospitals, audited and evaluated, and a new one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .api import Result, run
from .cohort import Audit, Cohort, audit
from .cohort.simulate import Simulation, simulate
from .connectome import Connectomes
from .console import Progress, silent
from .device import resolve_device
from .errors import BrioError
from .formatting import format_count, format_interval, format_percent, format_points, format_signed, join_names
from .jobs import JobSpec
from .jobs.job import Job, prepare_job
from .methods import find_method
from .models import (
    Model,
    ScanPredictions,
    add_evidence,
    fit_model,
    predict_scans,
    read_model,
    write_model,
)
from .models.evidence import Estimate
from .models.external import score_labelled_scans, write_predictions
from .models.predict import compute_region_contributions, find_called, find_flagged
from .models.ranges import describe_codes
from .protocol.metrics import delong_covariance, placement_values
from .protocol.statistics import t_interval
from .report.cohort import draw_sites
from .report.predictions import render_prediction_page
from .storage import is_partial

METHODS = ("log-ridge", "brio", "brio-plus")
SEEDS = 3
PLANTED = ("stable", "unstable", "site")
"""Networks of the simulation in which the demonstration plants something."""
SIMULATION = Simulation(
    n_sites=8,
    per_class=16,
    frames=400,
    stable=0.25,
    unstable=3.0,
    spurious=0.0,
    reversed_sites=1,
    duplicates=1,
    last_site_per_class=80,
)
"""The regime "misleading" of benchmarks/simulated_regimes.py with fewer participants, a copied scan and a larger last
site."""
BRIO_SETTINGS: dict[str, Any] = {"epochs": 6, "T_w": 3, "cell_batch": 4, "learning_rate": 1e-3}
"""Fewer and larger steps than BRIO's own, so that the demonstration takes under a minute; what it prints says so."""
LEAST_SHARE = 0.05
"""A network that adds less is no evidence."""
_EVALUATION_SHARE = 0.7
"""Share of the time of the demonstration, for its progress."""
_Z = 1.959963984540054

Applied = tuple[Model, ScanPredictions, Estimate]
"""A model, its predictions for the new hospital, and their AUC with an interval over participants."""


def run_demo(
    out: Path,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = silent,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Show what brio is for, on simulated hospitals of which the last is new to every model.

    An interrupted demonstration is completed: what is in its folder is not computed again.
    """
    if os.path.abspath(out) == os.getcwd():
        raise BrioError("--out: a demonstration needs a folder of its own; name one")
    names = {path.name for path in out.iterdir() if not is_partial(path.name)} if out.is_dir() else set()
    if names and "cohort" not in names:  # which a demonstration writes first
        raise BrioError(f"{out}: holds '{min(names)}' and no demonstration; choose another --out")
    resolve_device(device)  # refused before anything is written

    simulation = replace(SIMULATION, seed=seed)
    everyone = simulate(simulation)
    last = max(everyone.sites.tolist())
    _say_all(say, describe_simulation(simulation, everyone))
    audited = audit(everyone)
    _say_all(say, describe_audit(audited))
    cohort = _store_cohort(everyone.select(everyone.sites != last), out / "cohort")
    new = _store_cohort(everyone.select((everyone.sites == last) & audited.keep), out / "new-hospital")

    result = run(
        cohort,
        METHODS,
        out=out / "results",
        seeds=SEEDS,
        settings=dict(BRIO_SETTINGS),
        device=device,
        progress=lambda message, share: progress(message, _EVALUATION_SHARE * share),
    )
    _say_all(say, describe_evaluation(result))

    job = prepare_job(JobSpec(cohort, METHODS, device=device))
    applied = {}
    for k, name in enumerate(METHODS):
        progress(f"new hospital, {name}", _EVALUATION_SHARE + (1 - _EVALUATION_SHARE) * k / len(METHODS))
        own_job = job.with_spec(methods=(name,), settings=dict(BRIO_SETTINGS) if name == "brio" else {})
        applied[name] = apply_method(own_job, new, out, device)
    _say_all(say, describe_new_hospital(result, new, last, applied))

    truth = {name: everyone.provenance["truth"][name] for name in PLANTED}
    networks = list_networks(applied["log-ridge"][0], applied["brio-plus"][0], job.cohort, new, truth)
    _say_all(say, describe_networks(networks, last, len(result.summary.folds)))

    draw_sites(result.rows, result.summary, out / "sites.png", "Simulated cohort")
    result.report(out / "report.html")
    progress("demonstration", 1.0)
    _say_all(say, describe_files(out))
    return result


def _say_all(say: Callable[[str], None], lines: Sequence[str]) -> None:
    for line in lines:
        say(line)


def describe_simulation(simulation: Simulation, cohort: Cohort) -> list[str]:
    """Say what was simulated and what is planted in it."""
    sites = np.unique(cohort.sites).tolist()
    same, turned = (
        own[0] if len(own) == 1 else f"{own[0]} to {own[-1]}"
        for own in (sites[: -simulation.reversed_sites], sites[-simulation.reversed_sites :])
    )
    planted = (
        "stronger coupling in patients, in every minute, at every site",
        f"one short burst: in patients at {same}, in controls at {turned}",
        "coupling that depends on the scanner, not on the class",
    )
    return [
        f"1  Simulate: {len(cohort)} scans at {len(sites)} sites, {cohort.n_rois} regions, seed {simulation.seed}. "
        "Planted:",
        *(f"   {name:<9} {words}" for name, words in zip(PLANTED, planted, strict=True)),
        *(f"   the scan of {one} is there a second time, as {two}" for one, two in cohort.provenance["duplicates"]),
    ]


def describe_audit(audited: Audit) -> list[str]:
    """Say which scans the audit excludes and how far copies lie from different scans."""
    lines = [f"2  Audit: {audited.n_after} of {audited.n_before} scans stay"]
    for name, why in audited.explain_exclusions().items():
        lines.append(f"   {name} at {audited.site_of[name]}: {'; '.join(why)}")
    closest = max((pair.correlation for pair in audited.next_closest.values()), default=float("nan"))
    for pair in audited.duplicates:
        lines.append(
            f"   rank correlation over time of {pair.first} and {pair.second}: {pair.correlation:.2f}; "
            f"of the most similar different scans: {closest:.2f}"
        )
    return lines


def _store_cohort(cohort: Cohort, folder: Path) -> Cohort:
    """Save a cohort, or load it where it was saved before."""
    if not folder.exists():
        return cohort.save(folder)
    stored = Cohort.load(folder)
    frames = np.concatenate([cohort.scan(i) for i in range(len(cohort))])
    if stored.ids.tolist() != cohort.ids.tolist() or not np.array_equal(stored.frames, frames):
        raise BrioError(f"{folder}: holds another cohort, perhaps of another seed; choose another --out")
    return stored


def describe_evaluation(result: Result) -> list[str]:
    """Tabulate the evaluation at left-out sites and say how BRIO was trained."""
    summary, (header, rows) = result.summary, result.text_table()
    own = find_method("brio").settings
    changed = ", ".join(f"{name}={value:g} (own: {own[name]:g})" for name, value in BRIO_SETTINGS.items())
    return [
        f"3  Evaluate: each of {format_count(len(summary.folds), 'site')} is tested by models trained on others "
        f"({format_count(len(summary.seeds), 'seed')}, {summary.n_scans} scans)",
        *_align([header, *rows]),
        f"   To save time BRIO has {changed}.",
    ]


def apply_method(job: Job, new: Cohort, out: Path, device: str) -> Applied:
    """Fit the method of a job and predict the scans of a hospital; write both, or read the model if it is there."""
    name = job.spec.methods[0]
    model_folder, predictions_folder = out / "models" / name, out / "predictions" / name
    if model_folder.exists():
        model = read_model(model_folder)
    else:
        model = add_evidence(fit_model(job), out / "results", job.connectomes)
        write_model(model, model_folder)
    predictions = predict_scans(model, new, device=device)
    if not predictions_folder.exists():
        page = render_prediction_page(model, new, predictions)
        write_predictions(model, new, predictions, predictions_folder, page)
    scores = score_labelled_scans(new, predictions)
    assert scores is not None
    return model, predictions, scores.auc


def describe_new_hospital(result: Result, new: Cohort, site: str, applied: Mapping[str, Applied]) -> list[str]:
    """Tabulate the AUC at the new hospital beside that of the evaluation."""
    n_sites, table = len(result.summary.folds), applied["brio-plus"][1].table
    rows = [["method", f"AUC, {n_sites} sites", "95 % interval", f"AUC, {site}", "95 % interval", "change"]]
    for name, method in result.summary.methods.items():
        before, after = method.auc, applied[name][2]
        change = None if before.mean is None or after.value is None else after.value - before.mean
        interval = None if after.low is None or after.high is None else [after.low, after.high]
        scores = [format_percent(before.mean), format_interval(before.interval), format_percent(after.value)]
        rows.append([name, *scores, format_interval(interval), format_points(change)])
    here, there = (
        f"{format_points(mean)} ({format_interval(interval, format_points)})"
        for mean, interval in (_compare_over_sites(result), _compare_over_people(new, applied))
    )
    flagged, noted, called = find_flagged(table), table["notes"] != "", find_called(table)
    why = f" ({describe_codes(table['flag'])})" if flagged.any() else ""
    crossing = int((called & (table["interval_crosses_half"] == "yes")).sum())
    return [
        f"4  Fit to the {n_sites} sites, predict {len(table)} scans of {site}, a new hospital",
        *_align(rows),
        f"   Intervals are over sites (t) and over the participants of {site} (DeLong).",
        f"   brio-plus minus log-ridge in points: {here} at the {n_sites} sites, {there} at {site}.",
        "   Both are ridge regression on log-connectomes; brio-plus has a penalty on unstable evidence besides.",
        f"   Flagged by brio-plus: {int(flagged.sum())} of {len(table)} scans{why}; with a note: {int(noted.sum())}; "
        f"called: {int(called.sum())}, of these with an interval across one half: {crossing}.",
    ]


def _compare_over_sites(result: Result) -> tuple[float, list[float]]:
    """Mean difference of AUC between BRIO plus and log-ridge over test sites, with its 95 % interval over sites (t)."""
    by_site = result.rows.groupby(["method", "fold"])["auc"].mean()
    differences = (by_site["brio-plus"] - by_site["log-ridge"]).to_numpy(dtype=float)
    return float(differences.mean()), list(t_interval(differences))


def _compare_over_people(new: Cohort, applied: Mapping[str, Applied]) -> tuple[float, list[float]]:
    """Difference of AUC between BRIO plus and log-ridge over the same scans, with DeLong's 95 % interval."""
    placements = [placement_values(new.labels, applied[name][1].logit) for name in ("brio-plus", "log-ridge")]
    areas, covariance = delong_covariance(new.labels, np.stack(placements, axis=1))
    contrast = np.array([1.0, -1.0])
    difference, error = float(contrast @ areas), float(np.sqrt(contrast @ covariance @ contrast))
    return difference, [difference - _Z * error, difference + _Z * error]


def list_networks(
    log_ridge: Model, plus: Model, source: Cohort, new: Cohort, truth: Mapping[str, Sequence[int]]
) -> dict[str, np.ndarray]:
    """List what each planted network adds to the distance of the classes, as a share of that at the source sites.

    Shapes: returns [2, 2], by model (log-ridge, BRIO plus) and by where (source sites, new site).
    """
    differences = []  # mean contribution of each ROI to the margin in patients less that in controls
    for model in (log_ridge, plus):
        for cohort in (source, new):
            added, patient = compute_region_contributions(model, Connectomes(cohort, "cpu")), cohort.labels == 1
            assert added is not None
            differences.append(added[patient].mean(0) - added[~patient].mean(0))
    of_rois = np.stack(differences).reshape(2, 2, -1)
    total = np.array([[own[0].sum()] for own in of_rois])
    return {
        name: np.array([[part[rois].sum() for part in own] for own in of_rois]) / total for name, rois in truth.items()
    }


def describe_networks(networks: Mapping[str, np.ndarray], site: str, n_sites: int) -> list[str]:
    """Tabulate the evidence by network and name what turns round: it misleads at the new site."""
    rows = [["network", f"log-ridge, {n_sites} sites", site, f"brio-plus, {n_sites} sites", site]]
    rows += [[name, *(format_signed(100 * x, 0) + " %" for x in shares.flat)] for name, shares in networks.items()]
    turned = [name for name, own in networks.items() if ((own[:, 0] >= LEAST_SHARE) & (own[:, 1] < 0)).any()]
    return [
        "5  Why: what each network adds to the distance between patients and controls",
        *_align(rows),
        f"   In percent of the whole distance at the {n_sites} sites. brio-plus gives less weight to evidence that",
        f"   changes between parts of a scan, which can be measured at these {n_sites} sites.",
        f"   Evidence that turns round at {site}: {join_names(turned) or 'none'}.",
    ]


def describe_files(out: Path) -> list[str]:
    """Name the files to look at and the commands to try next."""
    cohort, results, explanation, plus = (
        shlex.quote(str(out / name)) for name in ("cohort", "results", "explanation", "models/brio-plus")
    )
    return [
        f"6  Open {out / 'report.html'} and {out / 'predictions' / 'brio-plus' / 'predictions.html'}, then try",
        f"   brio audit {cohort}",
        f"   brio compare {results}",
        f"   brio explain {plus} --cohort {cohort} --sites --out {explanation}",
    ]


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: the first to the left, the others, which hold numbers, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("   " + "  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    return lines
