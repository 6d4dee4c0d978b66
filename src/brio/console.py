"""Output of the command line: lines of text and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from .progress import Progress

__all__ = ["console", "say", "show_progress"]

console = Console(highlight=False)


def say(line: str) -> None:
    """Print a line of text; square brackets in it are not markup."""
    console.print(line, markup=False, soft_wrap=True)


@contextmanager
def show_progress(quiet: bool) -> Iterator[Progress]:
    """Show progress: a bar on a terminal, a line at every tenth in a log, nothing if quiet.

    Parameters
    ----------
    quiet : bool

    Yields
    ------
    Progress
        Call it with a message and the share that is done.
    """
    if quiet:
        yield lambda message, share: None
    elif not sys.stderr.isatty():
        last = -1.0

        def log(message: str, share: float) -> None:
            nonlocal last
            if share - last >= 0.1 - 1e-9 or share == 1.0 > last:  # 0.3 - 0.2 is a little less than 0.1
                last = share
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
            bar.start()  # not earlier, so that the bar does not interrupt lines that are printed first
            bar.update(task, description=message, completed=share)

        try:
            yield show
        finally:
            bar.stop()
