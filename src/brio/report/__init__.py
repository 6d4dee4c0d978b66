"""Report: pictures and tables of results. Reads what runs left, trains nothing."""

from .comparisons import comparison_table, together
from .html.page import write_report
from .sites import draw_sites
from .tables import markdown_table, paper_figures

__all__ = ["comparison_table", "draw_sites", "markdown_table", "paper_figures", "together", "write_report"]
