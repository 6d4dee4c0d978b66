"""Graph networks: GCN, GAT, GIN."""

from . import gcn  # noqa: F401
