"""The files of a job: typed, read once, with one kind of error."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.report.write import write_report
from brio.results import RunStore, StoredJob, StoredStudy, Summary, lock_folder
from brio.results.files import format_csv, read_csv
from brio.schemas import to_json
from brio.storage import SUMS, reserve_name, write_recorded, write_sums
from commands import refuse
from doctored import change_json
from stored import rehash


@pytest.fixture(scope="module")
def cohort():
    return simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60))


@pytest.fixture(scope="module")
def tuned(cohort, tmp_path_factory) -> Path:
    """A tuned job of two methods."""
    folder = tmp_path_factory.mktemp("results") / "tuned"
    settings = {"epochs": 2, "patience": "none", "T_w": 1, "K": 2, "M": 2}
    brio.tune(cohort, ["brio", "ridge"], out=folder, budget=2, seeds=1, settings=settings, device="cpu")
    return folder


def test_what_is_written_is_what_is_read(tuned):
    job = StoredJob.read(tuned)
    for name, record in (("plan.json", job.plan), ("summary.json", job.summary)):
        assert json.loads((tuned / name).read_text()) == to_json(record)
    assert job.tuning.choices["brio"].keys() == set(job.summary.folds)
    assert job.plan.methods["brio"].tuned == job.tuning.choice("brio")
    assert len(job.runs) == len(job.rows) == 10
    stored = {(run.record.row.method, run.record.row.fold): run.record.row.auc for run in job.runs}
    assert stored == job.rows.set_index(["method", "fold"])["auc"].to_dict()
    for run in job.runs:
        path = tuned / "runs" / run.key / "run.json"
        assert json.loads(path.read_text()) == to_json(run.record)
    assert len(job.predictions) == 2 * job.summary.n_scans
    assert sum(job.cohort_facts["all"]["n"]) == job.summary.n_scans


def test_tables_alone_are_enough_for_brio_table(tuned, tmp_path):
    """As our own evidence is stored."""
    for name in ("summary.json", "results.csv"):
        shutil.copy(tuned / name, tmp_path / name)
    write_sums(tmp_path)
    job = StoredJob.read(tmp_path)
    assert (job.plan, job.predictions, job.audit, job.runs) == (None, None, None, [])
    refuse(r"has no plan\.json; give a folder that 'brio run' or 'brio tune' wrote", write_report, tmp_path)


def test_table_or_text_of_a_study_is_enough(tmp_path):
    """As our own evidence is stored."""
    refuse(r"study\.json: cannot be read", StoredStudy.read, tmp_path)
    write_recorded(tmp_path, {"table.csv": "arm,fold\na,01\n"})
    study = StoredStudy.read(tmp_path)
    assert (study.record.name, study.finding) == (tmp_path.name, "")
    assert study.table["fold"].tolist() == ["01"]
    for name in ("table.csv", SUMS):
        (tmp_path / name).unlink()
    write_recorded(tmp_path, {"finding.md": "# Nothing\n"})
    study = StoredStudy.read(tmp_path)
    assert (study.finding, study.table) == ("# Nothing\n", None)


def test_what_does_not_fit_is_named_with_the_remedy(copy):
    change_json(copy / "summary.json", lambda summary: summary["methods"]["ridge"]["auc"].update(mean=1.5))
    problem = "methods.ridge.auc.mean is 1.5, expected a number from 0 to 1 or null; repeat the job that wrote it"
    refuse(f"{re.escape(str(copy / 'summary.json'))}: {re.escape(problem)}$", Summary.read, copy)


def test_names_that_look_like_numbers_stay_text(tmp_path):
    table = pd.DataFrame(
        {"participant_id": ["0050002", "1e5"], "fold": ["01", "NA"], "site": ["7", ""], "auc": [0.1, None]}
    )
    write_recorded(tmp_path, {"t.csv": format_csv(table)})
    read = read_csv(tmp_path / "t.csv")
    assert read["participant_id"].tolist() == ["0050002", "1e5"]
    assert read["fold"].tolist() == ["01", "NA"], "a site may be called NA"
    assert read["site"].isna().tolist() == [False, True]
    assert read["auc"].dtype == float


def test_a_run_is_stored_whole_or_not_at_all(tuned, tmp_path):
    record = StoredJob.read(tuned).runs[0].record
    store = RunStore(tmp_path / "runs")
    store.remove_partial_runs()
    store.write("a", record, {"w": torch.ones(2)})
    store.write("a", record, {"w": torch.zeros(2)})
    assert torch.equal(store.read_weights("a")["w"], torch.ones(2)), "the first one stays"
    assert store.read_record("a") == record
    reserve_name(tmp_path / "runs").mkdir()
    assert "b" not in store
    store.remove_partial_runs()
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["a"]
    other = RunStore(tmp_path / "other")
    other.remove_partial_runs()
    other.copy_finished_runs(store.folder, ["a", "b"])
    assert other.read_record("a") == record
    assert "b" not in other


def test_a_job_takes_the_lock_before_its_first_file(cohort, tmp_path):
    with lock_folder(tmp_path / "job"), pytest.raises(BrioError, match="another brio process is using this folder"):
        brio.run(cohort, ["ridge"], out=tmp_path / "job", device="cpu")
    assert [p.name for p in (tmp_path / "job").iterdir()] == [".lock"]
    assert brio.run(cohort, ["ridge"], out=tmp_path / "job", device="cpu").folder == tmp_path / "job"


def test_numbers_come_back_exactly(tmp_path):
    values = np.random.default_rng(0).uniform(size=5000) * 10.0 ** np.arange(-4, 6).repeat(500)
    write_recorded(tmp_path, {"t.csv": format_csv(pd.DataFrame({"auc": values}))})
    assert (read_csv(tmp_path / "t.csv")["auc"].to_numpy() == values).all()


@pytest.fixture
def copy(tuned, tmp_path) -> Path:
    return shutil.copytree(tuned, tmp_path / "job")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "predictions.csv",
            {"margin": [None]},
            "row 1 has only some of margin, logit and probability; expected all or none",
        ),
        ("predictions.csv", {"fold": ["site99"]}, "has the fold 'site99', which is not in summary.json"),
        ("results.csv", {"method": ["svm"]}, "has the method 'svm', which is not in summary.json"),
        ("results.csv", {"method": ["ridge"] * 10}, "has no row for the method 'brio'"),
    ],
)
def test_tables_that_contradict_themselves_or_the_summary_are_refused(copy, name, values, message):
    table = pd.read_csv(copy / name)
    for column, cells in values.items():
        table[column] = [*cells, *table[column][len(cells) :]]
    table.to_csv(copy / name, index=False)
    refuse(re.escape(f"{name}: {message}"), StoredJob.read, rehash(copy))


def test_predictions_with_a_participant_twice_are_refused(copy):
    with (copy / "predictions.csv").open("r+") as file:
        file.write(file.readlines()[-1])
    refuse(r"predictions\.csv: lists a participant more than once for the same method", StoredJob.read, rehash(copy))


def test_a_run_that_is_gone_and_weights_that_cannot_be_read_are_named(copy):
    first, second = StoredJob.read(copy).runs[:2]
    (copy / "runs" / second.key / "weights.safetensors").write_bytes(b"no weights")
    store = StoredJob.read(rehash(copy)).store
    for read in (store.read_weights, lambda key: store.read_tensors(key, ["g"])):
        refuse(r"weights\.safetensors: cannot be read", read, second.key)
    shutil.rmtree(copy / "runs" / first.key)
    with pytest.raises(BrioError, match="is missing; run the command of the job again to train this run"):
        StoredJob.read(copy).runs  # noqa: B018


def test_a_report_replaces_no_folder_and_no_file_of_another_program(tuned, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "own.html").write_text("mine")
    refused = {
        "": "is a folder; give a file name",
        "pipe": "not a regular file",
        "own.html": "was not written by",
    }
    for name, message in refused.items():
        refuse(message, write_report, tuned, tmp_path / name)
