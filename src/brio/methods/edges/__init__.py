"""What methods that score, sample or weigh edges share."""

from .edge_list import Edges, average_directions, average_edges, list_edges, scatter_edges
from .encoder import GINEncoder
from .network import EdgeNetwork
from .sampling import (
    bernoulli_kl,
    find_keep_rate,
    plan_decay_stages,
    sample_concrete,
    schedule_keep_rate,
    straight_through,
)
from .scorer import EdgeBatchNorm, EdgeInstanceNorm, EdgeMLP, add_ends
from .settings import EdgeMethod, EdgeSettings

__all__ = [
    "EdgeBatchNorm",
    "EdgeInstanceNorm",
    "EdgeMLP",
    "EdgeMethod",
    "EdgeNetwork",
    "EdgeSettings",
    "Edges",
    "GINEncoder",
    "add_ends",
    "average_directions",
    "average_edges",
    "bernoulli_kl",
    "find_keep_rate",
    "list_edges",
    "plan_decay_stages",
    "sample_concrete",
    "scatter_edges",
    "schedule_keep_rate",
    "straight_through",
]
