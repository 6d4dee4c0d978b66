"""Scores against scikit-learn and plain counts."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sk

from brio.protocol import auc, bootstrap_interval, placement_values, roc_band, score_predictions
from brio.protocol.metrics import merge_ties, score_columns


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


def test_auc_is_the_share_of_pairs_in_order():
    label, logit = np.array([0, 0, 0, 1, 1]), np.array([0.1, 0.4, 0.9, 0.4, 2.0])
    pairs = [(p > q) + 0.5 * (p == q) for p in logit[label == 1] for q in logit[label == 0]]
    assert auc(label, logit) == pytest.approx(np.mean(pairs))


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
        table = pd.DataFrame({"fold": "A", "seed": 0, "label": label, "logit": logit})
        assert roc_band(table).auc == pytest.approx(expected)


def test_margins_that_differ_by_more_than_rounding_stay_as_they_are():
    rng = np.random.default_rng(0)
    for margin in (rng.normal(size=200), np.array([1.0, 1.0 + 1e-10]), np.array([1e15, 1.0, 1.0 + 1e-6, -2.0, 3.0])):
        assert merge_ties(margin).tolist() == margin.tolist()
    assert merge_ties(np.array([2e-13, 1e-13, 5.0]), scale=1.0).tolist() == [1e-13, 1e-13, 5.0]
    assert merge_ties(np.array([-np.inf, 0.0, np.inf, np.inf])).tolist() == [-np.inf, 0.0, np.inf, np.inf]


def test_what_is_not_a_number_has_no_order():
    with pytest.raises(ValueError, match="some logits are NaN"):
        auc(np.array([0, 1, 1]), np.array([0.0, np.nan, 1.0]))


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_no_auc_but_an_accuracy(label):
    found = score_predictions(np.full(4, label), np.array([-2.0, 1.0, 3.0, -1.0]))
    assert math.isnan(found["auc"])
    assert math.isnan(found["balanced_acc"])
    assert math.isnan(found["specificity" if label else "sensitivity"])
    assert found["acc"] == 0.5
    p = 1 / (1 + np.exp(-np.array([-2.0, 1.0, 3.0, -1.0])))
    assert found["brier"] == pytest.approx(np.mean((p - label) ** 2))


def test_extreme_logits_stay_finite():
    found = score_predictions(np.array([0, 1, 0, 1]), np.array([-1e4, 1e4, 1e4, -1e4]))
    assert found["brier"] == pytest.approx(0.5)
    assert found["auc"] == 0.5


def test_bootstrap_interval_covers_the_mean_and_narrows():
    rng = np.random.default_rng(0)
    few, many = rng.normal(0.7, 0.1, 8), rng.normal(0.7, 0.1, 200)
    low, high = bootstrap_interval(few)
    assert low < few.mean() < high
    normal = 1.96 * many.std() / math.sqrt(200)
    low, high = bootstrap_interval(many)
    assert (low, high) == pytest.approx((many.mean() - normal, many.mean() + normal), abs=0.003)
    assert bootstrap_interval(few) == bootstrap_interval(np.append(few, np.nan))
    assert all(map(math.isnan, bootstrap_interval([0.5, np.nan])))
