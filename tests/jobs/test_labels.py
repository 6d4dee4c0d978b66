"""Jobs under another label (--label): their files, what may not be mixed with them, workers and companions."""

import json

import pandas as pd
import pytest

import brio as package
from brio.cohort import Cohort, relabel
from brio.cohort.simulate import Simulation, simulate
from brio.jobs import JobSpec, prepare_job
from brio.jobs.dask import pack_stack, train_packed
from brio.jobs.plan import assign_stacks, build_plan
from brio.methods import make_method
from brio.report.evidence import read_evidence
from brio.report.verdict import write_verdict
from brio.results import RunStore

ASK = ["--label", "age>site-median"]
RIDGE = ["--method", "ridge", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels") / "cohort"
    simulate(Simulation(n_sites=5, per_class=8, n_rois=8, frames=60)).save(folder)
    return folder


@pytest.fixture(scope="module")
def asked(brio, place, tmp_path_factory):
    out = tmp_path_factory.mktemp("asked") / "out"
    said = brio("run", place, *ASK, *RIDGE, "--out", out).succeed()
    assert "labels: age above site median = 1" in said.out
    assert "because it defines the label" in said.out
    return out


def test_the_files_of_a_job_have_the_other_labels(place, asked):
    cohort = Cohort.load(place)
    expected = relabel(cohort, "age>site-median")
    rows = pd.read_csv(asked / "predictions.csv").set_index("participant_id")
    assert rows["label"].to_dict() == dict(zip(expected.ids, expected.labels, strict=True))
    plan = json.loads((asked / "plan.json").read_text())
    assert (plan["label"], plan["fingerprint"]) == ("age>site-median", expected.fingerprint)
    assert list(pd.read_csv(asked / "groups.csv")) == ["participant_id", "sex", "motion"], "age is the label"


def test_python_and_the_command_ask_alike(place, asked, tmp_path):
    result = package.run(place, ["ridge"], label="age>site-median", device="cpu", out=tmp_path / "out")
    assert result.rows["auc"].tolist() == pd.read_csv(asked / "results.csv")["auc"].tolist()
    own = package.run(relabel(Cohort.load(place), "age>site-median"), ["ridge"], device="cpu", out=tmp_path / "own")
    assert own.rows["auc"].tolist() == result.rows["auc"].tolist()


def test_results_of_another_question_are_not_mixed(brio, place, asked, tmp_path):
    said = brio("run", place, *RIDGE, "--out", asked).refuse()
    assert "cohort: 'simulated (age>site-median)'" in said.err
    fit = ["fit", place, "--method", "ridge", "--evidence", asked, "--out", tmp_path / "model", "--quiet"]
    for other in ([], ["--label", "age>14.5"]):
        assert "cannot be evidence for this model" in brio(*fit, *other).refuse().err
    said = brio(*fit, *ASK).succeed()
    assert "--method ridge --label 'age>site-median' --seeds 3" in said.text, "how to evaluate what is fitted"
    assert json.loads((tmp_path / "model" / "model.json").read_text())["classes"][1] == "age above site median"


def test_a_job_can_be_given_again_from_its_folder(brio, asked):
    assert 'label = "age>site-median"' in brio("config", asked).out
    evidence = read_evidence(asked)
    assert evidence.commands[0].startswith("brio run COHORT --method ridge --label 'age>site-median' ")
    assert {group.kind for group in evidence.subgroups} <= {"sex", "motion"}
    without = "No confound baseline was scored, so shortcuts through sex, motion or scan length cannot be ruled out"
    assert any(without in sentence for sentence in write_verdict(evidence))


@pytest.mark.parametrize(
    ("question", "told"), [("agee>3", "did you mean 'age'?"), ("sex>3", "is 'F', which is not a number")]
)
def test_mistakes_are_told_in_a_line_and_leave_nothing(brio, place, tmp_path, question, told):
    for words in (["run"], ["tune"], ["study", "comparison"], ["fit"]):
        method = "ridge" if words == ["fit"] else "log-ridge"
        said = brio(*words, place, "--label", question, "--method", method, "--out", tmp_path / "out")
        assert told in said.refuse_in_a_line()
        assert not (tmp_path / "out").exists()


def test_methods_that_are_given_the_label_are_left_out_of_all(place):
    said = []
    job = prepare_job(JobSpec(place, label="age>site-median", device="cpu"), say=said.append)
    assert job.runnable_methods(["ridge", "covariates-only", "core"]) == ["ridge", "covariates-only"]
    assert ["the labels are computed from the column" in line for line in said] == [True]
    job.announce_inputs([make_method("covariates-only"), make_method("ridge")])
    assert ["'covariates-only' uses sex and motion" in line for line in said] == [False, True]


def test_small_sites_follow_the_rules_of_the_audit(place):
    cohort = Cohort.load(place)
    few = {"settings": {"audit.min_class": 9}, "label": "age>site-median", "device": "cpu"}
    kept = set(prepare_job(JobSpec(place, **few)).cohort.sites)
    counts = relabel(cohort, "age>site-median").participants.groupby(["site", "label"]).size().groupby("site").min()
    assert kept == set(counts.index[counts >= 9]) < set(cohort.sites)
    assert set(prepare_job(JobSpec(place, **few, exclude=False)).cohort.sites) == set(cohort.sites)


def test_companions_are_asked_the_same(place):
    job = prepare_job(JobSpec(place, label="sex", companions=[Cohort.load(place)], device="cpu"))
    assert len(job.cohort) == len(job.cohort_before_exclusions)


def test_a_worker_makes_the_same_labels(place, asked, tmp_path):
    job = prepare_job(JobSpec(place, ["ridge"], label="age>site-median", device="cpu"))
    plan = assign_stacks(build_plan(job, ["ridge"]), job.connectomes, None)
    store = RunStore(tmp_path / "runs")
    store.folder.mkdir()
    assert train_packed(pack_stack(job, plan, 1, store)) == ""
    records = {planned.run.fold.name: store.read_record(key).row.auc for key, planned in plan.runs.items()}
    assert records == pd.read_csv(asked / "results.csv").set_index("fold")["auc"].to_dict()
