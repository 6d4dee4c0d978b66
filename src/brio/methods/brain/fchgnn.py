"""FC-HGNN: an encoder of single scans by hemisphere, and attention over a population of source scans.

The encoder convolves within hemispheres and over the whole brain, and pools with two channels. A scan from another site
receives messages only from a bank of source scans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from ... import training
from ...cohort.covariates import read_covariates, read_hemispheres
from ...settings import Layers, LearningRate, PositiveShare, ShareBelowOne, Weight, Width, choice, setting
from ...training import RunState, Scans, SourceScans, Stack, Stage, StepContext, Tensors, TensorSpec
from ..layers import BatchNorm, Classifier, Dropout, GCNLayer, build_profiles, normalise_adjacency
from ..registry import method, redesign


class HemisphereLayer(nn.Module):
    """Graph convolution within each hemisphere, with separate weights; midline ROIs become zero."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.left, self.right = GCNLayer(n_in, n_out), GCNLayer(n_in, n_out)

    def forward(self, H: Tensor, within: Tensor, side: Tensor) -> Tensor:
        """Convolve the states of ROIs. Shapes: H [B, P, n_in], within [B, P, P], side [P]; returns [B, P, n_out]."""
        left, right = ((side == s).to(H.dtype).unsqueeze(-1) for s in (-1, 1))
        return left * F.leaky_relu(self.left(H, within)) + right * F.leaky_relu(self.right(H, within))


class ChebLayer(nn.Module):
    """Chebyshev convolution sum_k T_k(L) H W_k + b (Defferrard et al. 2016), L = -D^-1/2 A D^-1/2."""

    def __init__(self, n_in: int, n_out: int, order: int) -> None:
        super().__init__()
        self.order = order
        self.mix = nn.Linear(order * n_in, n_out)

    def forward(self, H: Tensor, A: Tensor) -> Tensor:
        """Convolve the states of ROIs. Shapes: H [B, P, n_in], A [B, P, P]; returns [B, P, n_out]."""
        degree = A.sum(-1, keepdim=True)
        root = torch.where(degree > 0, degree.clamp_min(1e-12).rsqrt(), torch.zeros_like(degree))
        terms = [H]
        for k in range(1, self.order):
            product = -root * (A @ (root * terms[-1]))
            terms.append(product if k == 1 else 2 * product - terms[-2])
        return self.mix(torch.cat(terms, -1))


class ScanEncoder(nn.Module):
    """Convolution within hemispheres and over the whole brain, then pooling with two channels.

    The local channel selects the ROIs with the highest scores and weights them by these (SAGPool, Lee et al. 2019). The
    global channel assigns ROIs softly to clusters. A selected ROI adds the features of its clusters, weighted by its
    assignment. Dropped ROIs leave zeros, so that every other ROI keeps its position when the graph is flattened.
    """

    def __init__(self, n_rois: int, s: FCHGNNSettings) -> None:
        super().__init__()
        self.alpha = s.alpha
        self.n_selected = max(1, math.ceil(s.kept_share * n_rois - 1e-9))
        self.first, self.second = HemisphereLayer(n_rois, s.width), HemisphereLayer(s.width, s.state)
        self.whole = GCNLayer(s.state, s.state)
        self.score_own, self.score_near = nn.Linear(s.state, 1), nn.Linear(s.state, 1, bias=False)
        self.assign = ChebLayer(s.state, max(2, math.ceil(s.cluster_share * n_rois - 1e-9)), 3)
        self.dropout = Dropout(s.dropout)

    def forward(self, scans: Scans, step: StepContext | None = None) -> Tensor:
        """Encode scans. Shapes: returns [B, P * width of a state]."""
        strength, side = scans.A.abs(), scans.state.learned["side"]
        edges = (strength > self.alpha).to(strength.dtype)
        weights = edges * strength
        within = normalise_adjacency(weights * (side[:, None] * side == 1).to(weights.dtype))
        H = self.first(self.dropout(build_profiles(scans), step), within, side)
        H = self.second(self.dropout(H, step), within, side)
        H = F.leaky_relu(self.whole(H, normalise_adjacency(weights)))
        local, selected = self.pool_locally(H, edges)
        assignment = self.assign(H, edges).softmax(-1)
        clusters = assignment.transpose(-1, -2) @ H
        return (selected * (local + assignment @ clusters)).flatten(1)

    def pool_locally(self, H: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Weight ROIs by their scores, and select those with the highest scores.

        Shapes: H [B, P, d], edges [B, P, P]; returns local [B, P, d], selected [B, P, 1].
        """
        score = (self.score_own(H) + edges @ self.score_near(H)).tanh()
        rank = score.detach().squeeze(-1).argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        return score * H, (rank < self.n_selected).to(H.dtype).unsqueeze(-1)


class ScanAttention(nn.Module):
    """Dot-product attention of scans over other scans (Shi et al. 2021): skip(x_i) + sum_j a_ij value(x_j)."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out)
        self.value, self.skip = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out)

    def compute_messages(self, x: Tensor) -> Tensor:
        """Compute the messages of scans: their keys and values. Shape [n, n_in] -> [n, 2 n_out]."""
        return torch.cat([self.key(x), self.value(x)], -1)

    def forward(self, x: Tensor, messages: Tensor, linked: Tensor) -> Tensor:
        """Update scans by the messages they receive.

        Shapes: x [B, n_in], messages [m, 2 n_out], linked [B, m]; returns [B, n_out].
        """
        key, value = messages.chunk(2, -1)
        score = self.query(x) @ key.T / math.sqrt(key.shape[-1])
        share = torch.where(linked, score, torch.full_like(score, -1e9)).softmax(-1) * linked.to(x.dtype)
        return self.skip(x) + share @ value


class PopulationLayer(nn.Module):
    """Attention over scans of the same sex and over those of the other sex, with weights that sum to one in total."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.same, self.other = ScanAttention(n_in, n_out), ScanAttention(n_in, n_out)
        # in memory, since elsewhere ("meta") torch imports its compiler for a logarithm
        self.balance = nn.Parameter(torch.tensor([0.8, 0.2], device="cpu").log())
        self.norm = BatchNorm(n_out)

    def forward(
        self, x: Tensor, same: Tensor, other: Tensor, bank: Tensor | None = None, step: StepContext | None = None
    ) -> tuple[Tensor, Tensor]:
        """Update scans by messages from each other, or from a bank.

        Shapes: x [B, n_in], same, other [B, m], bank [m, 4 n_out]; returns states [B, n_out], messages [B, 4 n_out].
        """
        messages = torch.cat([self.same.compute_messages(x), self.other.compute_messages(x)], -1)
        of_same, of_other = (messages if bank is None else bank).chunk(2, -1)
        weight = self.balance.softmax(0)
        x = weight[0] * self.same(x, of_same, same) + weight[1] * self.other(x, of_other, other)
        return F.leaky_relu(self.norm(x, step)), messages


class Population(nn.Module):
    """Layers over the population graph; a scan is represented by its states of all layers."""

    def __init__(self, n_in: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PopulationLayer(a, width) for a in [n_in, *[width] * (layers - 1)])
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, same: Tensor, other: Tensor, bank: Tensor | None = None, step: StepContext | None = None
    ) -> tuple[Tensor, Tensor]:
        """Pass messages between the scans of a batch, or from a bank to them.

        Shapes: x [B, n_in], same, other [B, m], bank [layers, m, 4 width]; returns states [B, layers * width], messages
        [layers, B, 4 width].
        """
        states, messages = [], []
        for number, layer in enumerate(self.layers):
            x, message = layer(self.dropout(x, step), same, other, None if bank is None else bank[number], step)
            states.append(x)
            messages.append(message)
        return torch.cat(states, -1), torch.stack(messages)


class Demographics(NamedTuple):
    """What the similarity of scans is computed from."""

    sex: Tensor  # [n]
    age: Tensor  # [n] in standard deviations of the source scans
    site: Tensor | None  # [n] None where sites are unknown or play no part


def find_neighbours(
    receivers: Demographics, senders: Demographics, candidate: Tensor, age_window: float, beta: float
) -> tuple[Tensor, Tensor]:
    """Find the scans from which each scan receives messages, of its own sex and of the other.

    The similarity of two scans is [ages alike] + [same site]. It must exceed its mean over the candidates of that sex
    by ``beta`` standard deviations. It is standardised within a sex: otherwise, no scan of an unknown site would ever
    receive messages from the other sex.

    Shapes: candidate [m] or [B, m]; returns [B, m].
    """
    similarity = ((receivers.age[:, None] - senders.age).abs() < age_window).to(receivers.age.dtype)
    if receivers.site is not None and senders.site is not None:
        similarity = similarity + (receivers.site[:, None] == senders.site).to(similarity.dtype)
    same_sex = receivers.sex[:, None] == senders.sex

    def select_similar(among: Tensor) -> Tensor:
        share = among.to(similarity.dtype)
        share = share / share.sum(-1, keepdim=True).clamp_min(1)
        mean = (share * similarity).sum(-1, keepdim=True)
        deviation = (share * (similarity - mean).square()).sum(-1, keepdim=True).sqrt()
        return among & (similarity > mean + beta * deviation + 1e-5)  # similarity is 0, 1 or 2: a tie is not above

    return select_similar(same_sex & candidate), select_similar(~same_sex & candidate)


def exclude_self(n: int, device: torch.device) -> Tensor:
    """Make the mask that lets a scan receive messages from every scan except itself. Shape [n, n], bool."""
    return ~torch.eye(n, dtype=torch.bool, device=device)


def select_bank(stack: Stack, per_cell: int) -> tuple[np.ndarray, np.ndarray]:
    """Select the scans of each run's bank: the same number from each source site and class, drawn by the run's seed.

    Shapes: returns index [R, E * 2 * per_cell].
    """
    ordered, slot = stack.sources.shuffle("bank"), np.arange(per_cell)
    index = ordered[..., np.minimum(slot, ordered.shape[-1] - 1)]
    return index.reshape(len(stack), -1), (slot < stack.sources.size[..., None]).reshape(len(stack), -1)


@dataclass(frozen=True)
class FCHGNNSettings(training.NeuralSettings):
    """Settings of FC-HGNN.

    Attributes
    ----------
    alpha : float
        Absolute FC above which two ROIs of a scan are connected.
    width, state : int
        Width of the first hemisphere layer, and width of every later state.
    layers : int
        Number of layers in the population graph.
    dropout : float
        Share of the hidden values dropped in training.
    kept_share : float
        Share of the ROIs that the local pooling channel keeps.
    cluster_share : float
        Number of clusters in the global channel, as a share of the number of ROIs.
    beta : float
        A scan receives messages from scans whose similarity to it is more than this many standard deviations above the
        mean. The published value, 1.5, is for similarity by site; for similarity by age, it would leave a third of the
        scans of ABIDE without a neighbour of the same sex.
    age_window : float
        Two ages are similar if they differ by less than this many standard deviations of age in the source scans
        (published: two years).
    site_likeness : bool
        Whether two source scans are more similar if they are from the same site.
    bank : int
        Number of source scans of each site and class in the bank, from which scans receive messages at inference.
    """

    learning_rate: LearningRate = setting(3e-3, choice(1e-3, 3e-3, 1e-2))
    weight_decay: Weight = 5e-5
    alpha: Weight = 0.65
    width: Width = 64
    state: Width = 20
    layers: Layers = 4
    dropout: ShareBelowOne = setting(0.3, choice(0.3, 0.5))
    kept_share: PositiveShare = 0.9
    cluster_share: PositiveShare = 0.5
    beta: Weight = 1.0
    age_window: Weight = 0.25
    site_likeness: bool = setting(True, choice(True, False))
    bank: Annotated[int, Meta(ge=1, le=1_000)] = 4


class FCHGNNOutput(NamedTuple):
    """An :class:`~brio.training.Output`, and the encoded scans that the population layers read."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, layers * state]
    embedding: Tensor  # [B, P * state]


class FCHGNNNetwork(nn.Module):
    """An encoder of single scans, then layers over their population: the batch in training, the bank at inference."""

    def __init__(self, shape: training.InputShape, s: FCHGNNSettings) -> None:
        super().__init__()
        self.site_likeness, self.age_window, self.beta = s.site_likeness, s.age_window, s.beta
        self.encode = ScanEncoder(shape.n_rois, s)
        self.population = Population(shape.n_rois * s.state, s.state, s.layers, s.dropout)
        self.classify = nn.Linear(s.layers * s.state, 1)

    def forward(self, scans: Scans, step: StepContext | None = None) -> FCHGNNOutput:
        """Compute logits, representations and encoded scans."""
        embedding = self.encode(scans, step)
        age_mean, age_deviation = scans.state.learned["age"]
        sex, age = scans.covariates[:, 0], (scans.covariates[:, 1] - age_mean) / age_deviation
        if step is not None:
            batch = Demographics(sex, age, step.site if self.site_likeness else None)
            candidate = exclude_self(len(sex), sex.device) & (step.real > 0)
            same, other = find_neighbours(batch, batch, candidate, self.age_window, self.beta)
            states, _ = self.population(embedding, same, other, None, step)
        else:
            bank, scan = scans.state.inference, Demographics(sex, age, None)
            senders = Demographics(bank["bank_sex"], bank["bank_age"], None)
            same, other = find_neighbours(scan, senders, bank["bank_real"] > 0, self.age_window, self.beta)
            states, _ = self.population(embedding, same, other, bank["bank_messages"])
        return FCHGNNOutput(self.classify(states).squeeze(-1), states, embedding)


@method(
    "fc-hgnn",
    family="brain networks",
    needs={"sex", "age", "hemisphere", "sites"},
    reference="Gu et al., FC-HGNN, Information Fusion 2025",
    provenance=redesign(
        "the population graph of the published code contains the scans of the unseen site, and most of these scans "
        "receive messages only from each other; ours connects each scan to a bank of source scans. That code also "
        "chooses the epoch by test accuracy, sends messages only from earlier to later scans and mixes up ROIs between "
        "its pooling channels"
    ),
)
class FCHGNN(Classifier):
    """Graph network on hemispheres, the whole brain and a population typed by sex; only source scans send messages.

    A fitted run holds sex, standardised age and the messages of the scans in its bank, but not their connectomes.
    """

    settings: FCHGNNSettings
    network_class = FCHGNNNetwork

    @property
    def facts(self) -> training.MethodFacts:
        kept = "the sex, standardised age and messages of the source scans in its bank"
        return replace(super().facts, holds=f"neural network weights and {kept}", keeps_scans=kept)

    def learn(self, source: SourceScans) -> Tensors:
        """Learn the mean connectome, the hemisphere of each ROI, and the mean and standard deviation of age."""
        graphs, needed_by = source.connectomes, f"method '{self.name}'"
        age = read_covariates(graphs.cohort, ["age"], needed_by)[source.scans, 0]
        arrays = {"side": read_hemispheres(graphs.cohort, needed_by), "age": np.array([age.mean(), age.std() or 1.0])}
        tensors = {name: torch.tensor(a, device=graphs.device, dtype=graphs.dtype) for name, a in arrays.items()}
        return super().learn(source) | tensors

    def declare_state(self, n_rois: int) -> dict[str, TensorSpec]:
        bank, s = TensorSpec(("scans",)), self.settings
        declared = super().declare_state(n_rois) | {"learned.side": TensorSpec((n_rois,))}
        declared |= {"learned.age": TensorSpec((2,)), "inference.bank_real": bank, "inference.bank_sex": bank}
        return declared | {
            "inference.bank_age": bank,
            "inference.bank_messages": TensorSpec((s.layers, "scans", 4 * s.state)),
        }

    def begin_stage(self, stack: Stack, stage: Stage) -> None:
        """Allocate the bank, and store the sex and age of its scans.

        It is in ``stack.state.inference``: ``bank_real``, ``bank_sex`` and ``bank_age``, shape [R, m], and
        ``bank_messages``, shape [R, layers, m, 4 * state], for m scans.
        """
        s = self.settings
        index, real = select_bank(stack, s.bank)
        sex_and_age = stack.to_tensor(
            read_covariates(stack.connectomes.cohort, ["sex", "age"], f"method '{self.name}'")[index]
        )
        moments, filled = stack.state.learned["age"], stack.to_tensor(real.astype(float))
        bank = stack.state.inference
        bank["bank_real"] = filled
        bank["bank_sex"] = filled * sex_and_age[..., 0]
        bank["bank_age"] = filled * (sex_and_age[..., 1] - moments[:, :1]) / moments[:, 1:]
        bank["bank_messages"] = filled.new_zeros(len(stack), s.layers, index.shape[1], 4 * s.state)

    @torch.no_grad()
    def update_inference_state(self, stack: Stack) -> None:
        """Pass messages between the scans of the bank, and store those of each layer."""
        s = self.settings
        index = stack.to_tensor(select_bank(stack, s.bank)[0])
        passes = index.split(stack.scans_per_pass(len(stack)), 1)
        embedding = torch.cat([stack.forward(stack.inputs.take(i)).embedding for i in passes], 1)
        tensors = {
            name.removeprefix("population."): t
            for name, t in (stack.params | stack.buffers).items()
            if name.startswith("population.")
        }
        population = stack.network.get_submodule("population")
        n = index.shape[1]
        site = torch.arange(n, device=index.device) // (2 * s.bank)

        def compute_messages(tensors: Tensors, x: Tensor, sex: Tensor, age: Tensor, real: Tensor) -> Tensor:
            scans = Demographics(sex, age, site if s.site_likeness else None)
            candidate = exclude_self(n, x.device) & (real > 0)
            same, other = find_neighbours(scans, scans, candidate, s.age_window, s.beta)
            return torch.func.functional_call(population, tensors, (x, same, other))[1] * real[:, None]

        bank = stack.state.inference
        inputs = (embedding, bank["bank_sex"], bank["bank_age"], bank["bank_real"])
        bank["bank_messages"].copy_(torch.vmap(compute_messages)(tensors, *inputs))

    def remove_padding(self, parameters: Tensors, state: RunState, n_sites: int) -> tuple[Tensors, RunState]:
        """Keep the part of the bank that belongs to the source sites of the run."""
        n, bank = 2 * n_sites * self.settings.bank, state.inference
        own = {name: bank[name][:n] for name in ("bank_real", "bank_sex", "bank_age")}
        own["bank_messages"] = bank["bank_messages"][:, :n]
        return parameters, state._replace(inference={name: t.contiguous().clone() for name, t in own.items()})
