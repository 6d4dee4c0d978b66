"""Tables of jobs in Markdown, made from their summaries so that no number is typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["markdown_table"]

_HEADER = [
    "cohort",
    "method",
    "AUC",
    "95 % interval",
    "AUC, seeds averaged",
    "ACC",
    "folds",
    "seeds",
    "epochs",
    "K",
    "",
]


def _percent(found: dict[str, Any]) -> str:
    if found["mean"] is None:
        return "-"
    spread = "" if found["sd"] is None else f" ± {100 * found['sd']:.1f}"
    return f"{100 * found['mean']:.1f}{spread}"


def _interval(found: dict[str, Any]) -> str:
    return "-" if found["interval"] is None else " to ".join(f"{100 * v:.1f}" for v in found["interval"])


def markdown_table(summaries: Sequence[dict[str, Any]]) -> str:
    """One row for each method of each job: mean ± SD over held-out sites (or folds), in percent.

    Rows of fewer than three seeds, or of some folds only, are marked as smoke runs.
    """
    rows = [_HEADER, ["---"] * len(_HEADER)]
    for summary in summaries:
        for name, found in summary["methods"].items():
            rows.append(
                [
                    f"{summary['cohort']} ({summary['n_scans']})",
                    name,
                    _percent(found["auc"]),
                    _interval(found["auc"]),
                    _percent(found["auc_of_averaged_logits"]),
                    _percent(found["acc"]),
                    str(found["folds"]),
                    str(found["seeds"]),
                    str(found["epochs"] or "-"),
                    str(found["K"] or "-"),
                    "smoke run" if summary["smoke_run"] else "",
                ]
            )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
