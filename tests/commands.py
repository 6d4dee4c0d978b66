"""Run a command of brio in this process."""

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from unittest import mock

import pytest
import typer

from brio.cli import app, main
from brio.errors import BrioError


class Said(NamedTuple):
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that it printed."""
        return self.out + self.err

    def succeed(self) -> "Said":
        """Require that it did what it was asked."""
        assert self.status == 0, self
        return self

    def refuse(self) -> "Said":
        """Require that it was refused."""
        assert self.status == 2, self
        return self

    def refuse_in_a_line(self) -> str:
        """Require that it was refused in one line, and return the line."""
        assert (self.refuse().err[:6], self.err.count("\n")) == ("brio: ", 1), self
        return self.err


def command(*words: object) -> Said:
    """Run ``brio`` with these words; an error that is not meant for people comes through."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    argv = mock.patch.object(sys, "argv", ["brio", *map(str, words)])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    return Said(status, out.getvalue(), err.getvalue())


def refuse(message: str, call: Callable[..., object], *arguments: object, **options: object) -> None:
    """Require that a call is refused with a message."""
    with pytest.raises(BrioError, match=message):
        call(*arguments, **options)


def wait_until(seen: Callable[[], object]) -> None:
    """Wait until something is seen, such as a file of another process."""
    end = time.monotonic() + 240
    while not seen():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.001)


def walk_commands(command: object = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every command and group of commands, with the words that call it."""
    group = typer.main.get_command(app) if command is None else command
    for name, one in getattr(group, "commands", {}).items():
        yield (*words, name), one
        yield from walk_commands(one, (*words, name))
