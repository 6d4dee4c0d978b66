"""Graph networks: GCN, GAT, GIN."""

from . import gcn, gat, gin  # isort: skip # noqa: F401
