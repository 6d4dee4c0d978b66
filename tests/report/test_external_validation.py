"""Reports with predictions of new scans: whatever they show is what the folder of predictions holds."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pages import read_rows, read_section

from brio import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.formatting import format_percent
from brio.models.external import read_validation
from brio.protocol import new_site_interval
from brio.report.verdict import describe_validation
from commands import command
from doctored import change_json
from made_cohorts import rebuild
from stored import rehash

QUICK = ("--device", "cpu", "--quiet")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A job on five of six sites, its models fitted to them, and predictions of the sixth site, whose name is code."""
    folder = tmp_path_factory.mktemp("external")
    everyone = simulate(Simulation(n_sites=6, per_class=8, n_rois=8, frames=60, stable=0.4))
    sixth = everyone.sites == "site06"
    everyone.select(~sixth).save(folder / "five")
    rebuild(everyone.select(sixth), site=["<b>far</b>"] * int(sixth.sum())).save(folder / "sixth")
    command("run", folder / "five", "--method", "ridge", "--out", folder / "job", *QUICK).succeed()
    for name, evaluated in (("evaluated", ("--evidence", folder / "job")), ("bare", ())):
        words = ("--method", "ridge", *evaluated, "--out", folder / name)
        command("fit", folder / "five", *words, *QUICK).succeed()
        words = ("--reestimates", 4, "--out", folder / f"predicted-{name}")
        command("predict", folder / name, folder / "sixth", "--device", "cpu", *words).succeed()
    return folder


@pytest.fixture
def job(made, tmp_path):
    """A copy of the job without its subgroups, which take longest of a page."""
    folder = tmp_path / "job"
    shutil.copytree(made / "job", folder)
    (folder / "groups.csv").unlink()
    return rehash(folder)


def test_the_page_and_the_card_show_what_was_expected_and_observed(made, job):
    words = [word for name in ("evaluated", "bare") for word in ("--predictions", made / f"predicted-{name}")]
    command("report", job, *words).succeed()
    page, stored = (job / "report.html").read_text(), read_validation(made / "predicted-evaluated")
    first, second = read_rows(page, "external-table")
    cells = {one["data-metric"]: (one["data-value"], text) for one, text in first.cells if "data-metric" in one}
    expected = json.loads((job / "summary.json").read_text())["methods"]["ridge"]["auc"]["mean"]
    for name, value in (("expected", expected), ("observed", stored.auc.value)):
        assert float(cells[name][0]) == value
        assert cells[name][1].startswith(format_percent(value))
    aucs = pd.read_csv(job / "results.csv").groupby("fold")["auc"].mean()
    assert stored.expected["auc"].ends == pytest.approx(new_site_interval(aucs, limits=(0, 1)))
    assert f"<b>far</b>: {stored.n_patients} patients and {stored.n_controls} controls" in first.text
    assert (stored.n_patients, stored.n_controls) == tuple(np.bincount(Cohort.load(made / "sixth").labels)[::-1])
    assert "the model was not evaluated" in second.text
    assert "<b>far</b>" not in read_section(page, "external")
    sentence = describe_validation(stored)
    assert f"{100 * stored.auc.value:.0f}% (95% interval " in sentence
    assert sentence.endswith(f"that it had not seen; the expected AUC was {100 * expected:.0f}%.")
    assert "New scans</dt>" in read_section(page, "verdict")
    card = (job / "MODEL_CARD.md").read_text()
    assert f"AUC of {100 * stored.auc.value:.0f}%" in card[card.index("## External validation") :]


def test_a_report_without_predictions_says_nothing_of_them(job):
    command("report", job).succeed()
    for name in ("report.html", "MODEL_CARD.md"):
        assert "External validation" not in (job / name).read_text()


def test_evidence_on_another_cohort_than_that_of_the_report_is_named(made, job, tmp_path):
    shutil.copytree(made / "predicted-evaluated", tmp_path / "other")
    change_json(tmp_path / "other" / "validation.json", lambda one: one.update(fingerprint="0" * 64))
    command("report", job, "--predictions", tmp_path / "other").succeed()
    (row,) = read_rows((job / "report.html").read_text(), "external-table")
    assert "evaluated on a different cohort from that of this report" in row.text


def test_few_scans_have_no_auc_in_a_report(made, job, tmp_path):
    new = Cohort.load(made / "sixth")
    new.select(np.r_[np.flatnonzero(new.labels)[:2], np.flatnonzero(new.labels == 0)[:2]]).save(tmp_path / "few")
    words = ("--reestimates", 4, "--device", "cpu", "--out", tmp_path / "predicted")
    command("predict", made / "evaluated", tmp_path / "few", *words).succeed()
    command("report", job, "--predictions", tmp_path / "predicted").succeed()
    (row,) = read_rows((job / "report.html").read_text(), "external-table")
    assert " of 4 correct; fewer than 5 participants in a class" in row.text
    assert next(one["data-value"] for one, _ in row.cells if one.get("data-metric") == "observed") == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda folder: shutil.rmtree(folder),
            "has no predictions.csv; give the folder that 'brio predict --out' wrote",
        ),
        (lambda folder: (folder / "validation.json").unlink(), "has no validation.json"),
        (lambda folder: (folder / "validation.json").write_text("{}"), "changed or damaged"),
        (
            lambda folder: change_json(folder / "validation.json", lambda one: one["auc"].update(value="high")),
            "auc.value is 'high', expected a finite number or null",
        ),
        (
            lambda folder: change_json(folder / "validation.json", lambda one: one["expected"]["auc"].update(low=None)),
            "has only one end of an interval",
        ),
    ],
)
def test_predictions_that_cannot_be_shown_are_refused_before_anything_is_written(made, job, tmp_path, change, says):
    shutil.copytree(made / "predicted-evaluated", tmp_path / "changed")
    change(tmp_path / "changed")
    line = command("report", job, "--predictions", tmp_path / "changed").refuse_in_a_line()
    assert says in line
    assert str(tmp_path / "changed") in line
    assert not (job / "report.html").exists()


def test_predictions_without_labels_have_nothing_to_report(made, job, tmp_path):
    bare = Cohort.load(made / "sixth")
    replace(bare, participants=bare.participants.drop(columns="label")).save(tmp_path / "bare")
    words = ("--reestimates", 4, "--device", "cpu", "--out", tmp_path / "predicted")
    command("predict", made / "evaluated", tmp_path / "bare", *words).succeed()
    line = command("report", job, "--predictions", tmp_path / "predicted").refuse_in_a_line()
    assert "which requires new scans with labels of both classes" in line


def test_a_folder_of_predictions_is_not_taken_for_a_job(made):
    line = command("verify", made / "predicted-evaluated").refuse_in_a_line()
    assert "contains no job to verify" in line


def test_labels_of_one_class_validate_nothing_and_the_command_says_so(made, tmp_path):
    new = Cohort.load(made / "sixth")
    n_patients = int((new.labels == 1).sum())
    new = replace(new, participants=new.participants.assign(label=new.participants["label"].where(new.labels == 1)))
    new.save(tmp_path / "one")
    words = ("--reestimates", 4, "--device", "cpu", "--out", tmp_path / "predicted")
    said = command("predict", made / "evaluated", tmp_path / "one", *words).succeed().text
    assert f"no external validation: no controls among {n_patients} labelled scans that" in said


def test_a_report_with_predictions_is_verified_with_them(made, job, tmp_path):
    words = ("--predictions", made / "predicted-evaluated")
    command("report", job, *words).succeed()
    said = command("verify", job).succeed().text
    assert "report.html, which shows external validation (check it with --predictions)" in said
    assert "MODEL_CARD.md, which shows external validation" in said
    assert "report.html, which" not in command("verify", job, *words).succeed().text
    page = (job / "report.html").read_text()
    auc = format_percent(read_validation(made / "predicted-evaluated").auc.value)
    (job / "report.html").write_text(page.replace(f">{auc}<small>", ">99.9<small>"))
    assert command("verify", job, *words).status == 1
