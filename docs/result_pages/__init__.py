"""The result pages of the documentation, generated from the stored results in ``evidence/``.

One module per page. :mod:`.evidence` reads files, :mod:`.comparisons` tests, :mod:`.markdown` formats.
"""

from __future__ import annotations

from typing import Any

from . import (
    ablation,
    adaptation,
    benchmarks,
    brio_plus,
    calibration,
    decision_curve,
    factors,
    growth,
    harmonisation,
    in_distribution,
    learning_curve,
    level,
    permutation,
    prediction_intervals,
    reproducibility,
    scan_length,
    sensitivity,
    speed,
    stability,
    subgroups,
    summary,
    tuning,
    unseen_sites,
)

__all__ = ["draw_figures", "fill_readme", "generate_pages"]

PAGES = (
    unseen_sites,
    brio_plus,
    in_distribution,
    permutation,
    learning_curve,
    subgroups,
    calibration,
    decision_curve,
    prediction_intervals,
    adaptation,
    ablation,
    sensitivity,
    stability,
    factors,
    scan_length,
    harmonisation,
    tuning,
    reproducibility,
    speed,
    benchmarks,
    growth,
    level,
)
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def generate_pages() -> dict[str, str]:
    """Return the text of every page, by file name."""
    titles = {module.FILE: module.TITLE for module in PAGES}
    # the last page lists the comparisons that the others make
    return {summary.FILE: summary.page(titles)} | {module.FILE: module.page() for module in PAGES}


def draw_figures() -> dict[str, Any]:
    """Draw the figures that are not stored with a study, by file name."""
    return {name: draw() for name, draw in (prediction_intervals.FIGURES | growth.FIGURES).items()}


def fill_readme(text: str) -> str:
    """Return the README with the small table of results between its two markers; without markers, as it is."""
    if BEGIN not in text:
        return text
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n\n{summary.headline_table()}\n\n{summary.headline_note()}\n\n{END}{after}"
