"""What studies share: arms trained once, reused results, what is reported before anything is trained."""

import json
import shutil

import numpy as np
import pytest
from study_contexts import SETTINGS, bare, context_on, read, training, watched

import brio
from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.methods import find_method, list_methods
from brio.report.evidence import read_evidence
from brio.report.write import write_report
from brio.studies import Arm, comparison, list_studies, make_arm, run_study
from brio.studies.comparison import list_compared_arms
from brio.studies.study import find_study
from commands import refuse
from doctored import change_json

QUICK = {"epochs": "2", "T_w": "1", "d_h": "8"}


# ---------------------------------------------------------------- arms and settings


def test_settings_reach_the_methods_that_have_them(cohort, tmp_path):
    context = context_on(cohort, tmp_path, settings={"epochs": "7", "T_w": "3", "lambda_env": "2", "variant": "w/o SM"})
    assert context.job.spec.settings_of("ridge") == {}
    assert context.job.spec.settings_of("gcn") == {"epochs": "7"}
    assert context.job.spec.settings_of("backbone") == {"epochs": "7", "T_w": "3"}  # its name fixes the others
    assert context.job.spec.settings_of("brio") == {"epochs": "7", "T_w": "3", "lambda_env": "2", "variant": "w/o SM"}
    assert context.settings_of("brio").lambda_env == 2.0
    assert context.settings_of("backbone").lambda_env == 0.0
    assert context.job_of(make_arm("brio", T_w=1)).spec.method_settings["T_w"] == 1, "what makes the arm comes last"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"settings": {"epohcs": "3"}}, "no method has the setting 'epohcs'; did you mean 'epochs'?"),
        ({"settings": {"harmonise.kind": "combat"}}, "studies do not support harmonisation"),
        ({"methods": ["rigde"]}, "'rigde' is unknown; did you mean 'ridge'?"),
        ({"folds": ["site99"]}, "fold 'site99' is unknown"),
        ({"seeds": 0}, "must be a whole number from 1"),
        ({"reuse": ["nowhere"]}, "nowhere: this folder does not exist"),
    ],
)
def test_wrong_words_are_told_before_anything_is_written(words, told, cohort, tmp_path):
    refuse(told.replace("?", r"\?"), context_on, cohort, tmp_path / "out", **words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("study", "words", "told"),
    [
        ("sensitivity", {"settings": {"J": "four"}}, "'J'=four: must be a whole number"),
        ("alignment", {"settings": {"lambda_env": "much"}}, "'lambda_env'=much: must be a number"),
        ("ablation", {"settings": {"epochs": "5"}}, "below epochs"),
        ("sensitivity", {"settings": {"block_length": "4"}}, "block_scale"),
    ],
)
def test_what_an_arm_cannot_be_is_told_before_the_first_is_trained(study, words, told, cohort, tmp_path):
    context = context_on(cohort, tmp_path / "out", **words)
    with training():
        refuse(told, run_study, study, context)
    assert not (tmp_path / "out").exists()


def test_some_folds_are_as_many_in_distribution(cohort, tmp_path):
    context = context_on(cohort, tmp_path, folds=["site02", "site05", "site02"])

    def folds(context, protocol):
        return {job.run.fold.name for job in context.plan_arm(make_arm("ridge", protocol)).runs.values()}

    assert folds(context, "loso") == {"site02", "site05"}
    assert folds(context, "kfold") == {"1", "2"}
    few = context_on(cohort, tmp_path, folds=list(np.unique(cohort.sites)), settings={"protocol.n_folds": "4"})
    assert folds(few, "kfold") == {"1", "2", "3", "4"}


# ---------------------------------------------------------------- smoke runs


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"seeds": 4, "settings": {"protocol.n_folds": "5"}}, ""),
        ({"seeds": 1}, "1 seed"),
        ({"seeds": 2, "folds": ["site01"], "settings": {"K": "2"}}, "not every fold, 2 seeds, K=2"),
    ],
)
def test_what_makes_a_smoke_run(words, why, cohort, tmp_path):
    assert context_on(cohort, tmp_path, **{"settings": None, **words}).explain_smoke() == why


@pytest.fixture(scope="module")
def tuned(cohort, tmp_path_factory):
    """A search over settings of gcn with three seeds."""
    folder = tmp_path_factory.mktemp("searched") / "tuned"
    brio.tune(cohort, "gcn", seeds=3, budget=2, out=folder, settings={"epochs": "2"}, device="cpu")
    return folder


def test_results_reused_with_other_settings_make_a_smoke_run(cohort, tuned, tmp_path):
    brio.run(cohort, ["ridge", "gcn"], seeds=3, out=tmp_path / "job", settings={"epochs": "2"}, device="cpu")
    context = context_on(cohort, tmp_path / "out", settings=None, seeds=3, reuse=[tmp_path / "job"])
    assert context.explain_smoke([make_arm("ridge")]) == ""
    assert context.explain_smoke([make_arm("ridge"), make_arm("gcn")]) == "gcn reused with epochs=2"
    context = context_on(cohort, tmp_path / "out", settings=None, seeds=3, reuse=[tuned])
    told = context.explain_smoke([Arm("gcn", tuned=True)])
    assert told == "gcn reused with epochs=2", "not with what was chosen on validation scans"


@pytest.mark.usefixtures("undrawn")
def test_tuned_rows_count_among_methods_and_not_among_parts_of_one(cohort, tuned, tmp_path):
    said: list[str] = []
    context = context_on(cohort, tmp_path / "out", methods=["gcn", "ridge"], reuse=[tuned], seeds=3, say=said.append)
    with watched() as seen:
        place = run_study("comparison", context)
        rows = read(place / "table.csv")
        assert seen["executed"] == ["loso/ridge"]
        own = context.collect_rows([make_arm("gcn"), make_arm("ridge")])
    assert seen["executed"] == ["loso/ridge", "loso/gcn"], "an arm without tuning is trained, the other one shared"
    given = read(tuned / "results.csv")["auc"].tolist()
    assert rows[rows["arm"] == "gcn"]["auc"].tolist() == given
    assert own[own["arm"] == "gcn"]["auc"].tolist() != given
    told = "The settings of gcn were tuned. The settings of the other methods were not."
    assert told in (place / "finding.md").read_text()
    assert [line for line in said if "reused results are tuned" in line] == [
        "gcn: trained here, because the reused results are tuned"
    ]
    assert [p.name for p in sorted((tmp_path / "out" / "reused" / "loso").iterdir())] == ["gcn (tuned)"]
    evidence = read_evidence(tmp_path / "out")
    shown = {a.name: a for a in evidence.main}
    assert set(shown) == {"ridge", "gcn", "gcn (tuned)"}, "both are told of"
    assert shown["gcn (tuned)"].rows["auc"].tolist() == given
    assert evidence.elsewhere == []
    assert f"REUSED/{tuned.parent.name}/tuned" in evidence.commands[0]
    assert "the highest of 2" in write_report(tmp_path / "out").read_text(encoding="utf-8")


def test_what_had_nothing_to_tune_is_the_methods_own(cohort, tmp_path):
    brio.tune(cohort, "dead-rois-only", seeds=2, budget=3, out=tmp_path / "tuned", device="cpu")
    context = context_on(cohort, tmp_path / "out", reuse=[tmp_path / "tuned"])
    with training():
        context.collect_rows([make_arm("dead-rois-only")])


def test_an_arm_that_was_begun_elsewhere_is_refused_before_another_is_trained(cohort, tmp_path):
    first = context_on(cohort, tmp_path)
    first.train([make_arm("ridge"), make_arm("logistic")])
    plan = tmp_path / "arms" / "loso" / "logistic" / "plan.json"
    change_json(plan, lambda document: document.update(device="cuda", threads=None))
    context_on(cohort, tmp_path).train([make_arm("ridge"), make_arm("logistic")])  # finished: read here as well
    shutil.rmtree(next((tmp_path / "arms" / "loso" / "logistic" / "runs").iterdir()))
    with training(), pytest.raises(BrioError, match=r"started on another device.*--device cuda,"):
        context_on(cohort, tmp_path).train([make_arm("svm"), make_arm("logistic")])


@pytest.mark.usefixtures("undrawn")
def test_a_study_says_where_its_arms_were_computed(cohort, tmp_path):
    def compare():
        place = run_study("comparison", context_on(cohort, tmp_path, methods=["ridge", "logistic"]))
        return (place / "finding.md").read_text()

    assert "Computed on" not in compare()
    for path in (tmp_path / "arms" / "loso" / "logistic" / "runs").glob("*/run.json"):
        change_json(path, lambda record: record["row"].update(device="cuda (a GPU)"))
    assert "Computed on cpu, except for logistic on cuda (a GPU)." in compare()


# ---------------------------------------------------------------- sharing and resuming


def test_studies_share_runs(seen):
    """Every arm of all studies is executed once, in a folder of its own, whatever asks for it."""
    assert len(seen["executed"]) == len(set(seen["executed"])) == 3 + 3 + 6 + 3 + 1
    assert {a.split("/")[0] for a in seen["executed"]} == {"loso", "kfold"}
    assert sum(n for _, n in seen["fitted"]) == 10 * len(seen["executed"]) - 3 * 2  # four folds, but five sites


def test_a_finished_folder_is_not_trained_again(context, cohort):
    with watched() as seen:
        again = context_on(cohort, context.out)
        rows = again.collect_rows([make_arm("brio"), make_arm("ridge", "kfold")])
    assert seen["fitted"] == []
    assert len(rows) == 10 + 8


def test_another_job_in_the_folder_is_refused(context, cohort):
    other = context_on(cohort, context.out, settings={**SETTINGS, "epochs": "9"})
    refuse("belongs to another job", other.results_of, make_arm("brio"))


# ---------------------------------------------------------------- reused results


@pytest.fixture(scope="module")
def linear(cohort, tmp_path_factory):
    """A finished job with its scores doctored, so that it is seen where they come from."""
    folder = tmp_path_factory.mktemp("reused") / "linear"
    brio.run(cohort, ["ridge", "logistic"], seeds=2, out=folder, device="cpu")
    table = read(folder / "results.csv")
    table.assign(auc=np.linspace(0.5, 1, len(table))).to_csv(folder / "results.csv", index=False)
    change_json(folder / "summary.json", lambda summary: summary.update(smoke_run=False))
    return folder


@pytest.mark.usefixtures("undrawn")
def test_reused_results_stand_for_their_methods(linear, cohort, tmp_path):
    context = context_on(cohort, tmp_path / "out", methods=["logistic", "svm", "ridge"], reuse=[linear])
    with training("loso/svm"):
        place = run_study("comparison", context)
    rows, given = read(place / "table.csv"), read(linear / "results.csv")
    for name in ("ridge", "logistic"):
        mine, theirs = (t[t[c] == name] for t, c in ((rows, "arm"), (given, "method")))
        assert mine["auc"].tolist() == theirs["auc"].tolist()
        assert mine["fold"].tolist() == theirs["fold"].tolist()
    assert set(rows["seeds"]) == {2}
    assert json.loads((place / "study.json").read_text())["arms"] == ["logistic", "svm", "ridge"]


def test_only_the_folds_and_seeds_of_the_study_count(linear, cohort, tmp_path):
    context = context_on(cohort, tmp_path, seeds=1, folds=["site04", "site02"], methods=["ridge"], reuse=[linear])
    rows = context.collect_rows([make_arm("ridge")])
    assert rows[["fold", "seed"]].to_numpy().tolist() == [["site02", 0], ["site04", 0]]
    assert context.results_of(make_arm("ridge")).facts == {"folds": 2, "seeds": 1, "epochs": None, "K": None}
    kept = tmp_path / "reused" / "loso" / "ridge"
    assert read(kept / "results.csv")["auc"].tolist() == rows["auc"].tolist()
    runs = read(kept / "predictions.csv")[["method", "fold", "seed"]].drop_duplicates()
    assert runs.to_numpy().tolist() == [["ridge", "site02", 0], ["ridge", "site04", 0]]
    summary = json.loads((kept / "summary.json").read_text())
    assert summary["smoke_run"], "with one seed and two folds, whatever the job was"
    ((name, scores),) = summary["methods"].items()
    assert name == "ridge"
    assert scores["auc"]["mean"] == pytest.approx(rows["auc"].mean()), "of these rows, not of all that are there"
    assert scores["auc_of_averaged_logits"]["mean"] is None, "not known of fewer seeds"
    assert not (tmp_path / "arms").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"seeds": 3}, "no run of 'ridge' for fold site01, seed 2"),
        ({"settings": {"least_penalty": "999", "largest_penalty": "1000"}}, r"'ridge' use .*_penalty=0\.1, .*=999\.0"),
    ],
)
def test_reused_runs_that_do_not_fit_are_refused(words, told, linear, cohort, tmp_path):
    context = context_on(cohort, tmp_path / "out", methods=["svm", "ridge"], reuse=[linear], **words)
    with training():
        refuse(told, run_study, "comparison", context)
    same = context_on(cohort, tmp_path / "same", settings={"penalties": "5"}, methods=["ridge"], reuse=[linear])
    assert same.results_of(make_arm("ridge")).reused


def test_rows_of_another_cohort_or_of_other_folds_are_refused(linear, tmp_path, cohort):
    other = simulate(Simulation(n_sites=5, per_class=5, n_rois=12, frames=60, seed=7))
    refuse("another cohort", context_on, other, tmp_path / "out", methods=["svm"], reuse=[linear])
    fewer = cohort.select(np.arange(len(cohort)) > 0)
    refuse("other exclusions", context_on, fewer, tmp_path / "out", methods=["svm"], reuse=[linear])
    with pytest.raises(BrioError, match=r"protocol\.validation_sites is 2 in that job, but 1 here"):
        context_on(cohort, tmp_path / "out", settings={"protocol.validation_sites": "1"}, reuse=[linear])
    assert not (tmp_path / "out").exists()


def test_results_of_a_variant_are_reused(paper, cohort, tmp_path):
    """Also of a job that is no smoke run, whose settings hold those that a variant fixes."""
    folder = tmp_path / "job"
    shutil.copytree(paper / "loso", folder)
    change_json(folder / "summary.json", lambda summary: summary.update(smoke_run=False))
    context = context_on(cohort, tmp_path / "out", methods=["backbone"], reuse=[folder])
    with training():
        found = context.results_of(make_arm("backbone"))
    table = read(folder / "results.csv")
    assert found.rows["auc"].tolist() == table[table["method"] == "backbone"]["auc"].tolist()


@pytest.mark.usefixtures("undrawn")
def test_participants_keep_their_leading_zeros_in_reused_results(cohort, tmp_path):
    """ABIDE numbers its participants 0050002, 0050003, ...: read as numbers they would be others."""
    ids = [f"{50002 + k:07d}" for k in range(len(cohort))]
    numbered = bare(cohort, participant_id=ids)
    brio.run(numbered, ["ridge"], seeds=1, out=tmp_path / "job", device="cpu")
    context = context_on(numbered, tmp_path / "out", seeds=1, methods=["ridge"], settings={}, reuse=[tmp_path / "job"])
    with training():
        run_study("comparison", context)
    kept = tmp_path / "out" / "reused" / "loso" / "ridge" / "predictions.csv"
    assert kept.read_bytes() == (tmp_path / "job" / "predictions.csv").read_bytes()
    (ridge,) = read_evidence(tmp_path / "out").arms
    assert set(ridge.predictions["participant_id"]) == set(ids)


def test_studies_of_models_train_what_was_reused_and_leave_its_rows(linear, cohort, tmp_path):
    context = context_on(cohort, tmp_path / "out", seeds=1, methods=["ridge", "logistic"], reuse=[linear])
    before = find_study("comparison").find(context)
    with training("loso/ridge"):
        diagnosed = context.measure_discrepancies(make_arm("ridge"))
    truth = read(tmp_path / "out" / "arms" / "loso" / "ridge" / "results.csv")
    assert diagnosed["auc"].tolist() == truth["auc"].tolist(), "those of the models that were looked into"
    after = find_study("comparison").find(context)
    assert after.table.equals(before.table), "whichever study comes first"
    assert before.table["auc"].tolist() != truth["auc"].tolist()


# ---------------------------------------------------------------- what a cohort lacks


LACKING = {"sex", "age", "motion", "hemisphere", "bold"}


def test_methods_that_the_cohort_cannot_feed_are_left_out_with_a_line_each(cohort, tmp_path):
    said: list[str] = []
    names = {e.name for e in list_methods() if not e.fixed and not e.file}
    hungry = {name for name in names if LACKING & set(find_method(name).needs)}
    assert {"core", "fc-hgnn", "deci", "covariates-only"} <= hungry
    context = context_on(bare(cohort), tmp_path / "out", methods=None, say=said.append, settings=None)
    for protocol in ("loso", "kfold", "loso"):
        assert {a.method for a in list_compared_arms(context, protocol)} == names - hungry
    assert set(context.left_out) == hungry
    lines = [line for line in said if line.startswith("left out: ")]
    assert len(lines) == len(hungry), "once"
    assert sum("'sex'" in line for line in lines) >= 3
    assert any("'deci'" in line and "'tr'" in line for line in lines)
    assert [a.method for a in find_study("agreement").list_arms(context)] == [
        *("coral", "irm", "gsat", "brainood", "backbone", "brio")
    ]
    full = context_on(cohort, tmp_path / "out", methods=None, say=said.append, settings=None)
    assert {a.method for a in list_compared_arms(full)} == names
    assert full.left_out == {}


def test_a_gap_in_a_column_is_a_lack(cohort, tmp_path):
    gap = cohort.participants[["age", "sex", "tr", "mean_fd"]].copy()
    gap.loc[gap.index[3], "age"] = np.nan
    context = context_on(bare(cohort, covariates=gap, atlas=cohort.atlas), tmp_path, methods=None, settings=None)
    compared = {a.method for a in list_compared_arms(context)}
    assert compared & {"core", "fc-hgnn", "covariates-only", "deci"} == {"deci", "covariates-only"}
    assert "1 of" in context.left_out["core"]


@pytest.mark.usefixtures("undrawn")
def test_what_is_left_out_is_written_down(cohort, tmp_path, monkeypatch):
    few = [find_method(name) for name in ("ridge", "core", "logistic", "covariates-only")]
    monkeypatch.setattr(comparison, "list_methods", lambda: few)
    context = context_on(bare(cohort), tmp_path / "out", methods=None, seeds=1, settings=None)
    place = run_study("comparison", context)
    assert set(read(place / "table.csv")["arm"]) == {"ridge", "logistic"}
    told = [line for line in json.loads((place / "study.json").read_text())["text"] if line.startswith("Left out")]
    for name, line in zip(("core", "covariates-only"), told, strict=True):
        assert line.startswith(f"Left out: method '{name}' needs the sex of every participant")
        assert line in (place / "finding.md").read_text()
    assert sum("Left out" in line for line in find_study("efficiency").find(context).text) == 2


def test_a_method_that_was_asked_for_is_an_error_before_anything_is_trained(cohort, tmp_path):
    context = context_on(bare(cohort), tmp_path / "out", methods=["ridge", "core"])
    for study in ("comparison", "paper", "agreement", "scan-length"):
        with training(), pytest.raises(BrioError, match=r"'core' needs the sex .* no column 'sex'"):
            run_study(study, context)
    refuse("'core' needs the sex", run_study, "efficiency", context)


# ---------------------------------------------------------------- poor cohorts


@pytest.fixture(scope="module")
def one_class() -> Cohort:
    """Six sites; at site03 all are patients."""
    made = simulate(Simulation(n_sites=6, per_class=4, n_rois=8, frames=60))
    return bare(made, label=np.where(made.sites == "site03", 1, made.labels))


def test_a_site_without_both_classes_counts_nowhere(one_class, tmp_path):
    context = context_on(one_class, tmp_path, methods=["ridge", "logistic"], settings={}, seeds=1)
    found = find_study("comparison").find(context)
    assert found.table.groupby("arm")["auc"].apply(lambda s: s.isna().sum()).to_dict() == {"logistic": 1, "ridge": 1}
    summary = found.summary.set_index("arm")
    known = found.table.dropna(subset=["auc"])
    assert summary.loc["ridge", "AUC"] == pytest.approx(100 * known[known["arm"] == "ridge"]["auc"].mean())
    assert summary.loc["logistic", "better at"].endswith(" of 5")
    figure = found.draw()
    assert len(figure.axes) == 3


POOR = ["comparison", "agreement", "efficiency"]
DEMANDING = ["adaptation", "retest", "labels"]  # refuse a cohort of small sites, without repeated scans or covariates
REST = [s.name for s in list_studies() if s.name not in POOR + DEMANDING]


@pytest.mark.parametrize("names", [POOR, pytest.param(REST, marks=pytest.mark.soak)], ids=["some", "rest"])
def test_one_site_and_a_linear_method_are_enough(names, one_class, tmp_path):
    """No arm to compare with, one site that can be scored, one that cannot: nothing breaks, no text says nan."""
    context = context_on(one_class, tmp_path / "out", methods=["ridge"], folds=["site03", "site01"], seeds=1)
    for name in names:
        place = run_study(name, context)
        assert "nan" not in (place / "finding.md").read_text()
        told = json.loads((place / "study.json").read_text())
        assert told["smoke"].startswith("not every fold, 1 seed, epochs=2")
        assert told["folds"] == (2 if name not in ("efficiency",) else 0)
    if names == POOR:
        assert "None of the compared methods is trained in epochs." in (place / "finding.md").read_text()
