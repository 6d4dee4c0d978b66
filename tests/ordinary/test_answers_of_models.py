"""Models on ordinary cohorts: fit, predict, explain and adapt give what an independent computation gives."""

import functools
import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checks import close, fisher_z, read
from cohorts import BUILDERS, HOSPITALS, People, build, rename, run_job, shuffle
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, brier_score_loss, roc_auc_score

import brio
from commands import command

SOURCE, NEW = "five hospitals", "sixth hospital"
LIKE_A_MODEL = (("choose_by", "source-sites"), ("protocol__validation_sites", 0))
"""Settings of 'brio run' that evaluate what 'brio fit' fits."""
PLANTED = [name for name in BUILDERS if name not in ("5 sites", "chance", "confounded")]


@functools.cache
def fit(name: str, *words: str, change=None) -> tuple[Path, str]:
    """Fit a model once per session; return its folder and what the command said."""
    out = new_folder()
    said = command("fit", build(name, change), "--quiet", "--device", "cpu", "--keep-all", *words, "--out", out)
    assert said.status == 0, said.text
    return out, said.text


def predict(model: Path, scans: Path, *words: str) -> tuple[pd.DataFrame, str, Path]:
    """Predict; return the table by participant, what was said, and the folder."""
    out = new_folder()
    said = command("predict", model, scans, "--device", "cpu", *words, "--out", out)
    assert said.status == 0, said.text
    return read(out / "predictions.csv").set_index("participant_id"), said.text, out


def write_scans(people: People, labelled: bool) -> Path:
    """Write raw files as people have them: one csv file per scan, and a table where they are labelled."""
    folder = Path(tempfile.mkdtemp())
    names = people.atlas.rois["name"]
    for participant, scan in zip(people.table["participant_id"], people.scans, strict=True):
        pd.DataFrame(scan, columns=names).to_csv(folder / f"{participant}.csv", index=False)
    if labelled:
        people.table.to_csv(folder / "participants.tsv", sep="\t", index=False)
    return folder


def expected_probability(model: Path, people: People, new: People) -> np.ndarray:
    """Probabilities of ridge: scikit-learn's margins with the stored penalty and calibration."""
    member = json.loads((model / "model.json").read_text())["members"][0]["details"]
    X, y = fisher_z(people), 2.0 * people.table["label"].to_numpy() - 1
    margin = Ridge(alpha=member["penalty"]).fit(X, y).predict(fisher_z(new))
    slope, intercept = member["calibration"]
    return expit(slope * margin + intercept)


def test_a_new_hospital_gets_the_probabilities_of_ridge_however_it_is_read():
    model, _ = fit(SOURCE, "--method", "ridge")
    new = HOSPITALS[NEW]()
    ids = new.table["participant_id"].to_list()
    expected = expected_probability(model, HOSPITALS[SOURCE](), new)
    assert np.ptp(expected) > 0.5
    folders = [build(NEW), build(NEW, shuffle), write_scans(new, labelled=True), write_scans(new, labelled=False)]
    tables = [predict(model, folder, *(["--tr", "2"] if k > 1 else []))[0] for k, folder in enumerate(folders)]
    for table in tables:
        close(table.loc[ids, "probability"], expected, 1e-6)
        close(table.loc[ids, ["low", "high"]], tables[0].loc[ids, ["low", "high"]], 1e-6)
        assert ((table["low"] <= table["probability"]) & (table["probability"] <= table["high"])).all()
    one = predict(model, folders[3] / f"{ids[0]}.csv", "--tr", "2")[0]
    close(one["probability"], expected[:1], 1e-6)


def test_a_scan_has_the_same_prediction_and_interval_under_another_name():
    model, _ = fit(SOURCE, "--method", "ridge")
    first, second = (predict(model, build(NEW, change))[0] for change in (None, rename))
    columns = ["probability", "margin", "low", "high", "agreement"]
    close(second[columns], first[columns], 1e-6)


@pytest.mark.parametrize("change", [pytest.param(shuffle, marks=pytest.mark.soak), rename])
@pytest.mark.parametrize("method", ["ridge", pytest.param("log-ridge", marks=pytest.mark.soak)])
def test_a_model_does_not_depend_on_order_or_names(method, change):
    models = [fit(SOURCE, "--method", method, change=how)[0] for how in (None, change)]
    tables = [predict(model, build(NEW))[0] for model in models]
    close(tables[1][["probability", "low", "high"]], tables[0][["probability", "low", "high"]], 1e-6)


def test_external_validation_is_that_of_the_predictions():
    model, _ = fit(SOURCE, "--method", "ridge", "--evaluate")
    new = HOSPITALS[NEW]().table.set_index("participant_id")
    table, said, out = predict(model, build(NEW))
    label, probability = new["label"].to_numpy(), table["probability"].loc[new.index].to_numpy()
    found = json.loads((out / "validation.json").read_text())
    auc, accuracy = roc_auc_score(label, probability), accuracy_score(label, probability > 0.5)
    close([found["auc"]["value"], found["accuracy"]["value"]], [auc, accuracy])
    close(found["brier"], brier_score_loss(label, probability))
    assert (found["n_patients"], found["n_controls"]) == (label.sum(), (1 - label).sum())
    for value in (auc, accuracy):
        assert re.search(rf"\b{100 * value:.1f} \(", said), "printed as it is stored"


@pytest.mark.parametrize("method", ["ridge", pytest.param("log-ridge", marks=pytest.mark.soak)])
def test_the_evidence_of_a_model_is_the_leave_one_site_out_job_of_its_settings(method):
    words = ("--method", method)
    settings = LIKE_A_MODEL if method == "ridge" else LIKE_A_MODEL[1:]
    job = run_job(SOURCE, method, settings=settings)
    runs = read(job / "results.csv")
    mean = f"AUC, mean over sites, {100 * runs['auc'].mean():.1f} %"
    for more in (["--evaluate"], ["--evidence", str(job)]):
        model, said = fit(SOURCE, *words, *more)
        assert mean in said
        assert f"at {len(runs)} sites, each left out in turn" in said
        predictions = read(job / "predictions.csv")
        right = (predictions["probability"] > 0.5) == (predictions["label"] == 1)
        card = (model / "MODEL_CARD.md").read_text()
        assert f"Accuracy: {100 * right.mean():.1f} %" in card
        assert mean.replace(" sites,", " sites:") in card
        for site, own in HOSPITALS[SOURCE]().table.groupby("site"):
            assert f"| {site} | {(own['label'] == 0).sum()} | {(own['label'] == 1).sum()} |" in card


def test_fit_and_the_estimator_make_one_model():
    model, _ = fit(SOURCE, "--method", "ridge")
    people, new = HOSPITALS[SOURCE](), HOSPITALS[NEW]()
    estimator = brio.BrioClassifier(method="ridge", random_state=0, device="cpu")
    estimator.fit(people.scans, people.table["label"].to_numpy(), sites=people.table["site"].to_numpy())
    close(estimator.predict_proba(new.scans)[:, 1], expected_probability(model, people, new), 1e-6)


@pytest.mark.parametrize("name", ["5 sites", *(pytest.param(n, marks=pytest.mark.soak) for n in PLANTED)])
def test_explain_finds_the_planted_network(name):
    model, _ = fit(name, "--method", "ridge")
    out = new_folder()
    words = ("--cohort", build(name), "--sites", "--keep-all", "--quiet", "--device", "cpu")
    said = command("explain", model, *words, "--out", out)
    assert said.status == 0, said.text
    regions = read(out / "rois.csv").sort_values("rank")["roi"]
    assert sorted(regions[:3]) == ["stable_1_L", "stable_2_R", "stable_3_L"]
    named = next(line for line in said.out.splitlines() if line.startswith("regions with the highest ranks"))
    assert named.endswith(", ".join(regions[:5]))
    sites = BUILDERS[name]().table.groupby("site")["label"].nunique()
    assert sorted(read(out / "sites.csv")["site"]) == sorted(sites.index[sites == 2])
    people = BUILDERS[name]()
    coefficient = read(out / "edges.csv")["coefficient"]
    if name not in ("one-class site", "dead region"):
        penalty = json.loads((model / "model.json").read_text())["members"][0]["details"]["penalty"]
        own = Ridge(alpha=penalty).fit(fisher_z(people), 2.0 * people.table["label"] - 1).coef_
        close(coefficient, own, 1e-5)


def test_adapt_finds_the_mode_of_the_posterior():
    model, _ = fit(SOURCE, "--method", "ridge")
    before, _, _ = predict(model, build(NEW))
    out = new_folder()
    said = command("adapt", model, build(NEW), "--device", "cpu", "--out", out)
    assert said.status == 0, said.text
    label = HOSPITALS[NEW]().table.set_index("participant_id")["label"].loc[before.index].to_numpy()
    found = json.loads((out / "model.json").read_text())["adaptation"]
    margins = logit(before["probability"].to_numpy())
    assert (found["n_patients"], found["n_controls"]) == (label.sum(), (1 - label).sum()), "all scans are used"

    def loss(values):
        log_slope, intercept = values
        z = np.exp(log_slope) * margins + intercept
        likelihood = (np.logaddexp(0, z) - label * z).sum()
        return likelihood + 0.5 * (log_slope / 0.25) ** 2 + 0.5 * (intercept / 0.5) ** 2

    best = minimize(loss, [0.0, 0.0], tol=1e-12).x
    close([found["slope"], found["intercept"]], [np.exp(best[0]), best[1]], 1e-4)
    after, _, _ = predict(out, build(NEW))
    close(logit(after["probability"]), np.exp(best[0]) * margins + best[1], 1e-3)
    assert f"Slope {np.exp(best[0]):.2f}" in said.text
