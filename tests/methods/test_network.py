"""Factors, contributions and logit, Eqs. (8)-(10), and the classification loss, Eq. (26)."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch

from brio.cohort import Cohort
from brio.methods.brio import BrioSettings
from brio.methods.brio.method import BrioNetwork, FactorMap
from brio.methods.layers import classification_loss
from brio.protocol import Fold
from brio.training import Batch, Run, RunState, Scans, StepContext
from brio.training.stack import SourceCells

P = 9
SMALL = BrioSettings(J=3, d_e=4, d_h=6, d_t=5, d_mlp=7, d_qk=6, assignment_iterations=40)


@pytest.fixture
def example():
    """A network, graphs with dead ROIs and what a run has learned."""
    torch.manual_seed(0)
    network = BrioNetwork(P, SMALL).double()
    g = torch.Generator().manual_seed(1)
    A = torch.randn(7, P, P, dtype=torch.float64, generator=g)
    A = (A + A.mT) * (1 - torch.eye(P, dtype=torch.float64))
    alive = torch.ones(7, P, dtype=torch.bool)
    alive[2, 3] = alive[4, [0, 8]] = False
    A = A * (alive[:, :, None] & alive[:, None, :])
    mean = A.mean(0)
    S = (torch.rand(P, P, generator=g) > 0.4) | torch.eye(P).roll(1, 0).bool()
    S = ((S | S.T) & ~torch.eye(P, dtype=torch.bool)).double()
    return network, A, alive, RunState.from_learned(S=S, mean=mean)


def test_factors_are_unit_images_of_the_pooled_rois(example):
    network, A, alive, state = example
    out = network(Scans.of(A, alive)._replace(state=state))
    live = alive[:, :, None] & alive[:, None, :]
    filled = torch.where(live, A, state.learned["mean"].expand_as(A))
    H = network.encoder(filled, state.learned["S"]).detach().numpy()
    Pi = network.assignment(network.encoder.roi).detach().numpy()
    f = {n: p.detach().numpy() for n, p in network.factor_map.named_parameters()}
    for i in range(7):
        for j in range(3):
            pooled = 3 * sum(Pi[j, u] * H[i, u] for u in range(P))
            x = f["project.weight"] @ pooled
            x = x / np.linalg.norm(x)
            hidden = f["widen.weight"] @ x + f["widen.bias"]
            hidden = 0.5 * hidden * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
            x = f["narrow.weight"] @ hidden + f["narrow.bias"]
            np.testing.assert_allclose(out.factors[i, j].detach().numpy(), x / np.linalg.norm(x), atol=1e-10)
    torch.testing.assert_close(out.factors.norm(dim=-1), torch.ones(7, 3, dtype=torch.float64))


def test_logit_is_the_scaled_sum_of_contributions_and_linear_in_the_representation(example):
    network, A, alive, state = example
    network.b.data.fill_(0.37)
    out = network(Scans.of(A, alive)._replace(state=state))
    w = network.w.detach().numpy()
    for i in range(7):
        joined = np.concatenate([out.factors[i, j].detach().numpy() for j in range(3)]) / math.sqrt(3)
        np.testing.assert_allclose(out.representation[i].detach().numpy(), joined, atol=1e-14)
        a = [float(w[j] @ out.factors[i, j].detach().numpy()) for j in range(3)]
        np.testing.assert_allclose(out.contributions[i].detach().numpy(), a, atol=1e-12)
        assert out.logit[i].item() == pytest.approx(sum(a) / math.sqrt(3) + 0.37, abs=1e-12)
        assert out.logit[i].item() == pytest.approx(
            w.ravel() @ out.representation[i].detach().numpy() + 0.37, abs=1e-12
        )
        assert all(abs(a[j]) <= np.linalg.norm(w[j]) + 1e-12 for j in range(3))


def test_the_cached_assignment_replaces_queries_and_keys(example):
    network, A, alive, state = example
    Pi = network.assignment(network.encoder.roi).detach()
    out = network(Scans.of(A, alive)._replace(state=state))
    cached = Scans.of(A, alive)._replace(state=state._replace(inference={"Pi_bar": Pi}))
    torch.testing.assert_close(network(cached).logit, out.logit, atol=1e-13, rtol=0)
    network.assignment.queries.data += 5.0 * torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(network(cached).logit, out.logit, atol=1e-13, rtol=0)
    assert (network(Scans.of(A, alive)._replace(state=state)).logit - out.logit).abs().max().item() > 1e-5


def test_factor_map_is_unit_norm_without_biases_too():
    torch.manual_seed(1)
    out = FactorMap(6, 5, 7, bias=False)(torch.randn(2, 3, 6))
    torch.testing.assert_close(out.norm(dim=-1), torch.ones(2, 3))


def bce(z, y):
    p = 1 / (1 + math.exp(-z))
    return -math.log(p) if y == 1 else -math.log(1 - p)


def batch_of(cell_weight, n):
    """A batch of which only the cells matter."""
    scans = Scans.of(torch.zeros(cell_weight.numel() * n, 2, 2, dtype=torch.float64))
    n = len(scans.A)
    step = StepContext(torch.tensor(0), torch.ones(n), torch.zeros(n, dtype=torch.long))
    return Batch(scans, cell_weight, torch.empty(0), torch.tensor(1.0), step)


def test_classification_loss_with_cells_of_unequal_size_equals_the_loop_over_subjects():
    rng = np.random.default_rng(3)
    sizes = {("A", 0): 2, ("A", 1): 6, ("B", 0): 3, ("B", 1): 1, ("C", 0): 6, ("C", 1): 3}
    rows = [(s, c) for (s, c), n in sizes.items() for _ in range(n)]
    cohort = Cohort.from_scans(
        [rng.normal(size=(5, 2)) for _ in rows], site=[s for s, _ in rows], label=[c for _, c in rows]
    )
    everyone = np.arange(len(rows))
    fold = Fold("x", everyone, everyone, everyone, ("x",), ("x",))
    one_site_less = Fold("y", everyone[cohort.sites != "B"], everyone, everyone, ("x",), ("x",))
    sources = SourceCells(cohort, [Run(fold, 0), Run(one_site_less, 0)])
    z = rng.normal(size=len(rows))
    for r, site_names in enumerate(("ABC", "AC")):
        cells = defaultdict(list)
        for i, (s, c) in enumerate(rows):
            if s in site_names:
                cells[s, c].append(bce(z[i], c))
        expected = sum(np.mean(v) for v in cells.values()) / (2 * len(site_names))
        # six scans a cell: cells of 1, 2, 3 and 6 go round a whole number of times, so everyone of a cell counts alike
        slot = np.arange(6) % np.maximum(sources.size[r], 1)[..., None]
        batch = np.take_along_axis(sources.members[r], slot, axis=-1)
        weight = torch.from_numpy(sources.cell_weight[r])
        assert float(weight.sum()) == pytest.approx(1.0)
        found = classification_loss(torch.from_numpy(z[batch]).flatten(), batch_of(weight, 6))
        assert float(found) == pytest.approx(expected, abs=1e-12)
