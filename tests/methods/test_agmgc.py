"""AGMGC: the graph learner, the spline kernel, convolution over several graphs, the contrast."""

import math

import numpy as np
import pytest
import torch
from steps import draw_connectomes, equal_cells, make_batch, make_step, moved

from brio.connectome import edge_cut
from brio.methods import make_method
from brio.methods.brain.agmgc import AGMGCNetwork, AGMGCOutput, AGMGCSettings, compute_spline_position, nt_xent
from brio.methods.layers import classification_loss
from brio.training import InputShape, RunState, Scans

P, B, D = 11, 8, 6
SETTINGS = AGMGCSettings(width=D, edge_share=0.3)


@pytest.fixture
def scans():
    A, alive = draw_connectomes(B, P, dead=[(2, 3), (4, 0), (4, 8)])
    return Scans.of(A, alive)._replace(cut=edge_cut(A, 0.3), state=RunState.from_learned(mean=A.mean(0)))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return moved(AGMGCNetwork(InputShape(P, 2, 0), SETTINGS))


def batch_of(padded=0):
    A = torch.zeros((2 + padded) * 4, P, P, dtype=torch.float64)
    return make_batch(Scans.of(A), equal_cells(2, padded))


def weights(module):
    return {n: t.detach().numpy() for n, t in (*module.named_parameters(), *module.named_buffers())}


def learned_graph(H, alive, query, key, share):
    """The learner in plain loops, for one scan."""
    n, keep = len(H), math.ceil(share * (len(H) - 1))
    A = np.zeros((n, n))
    for u in range(n):
        partners = [v for v in range(n) if v != u and alive[u] and alive[v]]
        score = {v: math.exp(max(0.0, float((query @ H[u]) @ (key @ H[v])) / math.sqrt(H.shape[1]))) for v in partners}
        total = sum(score.values())
        bar = sorted(score.values(), reverse=True)[min(keep, len(score)) - 1] if score else 0
        for v in partners:
            if score[v] >= bar:
                A[u, v] = score[v] / total
    return (A + A.T) / 2


def spline(H, position, edges, w):
    """Degree-1 open B-spline convolution in plain loops: two neighbouring knots share each edge."""
    out = np.zeros((len(H), w["weight"].shape[2]))
    top = len(w["weight"]) - 1
    for u in range(len(H)):
        near = np.flatnonzero(edges[u])
        for v in near:
            x = position[u, v] * top
            low = min(math.floor(x), top - 1)
            share = x - low
            kernel = (1 - share) * w["weight"][low] + share * w["weight"][low + 1]
            out[u] += H[v] @ kernel / len(near)
        out[u] += w["root.weight"] @ H[u] + w["root.bias"]
    return out


def symmetric(A):
    d = A.sum(1)
    return np.array(
        [[A[u, v] / math.sqrt(d[u] * d[v]) if A[u, v] else 0 for v in range(len(A))] for u in range(len(A))]
    )


def normed(x, w, name):
    scaled = (x - w[f"{name}.running_mean"]) / np.sqrt(w[f"{name}.running_var"] + 1e-5)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def edges_of(scans, i):
    size = scans.A[i].abs().numpy()
    return ((size >= float(scans.cut[i])) & (size > 0)).astype(float)


def scaled(A, edges):
    on = A[edges > 0]
    return np.clip((A - on.min()) / (on.max() - on.min()), 0, 1)


def test_spline_position_of_a_scan_without_edges_is_finite():
    A = torch.zeros(2, P, P)
    A[1] = 0.7
    edges = torch.zeros(2, P, P)
    edges[1] = 1
    assert torch.isfinite(compute_spline_position(A, edges)).all()


def test_the_whole_network_in_plain_loops(network, scans):
    out = network(scans)
    w, live = weights(network), scans.alive.numpy()

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def perceptron(x, name, last):
        return linear(np.maximum(linear(x, f"{name}.0"), 0), f"{name}.{last}")

    for i in range(B):
        A, edges = scans.A[i].numpy(), edges_of(scans, i)
        both = live[i][:, None] & live[i]
        H = linear(np.where(both, A, scans.state.learned["mean"].numpy()), "embed")
        learned = symmetric(
            learned_graph(H, live[i], w["learner.query.weight"], w["learner.key.weight"], SETTINGS.edge_share)
        )
        correlation = symmetric(edges * np.abs(A))
        kernel = {n.removeprefix("spline."): t for n, t in w.items() if n.startswith("spline.")}
        H = np.maximum(normed(spline(H, scaled(A, edges), edges, kernel), w, "spline_norm"), 0)
        for layer in range(SETTINGS.layers):
            said = [G @ H @ w[f"layers.{layer}.weight"][g] for g, G in enumerate((learned, correlation, np.eye(P)))]
            H = np.maximum(normed(sum(said), w, f"layers.{layer}.norm"), 0)
        pooled = np.concatenate([H.mean(0), H.max(0)])
        np.testing.assert_allclose(out.representation[i].detach().numpy(), pooled, atol=1e-10)
        assert out.logit[i].item() == pytest.approx(perceptron(pooled, "classify", 3)[0], abs=1e-10)
        for view, message in zip((out.learned, out.correlation), said, strict=False):
            np.testing.assert_allclose(view[i].detach().numpy(), perceptron(message.mean(0), "project", 3), atol=1e-10)


@pytest.mark.parametrize("padded", [0, 1])
def test_contrast_finds_each_scan_among_all_views_of_the_batch(padded):
    g = torch.Generator().manual_seed(0)
    batch = batch_of(padded)
    n = len(batch.label)
    first, second = torch.randn(2, n, D, dtype=torch.float64, generator=g).unbind()
    views = np.concatenate([first.numpy()[:B], second.numpy()[:B]])
    views = views / np.linalg.norm(views, axis=1, keepdims=True)
    total = 0.0
    for i in range(2 * B):
        partner = (i + B) % (2 * B)
        every = [math.exp(views[i] @ views[j] / 0.5) for j in range(2 * B) if j != i]
        total += -math.log(math.exp(views[i] @ views[partner] / 0.5) / sum(every)) / (2 * B)
    assert nt_xent(first, second, batch, 0.5).item() == pytest.approx(total, abs=1e-10)
    assert nt_xent(first, first, batch, 0.5) < nt_xent(first, second, batch, 0.5)


def test_the_loss_holds_the_contrast_by_its_weight():
    g = torch.Generator().manual_seed(0)
    batch = batch_of(1)
    n = len(batch.label)
    logit, first, second = (torch.randn(*s, dtype=torch.float64, generator=g) for s in ((n,), (n, D), (n, D)))
    out = AGMGCOutput(logit, first, first, second)
    for weight in (0.0, 0.1, 0.7):
        method = make_method("agmgc", {"contrast_weight": weight, "temperature": 0.3})
        expected = classification_loss(logit, batch) + weight * nt_xent(first, second, batch, 0.3)
        torch.testing.assert_close(method.loss(out, batch), expected)
    assert make_method("agmgc").settings.contrast_weight == 0.1


def test_both_graphs_and_the_spline_learn_from_the_label_alone(network, scans):
    network(scans, make_step(B)).logit.square().sum().backward()
    for name in ("learner.query.weight", "spline.weight", "spline.root.weight", "layers.1.weight"):
        grad = dict(network.named_parameters())[name].grad
        assert grad.abs().max() > 0, name
    assert (network.layers[1].weight.grad.flatten(1).abs().amax(1) > 0).all()
