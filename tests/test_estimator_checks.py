"""scikit-learn's own checks of an estimator, with every exception listed and justified.

The checks deal in tables of numbers, BrioClassifier in scans and sites. They are run twice: on the classifier as it
is, where all that fits a table must fail, and on one that turns each row of a table into a scan and deals out
sites, where everything must hold.
"""

import functools

import numpy as np
import pytest
import torch
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from brio.connectome import Connectomes
from brio.estimator import BrioClassifier

TABLE = "fits a table of numbers without sites; a connectome needs time series, and BRIO needs sites"

WORDS = "asks for words about the columns of a table; tables are refused before"

ON_TABLES = """
classifier_data_not_an_array classifiers_classes classifiers_train decision_proba_consistency dict_unchanged
dont_overwrite_parameters dtype_object estimators_dtypes estimators_fit_returns_self estimators_overwrite_params
estimators_pickle f_contiguous_array_estimator fit2d_predict1d fit_check_is_fitted fit_idempotent fit_score_takes_y
methods_sample_order_invariance methods_subset_invariance n_features_in n_features_in_after_fitting
pipeline_consistency positive_only_tag_during_fit readonly_memmap_input supervised_y_2d
"""
EXPECTED_FAILED_CHECKS = {f"check_{name}": TABLE for name in ON_TABLES.split()}
EXPECTED_FAILED_CHECKS |= {f"check_{name}": WORDS for name in ("estimators_empty_data_messages", "fit2d_1feature")}


class AsIs(BrioClassifier):
    """BrioClassifier without the tag that makes scikit-learn pass over it."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


class OnRows(AsIs):
    """BrioClassifier on tables: a row becomes a scan with as many ROIs, sites are dealt out within each class."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # what it learns is tested elsewhere, on scans that mean something
        tags.input_tags.allow_nan = False
        return tags

    def fit(self, X, y=None):
        X = validate_data(self, X, ensure_min_features=2)
        if y is None:
            return super().fit(scans(X), y, sites=None)
        flat = np.ravel(np.asarray(y))
        rank = np.array([np.sum(flat[:i] == label) for i, label in enumerate(flat)])
        return super().fit(scans(X), y, sites=rank % 3)

    def decision_function(self, X):
        check_is_fitted(self)
        return super().decision_function(scans(validate_data(self, X, reset=False)))


def scans(X):
    """Noise that is the same for every row, coupled by the numbers in it."""
    X = np.asarray(X, dtype=np.float64)
    shared, own = np.random.default_rng(0).normal(size=(2, 24, X.shape[1]))
    return [own + np.tanh(row) * shared[:, :1] for row in X]


SMALL = {"device": "cpu", "J": 2, "K": 2, "epochs": 2, "T_w": 1, "settings": {"d_h": 8, "sinkhorn_iterations": 5}}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(AsIs(), EXPECTED_FAILED_CHECKS, id="as it is"),
        pytest.param(OnRows("ridge", validation_sites=1, device="cpu"), {}, id="ridge on rows"),
        pytest.param(OnRows("brio", validation_sites=1, **SMALL), {}, id="brio on rows", marks=pytest.mark.soak),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_checks_pass_but_for_the_listed_ones(model, expected, monkeypatch):
    from sklearn.utils.estimator_checks import check_estimator

    # the checks compare to 1e-7, which is about logic in float64 but about rounding in float32
    monkeypatch.setattr("brio.estimator.Connectomes", functools.partial(Connectomes, dtype=torch.float64))
    results = check_estimator(model, expected_failed_checks=expected, on_fail=None, on_skip=None)
    assert len(results) > 40
    broken = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not broken, broken
    needless = {r["check_name"] for r in results if r["expected_to_fail"] and r["status"] != "xfail"}
    assert not needless, f"listed, but they pass: {needless}"
    unknown = expected.keys() - {r["check_name"] for r in results}
    assert not unknown, f"listed, but not among the checks: {unknown}"


def test_the_tags_tell_scikit_learn_that_scans_are_no_table():
    from sklearn.utils.estimator_checks import check_estimator

    with pytest.warns(SkipTestWarning, match="Can't test estimator BrioClassifier"):
        check_estimator(BrioClassifier())
