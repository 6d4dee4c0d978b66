"""Many columns of labels at once: the same margins as the ordinary method run on each column."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.methods import make_method
from brio.methods.linear.base import KernelEigen, choose_penalty
from brio.methods.linear.ridge import KernelRidgeMethod, predict_columns
from brio.protocol import auc, leave_one_site_out
from brio.protocol.metrics import score_columns
from brio.studies.permutation import permute_labels, relabel_cohort
from brio.training import Run


@pytest.fixture(scope="module")
def graphs():
    return Connectomes(simulate(Simulation(n_sites=6, per_class=7, n_rois=12, frames=60)), dtype=torch.float64)


def on_labels(graphs, labels):
    other = copy.copy(graphs)
    other.cohort = relabel_cohort(graphs.cohort, labels)
    return other


@pytest.mark.parametrize("choose_by", ["validation", "source-sites"])
@pytest.mark.parametrize("name", ["ridge", "tangent-ridge", "fc-tangent-ridge"])
def test_columns_are_the_ordinary_method_on_permuted_labels(graphs, name, choose_by):
    method = make_method(name, {"choose_by": choose_by})
    assert isinstance(method, KernelRidgeMethod)
    fold = leave_one_site_out(graphs.cohort, 0, 2 if choose_by == "validation" else 0)[2]
    labels = np.column_stack([graphs.cohort.labels, permute_labels(graphs.cohort, 20)])
    (margins,) = method.fit_labels(graphs, [Run(fold, 0)], labels)
    penalties = set()
    for b in range(labels.shape[1]):
        (fitted,) = method.fit(on_labels(graphs, labels[:, b]), [Run(fold, 0)])
        np.testing.assert_allclose(margins[:, b], fitted.test_logit, atol=1e-9)
        penalties.add(fitted.details["penalty"])
    assert len(penalties) > 2, "columns chose the same penalty, so the choice was not tested"


@pytest.mark.parametrize("choose_by", ["validation", "source-sites"])
def test_columns_of_log_ridge_are_its_margins_before_calibration(graphs, choose_by):
    method = make_method("log-ridge", {"choose_by": choose_by})
    assert isinstance(method, KernelRidgeMethod)
    runs = [Run(leave_one_site_out(graphs.cohort, 0, 2)[k], 0) for k in (2, 4)]
    labels = np.column_stack([graphs.cohort.labels, permute_labels(graphs.cohort, 15)])
    columns = method.fit_labels(graphs, runs, labels)
    penalties = set()
    for b in range(labels.shape[1]):
        for margins, fitted in zip(columns, method.fit(on_labels(graphs, labels[:, b]), runs), strict=True):
            slope, intercept = np.polyfit(margins[:, b], fitted.test_logit, 1)
            assert slope > 0
            np.testing.assert_allclose(slope * margins[:, b] + intercept, fitted.test_logit, atol=1e-9)
            penalties.add(fitted.details["penalty"])
    assert len(penalties) > 2


def test_neither_labels_of_the_cohort_nor_those_of_test_scans_reach_a_margin(graphs):
    method, fold = make_method("ridge", {"choose_by": "source-sites"}), leave_one_site_out(graphs.cohort, 0, 0)[0]
    labels = permute_labels(graphs.cohort, 3)
    flipped = labels.copy()
    flipped[fold.test] = 1 - flipped[fold.test]
    (margins,) = method.fit_labels(graphs, [Run(fold, 0)], labels)
    for other, y in ((graphs, flipped), (on_labels(graphs, labels[:, 2]), labels)):
        np.testing.assert_array_equal(method.fit_labels(other, [Run(fold, 0)], y)[0], margins)


def inner_fold(kernel, y, site, e, penalty, per_site):
    """Margins of a withheld site by solving the bordered system of the other sites."""
    inside, withheld = site != e, site == e
    names = [s for s in np.unique(site) if s != e]
    Z = (site[inside][:, None] == names).astype(float) if per_site else np.ones((inside.sum(), 1))
    n, q = Z.shape
    system = np.block([[kernel[np.ix_(inside, inside)] + penalty * np.eye(n), Z], [Z.T, np.zeros((q, q))]])
    alpha = np.linalg.solve(system, np.concatenate([y[inside], np.zeros(q)]))[:n]
    return kernel[np.ix_(withheld, inside)] @ alpha


@pytest.mark.parametrize("per_site", [False, True])
def test_inner_folds_from_the_inverse_choose_as_inner_folds_that_are_fitted(per_site):
    rng = np.random.default_rng(1)
    site = np.repeat(list("abcd"), [9, 12, 8, 11])
    x = rng.normal(size=(len(site), 60)) + 2 * rng.normal(size=(4, 60))[np.searchsorted(list("abcd"), site)]
    new = rng.normal(size=(5, 60))
    kernel, penalties = x @ x.T, np.array([1.0, 20.0, 400.0, 8000.0])
    Y = np.sign(rng.normal(size=(len(site), 40)) + x[:, :1])
    for e in "abcd":
        Y[np.flatnonzero(site == e)[:2]] = [[-1.0], [1.0]]  # both classes at every site
    Z = (site[:, None] == np.unique(site)).astype(float) if per_site else np.ones((len(site), 1))
    eigen = KernelEigen.of_kernel(kernel, site if per_site else np.zeros(len(site)))
    margins = predict_columns(eigen, Y, penalties, new @ x.T, site, "e")
    chosen = set()
    for b, y in enumerate(Y.T):
        scores = [
            np.mean([auc(y[site == e] > 0, inner_fold(kernel, y, site, e, p, per_site)) for e in "abcd"])
            for p in penalties
        ]
        best = max(p for p, score in zip(penalties, scores, strict=True) if score == max(scores))
        chosen.add(best)
        n, q = Z.shape
        system = np.block([[kernel + best * np.eye(n), Z], [Z.T, np.zeros((q, q))]])
        alpha = np.linalg.solve(system, np.concatenate([y, np.zeros(q)]))[:n]
        np.testing.assert_allclose(margins[:, b], new @ x.T @ alpha, atol=1e-9)
    assert len(chosen) > 2


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
def test_ties_go_to_the_stronger_penalty_whatever_the_order_of_the_grid(order):
    penalties = np.array([0.1, 1.0, 10.0, 100.0, 1000.0])
    columns = {
        10.0: [0.5, 0.8, 0.8, 0.7, np.nan],
        1000.0: [0.6, 0.6, 0.6, 0.6, 0.6],
        0.1: [0.9, 0.8, 0.8, 0.8, 0.8],
        1.0: [np.nan, 0.5, np.nan, 0.4, 0.5 - 1e-9],
    }
    scores = np.array(list(columns.values())).T
    chosen = choose_penalty(scores[order], penalties[order], "validation", "a")
    assert penalties[order][chosen].tolist() == list(columns)
    for k, best in enumerate(columns):
        assert penalties[order][choose_penalty(scores[order, k], penalties[order], "validation", "a")] == best


@pytest.mark.parametrize(
    ("choose_by", "words"),
    [
        ("validation", "fold {}: the validation scans hold one class"),
        ("source-sites", "fold {}: a source site holds one"),
    ],
)
def test_penalties_without_a_score_are_refused_with_what_was_asked(graphs, choose_by, words):
    """The ordinary fit and that of many columns say the same."""
    method, fold = make_method("ridge", {"choose_by": choose_by}), leave_one_site_out(graphs.cohort, 0, 2)[1]
    labels = graphs.cohort.labels.copy()
    where = fold.validation if choose_by == "validation" else fold.source[graphs.cohort.sites[fold.source] == "site04"]
    assert len(where)
    labels[where] = 1
    columns = np.column_stack([graphs.cohort.labels, labels])
    messages = []
    for attempt in (
        lambda: method.fit(on_labels(graphs, labels), [Run(fold, 0)]),
        lambda: method.fit_labels(graphs, [Run(fold, 0)], columns),
    ):
        with pytest.raises(BrioError, match=words.format(fold.name)) as error:
            attempt()
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=12))
def test_auc_of_columns_is_the_auc_of_each(rows):
    label = np.array([row[0] for row in rows])
    margin = np.array([row[1:] for row in rows], dtype=float)
    expected = [auc(label, column) for column in margin.T]
    np.testing.assert_array_equal(score_columns(label[:, None], margin), expected)


def test_permutations_keep_the_patients_of_each_site_and_do_not_depend_on_their_number(graphs):
    cohort = graphs.cohort
    labels = permute_labels(cohort, 50)
    for site in np.unique(cohort.sites):
        here = cohort.sites == site
        assert (labels[here].sum(axis=0) == cohort.labels[here].sum()).all()
    np.testing.assert_array_equal(permute_labels(cohort, 7), labels[:, :7])
    assert len(np.unique(labels, axis=1).T) == 50
    share = (labels == cohort.labels[:, None]).mean()
    assert 0.45 < share < 0.55
    assert relabel_cohort(cohort, labels[:, 0]).fingerprint != relabel_cohort(cohort, labels[:, 1]).fingerprint
    assert replace(cohort).fingerprint == cohort.fingerprint
