"""CEPG, as we read its title and one-sentence description.

The environment of a scan (its site) guides which of its edges are kept as invariant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from ...domains import InnerShare, Weight
from ...settings import setting
from ...spaces import choice
from ...training import Batch, InputShape, Output, RunState, Stage, StepContext, Tensors
from ..edges import (
    EdgeMethod,
    EdgeMLP,
    EdgeNetwork,
    Edges,
    EdgeSettings,
    GINEncoder,
    average_directions,
    bernoulli_kl,
    find_keep_rate,
    list_edges,
    plan_decay_stages,
    sample_concrete,
    scatter_edges,
)
from ..losses import average_by_site, average_losses, bce, classification_loss, reverse_gradient, site_cross_entropy
from ..ood.dann import ramp_up
from ..provenance import reconstruct
from ..registry import method


@dataclass(frozen=True)
class CEPGSettings(EdgeSettings):
    """Settings of CEPG."""

    environment: Weight = 0.5  # weight of classifying the source site from the complement
    adversary: Weight = setting(0.1, choice(0.03, 0.1, 0.3))
    information: Weight = setting(0.1, choice(0.1, 1.0))
    risk_variance: Weight = setting(1.0, choice(0.1, 1.0, 10.0))
    final_r: InnerShare = 0.5  # last value of the share of edges that the prior keeps


class CEPGOutput(NamedTuple):
    """Output in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width] kept part
    edge_sample: Tensor  # [B, 2 M] relaxed sample of each edge
    edges: Edges
    site_of_rest: Tensor  # [B, E] site logits from the complement
    site_of_kept: Tensor  # [B, E] site logits from the kept part, gradient reversed


class CEPGNetwork(EdgeNetwork):
    """Score the edges of a graph twice with one GIN and one edge MLP.

    The first scores split the graph; the complement gives the environment code z_s, from which the site is classified.
    The second scores come from ROI states gated by z_s, and the part they keep is classified. A gate is used because a
    code added to every edge of a graph would vanish in the instance normalisation.
    """

    def __init__(self, shape: InputShape, s: CEPGSettings) -> None:
        super().__init__()
        self.edge_share = s.edge_share
        self.encoder = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout)
        self.score = EdgeMLP(s.width, (4 * s.edge_width, s.edge_width), s.edge_dropout)
        self.gate = nn.Linear(s.width, s.width)
        self.classify = nn.Linear(s.width, 1)
        self.site_of_rest = nn.Linear(s.width, shape.n_sites)
        self.site_of_kept = nn.Linear(s.width, shape.n_sites)
        for p in (*self.site_of_rest.parameters(), *self.site_of_kept.parameters()):
            nn.init.zeros_(p)  # as many rows as the stack has sites, on which no random draw may depend

    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> CEPGOutput | Output:
        edges = list_edges(A, self.edge_share)
        H = self.encoder(X, A, step)
        first = sample_concrete(self.score(H, edges, step), step)
        z_s = self._encode_part(X, 1 - first, edges, step)
        edge_sample = sample_concrete(self.score(self.gate_states(H, z_s), edges, step), step)
        z_c = self._encode_part(X, edge_sample, edges, step)
        out = Output(self.classify(z_c).squeeze(-1), z_c)
        if step is None:
            return out
        return CEPGOutput(
            *out, edge_sample, edges, self.site_of_rest(z_s), self.site_of_kept(reverse_gradient(z_c, 1.0))
        )

    def gate_states(self, H: Tensor, z_s: Tensor) -> Tensor:
        """Scale the channels of ROI states [B, P, d] by the environment code [B, d], which gets no gradient."""
        return H * 2 * self.gate(z_s.detach()).sigmoid().unsqueeze(1)

    def _encode_part(self, X: Tensor, weight: Tensor, edges: Edges, step: StepContext | None) -> Tensor:
        return self.encoder(X, scatter_edges(average_directions(weight), edges, X.shape[-1]), step).mean(1)


@method(
    "cepg",
    family="graph OOD",
    needs={"sites"},
    provenance=reconstruct(
        "neither text nor code was found; from its title, a one-sentence description and the related LECI"
    ),
    reference="Wang et al. 2026",
)
class CEPG(EdgeMethod):
    """Environment-promoted invariant learning: the part that predicts the site guides which edges are kept."""

    Settings = CEPGSettings
    settings: CEPGSettings
    training_only = ("site_of_rest", "site_of_kept")
    peak_matrices_per_scan = 150.0

    def network(self, shape: InputShape) -> nn.Module:
        return CEPGNetwork(shape, self.settings)

    def stages(self) -> list[Stage]:
        return plan_decay_stages(self.settings.epochs, self.settings.final_r)

    def loss(self, out: CEPGOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        """Sum the losses of all terms.

        They are the class, the site from the complement, the adversarial site from the kept part, information, and the
        variance of the risks over sites.
        """
        s = self.settings
        r = find_keep_rate(batch.epoch, stage, s.epochs, s.final_r)
        risks = average_by_site(bce(out.logit, batch.label), batch)
        mean = (batch.site_weight * risks).sum()
        return (
            classification_loss(out.logit, batch)
            + s.environment * site_cross_entropy(out.site_of_rest, batch)
            + s.adversary * ramp_up(batch.epoch, s.epochs) * site_cross_entropy(out.site_of_kept, batch)
            + s.information * average_losses(bernoulli_kl(out.edge_sample, out.edges, r), batch)
            + s.risk_variance * (batch.site_weight * (risks - mean).square()).sum()
        )

    def remove_padding(self, parameters: Tensors, state: RunState, n_sites: int) -> tuple[Tensors, RunState]:
        """Keep the rows of the site classifiers that belong to the source sites of the run."""
        classifiers = {name: p for name, p in parameters.items() if name.startswith(("site_of_rest.", "site_of_kept."))}
        return parameters | {name: p[:n_sites].contiguous().clone() for name, p in classifiers.items()}, state
