"""Reliability, calibration error and ROC bands against scikit-learn and plain loops."""

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_auc_score, roc_curve

from brio.errors import BrioError
from brio.protocol import auc, bootstrap_interval, calibration_error, reliability_curve, roc_band, t_interval
from brio.protocol.calibration import _trace_roc


def simulate_predictions(n: int, seed: int, decimals: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities that are overconfident; few decimals make many ties and values on edges."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(size=n)
    label = (rng.uniform(size=n) < 0.5 + 0.5 * (truth - 0.5)).astype(int)
    return label, truth.round(decimals)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("decimals", [1, 12])
@pytest.mark.parametrize("bins", [1, 5, 10])
def test_reliability_equals_scikit_learn(strategy, decimals, bins):
    label, probability = simulate_predictions(200, bins, decimals)
    found = reliability_curve(label, probability, bins, strategy)
    observed, predicted = calibration_curve(label, probability, n_bins=bins, strategy=strategy)
    full = found[found["count"] > 0]
    assert full["observed"].to_numpy() == pytest.approx(observed)
    assert full["probability"].to_numpy() == pytest.approx(predicted)
    assert found["count"].sum() == 200
    assert found["probability"].dropna().between(full["left"] - 1e-12, full["right"] + 1e-12).all()


def test_empty_bins_are_kept_and_hold_nothing():
    found = reliability_curve(np.array([0, 1, 1]), np.array([0.05, 0.95, 1.0]), bins=10)
    assert found["count"].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert found["observed"].isna().sum() == 8
    assert found["right"].tolist() == pytest.approx(np.arange(1, 11) / 10)


def test_quantile_bins_hold_equally_many_scans():
    label, probability = simulate_predictions(100, 0)
    assert reliability_curve(label, probability, 4, "quantile")["count"].tolist() == [25] * 4


def test_one_probability_is_one_bin():
    found = reliability_curve(np.array([0, 1, 1, 1]), np.full(4, 0.5), 5, "quantile")
    assert found[["count", "observed"]].to_numpy().tolist() == [[4, 0.75]]


def test_reliability_interval_draws_sites():
    rng = np.random.default_rng(1)
    site = np.repeat([f"s{k}" for k in range(30)], 20)
    label, probability = simulate_predictions(600, 3)
    found = reliability_curve(label, probability, 4, site=site)
    assert (found["low"] < found["observed"]).all()
    assert (found["observed"] < found["high"]).all()
    share, n = found["observed"], found["count"]
    normal = 2 * 1.96 * np.sqrt(share * (1 - share) / n)  # scans of these sites are independent
    assert ((found["high"] - found["low"]) / normal).between(0.7, 1.3).all()
    # sites that agree within and differ between: the interval must be that of sites, not of scans
    label = np.repeat(rng.integers(0, 2, 30), 20)
    wide = reliability_curve(label, probability, 1, site=site)
    low, high = bootstrap_interval(label.reshape(30, 20).mean(axis=1))
    assert (wide["low"].item(), wide["high"].item()) == pytest.approx((low, high), abs=0.04)


def test_reliability_interval_needs_two_sites():
    found = reliability_curve(np.array([0, 1, 0]), np.array([0.1, 0.2, 0.9]), 2, site=np.array(["a", "b", "b"]))
    assert found["low"].isna().tolist() == [False, True]
    alone = reliability_curve(np.array([0, 1]), np.array([0.1, 0.9]), 2, site=np.array(["a", "a"]))
    assert alone[["low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize(("bins", "kind", "message"), [(0, "uniform", "bins=0"), (3, "equal", "'equal'.*quantile")])
def test_unknown_bins_are_refused(bins, kind, message):
    with pytest.raises(BrioError, match=message):
        reliability_curve(np.array([0, 1]), np.array([0.1, 0.9]), bins, kind)


@pytest.mark.parametrize("wrong", [1.2, -0.1, np.nan])
def test_logits_are_not_taken_for_probabilities(wrong):
    with pytest.raises(BrioError, match="between 0 and 1"):
        reliability_curve(np.array([0, 1]), np.array([0.5, wrong]))


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_calibration_error_equals_a_plain_loop(strategy):
    label, probability = simulate_predictions(150, 4)
    edges = np.linspace(0, 1, 8) if strategy == "uniform" else np.quantile(probability, np.linspace(0, 1, 8))
    total = 0.0
    for k in range(7):
        inside = (probability > edges[k]) & (probability <= edges[k + 1])
        inside |= (k == 0) & (probability == edges[0])
        if inside.any():
            total += inside.sum() * abs(label[inside].mean() - probability[inside].mean())
    assert calibration_error(label, probability, 7, strategy) == pytest.approx(total / 150)


def test_calibration_error_tells_calibrated_from_overconfident():
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.2, 0.8, 5000)
    label = (rng.uniform(size=5000) < truth).astype(int)
    assert calibration_error(label, truth) < 0.03
    sharp = 1 / (1 + (1 / truth - 1) ** 3)  # three times the logit
    assert calibration_error(label, sharp) > 0.1
    assert calibration_error(1 - label, 1 - truth) == pytest.approx(calibration_error(label, truth), abs=1e-9)


def predictions(sites: int, seeds: int, per_site: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = []
    for k in range(sites):
        label = np.arange(per_site) % 2
        signal = label * rng.uniform(0.2, 1.5) + rng.normal(size=per_site) + 3 * rng.normal()
        for s in range(seeds):
            logit = signal + 0.3 * rng.normal(size=per_site)
            parts.append(pd.DataFrame({"fold": f"s{k:02d}", "seed": s, "label": label, "logit": logit}))
    return pd.concat(parts, ignore_index=True)


def test_roc_band_of_one_run_is_the_roc_curve():
    rows = predictions(1, 1)
    band = roc_band(rows, points=101)
    false_positive, true_positive, _ = roc_curve(rows["label"], rows["logit"], drop_intermediate=False)
    expected = [true_positive[false_positive <= x + 1e-12].max() for x in band.false_positive_rate]  # upper end
    assert band.true_positive_rate == pytest.approx(np.array(expected))
    assert band.auc == pytest.approx(roc_auc_score(rows["label"], rows["logit"]))
    assert np.isnan(band.low).all()
    assert np.isnan([band.auc_low, band.auc_high]).all()


def test_ties_are_crossed_diagonally():
    rows = pd.DataFrame({"fold": "a", "seed": 0, "label": [0, 1, 0, 1], "logit": [1.0, 1.0, 1.0, 1.0]})
    band = roc_band(rows, points=11)
    assert band.true_positive_rate == pytest.approx(band.false_positive_rate)
    assert band.auc == 0.5


@pytest.mark.parametrize("levels", [3, 10**6], ids=["ties", "distinct"])
def test_corners_of_a_curve_are_those_of_scikit_learn_bit_for_bit(levels):
    rng = np.random.default_rng(levels)
    for n in range(2, 40):
        label = rng.permutation(np.arange(n) % 2)
        score = rng.integers(0, levels, n) / 7
        for mine, theirs in zip(_trace_roc(label, score), roc_curve(label, score)[:2], strict=True):
            assert np.array_equal(mine, theirs)


def test_a_curve_with_a_missing_logit_is_refused():
    rows = predictions(1, 1)
    rows.loc[3, "logit"] = np.nan
    with pytest.raises(BrioError, match="a logit is missing or infinite"):
        roc_band(rows)


def test_roc_band_averages_seeds_then_sites():
    rows = predictions(5, 3)
    band = roc_band(rows, points=51)
    alone = {key: roc_band(one, points=51) for key, one in rows.groupby(["fold", "seed"])}
    curves = np.array([[alone[f"s{k:02d}", s].true_positive_rate for s in range(3)] for k in range(5)])
    assert band.true_positive_rate == pytest.approx(curves.mean(axis=1).mean(axis=0))
    areas = [np.mean([alone[f"s{k:02d}", s].auc for s in range(3)]) for k in range(5)]
    assert (band.n_sites, band.auc) == (5, pytest.approx(np.mean(areas)))
    assert (band.auc_low, band.auc_high) == pytest.approx(t_interval(areas))
    x = 17
    expected = t_interval(curves.mean(axis=1)[:, x], limits=(0, 1))
    assert (band.low[x], band.high[x]) == pytest.approx(expected)
    # a site with more seeds must not weigh more
    again = rows[rows["fold"] == "s00"]
    more = roc_band(pd.concat([rows, again.assign(seed=again["seed"] + 3)]), points=51)
    assert more.true_positive_rate == pytest.approx(band.true_positive_rate)
    assert more.auc == pytest.approx(band.auc)


def test_area_of_the_mean_curve_is_near_the_mean_area():
    band = roc_band(predictions(12, 2))
    assert np.trapezoid(band.true_positive_rate, band.false_positive_rate) == pytest.approx(band.auc, abs=0.004)
    assert (band.low <= band.true_positive_rate).all()
    assert (band.true_positive_rate <= band.high).all()
    assert (np.diff(band.true_positive_rate) >= -1e-12).all()


def test_sites_are_not_ranked_against_each_other():
    """Shifting all logits of a site changes the pooled curve, not this one."""
    rows = predictions(6, 1)
    shifted = rows.assign(logit=rows["logit"] + 10 * (rows["fold"] == "s02"))
    assert roc_band(shifted).auc == pytest.approx(roc_band(rows).auc)
    pooled = [auc(r["label"].to_numpy(), r["logit"].to_numpy()) for r in (rows, shifted)]
    assert pooled[0] != pytest.approx(pooled[1], abs=1e-3)


def test_sites_with_one_class_are_left_out_and_named():
    rows = predictions(4, 2)
    rows.loc[rows["fold"] == "s01", "label"] = 1
    band = roc_band(rows)
    assert (band.n_sites, band.one_class_units) == (3, ("s01",))
    assert band.auc == roc_band(rows[rows["fold"] != "s01"]).auc
    with pytest.raises(BrioError, match="one class only at s01"):
        roc_band(rows[rows["fold"] == "s01"])


def test_folds_of_each_seed_stand_for_themselves_under_kfold():
    rows = predictions(4, 3)
    band = roc_band(rows, by=("seed", "fold"))
    assert band.n_sites == 12
    assert band.auc == pytest.approx(roc_band(rows).auc)
    assert band.auc_high - band.auc_low < roc_band(rows).auc_high - roc_band(rows).auc_low
