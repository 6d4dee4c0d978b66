"""No network starts degenerate: what it computes differs between ROIs, between scans and between classes.

A network whose states are the same for all ROIs can still be trained and scored, so no other test would show it.
"""

from functools import cache

import numpy as np
import pytest
import torch
from contract_cohorts import METHODS, neural, small, soak_variants
from torch import Tensor

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.training import NeuralMethod, Run, RunState, StepContext
from brio.training.stack import Stack

NETWORKS = [name for name in METHODS if neural(name) and isinstance(make_method(name), NeuralMethod)]
LEAST_SHARE = 1e-4
"""Of the mean square of states, or of a representation, that lies in differences."""

CONSTANT = {"xg-gnn-published": "learner"}
"""Modules that are degenerate in the published code, and in the variant that follows it."""

STATES_FOR_CLASSES = {"deci": "blocks.0.cycle"}
"""DeCI averages courses over all ROIs, of which few differ between classes: it is looked at before the average."""

N_ROIS = 28  # a length that no layer has, nor the readout of BrainNetTF with nine centres


@cache
def cohort() -> Connectomes:
    easy = {"stable": 1.5, "unstable": 0.0, "spurious": 0.0, "site_shift": 0.1, "dynamics": 3.0}
    return Connectomes(simulate(Simulation(n_sites=6, per_class=16, n_rois=N_ROIS, frames=100, **easy)))


class Start:
    """The network of a method as it starts, with the statistics of one batch, applied to all scans of the cohort."""

    def __init__(self, method: NeuralMethod) -> None:
        graphs = cohort()
        fold = leave_one_site_out(graphs.cohort, 0)[0]
        stack = Stack.build(method, graphs, [Run(fold, 0)])
        method.begin_stage(stack, method.stages()[0])
        for module in stack.network.modules():
            if hasattr(module, "momentum"):
                module.momentum = 1.0
        site = np.unique(graphs.cohort.sites[fold.source], return_inverse=True)[1]
        step = StepContext(torch.tensor(0), torch.ones(len(site)), torch.from_numpy(site))
        self.axes = {N_ROIS, *(t.shape[1] for name, t in stack.state.learned.items() if name == "u")}  # CORE: edges
        self.states: dict[str, Tensor] = {}
        with torch.no_grad():
            stack.network(stack.inputs.take(torch.from_numpy(fold.source))._replace(state=select_run(stack)), step)
            stack.buffers = {name: b.unsqueeze(0) for name, b in stack.network.named_buffers()}
            method.update_inference_state(stack)
            for name, module in stack.network.named_modules():
                module.register_forward_hook(lambda _, __, out, name=name: self.keep(name, out))
            out = stack.network.eval()(stack.inputs.take(torch.arange(len(graphs)))._replace(state=select_run(stack)))
        self.representation, self.label = out.representation.double(), graphs.cohort.labels.copy()

    def keep(self, name: str, out: object) -> None:
        """Keep states of ROIs (or of edges), tensors [B, ..., P, d]."""
        if isinstance(out, Tensor) and out.dim() >= 3 and out.shape[-2] in self.axes:
            self.states[name] = out.double()


def select_run(stack: Stack) -> RunState:
    return RunState(*({name: t[0] for name, t in group.items()} for group in stack.state))


def share_between(x: Tensor, axis: int) -> float:
    """Share of the mean square that lies in differences along an axis."""
    return float((x - x.mean(axis, keepdim=True)).square().mean() / x.square().mean())


def shares_between_rois(start: Start) -> dict[str, float]:
    return {name: share_between(x, -2) for name, x in start.states.items()}


def standardise_with_squares(x: Tensor) -> Tensor:
    """Units of x and their squares, both centred over scans."""
    z = (x - x.mean(0)) / x.std(0).clamp_min(1e-12)
    return torch.cat([z, z.square() - z.square().mean(0)], 1)


def explained_by_classes(z: Tensor, label: np.ndarray) -> float:
    """Share of the variance over scans that the classes explain."""
    gap = z[label == 1].mean(0) - z[label == 0].mean(0)
    return float(gap.square().sum() / z.square().mean(0).sum())


@cache
def start_of(name: str) -> Start:
    return Start(small(name, centres=9, bootstraps=10, edges=60))


@pytest.mark.parametrize("name", soak_variants(NETWORKS, also=("OOD",)))
def test_states_differ_between_rois(name):
    shares = shares_between_rois(start_of(name))
    if name in CONSTANT:
        assert shares.pop(CONSTANT[name]) < 1e-9, "its provenance says that this is constant"
    assert shares or name == "mlp"
    assert min(shares.values(), default=1.0) > LEAST_SHARE, shares


@pytest.mark.parametrize("name", soak_variants(NETWORKS))
def test_representations_differ_between_scans(name):
    assert share_between(start_of(name).representation, 0) > LEAST_SHARE


@pytest.mark.parametrize("name", soak_variants(NETWORKS))
def test_representations_differ_between_classes(name):
    start = start_of(name)
    states = STATES_FOR_CLASSES.get(name)
    x = start.representation if states is None else start.states[states].reshape(len(start.label), -1)
    permuted = [np.random.default_rng(k).permutation(start.label) for k in range(39)]
    z = standardise_with_squares(x)
    by_chance = [explained_by_classes(z, label) for label in permuted]
    assert explained_by_classes(z, start.label) > max(by_chance)
