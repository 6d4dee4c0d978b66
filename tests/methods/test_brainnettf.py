"""Brain Network Transformer: correlation rows as tokens, torch's attention, the clustering readout, mixup."""

import numpy as np
import pytest
import torch
from steps import draw_connectomes, equal_cells, make_batch, make_step
from torch import nn

from brio.methods import make_method
from brio.methods.brain.brainnettf import BrainNetTFNetwork, BrainNetTFSettings, EncoderLayer, OCRead, mix_up
from brio.training import InputShape, Output, RunState, Scans

P, B = 12, 8
SETTINGS = BrainNetTFSettings(feed_forward=20, centres=5)


@pytest.fixture
def scans():
    A, alive = draw_connectomes(B, P)
    return Scans.of(A / 2, alive)._replace(state=RunState.from_learned(mean=torch.zeros(P, P, dtype=torch.float64)))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return BrainNetTFNetwork(InputShape(P, 2, 0), SETTINGS).double()


def batch_of(scans, padded=0, key=0):
    """Two source sites, and so many that only pad."""
    return make_batch(scans.map(lambda t: torch.cat([t, t[: len(t) * padded // 2]])), equal_cells(2, padded), key)


def test_rois_without_signal_are_filled_from_the_source_mean(network, scans):
    seen = []
    network.layers[0].register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    alive = scans.alive.clone()
    alive[:, 3] = False
    A = scans.A * (alive[:, :, None] & alive[:, None, :])
    mean = scans.A.mean(0)
    network(scans._replace(A=A, alive=alive, state=RunState.from_learned(mean=mean)))
    expected = mean[3].tanh() + torch.eye(P, dtype=torch.float64)[3]
    torch.testing.assert_close(seen[0][:, 3], expected.expand(B, P))


@pytest.mark.parametrize("training", [False, True])
def test_layers_are_those_of_torch(training):
    torch.manual_seed(0)
    ours = EncoderLayer(P, 4, 20, 0.0).double().train(training)
    reference = nn.TransformerEncoderLayer(P, 4, 20, dropout=0.0, batch_first=True, dtype=torch.float64)
    reference.load_state_dict(ours.state_dict())
    x = torch.randn(B, P, P, dtype=torch.float64)
    step = make_step(B) if training else None
    torch.testing.assert_close(ours(x, step), reference.train(training)(x))


def test_neither_fused_kernels_nor_torchs_own_dropout_are_used(network, scans, monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", fail)
    monkeypatch.setattr(torch, "_native_multi_head_attention", fail)
    with torch.no_grad():
        network.eval()(scans)
    network.train()
    assert not [m for m in network.modules() if isinstance(m, nn.Dropout)]
    assert all(layer.self_attn.dropout == 0 for layer in network.layers)
    outs = []
    for number in (0, 0, 1):
        torch.manual_seed(number)
        outs.append(network(scans, make_step(B, number)).logit)
    assert torch.equal(outs[0], outs[1])
    assert not torch.allclose(outs[0], outs[2])


@pytest.mark.parametrize(("n_rois", "heads"), [(12, 4), (9, 3), (10, 2), (7, 1), (116, 4), (200, 4)])
def test_heads_divide_the_number_of_rois(n_rois, heads):
    assert EncoderLayer(n_rois, 4, 8, 0.0).self_attn.num_heads == heads


def test_readout_shares_rois_out_over_the_centres():
    torch.manual_seed(0)
    read = OCRead(P, 5).double()
    H = torch.randn(B, P, P, dtype=torch.float64)
    E = read.encode(H.flatten(1)).reshape(B, P, P).detach().numpy()
    c = read.centres.numpy()
    for i in range(B):
        pooled = np.zeros((5, P))
        for u in range(P):
            a = np.array([(E[i, u] @ c[k]) ** 2 / np.linalg.norm(c[k]) for k in range(5)])
            a = np.exp(a) / np.exp(a).sum()
            for k in range(5):
                pooled[k] += a[k] * E[i, u]
        np.testing.assert_allclose(read(H)[i].detach().numpy(), pooled, atol=1e-6)  # centres drawn in float32


def test_centres_are_orthonormal_and_frozen(network):
    c = network.read.centres
    torch.testing.assert_close(c @ c.T, torch.eye(5, dtype=torch.float64), atol=1e-6, rtol=0)
    assert "read.centres" in dict(network.named_buffers())
    assert "read.centres" not in dict(network.named_parameters())


def test_all_of_the_readout_reaches_the_classifier(network, scans):
    out = network(scans)
    x = scans.A.tanh() + torch.eye(P, dtype=torch.float64)
    for layer in network.layers:
        x = layer(x)
    h = network.head(network.narrow(network.read(x)).flatten(1))
    torch.testing.assert_close(out.representation, h)
    torch.testing.assert_close(out.logit, network.classify(h)[:, 0])
    assert out.representation.shape == (B, 32)


def test_mixup_mixes_correlations_and_labels_by_one_share(scans):
    r, shares = scans.A.tanh(), set()
    for key in range(4):
        batch, step = batch_of(scans, key=key), make_step(B, key)
        found, label = mix_up(batch)
        share, other = step.draw_uniform((1,), r), step.draw_permutation()
        assert 0 < share < 1
        torch.testing.assert_close(found.A.tanh(), share * r + (1 - share) * r[other], atol=1e-6, rtol=0)
        torch.testing.assert_close(label, share * batch.label + (1 - share) * batch.label[other])
        shares.add(float(share))
    assert len(shares) == 4


@pytest.mark.parametrize("mixup", [True, False])
def test_the_loss_is_cross_entropy_on_soft_labels(scans, mixup):
    method = make_method("brainnettf", {"mixup": mixup})
    logit = torch.linspace(-2, 2, B, dtype=torch.float64)
    seen = []

    def call(params, inputs, step):
        seen.append(inputs)
        return Output(logit, logit[:, None])

    loss = method.objective(call, {}, batch_of(scans, key=3))
    batch = batch_of(scans, key=3)
    inputs, y = mix_up(batch) if mixup else (batch.scans, batch.label)
    assert torch.equal(seen[0].A, inputs.A)
    p = logit.sigmoid()
    torch.testing.assert_close(loss, -(y * p.log() + (1 - y) * (1 - p).log()).mean())
