"""Scores and DeLong's statistics against scikit-learn, plain counts and the bootstrap."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from brio.protocol import auc, score_predictions
from brio.protocol.calibration import roc_band
from brio.protocol.metrics import (
    SiteAreas,
    assess_over_people,
    delong_covariance,
    equal_weights,
    merge_ties,
    pair_weights,
    placement_values,
    score_columns,
)


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, 40)
    logit = (rng.normal(size=40) + label).round(1)  # rounding makes ties
    p = 1 / (1 + np.exp(-logit))
    predicted = (logit > 0).astype(int)
    expected = {
        "auc": sk.roc_auc_score(label, p),
        "acc": sk.accuracy_score(label, predicted),
        "balanced_acc": sk.balanced_accuracy_score(label, predicted),
        "sensitivity": sk.recall_score(label, predicted),
        "specificity": sk.recall_score(label, predicted, pos_label=0),
        "brier": np.mean((p - label) ** 2),
    }
    assert score_predictions(label, logit) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_margins_that_agree_to_rounding_are_ties_in_every_auc(size):
    """The last bits of a margin follow the order of the scans; that must decide nothing."""
    rng = np.random.default_rng(0)
    label = np.arange(40) % 2
    exact = size * (rng.integers(-3, 4, 40) + 0.5 * label)
    for noise in (0.0, 1e-14, -1e-14):
        logit = exact + noise * size * rng.uniform(size=40)
        expected = sk.roc_auc_score(label, exact)
        assert auc(label, logit) == pytest.approx(expected, abs=1e-15)
        assert score_columns(label[:, None], logit[:, None])[0] == pytest.approx(expected)
        assert placement_values(label, logit)[label == 1].mean() == pytest.approx(expected)
        table = pd.DataFrame({"fold": "A", "seed": 0, "label": label, "margin": logit})
        assert roc_band(table).auc == pytest.approx(expected)


def test_margins_that_differ_by_more_than_rounding_stay_as_they_are():
    rng = np.random.default_rng(0)
    for margin in (rng.normal(size=200), np.array([1.0, 1.0 + 1e-10]), np.array([1e15, 1.0, 1.0 + 1e-6, -2.0, 3.0])):
        assert merge_ties(margin).tolist() == margin.tolist()
    assert merge_ties(np.array([2e-13, 1e-13, 5.0]), scale=1.0).tolist() == [1e-13, 1e-13, 5.0]
    assert merge_ties(np.array([-np.inf, 0.0, np.inf, np.inf])).tolist() == [-np.inf, 0.0, np.inf, np.inf]


def test_what_is_not_a_number_has_no_order():
    for score in (auc, placement_values):
        with pytest.raises(ValueError, match="NaN"):
            score(np.array([0, 1, 1]), np.array([0.0, np.nan, 1.0]))


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_no_auc_but_an_accuracy(label):
    found = score_predictions(np.full(4, label), np.array([-2.0, 1.0, 3.0, -1.0]))
    assert math.isnan(found["auc"])
    assert math.isnan(found["balanced_acc"])
    assert math.isnan(found["specificity" if label else "sensitivity"])
    assert found["acc"] == 0.5
    p = 1 / (1 + np.exp(-np.array([-2.0, 1.0, 3.0, -1.0])))
    assert found["brier"] == pytest.approx(np.mean((p - label) ** 2))
    extreme = score_predictions(np.array([0, 1, 0, 1]), np.array([-1e4, 1e4, 1e4, -1e4]))
    assert (extreme["brier"], extreme["auc"]) == (pytest.approx(0.5), 0.5)


def brute_kernel(patient, control):
    """Every pair of patient and control: 1 in order, 0.5 tied, 0 otherwise."""
    return np.array([[1.0 if p > c else 0.5 if p == c else 0.0 for c in control] for p in patient])


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3)), min_size=2, max_size=20))
def test_placement_values_are_means_over_pairs_also_with_ties(scans):
    label, logit = (np.array(column) for column in zip(*scans, strict=True))
    placements = placement_values(label, logit)
    if len(set(label)) == 1:
        assert np.isnan(placements).all()
        return
    kernel = brute_kernel(logit[label == 1], logit[label == 0])
    assert placements[label == 1] == pytest.approx(kernel.mean(axis=1))
    assert placements[label == 0] == pytest.approx(kernel.mean(axis=0))
    assert placements[label == 1].mean() == pytest.approx(auc(label, logit.astype(float)))


def test_covariances_are_those_of_delong_by_hand():
    """S10 / m + S01 / n with sums over pairs written out, for two methods with ties."""
    rng = np.random.default_rng(0)
    label = np.repeat([1, 0], [7, 9])
    margins = rng.integers(-3, 4, (16, 2)) + label[:, None]
    kernels = [brute_kernel(margins[label == 1, k], margins[label == 0, k]) for k in (0, 1)]
    expected = np.zeros((2, 2))
    for axis, n in ((1, 7), (0, 9)):
        structural = [kernel.mean(axis=axis) for kernel in kernels]
        expected += np.cov(structural) / n
    areas, covariance = delong_covariance(label, np.transpose([placement_values(label, m) for m in margins.T]))
    assert areas == pytest.approx([kernel.mean() for kernel in kernels])
    assert covariance == pytest.approx(expected)


def test_a_class_with_one_scan_and_areas_that_do_not_vary_have_no_interval():
    label = np.array([1, 0, 0])
    areas, covariance = delong_covariance(label, placement_values(label, np.array([1.0, 0.0, 2.0]))[:, None])
    assert areas == [0.5]
    assert np.isnan(covariance).all()
    one = SiteAreas(np.array([1]), np.array([2]), areas[None], covariance[None])
    alike = SiteAreas(np.array([5, 5]), np.array([5, 5]), np.ones((2, 1)), np.zeros((2, 1, 1)))
    for sites, mean in ((one, 0.5), (alike, 1.0)):
        found = assess_over_people(sites, np.array([1.0]), equal_weights(sites))
        assert found.mean == mean
        assert all(map(math.isnan, (found.error, found.low, found.high)))


def simulate_areas(rng, sizes, shift=(1.0, 1.0)):
    auc_of, covariance = [], []
    for n_patients, n_controls in sizes:
        label = np.repeat([1, 0], [n_patients, n_controls])
        person = rng.standard_normal(len(label))
        margins = [person + 0.7 * rng.standard_normal(len(label)) + d * label for d in shift]
        one = delong_covariance(label, np.transpose([placement_values(label, m) for m in margins]))
        auc_of.append(one[0])
        covariance.append(one[1])
    n_patients, n_controls = np.transpose(sizes)
    return SiteAreas(n_patients, n_controls, np.array(auc_of), np.array(covariance))


def test_pair_weights_count_every_pair_within_a_site_once():
    rng = np.random.default_rng(3)
    sizes = [(5, 9), (12, 4), (8, 8)]
    margins = [(rng.standard_normal(m) + 0.5, rng.standard_normal(n)) for m, n in sizes]
    kernels = [brute_kernel(*pair) for pair in margins]
    areas = SiteAreas(*np.transpose(sizes), np.array([[k.mean()] for k in kernels]), np.zeros((3, 1, 1)))
    pooled = sum(k.sum() for k in kernels) / sum(k.size for k in kernels)
    assert assess_over_people(areas, np.array([1.0]), pair_weights(areas)).mean == pytest.approx(pooled)
    mean = np.mean([k.mean() for k in kernels])
    assert assess_over_people(areas, np.array([1.0]), equal_weights(areas)).mean == pytest.approx(mean)


def test_intervals_of_one_model_over_people_hold_the_truth():
    rng = np.random.default_rng(4)
    contrast, missed = np.array([1.0, -1.0]), []
    for _ in range(400):
        areas = simulate_areas(rng, [(20, 18), (14, 25), (40, 30)])
        found = [assess_over_people(areas, contrast, w(areas), correction=0.0) for w in (equal_weights, pair_weights)]
        missed.append([not one.low <= 0 <= one.high for one in found])
    assert ((np.mean(missed, 0) > 0.025) & (np.mean(missed, 0) < 0.085)).all()  # binomial SD 0.011


def test_the_interval_is_two_standard_errors_and_wider_for_left_out_sites():
    areas = simulate_areas(np.random.default_rng(5), [(20, 18), (30, 25), (12, 12)], shift=(1.2, 0.4))
    contrast = np.array([1.0, -1.0])
    one_model = assess_over_people(areas, contrast, equal_weights(areas), correction=0.0)
    variance = sum(contrast @ c @ contrast for c in areas.covariance) / 9
    assert one_model.error == pytest.approx(math.sqrt(variance))
    assert one_model.high - one_model.low == pytest.approx(2 * 1.959964 * one_model.error)
    left_out = assess_over_people(areas, contrast, equal_weights(areas))
    assert left_out.mean == one_model.mean
    assert left_out.error == pytest.approx(math.sqrt(1 + 3 / 1) * one_model.error)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300), st.sampled_from([0.0, 1 / 3, 1.0]))), st.data())
def test_a_mean_over_sites_is_between_those_of_the_sites(sites, data):
    """Also to the last bit, since an AUC of more than 1 is refused where it is read."""
    sites = sites or [(6, 6, 1.0)]
    if data.draw(st.booleans(), "all alike"):
        sites = [sites[0]] * data.draw(st.integers(1, 60), "number of sites")
    patients, controls, auc = map(np.array, zip(*sites, strict=True))
    areas = SiteAreas(patients, controls, auc[:, None], np.zeros((len(sites), 1, 1)))
    for weigh in (equal_weights, pair_weights):
        found = assess_over_people(areas, np.array([1.0]), weigh(areas))
        assert auc.min() <= found.mean <= auc.max()
