"""Report: pictures and tables of results. Reads what runs left, trains nothing."""

from .sites import draw_sites
from .tables import markdown_table, paper_figures

__all__ = ["draw_sites", "markdown_table", "paper_figures"]
