"""The study of other labels: its rows are those of jobs under each label, and its text says what they show."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from study_contexts import bare, read, tree, watched

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.formatting import format_signed
from brio.jobs import JobSpec
from brio.results import StoredStudy
from brio.studies import StudyContext, run_study
from brio.studies.study import choose_label
from commands import command

METHODS = ["ridge", "log-ridge", "covariates-only"]
LABELS = ["own label", "age>site-median", "age>14.5", "sex"]


@pytest.fixture(scope="module")
def planted():
    """Age is carried by the coupling of the stable network, as the diagnosis is; sex is random."""
    cohort = simulate(Simulation(n_sites=5, per_class=9, n_rois=12, frames=60, stable=0.8))
    age = 10.0 + 9 * cohort.labels + np.random.default_rng(0).uniform(0, 3, len(cohort))
    return replace(cohort, participants=cohort.participants.assign(age=age))


def make_context(cohort, out, **options):
    spec = JobSpec(cohort, METHODS, seeds=1, device="cpu", settings={"audit.min_class": 2})
    return StudyContext(spec, out, **options)


@pytest.fixture(scope="module")
def made(planted, tmp_path_factory):
    out = tmp_path_factory.mktemp("labels") / "out"
    said: list[str] = []
    with watched() as seen:
        run_study("labels", make_context(planted, out, say=said.append))
    return out, said, seen


@pytest.fixture(scope="module")
def rows(made):
    return read(made[0] / "studies" / "labels" / "table.csv")


def test_every_label_has_the_methods_that_may_be_asked(made, rows):
    assert list(dict.fromkeys(rows["question"])) == LABELS
    arms = rows.groupby("question")["arm"].unique()
    assert sorted(arms["own label"]) == sorted(METHODS)
    for label in LABELS[1:]:  # covariates-only is given age and sex
        assert sorted(arms[label]) == ["log-ridge", "ridge"]
    text = (made[0] / "studies" / "labels" / "finding.md").read_text()
    for label in LABELS[1:]:
        assert f"Left out of '{label}', since they are given what it asks for: covariates-only." in text


def test_rows_are_those_of_a_job_with_that_label(rows, planted, tmp_path):
    label = "age>site-median"
    options = {"seeds": 1, "device": "cpu", "settings": {"audit.min_class": 2}}
    plain = brio.run(planted, ["log-ridge"], label=label, out=tmp_path, **options)
    mine = rows[(rows["question"] == label) & (rows["arm"] == "log-ridge")]
    assert mine["auc"].tolist() == plain.rows["auc"].tolist()


def test_the_planted_age_is_found_and_the_random_sex_is_not(rows):
    auc = rows[rows["arm"] == "ridge"].groupby("question")["auc"].mean()
    assert auc["age>site-median"] > 0.8
    assert auc["age>14.5"] == pytest.approx(auc["own label"], abs=1e-12), "the same labels"
    assert 0.3 < auc["sex"] < 0.7


def test_labels_are_averaged_at_each_site_before_they_are_compared(made, rows):
    both = rows[rows["arm"].isin(["ridge", "log-ridge"])]
    by_seed = both.groupby(["arm", "fold", "seed"])["auc"].mean()
    by_site = 100 * by_seed.groupby(["arm", "fold"]).mean().unstack("arm")
    difference = (by_site["log-ridge"] - by_site["ridge"]).mean()
    text = (made[0] / "studies" / "labels" / "finding.md").read_text()
    assert f"log-ridge ({format_signed(difference)} points, p" in text.split("mean AUC over labels")[1]
    best = by_site.mean().idxmax()
    assert f"Over 4 labels together, {best} has the highest mean AUC: {by_site[best].mean():.1f} %" in text
    by_label = 100 * both.groupby(["question", "arm"])["auc"].mean().unstack("arm")
    signs = np.sign(by_label["log-ridge"] - by_label["ridge"])
    everywhere = "Above ridge for every label: log-ridge." in text
    assert everywhere == bool((signs > 0).all())


def test_what_is_left_out_and_how_a_median_is_made_is_said(made):
    text, said = (made[0] / "studies" / "labels" / "finding.md").read_text(), "\n".join(made[1])
    for told in (text, said):
        assert "the median of a site is that of all its participants: it defines the label and is not learned" in told
    assert "age is asked for more than once" in text
    assert "nan" not in text


def test_a_study_goes_on_to_the_same_files(made, planted, tmp_path):
    out, _, first = made
    begun = tmp_path / "out"
    shutil.copytree(out, begun)
    shutil.rmtree(begun / "studies")
    shutil.rmtree(begun / "labels" / "sex" / "arms" / "loso" / "log-ridge")
    with watched() as seen:
        place = run_study("labels", make_context(planted, begun))
    assert [fit[0] for fit in seen["fitted"]] == ["log-ridge"], "all other runs were finished"
    assert len(first["fitted"]) == 3 + 3 * 2
    assert tree(place) == tree(out / "studies" / "labels")


def test_each_label_has_a_folder_that_can_be_reported(made):
    out = made[0]
    assert sorted(p.name for p in (out / "labels").iterdir()) == ["age-above-14.5", "age-above-site-median", "sex"]
    said = command("report", out / "labels" / "sex")
    assert said.status == 0, said.text
    record = StoredStudy.read(out / "studies" / "labels").record
    assert record.arms == ("ridge", "log-ridge", "covariates-only")
    assert record.options is not None
    assert record.options.labels is None


@pytest.mark.usefixtures("undrawn")
def test_questions_of_ones_own(planted, tmp_path):
    planted.save(tmp_path / "cohort")
    words = ["study", "labels", tmp_path / "cohort", "--method", "ridge", "--seeds", "1", "--device", "cpu", "--quiet"]
    said = command(
        *words, "--label", "mean_fd>site-median", "--fold", "site01", "--fold", "site03", "--out", tmp_path / "o"
    )
    assert said.status == 0, said.text
    rows = read(tmp_path / "o" / "studies" / "labels" / "table.csv")
    assert list(dict.fromkeys(rows["question"])) == ["own label", "mean_fd>site-median"]
    assert sorted(set(rows["fold"])) == ["site01", "site03"]
    report = command("report", tmp_path / "o")
    assert report.status == 0, report.text
    assert "--label &#39;mean_fd&gt;site-median&#39;" in (tmp_path / "o" / "report.html").read_text()
    said = command(*words, "--label", "agee", "--out", tmp_path / "p")
    assert (said.status, "did you mean 'age'?" in said.err) == (2, True)


def test_a_cohort_without_covariates_has_no_other_label(planted, tmp_path):
    with pytest.raises(BrioError, match="has no other label to ask for"):
        run_study("labels", make_context(bare(planted), tmp_path / "out"))
    assert not (tmp_path / "out" / "studies").exists()


def test_methods_that_no_label_allows_cannot_be_compared(planted, tmp_path):
    spec = JobSpec(planted, ["covariates-only"], seeds=1, device="cpu", settings={"audit.min_class": 2})
    with pytest.raises(BrioError, match="no method can be trained for every label"):
        run_study("labels", StudyContext(spec, tmp_path))


def test_other_studies_take_one_label(planted, tmp_path):
    assert choose_label("subgroups", ["sex"]) == "sex"
    assert choose_label("labels", ["sex", "age>14.5"]) is None
    with pytest.raises(BrioError, match="has one label"):
        choose_label("subgroups", ["sex", "age>14.5"])
    spec = {"methods": ["ridge"], "seeds": 1, "device": "cpu", "settings": {"audit.min_class": 2}}
    stored = brio.study("comparison", planted, out=tmp_path, labels="sex", **spec)
    assert stored.record.options.labels == ("sex",)
    plain = brio.run(planted, ["ridge"], label="sex", device="cpu", settings=spec["settings"])
    assert isinstance(stored.table, pd.DataFrame)
    assert stored.table["auc"].tolist() == plain.rows["auc"].tolist()
