"""FC-HGNN: hemispheres and whole brain, dual-channel pooling, and a population graph typed by sex, made inductive.

A scan hears scans of its population that resemble it: those of its batch in training, and at inference a bank of
source scans. Nobody hears a scan of an unseen site.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...cohort.covariates import read_covariates, read_hemispheres
from ...settings import require, setting
from ...spaces import choice
from ...training import (
    Batch,
    InputShape,
    NeuralMethod,
    RunState,
    Scans,
    SourceScans,
    Stack,
    Stage,
    StepContext,
    Tensors,
)
from ..graphs import build_profiles, normalise_adjacency
from ..layers import Dropout, GCNLayer
from ..losses import classification_loss
from ..registry import follow_paper, method
from ..settings import BaselineSettings
from .population import Member, Population, bank_scans, neighbours, others

__all__ = [
    "FCHGNN",
    "Brain",
    "ChebLayer",
    "FCHGNNNetwork",
    "FCHGNNSettings",
    "HemisphereLayer",
]


@dataclass(frozen=True)
class FCHGNNSettings(BaselineSettings):
    """Settings of FC-HGNN.

    Attributes
    ----------
    alpha : float
        Edges of a scan are those with a larger absolute FC.
    width, state : int
        Width of the first hemisphere layer, and of every state after it.
    layers : int
        Layers of the population graph.
    dropout : float
    kept_share : float
        Share of the ROIs that the local pooling channel keeps.
    cluster_share : float
        Clusters of the global channel, as a share of the number of ROIs.
    beta : float
        A scan hears those whose likeness is more than so many standard deviations above the mean. Published with 1.5
        for likeness of site; with age in its place, that leaves a third of ABIDE with nobody of their sex to hear.
    age_window : float
        Ages count as alike within so many standard deviations of the source scans' age (published: two years).
    site_likeness : bool
        Among source scans, a common site adds to the likeness.
    bank : int
        Source scans of each site and class that a scan hears at inference.
    """

    learning_rate: float = setting(3e-3, choice(1e-3, 3e-3, 1e-2))
    weight_decay: float = 5e-5
    alpha: float = 0.65
    width: int = 64
    state: int = 20
    layers: int = 4
    dropout: float = setting(0.3, choice(0.3, 0.5))
    kept_share: float = 0.9
    cluster_share: float = 0.5
    beta: float = 1.0
    age_window: float = 0.25
    site_likeness: bool = setting(True, choice(True, False))
    bank: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "state", "layers", "bank"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("kept_share", "cluster_share"):
            require(0 < getattr(self, name) <= 1, name, getattr(self, name), "above 0 and at most 1")
        for name in ("alpha", "beta", "age_window"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "0 or more and below 1")


class HemisphereLayer(nn.Module):
    """Graph convolution within each hemisphere, with weights of its own; ROIs of the midline come out as zeros."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.left, self.right = GCNLayer(n_in, n_out), GCNLayer(n_in, n_out)

    def forward(self, H: Tensor, within: Tensor, side: Tensor) -> Tensor:
        """H: [B, P, n_in]; within: [B, P, P], normalised, without edges between sides; side: [P], -1, 0 or 1."""
        left, right = ((side == s).to(H.dtype).unsqueeze(-1) for s in (-1, 1))
        return left * F.leaky_relu(self.left(H, within)) + right * F.leaky_relu(self.right(H, within))


class ChebLayer(nn.Module):
    """Chebyshev convolution sum_k T_k(L) H W_k + b (Defferrard et al. 2016), L = -D^-1/2 A D^-1/2."""

    def __init__(self, n_in: int, n_out: int, order: int) -> None:
        super().__init__()
        self.order = order
        self.mix = nn.Linear(order * n_in, n_out)

    def forward(self, H: Tensor, A: Tensor) -> Tensor:
        """H: [B, P, n_in]; A: [B, P, P], symmetric, not negative, zero diagonal."""
        degree = A.sum(-1, keepdim=True)
        root = torch.where(degree > 0, degree.clamp_min(1e-12).rsqrt(), torch.zeros_like(degree))
        terms = [H]
        for k in range(1, self.order):
            step = -root * (A @ (root * terms[-1]))
            terms.append(step if k == 1 else 2 * step - terms[-2])
        return self.mix(torch.cat(terms, -1))


class Brain(nn.Module):
    """One scan: convolution within hemispheres, over the whole brain, then pooling by two channels.

    The local channel keeps the ROIs of highest score and weighs them by it (SAGPool, Lee et al. 2019); the global one
    softly assigns ROIs to clusters. A kept ROI takes up its clusters' features as it is assigned to them. Dropped ROIs
    leave zeros behind, so that every other one stays at its place when the graph is flattened.
    """

    def __init__(self, n_rois: int, s: FCHGNNSettings) -> None:
        super().__init__()
        self.alpha = s.alpha
        self.kept = max(1, math.ceil(s.kept_share * n_rois - 1e-9))
        self.first, self.second = HemisphereLayer(n_rois, s.width), HemisphereLayer(s.width, s.state)
        self.whole = GCNLayer(s.state, s.state)
        self.score_own, self.score_near = nn.Linear(s.state, 1), nn.Linear(s.state, 1, bias=False)
        self.assign = ChebLayer(s.state, max(2, math.ceil(s.cluster_share * n_rois - 1e-9)), 3)
        self.dropout = Dropout(s.dropout)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> Tensor:
        """Shape [B, P * state]."""
        strength, side = scans.A.abs(), state.learned["side"]
        edges = (strength > self.alpha).to(strength.dtype)
        weights = edges * strength
        within = normalise_adjacency(weights * (side[:, None] * side == 1).to(weights.dtype))
        H = self.first(self.dropout(build_profiles(scans, state), step), within, side)
        H = self.second(self.dropout(H, step), within, side)
        H = F.leaky_relu(self.whole(H, normalise_adjacency(weights)))
        local, kept = self.local_channel(H, edges)
        assignment = self.assign(H, edges).softmax(-1)
        clusters = assignment.transpose(-1, -2) @ H
        return (kept * (local + assignment @ clusters)).flatten(1)

    def local_channel(self, H: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """States weighed by their score, and 1 for the ROIs of highest score. Shapes [B, P, d], [B, P, 1]."""
        score = (self.score_own(H) + edges @ self.score_near(H)).tanh()
        rank = score.detach().squeeze(-1).argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        return score * H, (rank < self.kept).to(H.dtype).unsqueeze(-1)


class FCHGNNOutput(NamedTuple):
    """An :class:`~brio.training.Output` and the flattened graph that the population works on."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, layers * state]
    embedding: Tensor  # [B, P * state]


class FCHGNNNetwork(nn.Module):
    """Brains, then their population: the batch in training, the bank at inference."""

    def __init__(self, shape: InputShape, s: FCHGNNSettings) -> None:
        super().__init__()
        self.site_likeness, self.rule = s.site_likeness, (s.age_window, s.beta)
        self.brain = Brain(shape.n_rois, s)
        self.population = Population(shape.n_rois * s.state, s.state, s.layers, s.dropout)
        self.classify = nn.Linear(s.layers * s.state, 1)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> FCHGNNOutput:
        embedding = self.brain(scans, state, step)
        age_mean, age_deviation = state.learned["age"]
        sex, age = scans.covariates[:, 0], (scans.covariates[:, 1] - age_mean) / age_deviation
        if step is not None:
            batch = Member(sex, age, step.site if self.site_likeness else None)
            same, other = neighbours(batch, batch, others(len(sex), sex.device) & (step.real > 0), *self.rule)
            states, _ = self.population(embedding, same, other, None, step)
        else:
            held = state.inference
            bank = Member(held["bank_sex"], held["bank_age"], None)
            same, other = neighbours(Member(sex, age, None), bank, held["bank_real"] > 0, *self.rule)
            states, _ = self.population(embedding, same, other, held["bank_sent"])
        return FCHGNNOutput(self.classify(states).squeeze(-1), states, embedding)


@method(
    "fc-hgnn",
    family="brain networks",
    needs={"sex", "age", "hemisphere", "sites"},
    reference="Gu et al., FC-HGNN, Information Fusion 2025",
    provenance=follow_paper(
        "it puts scans of the unseen site into the population graph, chooses the epoch by test accuracy, "
        "lets messages run from earlier to later scans only and mixes up ROIs between its pooling channels"
    ),
)
class FCHGNN(NeuralMethod):
    """Hemispheres, whole brain and a population graph typed by sex, heard from source scans alone.

    A fitted run holds sex, standardised age and layer-wise messages of the scans in its bank, and no connectome.
    """

    Settings = FCHGNNSettings
    settings: FCHGNNSettings

    def network(self, shape: InputShape) -> nn.Module:
        return FCHGNNNetwork(shape, self.settings)

    def learn(self, source: SourceScans) -> Tensors:
        """Beside the mean connectome: sides of the ROIs, mean and standard deviation of the source scans' age."""
        graphs, who = source.connectomes, f"method '{self.name}'"
        age = read_covariates(graphs.cohort, ["age"], who)[source.scans, 0]
        found = {"side": read_hemispheres(graphs.cohort, who), "age": np.array([age.mean(), age.std() or 1.0])}
        held = {name: torch.tensor(a, device=graphs.device, dtype=graphs.dtype) for name, a in found.items()}
        return super().learn(source) | held

    def loss(self, out: FCHGNNOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        return classification_loss(out.logit, batch)

    def begin_stage(self, stack: Stack, stage: Stage) -> None:
        """Room for the bank, and what is known of its scans from the start."""
        s = self.settings
        index, real = bank_scans(stack, s.bank)
        known = stack.tensor(read_covariates(stack.connectomes.cohort, ["sex", "age"], f"method '{self.name}'")[index])
        moments, filled = stack.state.learned["age"], stack.tensor(real.astype(float))
        bank = stack.state.inference
        bank["bank_real"] = filled
        bank["bank_sex"] = filled * known[..., 0]
        bank["bank_age"] = filled * (known[..., 1] - moments[:, :1]) / moments[:, 1:]
        bank["bank_sent"] = filled.new_zeros(len(stack), s.layers, index.shape[1], 4 * s.state)

    @torch.no_grad()
    def update_inference_state(self, stack: Stack) -> None:
        """Let the scans of the bank hear each other, and hold what they send at each layer."""
        s = self.settings
        index = stack.tensor(bank_scans(stack, s.bank)[0])
        passes = index.split(stack.graphs_in_a_pass(len(stack)), 1)
        embedding = torch.cat([stack.forward(stack.inputs.take(i)).embedding for i in passes], 1)
        held = {
            name.removeprefix("population."): t
            for name, t in (stack.params | stack.buffers).items()
            if name.startswith("population.")
        }
        population = stack.network.get_submodule("population")  # in inference mode since the passes above
        n = index.shape[1]
        site = torch.arange(n, device=index.device) // (2 * s.bank)

        def sent(held: dict[str, Tensor], x: Tensor, sex: Tensor, age: Tensor, real: Tensor) -> Tensor:
            bank = Member(sex, age, site if s.site_likeness else None)
            same, other = neighbours(bank, bank, others(n, x.device) & (real > 0), s.age_window, s.beta)
            return torch.func.functional_call(population, held, (x, same, other))[1] * real[:, None]

        bank = stack.state.inference
        covariates = (bank[f"bank_{name}"] for name in ("sex", "age", "real"))
        bank["bank_sent"].copy_(torch.vmap(sent)(held, embedding, *covariates))

    def remove_padding(self, parameters: Tensors, state: RunState, n_sites: int) -> tuple[Tensors, RunState]:
        """Keep the bank of the run's own source sites."""
        n, bank = 2 * n_sites * self.settings.bank, state.inference
        own = {name: bank[name][:n] for name in ("bank_real", "bank_sex", "bank_age")}
        own["bank_sent"] = bank["bank_sent"][:, :n]
        return parameters, state._replace(inference={name: t.contiguous().clone() for name, t in own.items()})
