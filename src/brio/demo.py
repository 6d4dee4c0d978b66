"""The demonstration: simulated hospitals are audited and evaluated, then a new one is predicted."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from .api import Result, run
from .cohort import Cohort, audit
from .cohort.simulate import Simulation, simulate
from .connectome import Connectomes
from .console import Progress, silent
from .device import resolve_device
from .errors import BrioError
from .formatting import format_count, format_interval, format_percent, format_points, format_signed, join_names
from .jobs import JobSpec
from .jobs.job import Job, prepare_job
from .methods import find_method
from .models import Model, ScanPredictions, add_evidence, fit_model, predict_scans, read_model, write_model
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
"""Brain networks of the simulation in which the demonstration plants effects."""
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
"""Fewer and larger steps than BRIO's defaults, so that the demonstration takes under a minute; its output says so."""
LEAST_SHARE = 0.05
"""A brain network that contributes less does not count as evidence."""
_EVALUATION_SHARE = 0.7
"""Share of the duration of the demonstration that the evaluation takes, for its progress."""
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
    """Demonstrate brio on simulated hospitals, the last of which is new to every model.

    An interrupted demonstration is resumed: results that are in its folder are not computed again.
    """
    if os.path.abspath(out) == os.getcwd():
        raise BrioError("--out is the current folder, but the demonstration needs its own folder; choose another --out")
    names = {path.name for path in out.iterdir() if not is_partial(path.name)} if out.is_dir() else set()
    if names and "cohort" not in names:  # which a demonstration writes first
        raise BrioError(f"{out}: contains '{min(names)}' but no demonstration; choose another --out")
    resolve_device(device)  # refused before anything is written

    environment = Environment(loader=PackageLoader("brio", "."), undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"align": _align, "count": format_count, "quote": lambda path: shlex.quote(str(path))}
    template = environment.get_template("demo.txt.j2")

    def tell(block: str, **facts: Any) -> None:
        for line in "".join(template.blocks[block](template.new_context(facts))).splitlines():
            say(line)

    simulation = replace(SIMULATION, seed=seed)
    everyone = simulate(simulation)
    sites = np.unique(everyone.sites).tolist()
    first, last = sites[: -simulation.reversed_sites], sites[-1]
    tell("simulate", everyone=everyone, sites=sites, seed=seed, same=f"{first[0]} to {first[-1]}", turned=last)
    audited = audit(everyone)
    closest = max((pair.correlation for pair in audited.next_closest.values()), default=float("nan"))
    tell("audit", audit=audited, closest=closest)
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
    summary, (header, rows) = result.summary, result.text_table()
    facts = {"site": last, "n_sites": len(summary.folds), "n_seeds": len(summary.seeds), "n_scans": summary.n_scans}
    tell("evaluate", rows=[header, *rows], settings=BRIO_SETTINGS, own=find_method("brio").settings, **facts)

    job = prepare_job(JobSpec(cohort, METHODS, device=device))
    applied = {}
    for k, name in enumerate(METHODS):
        progress(f"new hospital, {name}", _EVALUATION_SHARE + (1 - _EVALUATION_SHARE) * k / len(METHODS))
        own_job = job.with_spec(methods=(name,), settings=dict(BRIO_SETTINGS) if name == "brio" else {})
        applied[name] = apply_method(own_job, new, out, device)
    tell("predict", **compare_hospitals(result, new, last, applied), **facts)

    truth = {name: everyone.provenance["truth"][name] for name in PLANTED}
    networks = list_networks(applied["log-ridge"][0], applied["brio-plus"][0], job.cohort, new, truth)
    tell("explain", **tabulate_networks(networks, last, len(summary.folds)), **facts)

    draw_sites(result.rows, result.summary, out / "sites.png", "Simulated cohort")
    result.report(out / "report.html", [out / "predictions" / name for name in METHODS])
    progress("demonstration", 1.0)
    tell("end", out=out)
    return result


def _store_cohort(cohort: Cohort, folder: Path) -> Cohort:
    """Save a cohort, or load it where it was saved before."""
    if not folder.exists():
        return cohort.save(folder)
    stored = Cohort.load(folder)
    frames = np.concatenate([cohort.scan(i) for i in range(len(cohort))])
    if stored.ids.tolist() != cohort.ids.tolist() or not np.array_equal(stored.frames, frames):
        raise BrioError(f"{folder}: contains a different cohort, perhaps from another seed; choose another --out")
    return stored


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


def compare_hospitals(result: Result, new: Cohort, site: str, applied: Mapping[str, Applied]) -> dict[str, Any]:
    """Tabulate the AUC at the new hospital beside that of the evaluation, and count what was predicted."""
    table = applied["brio-plus"][1].table
    rows = [["method", f"AUC, {len(result.summary.folds)} sites", "95% interval", f"AUC, {site}"]]
    rows[0] += ["95% interval", "change"]
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
    called = find_called(table)
    kinds = {"flagged": find_flagged(table), "noted": table["notes"] != "", "called": called}
    kinds["crossing"] = called & (table["interval_crosses_half"] == "yes")
    counts = {kind: members.sum() for kind, members in kinds.items()}
    reasons = describe_codes(table["flag"])
    return {"rows": rows, "here": here, "there": there, "table": table, "reasons": reasons, "counts": counts}


def _compare_over_sites(result: Result) -> tuple[float, list[float]]:
    """Mean difference of AUC between BRIO plus and log-ridge over test sites, with its 95% interval over sites (t)."""
    by_site = result.rows.groupby(["method", "fold"])["auc"].mean()
    differences = (by_site["brio-plus"] - by_site["log-ridge"]).to_numpy(dtype=float)
    return float(differences.mean()), list(t_interval(differences))


def _compare_over_people(new: Cohort, applied: Mapping[str, Applied]) -> tuple[float, list[float]]:
    """Difference of AUC between BRIO plus and log-ridge over the same scans, with DeLong's 95% interval."""
    placements = [placement_values(new.labels, applied[name][1].logit) for name in ("brio-plus", "log-ridge")]
    areas, covariance = delong_covariance(new.labels, np.stack(placements, axis=1))
    contrast = np.array([1.0, -1.0])
    difference, error = float(contrast @ areas), float(np.sqrt(contrast @ covariance @ contrast))
    return difference, [difference - _Z * error, difference + _Z * error]


def list_networks(
    log_ridge: Model, plus: Model, source: Cohort, new: Cohort, truth: Mapping[str, Sequence[int]]
) -> dict[str, np.ndarray]:
    """List how much each planted brain network adds to the distance between the classes, as a share of the total.

    The total is that at the source sites. Shapes: returns [2, 2], by model (log-ridge, BRIO plus) and by place (source
    sites, new site).
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


def tabulate_networks(networks: Mapping[str, np.ndarray], site: str, n_sites: int) -> dict[str, Any]:
    """Tabulate the evidence by brain network, and name the networks whose evidence reverses at the new site."""
    rows = [["brain network", f"log-ridge, {n_sites} sites", site, f"brio-plus, {n_sites} sites", site]]
    rows += [[name, *(format_signed(100 * x, 0) + "%" for x in shares.flat)] for name, shares in networks.items()]
    turned = [name for name, own in networks.items() if ((own[:, 0] >= LEAST_SHARE) & (own[:, 1] < 0)).any()]
    return {"rows": rows, "turned": join_names(turned) or "none"}


def _align(rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others, which hold numbers, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("   " + "  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)
