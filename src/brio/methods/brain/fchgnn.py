"""FC-HGNN: hemispheres and whole brain, two-channel pooling, and a population graph typed by sex, made inductive.

A scan receives messages from similar scans: those of its batch in training, and a bank of source scans at inference. No
scan receives messages from a test site.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...cohort.covariates import read_covariates, read_hemispheres
from ...domains import Domain, Layers, LearningRate, PositiveShare, ShareBelowOne, Weight, Width
from ...settings import setting
from ...spaces import choice
from ...training import (
    Batch,
    InputShape,
    MethodFacts,
    NeuralMethod,
    NeuralSettings,
    RunState,
    Scans,
    SourceScans,
    Stack,
    Stage,
    StepContext,
    Tensors,
    TensorSpec,
)
from ..losses import classification_loss
from ..provenance import redesign
from ..registry import method
from .hemispheres import ScanEncoder
from .population import Demographics, Population, exclude_self, find_neighbours, select_bank


@dataclass(frozen=True)
class FCHGNNSettings(NeuralSettings):
    """Settings of FC-HGNN."""

    learning_rate: LearningRate = setting(3e-3, choice(1e-3, 3e-3, 1e-2))
    weight_decay: Weight = 5e-5
    alpha: Weight = 0.65  # edges of a scan are those with a larger absolute FC
    width: Width = 64  # width of the first hemisphere layer, and of every state after it
    state: Width = 20
    layers: Layers = 4  # layers of the population graph
    dropout: ShareBelowOne = setting(0.3, choice(0.3, 0.5))
    kept_share: PositiveShare = 0.9  # share of the ROIs that the local pooling channel keeps
    cluster_share: PositiveShare = 0.5  # clusters of the global channel, as a share of the number of ROIs
    beta: Weight = 1.0
    age_window: Weight = 0.25
    site_likeness: bool = setting(True, choice(True, False))
    bank: Annotated[int, Domain(1, 1_000)] = 4


class FCHGNNOutput(NamedTuple):
    """An :class:`~brio.training.Output`, and the encoded scans that the population layers read."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, layers * state]
    embedding: Tensor  # [B, P * state]


class FCHGNNNetwork(nn.Module):
    """An encoder of single scans, then layers over their population: the batch in training, the bank at inference."""

    def __init__(self, shape: InputShape, s: FCHGNNSettings) -> None:
        super().__init__()
        self.site_likeness, self.age_window, self.beta = s.site_likeness, s.age_window, s.beta
        self.encode = ScanEncoder(
            shape.n_rois,
            s.width,
            s.state,
            alpha=s.alpha,
            kept_share=s.kept_share,
            cluster_share=s.cluster_share,
            dropout=s.dropout,
        )
        self.population = Population(shape.n_rois * s.state, s.state, s.layers, s.dropout)
        self.classify = nn.Linear(s.layers * s.state, 1)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> FCHGNNOutput:
        """Compute logits, representations and encoded scans."""
        embedding = self.encode(scans, state, step)
        age_mean, age_deviation = state.learned["age"]
        sex, age = scans.covariates[:, 0], (scans.covariates[:, 1] - age_mean) / age_deviation
        if step is not None:
            batch = Demographics(sex, age, step.site if self.site_likeness else None)
            candidate = exclude_self(len(sex), sex.device) & (step.real > 0)
            same, other = find_neighbours(batch, batch, candidate, self.age_window, self.beta)
            states, _ = self.population(embedding, same, other, None, step)
        else:
            bank, scan = state.inference, Demographics(sex, age, None)
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
        "the population graph of the published code holds the scans of the unseen site, most of which receive messages "
        "from each other only; ours connects a scan to a bank of source scans. The published code also chooses the "
        "epoch by test accuracy, lets messages run from earlier to later scans only and mixes up ROIs between its "
        "pooling channels"
    ),
)
class FCHGNN(NeuralMethod):
    """Hemispheres, whole brain and a population graph typed by sex, with messages from source scans only.

    A fitted run holds sex, standardised age and the messages of the scans in its bank, and none of their connectomes.
    """

    Settings = FCHGNNSettings
    settings: FCHGNNSettings

    @property
    def facts(self) -> MethodFacts:
        kept = "sex, standardised age and messages of the source scans in its bank"
        return replace(super().facts, holds=f"weights of a network, and {kept}", keeps_scans=f"it holds {kept}")

    def network(self, shape: InputShape) -> nn.Module:
        return FCHGNNNetwork(shape, self.settings)

    def learn(self, source: SourceScans) -> Tensors:
        """Learn the mean connectome, the hemisphere of each ROI, and mean and standard deviation of age."""
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

    def loss(self, out: FCHGNNOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        return classification_loss(out.logit, batch)

    def begin_stage(self, stack: Stack, stage: Stage) -> None:
        """Allocate the bank, and put in sex and age of its scans.

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
