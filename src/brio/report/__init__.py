"""Tables, figures and the HTML report of finished jobs: reads results, trains nothing."""

from .cohort import draw_sites
from .comparisons import (
    check_same_folds,
    compare_jobs,
    compare_methods,
    comparison_table,
    gather_jobs,
    join_jobs,
    label_folders,
    mark_smoke_runs,
    markdown_table,
    paper_figures,
    write_joined_tables,
)
from .predictions import render_prediction_page
from .write import write_report

__all__ = [
    "check_same_folds",
    "compare_jobs",
    "compare_methods",
    "comparison_table",
    "draw_sites",
    "gather_jobs",
    "join_jobs",
    "label_folders",
    "mark_smoke_runs",
    "markdown_table",
    "paper_figures",
    "render_prediction_page",
    "write_joined_tables",
    "write_report",
]
