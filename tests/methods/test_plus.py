"""BRIO plus: its penalty against brute force, what it shares with log-ridge, and regimes with known truth."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import (
    BlockRule,
    Connectomes,
    ReestimateRequest,
    clip_block_length,
    differentiate_log,
    log_connectome,
    read_edges,
)
from brio.methods import make_method
from brio.protocol import auc, leave_one_site_out
from brio.studies.refits import permute_labels, relabel_cohort
from brio.training import Run


def _simulate(**kwargs):
    cohort = simulate(Simulation(**kwargs))
    return Connectomes(cohort), [Run(fold, 0) for fold in leave_one_site_out(cohort, 0)]


def _auc(name, graphs, runs):
    fits = make_method(name).fit(graphs, runs)
    return np.mean([auc(graphs.cohort.labels[fitted.run.fold.test], fitted.test_logit) for fitted in fits])


@pytest.fixture(scope="module")
def small():
    """A small cohort in full precision, with the fold of its last site."""
    cohort = simulate(Simulation(n_sites=5, per_class=8, n_rois=12, frames=80, stable=0.5, dead_share=0.2))
    fold = next(f for f in leave_one_site_out(cohort, 0, 0) if f.name == "site05")
    return Connectomes(cohort, dtype=torch.float64), Run(fold, 0)


def test_where_stable_linear_signal_is_all_there_is_it_does_not_lose_to_ridge():
    graphs, runs = _simulate(n_sites=5, per_class=18, frames=400, stable=0.25, spurious=0.0, unstable=0.0)
    assert _auc("brio-plus", graphs, runs) > _auc("ridge", graphs, runs) - 0.02


def test_one_source_site_is_enough(small):
    graphs, run = small
    one = np.flatnonzero(graphs.cohort.sites == graphs.cohort.sites[run.fold.source[0]])
    (fitted,) = make_method("brio-plus").fit(graphs, [Run(dataclasses.replace(run.fold, source=one), 0)])
    assert np.isfinite(fitted.test_logit).all()
    assert 0 <= fitted.validation_auc <= 1


def test_without_its_penalty_it_is_log_ridge(small):
    graphs, run = small
    (plus,) = make_method("brio-plus", {"lambda_re": 0.0}).fit(graphs, [run])
    (log_ridge,) = make_method("log-ridge").fit(graphs, [run])
    np.testing.assert_array_equal(plus.test_logit, log_ridge.test_logit)


def _find_changes(graphs, scans, count, length=None):
    """Edges of log-connectomes, and their changes by single blocks; every ROI has signal. [n, edges], [n, K, edges]."""
    A = graphs.full[scans].double()
    changes = [
        differentiate_log(A[row].numpy(), graphs.find_block_changes(i, count, length), 0.5)
        for row, i in enumerate(scans.tolist())
    ]
    return read_edges(log_connectome(A, 0.5)).numpy(), read_edges(torch.from_numpy(np.stack(changes))).numpy()


@pytest.mark.parametrize(("n_rois", "K"), [(8, 4), (8, 1), (16, 5)])  # fewer and more edges than scans
def test_the_penalty_is_more_rows_of_a_plain_ridge_regression(n_rois, K):
    """Changes are further observations whose label is 0: |y - x w|^2 + penalty (|w|^2 + weight |changes w|^2).

    Coefficients w are sums of the log-connectomes of the source scans.
    """
    cohort = simulate(Simulation(n_sites=4, per_class=5, n_rois=n_rois, frames=60, stable=0.5, dead_share=0.0))
    graphs, weight = Connectomes(cohort, dtype=torch.float64), 30.0
    run = Run(leave_one_site_out(cohort, 0, 0)[0], 3)
    settings = {"lambda_re": weight, "K": K, "penalties": 1, "least_penalty": 0.2, "block_length": 4}
    (fitted,) = make_method("brio-plus", settings).fit(graphs, [run])
    scans = run.fold.source
    logs, change = _find_changes(graphs, scans, K, 4)
    _, size, basis = np.linalg.svd(logs, full_matrices=False)
    basis = basis[size > 1e-9 * size[0]]  # of all sums of log-connectomes
    x = logs - logs.mean(0)
    scale = np.square(x).sum(1).mean()
    penalty, rows = 0.2 * scale, change.reshape(len(scans) * K, -1) * np.sqrt(weight / scale)
    y = 2.0 * cohort.labels[scans] - 1.0
    for e in np.unique(cohort.sites[scans]):
        here = cohort.sites[scans] == e
        x[here] -= x[here].mean(0)
        y[here] -= y[here].mean()
    features = np.concatenate([x, np.sqrt(penalty) * rows]) @ basis.T
    ridge = KernelRidge(alpha=penalty).fit(features, np.concatenate([y, np.zeros(len(rows))]))
    expected = features.T @ ridge.dual_coef_ @ basis
    found = fitted.parameters["coefficients"].numpy()
    np.testing.assert_allclose(found / np.linalg.norm(found), expected / np.linalg.norm(expected), atol=1e-6)
    (without,) = make_method("log-ridge", {"penalties": 1, "least_penalty": 0.2}).fit(graphs, [run])
    other = without.parameters["coefficients"].numpy()
    assert np.abs(found / np.linalg.norm(found) - other / np.linalg.norm(other)).max() > 1e-2


def test_where_unstable_evidence_misleads_it_wins_by_its_penalty_and_survives_re_estimation():
    misleading = {"unstable": 3.0, "reversed_sites": 1, "stable": 0.25, "spurious": 0.0, "dead_share": 0.0}
    graphs, runs = _simulate(n_sites=6, per_class=18, frames=300, **misleading)
    run = next(run for run in runs if run.fold.name == max(graphs.cohort.sites))
    blocks = clip_block_length(7, graphs.n_frames[run.fold.test], BlockRule())
    request = ReestimateRequest(run.fold.test, blocks, 9, 0, 3)  # drawn, while the penalty is in closed form
    ((_, A),) = graphs.iterate_reestimates(request)
    x = read_edges(log_connectome(graphs.full[run.fold.test], 0.5)).numpy()
    change = read_edges(log_connectome(A, 0.5)).numpy() - x[:, None]
    score, moved = {}, {}
    for name in ("ridge", "log-ridge", "brio-plus"):  # the second is the last without its penalty
        (fitted,) = make_method(name).fit(graphs, [run])
        score[name] = auc(graphs.cohort.labels[run.fold.test], fitted.test_logit)
        w = fitted.parameters["coefficients"].numpy()
        moved[name] = np.square(change @ w).mean() / (x @ w).var()
    assert score["brio-plus"] > max(score["ridge"], score["log-ridge"]) + 0.05
    assert moved["brio-plus"] < 0.8 * moved["log-ridge"]


def test_few_source_sites_never_turn_the_order_round():
    """Offsets between the sites of two inner folds have the wrong sign; the calibration must not follow them."""
    assert _auc("brio-plus", *_simulate(n_sites=5, per_class=8, frames=100)) > 0.6


def test_nothing_is_drawn_and_a_run_beside_others_is_the_run_alone(small):
    graphs, run = small
    other = next(f for f in leave_one_site_out(graphs.cohort, 0, 0) if f.name == "site01")
    method = make_method("brio-plus")
    (alone,) = method.fit(graphs, [run])
    together = method.fit(graphs, [Run(other, 5), run, Run(other, 0), Run(run.fold, 5)])
    np.testing.assert_allclose(together[1].test_logit, alone.test_logit, atol=1e-8)
    np.testing.assert_array_equal(together[3].test_logit, together[1].test_logit)
    np.testing.assert_array_equal(together[2].test_logit, together[0].test_logit)


def test_labels_have_no_part_in_changes_and_many_are_fitted_at_once(small):
    graphs, run = small
    cohort = graphs.cohort
    (turned,) = permute_labels(cohort, 1).T
    method = make_method("brio-plus", {"lambda_re": 2.0})
    (margins,) = method.fit_labels(graphs, [run], np.stack([cohort.labels, turned], 1))
    for labels, found in ((cohort.labels, margins[:, 0]), (turned, margins[:, 1])):
        other = Connectomes(relabel_cohort(cohort, labels), dtype=torch.float64)
        (fitted,) = method.fit(other, [run])
        slope, level = np.polyfit(found, fitted.test_logit, 1)  # which are calibrated
        np.testing.assert_allclose(slope * found + level, fitted.test_logit, atol=1e-8)
