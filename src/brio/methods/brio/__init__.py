"""BRIO, the paper's own method: encoder, assignment, factors, qualification, alignment."""

from .method import Brio
from .settings import BrioSettings

__all__ = ["Brio", "BrioSettings"]
