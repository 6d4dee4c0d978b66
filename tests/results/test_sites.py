"""``sites.csv`` and ``covariances.csv``: what they hold is what the predictions say, and no participant is in them."""

import math

import numpy as np
import pandas as pd
import pytest
from planted_predictions import SIZES, make_predictions
from scipy import stats
from sklearn.metrics import brier_score_loss, roc_auc_score

from brio.protocol.metrics import delong_covariance, find_score_distance, placement_values
from brio.results import (
    PAIR_WEIGHTED,
    assess_auc,
    compare_over_people,
    covariance_rows,
    describe_calibration,
    site_rows,
)
from brio.results.summarise import (
    CALIBRATION_SUMS,
    add_intervals,
    collect_areas,
    compute_chance_p,
    read_covariances,
    read_sites,
    summarise_people,
    write_site_tables,
)
from commands import refuse


@pytest.fixture(scope="module")
def predictions():
    return make_predictions({"a": 1.0, "b": 0.4, "c": 1.0})


def test_a_site_with_one_patient_counts_and_has_no_known_covariance():
    """Means over participants are known then, and methods are compared; their intervals are not known."""
    few = make_predictions({"a": 1.0, "b": 0.4}, sizes=SIZES | {"s1": (1, 15)})
    sites, covariances = site_rows(few, "loso"), covariance_rows(few, "loso")
    assert np.isnan(covariances.loc[covariances["fold"] == "s1", "covariance"]).all()
    mean = assess_auc(sites, covariances, "a")[PAIR_WEIGHTED]
    assert np.isfinite(mean.mean)
    assert np.isnan(mean.low)
    assert compare_over_people(sites, covariances, "b")["mean_difference"].notna().all()


@pytest.fixture(scope="module")
def sites(predictions):
    return site_rows(predictions, "loso")


@pytest.fixture(scope="module")
def covariances(predictions):
    return covariance_rows(predictions, "loso")


def lose(predictions, column):
    """Predictions without one value of a participant of method a at s1."""
    first = predictions.index[(predictions["method"] == "a") & (predictions["fold"] == "s1")][0]
    return predictions.assign(**{column: predictions[column].where(predictions.index != first)})


def test_a_site_has_the_scores_of_its_predictions(predictions, sites):
    sites = sites.set_index(["method", "fold"])
    assert len(sites) == 9
    for (method, fold), part in predictions.groupby(["method", "fold"]):
        row = sites.loc[(method, fold)]
        by_seed = [roc_auc_score(run["label"], run["margin"]) for _, run in part.groupby("seed")]
        mean = part.groupby("participant_id").agg(label=("label", "first"), margin=("margin", "mean"))
        assert (row["n_patients"], row["n_controls"]) == SIZES[fold]
        assert row["auc"] == pytest.approx(np.mean(by_seed))
        assert row["ensemble_auc"] == pytest.approx(roc_auc_score(mean["label"], mean["margin"]))


def test_the_variance_of_a_site_is_that_of_placement_values_averaged_over_seeds(predictions, sites, covariances):
    part = predictions[(predictions["method"] == "b") & (predictions["fold"] == "s2")]
    runs = [run.sort_values("participant_id") for _, run in part.groupby("seed")]
    label = runs[0]["label"].to_numpy()
    mean = np.mean([placement_values(label, run["margin"].to_numpy()) for run in runs], axis=0)
    expected = delong_covariance(label, mean[:, None])[1].item()
    assert sites.set_index(["method", "fold"]).loc[("b", "s2"), "auc_variance"] == pytest.approx(expected)
    stored = covariances.set_index(["method", "other", "fold"])["covariance"]
    assert stored.loc[("b", "b", "s2")] == pytest.approx(expected)
    assert len(covariances) == 6 * 3


def test_the_brier_score_and_its_recalibration_follow_from_the_sums(predictions, sites):
    table = describe_calibration(sites)
    for method, own in predictions.groupby("method"):
        assert table.loc[method, "brier"] == pytest.approx(brier_score_loss(own["label"], own["probability"]))
        line = stats.linregress(own["probability"], own["label"])
        assert table.loc[method, ["slope", "intercept"]].tolist() == pytest.approx([line.slope, line.intercept])
        residuals = own["label"] - line.slope * own["probability"] - line.intercept
        assert table.loc[method, "recalibrated_brier"] == pytest.approx((residuals**2).mean())


def test_no_brier_score_is_negative_where_every_prediction_is_right():
    rng = np.random.default_rng(0)
    for n in range(2, 30):
        label = np.arange(n) % 2
        own = pd.DataFrame({"method": "a", "fold": "s", "seed": 0, "participant_id": np.arange(n).astype(str)})
        p = np.where(label == 1, 1 - (gap := rng.uniform(0, 1e-9)), gap)
        scores = describe_calibration(site_rows(own.assign(label=label, margin=p, probability=p), "loso")).loc["a"]
        assert scores["brier"] >= 0
        assert scores["recalibrated_brier"] >= 0


def test_without_one_probability_a_site_has_no_sums(predictions):
    sites = site_rows(lose(predictions, "probability"), "loso").set_index(["method", "fold"])[list(CALIBRATION_SUMS)]
    assert sites.loc[("a", "s1")].isna().all()
    assert sites.drop(index=("a", "s1")).notna().all(axis=None)


def test_under_kfold_every_fold_of_every_seed_has_a_row_and_there_are_no_covariances(predictions):
    sites = site_rows(predictions, "kfold").set_index(["method", "seed", "fold"])
    assert len(sites) == 27
    runs = predictions.groupby(["method", "seed", "fold"])
    for unit, part in runs:
        assert sites.loc[unit, "auc"] == pytest.approx(roc_auc_score(part["label"], part["margin"]))
    assert covariance_rows(predictions, "kfold").empty
    assert summarise_people(predictions, "kfold", "a") == {}


def test_a_site_with_a_missing_margin_or_run_has_no_score(predictions):
    broken = lose(predictions, "margin")
    broken = broken[~((broken["method"] == "b") & (broken["fold"] == "s2") & (broken["seed"] == 1))]
    sites = site_rows(broken, "loso").set_index(["method", "fold"])["auc"]
    assert sites[sites.isna()].index.tolist() == [("a", "s1"), ("b", "s2")]
    areas = collect_areas(site_rows(broken, "loso"), covariance_rows(broken, "loso"), ["a", "b"])
    assert areas.n_patients.tolist() == [30]  # s3 alone has both


def test_a_participant_that_occurs_twice_in_a_run_is_refused(predictions):
    refuse("occurs more than once", site_rows, pd.concat([predictions, predictions.iloc[[5]]]), "loso")


def test_one_class_at_a_site_gives_no_score_there():
    mixed = make_predictions({"a": 1.0}, sizes={"s1": (12, 10), "s2": (8, 0)})
    sites = site_rows(mixed, "loso")
    first, second = sites["auc"]
    assert math.isnan(second)
    assert assess_auc(sites, covariance_rows(mixed, "loso"), "a")["pair-weighted"].mean == pytest.approx(first)


def test_methods_tested_on_different_scans_are_refused(predictions):
    fewer = predictions[~((predictions["method"] == "b") & (predictions["participant_id"] == "s1-0"))]
    refuse("s1: b and a were tested on different scans", covariance_rows, fewer, "loso")


def test_tables_are_read_as_they_were_written_and_name_no_participant(sites, covariances, tmp_path):
    write_site_tables(tmp_path, sites, covariances)
    pd.testing.assert_frame_equal(read_sites(tmp_path), sites, check_dtype=False)
    pd.testing.assert_frame_equal(read_covariances(tmp_path), covariances)
    for name in ("sites.csv", "covariances.csv"):
        assert "s1-" not in (tmp_path / name).read_text()
    assert read_sites(tmp_path / "elsewhere") is None
    assert read_covariances(tmp_path / "elsewhere") is None


def test_a_planted_difference_is_found_over_people_and_none_where_there_is_none(sites, covariances):
    table = compare_over_people(sites, covariances, "a").set_index(["method", "estimand"])
    assert len(table) == 4
    assert (table.loc["b", "high"] < 0).all()
    assert (table.loc["c", "low"] < 0).all()
    assert (table.loc["c", "high"] > 0).all()
    assert not {"p", "p_holm"} & set(table), "a pair has one p value, over sites"
    without = covariances[covariances["method"].eq(covariances["other"])]
    assert compare_over_people(sites, without, "a").empty


def test_chance_is_tested_over_sites_and_folds():
    rng = np.random.default_rng(0)
    scores = pd.Series(rng.uniform(0.45, 0.7, 9))
    rows = pd.DataFrame({"fold": range(9), "n_test": 10, "n_source": 70, "n_validation": 20})
    t = (scores.mean() - 0.5) / math.sqrt((1 / 9 + 1 / 7) * scores.var())
    for protocol in ("loso", "kfold"):
        assert compute_chance_p(scores, rows, protocol) == pytest.approx(2 * stats.t.sf(t, 8))
    assert compute_chance_p(scores[:0], rows, "loso") is None


@pytest.mark.parametrize(("n", "m"), [(10, 10), (5, 40), (2, 2)])
def test_a_perfect_or_reversed_site_has_newcombes_interval(n, m):
    """By its equation: at the open end, the area lies 1.96 of its own standard errors from what was observed."""
    row = {"n_patients": n, "n_controls": m, "auc_variance": 0.0}
    found = add_intervals(pd.DataFrame([row | {"auc": auc} for auc in (1.0, 0.0, 0.5)]))
    low = found["low"][0]
    variance = low * (1 - low) * (1 + ((n + m) / 2 - 1) * ((1 - low) / (2 - low) + low / (1 + low))) / (n * m)
    np.testing.assert_allclose(1 - low, 1.959963984540054 * np.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(found.loc[:1, ["low", "high"]], [[low, 1.0], [0.0, 1 - low]], rtol=1e-12)
    assert found.loc[2, ["low", "high"]].isna().all(), "all margins equal"


@pytest.mark.parametrize(("n", "m"), [(5, 5), (10, 10), (4, 20)])
def test_areas_below_the_score_interval_hardly_ever_make_a_perfect_site(n, m):
    """Exponential scores, whose variance that of Hanley and McNeil is."""
    rng, area = np.random.default_rng(0), 1 - find_score_distance(n, m)
    patients = rng.exponential(area / (1 - area), size=(20_000, n))
    controls = rng.exponential(size=(20_000, m))
    assert (patients.min(1) > controls.max(1)).mean() <= 0.025
