"""BRIO plus: kernels and penalty against brute force, the choice of a view, and regimes with known truth."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes, find_live_edges
from brio.errors import BrioError
from brio.estimator import BrioClassifier
from brio.jobs import JobSpec
from brio.jobs.spec import make_methods
from brio.methods import make_method
from brio.methods.plus import BrioPlusSettings
from brio.methods.plus.factors import FactorSpace, _largest_eigenvectors, assign_rois, edge_shares
from brio.methods.plus.model import FactorModel
from brio.methods.plus.penalties import Changes, penalise_kernels
from brio.methods.plus.run_fit import RunFit
from brio.methods.plus.views import VIEWS, ReestimatedEdges, read_view
from brio.protocol import auc, leave_one_site_out
from brio.training import Run, Scans

LOG = {"view": "log-0.5"}


def close(a, b, tolerance=1e-9):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def _pieces(n=20, n_rois=8, J=2):
    torch.manual_seed(2)
    x = torch.randn(n, n_rois * (n_rois - 1) // 2, dtype=torch.float64)
    Pi = assign_rois(torch.randn(n_rois, n_rois).double(), J, 0.5, 200, 0)
    factors, linear, r = FactorSpace.learn(x, Pi, 5)
    moved = x + 0.3 * torch.randn_like(x)
    points = torch.cat([factors.project(moved), r], 1)
    return x, moved, factors, linear, r, points


@pytest.mark.parametrize("own_weight", [0.0, 0.6])
def test_a_penalised_kernel_is_the_inverse_of_the_penalised_norm(own_weight):
    """The kernel over scans and re-estimates together, penalised by brute force: (K^-1 + T'T)^-1."""
    x, moved, factors, linear, r, points = _pieces()
    n, everything = len(x), torch.cat([moved, x])
    T = torch.randn(3, 2 * n, dtype=torch.float64) * 0.4
    K = linear + own_weight * factors.kernel(r, r)
    found = penalise_kernels(K, Changes(T @ everything, T), x, factors, points, own_weight)
    for j in range(2):
        whole = (everything * factors.shares[j]) @ everything.T / factors.scale
        whole = whole + own_weight * factors.kernel(points, points)[j]
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


def _regime(seed, n_sites=6, **kwargs):
    cohort = simulate(
        Simulation(n_sites=n_sites, per_class=18, frames=400, stable=0.25, spurious=0.0, seed=seed, **kwargs)
    )
    graphs = Connectomes(cohort)
    runs = [Run(fold, 0) for fold in leave_one_site_out(cohort, 0)]
    return graphs, runs


def _auc(method, graphs, runs):
    return np.mean([auc(graphs.cohort.labels[o.run.fold.test], o.test_logit) for o in method.fit(graphs, runs)])


@pytest.fixture(scope="module")
def small():
    """A small cohort in full precision, with the fold of its last site."""
    cohort = simulate(Simulation(n_sites=5, per_class=8, n_rois=12, frames=80, stable=0.5, dead_share=0.2))
    fold = next(f for f in leave_one_site_out(cohort, 0, 0) if f.name == "site05")
    return Connectomes(cohort, dtype=torch.float64), Run(fold, 0)


def test_the_linear_path_without_the_penalty_is_log_ridge(small):
    graphs, run = small
    (plus,) = make_method("brio-plus", {"view": "log-0.5", "rho": 0.0, "lambda_re": 0.0}).fit(graphs, [run])
    (log_ridge,) = make_method("log-ridge").fit(graphs, [run])
    np.testing.assert_allclose(plus.test_logit, log_ridge.test_logit, atol=1e-8)


def test_factors_and_penalty_are_a_kernel_ridge_with_explicit_features(small):
    """Scans and their changes side by side: changes are further observations with label 0 of each factor."""
    graphs, run = small
    settings = BrioPlusSettings(view="fc", J=1, rho=0.0, K=1, sketch=10**6, lambda_re=0.7, penalties=1, block_length=4)
    views = {"fc": read_view(graphs.full, "fc")}
    fit = RunFit(settings, graphs, run, views, find_live_edges(graphs.alive))
    scans = run.fold.source
    reestimates = ReestimatedEdges(graphs, scans, 4, settings.block_rule, 0, 1, "fc")
    fitted = fit.fit(4.0, reestimates)
    changes = torch.cat([x[:, 0] - fit.x[rows] for rows, x in fit._iterate_reestimates(reestimates)])
    x = fit.x / fit.factors.scale.sqrt()
    d = 0.7**0.5 * changes / fit.factors.scale.sqrt()
    penalty = settings.grid[0]
    site = graphs.cohort.sites[scans]
    y = 2.0 * graphs.cohort.labels[scans] - 1
    centred = x.clone()
    target = torch.from_numpy(y).clone()
    for e in np.unique(site):
        here = torch.from_numpy(site == e)
        centred[here] -= centred[here].mean(0)
        target[here] -= target[here].mean()
    # |y - x theta|^2 + penalty (|theta|^2 + |d theta|^2): the changes are rows scaled by the root of the penalty
    rows = torch.cat([centred, penalty**0.5 * d])
    labels = torch.cat([target, torch.zeros(len(d), dtype=torch.float64)])
    ridge = KernelRidge(alpha=penalty, kernel="linear").fit(rows.numpy(), labels.numpy())
    theta = rows.numpy().T @ ridge.dual_coef_
    model = FactorModel.from_tensors(fitted.parameters, graphs.full)
    expected = theta / float(fit.factors.scale.sqrt())
    np.testing.assert_allclose(model.theta.sum(0).numpy(), expected, atol=1e-7)


def test_a_view_is_that_of_scipy_and_depends_on_its_own_scan_alone(small):
    from scipy.linalg import logm

    graphs, _ = small
    u, v = np.triu_indices(12, 1)
    scan = graphs.full[3].numpy()
    for name, s in VIEWS.items():
        found = read_view(graphs.full, name)
        expected = scan if s is None else logm((1 - s) * (np.tanh(scan) + np.eye(12)) + s * np.eye(12)).real
        np.testing.assert_allclose(found[3].numpy(), expected[u, v], atol=1e-9)
        torch.testing.assert_close(read_view(graphs.full[3:4], name)[0], found[3])


def _rotated(graphs, run, carrier):
    """The views of a small cohort in which only one view carries the label; the others are noise."""
    rng = np.random.default_rng(0)
    n, edges = len(graphs.cohort), 66
    views = {name: torch.from_numpy(rng.normal(size=(n, edges))) for name in VIEWS}
    views[carrier] = views[carrier] + 2.0 * torch.from_numpy(graphs.cohort.labels.astype(float))[:, None]
    return views


@pytest.mark.parametrize("carrier", list(VIEWS))
def test_a_fold_chooses_the_view_that_carries_the_signal(small, carrier):
    graphs, run = small
    fit = RunFit(BrioPlusSettings(), graphs, run, _rotated(graphs, run, carrier), find_live_edges(graphs.alive))
    assert fit.view == carrier
    assert max(fit.view_auc, key=fit.view_auc.get) == carrier


def test_the_choice_of_a_view_sees_no_label_of_a_test_or_validation_site(small):
    graphs, run = small
    views = _rotated(graphs, run, "fc")
    outside = np.setdiff1d(np.arange(len(graphs.cohort)), run.fold.source)
    live = find_live_edges(graphs.alive)
    before = RunFit(BrioPlusSettings(), graphs, run, views, live).view_auc
    for edges in views.values():
        edges[outside] = 1e3
    assert RunFit(BrioPlusSettings(), graphs, run, views, live).view_auc == before


def test_where_stable_linear_signal_is_all_there_is_it_does_not_lose_to_ridge():
    graphs, runs = _regime(0, n_sites=5, unstable=0.0)
    assert _auc(make_method("brio-plus"), graphs, runs) > _auc(make_method("ridge"), graphs, runs) - 0.02


def test_where_unstable_evidence_misleads_it_wins_by_its_penalty_and_support_says_why():
    gains, without = [], []
    for seed in range(2):
        graphs, runs = _regime(seed, unstable=3.0, reversed_sites=1)
        last = [run for run in runs if run.fold.name == max(graphs.cohort.sites)]
        (fitted,) = make_method("brio-plus", LOG).fit(graphs, last)
        found = auc(graphs.cohort.labels[last[0].fold.test], fitted.test_logit)
        ridge = _auc(make_method("ridge"), graphs, last)
        gains.append(found - ridge)
        without.append(_auc(make_method("brio-plus", LOG | {"lambda_re": 0.0}), graphs, last) - ridge)
        truth = graphs.cohort.provenance["truth"]
        Pi = fitted.state.inference["Pi_bar"]
        of = {name: int(Pi[:, truth[name]].sum(1).argmax()) for name in ("stable", "unstable")}
        assert of["stable"] != of["unstable"]
        support = fitted.details["support"]
        assert fitted.details["relevance"][of["unstable"]] > 0.1  # it looks like evidence, all source sites agree on it
        assert support[of["stable"]] > support[of["unstable"]] + 0.1
    assert np.mean(gains) > 0.05
    assert np.mean(without) < np.mean(gains) - 0.04


def test_the_mean_probability_is_the_share_of_patients():
    cohort = simulate(dataclasses.replace(Simulation(), n_sites=6, per_class=12, n_rois=12, frames=120, stable=0.5))
    few = np.flatnonzero((cohort.labels == 0) | (np.arange(len(cohort)) % 3 == 0))  # a third of the patients
    cohort = cohort.select(few)
    graphs = Connectomes(cohort)
    run = Run(leave_one_site_out(cohort, 0, 0)[0], 0)
    method = make_method("brio-plus", {"d_t": 4})
    (fitted,) = method.fit(graphs, [run])
    probability = 1 / (1 + np.exp(-method.predict_margins(fitted, graphs, run.fold.source)))
    share = cohort.labels[run.fold.source].mean()
    assert share < 0.3
    assert probability.mean() == pytest.approx(share, abs=0.1)


def test_weights_of_another_version_are_refused_in_words(small):
    graphs, run = small
    method = make_method("brio-plus", {"view": "fc"})
    (fitted,) = method.fit(graphs, [run])
    del fitted.parameters["view"]
    with pytest.raises(BrioError, match=r"another version of 'brio-plus' \(no view\)"):
        method.predict_margins(fitted, graphs, run.fold.test)


def test_contributions_add_up_to_the_logit_and_survive_being_kept(small):
    graphs, run = small
    method = make_method("brio-plus")
    (fitted,) = method.fit(graphs, [run])
    test = torch.from_numpy(run.fold.test)
    scans = Scans.of(graphs.full[test], graphs.alive[test])
    a = method.compute_contributions(fitted, scans)
    assert a.shape == (len(test), 4)
    np.testing.assert_allclose(a.sum(1) / 2 + method.intercept(fitted), fitted.test_logit, atol=1e-4)
    assert 0 < fitted.details["share_of_factors"] < 1
    (linear,) = make_method("brio-plus", {"rho": 0.0}).fit(graphs, [run])
    assert linear.details["share_of_factors"] == 0


def test_the_penalty_on_changes_makes_predictions_survive_re_estimation():
    graphs, runs = _regime(2, unstable=3.0)
    moved = {}
    scans = runs[0].fold.test
    index = torch.from_numpy(scans)
    live = find_live_edges(graphs.alive[index])
    (again,) = ReestimatedEdges(graphs, scans, 7, BrioPlusSettings().block_rule, 9, 3, "log-0.5")
    order = np.argsort(np.argsort(again[0]))
    for weight in (0.0, 1.0):
        (fitted,) = make_method("brio-plus", {"lambda_re": weight, "view": "log-0.5"}).fit(graphs, runs[:1])
        model = FactorModel.from_tensors(fitted.parameters, graphs.full)
        full = model.contributions(model.read_scans(Scans.of(graphs.full[index], graphs.alive[index]))).sum(-1)
        other = [model.contributions(model.centre_edges(again[1][order, k], live)).sum(-1) for k in range(3)]
        moved[weight] = float((torch.stack(other) - full).square().mean() / full.var())
    assert moved[1.0] < 0.8 * moved[0.0]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"view": "log-0.3"}, "'log-0.3' is not one of chosen, fc, log-0.8"),
        ({"lambda_env": 0.1}, "'lambda_env' is not there any more: alignment of sites"),
        ({"shrinkage": 0.5}, "'shrinkage' is not there any more: the view replaced it"),
        ({"rho": -1.0}, "at least 0"),
    ],
)
def test_settings_that_make_no_model_are_refused(setting, message):
    with pytest.raises(BrioError, match=message):
        make_method("brio-plus", setting)
    with pytest.raises(BrioError, match=message):
        make_methods(["ridge", "brio-plus"], JobSpec("cohort", settings=setting).method_settings)


@pytest.mark.parametrize("name", ["brio-plus-factors", "brio-plus-wo-qg"])
def test_methods_that_were_removed_say_why(name):
    with pytest.raises(BrioError, match=f"'{name}' is not there any more: .* version 3"):
        make_method(name)


def test_few_source_sites_never_turn_the_order_round():
    """Offsets between the sites of two inner folds have the wrong sign; the calibration must not follow them."""
    slopes, scores = [], []
    for seed in range(2):
        cohort = simulate(Simulation(n_sites=5, per_class=8, frames=100, seed=seed))
        graphs = Connectomes(cohort)
        for fitted in make_method("brio-plus", LOG).fit(graphs, [Run(f, 0) for f in leave_one_site_out(cohort, 0)]):
            slopes.append(float(fitted.parameters["calibration"][0]))
            scores.append(auc(cohort.labels[fitted.run.fold.test], fitted.test_logit))
    assert min(slopes) > 0
    assert np.mean(scores) > 0.6


def test_what_cannot_be_fitted_is_refused(small):
    graphs, run = small
    with pytest.raises(BrioError, match="there are 12 ROIs"):
        make_method("brio-plus", {"J": 30}).fit(graphs, [run])
    controls = run.fold.source[graphs.cohort.labels[run.fold.source] == 0]
    with pytest.raises(BrioError, match="both classes at every source site"):
        make_method("brio-plus").fit(graphs, [Run(dataclasses.replace(run.fold, source=controls), 0)])


def test_one_source_site_is_enough(small):
    graphs, run = small
    one = np.flatnonzero(graphs.cohort.sites == graphs.cohort.sites[run.fold.source[0]])
    (fitted,) = make_method("brio-plus").fit(graphs, [Run(dataclasses.replace(run.fold, source=one), 0)])
    assert np.isfinite(fitted.test_logit).all()
    assert 0 <= fitted.details["inner_auc"] <= 1


def test_a_run_passes_over_re_estimates_of_other_runs(small, monkeypatch):
    """Runs of a stack share re-estimates, of which a part can belong to the test site of one of them."""
    graphs, run = small
    other = next(f for f in leave_one_site_out(graphs.cohort, 0, 0) if f.name == "site01")
    method = make_method("brio-plus")
    (alone,) = method.fit(graphs, [run])
    monkeypatch.setattr("brio.methods.plus.views._REESTIMATED_AT_ONCE", 4)
    together, _ = method.fit(graphs, [run, Run(other, 0)])
    np.testing.assert_allclose(together.test_logit, alone.test_logit, atol=1e-8)


@pytest.mark.parametrize("sketch", [40, 10**6])
def test_neither_names_nor_the_order_of_participants_matter(sketch):
    """Positions are the names of arrays, so the order would be another draw."""
    made = simulate(Simulation(n_sites=4, per_class=7, n_rois=12, frames=60))
    new = simulate(Simulation(n_sites=2, per_class=5, n_rois=12, frames=60, seed=9))
    options = {"settings": {"lambda_re": 2.0, "sketch": sketch}, "random_state": 0}

    def predict(order, names):
        scans = [made.scan(i) for i in order]
        cohort = Cohort.from_scans(scans, site=made.sites[order], label=made.labels[order], participant_id=names)
        return BrioClassifier("brio-plus", validation_sites=0, device="cpu", **options).fit(cohort).predict_proba(new)

    n = len(made)
    expected = predict(np.arange(n), made.ids)
    turned = np.random.default_rng(0).permutation(n)
    for order, names in ((turned, made.ids[turned]), (np.arange(n), [f"other{i}" for i in range(n)])):
        np.testing.assert_allclose(predict(order, names), expected, atol=1e-7)


def test_the_estimator_needs_no_validation_sites_and_splits_the_margin():
    cohort = simulate(Simulation(n_sites=4, per_class=8, frames=80))
    model = BrioClassifier("brio-plus", validation_sites=0, device="cpu").fit(cohort)
    assert model.validation_sites_ == ()
    a = model.contributions(cohort)
    np.testing.assert_allclose(a.sum(1) / 2 + model.intercept_, model.decision_function(cohort), atol=1e-6)


@pytest.mark.parametrize("rank", [300, 3, 0])
def test_largest_eigenvectors_are_those_of_a_full_decomposition(rank):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, rank)) * 0.97 ** np.arange(rank)
    gram = torch.from_numpy(x @ x.T)
    size, vectors = _largest_eigenvectors(gram, 32)
    expected = np.linalg.eigvalsh(gram.numpy())[-32:]
    np.testing.assert_allclose(size, expected, atol=1e-9)
    np.testing.assert_allclose(gram @ vectors, vectors * size, atol=1e-8)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(32), atol=1e-8)
