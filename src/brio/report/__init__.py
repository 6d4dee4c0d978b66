"""Report: pictures of results. Reads what runs left, trains nothing."""

from .sites import draw_sites

__all__ = ["draw_sites"]
