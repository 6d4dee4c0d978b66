"""BRIO plus: its penalty against brute force, what it shares with log-ridge, and regimes with known truth."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import BlockRule, Connectomes, ReestimateRequest, clip_block_length, log_connectome, read_edges
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


def _read_changes(graphs, scans, length, seed, K):
    """Edges of log-connectomes, and how much they change under re-estimation; every ROI has signal. [n, (K,) edges]."""
    request = ReestimateRequest(scans, clip_block_length(length, graphs.n_frames[scans], BlockRule()), seed, 0, K)
    full = read_edges(log_connectome(graphs.full[scans], 0.5))
    again = torch.empty(len(scans), K, full.shape[1], dtype=full.dtype)
    for positions, A in graphs.address_by_content().iterate_reestimates(request):
        again[positions] = read_edges(log_connectome(A.flatten(0, 1), 0.5)).unflatten(0, (-1, K))
    return full.numpy(), (again - full[:, None]).numpy()


@pytest.mark.parametrize("K", [1, 3])
def test_the_penalty_is_more_rows_of_a_plain_ridge_regression(K):
    """Changes are further observations whose label is 0: |y - x w|^2 + penalty (|w|^2 + weight |changes w|^2)."""
    cohort = simulate(Simulation(n_sites=4, per_class=5, n_rois=8, frames=60, stable=0.5, dead_share=0.0))
    graphs, weight = Connectomes(cohort, dtype=torch.float64), 0.7
    run = Run(leave_one_site_out(cohort, 0, 0)[0], 3)
    settings = {"lambda_re": weight, "K": K, "penalties": 1, "least_penalty": 0.2, "block_length": 4.0}
    (fitted,) = make_method("brio-plus", settings).fit(graphs, [run])
    scans = run.fold.source
    x, change = _read_changes(graphs, scans, 4, 3, K)
    x = x - x.mean(0)
    scale = np.square(x).sum(1).mean()
    penalty, rows = 0.2 * scale, change.reshape(len(scans) * K, -1) * np.sqrt(weight / (K * scale))
    y = 2.0 * cohort.labels[scans] - 1.0
    for e in np.unique(cohort.sites[scans]):
        here = cohort.sites[scans] == e
        x[here] -= x[here].mean(0)
        y[here] -= y[here].mean()
    ridge = KernelRidge(alpha=penalty).fit(
        np.concatenate([x, np.sqrt(penalty) * rows]), np.concatenate([y, np.zeros(len(rows))])
    )
    expected = np.concatenate([x, np.sqrt(penalty) * rows]).T @ ridge.dual_coef_
    found = fitted.parameters["coefficients"].numpy()
    np.testing.assert_allclose(found / np.linalg.norm(found), expected / np.linalg.norm(expected), atol=1e-5)


def test_where_unstable_evidence_misleads_it_wins_by_its_penalty_and_survives_re_estimation():
    misleading = {"unstable": 3.0, "reversed_sites": 1, "stable": 0.25, "spurious": 0.0, "dead_share": 0.0}
    graphs, runs = _simulate(n_sites=6, per_class=18, frames=300, **misleading)
    run = next(run for run in runs if run.fold.name == max(graphs.cohort.sites))
    x, change = _read_changes(graphs, run.fold.test, 7, 9, 3)
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


def test_runs_share_re_estimates(small):
    graphs, run = small
    other = next(f for f in leave_one_site_out(graphs.cohort, 0, 0) if f.name == "site01")
    method = make_method("brio-plus")
    (alone,) = method.fit(graphs, [run])
    together = method.fit(graphs, [Run(other, 5), run, Run(other, 0), Run(run.fold, 5)])
    np.testing.assert_allclose(together[1].test_logit, alone.test_logit, atol=1e-8)
    assert [fitted.run.seed for fitted in together] == [5, 0, 0, 5]
    assert alone.block_length == together[1].block_length > 1
    assert not np.allclose(together[3].test_logit, alone.test_logit, atol=1e-3)


def test_labels_have_no_part_in_re_estimates_and_many_are_fitted_at_once(small):
    graphs, run = small
    cohort = graphs.cohort
    (turned,) = permute_labels(cohort, 1).T
    method = make_method("brio-plus", {"lambda_re": 2.0})
    margins, own = method.fit_labels(graphs, [run, Run(run.fold, 4)], np.stack([cohort.labels, turned], 1))
    for labels, seed, found in ((cohort.labels, 4, own[:, 0]), (turned, 0, margins[:, 1])):
        other = Connectomes(relabel_cohort(cohort, labels), dtype=torch.float64)
        (fitted,) = method.fit(other, [Run(run.fold, seed)])
        slope, level = np.polyfit(found, fitted.test_logit, 1)  # which are calibrated
        np.testing.assert_allclose(slope * found + level, fitted.test_logit, atol=1e-8)
