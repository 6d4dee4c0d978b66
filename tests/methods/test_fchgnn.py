"""FC-HGNN: hemispheres before the whole brain, two pooling channels, a population graph typed by sex, a bank."""

import math

import numpy as np
import pytest
import torch
from contract_cohorts import small, split, tiny, uneven
from steps import draw_connectomes, make_step, moved

from brio.connectome import Connectomes
from brio.methods.brain import fchgnn
from brio.methods.brain.fchgnn import Demographics, exclude_self, find_neighbours, select_bank
from brio.methods.layers import normalise_adjacency
from brio.training import InputShape, Run, RunState, Scans
from brio.training.stack import Stack

P, B = 11, 16  # two sites of eight scans
SETTINGS = fchgnn.FCHGNNSettings(width=7, state=5, layers=3, age_window=0.5, kept_share=0.8)
SIDE = torch.tensor([-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, 0], dtype=torch.float64)


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def scans():
    A = draw_connectomes(B, P)[0] * 0.6
    known = torch.stack([(torch.arange(B) // 2 % 2).double(), 20 + 6 * drawn(B, seed=1)], -1)
    m = 9
    learned = {
        "mean": torch.zeros(P, P, dtype=torch.float64),
        "side": SIDE,
        "age": torch.tensor([20.0, 6.0], dtype=torch.float64),
    }
    bank = {
        "bank_sex": (torch.arange(m) % 2).double(),
        "bank_age": drawn(m, seed=3),
        "bank_real": torch.tensor([1.0] * 7 + [0.0] * 2, dtype=torch.float64),
        "bank_messages": drawn(3, m, 4 * 5, seed=4),
    }
    return Scans.of(A)._replace(covariates=known, state=RunState(learned, {}, bank))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return moved(fchgnn.FCHGNNNetwork(InputShape(P, 2, 0), SETTINGS))


def strong(A):
    edges = (A.abs() > SETTINGS.alpha).double()
    return edges, edges * A.abs()


def in_training(network, scans, real=None):
    plain = {name: b.clone() for name, b in network.named_buffers()}
    out = network(scans, make_step(len(scans.A), real=real, site=torch.arange(len(scans.A)) // 8))
    for name, b in network.named_buffers():
        b.copy_(plain[name])
    return out


# one scan


@pytest.mark.xdist_group("torch_geometric")
def test_each_hemisphere_has_a_convolution_of_its_own(scans):
    from torch_geometric.nn import GCNConv
    from torch_geometric.utils import dense_to_sparse

    torch.manual_seed(0)
    layer = fchgnn.HemisphereLayer(P, 6).double()
    _, weights = strong(scans.A)
    within = normalise_adjacency(weights * (SIDE[:, None] * SIDE == 1))
    found = layer(scans.A, within, SIDE)
    for side, own in ((-1, layer.left), (1, layer.right)):
        reference = GCNConv(P, 6).double()
        reference.lin.weight.data.copy_(own.weight)
        own.bias.data.normal_()
        reference.bias.data.copy_(own.bias)
        rois = torch.where(side == SIDE)[0]
        for i in range(B):
            index, weight = dense_to_sparse(weights[i][rois][:, rois])
            expected = torch.nn.functional.leaky_relu(reference(scans.A[i][rois], index, weight))
            torch.testing.assert_close(layer(scans.A, within, SIDE)[i, rois], expected)
    assert (found[:, SIDE == 0] == 0).all()


@pytest.mark.xdist_group("torch_geometric")
def test_cheb_layer_is_that_of_pyg(scans):
    from torch_geometric.nn import ChebConv
    from torch_geometric.utils import dense_to_sparse

    torch.manual_seed(0)
    layer = fchgnn.ChebLayer(4, 6, 3).double()
    reference = ChebConv(4, 6, K=3, normalization="sym").double()
    for k, part in enumerate(layer.mix.weight.data.chunk(3, -1)):
        reference.lins[k].weight.data.copy_(part)
    reference.bias.data.copy_(layer.mix.bias)
    edges, _ = strong(scans.A)
    edges[0, 5] = edges[0, :, 5] = 0  # an ROI without edges
    H = drawn(B, P, 4, seed=2)
    for i in range(B):
        expected = reference(H[i], dense_to_sparse(edges[i])[0])
        torch.testing.assert_close(layer(H, edges)[i], expected)


@pytest.mark.xdist_group("torch_geometric")
def test_local_channel_is_that_of_sagpool(network, scans):
    from torch_geometric.nn import SAGPooling
    from torch_geometric.utils import dense_to_sparse

    encoder = network.encode
    reference = SAGPooling(5, 0.8).double()
    reference.select.weight.data.fill_(1.0)
    reference.gnn.lin_root.weight.data.copy_(encoder.score_own.weight)
    reference.gnn.lin_rel.weight.data.copy_(encoder.score_near.weight)
    reference.gnn.lin_rel.bias.data.copy_(encoder.score_own.bias)
    edges, _ = strong(scans.A)
    H = drawn(B, P, 5, seed=2)
    local, kept = encoder.pool_locally(H, edges)
    for i in range(B):
        pooled, *_, order, score = reference(H[i], dense_to_sparse(edges[i])[0])
        assert len(score) == 9
        assert set(torch.where(kept[i, :, 0] > 0)[0].tolist()) == set(order.tolist())
        torch.testing.assert_close(local[i, order], pooled)


def test_hemispheres_meet_in_the_whole_brain_and_kept_rois_take_up_their_clusters(network, scans):
    encoder = network.encode
    found = encoder(scans).detach().unflatten(1, (P, 5)).numpy()
    edges, weights = strong(scans.A)
    within = normalise_adjacency(weights * (SIDE[:, None] * SIDE == 1))
    H = encoder.second(encoder.first(scans.A, within, SIDE), within, SIDE)
    H = torch.nn.functional.leaky_relu(encoder.whole(H, normalise_adjacency(weights)))  # hemispheres meet here only
    local, kept = encoder.pool_locally(H, edges)
    shares = encoder.assign(H, edges).softmax(-1).detach().numpy()
    assert shares.shape == (B, P, 6)
    H, local, kept = (t.detach().numpy() for t in (H, local, kept[..., 0]))
    assert (kept.sum(1) == 9).all()
    for i in range(B):
        clusters = np.stack([sum(shares[i, u, c] * H[i, u] for u in range(P)) for c in range(6)])
        for u in range(P):
            taken = sum(shares[i, u, c] * clusters[c] for c in range(6))
            np.testing.assert_allclose(found[i, u], kept[i, u] * (local[i, u] + taken), atol=1e-12)


# the population


@pytest.mark.xdist_group("torch_geometric")
def test_relation_is_the_transformer_convolution_of_pyg():
    from torch_geometric.nn import TransformerConv

    torch.manual_seed(0)
    relation = fchgnn.ScanAttention(6, 4).double()
    reference = TransformerConv(6, 4, heads=1).double()
    for ours, theirs in (("query", "query"), ("key", "key"), ("value", "value"), ("skip", "skip")):
        getattr(reference, f"lin_{theirs}").load_state_dict(getattr(relation, ours).state_dict())
    x, linked = drawn(B, 6), drawn(B, B, seed=1) > 0.8
    linked[4] = False  # receives nothing
    index = linked.nonzero().T.flip(0)  # PyG: from sender to receiver
    torch.testing.assert_close(relation(x, relation.compute_messages(x), linked), reference(x, index))


def test_layers_weigh_the_sexes_four_to_one_at_first_and_learn_the_balance():
    torch.manual_seed(0)
    layer = fchgnn.PopulationLayer(6, 4).double()
    x, same, other = drawn(B, 6), drawn(B, B, seed=1) > 0, drawn(B, B, seed=2) > 0
    out, sent = layer(x, same, other)
    s, o = (r(x, r.compute_messages(x), linked) for r, linked in ((layer.same, same), (layer.other, other)))
    inside = 1 / math.sqrt(1 + 1e-5)  # untrained batch norm
    torch.testing.assert_close(out, torch.nn.functional.leaky_relu(inside * (0.8 * s + 0.2 * o)))
    torch.testing.assert_close(sent, torch.cat([layer.same.compute_messages(x), layer.other.compute_messages(x)], -1))
    out.sum().backward()
    assert layer.balance.grad.abs().min() > 0
    layer.balance.data = torch.tensor([2.0, 3.0], dtype=torch.float64)
    share = 1 / (1 + math.exp(1.0))
    expected = torch.nn.functional.leaky_relu(inside * (share * s + (1 - share) * o))
    torch.testing.assert_close(layer(x, same, other)[0], expected)


@pytest.mark.parametrize("beta", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("site", [True, False])
def test_neighbours_are_more_alike_than_most_of_their_sex(beta, site):
    rng = np.random.default_rng(0)
    sex, age, where = rng.integers(0, 2, 30), rng.normal(size=30), rng.integers(0, 4, 30)
    candidate = rng.uniform(size=30) < 0.9
    everyone = Demographics(*(torch.from_numpy(a) for a in (sex, age)), torch.from_numpy(where) if site else None)
    same, other = find_neighbours(
        everyone, everyone, torch.from_numpy(candidate) & exclude_self(30, torch.device("cpu")), 0.4, beta
    )
    count = 0
    for i in range(30):
        for found, wanted in ((same, sex[i]), (other, 1 - sex[i])):
            pool = [j for j in range(30) if j != i and candidate[j] and sex[j] == wanted]
            alike = np.array([int(abs(age[i] - age[j]) < 0.4) + int(site and where[i] == where[j]) for j in pool])
            expected = {j for j, a in zip(pool, alike, strict=True) if a - alike.mean() > beta * alike.std() + 1e-6}
            assert set(np.flatnonzero(found[i])) == expected
            count += len(expected)
    assert count > 20


def test_in_training_a_scan_receives_from_its_batch_as_typed_by_sex_and_age(network, scans):
    network.population.dropout.p = network.encode.dropout.p = 0.0
    out = in_training(network, scans)
    age = (scans.covariates[:, 1] - 20) / 6
    batch = Demographics(scans.covariates[:, 0], age, torch.arange(B) // 8)
    same, other = find_neighbours(batch, batch, exclude_self(B, age.device), 0.5, 1.0)
    assert same.any(1).sum() > 8
    assert other.any(1).sum() > 8
    states, _ = network.population(out.embedding, same, other, None, make_step(B))
    torch.testing.assert_close(out.representation, states)
    torch.testing.assert_close(out.logit, network.classify(states)[:, 0])
    for changed in (  # all of these take part
        scans._replace(covariates=scans.covariates * torch.tensor([0.0, 1.0])),
        scans._replace(covariates=scans.covariates.flip(0)),
    ):
        assert not torch.allclose(in_training(network, changed).logit, out.logit)
    network.site_likeness = False
    assert not torch.allclose(in_training(network, scans).logit, out.logit)


def test_at_inference_a_scan_receives_from_the_bank_and_no_other_scan(network, scans):
    out = network(scans)
    for i in (0, 3):
        alone = network(scans.split(1)[i])
        torch.testing.assert_close(alone.logit, out.logit[i : i + 1])
    age = (scans.covariates[:, 1] - 20) / 6
    held = scans.state.inference
    bank = Demographics(held["bank_sex"], held["bank_age"], None)
    same, other = find_neighbours(
        Demographics(scans.covariates[:, 0], age, None), bank, held["bank_real"] > 0, 0.5, 1.0
    )
    assert not same[:, 7:].any()
    assert not other[:, 7:].any()
    x, states = out.embedding, []
    for layer, messages in zip(network.population.layers, held["bank_messages"], strict=True):
        x, _ = layer(x, same, other, messages)
        states.append(x)
    torch.testing.assert_close(out.representation, torch.cat(states, -1))
    silent = network(
        scans._replace(state=scans.state._replace(inference=held | {"bank_real": torch.zeros_like(held["bank_real"])}))
    )
    receives = (same | other).any(1)
    assert receives.sum() > 4
    assert (~receives).sum() > 0
    assert ((silent.representation - out.representation).abs().amax(1) > 1e-6).equal(receives)


# the bank


def built(runs, **values):
    method = small("fc-hgnn", **values)
    stack = Stack.build(method, Connectomes(tiny(), dtype=torch.float64), runs)
    method.begin_stage(stack, method.stages()[0])
    return method, stack


def test_bank_holds_source_scans_of_every_site_and_class():
    cohort, runs = tiny(), uneven(tiny())
    _, stack = built(runs, bank=3)
    index, real = select_bank(stack, 3)
    assert index.shape == (3, 4 * 2 * 3)
    for r, run in enumerate(runs):
        scans = index[r][real[r]]
        assert len(set(scans)) == len(scans)
        assert set(scans) <= set(run.fold.source)
        sites = np.unique(cohort.sites[run.fold.source])
        cells = [(e, c) for e in sites for c in (0, 1) for _ in range(3)]
        assert list(zip(cohort.sites[scans], cohort.labels[scans], strict=True)) == cells
    one, two = (built([Run(runs[0].fold, seed)], bank=3)[1] for seed in (0, 1))
    assert np.array_equal(select_bank(one, 3)[0][0], index[0, : 3 * 2 * 3])
    assert not np.array_equal(select_bank(one, 3)[0], select_bank(two, 3)[0])


def test_a_cell_smaller_than_its_place_in_the_bank_is_padded():
    _, stack = built(uneven(tiny())[:1], bank=6)
    index, real = select_bank(stack, 6)
    size = stack.sources.size.ravel()
    assert set(size) == {3, 5}
    assert index.shape == real.shape
    assert real.reshape(-1, 6).tolist() == [[True] * n + [False] * (6 - n) for n in size]
    assert torch.equal(stack.state.inference["bank_real"], torch.from_numpy(real).double())


@pytest.mark.parametrize("site_likeness", [True, False])
def test_bank_holds_the_messages_of_its_scans_after_they_exchanged_them(site_likeness):
    runs = uneven(tiny())
    method, stack = built(runs, bank=3, site_likeness=site_likeness)
    for buffer in stack.buffers.values():
        buffer.uniform_(0.5, 1.5)
    method.update_inference_state(stack)
    index, real = select_bank(stack, 3)
    r = 2  # two source sites of four that the stack has room for
    own = torch.from_numpy(index[r][real[r]])
    network = method.network(stack.inputs.shape(4)).double()
    network.load_state_dict({n: t[r].detach() for n, t in (stack.params | stack.buffers).items()})
    state = stack.state.select(torch.tensor(r))
    learned, bank = state.learned, state.inference
    scans = stack.inputs.take(own)._replace(state=state)
    age = (scans.covariates[:, 1] - learned["age"][0]) / learned["age"][1]
    group = Demographics(scans.covariates[:, 0], age, torch.arange(12) // 6 if site_likeness else None)
    s = method.settings
    same, other = find_neighbours(group, group, exclude_self(12, age.device), s.age_window, s.beta)
    assert same.any()
    assert other.any()
    with torch.no_grad():
        x, sent = network.encode(scans), []
        for layer in network.population.layers:
            x, messages = layer(x, same, other)
            sent.append(messages)
    torch.testing.assert_close(bank["bank_messages"][:, :12], torch.stack(sent))
    torch.testing.assert_close(bank["bank_sex"][:12], scans.covariates[:, 0])
    torch.testing.assert_close(bank["bank_age"][:12], age)
    assert (bank["bank_messages"][:, 12:] == 0).all()


def test_ages_are_standardised_over_the_source_scans():
    cohort = tiny()
    run = Run(split(cohort, [1, 2, 3], [4, 5], [6]), 0)
    _, stack = built([run])
    age = cohort.participants["age"].to_numpy(dtype=float)[run.fold.source]
    np.testing.assert_allclose(stack.state.learned["age"][0].numpy(), [age.mean(), age.std()])
