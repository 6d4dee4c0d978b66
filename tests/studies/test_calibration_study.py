"""Calibration at new sites: linear models are calibrated on inner folds, and their margins stay as they are."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.metrics import brier_score_loss

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.jobs import JobSpec
from brio.methods import make_method
from brio.methods.linear import logistic
from brio.methods.linear.base import fit_calibration
from brio.methods.linear.logistic import fit_logistic_path
from brio.protocol import leave_one_site_out
from brio.protocol.calibration import fit_recalibration
from brio.studies import StudyContext, run_study
from brio.studies.calibration import average_net_benefit
from brio.training import Run


@pytest.fixture(scope="module")
def cohort():
    quiet = {"unstable": 0.0, "spurious": 0.0, "dead_share": 0.0, "site_shift": 0.05}
    return simulate(Simulation(n_sites=6, per_class=20, n_rois=12, frames=60, stable=0.4, **quiet))


@pytest.fixture(scope="module")
def out(cohort, tmp_path_factory):
    settings = {"protocol.validation_sites": 0}
    context = StudyContext(
        JobSpec(cohort, ["ridge", "log-ridge"], settings=settings, device="cpu"), tmp_path_factory.mktemp("calibration")
    )
    for name in ("calibration", "decision-curve"):
        run_study(name, context)
    return context.out


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
    result = brio.run(
        cohort, ["ridge", "gcn"], settings={"epochs": 2}, folds=["site02"], out=tmp_path / "run", device="cpu"
    )
    rows, own = result.rows.set_index("method"), result.predictions.set_index("method")
    ridge, gcn = own.loc["ridge"], own.loc["gcn"]
    assert ridge["logit"].between(-3, 3).all()
    slope, intercept = np.polyfit(ridge["logit"], logit(ridge["probability"]), 1)
    assert slope != pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(expit(slope * ridge["logit"] + intercept), ridge["probability"], atol=1e-9)
    np.testing.assert_allclose(expit(gcn["logit"]), gcn["probability"], atol=1e-12)
    for name, part in (("ridge", ridge), ("gcn", gcn)):
        assert rows.loc[name, "brier"] == pytest.approx(brier_score_loss(part["label"], part["probability"]))
        assert rows.loc[name, "acc"] == pytest.approx(((part["logit"] > 0) == (part["label"] == 1)).mean())


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
    np.testing.assert_allclose(own["probability"], expit(own["logit"]), rtol=1e-12)
    assert result.rows["brier"].item() == pytest.approx(brier_score_loss(own["label"], expit(own["logit"])))


def test_features_that_know_labels_are_not_calibrated(cohort):
    (fitted,) = make_method("core-scaffold").fit(Connectomes(cohort), [Run(leave_one_site_out(cohort, 0, 2)[0], 0)])
    assert "calibration" not in fitted.details


def test_labels_of_the_test_site_do_not_calibrate(cohort):
    from brio.studies.refits import relabel_cohort

    fold = leave_one_site_out(cohort, 0, 2)[0]
    labels = cohort.labels.copy()
    labels[fold.test] = 1 - labels[fold.test]
    fits = [
        make_method("ridge").fit(Connectomes(c), [Run(fold, 0)])[0] for c in (cohort, relabel_cohort(cohort, labels))
    ]
    assert fits[0].details == fits[1].details


def test_exchangeable_sites_are_calibrated(out):
    table = pd.read_csv(out / "studies" / "calibration" / "table.csv")
    assert len(table) == 12
    text = (out / "studies" / "calibration" / "finding.md").read_text()
    for name in ("ridge", "log-ridge"):
        sentence = next(line for line in text.splitlines() if line.startswith(f"{name}, calibration slope"))
        low, high = (float(x) for x in sentence.split("95 % interval ")[1].split(";")[0].split(" to "))
        assert low < 1 < high
    assert "nan" not in text


def test_rows_are_recalibrations_of_each_site(out):
    table = pd.read_csv(out / "studies" / "calibration" / "table.csv").set_index(["arm", "fold"])
    arm = "ridge,choose_by=source-sites"
    for site, own in predictions(out, arm).groupby("fold"):
        found = fit_recalibration(own["label"].to_numpy(), logit(own["probability"].to_numpy()))
        assert table.loc[(arm, site), "slope"] == pytest.approx(found.slope, rel=1e-5)
        assert table.loc[(arm, site), "in_the_large"] == pytest.approx(found.in_the_large, abs=1e-5)
        assert table.loc[(arm, site), "brier"] == pytest.approx(
            brier_score_loss(own["label"], own["probability"]), rel=1e-5
        )


def test_calibrated_probabilities_beat_margins_taken_as_logits(out):
    own = predictions(out, "ridge,choose_by=source-sites")
    calibrated = brier_score_loss(own["label"], own["probability"])
    assert calibrated < brier_score_loss(own["label"], expit(own["logit"])) - 0.005


def test_deciding_by_planted_signal_beats_both_rules_at_the_middle(out):
    place = out / "studies" / "decision-curve"
    table = pd.read_csv(place / "table.csv")
    mean = table[table["arm"] == "log-ridge"].groupby("threshold")[["net_benefit", "treat_all"]].mean()
    assert mean.loc[0.5, "net_benefit"] > max(mean.loc[0.5, "treat_all"], 0) + 0.05
    assert mean["treat_all"].is_monotonic_decreasing
    text = (place / "finding.md").read_text()
    assert "log-ridge: the net benefit is above that of treating all and of treating none at thresholds" in text


def test_the_gain_is_paired_with_the_better_simple_rule_at_each_site():
    sites = pd.DataFrame({"fold": list("abc") * 2, "seed": 0, "threshold": [0.2] * 3 + [0.8] * 3})
    sites["treat_all"] = [0.1, 0.3, 0.5, -0.9, -0.5, -0.1]
    sites["net_benefit"] = [0.15, 0.35, 0.55, 0.02, 0.02, 0.02]
    curve = average_net_benefit(sites)
    assert curve["gain"].tolist() == pytest.approx([0.05, 0.02])
    assert curve["gain low"].isna().all(), "the share of patients differs; the gain does not, and has no interval"
    assert curve.loc[0.2, "net_benefit low"] < 0.2 < curve.loc[0.2, "net_benefit high"] - 0.1
