"""The gate: how much each expert counts for a scan, from what the experts predict."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....training import Batch, StepContext
from ...layers import BatchNorm, build_mlp
from ...losses import average_losses

N_STATISTICS = 4
NEWTON_STEPS = 12
"""Ten solve 1,000 scores to 1e-12 at any alpha; the step with the gradient comes on top."""

SHARPNESS = 5.0
"""Power of the shares from which the first choice of a scan is read."""

SMALLEST = 1e-12


def entmax(scores: Tensor, alpha: float) -> Tensor:
    """Compute alpha-entmax, a softmax that can be exactly zero (Peters et al. 2019).

    p_i = max(0, (alpha - 1) z_i - tau)^(1 / (alpha - 1)), with tau such that the p_i sum to 1. The sum is convex and
    falls in tau, so Newton steps from below never pass the solution. The gradient goes through the last step, which
    moves nothing any more but has the derivative of tau.

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

    Confidence is the larger probability, energy -log(e^s_0 + e^s_1), agreement minus the mean symmetric KL divergence
    from the other experts. There is no gradient: the gate reads predictions and does not change them.

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
    """One MLP for every expert, on its statistics, and entmax over the experts.

    Statistics are standardised over all scans and experts of a batch, at inference by running averages.
    """

    def __init__(self, width: int, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.norm = BatchNorm(N_STATISTICS, eps=1e-6)
        self.score = build_mlp(N_STATISTICS, width, 1)

    def forward(self, scores: Tensor, step: StepContext | None = None) -> Tensor:
        """Compute the share of each expert from the scores of both classes. Shape [B, K, 2] -> [B, K]."""
        return entmax(self.score(self.norm(describe_experts(scores), step), step).squeeze(-1), self.alpha)


def uniform_divergence(use: Tensor) -> Tensor:
    """KL divergence of the use of K experts from an even one, sum_k 1/K log(1 / (K u_k)). Shape [K] -> scalar."""
    return -(len(use) * use.clamp_min(SMALLEST)).log().mean()


def gate_loss(
    shares: Tensor, losses: Tensor, batch: Batch, temperature: float, sparsity: float, balance: float, first: float
) -> Tensor:
    """Compute the loss of the gate: teacher, entropy, even use, even first choices.

    The teacher q is the softmax of the negative losses of the experts over a temperature, without gradient.

    Shapes: shares [B, K], losses [B, K].
    """
    log_shares = shares.clamp_min(SMALLEST).log()
    teacher = F.log_softmax(-losses.detach() / temperature, -1)
    entropy = -(shares * log_shares).sum(-1)
    divergence = -entropy - (shares * teacher).sum(-1)
    sharp = shares.pow(SHARPNESS)
    sharp = sharp / sharp.sum(-1, keepdim=True)
    weight = batch.weight.unsqueeze(-1)
    even = balance * uniform_divergence((weight * shares).sum(0)) + first * uniform_divergence((weight * sharp).sum(0))
    return average_losses(divergence + sparsity * entropy, batch) + even
