"""Factors of frozen BRIO runs: retention, rankings, ROI profiles, and a network planted to be unstable."""

import numpy as np
import pytest
import torch
from diagnostic_cohorts import collect_outputs, small, uneven

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.diagnostics import (
    RANKINGS,
    FrozenRuns,
    compute_contributions,
    estimate_source_block_length,
    gather_factor_evidence,
    rank_factors,
    retained_margin,
    roi_profile,
)
from brio.errors import BrioError
from brio.methods.brio import Brio
from brio.training import Run
from commands import refuse


def test_contributions_add_up_to_the_margins_of_the_run(graphs, fitted, evidence):
    method, fitted_runs = fitted
    outputs = collect_outputs(method, fitted_runs, graphs, [4.0] * 4, 5)
    for fitted, found, (full, reestimated) in zip(fitted_runs, evidence, outputs, strict=True):
        b, J = float(fitted.parameters["b"]), found.a.shape[1]
        np.testing.assert_allclose(found.a.sum(-1).numpy() / J**0.5 + b, full["logit"], atol=1e-12)
        np.testing.assert_allclose(found.a_reestimated.sum(-1).numpy() / J**0.5 + b, reestimated["logit"], atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_all_factors_retained_are_the_model_bit_for_bit(dtype, cohort, fitted):
    method, fitted_runs = fitted
    inputs = method.gather_inputs(Connectomes(cohort, dtype=dtype))
    for fitted in fitted_runs:
        scans = inputs.take(torch.from_numpy(fitted.run.fold.test))
        a = compute_contributions(method, fitted, scans)
        margin = method.predict(fitted, scans).margin
        for order in ([0, 1, 2], [2, 0, 1]):
            assert np.array_equal(retained_margin(a, fitted, order), margin)
        b = float(fitted.parameters["b"])
        np.testing.assert_allclose(retained_margin(a, fitted, []), b, atol=1e-8)
        only = retained_margin(a.double(), fitted, [1])
        np.testing.assert_allclose(only, a[:, 1].double().numpy() / 3**0.5 + b, atol=1e-6)
        assert np.abs(only - margin).max() > 1e-4


def by_loops(graphs, run, found, w, s):
    """pi_task and q_re by sums over subjects."""
    site, label = graphs.cohort.sites[run.fold.source], graphs.cohort.labels[run.fold.source]
    a, again = found.a.numpy(), found.a_reestimated.numpy()
    names = sorted(set(site))
    mu, V, D = (np.zeros((len(names), 2, a.shape[1])) for _ in range(3))
    for e, name in enumerate(names):
        for c in (0, 1):
            cell = (site == name) & (label == c)
            mu[e, c], V[e, c] = a[cell].mean(0), a[cell].var(0)
            D[e, c] = ((again[cell] - a[cell][:, None]) ** 2).mean((0, 1))
    Delta = mu[:, 1] - mu[:, 0]
    beta = (w**2).sum(1) / ((w**2).sum() + s.eps_w)
    R = beta * Delta.mean(0) ** 2 / (V.mean(0).sum(0) + s.eps_s)
    T = V + Delta[:, None] ** 2 / 4
    return R / R.sum(), (T + s.eps_q) / (T + D + s.eps_q)


def test_qualifications_are_those_of_the_frozen_model(graphs, fitted, evidence):
    method, fitted_runs = fitted
    for fitted, found in zip(fitted_runs, evidence, strict=True):
        pi, q = by_loops(graphs, fitted.run, found, fitted.parameters["w"].numpy(), method.settings)
        np.testing.assert_allclose(found.qualification.pi_task.numpy(), pi, atol=1e-10)
        np.testing.assert_allclose(found.qualification.q_re.numpy(), q, atol=1e-10)
        first, second = np.triu_indices(len(q), 1)
        alpha = pi * np.sqrt(q[first] * q[second])
        np.testing.assert_allclose(found.qualification.g.numpy(), alpha.sum(-1), atol=1e-10)
        np.testing.assert_allclose(
            found.qualification.alpha_bar.numpy(), alpha / alpha.sum(-1, keepdims=True), atol=1e-10
        )
        assert found.sites.tolist() == sorted(set(graphs.cohort.sites[fitted.run.fold.source]))
        orders = {by: rank_factors(found, by) for by in RANKINGS}
        assert orders["qualification"].tolist() == np.argsort(-alpha.mean((0, 1))).tolist()
        assert orders["relevance"].tolist() == np.argsort(-pi).tolist()
        pairs = np.sqrt(q[first] * q[second])
        assert orders["support"].tolist() == np.argsort(-pairs.mean((0, 1))).tolist()


def test_variants_are_qualified_as_the_full_method_does(graphs, runs):
    method = small("brio-wo-qg")
    (fitted,) = method.fit(graphs, runs[:1])
    (found,) = gather_factor_evidence(FrozenRuns(method, [fitted], graphs, [4.0], 3))
    assert found.settings.variant == "w/o QG"
    assert (found.qualification.g < 1).all()
    assert not torch.allclose(found.qualification.alpha_bar, torch.full((3, 2, 3), 1 / 3, dtype=torch.float64))


def test_random_rankings_come_from_their_seed(evidence):
    orders = [tuple(rank_factors(evidence[0], "random", seed)) for seed in range(40)]
    assert orders == [tuple(rank_factors(evidence[1], "random", seed)) for seed in range(40)]
    assert set(orders) == {(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)}
    refuse("'luck'", rank_factors, evidence[0], "luck")


def test_roi_profiles_are_distributions(evidence):
    for found in evidence:
        J, P = found.Pi_bar.shape
        alpha_bar = found.qualification.alpha_bar
        alpha = alpha_bar.mean((0, 1))
        assert float(alpha.sum()) == pytest.approx(1, abs=1e-12)
        profile = roi_profile(alpha_bar, found.Pi_bar)
        assert float(profile.sum()) == pytest.approx(1, abs=1e-12)
        assert (profile > 0).all()
        expected = [J * sum(float(alpha[j] * found.Pi_bar[j, u]) for j in range(J)) for u in range(P)]
        np.testing.assert_allclose(profile.numpy(), expected, rtol=0.05)  # rows are balanced by 20 iterations
        uniform = roi_profile(torch.full_like(alpha_bar, 1 / J), found.Pi_bar)
        np.testing.assert_allclose(uniform.numpy(), np.full(P, 1 / P), atol=1e-12)


class OneFactorANetwork(Brio):
    """BRIO whose factors are the four networks of the simulator, from the first epoch on."""

    def begin_stage(self, stack, stage):
        super().begin_stage(stack, stage)
        P, J = stack.connectomes.n_rois, self.settings.J
        blocks = torch.eye(J).repeat_interleave(P // J, 1) / P
        stack.state.inference["Pi_bar"] = blocks.to(stack.connectomes.full).expand(len(stack), -1, -1).clone()


def test_a_network_planted_to_be_unstable_has_the_lower_support_though_it_is_the_more_relevant():
    planted = Simulation(
        n_sites=6, per_class=10, n_rois=16, frames=100, stable=0.3, unstable=3.0, spurious=0, site_shift=0.1, seed=1
    )
    graphs = Connectomes(simulate(planted))
    method = OneFactorANetwork(small("brio", J=4, epochs=16, T_w=4, d_h=16).settings)
    run = Run(uneven(graphs.cohort)[1].fold, 0)
    (fitted,) = method.fit(graphs, [run])
    frozen = FrozenRuns(method, [fitted], graphs, [estimate_source_block_length(graphs, run)])
    (found,) = gather_factor_evidence(frozen)
    stable, unstable = 0, 1  # factors in the order of the networks
    assert planted.network("unstable").tolist() == torch.nonzero(found.Pi_bar[unstable]).flatten().tolist()
    of_patients = found.qualification.q_re.mean(0)[1]  # whose burst comes and goes
    assert of_patients[unstable] < of_patients[stable] - 0.15
    by_relevance, by_support = (rank_factors(found, by).tolist() for by in ("relevance", "support"))
    assert by_relevance[0] == unstable
    assert by_support.index(stable) < by_support.index(unstable)


def test_methods_without_factors_are_refused(graphs, runs):
    ridge = small("ridge")
    with pytest.raises(BrioError, match="'ridge' has no factors"):
        gather_factor_evidence(FrozenRuns(ridge, ridge.fit(graphs, runs[:1]), graphs, [4.0]))
