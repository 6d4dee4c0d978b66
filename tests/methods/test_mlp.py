"""The perceptron against one made of torch.nn on the entries that linear models read."""

import pytest
import torch
from torch import nn

from brio.methods.linear.base import vectorise_fc
from brio.methods.mlp import MLPNetwork, MLPSettings
from brio.training import InputShape, RunState, Scans, StepContext

P, B = 9, 12


def draw_scans():
    torch.manual_seed(1)
    A = torch.randn(B, P, P).tril(-1)
    A = A + A.mT
    alive = torch.ones(B, P, dtype=torch.bool)
    alive[2, 4] = False
    A[2, 4] = A[2, :, 4] = 0
    mean = torch.randn(P, P).tril(-1)
    return Scans.of(A, alive)._replace(state=RunState.from_learned(mean=mean + mean.mT))


def train_step() -> StepContext:
    return StepContext(torch.tensor(0), torch.ones(B), torch.zeros(B, dtype=torch.long))


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_network_is_that_of_torch_on_the_entries_of_linear_models(norm, training):
    scans = draw_scans()
    net = MLPNetwork(InputShape(P, 1, 0), MLPSettings(width=7, norm=norm))
    x = torch.from_numpy(vectorise_fc(scans, scans.state.learned["mean"])).float()
    assert x.shape == (B, P * (P - 1) // 2)
    theirs = nn.Sequential(net.hidden, nn.BatchNorm1d(7) if norm else nn.Identity(), nn.ReLU()).train(training)
    hidden = theirs(x)
    if training:
        hidden = hidden * (train_step().draw_uniform((B, 7), x) >= 0.5) / 0.5
    out = net(scans, train_step() if training else None)
    torch.testing.assert_close(out.representation, hidden)
    torch.testing.assert_close(out.logit, net.classify(hidden)[:, 0])
