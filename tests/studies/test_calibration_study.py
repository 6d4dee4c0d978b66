"""What probabilities are worth: calibrated on inner folds, margins unchanged; adapted to scans that are not scored."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit, logit
from sklearn.metrics import brier_score_loss
from study_contexts import make_study

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.formatting import format_signed
from brio.methods import make_method
from brio.methods.linear import logistic
from brio.methods.linear.base import fit_calibration
from brio.methods.linear.logistic import fit_logistic_path
from brio.models import PriorWidths, fit_adaptation
from brio.protocol import leave_one_site_out
from brio.protocol.calibration import fit_recalibration
from brio.results import StoredStudy
from brio.studies import calibration
from brio.studies.calibration import average_net_benefit
from brio.studies.refits import relabel_cohort
from brio.studies.summaries import score_runs
from brio.training import Run
from commands import refuse


@pytest.fixture(scope="module")
def cohort():
    quiet = {"unstable": 0.0, "spurious": 0.0, "dead_share": 0.0, "site_shift": 0.05}
    return simulate(Simulation(n_sites=6, per_class=20, n_rois=12, frames=60, stable=0.4, **quiet))


@pytest.fixture(scope="module")
def out(cohort, tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibration")
    for name in ("calibration", "decision-curve"):
        make_study(name, cohort, folder, ["ridge", "log-ridge"])
    return folder


def predictions(out, arm):
    return pd.read_csv(out / "arms" / "loso" / arm / "predictions.csv")


@pytest.mark.parametrize("name", ["ridge", "svm"])
@pytest.mark.parametrize("choose_by", ["validation", "source-sites"])
def test_calibration_is_that_of_inner_folds_fitted_one_by_one(cohort, name, choose_by):
    graphs, fold = Connectomes(cohort), leave_one_site_out(cohort, 0, 2)[1]
    method = make_method(name, {"choose_by": choose_by, "penalties": 3})
    (fitted,) = method.fit(graphs, [Run(fold, 0)])
    sites, labels = cohort.sites[fold.source], cohort.labels[fold.source]
    one = make_method(name, {"choose_by": choose_by, "penalties": 1})
    inner = np.empty(len(sites))
    full = np.stack([graphs.full[int(i)].numpy()[np.triu_indices(12, 1)] for i in fold.source]).astype(float)
    for e in np.unique(sites):
        inside = sites != e
        x = full - full[inside].mean(0)
        solution = one.solve(x[inside] @ x[inside].T, 2.0 * labels[inside] - 1, fitted.details["penalty"])
        inner[~inside] = x[~inside] @ x[inside].T @ solution.weights
    slope, intercept = fit_calibration(inner, labels, sites)
    x = full - full.mean(0)
    own = one.solve(x @ x.T, 2.0 * labels - 1, fitted.details["penalty"]).intercept
    assert fitted.details["calibration"] == pytest.approx([slope, intercept - slope * own], abs=2e-4)


def test_probabilities_and_brier_are_calibrated_and_classes_are_those_of_margins(cohort, tmp_path):
    options = {"settings": {"epochs": 2}, "folds": ["site02"], "device": "cpu"}
    result = brio.run(cohort, ["ridge", "gcn"], out=tmp_path / "run", **options)
    rows, own = result.rows.set_index("method"), result.predictions.set_index("method")
    ridge, gcn = own.loc["ridge"], own.loc["gcn"]
    assert ridge["margin"].between(-3, 3).all()
    slope, intercept = np.polyfit(ridge["margin"], logit(ridge["probability"]), 1)
    assert slope != pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(expit(slope * ridge["margin"] + intercept), ridge["probability"], atol=1e-9)
    np.testing.assert_allclose(expit(gcn["margin"]), gcn["probability"], atol=1e-12)
    for name, part in (("ridge", ridge), ("gcn", gcn)):
        assert rows.loc[name, "brier"] == pytest.approx(brier_score_loss(part["label"], part["probability"]))
        assert rows.loc[name, "acc"] == pytest.approx(((part["margin"] > 0) == (part["label"] == 1)).mean())


@pytest.mark.parametrize("choose_by", ["validation", "source-sites"])
def test_margins_that_are_log_odds_are_not_calibrated(cohort, choose_by, tmp_path, monkeypatch):
    """Probabilities of logistic regression are those of its margins, and no inner fold is fitted for them."""
    fits = []  # one penalty for each regression that is solved

    def count_and_fit(z, positive, penalties, included):
        fits.extend(penalties)
        return fit_logistic_path(z, positive, penalties, included)

    monkeypatch.setattr(logistic, "fit_logistic_path", count_and_fit)
    settings = {"choose_by": choose_by, "penalties": 3}
    result = brio.run(cohort, ["logistic"], settings=settings, folds=["site02"], out=tmp_path / "run", device="cpu")
    assert len(fits) == {"validation": 3, "source-sites": 3 * 4}[choose_by]
    own = result.predictions
    np.testing.assert_allclose(own["probability"], expit(own["margin"]), rtol=1e-12)
    assert result.rows["brier"].item() == pytest.approx(brier_score_loss(own["label"], expit(own["margin"])))


def test_features_that_know_labels_are_not_calibrated(cohort):
    (fitted,) = make_method("core-scaffold").fit(Connectomes(cohort), [Run(leave_one_site_out(cohort, 0, 2)[0], 0)])
    assert "calibration" not in fitted.details


def test_labels_of_the_test_site_do_not_calibrate(cohort):
    fold = leave_one_site_out(cohort, 0, 2)[0]
    labels = cohort.labels.copy()
    labels[fold.test] = 1 - labels[fold.test]
    other, method = relabel_cohort(cohort, labels), make_method("ridge")
    first, second = (method.fit(Connectomes(one), [Run(fold, 0)])[0].details for one in (cohort, other))
    assert first == second


def test_exchangeable_sites_are_calibrated(out):
    table = pd.read_csv(out / "studies" / "calibration" / "table.csv")
    assert len(table) == 12
    text = (out / "studies" / "calibration" / "finding.md").read_text()
    for name in ("ridge", "log-ridge"):
        sentence = next(line for line in text.splitlines() if line.startswith(f"{name}, calibration slope"))
        low, high = (float(x) for x in sentence.split("95% interval ")[1].split(";")[0].split(" to "))
        assert low < 1 < high
    assert "nan" not in text


def test_rows_are_recalibrations_of_each_site(out):
    table = pd.read_csv(out / "studies" / "calibration" / "table.csv").set_index(["arm", "fold"])
    arm = "ridge,choose_by=source-sites"
    for site, own in predictions(out, arm).groupby("fold"):
        found = fit_recalibration(own["label"].to_numpy(), logit(own["probability"].to_numpy()))
        assert table.loc[(arm, site), "slope"] == pytest.approx(found.slope, rel=1e-5)
        assert table.loc[(arm, site), "in_the_large"] == pytest.approx(found.in_the_large, abs=1e-5)
        brier = brier_score_loss(own["label"], own["probability"])
        assert table.loc[(arm, site), "brier"] == pytest.approx(brier, rel=1e-5)


def test_calibrated_probabilities_beat_margins_taken_as_logits(out):
    own = predictions(out, "ridge,choose_by=source-sites")
    calibrated = brier_score_loss(own["label"], own["probability"])
    assert calibrated < brier_score_loss(own["label"], expit(own["margin"])) - 0.005


def test_deciding_by_planted_signal_beats_both_rules_at_the_middle(out):
    place = out / "studies" / "decision-curve"
    table = pd.read_csv(place / "table.csv")
    mean = table[table["arm"] == "log-ridge"].groupby("threshold")[["net_benefit", "treat_all"]].mean()
    assert mean.loc[0.5, "net_benefit"] > max(mean.loc[0.5, "treat_all"], 0) + 0.05
    assert mean["treat_all"].is_monotonic_decreasing
    text = (place / "finding.md").read_text()
    assert "log-ridge: the net benefit exceeds that of treating all and that of treating none at thresholds" in text


def test_the_gain_is_paired_with_the_better_simple_rule_at_each_site():
    sites = pd.DataFrame({"fold": list("abc") * 2, "seed": 0, "threshold": [0.2] * 3 + [0.8] * 3})
    sites["treat_all"] = [0.1, 0.3, 0.5, -0.9, -0.5, -0.1]
    sites["net_benefit"] = [0.15, 0.35, 0.55, 0.02, 0.02, 0.02]
    curve = average_net_benefit(sites)
    assert curve["gain"].tolist() == pytest.approx([0.05, 0.02])
    assert curve["gain low"].isna().all(), "the share of patients differs; the gain does not, and has no interval"
    assert curve.loc[0.2, "net_benefit low"] < 0.2 < curve.loc[0.2, "net_benefit high"] - 0.1


# ---------------------------------------------------------------- adaptation


def score(predictions):
    return score_runs(predictions, calibration._score_sizes)


def make_predictions(n, rng, intercept, fold="a", seed=0):
    logits = rng.normal(size=n)
    label = (rng.uniform(size=n) < expit(logits + intercept)).astype(int)
    label[:2] = 0, 1
    ids = [f"{fold}{i}" for i in range(n)]
    columns = {"participant_id": ids, "label": label, "probability": expit(logits)}
    return pd.DataFrame({"fold": fold, "seed": seed, **columns})


def test_local_scans_keep_the_share_of_patients_and_are_nested():
    rng = np.random.default_rng(0)
    label, order = (rng.uniform(size=80) < 0.3).astype(int), rng.uniform(size=80)
    before = np.zeros(80, dtype=bool)
    for size in calibration.SIZES:
        chosen = calibration.choose_local_scans(label, order, size)
        assert chosen.sum() == size
        assert label[chosen].sum() == round(size * label.mean())
        assert (chosen | before == chosen).all()
        before = chosen
    rare = np.zeros(30, dtype=int)
    rare[3] = 1
    assert calibration.choose_local_scans(rare, np.arange(30), 10)[3]


def test_scored_scans_are_not_those_adapted_to():
    """Labels of the scored scans change the scores, and nothing that was fitted."""
    rng = np.random.default_rng(1)
    label, logits = (rng.uniform(size=50) < 0.5).astype(int), rng.normal(size=50)
    local = calibration.choose_local_scans(label, rng.uniform(size=50), 20)
    scores = calibration._adapt_once(label, logits, local)
    other = calibration._adapt_once(np.where(local, label, 1 - label), logits, local)
    assert (scores["slope"], scores["intercept"]) == (other["slope"], other["intercept"])
    assert scores["accuracy_adapted"] == pytest.approx(1 - other["accuracy_adapted"])
    fitted = fit_adaptation(label[local], logits[local], PriorWidths())
    rest = expit(fitted.apply(logits[~local])) - label[~local]
    assert scores["brier_adapted"] == pytest.approx((rest**2).mean())


def test_a_planted_shift_is_corrected_and_shrinkage_avoids_harm(monkeypatch):
    monkeypatch.setattr(calibration, "DRAWS", 2)
    rng = np.random.default_rng(2)
    shifted = pd.concat([make_predictions(90, rng, -1.5, name) for name in "abcdef"])
    points = calibration.summarise_sizes(score(shifted))
    assert points.index.tolist() == [0, 10, 20, 40]
    assert (points.loc[10:, "brier adapted high"] < 0).all()
    assert points.loc[10:, "brier adapted"].is_monotonic_decreasing
    same = pd.concat([make_predictions(90, rng, 0.0, name) for name in "abcdef"])
    points = calibration.summarise_sizes(score(same))
    assert points.loc[10, "brier adapted"] < 0.005
    assert points.loc[10, "brier unshrunk"] > points.loc[10, "brier adapted"]


def test_small_sites_are_left_out_and_named(monkeypatch):
    monkeypatch.setattr(calibration, "DRAWS", 2)
    rng = np.random.default_rng(3)
    sites = [make_predictions(n, rng, 0.0, name) for name, n in (("a", 19), ("b", 30), ("c", 50), ("d", 60))]
    rows = score(pd.concat(sites))
    assert rows.groupby("size")["fold"].apply("".join).to_dict() == {0: "abcd", 10: "bcd", 20: "bcd", 40: "cd"}
    (sentence,) = calibration._name_small_sites(rows)
    assert "with 10 local scans, a; with 20 local scans, a; with 40 local scans, a and b" in sentence


def test_the_study_of_adaptation_writes_what_its_rows_say(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "DRAWS", 2)
    large, small = (simulate(Simulation(n_sites=3, per_class=n, n_rois=8, frames=40, seed=4)) for n in (10, 3))
    stored = StoredStudy.read(make_study("adaptation", large, tmp_path / "large", exclude=False))
    rows = stored.table
    assert set(rows["size"]) == {0, 10}
    change = rows[rows["size"] == 10].set_index("fold").eval("brier_adapted - brier")
    points = calibration.summarise_sizes(rows)
    assert points.loc[10, "brier adapted"] == pytest.approx(change.mean())
    half = stats.t.ppf(0.975, len(change) - 1) * stats.sem(change) * (1 + len(change) / max(len(change) - 2, 1)) ** 0.5
    ends = points.loc[10, ["brier adapted low", "brier adapted high"]]
    assert ends.tolist() == pytest.approx([change.mean() - half, change.mean() + half])
    assert f"10 local scans, Brier score {format_signed(change.mean(), 3)}" in stored.finding
    refuse("at least 20 scans", make_study, "adaptation", small, tmp_path / "small", exclude=False)
