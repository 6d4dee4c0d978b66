"""Tables, figures and the HTML report of finished jobs: reads results, trains nothing."""

from .comparisons import compare_methods, comparison_table, join_jobs
from .sites import draw_sites
from .tables import markdown_table, paper_figures
from .write import write_report

__all__ = [
    "compare_methods",
    "comparison_table",
    "draw_sites",
    "join_jobs",
    "markdown_table",
    "paper_figures",
    "write_report",
]
