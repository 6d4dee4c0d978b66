"""``brio fit`` and ``brio predict``."""

import html
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import brio
from brio import Cohort
from brio.cohort import Atlas
from brio.jobs import JobSpec, run_job
from brio.models import read_model
from brio.models.fit import add_evidence
from commands import command, refuse
from stored import list_hashed

DIAGNOSIS = ("--label-column", "dx", "--control", "HC")
QUICK = ("--device", "cpu", "--quiet", "--keep-all")


@pytest.fixture(scope="module")
def folders(cohort, tmp_path_factory):
    """A cohort of five sites to fit to, and one of the sixth."""
    place = tmp_path_factory.mktemp("commands")
    cohort.select(cohort.sites != "site03").save(place / "five")
    sixth = cohort.select(cohort.sites == "site03").save(place / "sixth")
    (place / "files").mkdir()
    some = sixth.select(np.sort(np.r_[np.flatnonzero(sixth.labels == 0)[:2], np.flatnonzero(sixth.labels == 1)[:2]]))
    for i, name in enumerate(some.ids):
        frames = pd.DataFrame(some.scan(i), columns=some.atlas.rois["name"])
        frames.to_csv(place / "files" / f"{name}.tsv", sep="\t", index=False)
    table = pd.DataFrame({"participant_id": some.ids, "dx": np.where(some.labels == 1, "MDD", "HC")})
    table.to_csv(place / "files" / "participants.tsv", sep="\t", index=False)
    return place


@pytest.fixture(scope="module")
def fitted(folders):
    said = command(
        "fit", folders / "five", "--method", "ridge", "--evaluate", "--out", folders / "model", *QUICK
    ).succeed()
    return folders / "model", said.text


@pytest.fixture(scope="module")
def predicted(fitted, folders):
    words = ("--out", folders / "there", "--reestimates", 4, "--device", "cpu")
    return command("predict", fitted[0], folders / "sixth", *words).succeed()


def test_a_model_is_fitted_evaluated_and_used(fitted, predicted, folders):
    folder, text = fitted
    assert "wrote Model('ridge': 1 seed" in text
    auc, pairs = read_model(folder).evidence.auc, read_model(folder).evidence.pair_weighted_auc
    shown = f"mean over sites, {100 * auc.value:.1f}% (95% interval {100 * auc.low:.1f} to {100 * auc.high:.1f})"
    assert f"at 5 sites, each left out in turn: AUC, {shown}; pair-weighted {100 * pairs.value:.1f}%" in text
    assert str(folder / "MODEL_CARD.md") in text
    files = {path.name for path in (folders / "there").iterdir()}
    assert files == {"SHA256SUMS", *list_hashed(folders / "there" / "SHA256SUMS")}
    table = pd.read_csv(folders / "there" / "predictions.csv", dtype={"participant_id": str})
    names = ["participant_id", "margin", "logit", "probability", "low", "high", "agreement"]
    more = ["predicted", "interval_crosses_half", "distance", "flag", "notes", "reasons"]
    assert table.columns.tolist() == names + more
    sixth = Cohort.load(folders / "sixth")
    scores = json.loads((folders / "there" / "validation.json").read_text())
    called = table["predicted"] != "no call"
    assert set(table["predicted"][called]) <= set(sixth.classes)
    assert scores["n_called"] == called.sum()
    low, high = read_model(folder).evidence.new_site_interval
    assert low < auc.low, "one site varies more than the mean of five"
    assert scores["expected"]["auc"] == {"value": auc.value, "low": low, "high": high}
    assert predicted.text.index("external validation: ") < predicted.text.index("scans predicted")
    assert "low and high are the ends of an interval for other minutes of the same scan" in predicted.text


def test_a_left_out_site_is_new_to_the_model(folders, cohort):
    whole = cohort.save(folders / "whole")
    fit = ("fit", folders / "whole", "--method", "ridge", *QUICK, "--leave-out")
    assert "no site 'site3' to leave out; did you mean 'site03'" in command(*fit, "site3", "--out", "x").refuse().err
    assert command(*fit, "nowhere", "--out", "x").refuse().err.count("site01") == 1
    everything = ("site03", *(word for site in sorted(set(whole.sites) - {"site03"}) for word in ("--leave-out", site)))
    assert "leave out fewer" in command(*fit, *everything, "--out", "x").refuse().err
    said = command(*fit, "site03", "--out", folders / "without").succeed().out
    assert f"left out: site03 ({(whole.sites == 'site03').sum()} scans)" in said
    model = read_model(folders / "without")
    assert model.training.left_out_sites == ("site03",)
    assert sorted(model.training.sites) == sorted(set(whole.sites) - {"site03"})
    assert "therefore new to the model: site03." in (folders / "without" / "MODEL_CARD.md").read_text()
    assert model.find_known_scans(whole).tolist() == (whole.sites != "site03").tolist()
    explain = ("explain", folders / "without", "--reestimates", 2, *QUICK, "--cohort")
    assert (
        "the scans that the model was fitted to"
        in command(*explain, folders / "whole", "--out", folders / "read").succeed().out
    )
    said = command(*explain, folders / "sixth", "--out", folders / "elsewhere").succeed().out
    n_sixth = len(Cohort.load(folders / "sixth"))  # the left-out site itself can be explained
    assert f"{n_sixth} scans of cohort 'in memory' were given" in said
    command(*fit, "site03", "--leave-out", "site04", "--out", folders / "less").succeed()
    whole.select(np.flatnonzero(whole.sites != "site04")).save(folders / "part")
    words = ("--cohort", folders / "part", "--out", folders / "of-part")
    said = command("explain", folders / "less", "--reestimates", 2, *QUICK, *words).succeed().out
    n_scans = int(np.isin(whole.sites, ["site03", "site04"], invert=True).sum())
    assert f"{n_scans} scans of cohort 'in memory' were given; the model was fitted to {n_scans} of them" in said


def test_the_obvious_path_explains_what_differs_and_marks_a_smoke_run(folders):
    job, model, there = (folders / name for name in ("plain", "of-plain", "by-plain"))
    ran = command("run", folders / "five", "--method", "ridge", "--seeds", 2, "--out", job, *QUICK).succeed()
    said = command("fit", folders / "five", "--method", "ridge", "--evidence", job, "--out", model, *QUICK).succeed()
    differs = "(choose_by=validation), but the model chose it on inner folds (choose_by=source-sites)"
    options = "--set choose_by=source-sites --set protocol.validation_sites=0"
    advice = f"'brio run COHORT --method ridge --seeds 3 {options} --out RESULTS'"
    smoke = "valuation of the model is a smoke run (fewer than three seeds, or not every fold), which supports no claim"
    card = (model / "MODEL_CARD.md").read_text()
    words = ("--accuracy", 0.5, "--out", there, "--reestimates", 2, "--device", "cpu")
    predicted = command("predict", model, folders / "sixth", *words)
    page = html.unescape((there / "predictions.html").read_text(encoding="utf-8"))
    for text in (said.text, card, page):
        assert differs in text
        assert advice in text
        assert smoke in text
    assert smoke in predicted.text
    assert predicted.text.index(differs) < predicted.text.index("external validation")
    (printed,) = (line.split() for line in ran.out.splitlines() if line.startswith("ridge"))
    evidence = read_model(model).evidence
    for text in (card, page):
        assert f"{100 * evidence.accuracy:.1f}% of all participants, logits averaged over seeds (mean over" in text
        assert f"as 'brio run' prints it: {100 * evidence.mean_accuracy:.1f}%)" in text
    assert f"{100 * evidence.mean_accuracy:.1f}" in printed
    rule = evidence.rules[0]
    assert f"of {evidence.n_participants} participants without a flag were called" in page
    assert f"({rule.n_right} of {rule.n_called}; 95% interval" in page


def test_a_network_that_was_not_trained_again_is_explained(cohort, fit, tmp_path):
    run_job(JobSpec(cohort, ["gcn"], settings={"epochs": 3}, exclude=False, device="cpu"), tmp_path / "job")
    (words,) = add_evidence(fit("gcn"), tmp_path / "job").evidence.differences
    assert (
        "trained again with its validation sites (refit=true), but the evaluated runs were not (refit=false)" in words
    )
    assert "--set refit=true" in words


def test_a_label_column_of_another_name_is_suggested(fitted, folders):
    words = ("predict", fitted[0], folders / "files", "--tr", 2, "--reestimates", 2, "--device", "cpu")
    said = command(*words, "--out", folders / "unnamed-labels")
    assert "no scan has a label; the table has other columns (dx)" in said.text
    assert "give its name with --label-column, and its values with --patient and --control" in said.text
    said = command(*words, *DIAGNOSIS, "--patient", "MDD", "--out", folders / "named-labels")
    assert "other columns" not in said.text
    assert "2 participants labelled MDD and 2 participants labelled HC" in said.text


def test_errors_are_for_people(fitted, folders):
    five, model, files, out = (folders / name for name in ("five", "model", "files", "x"))
    assert "already exists" in command("fit", five, "--out", model).refuse().err
    for words, said in (
        (("fit", five, "--evaluate", "--evidence", folders), "cannot be combined"),
        (("fit", five, "--method", "fc-hgnn", *QUICK), "log-ridge, or give --holds-scans"),
        (("fit", five, "--evidence", five, *QUICK), "five"),
        (
            ("fit", five, "--validation-site", "site01", "--method", "ridge"),
            "needs no validation sites; leave out --validation-site",
        ),
        (("predict", model, model), "is a model of 'brio fit', not sc"),
        (("run", model, "--method", "ridge"), "give a folder that 'brio import'"),
        (("adapt", model, files), "with --label-column, --patient and"),
        (("predict", model, files, "--label-column", "dxx"), "has no column 'dxx'; did you mean 'dx'?"),
        (
            ("predict", model, files, *DIAGNOSIS, "--patient", "MMD"),
            "column 'dx' has no value 'MMD' for --patient; the column has 'HC' (2), 'MDD' (2)",
        ),
    ):
        assert said in command(*words, "--out", out).refuse().err
        assert not out.exists()
    assert not list(folders.glob("*.partial"))


def test_evidence_that_does_not_fit_is_refused_before_anything_is_fitted(folders, monkeypatch):
    words = ("--method", "ridge", "--fold", "site01", "--out", folders / "one-site", *QUICK)
    assert command("run", folders / "five", *words).status == 0
    five = Cohort.load(folders / "five")
    replace(five, atlas=Atlas("finer", five.atlas.rois)).save(folders / "finer")

    def fit(*words):
        raise AssertionError("fitted although the evidence does not fit")

    monkeypatch.setattr("brio.methods.linear.base.LinearMethod.fit", fit)
    for cohort, method, answer in (
        ("five", "svm", "has results of ridge, but not of 'svm'; give a folder of 'brio run --method svm'"),
        ("finer", "ridge", "was evaluated with the atlas 'mine', but the model uses 'finer'"),
    ):
        words = ("--method", method, "--evidence", folders / "one-site", "--out", folders / "y", *QUICK)
        assert answer in command("fit", folders / cohort, *words).refuse().err


def test_scans_are_chosen_by_the_options_that_messages_name(fitted, folders):
    source, derivatives = folders / "files", folders / "derivatives"
    derivatives.mkdir()
    (scan, *_) = sorted(path for path in source.glob("*.tsv") if path.stem != "participants")
    for task in ("rest", "nback"):
        name = f"sub-1_task-{task}_atlas-mine_timeseries.tsv"
        (derivatives / name).write_bytes(scan.read_bytes())
    words = ("--reestimates", 2, "--device", "cpu", "--tr", 2)
    predict, adapt = ("predict", fitted[0], derivatives, *words), ("adapt", fitted[0], derivatives, "--tr", 2)
    for asked in (predict, adapt):
        assert (
            "has files of several tasks: nback, rest; choose one with --task"
            in command(*asked, "--out", folders / "z").err
        )
    said = command(*adapt, "--task", "rest", "--out", folders / "z")
    assert "no scan has a label" in said.err
    said = command(*predict, "--task", "rest", "--out", folders / "resting")
    assert "1 scan read in the layout 'bids'" in said.out, said

    visits = folders / "visits"
    visits.mkdir()
    for visit in "12":
        (visits / f"p1_{visit}.tsv").write_bytes(scan.read_bytes())
    (visits / "participants.tsv").write_text("participant_id\tvisit\np1\t1\np1\t2\n")
    predict = ("predict", fitted[0], visits, *words)
    assert "given with --session-column" in command(*predict, "--out", folders / "z").err
    said = command(*predict, "--session-column", "visit", "--sessions", "first", "--out", folders / "first-visit")
    assert "1 scan read in the layout 'table'" in said.out, said


@pytest.mark.usefixtures("predicted")
def test_python_fits_and_predicts_as_the_commands_do(fitted, folders, new_scans, tmp_path):
    five, words = folders / "five", {"exclude": False, "device": "cpu", "out": tmp_path / "own"}
    own = brio.fit(five, "ridge", evaluate=True, **words)
    assert repr(own) == repr(brio.load_model(fitted[0]))
    options = {"reestimates": 4, "device": "cpu"}
    brio.predict(tmp_path / "own", folders / "sixth", out=tmp_path / "again", **options)
    tables = [(place / "predictions.csv").read_bytes() for place in (folders / "there", tmp_path / "again")]
    assert tables[0] == tables[1]
    assert (tmp_path / "again" / "predictions.html").is_file()
    assert len(brio.predict(own, new_scans, **options).table) == len(new_scans)
    for refused, words in (
        (lambda: brio.fit(five, "ridge", out=tmp_path / "own"), "exists"),
        (lambda: brio.fit(five, evaluate=True, evidence=tmp_path), "cannot be combined"),
        (lambda: brio.predict(own, new_scans, kind="table"), "kind: not available if scans is a Cohort"),
    ):
        refuse(words, refused)
