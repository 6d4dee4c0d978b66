"""``brio fit`` and ``brio predict``."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from brio import Cohort
from brio.models import predict_scans, read_model
from brio.models.card import write_card

QUICK = ("--device", "cpu", "--quiet", "--keep-all")


@pytest.fixture(scope="module")
def folders(cohort, tmp_path_factory):
    """A cohort of five sites to fit to, and one of the sixth."""
    place = tmp_path_factory.mktemp("commands")
    cohort.select(cohort.sites != "site03").save(place / "five")
    cohort.select(cohort.sites == "site03").save(place / "sixth")
    return place


@pytest.fixture(scope="module")
def fitted(brio_command, folders):
    said = brio_command("fit", folders / "five", "--method", "ridge", "--evaluate", "--out", folders / "model", *QUICK)
    assert said.status == 0, said.text
    return folders / "model", said.text


def test_a_model_is_fitted_evaluated_and_used(brio_command, fitted, folders):
    folder, text = fitted
    assert "wrote Model('ridge': 1 seed" in text
    said = brio_command(
        "predict", folder, folders / "sixth", "--out", folders / "there", "--reestimates", 4, "--device", "cpu"
    )
    assert said.status == 0, said.text
    table = pd.read_csv(folders / "there" / "predictions.csv", dtype={"participant_id": str})
    names = ["participant_id", "probability", "margin", "low", "high", "agreement", "decided"]
    assert table.columns.tolist() == [*names, "distance_rank", "in_range", "reasons"]
    model = read_model(folder)
    sixth = Cohort.load(folders / "sixth")
    own = predict_scans(model, sixth, reestimates=4, device="cpu").table
    np.testing.assert_allclose(table["probability"], own["probability"], rtol=1e-12)
    scores = json.loads((folders / "there" / "validation.json").read_text())
    assert scores["auc"]["value"] == pytest.approx(roc_auc_score(sixth.labels, table["margin"]))
    assert scores["auc"]["low"] <= scores["auc"]["value"] <= scores["auc"]["high"]
    decided = table["decided"] == "yes"
    right = (table["probability"] > 0.5) == sixth.labels
    assert scores["n_decided"] == decided.sum()
    assert scores["accuracy"]["value"] == pytest.approx(right.mean())
    assert "low and high are about other minutes of the same scan" in said.text


def test_the_evidence_is_that_of_leaving_each_site_out(brio_command, fitted, folders):
    job = folders / "job"
    words = ("--method", "ridge", "--set", "choose_by=source-sites", "--set", "protocol.validation_sites=0")
    said = brio_command("run", folders / "five", *words, "--out", job, *QUICK)
    assert said.status == 0, said.text
    evidence = read_model(fitted[0]).evidence
    predictions = pd.read_csv(job / "predictions.csv")
    by_site = predictions.groupby("fold").apply(lambda t: roc_auc_score(t["label"], t["logit"]), include_groups=False)
    assert evidence.auc.value == pytest.approx(by_site.mean())
    assert evidence.brier == pytest.approx(((predictions["probability"] - predictions["label"]) ** 2).mean())
    assert evidence.n_sites == 5
    assert evidence.differences == ()
    assert evidence.risk[-1].accuracy == evidence.accuracy
    said = brio_command(
        "fit", folders / "five", "--method", "ridge", "--evidence", job, "--out", folders / "same", *QUICK
    )
    assert said.status == 0, said.text
    assert read_model(folders / "same").evidence == evidence
    words = ("--method", "ridge", "--set", "penalties=3", "--evidence", job, "--out", folders / "other", *QUICK)
    said = brio_command("fit", folders / "five", *words)
    assert "the evidence differs from the model: other values of penalties" in said.text
    assert "other values of penalties" in (folders / "other" / "MODEL_CARD.md").read_text()
    card = (folders / "same" / "MODEL_CARD.md").read_text()
    assert f"AUC, mean over sites: {100 * evidence.auc.value:.1f} %" in card
    assert "Not evaluated" not in card


def test_the_card_says_what_a_model_holds(fit):
    assert "**Not evaluated.**" in write_card(fit("ridge"))
    assert "keeps numbers of single source scans" not in write_card(fit("ridge"))
    assert "keeps numbers of single source scans" in write_card(fit("brio-plus"))
    assert "sex, standardised age" in write_card(fit("fc-hgnn", seeds=2))


def test_errors_are_for_people(brio_command, fitted, folders):
    for words, said in (
        (("fit", folders / "five", "--out", folders / "model"), "exists already"),
        (("fit", folders / "five", "--out", folders / "x", "--evaluate", "--evidence", folders), "exclude each other"),
        (
            ("fit", folders / "five", "--out", folders / "x", "--method", "brio-plus", "--share"),
            "cannot be fitted to share",
        ),
        (("fit", folders / "five", "--out", folders / "x", "--evidence", folders / "five", *QUICK), "five"),
        (("predict", folders / "five", folders / "sixth", "--out", folders / "x"), "is no model"),
        (("predict", folders / "model", folders / "model", "--out", folders / "x"), "model"),
    ):
        found = brio_command(*words)
        assert found.status == 2, found
        assert said in found.err, found
        assert not (folders / "x").exists()
    assert not list(folders.glob("*.partial"))


def test_its_own_scans_are_noticed(brio_command, fitted, folders):
    said = brio_command(
        "predict", fitted[0], folders / "five", "--out", folders / "own", "--reestimates", 2, "--device", "cpu"
    )
    assert "the model was fitted to these very scans" in said.text
