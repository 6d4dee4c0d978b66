"""Fits of one fold: linear models whose penalty inner folds choose, BRIO plus, and epochs of BRIO."""

import numpy as np
import pytest

from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.training import Run


def make_run(connectomes, validation_sites=0):
    return Run(leave_one_site_out(connectomes.cohort, 0, validation_sites=validation_sites)[0], 0)


@pytest.mark.parametrize("contender", ["brio", "scikit-learn, GridSearchCV over LeaveOneGroupOut"])
@pytest.mark.parametrize("name", ["ridge", "svm", "logistic", "tangent-ridge", "log-ridge"])
def bench_linear(measure, benchmark, connectomes, name, contender):
    """One fold with 19 source sites, each withheld in turn to choose among the penalties."""
    benchmark.group = f"one fold of {name}, penalty chosen by inner folds"
    method, run = make_method(name, {"choose_by": "source-sites"}), make_run(connectomes)
    if contender == "brio":
        measure(lambda: method.fit(connectomes, [run]), rounds=1)
        return
    estimators = {"ridge": _make_ridge, "svm": _make_svm, "logistic": _make_logistic}
    if name not in estimators:
        pytest.skip("scikit-learn has no such features")
    from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut

    cohort, source = connectomes.cohort, run.fold.source
    u, v = np.triu_indices(connectomes.n_rois, 1)
    x = connectomes.full.cpu().numpy()[source][:, u, v].astype(np.float64)
    estimator, grid = estimators[name](method.settings.grid * float(((x - x.mean(0)) ** 2).sum(1).mean()))
    search = GridSearchCV(estimator, grid, scoring="roc_auc", cv=LeaveOneGroupOut())
    measure(lambda: search.fit(x, cohort.labels[source], groups=cohort.sites[source]), rounds=1)


def _make_ridge(penalties):
    from sklearn.linear_model import RidgeClassifier

    return RidgeClassifier(), {"alpha": penalties}


def _make_svm(penalties):
    from sklearn.svm import SVC

    return SVC(kernel="linear"), {"C": 1 / penalties}


def _make_logistic(penalties):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000), {"C": 4 / penalties}


@pytest.mark.benchmark(group="one fold of brio-plus")
def bench_brio_plus(measure, connectomes):
    measure(lambda: make_method("brio-plus").fit(connectomes, [make_run(connectomes)]), rounds=1)


@pytest.mark.benchmark(group="four runs of BRIO, two epochs, the second guided")
@pytest.mark.parametrize("contender", ["brio, one stack", "one run after the other"])
def bench_brio(measure, connectomes, contender):
    method = make_method("brio", {"epochs": 2, "T_w": 1})
    folds = leave_one_site_out(connectomes.cohort, 0, validation_sites=2)[:4]
    runs = [Run(fold, 0) for fold in folds]
    together = contender.startswith("brio")
    measure(lambda: method.fit(connectomes, runs) if together else [method.fit(connectomes, [r]) for r in runs], 1)
