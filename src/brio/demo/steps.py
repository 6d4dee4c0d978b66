"""Run the demonstration: simulate, audit, evaluate at left-out sites, fit, predict a new hospital, say why."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..api import Result, run
from ..cohort import Cohort, audit
from ..cohort.simulate import Simulation, simulate
from ..device import resolve_device
from ..errors import BrioError
from ..jobs import JobSpec
from ..jobs.job import prepare_job
from ..methods import find_method
from ..progress import Progress, silent
from ..report import draw_sites
from ..storage import is_partial
from . import text

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
    say_all(text.describe_simulation(simulation, everyone))
    audited = audit(everyone)
    say_all(text.describe_audit(audited))
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
    say_all(text.describe_evaluation(result, BRIO_SETTINGS, {name: own[name] for name in BRIO_SETTINGS}))

    from .new_hospital import (  # torch, after all that can be refused
        apply_model,
        compare_areas,
        compare_over_sites,
        fit_or_read,
        list_networks,
        score_briefly,
    )

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
    say_all(text.describe_new_hospital(result, last, applied, differences, unpenalised))

    truth = {name: everyone.provenance["truth"][name] for name in text.PLANTED}
    networks = list_networks(applied["ridge"].model, applied["brio-plus"].model, job.cohort, new, truth)
    say_all(text.describe_networks(networks, last, len(result.summary.folds)))

    draw_sites(result.rows, result.summary, out / "sites.png", "Simulated cohort")
    result.report(out / "report.html")
    progress("demonstration", 1.0)
    say_all(text.describe_files(out))
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
