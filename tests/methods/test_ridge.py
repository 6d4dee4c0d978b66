"""Ridge regression on the FC entries against scikit-learn on explicit features."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as SkRidge
from sklearn.metrics import roc_auc_score

from brio.cohort import Cohort
from brio.connectome import Connectomes
from brio.methods import make_method
from brio.protocol import Fold
from brio.training import Run

P = 7


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(0)
    scans, site, label = [], [], []
    for s, n in zip("ABCDEF", (8, 12, 9, 10, 11, 8), strict=True):
        for k in range(n):
            x = rng.normal(size=(40, P))
            x[:, 1] += 0.5 * (k % 2) * x[:, 0]
            if k == 2:
                x[:, 4] = 0.0
            scans.append(x)
            site.append(s)
            label.append(k % 2)
    return Connectomes(Cohort.from_scans(scans, site=site, label=label), dtype=torch.float64)


@pytest.fixture(scope="module")
def run(graphs):
    where = [np.flatnonzero(np.isin(graphs.cohort.sites, list(part))) for part in ("ABC", "DE", "F")]
    return Run(Fold("F", *where, ("F",), ("D", "E")), 0)


def features(graphs, source):
    """Upper triangles; edges without signal hold the equal-site mean of the source."""
    A, alive = graphs.full.numpy(), graphs.alive.numpy()
    sites = graphs.cohort.sites
    out = np.zeros((len(A), P * (P - 1) // 2))
    for e, (u, v) in enumerate(combinations(range(P), 2)):
        both = alive[:, u] & alive[:, v]
        means = [A[[i for i in source if sites[i] == s and both[i]], u, v].mean() for s in "ABC"]
        out[:, e] = np.where(both, A[:, u, v], np.mean(means))
    return out


def fits(graphs, run, settings):
    """Scikit-learn's ridge for every penalty of the grid."""
    X, y = features(graphs, run.fold.source), 2.0 * graphs.cohort.labels - 1
    x = X[run.fold.source]
    scale = ((x - x.mean(0)) ** 2).sum(1).mean()
    penalties = settings.grid * scale
    return X, penalties, [SkRidge(alpha=p).fit(x, y[run.fold.source]) for p in penalties]


def test_ridge_is_the_model_of_scikit_learn_with_the_penalty_that_validates_best(graphs, run):
    method = make_method("ridge")
    X, penalties, models = fits(graphs, run, method.settings)
    label = graphs.cohort.labels
    aucs = [roc_auc_score(label[run.fold.validation], m.predict(X[run.fold.validation])) for m in models]
    best = max(np.flatnonzero(np.isclose(aucs, max(aucs), rtol=0, atol=1e-12)))  # of equal ones the strongest penalty
    (fitted,) = method.fit(graphs, [run])
    assert fitted.validation_auc == pytest.approx(max(aucs), abs=1e-12)
    assert fitted.details["penalty"] == pytest.approx(penalties[best])
    np.testing.assert_allclose(fitted.parameters["coefficients"].numpy(), models[best].coef_, atol=1e-9)
    np.testing.assert_allclose(fitted.test_logit, models[best].predict(X[run.fold.test]), atol=1e-9)
    np.testing.assert_allclose(
        method.predict_margins(fitted, graphs, np.arange(len(X))), models[best].predict(X), atol=1e-9
    )


def test_choice_by_source_sites_leaves_each_out_in_turn(graphs, run):
    method = make_method("ridge", {"choose_by": "source-sites"})
    X, penalties, models = fits(graphs, run, method.settings)
    y, site = graphs.cohort.labels, graphs.cohort.sites
    scores = []
    for p in penalties:
        aucs = []
        for left in "ABC":
            inside = [i for i in run.fold.source if site[i] != left]
            out = [i for i in run.fold.source if site[i] == left]
            aucs.append(roc_auc_score(y[out], SkRidge(alpha=p).fit(X[inside], y[inside]).predict(X[out])))
        scores.append(np.mean(aucs))
    (fitted,) = method.fit(graphs, [run])
    best = max(
        np.flatnonzero(np.isclose(scores, max(scores), rtol=0, atol=1e-12))
    )  # of equal ones the strongest penalty
    assert fitted.details["penalty"] == pytest.approx(penalties[best])
    np.testing.assert_allclose(fitted.parameters["coefficients"].numpy(), models[best].coef_, atol=1e-9)
    validation = run.fold.validation
    assert fitted.validation_auc == pytest.approx(roc_auc_score(y[validation], models[best].predict(X[validation])))


def test_validation_scans_of_one_class_have_no_part_in_a_choice_by_source_sites(graphs, run):
    validation = run.fold.validation[graphs.cohort.labels[run.fold.validation] == 1]
    one_class = Run(replace(run.fold, validation=validation), run.seed)
    without = Run(replace(run.fold, validation=validation[:0], validation_sites=()), run.seed)
    fitted, expected = make_method("ridge", {"choose_by": "source-sites"}).fit(graphs, [one_class, without])
    assert fitted.validation_auc == expected.validation_auc
    np.testing.assert_array_equal(fitted.test_logit, expected.test_logit)


def test_zero_filling_of_dead_rois_is_a_setting(graphs, run):
    (fitted,) = make_method("ridge", {"dead_rois": "zero"}).fit(graphs, [run])
    assert (fitted.state.learned["mean"] == 0).all()
    (filled,) = make_method("ridge").fit(graphs, [run])
    dead = ~graphs.alive[run.fold.test].all(1).numpy()
    assert 0 < dead.sum() < len(dead)
    assert np.abs(filled.test_logit - fitted.test_logit)[dead].max() > 1e-6
