"""Output of commands: progress, tables and errors."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console

from .errors import escape_controls


class Progress(Protocol):
    """A function that is called with the current activity and the share of the job that is done (0 to 1)."""

    def __call__(self, message: str, share: float) -> None: ...


def report_part(progress: Progress, start: float, part: float, before: str = "") -> Progress:
    """Return a function that reports the progress of a part of the work as progress of the whole."""

    def report(message: str, share: float) -> None:
        progress(f"{before}{message}", start + part * share)

    return report


def silent(message: str, share: float) -> None:
    """Show no progress."""


console = Console(highlight=False)


class _Output(io.FileIO):
    """Standard output or error that may lose its reader; what nobody reads is dropped, and the command goes on."""

    def __init__(self, descriptor: int, needed: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._needed = needed

    def write(self, content: Any) -> int:  # a full pipe that does not block is waited for
        try:
            while (written := super().write(content)) is None:
                select.select([], [self.fileno()], [])
            return written
        except OSError as error:
            with open(os.devnull, "wb") as nothing:  # Python writes the rest again when it ends
                os.dup2(nothing.fileno(), self.fileno())
            if self._needed and error.errno != errno.EPIPE:
                raise OSError(error.errno, error.strerror, "standard output") from None
            return len(content)


def protect_streams() -> None:
    """Let the program work when nobody reads its output: with closed streams, or pipes without a reader.

    A file that cannot be written, such as one on a full disk, is an error only for standard output.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream, encoding, lines = getattr(sys, name), "utf-8", name == "stderr"
        if stream is None:  # closed; no file that is opened later may take its place
            while os.open(os.devnull, os.O_RDWR) < descriptor:
                pass
        elif isinstance(stream, io.TextIOWrapper) and type(getattr(stream.buffer, "raw", stream.buffer)) is io.FileIO:
            stream.flush()
            encoding, lines = stream.encoding, lines or stream.line_buffering or stream.write_through
        else:  # the program that calls this one has put its own there
            continue
        if descriptor:
            raw = _Output(descriptor, needed=name == "stdout")
            text = io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=lines)
            setattr(sys, name, text)


def say(line: str) -> None:
    """Print a line of text; square brackets are not markup, and control characters are shown instead of executed."""
    console.print(escape_controls(line), markup=False, soft_wrap=True)


@contextmanager
def show_progress(quiet: bool) -> Iterator[Progress]:
    """Show progress: a bar on a terminal, a line for every 10% in a log, nothing if quiet."""
    if quiet:
        yield lambda message, share: None
    elif not sys.stderr.isatty():
        last = -1.0

        def log(message: str, share: float) -> None:
            nonlocal last
            if share - last >= 0.1 - 1e-9 or share == 1.0 > last:  # 0.3 - 0.2 is a little less than 0.1
                last = share
                print(f"{100 * share:3.0f}%  {escape_controls(message)}", file=sys.stderr, flush=True)

        yield log
    else:
        from rich import progress

        title = progress.TextColumn("{task.description}", markup=False)
        columns: list[Any] = [
            "{task.percentage:3.0f}%",
            progress.TimeElapsedColumn(),
            "left",
            progress.TimeRemainingColumn(),
        ]
        bar = progress.Progress(
            progress.BarColumn(bar_width=24), *columns, title, console=Console(stderr=True), transient=True
        )
        task = bar.add_task("starting", total=1.0)

        def show(message: str, share: float) -> None:
            bar.start()  # not earlier, so that the bar does not interrupt lines that are printed first
            bar.update(task, description=escape_controls(message), completed=share)

        try:
            yield show
        finally:
            bar.stop()
