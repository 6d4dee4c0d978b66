"""Transport: batched log-domain Sinkhorn with its envelope gradient."""

from .sinkhorn import coupling, entropic_cost, potential_sums

__all__ = ["coupling", "entropic_cost", "potential_sums"]
