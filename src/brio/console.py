"""What the command line shows: results as a table, progress as a bar, lines of text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from .progress import Progress

__all__ = ["console", "print_result", "say", "show_progress"]

console = Console(highlight=False)


def say(line: str) -> None:
    """Print a line as it is."""
    console.print(line, markup=False, soft_wrap=True)


def print_result(result: Any) -> None:
    """Print the table of a job and what a reader should know about it."""
    summary = result.summary
    several = len(summary["seeds"]) > 1
    heads = ["method", "AUC", "95 % interval", "SD", "ACC", "balanced", *(["AUC, seeds averaged"] if several else [])]
    table = Table(*heads, box=None, pad_edge=False)
    for name, row in result.table().iterrows():
        low, high = _figure(row["low"]), _figure(row["high"])
        cells = [_figure(row["AUC"]), "-" if "-" in (low, high) else f"{low} to {high}"]
        cells += [_figure(row[column]) for column in ("SD", "ACC", "balanced ACC")]
        table.add_row(str(name), *cells, *([_figure(row["AUC, seeds averaged"])] if several else []))
    console.print(table)
    unit = "sites" if summary["protocol"] == "loso" else "folds"
    seeds = f"{len(summary['seeds'])} seed{'s' if several else ''}"
    lines = [f"{len(summary['folds'])} held-out {unit}, {seeds}, {summary['n_scans']} scans"]
    if summary["smoke_run"]:
        lines.append("This is a smoke run (fewer than three seeds, or not every fold): no basis for a claim.")
    skipped = {fold: why for m in summary["methods"].values() for fold, why in m["without_auc"].items()}
    lines += [f"no AUC for {fold}: {why}" for fold, why in skipped.items()]
    lines += [f"warning: {warning}" for warning in summary["warnings"]]
    for line in [*lines, f"results: {result.folder}"]:
        say(line)


def _figure(value: float) -> str:
    return "-" if value != value else f"{value:.1f}"


@contextmanager
def show_progress(quiet: bool) -> Iterator[Progress]:
    """A progress bar on a terminal, a line now and then in a log, nothing if quiet."""
    if quiet:
        yield lambda message, share: None
    elif not sys.stderr.isatty():
        told = -1.0

        def log(message: str, share: float) -> None:
            nonlocal told
            if share - told >= 0.1 or share == 1.0 > told:
                told = share
                print(f"{100 * share:3.0f} %  {message}", file=sys.stderr, flush=True)

        yield log
    else:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
        )
        bar = Bar(*columns, console=Console(stderr=True), transient=True)
        task = bar.add_task("starting", total=1.0)

        def show(message: str, share: float) -> None:
            bar.start()  # not before there is something to show, so that it does not cut into what is printed first
            bar.update(task, description=message, completed=share)

        try:
            yield show
        finally:
            bar.stop()
