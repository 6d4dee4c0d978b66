"""GCN, GAT and GIN against networks built from PyTorch Geometric on graphs made by plain loops."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from brio.connectome import edge_cut
from brio.methods.gnn import GATNetwork, GATSettings, GCNNetwork, GCNSettings, GINNetwork, GINSettings
from brio.training import InputShape, RunState, Scans, StepContext

P, B = 11, 6


@pytest.fixture(autouse=True)
def _double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def draw_scans() -> Scans:
    """Signed FC of six scans, one ROI of the third without signal, and a source mean."""
    A = torch.randn(B, P, P).tril(-1)
    A = A + A.mT
    alive = torch.ones(B, P, dtype=torch.bool)
    alive[2, 4] = False
    A[2, 4] = A[2, :, 4] = 0
    mean = torch.randn(P, P).tril(-1)
    none = torch.zeros(B, 0)
    state = RunState.from_learned(mean=mean + mean.mT)
    return Scans(A, alive, edge_cut(A, 0.2), torch.ones(B), torch.zeros(B, 0, P), none, state)


def plain_graphs(scans: Scans, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Profiles and the strongest fifth of the edges, weighted by |FC|, one scan after the other."""
    X, W = scans.A.clone(), torch.zeros_like(scans.A)
    pairs = [(u, v) for u in range(P) for v in range(u + 1, P)]
    for b in range(B):
        for u, v in sorted(pairs, key=lambda e: -abs(float(scans.A[b][e])))[: round(0.2 * len(pairs))]:
            W[b, u, v] = W[b, v, u] = abs(scans.A[b, u, v])
        for u in range(P):
            for v in range(P):
                if not (scans.alive[b, u] and scans.alive[b, v]):
                    X[b, u, v] = mean[u, v]
    return X, W


def norm_of(ours: nn.Module, H: torch.Tensor, training: bool) -> torch.Tensor:
    """torch's batch norm with the weights of ours, over scans and ROIs."""
    theirs = nn.BatchNorm1d(H.shape[-1])
    theirs.load_state_dict(ours.state_dict(), strict=False)
    return theirs.train(training)(H.flatten(0, 1)).unflatten(0, H.shape[:2])


def moved(network: nn.Module) -> nn.Module:
    """The network with every parameter and statistic away from where it begins."""
    for name, t in [*network.named_parameters(), *network.named_buffers()]:
        t.data += 0.2 * torch.rand_like(t) if "running" in name else 0.2 * torch.randn_like(t)
    return network


def train_step() -> StepContext:
    return StepContext(torch.tensor(0), torch.ones(B), torch.zeros(B, dtype=torch.long))


def gcn_by_pyg(net: GCNNetwork, X, W, training):
    from torch_geometric.nn import DenseGCNConv

    H = X
    for layer, norm in zip(net.layers, net.norms, strict=True):
        conv = DenseGCNConv(H.shape[-1], len(layer.weight))
        conv.lin.weight, conv.bias = layer.weight, layer.bias
        H = norm_of(norm, conv(H, W.clone()), training).relu()
    return H.mean(1) if net.readout == "mean" else H.flatten(1)


def gat_by_pyg(net: GATNetwork, X, W, training):
    from torch_geometric.nn import DenseGATConv

    H = X
    for i, layer in enumerate(net.layers):
        last = i == len(net.layers) - 1
        conv = DenseGATConv(H.shape[-1], layer.receive.shape[1], layer.heads, concat=not last)
        conv.lin.weight, conv.bias = layer.weight, layer.bias
        conv.att_dst.data, conv.att_src.data = layer.receive.data[None, None], layer.send.data[None, None]
        H = F.elu(conv(H, W.clone()))
    return H.mean(1)


def gin_by_pyg(net: GINNetwork, X, W, training):
    from torch_geometric.nn import DenseGINConv

    states = [X]
    for layer, norm in zip(net.layers, net.norms, strict=True):
        first, inner, _, second = layer.update
        received = DenseGINConv(nn.Identity(), float(layer.eps.detach()))(states[-1], (W > 0).double())
        updated = second(norm_of(inner, first(received), training).relu())
        states.append(norm_of(norm, updated, training).relu())
    read = states if net.readout == "every" else states[-1:]
    return torch.cat([H.sum(1) for H in read], -1) / P


CASES = [
    (GCNNetwork, GCNSettings(dropout=0.0, width=6), ("mean",), gcn_by_pyg),
    (GCNNetwork, GCNSettings(dropout=0.0, width=6, layers=3), ("concat",), gcn_by_pyg),
    (GATNetwork, GATSettings(dropout=0.0, attention_dropout=0.0, width=6, heads=3), (), gat_by_pyg),
    (GATNetwork, GATSettings(dropout=0.0, attention_dropout=0.0, width=6, heads=2, layers=3), (), gat_by_pyg),
    (GATNetwork, GATSettings(dropout=0.0, attention_dropout=0.0, width=6, heads=1, layers=1), (), gat_by_pyg),
    (GINNetwork, GINSettings(dropout=0.0, width=6), (), gin_by_pyg),
    (GINNetwork, GINSettings(dropout=0.0, width=6, layers=3, readout="last"), (), gin_by_pyg),
]


@pytest.mark.xdist_group("torch_geometric")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("kind", "settings", "more", "by_pyg"), CASES)
def test_network_is_the_one_built_from_pyg(kind, settings, more, by_pyg, training):
    scans = draw_scans()
    net = moved(kind(InputShape(P, 1, 0), settings, *more))
    expected = by_pyg(net, *plain_graphs(scans, scans.state.learned["mean"]), training)  # before the statistics move
    out = net(scans, train_step() if training else None)
    torch.testing.assert_close(out.representation, expected)
    torch.testing.assert_close(out.logit, F.linear(expected, net.classify.weight, net.classify.bias)[:, 0])


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (GCNNetwork, GCNSettings(dropout=0.5)),
        (GINNetwork, GINSettings(dropout=0.5)),
        (GATNetwork, GATSettings(dropout=0.5, attention_dropout=0.0)),
        (GATNetwork, GATSettings(dropout=0.0, attention_dropout=0.5)),
    ],
)
def test_states_and_attention_are_dropped_in_training_alone(kind, settings):
    scans = draw_scans()
    none = {name: 0.0 for name in ("dropout", "attention_dropout") if hasattr(settings, name)}
    nets = [kind(InputShape(P, 1, 0), s) for s in (settings, dataclasses.replace(settings, **none))]
    nets[1].load_state_dict(nets[0].state_dict())
    torch.testing.assert_close(*(net(scans).logit for net in nets))
    assert not torch.allclose(*(net(scans, train_step()).logit for net in nets))
