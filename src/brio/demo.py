"""The demonstration: simulated hospitals, audited and evaluated, and a new one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

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
    Ensemble,
    Member,
    Model,
    ScanPredictions,
    add_evidence,
    fit_model,
    predict_scans,
    read_model,
    write_model,
)
from .models.evidence import Estimate, describe_codes
from .models.external import score_labelled_scans, write_predictions
from .models.fit import settle_final_settings
from .models.predict import compute_region_contributions, find_called, find_flagged
from .protocol import auc, make_training_fold
from .protocol.metrics import delong_covariance, placement_values
from .protocol.statistics import t_interval
from .report import draw_sites, render_prediction_page
from .storage import is_partial
from .training import Run

if TYPE_CHECKING:
    import pandas as pd

    from .models.evidence import Estimate


__all__ = ["BRIO_SETTINGS", "METHODS", "SEEDS", "SIMULATION", "run_demo"]


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


_Z = 1.959963984540054
LEAST_SHARE = 0.05
"""A network that adds less is no evidence."""


@dataclass(frozen=True, eq=False)
class AppliedModel:
    """A model, its predictions for the new hospital, and their AUC with an interval over participants."""

    model: Model
    predictions: ScanPredictions
    auc: Estimate


@dataclass(frozen=True)
class NetworkEvidence:
    """What a planted network of regions adds to the margins of two models."""

    name: str
    ridge: tuple[float, float]
    plus: tuple[float, float]

    @property
    def turns_round(self) -> bool:
        """Whether either model takes it for evidence at the source sites, and it misleads at the new hospital."""
        return any(here >= LEAST_SHARE and there < 0 for here, there in (self.ridge, self.plus))


def fit_or_read(job: Job, folder: Path, evidence: Path | None) -> Model:
    """Fit a model and write it, or read it where it was written before."""
    if folder.exists():
        return read_model(folder)
    model = fit_model(job)
    if evidence is not None:
        model = add_evidence(model, evidence, job.connectomes)
    write_model(model, folder)
    return model


def apply_model(model: Model, cohort: Cohort, out: Path, device: str) -> AppliedModel:
    """Predict the scans of a hospital and write the predictions, unless they are there."""
    predictions = predict_scans(model, cohort, device=device)
    if not out.exists():
        write_predictions(model, cohort, predictions, out, render_prediction_page(model, cohort, predictions))
    scores = score_labelled_scans(cohort, predictions)
    assert scores is not None
    return AppliedModel(model, predictions, scores.auc)


def score_briefly(job: Job, cohort: Cohort) -> float:
    """Fit a closed-form method to all sites, write nothing, and return its AUC at a hospital.

    Intervals, ranges and all else that a model needs are not computed.
    """
    name = job.spec.methods[0]
    method = settle_final_settings(name, job.spec.settings_of(name))
    (fitted,) = method.fit(job.connectomes, [Run(make_training_fold(job.cohort, 0, 0), 0)])
    ensemble = Ensemble(method, (Member(fitted),))
    margins = ensemble.collect_margins(Connectomes(cohort, job.device.torch_device))
    return float(auc(cohort.labels, margins.full[0]))


def compare_areas(cohort: Cohort, first: AppliedModel, second: AppliedModel) -> Estimate:
    """Compute the difference of two AUCs over the same scans, with DeLong's 95 % interval."""
    label = cohort.labels
    placements = [placement_values(label, one.predictions.logit) for one in (first, second)]
    areas, covariance = delong_covariance(label, np.stack(placements, axis=1))
    contrast = np.array([1.0, -1.0])
    difference, error = float(contrast @ areas), float(np.sqrt(contrast @ covariance @ contrast))
    return Estimate(difference, difference - _Z * error, difference + _Z * error)


def compare_over_sites(rows: pd.DataFrame, first: str, second: str) -> Estimate:
    """Compute the mean difference of two methods' AUC over test sites, with its 95 % interval over sites (t)."""
    by_site = rows.groupby(["method", "fold"])["auc"].mean()
    differences = (by_site[first] - by_site[second]).to_numpy(dtype=float)
    low, high = t_interval(differences)
    return Estimate(float(differences.mean()), float(low), float(high))


def list_networks(
    ridge: Model, plus: Model, source: Cohort, new: Cohort, truth: Mapping[str, Sequence[int]]
) -> list[NetworkEvidence]:
    """List what each planted network adds to the margins of ridge and BRIO plus, at source sites and a new one."""
    plain = [Connectomes(cohort, "cpu") for cohort in (source, new)]
    of_model = []
    for model in (ridge, plus):
        at_source, at_new = (_measure_class_difference(model, connectomes) for connectomes in plain)
        total = at_source.sum()
        of_model.append([(at_source[rois].sum() / total, at_new[rois].sum() / total) for rois in truth.values()])
    return [NetworkEvidence(name, *shares) for name, *shares in zip(truth, *of_model, strict=True)]


def _measure_class_difference(model: Model, plain: Connectomes) -> np.ndarray:
    """Mean contribution of each ROI to the margin in patients less that in controls. Shape [P]."""
    added = compute_region_contributions(model, plain)
    assert added is not None
    patient = plain.cohort.labels == 1
    return np.asarray(added[patient].mean(0) - added[~patient].mean(0))


METHODS = ("ridge", "brio", "brio-plus")
SEEDS = 3
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
_EVALUATION_SHARE = 0.7
"""Share of the time of the demonstration, for its progress."""


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
    _refuse_others(out)
    resolve_device(device)  # refused before anything is written

    def say_all(lines: Iterable[str]) -> None:
        for line in lines:
            say(line)

    simulation = replace(SIMULATION, seed=seed)
    everyone = simulate(simulation)
    last = max(everyone.sites.tolist())
    say_all(describe_simulation(simulation, everyone))
    audited = audit(everyone)
    say_all(describe_audit(audited))
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
    own = find_method("brio").settings
    say_all(describe_evaluation(result, BRIO_SETTINGS, {name: own[name] for name in BRIO_SETTINGS}))

    job = prepare_job(JobSpec(cohort, METHODS, device=device))
    applied = {}
    for k, name in enumerate(METHODS):
        progress(f"new hospital, {name}", _EVALUATION_SHARE + (1 - _EVALUATION_SHARE) * k / len(METHODS))
        own_job = job.with_spec(methods=(name,), settings=dict(BRIO_SETTINGS) if name == "brio" else {})
        model = fit_or_read(own_job, out / "models" / name, out / "results")
        applied[name] = apply_model(model, new, out / "predictions" / name, device)
    differences = (
        compare_over_sites(result.rows, "brio-plus", "ridge"),
        compare_areas(new, applied["brio-plus"], applied["ridge"]),
    )
    unpenalised = score_briefly(job.with_spec(methods=("brio-plus",), settings={"lambda_re": 0.0}), new)
    say_all(describe_new_hospital(result, last, applied, differences, unpenalised))

    truth = {name: everyone.provenance["truth"][name] for name in PLANTED}
    networks = list_networks(applied["ridge"].model, applied["brio-plus"].model, job.cohort, new, truth)
    say_all(describe_networks(networks, last, len(result.summary.folds)))

    draw_sites(result.rows, result.summary, out / "sites.png", "Simulated cohort")
    result.report(out / "report.html")
    progress("demonstration", 1.0)
    say_all(describe_files(out))
    return result


def _refuse_others(out: Path) -> None:
    """Refuse a folder with files but no cohort, which a demonstration writes first, and the one we are in."""
    if os.path.abspath(out) == os.getcwd():
        raise BrioError("--out: a demonstration needs a folder of its own; name one")
    names = {path.name for path in out.iterdir() if not is_partial(path.name)} if out.is_dir() else set()
    if names and "cohort" not in names:
        raise BrioError(f"{out}: holds '{min(names)}' and no demonstration; choose another --out")


def _store_cohort(cohort: Cohort, folder: Path) -> Cohort:
    """Save a cohort, or load it where it was saved before."""
    if not folder.exists():
        return cohort.save(folder)
    stored = Cohort.load(folder)
    if stored.ids.tolist() != cohort.ids.tolist() or not np.array_equal(stored.frames, _join_frames(cohort)):
        raise BrioError(f"{folder}: holds another cohort, perhaps of another seed; choose another --out")
    return stored


def _join_frames(cohort: Cohort) -> np.ndarray:
    """Frames of the selected scans, end to end, as a folder has them. Shape [F, P]."""
    return np.concatenate([cohort.scan(i) for i in range(len(cohort))])
