"""Entropic optimal transport between many small point clouds, in the log domain.

Everything is batched over leading axes. Gradients come from the envelope theorem: the dual potentials are
found without a tape and held fixed, and differentiating the dual objective with respect to the cost then
gives the optimal coupling. No iteration is ever unrolled.

References: Cuturi 2013; Feydy et al. 2019; paper, appendix on the debiased Sinkhorn divergence.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["coupling", "dual_potentials", "entropic_cost", "sinkhorn_divergence", "uniform_log_weights"]


def uniform_log_weights(C: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the uniform marginals eta = 1/n and zeta = 1/n' of a cost matrix. Shapes [n] and [n']."""
    n, m = C.shape[-2:]
    return C.new_full((n,), 1.0 / n).log(), C.new_full((m,), 1.0 / m).log()


def dual_potentials(
    C: Tensor, log_eta: Tensor, log_zeta: Tensor, epsilon: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """Dual potentials (phi, psi) by alternating log-domain updates.

    ``phi_i <- -eps LSE_h(log zeta_h + (psi_h - C_ih) / eps)``, then the same for psi; the last update is
    that of psi, so the coupling's column sums are exact.

    Parameters
    ----------
    C : Tensor, shape [..., n, n']
    log_eta : Tensor, shape [..., n]
        ``-inf`` marks padding.
    log_zeta : Tensor, shape [..., n']
    """
    with torch.no_grad():
        scaled = C.detach() / epsilon
        psi = torch.zeros_like(scaled[..., 0, :])
        for _ in range(iterations):
            phi = -torch.logsumexp((log_zeta + psi).unsqueeze(-2) - scaled, dim=-1)
            psi = -torch.logsumexp((log_eta + phi).unsqueeze(-1) - scaled, dim=-2)
    return epsilon * phi, epsilon * psi


def coupling(
    C: Tensor, phi: Tensor, psi: Tensor, log_eta: Tensor, log_zeta: Tensor, epsilon: float
) -> Tensor:
    """Coupling Gamma_ih = eta_i zeta_h exp((phi_i + psi_h - C_ih) / eps). Shape [..., n, n']."""
    log_gamma = (phi.unsqueeze(-1) + psi.unsqueeze(-2) - C) / epsilon
    return (log_gamma + log_eta.unsqueeze(-1) + log_zeta.unsqueeze(-2)).exp()


def entropic_cost(
    C: Tensor, epsilon: float, iterations: int, log_eta: Tensor | None = None, log_zeta: Tensor | None = None
) -> Tensor:
    """Entropic transport cost OT_eps with d OT / d C = Gamma*, the envelope theorem.

    The value is the dual objective at the potentials found, a lower bound that is tight at convergence.

    Returns
    -------
    Tensor, shape [...]
    """
    if log_eta is None or log_zeta is None:
        log_eta, log_zeta = uniform_log_weights(C)
    phi, psi = dual_potentials(C, log_eta, log_zeta, epsilon, iterations)
    eta, zeta = log_eta.exp(), log_zeta.exp()
    mass = coupling(C, phi, psi, log_eta, log_zeta, epsilon).sum((-2, -1))
    return (eta * phi).sum(-1) + (zeta * psi).sum(-1) - epsilon * (mass - 1.0)


def sinkhorn_divergence(
    C_xy: Tensor,
    C_xx: Tensor,
    C_yy: Tensor,
    epsilon: float,
    iterations: int,
    log_eta: Tensor | None = None,
    log_zeta: Tensor | None = None,
) -> Tensor:
    """Debiased divergence S_eps = OT(x, y) - OT(x, x) / 2 - OT(y, y) / 2, one epsilon for all three.

    Clouds of equal size are solved in one batch.

    Returns
    -------
    Tensor, shape [...]

    Examples
    --------
    >>> C = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> float(sinkhorn_divergence(C, C, C, epsilon=0.1, iterations=50))
    0.0
    """
    if C_xy.shape == C_xx.shape == C_yy.shape:
        eta = zeta = None
        if log_eta is not None and log_zeta is not None:
            eta, zeta = torch.stack([log_eta, log_eta, log_zeta]), torch.stack([log_zeta, log_eta, log_zeta])
        xy, xx, yy = entropic_cost(torch.stack([C_xy, C_xx, C_yy]), epsilon, iterations, eta, zeta)
    else:
        xy = entropic_cost(C_xy, epsilon, iterations, log_eta, log_zeta)
        xx = entropic_cost(C_xx, epsilon, iterations, log_eta, log_eta)
        yy = entropic_cost(C_yy, epsilon, iterations, log_zeta, log_zeta)
    return xy - 0.5 * xx - 0.5 * yy
