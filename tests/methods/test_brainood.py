"""BrainOOD against loops, PyG layers and torch's own distributions."""

import pytest
import torch
from steps import moved
from test_graph_ood import P, calls_of, graphs, in_batch, in_training, start

from brio.methods.brain import brainood
from brio.methods.edges import scorer
from brio.methods.layers import build_profiles, select_strong_edges


@pytest.fixture
def network():
    return start("brainood", rounds=5)


@pytest.fixture
def scans():
    return graphs()


def correlations(scans):
    return build_profiles(scans).tanh() + torch.eye(P)


def test_one_mask_of_features_serves_all_scans(network, scans):
    seen = calls_of(network.encoder)
    network(scans)
    M = (network.feature @ network.feature.T).sigmoid()
    X = correlations(scans)
    assert len(seen) == 2  # one encoder for both passes
    for got, *_ in seen:
        torch.testing.assert_close(got, torch.stack([X[i] * M for i in range(8)]))
    in_training(network, scans)
    dropped = seen[2][0] / X
    known = (X != 0).all(0)
    for i in range(8):
        torch.testing.assert_close(dropped[i][known], dropped[0][known])  # dropout of the mask, not of scans
    share = (dropped[0][known] == 0).double().mean()
    assert 0 < share < 0.5
    kept = known & (dropped[0] != 0)
    torch.testing.assert_close(dropped[0][kept], M[kept] / 0.8)


@pytest.mark.xdist_group("torch_geometric")
def test_messages_are_those_of_pyg_and_high_pass_layers_take_them_off(network):
    from torch_geometric.nn import DenseGINConv

    H, A = torch.randn(8, P, 6, dtype=torch.float64), torch.rand(8, P, P, dtype=torch.float64)
    low, high = moved(brainood.EarlyGINLayer(6, 4)), moved(brainood.HighPassLayer(6, 4))
    theirs = DenseGINConv(low.update, eps=low.eps.item())  # draws the weights of the MLP anew
    torch.testing.assert_close(low(H, A), theirs(H, A))
    by_hand = torch.zeros_like(H)
    for u in range(P):
        received = (1 + high.eps) * H[:, u] + sum(A[:, u, v, None] * H[:, v] for v in range(P))
        by_hand[:, u] = H[:, u] - received
    torch.testing.assert_close(high(H, A), high.update(by_hand))
    assert all(isinstance(layer, brainood.HighPassLayer) for layer in network.reconstruct.layers)
    assert not any(isinstance(layer, brainood.HighPassLayer) for layer in network.encoder.layers)


@pytest.mark.xdist_group("torch_geometric")
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_virtual_node_is_added_before_every_layer_but_the_first(layers):
    from torch_geometric.nn import DenseGINConv

    gin = moved(brainood.VirtualGIN(P, 6, layers, 0.5))
    X, A = torch.randn(8, P, P, dtype=torch.float64), torch.rand(8, P, P, dtype=torch.float64)

    def step(number, H):
        layer, norm = gin.layers[number], gin.norms[number]
        return norm(DenseGINConv(layer.update, eps=layer.eps.item())(H, A))

    H = step(0, X)
    if layers > 1:
        H = step(1, H.relu() + gin.virtual)
    if layers > 2:
        H = H.relu()
        virtual = gin.update_virtual(H.sum(1) + gin.virtual)
        H = step(2, H + virtual[:, None])
    torch.testing.assert_close(gin(X, A), H)


def test_features_are_reconstructed_from_high_pass_states(network, scans):
    encoded, rebuilt = calls_of(network.encoder), calls_of(network.reconstruct)
    out = in_training(network, scans)
    H, A, R = rebuilt[0]
    assert torch.equal(H, encoded[0][-1])
    assert torch.equal(A, select_strong_edges(scans))
    masked = encoded[0][0]
    M = torch.where((masked == 0).all(0), 0, (network.feature @ network.feature.T).sigmoid() / 0.8)
    for i in range(8):
        guess = (R[i] @ R[i].T).tanh() * M
        torch.testing.assert_close(out.error[i], (guess - masked[i]).square().mean())
    rows = torch.distributions.Categorical(logits=M)
    torch.testing.assert_close(out.entropy, rows.entropy().mean())


def test_edges_are_drawn_five_times_and_the_logits_averaged(network, scans):
    encoded, scores = calls_of(network.encoder), calls_of(network.score)
    out = in_training(network, scans)
    assert (
        out.edge_sample - scores[0][-1].sigmoid()
    ).abs().mean() > 0.1  # drawn from a relaxed sample, not from the score
    _, A, H = encoded[1]
    strong = select_strong_edges(scans)
    assert A.shape == (8, 5, P, P)
    assert set(A.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(A, A.mT)
    assert not (A * (1 - strong[:, None])).any()
    assert all((A[:, a] != A[:, b]).any() for a in range(5) for b in range(a))
    logits = torch.stack([network.classify(H[:, r].mean(1)).squeeze(-1) for r in range(5)])
    torch.testing.assert_close(out.logit, logits.mean(0))
    learns = torch.autograd.grad(out.logit.sum(), network.score.sender.weight)[0]
    assert learns.abs().sum() > 0  # straight through both samples
    network.rounds = 4000
    encoded.clear()
    out = in_training(network, scans)
    probability = scorer.scatter_edges(scorer.average_directions(out.edge_sample), out.edges, P)
    torch.testing.assert_close(encoded[1][1].mean(1), probability, atol=0.04, rtol=0)


def test_the_loss_adds_reconstruction_alignment_and_entropy_and_no_bottleneck(network, scans):
    method = brainood.BrainOOD(brainood.BrainOODSettings())
    batch = in_batch(scans, n_sites=2, padding=1, epoch=30.0)
    out = in_training(network, scans)
    found = method.loss(out, batch)
    label = torch.tensor([0.0, 0, 1, 1], dtype=torch.float64)
    ce = torch.nn.functional.binary_cross_entropy_with_logits(out.logit[:4], label)
    aligned = out.edge_logit[:4].std(0).mean()
    expected = ce + 0.5 * out.error[:4].mean() + 0.1 * aligned + 0.01 * out.entropy
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(out.edge_logit * (1 - select_strong_edges(scans)), torch.zeros_like(out.edge_logit))
    with_kl = brainood.BrainOOD(brainood.BrainOODSettings(information=1.0, final_r=0.5, epochs=120))
    kl = scorer.bernoulli_kl(out.edge_sample, out.edges, 0.7)[:4].mean()
    torch.testing.assert_close(with_kl.loss(out, batch), found + kl)
