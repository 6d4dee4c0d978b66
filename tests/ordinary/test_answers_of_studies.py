"""Studies on ordinary cohorts: what they say is computed anew from the predictions that they stored."""

import functools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from checks import close, fisher_z, fit_ridges, new_folder, read, succeed
from cohorts import BUILDERS, build
from study_checks import CHECKS, check_study, score

soak = pytest.mark.soak

STUDY = ("--method", "ridge", "--seeds", "3", "--quiet", "--device", "cpu", "--keep-all")


def read_study(name: str, cohort: str, *words: object) -> tuple[pd.DataFrame, str, Path]:
    """Make a study; return its table, its text and its folder."""
    out = new_folder()
    succeed("study", name, build(cohort), *STUDY, *words, "--out", out)
    folder = out / "studies" / name
    return read(next(folder.glob("*.csv"))), next(folder.glob("*.md")).read_text(), out


@soak
def test_a_learning_curve_has_each_point_once_and_no_area_beyond_all_pairs():
    _, text, _ = read_study("learning-curve", "9 sites")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ridge")]
    points = [(row[1], row[3] if "participants" in row[1] else row[2]) for row in rows]
    assert len(points) == len(set(points)) >= 5
    for row in rows:
        low, high = (float(word) for word in row[5].split(" to "))
        assert 0 <= low <= float(row[4]) <= high <= 100


@soak
def test_calibration_says_where_a_slope_cannot_be_estimated():
    table, text, _ = read_study("calibration", "9 sites")
    known = table.groupby("fold")["slope"].mean().notna().sum()
    assert known < 9
    assert f"mean over {known} site{'s' if known > 1 else ''} " in text
    assert f"Not estimated at {9 - known} of 9 sites" in text


SMALL = {"epochs": 2, "K": 2, "T_w": 1, "M": 4, "J": 4, "d_t": 4, "d_h": 8, "d_e": 4, "d_mlp": 8}
SMALL |= {"sinkhorn_iterations": 5, "assignment_iterations": 30, "block_subjects": 12, "block_signals": 4}
SMALL |= {"block_products": 4, "protocol.n_folds": 5}


@functools.cache
def make_studies(name: str, cohort: str, *methods: str, seeds: int = 1) -> Path:
    """Make a study, or all of the paper's, with small networks, once per session; return its folder."""
    out = new_folder()
    settings = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    words = [word for method in methods for word in ("--method", method)]
    words += ["--seeds", str(seeds), "--quiet", "--device", "cpu", "--keep-all"]
    succeed("study", name, build(cohort), *words, *settings, "--out", out)
    return out


@soak
@pytest.mark.parametrize("study", CHECKS)
@pytest.mark.parametrize("cohort", ["5 sites", "two sessions", "one-class site", "named", "3 sites"])
def test_a_study_of_the_paper_says_what_its_runs_hold(cohort, study):
    check_study(make_studies("paper", cohort, "ridge", "gcn", "brio"), study, BUILDERS[cohort]())


@pytest.mark.parametrize("study", ["in-distribution", "scan-length"])
def test_a_study_of_linear_models_says_what_its_runs_hold(study, undrawn):
    check_study(make_studies(study, "5 sites", "ridge", "covariates-only"), study, BUILDERS["5 sites"]())


@soak
@pytest.mark.parametrize("cohort", ["5 sites", "one-class site"])
def test_the_report_of_all_studies_shows_each_and_names_the_best_method(cohort):
    out = make_studies("paper", cohort, "ridge", "gcn", "brio")
    succeed("report", out)
    page = (out / "report.html").read_text()
    for name in CHECKS:
        assert json.loads((out / "studies" / name / "study.json").read_text())["title"] in page
    means = {arm: 100 * score(out, arm)["auc"].groupby("fold").mean().mean() for arm in ("ridge", "gcn", "brio")}
    assert max(means, key=means.get) == "ridge"
    assert f"{means['ridge']:.1f}" in page
    assert "ridge" in page.split("<h2")[0], "the verdict names the best method"


@soak
@pytest.mark.parametrize("cohort", ["9 sites", "chance"])
def test_net_benefit_is_that_of_the_predictions(cohort):
    table, text, out = read_study("decision-curve", cohort)
    gains = []
    for threshold in (0.2, 0.5, 0.8):
        by_site = {"net_benefit": [], "treat_all": []}
        for _, own in read(out / "arms" / "loso" / "ridge" / "predictions.csv").groupby(["fold", "seed"]):
            label, odds = own["label"].to_numpy(), threshold / (1 - threshold)
            for name, treated in (("net_benefit", own["probability"] >= threshold), ("treat_all", label >= 0)):
                right, wrong = (label[treated] == 1).sum(), (label[treated] == 0).sum()
                by_site[name].append((right - wrong * odds) / len(label))
        own = table[table["threshold"] == threshold]
        for name, values in by_site.items():
            close(own[name].mean(), np.mean(values), 1e-5)
        gains.append(np.mean(by_site["net_benefit"]) - max(0, np.mean(by_site["treat_all"])))
    assert ("at no threshold is the net benefit significantly higher" in text) == (cohort == "chance")
    assert (gains[1] > 0.2) == (cohort == "9 sites")


@soak
def test_adaptation_scores_the_scans_that_are_left():
    table, text, out = read_study("adaptation", "large sites")
    predictions = read(next((out / "arms" / "loso").iterdir()) / "predictions.csv")
    before = predictions.assign(error=(predictions["probability"] - predictions["label"]) ** 2)
    before = before.groupby(["fold", "seed"])["error"].mean()
    none = table[table["size"] == 0].set_index(["fold", "seed"])
    close(none["brier"].sort_index(), before.sort_index(), 1e-5)
    assert f"without adaptation, the Brier score is {before.groupby('fold').mean().mean():.3f}" in text
    sizes = predictions.groupby("fold")["participant_id"].nunique()
    for size in (10, 20):
        assert set(table.loc[table["size"] == size, "fold"]) == set(sizes.index[sizes >= size + 10])
    scores = table[table["size"] > 0].filter(regex="^(brier|accuracy)")
    assert len(scores)
    assert ((scores >= 0) & (scores <= 1)).all(axis=None)


@soak
def test_retest_gives_the_icc_of_the_margins():
    """ICC(1) of two sessions from the mean squares between and within participants, site by site."""
    _, text, out = read_study("retest", "two sessions")
    people = BUILDERS["two sessions"]()
    assert f"{people.table['participant_id'].nunique()} participants with {len(people.table)} scans" in text
    X, site = fisher_z(people), people.table["site"].to_numpy()
    margins = np.full((3, len(site)), np.nan)
    for row, _, here, model in fit_ridges(out / "arms" / "loso" / "ridge", people, X):
        margins[row["seed"], here] = model.predict(X[here])
    iccs = []
    for margin in margins:
        pairs = pd.DataFrame({"id": people.table["participant_id"], "site": site, "margin": margin})
        means = pairs.groupby(["site", "id"])["margin"].mean()
        within = pairs.groupby("id")["margin"].var(ddof=1).mean()
        spread = (means - means.groupby("site").transform("mean")) ** 2
        between = 2 * spread.sum() / (len(means) - means.index.get_level_values("site").nunique())
        iccs.append((between - within) / (between + within))
    table = read(out / "studies" / "retest" / "table.csv").sort_values("seed")
    close(table["icc"], iccs, 1e-4)
