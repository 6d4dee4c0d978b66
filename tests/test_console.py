"""Progress in a log, on a terminal, and where nobody wants any."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from brio.console import say, show_progress


class Terminal(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def on_terminal() -> Iterator[Terminal]:
    """Let standard error be a terminal; within the test, since pytest replaces it before."""
    known = mock.patch.dict(os.environ, {"TERM": "xterm", "COLUMNS": "120"})
    with known, mock.patch.object(sys, "stderr", Terminal()) as terminal:
        yield terminal


def test_a_log_has_a_line_at_every_tenth_and_one_at_the_end(capsys):
    with show_progress(quiet=False) as progress:
        for k in range(51):
            progress(f"run {k}", k / 50)
        progress("run 50 again", 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == [str(share) for share in range(0, 101, 10)]
    assert lines[1] == " 10 %  run 5"
    assert lines[-1] == "100 %  run 50"


def test_a_job_that_ends_within_a_tenth_says_so(capsys):
    with show_progress(quiet=False) as progress:
        progress("almost", 0.95)
        progress("done", 1.0)
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["almost", "done"]


def test_quiet_means_nothing(capsys):
    with on_terminal() as terminal, show_progress(quiet=True) as progress:
        progress("run 1", 0.5)
    with show_progress(quiet=True) as progress:
        progress("run 1", 0.5)
    assert terminal.getvalue() == ""
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_from_the_first_report_on():
    with on_terminal() as terminal, show_progress(quiet=False) as progress:
        assert terminal.getvalue() == "", "lines that are printed first are not interrupted"
        progress("stack [1] of 2", 0.5)
    shown = terminal.getvalue()
    assert " 50 %" in shown
    assert "stack [1] of 2" in shown, "brackets are no markup"


def test_the_bar_of_a_terminal_ends_with_the_job_that_fails():
    hide, show = "\x1b[?25l", "\x1b[?25h"  # the cursor

    def fail():
        with show_progress(quiet=False) as progress:
            progress("run 1", 0.1)
            assert hide in terminal.getvalue()
            raise ZeroDivisionError

    with on_terminal() as terminal, pytest.raises(ZeroDivisionError):
        fail()
    assert terminal.getvalue().rindex(show) > terminal.getvalue().rindex(hide)


def test_brackets_in_a_line_are_no_markup(capsys):
    say("[bold]site[/bold] " + "long " * 40)
    assert capsys.readouterr().out == "[bold]site[/bold] " + "long " * 40 + "\n"
