"""DeCI against torch's own convolution and a loop over single ROIs, and the loss that the published code misses."""

import pytest
import torch
from steps import make_step
from torch.nn import functional as F

from brio.methods.brain.deci import CausalConvolution, DeCINetwork, DeCISettings
from brio.training import InputShape, Scans

B, T, P, D = 6, 30, 5, 8


@pytest.fixture
def scans():
    rng = torch.Generator().manual_seed(0)
    bold, alive = torch.randn(B, T, P, generator=rng, dtype=torch.float64), torch.ones(B, P, dtype=torch.bool)
    bold[0, :, 3], alive[0, 3] = 0.0, False
    return Scans.of(torch.zeros(B, P, P, dtype=torch.float64), alive)._replace(bold=bold)


def network(layers, **values):
    torch.manual_seed(1)
    settings = DeCISettings(width=D, layers=layers, **{"bold_windows": 1} | values)
    net = DeCINetwork(InputShape(P, 3, T), settings).double()
    for block in net.blocks:  # away from the start, where every ROI has the same kernel
        block.drift.kernel.data += 0.3 * torch.randn(P, D, dtype=torch.float64)
        block.drift.bias.data += 0.3 * torch.randn(P, dtype=torch.float64)
    return net


def test_drift_begins_as_a_running_mean_without_bias():
    x = torch.randn(2, P, 64)
    torch.testing.assert_close(CausalConvolution(P, 64)(x), x.cumsum(-1) / 64, atol=1e-6, rtol=1e-5)


def roi_score(net, course, u):
    """Score of one ROI's course by itself, block after block, from the weights and torch's functions."""
    x = (course - course.mean()) / (course.var(correction=0) + 1e-5).sqrt()
    rest = F.linear(x, net.embed.weight, net.embed.bias)
    score, at = net.classify.bias.clone()[0], 0

    def layers(module, h):
        first, last = module[0], module[-1]
        return F.linear(F.gelu(F.linear(h, first.weight, first.bias)), last.weight, last.bias)

    for block in net.blocks:
        kernel = block.drift.kernel[u].flip(0).view(1, 1, -1)
        drift = F.conv1d(F.pad(rest.view(1, 1, -1), (D - 1, 0)), kernel).flatten() + block.drift.bias[u]
        left, c = rest - drift, block.cycle
        gated = F.linear(torch.sigmoid(layers(c.gate, left)) * left, c.mix.weight, c.mix.bias)
        mixed = F.layer_norm(gated + left, (D,), c.norm_mixed.weight, c.norm_mixed.bias, 1e-6)
        cycle = F.layer_norm(layers(c.update, mixed) + mixed, (D,), c.norm_updated.weight, c.norm_updated.bias, 1e-6)
        rest = left - cycle
        for part in (drift, cycle):
            score = score + net.classify.weight[0, at : at + D] @ part
            at += D
    return score


@pytest.mark.parametrize("layers", [1, 2])
def test_the_logit_is_the_mean_of_the_scores_of_single_rois_with_signal(scans, layers):
    net = network(layers)
    logit = net(scans).logit
    for i in range(B):
        alone = torch.stack([roi_score(net, scans.bold[i, :, u], u) for u in range(P) if scans.alive[i, u]])
        torch.testing.assert_close(logit[i], alone.mean(), atol=1e-9, rtol=0)


def test_the_windows_of_a_scan_have_equal_votes(scans):
    n_frames = T // 2
    net = network(2, bold_frames=n_frames, bold_windows=2)
    assert net.embed.in_features == n_frames
    both = net(scans).logit
    net.bold_windows = 1
    parts = [net(scans._replace(bold=part)).logit for part in scans.bold.split(n_frames, 1)]
    torch.testing.assert_close(both, sum(parts) / 2)


def test_dropout_falls_on_drift_and_cycle_in_training_alone(scans):
    net = network(1, dropout=0.5)
    assert torch.equal(net(scans).logit, net(scans).logit)
    logits = [net(scans, make_step(B, key)).logit for key in (1, 1, 2)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])
    drift = net.blocks[0](torch.ones(B, P, D, dtype=torch.float64), make_step(B, 1))[0]
    assert 0.2 < float((drift == 0).double().mean()) < 0.8
