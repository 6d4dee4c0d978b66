"""Transport: batched log-domain Sinkhorn and the debiased divergence with its envelope gradient."""

from .sinkhorn import dual_potentials, entropic_cost, sinkhorn_divergence

__all__ = ["dual_potentials", "entropic_cost", "sinkhorn_divergence"]
