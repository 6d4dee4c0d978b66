"""The files of a job: typed, read once, with one kind of error; folders of version 0.1.0 are read."""

import dataclasses
import json
import multiprocessing
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.jobs import JobSpec
from brio.report import markdown_table, write_report
from brio.results import Plan, RunStore, StoredJob, StoredStudy, Summary, TuningRecord, lock_folder
from brio.results.files import read_csv, write_csv
from brio.storage import reserve_name
from brio.studies import StudyContext, run_study
from doctored import change_json
from stored import forget_hashes


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
        assert json.loads((tuned / name).read_text()) == record.to_json()
    assert job.tuning.choices["brio"].keys() == set(job.summary.folds)
    assert job.plan.methods["brio"].tuned == job.tuning.choice("brio")
    assert len(job.runs) == len(job.rows) == 10
    stored = {(run.record.row.method, run.record.row.fold): run.record.row.auc for run in job.runs}
    assert stored == job.rows.set_index(["method", "fold"])["auc"].to_dict()
    for run in job.runs:
        path = tuned / "runs" / run.key / "run.json"
        assert json.loads(path.read_text()) == run.record.to_json()
    assert len(job.predictions) == 2 * job.summary.n_scans
    assert sum(job.cohort_facts["all"]["n"]) == job.summary.n_scans


def as_0_1(folder: Path) -> None:
    """Rename what version 0.1.0 named otherwise, in a folder of today."""
    for path in folder.rglob("run.json"):
        change_json(path, lambda record: record.update(notes=record.pop("details")))
    for path in folder.rglob("tuning.json"):
        change_json(path, lambda tuning: tuning.update(given=tuning.pop("given_settings")))
    for path in folder.rglob("plan.json"):
        plan = json.loads(path.read_text())
        if "reused_from" in plan:
            plan["handed_in"] = plan.pop("reused_from")
        path.write_text(json.dumps(plan | {"brio": "0.1.0"}))
    for path in folder.rglob("weights.safetensors"):
        named = {
            name.partition(".")[2] if name.startswith("parameters.") else name: t for name, t in load_file(path).items()
        }
        groups = ("learned.", "training.", "inference.")
        save_file(
            {("context." + n.partition(".")[2] if n.startswith(groups) else n): t for n, t in named.items()}, path
        )
    for path in folder.rglob("study.json"):
        study = json.loads(path.read_text())
        study["asked"] = study.pop("options")
        study["asked"]["finished"] = study["asked"].pop("reuse")
        path.write_text(json.dumps(study))
        (path.parent / "finding.md").rename(path.parent / "found.md")
    for path in list(folder.rglob("reused")):
        path.rename(path.with_name("handed-in"))
    forget_hashes(folder)


def without_version(page: str) -> str:
    """A report as it is whatever versions planned, trained and reported (as_0_1 changes that of the plan alone)."""
    versions = "|".join(re.escape(version) for version in ("0.1.0", brio.__version__))
    return re.sub(rf"(?:{versions})(?:, (?:{versions}))?", "VERSION", page)


def test_a_job_of_version_0_1_0_is_read(tuned, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(tuned, old)
    as_0_1(old)
    now, then = StoredJob.read(tuned), StoredJob.read(old)
    assert then.plan.brio == "0.1.0"
    assert then.summary == now.summary
    assert then.tuning == now.tuning
    assert [run.record for run in then.runs] == [run.record for run in now.runs]
    wanted = ("alpha_bar", "pi_task", "Pi_bar", "g")
    assert any(run.record.row.method == "brio" for run in then.runs)
    for run in then.runs:
        one, other = (job.store.read_tensors(run.key, wanted) for job in (now, then))
        assert one.keys() == other.keys()
        assert set(one) == (set(wanted) if run.record.row.method == "brio" else set())
        assert all((one[name] == other[name]).all() for name in one)
    pages = [write_report(folder, tmp_path / f"{k}.html").read_text("utf-8") for k, folder in enumerate((tuned, old))]
    assert without_version(pages[1]) == without_version(pages[0]) != pages[0]


def test_a_job_of_version_0_1_0_is_refused_in_a_sentence(cohort, tmp_path):
    brio.run(cohort, ["ridge"], out=tmp_path / "old", device="cpu")
    as_0_1(tmp_path / "old")
    message = r"belongs to another job: it was computed by brio 0\.1\.0, now .* Choose another --out"
    with pytest.raises(BrioError, match=message):
        brio.run(cohort, ["ridge"], out=tmp_path / "old", device="cpu")


def test_tuned_settings_of_version_0_1_0_are_carried_over(tuned, cohort, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(tuned, old)
    as_0_1(old)
    result = brio.run(cohort, ["brio"], tuned=old, out=tmp_path / "new", device="cpu", folds=["site02"])
    assert result.summary.methods["brio"].tuning.budget == 2
    (run,) = StoredJob.read(tmp_path / "new").runs
    assert run.record.settings["epochs"] == 2
    with pytest.raises(BrioError, match=r"tuning\.json: cannot be read .* give the folder of 'brio tune'"):
        brio.run(cohort, ["brio"], tuned=tmp_path / "new", out=tmp_path / "other", device="cpu")


@pytest.mark.usefixtures("undrawn")
def test_a_study_of_version_0_1_0_is_read(cohort, tmp_path):
    brio.run(cohort, ["ridge", "logistic"], out=tmp_path / "job", seeds=1, device="cpu")
    context = StudyContext(
        JobSpec(cohort, ["ridge", "logistic"], device="cpu"), tmp_path / "out", reuse=[tmp_path / "job"]
    )
    place = run_study("comparison", context)
    before = StoredStudy.read(place)
    page = write_report(tmp_path / "out", tmp_path / "new.html").read_text("utf-8")
    as_0_1(tmp_path / "out")
    assert not (place / "finding.md").exists()
    after = StoredStudy.read(place)
    assert dataclasses.replace(after.record, hashes="SHA256SUMS") == before.record
    assert after.record.options.reuse == (f"{tmp_path.name}/job",)
    assert after.finding == before.finding != ""
    page_of_0_1 = write_report(tmp_path / "out", tmp_path / "old.html").read_text("utf-8")
    assert without_version(page_of_0_1) == without_version(page)
    run_study("comparison", context)
    assert (place / "finding.md").is_file()
    assert not (place / "found.md").exists(), "of the two only the new one"


def test_tables_alone_are_enough_for_brio_table(tuned, tmp_path):
    """As our own evidence is stored."""
    for name in ("summary.json", "results.csv"):
        shutil.copy(tuned / name, tmp_path / name)
    job = StoredJob.read(tmp_path)
    assert (job.plan, job.predictions, job.audit, job.runs) == (None, None, None, [])
    with pytest.raises(BrioError, match=r"has no plan\.json; give a folder that 'brio run' or 'brio tune' wrote"):
        write_report(tmp_path)


def test_table_or_text_of_a_study_is_enough(tmp_path):
    """As our own evidence is stored."""
    with pytest.raises(BrioError, match=r"study\.json: cannot be read"):
        StoredStudy.read(tmp_path)
    (tmp_path / "table.csv").write_text("arm,fold\na,01\n")
    study = StoredStudy.read(tmp_path)
    assert (study.record.name, study.finding) == (tmp_path.name, "")
    assert study.table["fold"].tolist() == ["01"]
    (tmp_path / "table.csv").unlink()
    (tmp_path / "found.md").write_text("# Nothing\n")
    study = StoredStudy.read(tmp_path)
    assert (study.finding, study.table) == ("# Nothing\n", None)


def test_a_job_whose_version_did_not_keep_steps_is_read(tuned, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(tuned, old)
    added = ("trained_epochs", "steps")
    for path in old.rglob("run.json"):
        record = json.loads(path.read_text())
        for name in added:
            del record["row"][name]
        path.write_text(json.dumps(record))
    for path in old.rglob("results.csv"):
        pd.read_csv(path, dtype=str).drop(columns=list(added)).to_csv(path, index=False)
    summary = json.loads((old / "summary.json").read_text())
    blocks = {name: method.pop("block") for name, method in summary["methods"].items()}
    summary["methods"] = {
        name: {key: value for key, value in method.items() if key not in added}
        for name, method in summary["methods"].items()
    }
    (old / "summary.json").write_text(json.dumps(summary))
    forget_hashes(old)
    then, now = StoredJob.read(old), StoredJob.read(tuned)
    assert {name: method.block for name, method in then.summary.methods.items()} == blocks
    assert [dataclasses.replace(run.record.row, trained_epochs=None, steps=None) for run in now.runs] == [
        run.record.row for run in then.runs
    ]
    trained = now.summary.methods["brio"]
    written = f"| {trained.trained_epochs:.0f} of {trained.epochs} ({trained.steps:,.0f}) |"
    assert written in markdown_table([now.summary])
    assert f"| at most {trained.epochs} |" in markdown_table([then.summary])


def test_a_summary_from_before_0_1_0_takes_the_kinds_of_methods_from_the_registry(tuned, tmp_path):
    summary = json.loads((tuned / "summary.json").read_text())
    for method in summary["methods"].values():
        for name in ("family", "provenance", "block", "needs", "transductive", "control"):
            del method[name]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert Summary.read(tmp_path) == Summary.read(tuned)
    summary["methods"]["mine"] = summary["methods"].pop("ridge")
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(BrioError, match=r"summary\.json: says nothing about its method 'mine'"):
        Summary.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("n_scans"), "n_scans is missing"),
        (lambda s: s.update(n_scans="many"), "n_scans is 'many', a whole number is expected"),
        (lambda s: s.update(n_scans=-1), "n_scans is -1, a whole number of 0 or more is expected"),
        (lambda s: s.update(smoke_run=0), "smoke_run is 0, true or false is expected"),
        (lambda s: s.update(folds="NYU"), "folds is 'NYU', a list is expected"),
        (lambda s: s.update(protocol="k-fold"), "protocol is 'k-fold', 'loso' or 'kfold' is expected"),
        (lambda s: s.update(methods=[]), "methods is [], an object is expected"),
        (
            lambda s: s["methods"]["ridge"]["auc"].update(mean="high"),
            "methods.ridge.auc.mean is 'high', a number is expected",
        ),
        (
            lambda s: s["methods"]["ridge"]["auc"].update(mean=1.5),
            "methods.ridge.auc.mean is 1.5, a number from 0 to 1 is expected",
        ),
        (
            lambda s: s["methods"]["ridge"]["auc"].update(interval=[0.5]),
            "methods.ridge.auc.interval is [0.5], a list of 2 is expected",
        ),
        (lambda s: s["methods"]["ridge"].update(needs=[1]), "methods.ridge.needs[0] is 1, text is expected"),
        (
            lambda s: s["protocol_settings"].update(n_fold=5),
            "protocol_settings.n_fold is unknown (did you mean 'n_folds'?)",
        ),
    ],
)
def test_what_does_not_fit_is_named(tuned, tmp_path, change, message):
    summary = json.loads((tuned / "summary.json").read_text())
    change(summary)
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(BrioError) as told:
        Summary.read(tmp_path)
    where = tmp_path / "summary.json"
    assert str(told.value) == f"{where}: {message}; repeat the job that wrote it"


@pytest.mark.parametrize("read", [Plan.read, TuningRecord.read])
def test_a_file_that_is_no_json_is_named(read, tmp_path):
    for name in ("plan.json", "tuning.json"):
        (tmp_path / name).write_text("{")
    with pytest.raises(BrioError, match=r"\.json: cannot be read"):
        read(tmp_path)


def test_names_that_look_like_numbers_stay_text(tmp_path):
    table = pd.DataFrame(
        {"participant_id": ["0050002", "1e5"], "fold": ["01", "NA"], "site": ["7", ""], "auc": [0.1, None]}
    )
    write_csv(tmp_path / "t.csv", table)
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


def take_the_lock_twice(folder, pipe):
    for _ in range(2):
        try:
            with lock_folder(folder):
                pipe.send("locked")
        except BrioError as error:
            pipe.send(str(error))
        pipe.recv()


def test_a_folder_is_locked_for_one_process(tmp_path):
    forked = multiprocessing.get_context("fork")  # another process that need not import anything
    here, there = forked.Pipe()
    other = forked.Process(target=take_the_lock_twice, args=(tmp_path, there))
    with lock_folder(tmp_path):
        other.start()
        assert here.poll(60)
        assert "another brio is at work there; wait for it or choose another --out" in here.recv()
    here.send("again")
    assert here.poll(60)
    assert here.recv() == "locked"
    here.send("end")
    other.join(60)
    assert other.exitcode == 0


def test_a_job_takes_the_lock_before_its_first_file(cohort, tmp_path):
    with lock_folder(tmp_path / "job"), pytest.raises(BrioError, match="another brio is at work there"):
        brio.run(cohort, ["ridge"], out=tmp_path / "job", device="cpu")
    assert [p.name for p in (tmp_path / "job").iterdir()] == [".lock"]
    assert brio.run(cohort, ["ridge"], out=tmp_path / "job", device="cpu").folder == tmp_path / "job"


def test_numbers_come_back_exactly(tmp_path):
    values = np.random.default_rng(0).uniform(size=5000) * 10.0 ** np.arange(-4, 6).repeat(500)
    write_csv(tmp_path / "t.csv", pd.DataFrame({"auc": values}))
    assert (read_csv(tmp_path / "t.csv")["auc"].to_numpy() == values).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda lines: [*lines[:2], lines[2].rpartition(",")[0] + ",", *lines[3:]],
            r"predictions\.csv: has one of logit and probability in row 2; both or none",
        ),
        (
            lambda lines: [*lines, lines[-1]],
            r"predictions\.csv: has a participant more than once under one method, fold",
        ),
    ],
)
def test_predictions_that_contradict_themselves_are_refused(tuned, tmp_path, change, message):
    path = forget_hashes(shutil.copytree(tuned, tmp_path / "job")) / "predictions.csv"
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(BrioError, match=message):
        StoredJob.read(path.parent)


def test_a_summary_of_an_earlier_version_has_the_mlp_among_the_networks(cohort, tmp_path):
    brio.run(cohort, "mlp", settings={"epochs": 1}, out=tmp_path / "job", folds=["site01"], device="cpu")
    path = forget_hashes(tmp_path / "job") / "summary.json"
    stored = json.loads(path.read_text())
    assert stored["methods"]["mlp"]["family"] == "network on edges"
    stored["methods"]["mlp"] |= {"family": "linear", "block": "linear"}
    path.write_text(json.dumps(stored))
    read = Summary.read(tmp_path / "job").methods["mlp"]
    assert (read.family, read.block) == ("network on edges", "published code or equations")
