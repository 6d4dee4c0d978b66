"""BRIO plus: solver and penalties against brute force, factors, and two regimes with known truth."""

import dataclasses

import numpy as np
import pytest
import torch

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.estimator import BrioClassifier
from brio.methods import make_method
from brio.methods.plus import BrioPlusSettings
from brio.methods.plus.factors import FactorSpace, assign_rois, edge_shares
from brio.methods.plus.log_edges import ReestimatedLogEdges, extract_log_edges, find_live_edges
from brio.methods.plus.model import FactorModel
from brio.methods.plus.penalties import Functionals, KernelWeights, penalise_kernels
from brio.methods.plus.solver import build_alignment_functionals, predict_inner_folds, solve_kernel_ridge
from brio.protocol import auc, leave_one_site_out
from brio.training import Run

LINEAR = {"rho": 0.0, "lambda_re": 0.0, "lambda_env": 0.0}


def close(a, b, tolerance=1e-9):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.fixture
def problem():
    """Scans of four sites, a kernel of more features than scans, labels."""
    torch.manual_seed(0)
    x = torch.randn(30, 50, dtype=torch.float64)
    site = torch.arange(30) % 4
    sites = torch.nn.functional.one_hot(site).double()
    return x, x @ x.T / 50, torch.randn(30, dtype=torch.float64).sign(), sites


def test_the_solution_minimises_the_penalised_squares_with_an_intercept_for_each_site(problem):
    x, K, y, sites = problem
    fit = solve_kernel_ridge(K, y, sites, 0.7)
    theta = torch.zeros(50, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    primal = x.T @ fit.alpha / 50**0.5
    with torch.no_grad():
        theta.copy_(primal)
        b.copy_(fit.intercept)
    loss = (y - x @ theta / 50**0.5 - sites @ b).square().sum() + 0.7 * theta.square().sum()
    loss.backward()
    assert max(theta.grad.abs().max(), b.grad.abs().max()) < 1e-9


def test_an_inner_fold_is_exactly_a_fit_without_its_site(problem):
    _, K, y, sites = problem
    found = predict_inner_folds(solve_kernel_ridge(K, y, sites, 0.3), y, sites)
    for e in range(4):
        out = sites[:, e] > 0
        inside = ~out
        fit = solve_kernel_ridge(
            K[inside][:, inside], y[inside], sites[inside][:, [k for k in range(4) if k != e]], 0.3
        )
        close(found[out], K[out][:, inside] @ fit.alpha)


def test_an_inner_fold_keeps_a_common_intercept(problem):
    _, K, y, sites = problem
    one = torch.ones(30, 1, dtype=torch.float64)
    found = predict_inner_folds(solve_kernel_ridge(K, y, one, 0.3), y, sites)
    for e in range(4):
        out = sites[:, e] > 0
        inside = ~out
        fit = solve_kernel_ridge(K[inside][:, inside], y[inside], one[inside], 0.3)
        close(found[out], K[out][:, inside] @ fit.alpha + fit.intercept)


def test_alignment_adds_up_to_the_weighted_differences_of_site_means():
    torch.manual_seed(1)
    E, n = 3, 24
    site, label = torch.arange(n) % E, (torch.arange(n) // E) % 2
    cell_average = torch.stack([torch.stack([((site == e) & (label == c)).double() for c in (0, 1)]) for e in range(E)])
    cell_average = cell_average / cell_average.sum(-1, keepdim=True)
    alpha_bar, g, a = torch.rand(3, 2).double(), torch.rand(3, 2).double(), torch.randn(n).double()
    mean = cell_average @ a
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = np.mean(
        [
            float(g[p, c] * alpha_bar[p, c] * (mean[i, c] - mean[k, c]) ** 2)
            for p, (i, k) in enumerate(pairs)
            for c in (0, 1)
        ]
    )
    assert float((build_alignment_functionals(alpha_bar, g, cell_average) @ a).square().sum()) == pytest.approx(
        expected
    )


def _pieces(n=20, n_rois=8, J=2, K=1):
    torch.manual_seed(2)
    x = torch.randn(n, n_rois * (n_rois - 1) // 2, dtype=torch.float64)
    Pi = assign_rois(torch.randn(n_rois, n_rois).double(), J, 0.5, 200, 0)
    factors, linear, r = FactorSpace.learn(x, Pi, 5)
    moved = x + 0.3 * torch.randn_like(x)
    points = torch.cat([factors.project(moved), r], 1)
    return x, moved, factors, linear, r, points


@pytest.mark.parametrize(("linear_weight", "own_weight"), [(1.0, 0.0), (0.0, 0.6), (1.0, 0.6)])
def test_a_penalised_kernel_is_the_inverse_of_the_penalised_norm(linear_weight, own_weight):
    """The kernel over scans and re-estimates together, penalised by brute force: (K^-1 + T'T)^-1."""
    x, moved, factors, linear, r, points = _pieces()
    n, everything = len(x), torch.cat([moved, x])
    T = torch.randn(3, 2 * n, dtype=torch.float64) * 0.4
    rows = Functionals(T @ everything, T)
    own = factors.kernel(r, r, 0.8)
    K = linear_weight * linear + own_weight * own
    found = penalise_kernels(K, [rows, rows], x, factors, points, KernelWeights(linear_weight, own_weight, 0.8))
    for j in range(2):
        share = factors.shares[j]
        whole = linear_weight * (everything * share) @ everything.T / factors.scale
        whole = whole + own_weight * factors.kernel(points, points, 0.8)[j]
        stable = whole + 1e-8 * torch.eye(2 * n, dtype=torch.float64)
        expected = torch.linalg.inv(torch.linalg.inv(stable) + T.T @ T)[n:, n:]
        close(found.K[j], expected, 1e-5)


def test_shares_of_an_edge_sum_to_one_and_the_linear_path_splits_exactly():
    x, _, factors, linear, _, _ = _pieces(J=2)
    close(factors.shares.sum(0), torch.ones(28, dtype=torch.float64), 1e-6)
    close(linear.sum(0), x @ x.T / x.square().sum(1).mean(), 1e-6)


def test_the_assignment_is_balanced_and_finds_planted_networks():
    mean = torch.kron(torch.eye(2), torch.ones(4, 4)).double()
    Pi = assign_rois(mean, 2, 0.1, 200, 3)
    close(Pi.sum(0), torch.full((8,), 1 / 8, dtype=torch.float64))
    close(Pi.sum(1), torch.full((2,), 1 / 2, dtype=torch.float64), 1e-6)
    group = Pi.argmax(0)
    assert len(set(group[:4].tolist())) == len(set(group[4:].tolist())) == 1
    assert group[0] != group[4]
    assert edge_shares(Pi).max() > 0.99


def test_coordinates_of_source_scans_are_those_they_were_learned_with():
    x, _, factors, _, r, _ = _pieces()
    close(factors.project(x), r)


def test_a_factor_that_few_scans_span_has_no_directions_of_rounding():
    x = torch.zeros(4, 28, dtype=torch.float64)
    x[0, 0], x[1, 1] = 1.0, -1.0
    factors, _, r = FactorSpace.learn(x, assign_rois(torch.randn(8, 8).double(), 2, 0.5, 60, 0), 4)
    assert torch.isfinite(factors.axes).all()
    assert factors.axes.abs().max() < 1e3
    close(factors.project(x), r)


def _regime(seed, **kwargs):
    cohort = simulate(Simulation(n_sites=6, per_class=18, frames=400, stable=0.25, spurious=0.0, seed=seed, **kwargs))
    graphs = Connectomes(cohort)
    runs = [Run(fold, 0) for fold in leave_one_site_out(cohort, 0)]
    return graphs, runs


def _auc(method, graphs, runs):
    return np.mean([auc(graphs.cohort.labels[o.run.fold.test], o.test_logit) for o in method.fit(graphs, runs)])


def test_where_stable_linear_signal_is_all_there_is_it_does_not_lose_to_ridge():
    graphs, runs = _regime(0, unstable=0.0)
    assert _auc(make_method("brio-plus"), graphs, runs) > _auc(make_method("ridge"), graphs, runs) - 0.02


def test_where_unstable_evidence_misleads_it_wins_and_its_qualification_says_why():
    gains = []
    for seed in range(3):
        graphs, runs = _regime(seed, unstable=3.0, reversed_sites=1)
        last = [run for run in runs if run.fold.name == max(graphs.cohort.sites)]
        plus = make_method("brio-plus")
        (fitted,) = plus.fit(graphs, last)
        found = auc(graphs.cohort.labels[last[0].fold.test], fitted.test_logit)
        gains.append(found - _auc(make_method("ridge"), graphs, last))
        truth = graphs.cohort.provenance["truth"]
        Pi = fitted.state.inference["Pi_bar"]
        of = {name: int(Pi[:, truth[name]].sum(1).argmax()) for name in ("stable", "unstable")}
        assert of["stable"] != of["unstable"]
        support = fitted.details["support"]
        relevance = fitted.details["relevance"]
        assert relevance[of["unstable"]] > 0.1  # it looks like evidence, all source sites agree on it
        assert support[of["stable"]] > support[of["unstable"]] + 0.1
    assert np.mean(gains) > 0.05


@pytest.mark.parametrize("own", [True, False])
def test_the_mean_probability_is_the_share_of_patients(own):
    cohort = simulate(dataclasses.replace(Simulation(), n_sites=6, per_class=12, n_rois=12, frames=120, stable=0.5))
    few = np.flatnonzero((cohort.labels == 0) | (np.arange(len(cohort)) % 3 == 0))  # a third of the patients
    cohort = cohort.select(few)
    graphs = Connectomes(cohort)
    run = Run(leave_one_site_out(cohort, 0, 0)[0], 0)
    method = make_method("brio-plus", {"site_intercepts": own, "d_t": 4})
    (fitted,) = method.fit(graphs, [run])
    probability = 1 / (1 + np.exp(-method.predict_margins(fitted, graphs, run.fold.source)))
    share = cohort.labels[run.fold.source].mean()
    assert share < 0.3
    assert probability.mean() == pytest.approx(share, abs=0.1)


def test_weights_of_another_version_are_refused_in_words():
    graphs, runs = _regime(0)
    method = make_method("brio-plus", LINEAR)
    (fitted,) = method.fit(graphs, runs[:1])
    del fitted.parameters["factors.Pi"]
    with pytest.raises(BrioError, match=r"another version of 'brio-plus' \(no factors.Pi\)"):
        method.predict_margins(fitted, graphs, runs[0].fold.test)


def test_contributions_add_up_to_the_logit_and_survive_being_kept():
    graphs, runs = _regime(0, unstable=1.0)
    method = make_method("brio-plus", {"refreshes": 1})
    (fitted,) = method.fit(graphs, runs[:1])
    test = torch.from_numpy(runs[0].fold.test)
    model = FactorModel.from_tensors(fitted.parameters, graphs.full)
    x = model.centre_edges(extract_log_edges(graphs.full[test], 0.5), find_live_edges(graphs.alive[test]))
    a = model.contributions(x)
    assert a.shape == (len(test), 4)
    np.testing.assert_allclose(model.logit(a).numpy(), fitted.test_logit, atol=1e-4)
    assert 0 < fitted.details["share_of_factors"] < 1


def test_variants_leave_out_what_their_names_say():
    graphs, runs = _regime(1, unstable=1.0)
    (linear,) = make_method("brio-plus", LINEAR).fit(graphs, runs[:1])
    assert linear.details["share_of_factors"] == 0
    assert linear.block_length is None  # no re-estimate was looked at
    (factors,) = make_method("brio-plus-factors").fit(graphs, runs[:1])
    assert factors.details["share_of_factors"] == pytest.approx(1.0)
    assert factors.parameters["theta"].abs().max() == 0


def test_the_penalty_on_changes_makes_predictions_survive_re_estimation():
    graphs, runs = _regime(2, unstable=3.0)
    moved = {}
    for weight in (0.0, 1.0):
        method = make_method("brio-plus", {"lambda_re": weight, "lambda_env": 0.0})
        (fitted,) = method.fit(graphs, runs[:1])
        scans = runs[0].fold.test
        model = FactorModel.from_tensors(fitted.parameters, graphs.full)
        live = find_live_edges(graphs.alive[torch.from_numpy(scans)])
        full = model.contributions(
            model.centre_edges(extract_log_edges(graphs.full[torch.from_numpy(scans)], 0.5), live)
        ).sum(-1)
        (again,) = ReestimatedLogEdges(graphs, scans, 7, BrioPlusSettings().block_rule, 9, 3, 0.5)
        order = np.argsort(np.argsort(again[0]))
        other = [model.contributions(model.centre_edges(again[1][order, k], live)).sum(-1) for k in range(3)]
        moved[weight] = float((torch.stack(other) - full).square().mean() / full.var())
    assert moved[1.0] < 0.8 * moved[0.0]


@pytest.mark.parametrize(
    ("setting", "message"),
    [({"shrinkage": 1.0}, "above 0 and below 1"), ({"linear": False, "rho": 0.0}, "where there is no linear path")],
)
def test_settings_that_make_no_model_are_refused(setting, message):
    with pytest.raises(BrioError, match=message):
        make_method("brio-plus", setting)


def test_few_source_sites_never_turn_the_order_round():
    """Offsets between the sites of two inner folds have the wrong sign; the calibration must not follow them."""
    slopes, scores = [], []
    for seed in range(3):
        cohort = simulate(Simulation(n_sites=5, per_class=8, frames=100, seed=seed))
        graphs = Connectomes(cohort)
        for fitted in make_method("brio-plus").fit(graphs, [Run(f, 0) for f in leave_one_site_out(cohort, 0)]):
            slopes.append(float(fitted.parameters["calibration"][0]))
            scores.append(auc(cohort.labels[fitted.run.fold.test], fitted.test_logit))
    assert min(slopes) > 0
    assert np.mean(scores) > 0.6


def test_alignment_does_not_flatter_the_inner_folds():
    """Alignment uses the labels of all source sites, so inner folds are scored without it."""
    graphs, runs = _regime(3, unstable=0.0)
    details = [make_method("brio-plus", {"lambda_env": w}).fit(graphs, runs[:1])[0].details for w in (0.0, 100.0)]
    assert details[0]["left_out_auc"] == pytest.approx(details[1]["left_out_auc"])
    assert details[0]["penalty"] == details[1]["penalty"]


def test_what_cannot_be_fitted_is_refused():
    graphs, runs = _regime(0, unstable=0.0)
    with pytest.raises(BrioError, match="there are 24 ROIs"):
        make_method("brio-plus", {"J": 30}).fit(graphs, runs[:1])
    fold = runs[0].fold
    one = np.flatnonzero(graphs.cohort.sites == graphs.cohort.sites[fold.source[0]])
    with pytest.raises(BrioError, match="at least two source sites"):
        make_method("brio-plus").fit(graphs, [Run(dataclasses.replace(fold, source=one), 0)])


def test_the_estimator_needs_no_validation_sites_and_splits_the_margin():
    cohort = simulate(Simulation(n_sites=4, per_class=8, frames=80))
    model = BrioClassifier("brio-plus", validation_sites=0, device="cpu").fit(cohort)
    assert model.validation_sites_ == ()
    a = model.contributions(cohort)
    np.testing.assert_allclose(a.sum(1) / 2 + model.intercept_, model.decision_function(cohort), atol=1e-6)


def test_alignment_brings_the_sites_of_a_class_together():
    graphs, runs = _regime(4, unstable=0.0, site_shift=0.8)
    source = torch.from_numpy(runs[0].fold.source)
    site, label = graphs.cohort.sites[runs[0].fold.source], graphs.cohort.labels[runs[0].fold.source]
    apart = {}
    for weight in (0.0, 10.0):
        (fitted,) = make_method("brio-plus", {"lambda_env": weight, "lambda_re": 0.0}).fit(graphs, runs[:1])
        model = FactorModel.from_tensors(fitted.parameters, graphs.full)
        a = model.contributions(
            model.centre_edges(extract_log_edges(graphs.full[source], 0.5), find_live_edges(graphs.alive[source]))
        ).sum(-1)
        means = np.array([[a.numpy()[(site == e) & (label == c)].mean() for e in np.unique(site)] for c in (0, 1)])
        apart[weight] = means.std(1).mean() / float(a.std())
    assert apart[10.0] < 0.7 * apart[0.0]
