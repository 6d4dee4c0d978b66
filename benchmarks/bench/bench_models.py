"""Fits of a fold or two: linear models whose penalty inner folds choose, BRIO plus, and epochs of BRIO."""

import pytest

from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.training import Run


def make_run(connectomes, validation_sites=0):
    return Run(leave_one_site_out(connectomes.cohort, 0, validation_sites=validation_sites)[0], 0)


@pytest.mark.parametrize("contender", ["brio", "scikit-learn, GridSearchCV over LeaveOneGroupOut"])
@pytest.mark.parametrize("name", ["ridge", "svm", "logistic", "tangent-ridge", "log-ridge"])
def bench_linear(measure, benchmark, connectomes, name, contender):
    """Two folds with 19 source sites, each withheld in turn to choose among the penalties; both use all cores.

    The time of brio includes that of the features.
    """
    benchmark.group = f"two folds of {name}, penalty chosen by inner folds"
    method = make_method(name, {"choose_by": "source-sites"})
    runs = [Run(fold, 0) for fold in leave_one_site_out(connectomes.cohort, 0, validation_sites=0)[:2]]
    if contender == "brio":
        measure(lambda: method.fit(connectomes, runs), rounds=1)
        return
    estimators = {"svm": _make_svm, "logistic": _make_logistic}
    from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut

    cohort, reader = connectomes.cohort, method.read_scans(connectomes)
    prepared = [method.prepare_run(connectomes, reader, run) for run in runs]  # features are a gift to the contender

    def search():
        for run in prepared:
            estimator, grid = estimators.get(name, _make_ridge)(run.penalties)
            folds = GridSearchCV(estimator, grid, scoring="roc_auc", cv=LeaveOneGroupOut(), n_jobs=-1)
            folds.fit(run.rows.x, cohort.labels[run.source.scans], groups=run.inner_fold)

    benchmark.pedantic(search, rounds=1)  # long enough to need no round that warms up


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
