"""Signed graphs, descriptors and signed layers, Eqs. (4)-(6), against plain numpy."""

import math

import numpy as np
import pytest
import torch

from brio.methods.brio.encoder import (
    SignedEncoder,
    descriptor,
    measure_descriptors,
    signed_graphs,
)


@pytest.fixture
def graph():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 6, 6))
    A = A + A.transpose(0, 2, 1)
    A[:, np.arange(6), np.arange(6)] = 0
    S = rng.random((6, 6)) > 0.5
    S = (S | S.T) & ~np.eye(6, dtype=bool)
    S[0, 1] = S[1, 0] = True
    A[1, 2] = A[1, :, 2] = 0  # an ROI without any edge of its own
    A[2, 4] = np.abs(A[2, 4])
    A[2, :, 4] = A[2, 4]  # an ROI without negative edges
    assert S.sum(1).all()
    return A, S.astype(float)


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def normalised(G):
    """D^(-1/2) G D^(-1/2) entry by entry, zero where an ROI has no edge."""
    degree = [sum(row) for row in G]
    out = np.zeros_like(G)
    for u in range(len(G)):
        for v in range(len(G)):
            if degree[u] > 0 and degree[v] > 0:
                out[u, v] = G[u, v] / math.sqrt(degree[u]) / math.sqrt(degree[v])
    return out


def layer(H, plus, minus, own, positive, negative):
    return layer_norm(H + gelu(H @ own.T + normalised(plus) @ H @ positive.T + normalised(minus) @ H @ negative.T))


def split_by_sign(A, S):
    """Supported weights, and the sizes of the positive and the negative ones."""
    G = A * S
    return G, np.maximum(G, 0), np.maximum(-G, 0)


def weights(module):
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


def test_encoder_is_embedding_and_descriptor_through_two_layers(graph):
    _, S = graph
    torch.manual_seed(3)
    encoder = SignedEncoder(6, d_e=4, d_h=5, layers=2).double()
    w = weights(encoder)
    found = encoder(*map(torch.from_numpy, graph)).detach().numpy()
    G, plus, minus = split_by_sign(*graph)
    for i in range(3):
        d = S.sum(1)
        c = np.stack([plus[i].sum(1) / d, minus[i].sum(1) / d, np.sqrt((G[i] ** 2).sum(1) / d)], 1)
        H = np.hstack([w["roi"], c]) @ w["phi_in.weight"].T + w["phi_in.bias"]
        for k in range(2):
            H = layer(H, plus[i], minus[i], *(w[f"layers.{k}.{n}.weight"] for n in ("own", "positive", "negative")))
        np.testing.assert_allclose(found[i], H, atol=1e-9)
    assert not any(name.endswith(".bias") and ".norm." not in name for name in w if name.startswith("layers."))


def test_descriptors_are_standardised_before_they_are_mapped(graph):
    _, S = graph
    torch.manual_seed(3)
    encoder = SignedEncoder(6, d_e=4, d_h=5, layers=0).double()
    w, rng = weights(encoder), np.random.default_rng(6)
    c_mean, c_sd = rng.normal(size=(6, 3)), rng.uniform(0.1, 2.0, (6, 3))
    G, plus, minus = split_by_sign(*graph)
    d = S.sum(1)
    c = np.stack([plus.sum(2) / d, minus.sum(2) / d, np.sqrt((G**2).sum(2) / d)], 2)
    expected = w["roi"] @ w["phi_in.weight"][:, :4].T + w["phi_in.bias"]
    expected = expected + ((c - c_mean) / c_sd) @ w["phi_in.weight"][:, 4:].T
    found = encoder(*map(torch.from_numpy, graph), None, None, torch.from_numpy(c_mean), torch.from_numpy(c_sd))
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-12)


def test_descriptors_of_the_measured_scans_get_mean_zero_and_sd_one(graph):
    A, S = map(torch.from_numpy, graph)
    A[:, 3] = A[:, :, 3] = A[0, 3]  # an ROI with the same edges in all scans
    alive, mean = torch.ones(len(A), 6, dtype=torch.bool), torch.zeros(6, 6, dtype=torch.float64)
    c_mean, c_sd = measure_descriptors([(A[:1], alive[:1]), (A[1:], alive[1:])], S, mean)
    G, plus, minus = signed_graphs(A, S)
    raw = descriptor(G, plus.sum(-1), minus.sum(-1), S)
    c = (raw - c_mean) / c_sd
    torch.testing.assert_close(c.mean(0), torch.zeros(6, 3, dtype=torch.float64), rtol=0, atol=1e-12)
    constant = raw.std(0) == 0
    assert constant[3].all()
    torch.testing.assert_close(c.std(0, correction=0), (~constant).double(), rtol=0, atol=1e-9)


def test_a_graph_without_any_edge_is_finite():
    encoder = SignedEncoder(6, d_e=4, d_h=5, layers=2)
    out = encoder(torch.zeros(1, 6, 6), torch.ones(6, 6) - torch.eye(6))
    out.sum().backward()
    assert out.isfinite().all()
    assert all(p.grad.isfinite().all() for p in encoder.parameters() if p.grad is not None)
