"""CORAL, IRM, V-REx, GroupDRO and DANN against plain loops of the published formulas."""

import itertools

import numpy as np
import pytest
import torch
from contract_cohorts import small, split, tiny, uneven
from steps import equal_cells, make_batch
from torch import nn
from torch.nn import functional as F

from brio.connectome import Connectomes, edge_cut
from brio.methods import make_method, ood
from brio.training import Batch, InputShape, Output, Run, RunState, Scans
from brio.training.stack import SourceCells

P = 9
pytestmark = pytest.mark.usefixtures("in_double")


def batch_of(sites: int, n: int = 4, padding: int = 0, epoch: float = 1.0, key: int = 0) -> Batch:
    """A batch of ``sites`` source sites, padded with further ones."""
    A = torch.randn((sites + padding) * 2 * n, P, P).tril(-1)
    A = A + A.mT
    scans = Scans.of(A)._replace(cut=edge_cut(A, 0.2), state=RunState.from_learned(mean=torch.zeros(P, P)))
    return make_batch(scans, equal_cells(sites, padding), key, epoch)


def by_site(x: torch.Tensor, sites: int, n: int) -> list[torch.Tensor]:
    """What belongs to each source site, without padding."""
    return list(x[: sites * 2 * n].split(2 * n))


def labels(n: int) -> torch.Tensor:
    """Classes of the scans of one site."""
    return torch.cat([torch.zeros(n), torch.ones(n)])


def assert_same_gradients(found: torch.Tensor, expected: torch.Tensor, x: torch.Tensor) -> None:
    """Losses and their gradients agree; what pads the batch has none."""
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(loss, x, retain_graph=True)[0] for loss in (found, expected))
    torch.testing.assert_close(ours, theirs)
    assert not ours[theirs == 0].any()


# CORAL


def domainbed_coral(x, y, means=True):
    """Distance of two sets of features: mean squared difference of means and of covariances."""
    d = x.shape[1]
    total = 0.0
    for a in range(d):
        if means:
            total = total + (x[:, a].mean() - y[:, a].mean()) ** 2 / d
        for b in range(d):
            c = [((z[:, a] - z[:, a].mean()) * (z[:, b] - z[:, b].mean())).sum() / (len(z) - 1) for z in (x, y)]
            total = total + (c[0] - c[1]) ** 2 / d**2
    return total


@pytest.mark.parametrize("means", [True, False])
@pytest.mark.parametrize(("sites", "n", "padding"), [(4, 4, 0), (3, 4, 2), (2, 1, 1), (5, 3, 0)])
def test_coral_is_the_mean_over_pairs_of_source_sites(sites, n, padding, means):
    batch = batch_of(sites, n, padding)
    x = torch.randn(len(batch.scans.A), 5) + batch.site[:, None]
    x.requires_grad_()
    pairs = list(itertools.combinations(by_site(x, sites, n), 2))
    expected = sum(domainbed_coral(a, b, means) for a, b in pairs) / len(pairs)
    assert_same_gradients(ood.coral_penalty(x, batch, means), expected, x)


def test_coral_of_one_site_is_zero():
    assert ood.coral_penalty(torch.randn(8, 5), batch_of(1), True) == 0


def test_coral_adds_its_penalty_to_the_mean_risk():
    batch = batch_of(3)
    logit, x = torch.randn(24), torch.randn(24, 5)
    for means in (True, False):
        method = make_method("coral", {"penalty": 2.5, "means": means})
        risk = np.mean([float(F.binary_cross_entropy_with_logits(z, labels(4))) for z in by_site(logit, 3, 4)])
        expected = risk + 2.5 * float(ood.coral_penalty(x, batch, means))
        found = method.loss(Output(logit, x), batch._replace(stage=method.stages()[0]))
        assert float(found) == pytest.approx(expected, abs=1e-12)


# IRM


def domainbed_irm(logits, y):
    """Product of the derivatives, by a scale of both logits, of the risks on two halves of a site's scans."""
    scale = torch.ones(1, requires_grad=True)
    halves = [(logits[::2], y[::2]), (logits[1::2], y[1::2])] if len(y) > 2 else [(logits, y)] * 2
    risks = [F.cross_entropy(z * scale, c.long()) for z, c in halves]
    grads = [torch.autograd.grad(r, scale, create_graph=True)[0] for r in risks]
    return (grads[0] * grads[1]).sum()


@pytest.mark.parametrize(("sites", "n", "padding"), [(4, 4, 0), (3, 2, 2), (2, 6, 1), (3, 1, 1)])
def test_irm_is_the_product_of_derivatives_on_two_halves(sites, n, padding):
    batch = batch_of(sites, n, padding)
    logit = (2 * torch.randn(len(batch.scans.A))).requires_grad_()
    expected = 0.0
    for z in by_site(logit, sites, n):
        expected = expected + domainbed_irm(torch.stack([torch.zeros_like(z), z], 1), labels(n)) / sites
    assert_same_gradients(ood.irm_penalty(logit, batch), expected, logit)  # one backward gives what two did


def test_irm_halves_an_odd_number_of_scans_within_each_class():
    batch = batch_of(2, 3)
    logit = torch.randn(12)
    g = ((logit.sigmoid() - batch.label) * logit).reshape(2, 2, 3)
    expected = np.mean([float(g[e, :, [0, 2]].mean() * g[e, :, 1].mean()) for e in range(2)])
    assert float(ood.irm_penalty(logit, batch)) == pytest.approx(expected, abs=1e-12)


# V-REx


@pytest.mark.parametrize(("sites", "n", "padding"), [(4, 4, 0), (3, 2, 2)])
def test_vrex_is_the_variance_of_the_sites_risks(sites, n, padding):
    batch = batch_of(sites, n, padding)
    logit = torch.randn(len(batch.scans.A)).requires_grad_()
    risks = torch.stack([F.binary_cross_entropy_with_logits(z, labels(n)) for z in by_site(logit, sites, n)])
    expected = ((risks - risks.mean()) ** 2).mean()
    assert_same_gradients(ood.vrex_penalty(logit, batch), expected, logit)
    torch.testing.assert_close(ood.vrex_penalty(logit[: 2 * n].repeat(sites + padding), batch), torch.tensor(0.0))


# annealing


@pytest.mark.parametrize("name", ["irm", "vrex"])
def test_weight_of_the_penalty_is_one_and_then_its_own(name):
    batch = batch_of(3)
    logit = torch.randn(24)
    method = make_method(name, {"penalty": 100.0, "epochs": 120})
    first, then = method.stages()
    risk = float(F.binary_cross_entropy_with_logits(logit, batch.label))
    penalty = float({"irm": ood.irm_penalty, "vrex": ood.vrex_penalty}[name](logit, batch))
    for stage, weight in ((first, 1.0), (then, 100.0)):
        found = float(method.loss(Output(logit, logit), batch._replace(stage=stage)))
        assert found == pytest.approx(risk + weight * penalty, abs=1e-12)
    assert (first.epochs, then.epochs) == (12, 108)
    assert not first.selectable
    assert then.selectable
    assert then.fresh_optimiser


@pytest.mark.parametrize("name", ["irm", "vrex"])
@pytest.mark.parametrize(("epochs", "share", "first"), [(1, 0.1, 0), (2, 0.1, 1), (4, 0.1, 1), (4, 0.99, 3), (9, 0, 0)])
def test_some_epoch_can_always_be_chosen(name, epochs, share, first):
    stages = make_method(name, {"epochs": epochs, "annealing": share}).stages()
    assert [stage.epochs for stage in stages] == [first, epochs - first]
    assert [stage.selectable for stage in stages] == [stage.fresh_optimiser for stage in stages] == [False, True]


def test_the_optimiser_starts_anew_at_the_switch(last_epoch):
    # with one step an epoch, the first step of a new optimiser moves every weight by the learning rate
    graphs = Connectomes(tiny(), dtype=torch.float64)
    run = uneven(tiny())[:1]
    assert SourceCells(tiny(), run).steps(4)[0] == 1
    common = {"cell_batch": 4, "weight_decay": 0.0, "learning_rate": 1e-3, "patience": None}
    switched = make_method("irm", common | {"epochs": 5, "annealing": 0.8, "penalty": 100.0})
    assert [stage.epochs for stage in switched.stages()] == [4, 1]
    annealed = make_method("irm", common | {"epochs": 4, "annealing": 0.0, "penalty": 1.0})
    (after,), (before,) = switched.fit(graphs, run), annealed.fit(graphs, run)
    for name in ("classify.weight", "layers.0.weight"):
        moved = (after.parameters[name] - before.parameters[name]).abs()
        torch.testing.assert_close(moved, torch.full_like(moved, 1e-3), rtol=0.02, atol=0)


# GroupDRO


@pytest.mark.parametrize("padding", [0, 2])
def test_groupdro_follows_the_published_update(padding):
    sites, n, eta = 3, 4, 0.3
    settings = ood.GroupDROSettings(step_size=eta, width=6)
    net = ood.GroupDRONetwork(InputShape(P, sites + padding, 0), settings)
    method = make_method("groupdro", {"step_size": eta})
    q = torch.ones(sites)
    for step in range(5):
        batch = batch_of(sites, n, padding, key=step)
        out = net(batch.scans, batch.step)
        risks = [F.binary_cross_entropy_with_logits(z, labels(n)) for z in by_site(out.logit, sites, n)]
        for e in range(sites):
            q[e] *= float((eta * risks[e].detach()).exp())
        q = q / q.sum()
        expected = sum(float(q[e]) * risks[e] for e in range(sites))
        assert_same_gradients(method.loss(out, batch), expected, net.classify.weight)
        torch.testing.assert_close(net.log_share[:sites].softmax(0), q)
        assert not net.log_share[sites:].any()
    assert q.std() > 0.001
    held = net.log_share.clone()
    assert len(net(batch.scans)) == 2
    assert torch.equal(net.log_share, held)


# DANN


@pytest.mark.parametrize("epoch", [1.0, 5.0, 40.0])
@pytest.mark.parametrize("padding", [0, 2])
def test_features_climb_where_the_site_classifier_descends(epoch, padding):
    batch = batch_of(3, 4, padding, epoch)
    settings = ood.DANNSettings(strength=3.0, dropout=0.0, width=6, epochs=40)
    net = ood.DANNNetwork(InputShape(P, 3 + padding, 0), settings)
    nn.init.normal_(net.site[-1].weight)
    method = make_method("dann", {"strength": 3.0, "epochs": 40})
    out = net(batch.scans, batch.step)
    plain = net.site(out.representation)[:, :3]
    site = F.cross_entropy(plain[:24], torch.arange(3).repeat_interleave(8))
    risk = F.binary_cross_entropy_with_logits(out.logit[:24], batch.label[:24])
    found = method.loss(out, batch)
    torch.testing.assert_close(found, risk + site)
    size = 3.0 * (2 / (1 + np.exp(-10 * (epoch - 1) / 39)) - 1)
    for name, p in net.named_parameters():
        got, of_risk, of_site = (
            torch.autograd.grad(loss, p, retain_graph=True, allow_unused=True)[0] for loss in (found, risk, site)
        )
        if name.startswith("site."):
            torch.testing.assert_close(got, of_site, msg=name)  # at full size, whatever the ramp
        elif name.startswith("classify."):
            torch.testing.assert_close(got, of_risk, msg=name)
        else:
            torch.testing.assert_close(got, of_risk - size * of_site, msg=name)


# all of them


STRENGTH = {
    "coral": ("penalty", 10.0),
    "irm": ("penalty", 100.0),
    "vrex": ("penalty", 100.0),
    "groupdro": ("step_size", 0.5),
    "dann": ("strength", 3.0),
}


def test_without_their_own_terms_they_are_the_gcn_with_mean_readout(last_epoch):
    graphs = Connectomes(tiny(), dtype=torch.float64)
    run = [Run(split(tiny(), [1, 2, 3], [4, 5], [6]), 0)]
    (plain,) = small("gcn", readout="mean").fit(graphs, run)
    for name, (setting, strength) in STRENGTH.items():
        methods = (small(name, annealing=0.0, **{setting: value}) for value in (0.0, strength))
        (off,), (on,) = (method.fit(graphs, run) for method in methods)
        for key, value in plain.parameters.items():
            torch.testing.assert_close(off.parameters[key], value, atol=1e-9, rtol=0, msg=f"{name} {key}")
        assert np.abs(on.test_logit - plain.test_logit).max() > 1e-6
        np.testing.assert_allclose(off.test_logit, plain.test_logit, atol=1e-8)
