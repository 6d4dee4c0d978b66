"""Methods that select the part of a graph that generalises across sites: GSAT, DisC, CEPG and DiSCO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from ..settings import InnerShare, Layers, PositiveShare, ShareBelowOne, Temperature, Weight, Width, choice, setting
from ..training import Batch, InputShape, Output, Stage, StepContext
from . import layers
from .edges import scorer
from .edges.scorer import EdgeMethod, EdgeMLP, EdgeNetwork, Edges, EdgeSettings, GINEncoder
from .ood import ramp_up, vrex_penalty
from .registry import follow_code, follow_paper, method, reconstruct


@dataclass(frozen=True)
class GSATSettings(EdgeSettings):
    """Settings of GSAT.

    Attributes
    ----------
    final_r : float
        Final value of r, the share of edges that the prior keeps; r starts at 0.9 and falls by 0.1 after every tenth of
        the epochs.
    information : float
        Weight of the information term.
    """

    final_r: InnerShare = setting(0.7, choice(0.5, 0.7))
    information: Weight = setting(1.0, choice(0.1, 1.0))


class GSATOutput(NamedTuple):
    """Output in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, width]
    edge_sample: Tensor  # [B, 2 M] attention sampled for each direction of each edge
    edges: Edges


class GSATNetwork(EdgeNetwork):
    """One GIN, applied to the whole graph to score its edges, and again to the graph weighted by attention.

    The readout is the mean over ROIs. The published readout is the sum; the two differ by a constant factor, because
    all graphs have P ROIs.
    """

    def __init__(self, shape: InputShape, s: EdgeSettings) -> None:
        super().__init__()
        self.edge_share = s.edge_share
        self.encoder = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout)
        self.score = EdgeMLP(s.width, (4 * s.edge_width, s.edge_width), s.edge_dropout)
        self.classify = nn.Linear(s.width, 1)

    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> GSATOutput | Output:
        edges = scorer.list_edges(A, self.edge_share)
        edge_sample = scorer.sample_concrete(self.score(self.encoder(X, A, step), edges, step), step)
        weights = scorer.scatter_edges(scorer.average_directions(edge_sample), edges, A.shape[-1])
        pooled = self.encoder(X, weights, step).mean(1)
        out = Output(self.classify(pooled).squeeze(-1), pooled)
        return GSATOutput(*out, edge_sample, edges) if step is not None else out


@method(
    "gsat",
    family="graph OOD",
    provenance=follow_code(
        "the MLP that scores edges has hidden layers of 32 and 8 units instead of 256 and 64, which need 60 times as "
        "much computation per edge; edge_width=64 restores the published sizes"
    ),
    reference="Miao et al. 2022",
)
class GSAT(EdgeMethod):
    """Graph stochastic attention: noisy edge weights with an information bottleneck."""

    settings: GSATSettings
    network_class = GSATNetwork
    peak_matrices_per_scan = 90.0

    def stages(self) -> list[Stage]:
        """Choose checkpoints after r has reached its last value, as published."""
        return scorer.plan_decay_stages(self.settings.epochs, self.settings.final_r)

    def loss(self, out: GSATOutput, batch: Batch) -> Tensor:
        """Cross-entropy + information * KL(Bernoulli(a) || Bernoulli(r)) over the edges."""
        s = self.settings
        r = scorer.find_keep_rate(batch, s.epochs, s.final_r)
        information = layers.average_losses(scorer.bernoulli_kl(out.edge_sample, out.edges, r), batch)
        return layers.classification_loss(out.logit, batch) + s.information * information


@dataclass(frozen=True)
class DisCSettings(EdgeSettings):
    """Settings of DisC.

    Attributes
    ----------
    layers : int
        Number of layers in the causal GIN and in the biased GIN; the network that computes the masks always has two.
    edge_width : int
        Width of the MLP that masks edges; its hidden layers have 4, 2 and 1 times this many units (published: 110, 55
        and 27).
    edge_dropout : float
        Dropout inside the MLP that masks edges; the published code has none.
    q : float
        Exponent of the generalised cross-entropy: how strongly the biased branch prefers easy scans.
    swap : float
        Weight of the terms with swapped biased parts.
    swap_share : float
        Share of the epochs, at the end, in which biased parts are swapped; the checkpoint is chosen among these epochs.
    """

    layers: Layers = setting(4, choice(2, 4))
    dropout: ShareBelowOne = setting(0.2, choice(0.2, 0.5))
    edge_dropout: ShareBelowOne = 0.0
    q: PositiveShare = 0.7
    swap: Weight = setting(15.0, choice(1.0, 5.0, 15.0))
    swap_share: PositiveShare = 0.5


class DisCOutput(NamedTuple):
    """Output in training: both branches for each scan, with its own biased part and with that of another scan."""

    logit: Tensor  # [B] causal classifier
    representation: Tensor  # [B, 2 width] causal, then biased part
    biased: Tensor  # [B] logit of the biased classifier
    swapped: Tensor  # [B] causal classifier, biased part of another scan
    swapped_biased: Tensor  # [B] biased classifier, biased part of another scan
    order: Tensor  # [B] index of that scan


class Masker(nn.Module):
    """Masks of edges and of ROIs in (0, 1): two graph convolutions with mean aggregation, then an MLP for each."""

    def __init__(self, n_rois: int, s: DisCSettings) -> None:
        super().__init__()
        self.embed = layers.Linear(n_rois, s.width)
        self.layers = nn.ModuleList(layers.Linear(s.width, s.width) for _ in range(2))
        self.norms = nn.ModuleList(layers.BatchNorm(s.width) for _ in range(2))
        self.dropout = layers.Dropout(s.dropout)
        w = s.edge_width
        self.edge = EdgeMLP(s.width, (4 * w, 2 * w, w), s.edge_dropout, scorer.EdgeBatchNorm)
        self.node = layers.build_mlp(s.width, 4 * w, 2 * w, w, 1, norm=True)
        self.edge_share = s.edge_share

    def forward(self, X: Tensor, A: Tensor, step: StepContext | None = None) -> tuple[Tensor, Tensor]:
        """Mask edges and ROIs. Shapes: X, A [B, P, P]; returns edge [B, P, P], node [B, P, 1]."""
        mean = A / A.sum(-1, keepdim=True).clamp_min(1)
        H = self.embed(X)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            H = self.dropout(H + norm(layer(mean @ H), step).relu(), step)
        edges = scorer.list_edges(A, self.edge_share)
        edge = scorer.scatter_edges(self.edge(H, edges, step).sigmoid(), edges, A.shape[-1])
        return edge, self.node(H, step).sigmoid()


class DisCNetwork(EdgeNetwork):
    """Masks, two GINs on the two parts of the graph, and two classifiers that read both parts.

    The gradient of each classifier reaches only its own part. The biased part is also read at inference.
    """

    def __init__(self, shape: InputShape, s: DisCSettings) -> None:
        super().__init__()
        self.masker = Masker(shape.n_rois, s)
        self.causal = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout, norm_and_residual=True)
        self.bias = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout, norm_and_residual=True)
        self.classify = nn.Linear(2 * s.width, 1)
        self.classify_bias = nn.Linear(2 * s.width, 1)

    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> DisCOutput | Output:
        edge, node = self.masker(X, A, step)
        z_c = self.causal(X * node, A * edge, step).mean(1)
        z_b = self.bias(X * (1 - node), A * (1 - edge), step).mean(1)

        def causal(z_b: Tensor) -> Tensor:
            return self.classify(torch.cat([z_c, z_b.detach()], -1)).squeeze(-1)

        def biased(z_b: Tensor) -> Tensor:
            return self.classify_bias(torch.cat([z_c.detach(), z_b], -1)).squeeze(-1)

        out = Output(causal(z_b), torch.cat([z_c, z_b], -1))
        if step is None:
            return out
        order = step.draw_permutation()
        other = z_b.index_select(0, order)
        return DisCOutput(*out, biased(z_b), causal(other), biased(other), order)


def generalised_cross_entropy(losses: Tensor, q: float) -> Tensor:
    """Weigh cross-entropies by q p_y^q, without its gradient (Zhang & Sabuncu 2018): easy scans count most.

    Shapes: losses [B]; returns [B].
    """
    return losses * q * (-q * losses.detach()).exp()


@method(
    "disc",
    family="graph OOD",
    provenance=follow_paper(
        "it has one difficulty weight for a batch instead of one per sample. Our layers are narrower: states have "
        "64 units instead of 110, and the layers that mask edges have 32, 16 and 8 instead of 110, 55 and 27"
    ),
    reference="Fan et al. 2022",
)
class DisC(EdgeMethod):
    """Disentangle a causal subgraph from an easily learned biased one, and swap the latter between scans."""

    settings: DisCSettings
    network_class = DisCNetwork
    peak_matrices_per_scan = 170.0

    def stages(self) -> list[Stage]:
        s = self.settings
        swapping = max(1, round(s.swap_share * s.epochs))
        return [Stage("disentangling", s.epochs - swapping, selectable=False), Stage("swapping", swapping)]

    def loss(self, out: DisCOutput, batch: Batch) -> Tensor:
        """L_D + swap * L_G.

        Each term is a cross-entropy of the causal branch, weighted by difficulty, plus a generalised cross-entropy of
        the biased branch. In L_G, the biased parts are swapped.
        """
        s, label = self.settings, batch.label
        causal, biased = layers.bce(out.logit, label), layers.bce(out.biased, label)
        difficulty = (biased / (biased + causal + 1e-8)).detach()
        loss = layers.average_losses(difficulty * causal + generalised_cross_entropy(biased, s.q), batch)
        if batch.stage.name == "swapping":
            causal, biased = layers.bce(out.swapped, label), layers.bce(out.swapped_biased, label[out.order])
            swapped = difficulty * causal + generalised_cross_entropy(biased, s.q)
            loss = loss + s.swap * layers.average_losses(swapped, batch)
        return loss


@dataclass(frozen=True)
class CEPGSettings(EdgeSettings):
    """Settings of CEPG.

    Attributes
    ----------
    environment : float
        Weight of the loss for classifying the source site from the complement of the kept part.
    adversary : float
        Weight of the reversed gradient of the site classifier for the kept part; it grows from 0 over the epochs.
    information : float
        Weight of the information term of the kept part, as in GSAT.
    risk_variance : float
        Weight of the variance of the risks of the source sites.
    final_r : float
        Final value of the share of edges that the prior keeps.
    """

    environment: Weight = 0.5
    adversary: Weight = setting(0.1, choice(0.03, 0.1, 0.3))
    information: Weight = setting(0.1, choice(0.1, 1.0))
    risk_variance: Weight = setting(1.0, choice(0.1, 1.0, 10.0))
    final_r: InnerShare = 0.5


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
        edges = scorer.list_edges(A, self.edge_share)
        H = self.encoder(X, A, step)
        first = scorer.sample_concrete(self.score(H, edges, step), step)
        z_s = self._encode_part(X, 1 - first, edges, step)
        edge_sample = scorer.sample_concrete(self.score(self.gate_states(H, z_s), edges, step), step)
        z_c = self._encode_part(X, edge_sample, edges, step)
        out = Output(self.classify(z_c).squeeze(-1), z_c)
        if step is None:
            return out
        return CEPGOutput(
            *out, edge_sample, edges, self.site_of_rest(z_s), self.site_of_kept(layers.reverse_gradient(z_c, 1.0))
        )

    def gate_states(self, H: Tensor, z_s: Tensor) -> Tensor:
        """Scale the channels of ROI states [B, P, d] by the environment code [B, d], which gets no gradient."""
        return H * 2 * self.gate(z_s.detach()).sigmoid().unsqueeze(1)

    def _encode_part(self, X: Tensor, weight: Tensor, edges: Edges, step: StepContext | None) -> Tensor:
        return self.encoder(X, scorer.scatter_edges(scorer.average_directions(weight), edges, X.shape[-1]), step).mean(
            1
        )


@method(
    "cepg",
    family="graph OOD",
    needs={"sites"},
    provenance=reconstruct(
        "based on the title, a one-sentence description and the related method LECI; we found no text or code"
    ),
    reference="Wang et al. 2026",
)
class CEPG(EdgeMethod):
    """Environment-promoted invariant learning: the part that predicts the site guides which edges are kept."""

    settings: CEPGSettings
    network_class = CEPGNetwork
    training_only = ("site_of_rest", "site_of_kept")
    site_rows = tuple(f"{classifier}.{part}" for classifier in training_only for part in ("weight", "bias"))
    peak_matrices_per_scan = 150.0

    def stages(self) -> list[Stage]:
        return scorer.plan_decay_stages(self.settings.epochs, self.settings.final_r)

    def loss(self, out: CEPGOutput, batch: Batch) -> Tensor:
        """Sum the losses of all terms.

        The terms are the class, the site from the complement, the adversarial site from the kept part, the information,
        and the variance of the risks over sites.
        """
        s = self.settings
        r = scorer.find_keep_rate(batch, s.epochs, s.final_r)
        return (
            layers.classification_loss(out.logit, batch)
            + s.environment * layers.site_cross_entropy(out.site_of_rest, batch)
            + s.adversary * ramp_up(batch.epoch, s.epochs) * layers.site_cross_entropy(out.site_of_kept, batch)
            + s.information * layers.average_losses(scorer.bernoulli_kl(out.edge_sample, out.edges, r), batch)
            + s.risk_variance * vrex_penalty(out.logit, batch)
        )


TEMPERATURE = 0.1
"""Of the relaxed samples of masks, whose gradient the binary masks have."""


class ExpertMasks(nn.Module):
    """Logit of each edge for each of K experts: MLP(h_u || h_v) with one hidden layer, separate for each expert.

    The two directions of an edge have separate logits.
    """

    def __init__(self, n_in: int, experts: int, width: int) -> None:
        super().__init__()
        self.experts = experts
        self.receiver = layers.Linear(n_in, experts * width)
        self.sender = layers.Linear(n_in, experts * width, bias=False)
        # in place, as in ExpertLinear: elsewhere than in memory ("meta") torch imports its compiler for a product
        self.weight = nn.Parameter(torch.empty(experts, width).uniform_(-1, 1).mul_(width**-0.5))
        self.bias = nn.Parameter(torch.zeros(experts))

    def forward(self, H: Tensor, edges: Edges) -> Tensor:
        """Score edges from states H of ROIs. Shape [B, P, n_in] -> [B, K, 2 M]."""
        hidden = scorer.add_ends(self.receiver(H), self.sender(H), edges).relu()
        hidden = hidden.unflatten(-1, (self.experts, -1))  # [B, 2 M, K, width]
        return ((hidden * self.weight).sum(-1) + self.bias).transpose(1, 2)


def sample_masks(logit: Tensor, step: StepContext | None = None) -> Tensor:
    """Draw binary masks with Gumbel noise in training; return the probability of an edge at inference.

    An edge is kept where logit + g > 0, with g = -log(-log u). Its probability is 1 - exp(-exp(logit)). The gradient is
    that of sigmoid((logit + g) / 0.1).

    Shapes: logit [B, ...]; returns [B, ...].
    """
    if step is None:
        return -torch.expm1(-logit.exp())
    gumbel = -(-step.draw_uniform(logit.shape, logit).log()).log()
    return scorer.straight_through(((logit + gumbel) / TEMPERATURE).sigmoid(), 0.5)


def keep_regions(A: Tensor) -> Tensor:
    """Compute which ROIs have a kept edge in either direction, without gradient.

    For probabilities of edges, this is the probability of having one, because edges are masked independently.

    Shapes: A [..., P, P]; returns [..., P].
    """
    removed = 1 - A.detach()
    return 1 - removed.prod(-1) * removed.prod(-2)


class ExpertLinear(nn.Module):
    """A linear map without bias for each of K experts."""

    def __init__(self, n_in: int, n_out: int, experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, n_in, n_out).uniform_(-1, 1).mul_(n_in**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Map states of each expert, [B, K, P, n_in], or states that all share, [B, P, n_in], to [B, K, P, n_out]."""
        if x.dim() == 4:
            return x @ self.weight
        joint = self.weight.transpose(1, 2).flatten(0, 1)  # one product for all experts
        return layers.linear(x, joint).unflatten(-1, (len(self.weight), -1)).transpose(1, 2)


class ExpertGINLayer(nn.Module):
    """A GIN layer (:class:`~brio.methods.layers.GINLayer`) for each of K experts.

    The first linear map of the MLP is applied before the sum over neighbours. This is equivalent, and cheaper for the
    wide profiles of the input.
    """

    def __init__(self, n_in: int, width: int, experts: int) -> None:
        super().__init__()
        self.experts = experts
        self.eps = nn.Parameter(torch.zeros(experts, 1, 1))
        self.first = ExpertLinear(n_in, width, experts)
        self.first_bias = nn.Parameter(torch.zeros(experts * width))
        self.norm = layers.BatchNorm(experts * width)
        self.second = ExpertLinear(width, width, experts)
        self.second_bias = nn.Parameter(torch.zeros(experts, 1, width))

    def forward(self, x: Tensor, A: Tensor, step: StepContext | None = None, regions: Tensor | None = None) -> Tensor:
        """Update the states of the ROIs.

        Shapes: x [B, K, P, n_in], A [B, K, P, P], regions [B, K, P]; returns [B, K, P, width].
        """
        x = self.first(x)
        if regions is not None:
            x = x * regions.unsqueeze(-1)  # the same as a factor of the input, since the map has no bias
        x = ((1 + self.eps) * x + A @ x).transpose(1, 2).flatten(-2)
        x = self.norm(x + self.first_bias, step).relu()
        return self.second(x.unflatten(-1, (self.experts, -1)).transpose(1, 2)) + self.second_bias


class GraphExperts(nn.Module):
    """K experts side by side, each with GIN layers, a mean over ROIs and an MLP with two scores, one for each class."""

    def __init__(self, n_in: int, experts: int, width: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        widths = [n_in, *[width] * (n_layers - 1)]
        self.layers = nn.ModuleList(ExpertGINLayer(w, width, experts) for w in widths)
        self.dropout = layers.Dropout(dropout)
        self.hidden = ExpertLinear(width, width, experts)
        self.hidden_bias = nn.Parameter(torch.zeros(experts, 1, width))
        self.classify = ExpertLinear(width, 2, experts)
        self.classify_bias = nn.Parameter(torch.zeros(experts, 1, 2))

    def forward(self, X: Tensor, A: Tensor, regions: Tensor, step: StepContext | None = None) -> tuple[Tensor, Tensor]:
        """Encode and classify the masked graphs of all experts.

        Shapes: X [B, P, n_in], A [B, K, P, P], regions [B, K, P]; returns pooled [B, K, width], scores [B, K, 2].
        """
        x = X
        for number, layer in enumerate(self.layers):
            x = self.dropout(layer(x, A, step, regions if number == 0 else None).relu(), step)
        pooled = x.mean(2)
        hidden = (self.hidden(pooled.unsqueeze(2)) + self.hidden_bias).relu()
        return pooled, (self.classify(hidden) + self.classify_bias).squeeze(2)


N_STATISTICS = 4
NEWTON_STEPS = 12
"""Newton steps: ten solve 1,000 scores to 1e-12 for any alpha. The step with the gradient is additional."""

SHARPNESS = 5.0
"""Power to which shares are raised to find the first choice of a scan."""

SMALLEST = 1e-12


def entmax(scores: Tensor, alpha: float) -> Tensor:
    """Compute alpha-entmax, a softmax that can be exactly zero (Peters et al. 2019).

    p_i = max(0, (alpha - 1) z_i - tau)^(1 / (alpha - 1)), with tau such that the p_i sum to 1. The sum is convex and
    decreases in tau, so Newton steps from below never pass the solution. The gradient goes through the last step, which
    no longer changes tau but has its derivative.

    Shapes: scores [..., K]; returns [..., K].
    """
    power = 1 / (alpha - 1)
    x = (alpha - 1) * (scores - scores.detach().amax(-1, keepdim=True))

    def refine(tau: Tensor, x: Tensor) -> Tensor:
        base = (x - tau).relu()
        slope = power * base.detach().pow(power - 1).sum(-1, keepdim=True)
        return tau + (base.pow(power).sum(-1, keepdim=True) - 1) / slope

    tau = torch.full_like(x[..., :1], -1.0)  # the largest entry alone makes the sum 1 here
    for _ in range(NEWTON_STEPS):
        tau = refine(tau, x.detach())
    return (x - refine(tau, x)).relu().pow(power)


def describe_experts(scores: Tensor) -> Tensor:
    """Compute what the gate reads of each expert: confidence, entropy, energy, agreement with the others.

    Confidence is the larger probability; energy is -log(e^s_0 + e^s_1); agreement is minus the mean symmetric KL
    divergence from the other experts. There is no gradient: the gate reads predictions and does not change them.

    Shapes: scores [B, K, 2]; returns [B, K, 4].
    """
    scores = scores.detach()
    z = scores[..., 1] - scores[..., 0]
    p = z.sigmoid()
    confidence = torch.maximum(p, 1 - p)
    entropy = F.softplus(z) - p * z
    energy = -torch.logsumexp(scores, -1)
    gap = (p.unsqueeze(-1) - p.unsqueeze(-2)) * (z.unsqueeze(-1) - z.unsqueeze(-2))  # KL(k || j) + KL(j || k)
    agreement = -gap.sum(-1) / (2 * (z.shape[-1] - 1))
    return torch.stack([confidence, entropy, energy, agreement], -1)


class ExpertGate(nn.Module):
    """One MLP, applied to the statistics of each expert, and entmax over the experts.

    Statistics are standardised over all scans and experts of a batch or, at inference, by running averages.
    """

    def __init__(self, width: int, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.norm = layers.BatchNorm(N_STATISTICS, eps=1e-6)
        self.score = layers.build_mlp(N_STATISTICS, width, 1)

    def forward(self, scores: Tensor, step: StepContext | None = None) -> Tensor:
        """Compute the share of each expert from the scores of both classes. Shape [B, K, 2] -> [B, K]."""
        return entmax(self.score(self.norm(describe_experts(scores), step), step).squeeze(-1), self.alpha)


def uniform_divergence(use: Tensor) -> Tensor:
    """KL divergence between even use and the use u of K experts, sum_k 1/K log(1 / (K u_k)). Shape [K] -> scalar."""
    return -(len(use) * use.clamp_min(SMALLEST)).log().mean()


def gate_loss(shares: Tensor, losses: Tensor, batch: Batch, s: DiSCOSettings) -> Tensor:
    """Compute the loss of the gate: teacher, entropy, even use, even first choices.

    The teacher q is the softmax of the negative losses of the experts over a temperature, without gradient.

    Shapes: shares [B, K], losses [B, K].
    """
    log_shares = shares.clamp_min(SMALLEST).log()
    teacher = F.log_softmax(-losses.detach() / s.teacher_temperature, -1)
    entropy = -(shares * log_shares).sum(-1)
    divergence = -entropy - (shares * teacher).sum(-1)
    sharp = shares.pow(SHARPNESS)
    sharp = sharp / sharp.sum(-1, keepdim=True)
    weight = batch.weight.unsqueeze(-1)
    use, first = uniform_divergence((weight * shares).sum(0)), uniform_divergence((weight * sharp).sum(0))
    return layers.average_losses(divergence + s.sparsity * entropy, batch) + (s.balance * use + s.first_choice * first)


@dataclass(frozen=True)
class DiSCOSettings(EdgeSettings):
    """Settings of DiSCO. Defaults are those of the first author's public code, except for smaller widths.

    Attributes
    ----------
    layers : int
        Number of GIN layers in the shared encoder and in each expert.
    experts : int
        K, the number of experts; each has its own mask of edges, GIN layers and classifier.
    edge_width : int
        Hidden width of the MLP with which each expert scores edges; it is small, because every edge is scored K times.
    expert_width : int
        Width of each expert's GIN layers and of the hidden layer of its classifier.
    gate_width : int
        Hidden width of the gate.
    keep : float
        rho, the share of edges that a mask should keep; the published code uses 0.2 to 0.8, depending on the dataset,
        and the default is the median.
    correlation : float
        tau, the mean correlation over pairs of masks above which the masks are penalised.
    keep_weight, diversity, gate : float
        Weights of the loss terms for the keep rate (``keep_weight``), correlated masks (``diversity``) and the gate
        (``gate``).
    sparsity, balance, first_choice : float
        Weights of the terms in the loss of the gate: entropy of the shares of a scan (``sparsity``), uneven use of the
        experts (``balance``), and uneven first choices (``first_choice``).
    alpha : float
        Exponent of entmax; near 1, entmax is a softmax; near 2, most shares are zero.
    teacher_temperature : float
        Temperature of the softmax of the negative losses, which is the target of the gate.
    warm_up : int
        Number of epochs, at the start, in which all experts have the same weight; the checkpoint is not chosen among
        these.
    """

    layers: Layers = 3
    dropout: ShareBelowOne = setting(0.5, choice(0.3, 0.5))
    experts: Annotated[int, Meta(ge=2, le=256)] = 8
    edge_width: Width = 4
    expert_width: Width = 32
    gate_width: Width = 64
    keep: InnerShare = setting(0.575, choice(0.2, 0.575, 0.8))
    correlation: ShareBelowOne = 0.1
    keep_weight: Weight = 5.0
    diversity: Weight = setting(1.0, choice(0.1, 0.5, 1.0))
    gate: Weight = 0.1
    sparsity: Weight = 0.1
    balance: Weight = 0.5
    first_choice: Weight = 0.1
    alpha: Annotated[float, Meta(gt=1, lt=2)] = 1.38
    teacher_temperature: Temperature = 0.75
    warm_up: Annotated[int, Meta(ge=0, le=100_000)] = 9


class DiSCOOutput(NamedTuple):
    """Output in training."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, K expert_width]
    expert_logit: Tensor  # [B, K]
    shares: Tensor  # [B, K] weight of each expert
    mask: Tensor  # [B, K, 2 M] 1 for edges that an expert keeps
    regions: Tensor  # [B, K, P] 1 for ROIs with a kept edge
    real: Tensor  # [B, 2 M] 1 for edges, 0 for empty entries


class DiSCONetwork(EdgeNetwork):
    """A shared GIN that scores edges, K experts on the input with masked edges, and a gate over their predictions.

    The shared GIN sees the whole graph, and passes only the masks to the experts. Masks are binary samples in training,
    and probabilities at inference.
    """

    def __init__(self, shape: InputShape, s: DiSCOSettings) -> None:
        super().__init__()
        self.edge_share = s.edge_share
        self.encoder = GINEncoder(shape.n_rois, s.width, s.layers, s.dropout)
        self.masks = ExpertMasks(s.width, s.experts, s.edge_width)
        self.experts = GraphExperts(shape.n_rois, s.experts, s.expert_width, s.layers, s.dropout)
        self.gate = ExpertGate(s.gate_width, s.alpha)

    def read_graphs(self, X: Tensor, A: Tensor, step: StepContext | None) -> DiSCOOutput | Output:
        edges = scorer.list_edges(A, self.edge_share)
        mask = sample_masks(self.masks(self.encoder(X, A, step), edges), step)
        masked = scorer.scatter_edges(mask, edges, A.shape[-1])
        regions = keep_regions(masked)
        pooled, scores = self.experts(X, masked, regions, step)
        shares = self.gate(scores, step)
        expert_logit = scores[..., 1] - scores[..., 0]
        out = Output((shares * expert_logit).sum(-1), pooled.flatten(1))
        if step is None:
            return out
        return DiSCOOutput(*out, expert_logit, shares, mask, regions, edges.real)


def excess_correlation(mask: Tensor, real: Tensor, tau: float) -> Tensor:
    """max(0, mean_{i != j} |corr(m_i, m_j)| - tau) over the items of each graph; a constant mask has correlation 0.

    Shapes: mask [B, K, N], real [B, N]; returns [B].
    """
    share = (real / real.sum(-1, keepdim=True).clamp_min(1)).unsqueeze(1)
    centred = (mask - (share * mask).sum(-1, keepdim=True)) * share.sqrt()
    unit = centred * (centred.square().sum(-1, keepdim=True) + 1e-8).rsqrt()
    K = mask.shape[1]
    off_diagonal = 1 - torch.eye(K, device=mask.device, dtype=mask.dtype)
    return (((unit @ unit.mT).abs() * off_diagonal).sum((-1, -2)) / (K * (K - 1)) - tau).relu()


@method(
    "disco",
    family="graph OOD",
    provenance=reconstruct(
        "based on public summaries and reviews, and on the first author's code MoEOOD, which names no paper; we chose "
        "narrower layers, the batch norm of our GIN layers, a single learning rate, and, at inference, expected masks "
        "and running statistics of the gate"
    ),
    reference="Sun et al. 2026",
)
class DiSCO(layers.Classifier):
    """Diverse and sparse mixture of experts, each of which uses its own subgraph."""

    settings: DiSCOSettings
    network_class = DiSCONetwork
    version = 2
    peak_matrices_per_scan = 180.0

    def stages(self) -> list[Stage]:
        s = self.settings
        warm = min(s.warm_up, s.epochs - 1)
        return [Stage("warm-up", warm, selectable=False), Stage("specialised", s.epochs - warm)]

    def loss(self, out: DiSCOOutput, batch: Batch) -> Tensor:
        """Sum weighted cross-entropies of the experts, keep rate, diversity of the masks and the loss of the gate.

        The keep rate adds sum_k u_k (r_k - keep)^2, with r_k the share of the edges of a graph that expert k keeps and
        u_k the use of that expert. During warm-up, experts have equal weights and the gate is trained only by its own
        loss. Diversity is the mean of a term for edges and one for ROIs; masks of ROIs have no gradient.
        """
        s = self.settings
        losses = layers.bce(out.expert_logit, batch.label.unsqueeze(-1).expand_as(out.expert_logit))  # [B, K]
        weights = torch.full_like(out.shares, 1 / s.experts) if batch.stage.name == "warm-up" else out.shares
        use = (batch.weight.unsqueeze(-1) * weights).sum(0).detach()
        of_edges = excess_correlation(out.mask, out.real, s.correlation)
        of_regions = excess_correlation(out.regions, torch.ones_like(out.regions[:, 0]), s.correlation)
        total = (weights * losses).sum(-1) + s.diversity * (of_edges + of_regions) / 2
        rate = (out.mask * out.real.unsqueeze(1)).sum(-1) / out.real.sum(-1, keepdim=True).clamp_min(1)  # [B, K]
        total = total + s.keep_weight * (use * (rate - s.keep).square()).sum(-1)
        return layers.average_losses(total, batch) + s.gate * gate_loss(out.shares, losses, batch, s)
