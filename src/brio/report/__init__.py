"""Report: pictures and tables of results, the HTML report. Reads what runs left, trains nothing."""

from .comparisons import comparison_table, comparisons, together
from .html.page import write_report
from .sites import draw_sites
from .tables import markdown_table, paper_figures

__all__ = [
    "comparison_table",
    "comparisons",
    "draw_sites",
    "markdown_table",
    "paper_figures",
    "together",
    "write_report",
]
