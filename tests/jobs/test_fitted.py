"""Finished runs brought back to life: the same answers, weights and facts as when they were fitted."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from brio.cohort.simulate import Simulation, simulate
from brio.jobs import JobSpec, prepare_job
from brio.jobs.plan import build_plan
from brio.jobs.run import execute_plan
from brio.jobs.train import load_fitted_runs
from brio.protocol import auc
from commands import refuse
from stored import rehash

SETTINGS = {"ridge": {}, "brio": {"epochs": "5", "learning_rate": "0.01", "T_w": "2", "K": "2", "M": "2", "d_h": "8"}}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """A finished job of each method: the job and its folder."""
    cohort = simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60, stable=1.0))
    made = {}
    for name, settings in SETTINGS.items():
        job = prepare_job(JobSpec(cohort, seeds=2, settings=settings, device="cpu", runs_per_stack=4))
        made[name] = job, execute_plan(job, build_plan(job, [name]), tmp_path_factory.mktemp("fitted") / name).folder
    return made


@pytest.mark.parametrize("name", SETTINGS)
def test_runs_answer_as_they_did(name, jobs):
    job, folder = jobs[name]
    method, fitted_runs = load_fitted_runs(job, name, folder)
    assert method.name == name
    rows = pd.read_csv(folder / "results.csv", dtype={"fold": str}).query("method == @name").reset_index(drop=True)
    said = pd.read_csv(folder / "predictions.csv", dtype={"fold": str}).query("method == @name")
    graphs, labels = job.connectomes, job.cohort.labels
    assert [(o.run.seed, o.run.fold.name) for o in fitted_runs] == list(zip(rows["seed"], rows["fold"], strict=True))
    for fitted, row in zip(fitted_runs, rows.to_dict("records"), strict=True):
        fold, seed = fitted.run.fold, fitted.run.seed
        mine = said[(said["fold"] == fold.name) & (said["seed"] == seed)]
        assert mine["participant_id"].tolist() == job.cohort.ids[fold.test].tolist()
        assert fitted.test_logit.tolist() == mine["margin"].tolist()
        np.testing.assert_array_equal(method.predict_margins(fitted, graphs, fold.test), fitted.test_logit)
        assert auc(labels[fold.test], fitted.test_logit) == row["auc"]
        chosen = auc(labels[fold.validation], method.predict_margins(fitted, graphs, fold.validation))
        assert chosen == pytest.approx(row["validation_auc"], abs=1e-12)
        assert fitted.validation_auc == row["validation_auc"]


def test_weights_and_facts_are_those_of_the_fit(jobs):
    job, folder = jobs["brio"]
    method, fitted_runs = load_fitted_runs(job, "brio", folder)
    assert method.settings.epochs == 5
    again = method.fit(job.connectomes, [o.run for o in fitted_runs[:4]])  # the first stack
    for kept, fresh in zip(fitted_runs[:4], again, strict=True):
        assert kept.tensors.keys() == fresh.tensors.keys()
        assert all(torch.equal(kept.tensors[n], fresh.tensors[n]) for n in fresh.tensors)
        assert (kept.selected_epoch, kept.trained_epochs) == (fresh.selected_epoch, fresh.trained_epochs)
        assert kept.steps == fresh.steps > 0
        assert kept.block_length == fresh.block_length
        assert kept.block_length is not None
        assert kept.details["validation_curve"] == fresh.details["validation_curve"]
        assert [epoch for epoch, _ in kept.details["validation_curve"]] == [3, 4, 5]
    job, folder = jobs["ridge"]
    assert load_fitted_runs(job, "ridge", folder)[1][0].trained_epochs is None


def test_weights_that_were_not_kept_are_told(jobs, tmp_path):
    job, folder = jobs["ridge"]
    copy = tmp_path / "job"
    shutil.copytree(folder, copy)
    _, fitted_runs = load_fitted_runs(job, "ridge", copy)
    assert len(fitted_runs) == 10
    for file in copy.rglob("weights.safetensors"):
        file.unlink()
    refuse(r"weights\.safetensors: is missing, although SHA256SUMS lists it", load_fitted_runs, job, "ridge", copy)
    rehash(copy)
    refuse("was not kept", load_fitted_runs, job, "ridge", copy)
    shutil.rmtree(copy / "runs")
    refuse("cannot be read", load_fitted_runs, job, "ridge", copy)


def test_runs_with_other_settings_are_not_these(jobs):
    job, folder = jobs["brio"]
    other = job.with_spec(settings={**SETTINGS["brio"], "K": "3"})
    refuse("cannot be read", load_fitted_runs, other, "brio", folder)
