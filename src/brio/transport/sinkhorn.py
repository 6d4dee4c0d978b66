"""Entropic optimal transport between many small point clouds, in the log domain.

All functions are batched over leading axes. Gradients come from the envelope theorem: the dual potentials are computed
without gradients and held fixed; differentiating the dual objective with respect to the cost then gives the optimal
coupling. Iterations are never unrolled.

References: Cuturi 2013; Feydy et al. 2019; paper, appendix on the debiased Sinkhorn divergence.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels import kernels_run_on

_SAFE = 50.0
"""Largest C / eps whose exponential, and what the iterations divide by it, is a normal number in single precision."""
_LOG_ZERO = -1e4
"""Log weight of a padded point: its exp is exactly zero, yet its sums and differences stay finite."""


def _log_weights(C: Tensor, log_eta: Tensor | None, log_zeta: Tensor | None) -> tuple[Tensor, Tensor]:
    """Log marginals as a column and a row; uniform by default, padding made finite."""
    n, m = C.shape[-2:]
    eta = C.new_full((n,), 1.0 / n).log() if log_eta is None else log_eta.clamp_min(_LOG_ZERO)
    zeta = C.new_full((m,), 1.0 / m).log() if log_zeta is None else log_zeta.clamp_min(_LOG_ZERO)
    return eta.unsqueeze(-1), zeta.unsqueeze(-2)


def find_gpu_twin(C: Tensor) -> Any:
    """Return the module :mod:`.sinkhorn_kernel` if its kernel can solve problems with these costs, or else None."""
    if not C.is_cuda or C.dtype != torch.float32 or max(C.shape[-2:]) > 32 or not kernels_run_on(C.device):
        return None
    from . import sinkhorn_kernel

    return sinkhorn_kernel


def potential_sums(
    C: Tensor,
    epsilon: float,
    iterations: int,
    log_eta: Tensor | None = None,
    log_zeta: Tensor | None = None,
    largest_cost: float | None = None,
) -> Tensor:
    """Compute the sums phi_i + psi_h of the dual potentials by alternating log-domain updates.

    The updates are those of the paper (``phi_i <- -eps LSE_h(log zeta_h + (psi_h - C_ih) / eps)``, then psi), carried
    out on the logarithm of the coupling: normalising its rows to eta updates phi, normalising its columns to zeta
    updates psi. The last update is that of psi, so column sums are exact.

    Shapes: C [..., n, n'], log_eta, log_zeta [..., n] and [..., n']; returns [..., n, n'].
    """
    with torch.no_grad():
        eta, zeta = _log_weights(C, log_eta, log_zeta)
        if largest_cost is not None and largest_cost <= _SAFE * epsilon:
            return _scale(C, epsilon, iterations, eta.squeeze(-1).exp(), zeta.squeeze(-2).exp())
        log_gamma = eta + zeta - C.detach() / epsilon
        for _ in range(iterations):
            log_gamma = torch.log_softmax(log_gamma, dim=-1) + eta
            log_gamma = torch.log_softmax(log_gamma, dim=-2) + zeta
        return epsilon * (log_gamma - eta - zeta) + C.detach()


def _scale(C: Tensor, epsilon: float, iterations: int, eta: Tensor, zeta: Tensor) -> Tensor:
    """The same updates as scalings of exp(-C / eps), which take a product where logarithms take an exponential each.

    Problems lie along the last axis, so that a processor works on many of them at once.
    """
    shape = C.shape[:-2]
    eta, zeta = (w.expand(*shape, w.shape[-1]).reshape(-1, w.shape[-1]).T.contiguous() for w in (eta, zeta))
    gibbs = (C.detach() / -epsilon).exp().reshape(-1, *C.shape[-2:]).permute(1, 2, 0).contiguous()  # [n, n', problems]
    v = zeta
    for _ in range(iterations):
        rows = (gibbs * v).sum(1)
        columns = (gibbs * (eta / rows).unsqueeze(1)).sum(0)
        v = zeta / columns
    sums = -epsilon * (rows.log().unsqueeze(1) + columns.log())
    return sums.permute(2, 0, 1).reshape(C.shape)


def coupling(
    C: Tensor, sums: Tensor, epsilon: float, log_eta: Tensor | None = None, log_zeta: Tensor | None = None
) -> Tensor:
    """Compute the coupling Gamma_ih = eta_i zeta_h exp((phi_i + psi_h - C_ih) / eps).

    Shapes: C [..., n, n'], sums [..., n, n']; returns [..., n, n'].
    """
    eta, zeta = _log_weights(C, log_eta, log_zeta)
    return ((sums - C) / epsilon + eta + zeta).exp()


def entropic_cost(
    C: Tensor,
    epsilon: float,
    iterations: int,
    log_eta: Tensor | None = None,
    log_zeta: Tensor | None = None,
    largest_cost: float | None = None,
) -> Tensor:
    """Compute the entropic transport cost OT_eps, with the gradient d OT / d C = Gamma* of the envelope theorem.

    The value is the dual objective at the computed potentials, a lower bound that is tight at convergence.

    Shapes: C [..., n, n']; returns [...].
    """
    eta, zeta = _log_weights(C, log_eta, log_zeta)
    twin = find_gpu_twin(C)
    if twin is not None:
        eta, zeta = eta[..., 0].expand(C.shape[:-1]), zeta[..., 0, :].expand(*C.shape[:-2], C.shape[-1])
        return twin.entropic_cost(C, eta, zeta, epsilon, iterations)
    sums = potential_sums(C, epsilon, iterations, log_eta, log_zeta, largest_cost)
    linear = ((eta + zeta).exp() * sums).sum((-2, -1))  # eta . phi + zeta . psi: both marginals have mass one
    mass = coupling(C, sums, epsilon, log_eta, log_zeta).sum((-2, -1))
    return linear - epsilon * (mass - 1.0)
