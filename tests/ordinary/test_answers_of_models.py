"""Models on ordinary cohorts: fit, predict, explain and adapt give what an independent computation gives."""

import functools
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checks import close, fisher_z, fit_ridges, leave_undrawn, mark_long, new_folder, read, succeed
from cohorts import BUILDERS, HOSPITALS, STABLE, People, build, rename, run_job, shrink, shuffle
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, brier_score_loss, roc_auc_score

from brio.methods import list_methods
from commands import command

soak = pytest.mark.soak
SOURCE, NEW = "five hospitals", "sixth hospital"
LIKE_A_MODEL = (("choose_by", "source-sites"), ("protocol__validation_sites", 0))
"""Settings of 'brio run' that evaluate what 'brio fit' fits."""
PLANTED = [name for name in BUILDERS if name not in ("5 sites", "chance", "confounded")]


@functools.cache
def fit(name: str, *words: str, change=None) -> tuple[Path, str]:
    """Fit a model once per session; return its folder and what the command said."""
    out = new_folder()
    words = ("--quiet", "--device", "cpu", "--keep-all", *words)
    return out, succeed("fit", build(name, change), *words, "--out", out)


def predict(model: Path, scans: Path, *words: str) -> tuple[pd.DataFrame, str, Path]:
    """Predict; return the table by participant, what was said, and the folder."""
    out = new_folder()
    said = succeed("predict", model, scans, "--device", "cpu", *words, "--out", out)
    return read(out / "predictions.csv").set_index("participant_id"), said, out


@functools.cache
def explain(name: str) -> tuple[Path, str, Path]:
    """Explain ridge regression once per session, site by site; return model, what was said, and the folder."""
    model, out = fit(name, "--method", "ridge")[0], new_folder()
    words = ("--cohort", build(name), "--sites", "--keep-all", "--quiet", "--device", "cpu", "--out", out)
    with leave_undrawn():
        return model, succeed("explain", model, *words), out


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
    folders = [build(NEW), build(NEW, shuffle), new.write(new_folder()), new.write(new_folder(), labelled=False)]
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


@pytest.mark.parametrize("change", mark_long([shuffle, rename], [rename]))
@pytest.mark.parametrize("method", mark_long(["ridge", "log-ridge"], ["ridge"]))
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


@pytest.mark.parametrize("method", mark_long(["ridge", "log-ridge"], ["ridge"]))
def test_the_evidence_of_a_model_is_the_leave_one_site_out_job_of_its_settings(method):
    words = ("--method", method)
    settings = LIKE_A_MODEL if method == "ridge" else LIKE_A_MODEL[1:]
    job = run_job(SOURCE, method, settings=settings)
    runs = read(job / "results.csv")
    mean = f"AUC, mean over sites, {100 * runs['auc'].mean():.1f}%"
    for more in (["--evaluate"], ["--evidence", str(job)]):
        model, said = fit(SOURCE, *words, *more)
        assert mean in said
        assert f"at {len(runs)} sites, each left out in turn" in said
        predictions = read(job / "predictions.csv")
        right = (predictions["probability"] > 0.5) == (predictions["label"] == 1)
        card = (model / "MODEL_CARD.md").read_text()
        assert f"Accuracy: {100 * right.mean():.1f}%" in card
        assert mean.replace(" sites,", " sites:") in card
        for site, own in HOSPITALS[SOURCE]().table.groupby("site"):
            assert f"| {site} | {(own['label'] == 0).sum()} | {(own['label'] == 1).sum()} |" in card


@pytest.mark.parametrize("name", ["5 sites", *mark_long(PLANTED)])
def test_explain_finds_the_planted_network(name):
    model, said, out = explain(name)
    regions = read(out / "rois.csv").sort_values("rank")["roi"]
    assert sorted(regions[:3]) == STABLE
    named = next(line for line in said.splitlines() if line.startswith("regions with the highest ranks"))
    assert named.endswith(", ".join(regions[:5]))
    sites = BUILDERS[name]().table.groupby("site")["label"].nunique()
    assert sorted(read(out / "sites.csv")["site"]) == sorted(sites.index[sites == 2])
    people = BUILDERS[name]()
    coefficient = read(out / "edges.csv")["coefficient"]
    if name not in ("one-class site", "dead region"):
        penalty = json.loads((model / "model.json").read_text())["members"][0]["details"]["penalty"]
        own = Ridge(alpha=penalty).fit(fisher_z(people), 2.0 * people.table["label"] - 1).coef_
        close(coefficient, own, 1e-5)


FAMILIES = ("mlp", "gcn", "coral", "gsat", "brainnettf", "brio", "brio-plus")
"""One method of each family besides linear models and confound baselines."""
FURTHER = ("deci", "fc-hgnn", "agmgc", "disco", "core", "xg-gnn", "dann", "gin")
ODD = ("3 sites", "dead region", "two sessions", "one-class site", "named", "unequal scans")
COLUMNS = ["probability", "low", "high", "agreement"]


def use(method: str) -> tuple[str, ...]:
    """Options that fit a method fast."""
    settings = (word for key, value in shrink(method).items() for word in ("--set", f"{key}={value}"))
    return ("--method", method, *settings, *(["--holds-scans"] if method == "fc-hgnn" else []))


def test_every_family_of_networks_is_among_them():
    families = {entry.name: entry.family for entry in list_methods()}
    assert {families[method] for method in FAMILIES} == set(families.values()) - {"linear", "control"}


@pytest.mark.parametrize("method", mark_long((*FAMILIES, *FURTHER), ["gcn"]))
def test_a_model_predicts_a_hospital_as_the_run_that_leaves_it_out(method):
    settings = (("protocol__validation_sites", 0),) if method == "brio-plus" else (("refit", True),)
    job = run_job("six hospitals", method, folds=("site06",), settings=settings)
    (run,) = read(job / "results.csv").to_dict("records")
    chosen = () if method == "brio-plus" else run["validation_sites"].split(";")
    words = [word for site in chosen for word in ("--validation-site", site)]
    model, _ = fit(SOURCE, *use(method), *words)
    table, said, out = predict(model, build(NEW))
    expected = read(job / "predictions.csv").set_index("participant_id").loc[table.index]
    close(table["probability"], expected["probability"], 1e-5)
    close(json.loads((out / "validation.json").read_text())["auc"]["value"], run["auc"])
    assert re.search(rf"AUC, % +{100 * run['auc']:.1f} \(", said)
    assert ((table["low"] <= table["probability"]) & (table["probability"] <= table["high"])).all()
    assert table[COLUMNS].stack().between(0, 1).all()


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *mark_long([(SOURCE, method) for method in FAMILIES], [(SOURCE, "brio-plus")]),
        *mark_long(itertools.product(ODD, ("gcn", "brio", "brio-plus"))),
    ],
)
def test_a_model_does_not_depend_on_the_order_of_its_scans(name, method):
    models = [fit(name, *use(method), change=change)[0] for change in (None, shuffle)]
    scans = NEW if name == SOURCE else name
    tables = [predict(model, build(scans, change))[0] for model, change in zip(models, (None, shuffle), strict=True)]
    people = (HOSPITALS | BUILDERS)[scans]().table
    assert sorted(tables[0].index) == sorted(people["participant_id"].unique() if name == SOURCE else tables[1].index)
    for column in COLUMNS:  # a margin that rounds to the other side of 0 is one of 47 re-estimates
        close(tables[1].loc[tables[0].index, column], tables[0][column], 0.03 if column == "agreement" else 1e-5)
    assert tables[0]["probability"].nunique() > len(tables[0]) / 2
    if method == "brio-plus":
        label = people.drop_duplicates("participant_id").set_index("participant_id")["label"]
        both = tables[0].groupby(tables[0].index.str.split("_ses-").str[0])["probability"].mean()
        assert roc_auc_score(label.loc[both.index], both) > (0.75 if name == SOURCE else 0.9), "as planted"


def all_but_the_last_site(people: People) -> People:
    """The sites that a model is fitted to."""
    return people.select(np.flatnonzero(people.table["site"] != "site06"))


def the_last_site(people: People) -> People:
    """The hospital that it has not seen."""
    return people.select(np.flatnonzero(people.table["site"] == "site06"))


@soak
@pytest.mark.parametrize("method", ["mlp", "gcn", "coral", "brainnettf", "brio"])
def test_a_trained_network_finds_the_planted_difference_at_a_new_hospital(method):
    words = ["--method", method, "--set", "learning_rate=0.01", "--set", "epochs=40"]
    words += ["--set", "T_w=10"] if method == "brio" else []
    model, _ = fit("separable", *words, change=all_but_the_last_site)
    table, _, _ = predict(model, build("separable", the_last_site))
    label = BUILDERS["separable"]().table.set_index("participant_id")["label"]
    assert roc_auc_score(label.loc[table.index], table["probability"]) > 0.9


@pytest.mark.parametrize("name", mark_long(["5 sites", "separable", "9 sites", "chance"], ["5 sites"]))
def test_the_strongest_edges_are_compared_with_sites_that_did_not_choose_them(name):
    _, _, out = explain(name)
    people = BUILDERS[name]()
    job = run_job(name, "ridge", settings=LIKE_A_MODEL)
    X, label = fisher_z(people), people.table["label"].to_numpy()
    found = read(out / "new_sites.csv").set_index("strongest_edges")
    shares = {n: [] for n in found.index}
    for _, source, here, model in fit_ridges(job, people, X):
        margin = model.predict(X[source])
        pattern = (X[source] - X[source].mean(0)).T @ (margin - margin.mean())
        difference = X[here & (label == 1)].mean(0) - X[here & (label == 0)].mean(0)
        for n, values in shares.items():
            strongest = np.argsort(-np.abs(pattern))[:n]
            values.append((pattern[strongest] * difference[strongest] > 0).mean())
    close(found["same_sign_new_sites"], [np.mean(values) for values in shares.values()], 1e-9)
    assert (found["n_sites"] == people.table["site"].nunique()).all()
    share = found["same_sign_new_sites"]
    assert 0.35 < share.iloc[-1] < 0.65 if name == "chance" else share.iloc[0] > 0.9, "half by chance, all if planted"


def test_adapt_finds_the_mode_of_the_posterior():
    model, _ = fit(SOURCE, "--method", "ridge")
    before, _, _ = predict(model, build(NEW))
    out = new_folder()
    said = command("adapt", model, build(NEW), "--device", "cpu", "--out", out).succeed()
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


def test_evidence_counts_participants_where_they_have_two_sessions():
    """Two scans of each participant: the fit is of 140 scans, scores and calls are of 70 participants."""
    name = "five hospitals, two sessions"
    n_scans, n_people = len(HOSPITALS[name]().table), HOSPITALS[name]().table["participant_id"].nunique()
    assert n_scans == 2 * n_people
    model, _ = fit(name, "--method", "ridge", "--evaluate")
    evidence = json.loads((model / "model.json").read_text())["evidence"]
    assert evidence["n_participants"] == n_people
    (unflagged,) = {rule["n_participants"] for rule in evidence["rules"]}
    assert 0.9 * n_people < unflagged <= n_people
    card = (model / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"to {n_scans} scans of 5 sites" in card
    assert f"Leave one site out: {n_people} participants from 5 sites" in card
    assert f"of {unflagged} participants without a flag were called" in card
    assert "% of all participants" in card
    assert (
        f"of {unflagged} participants without a flag were called" in predict(model, build(NEW), "--accuracy", "0.5")[1]
    )
