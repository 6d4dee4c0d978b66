"""Progress in a log, on a terminal, and where nobody wants any."""

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

import brio.__main__ as program
from brio.console import _Output, protect_streams, say, show_progress


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
    assert [line.split()[0] for line in lines] == [f"{share}%" for share in range(0, 101, 10)]
    assert lines[1] == " 10%  run 5"
    assert lines[-1] == "100%  run 50"
    with show_progress(quiet=False) as progress:  # a job that ends within a tenth says so
        progress("almost", 0.95)
        progress("done", 1.0)
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["almost", "done"]


def test_quiet_means_nothing(capsys):
    with on_terminal() as terminal, show_progress(quiet=True) as progress:
        progress("run 1", 0.5)
    assert terminal.getvalue() == ""
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_from_the_first_report_on():
    with on_terminal() as terminal, show_progress(quiet=False) as progress:
        assert terminal.getvalue() == "", "lines that are printed first are not interrupted"
        progress("stack [1] of 2", 0.5)
    shown = terminal.getvalue()
    assert " 50%" in shown
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


def test_output_that_nobody_reads_is_dropped_and_a_full_disk_is_an_error_of_standard_output():
    reading, writing = os.pipe()
    os.close(reading)
    assert _Output(writing, needed=True).write(b"text") == 4  # and again, since nothing may be left to write
    assert _Output(writing, needed=True).write(b"text") == 4
    os.close(writing)
    full = os.open("/dev/full", os.O_WRONLY)
    assert _Output(full, needed=False).write(b"text") == 4
    os.close(full)
    full = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="standard output"):
        _Output(full, needed=True).write(b"text")
    os.close(full)


def test_streams_that_another_program_put_there_stay():
    with on_terminal() as terminal:
        protect_streams()
        assert sys.stderr is terminal


def test_the_program_answers_a_request_to_end_from_its_start():
    """Before the command line is imported, which takes its time: nothing is written yet that could be left half."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, signal.SIG_DFL)
        with mock.patch("brio.cli.main") as run:
            program.main()
        run.assert_called_once_with()
        answer = signal.getsignal(signal.SIGTERM)
        with mock.patch("os._exit") as end, mock.patch.object(sys, "stderr", io.StringIO()) as said:
            answer(signal.SIGTERM, None)
        end.assert_called_once_with(128 + signal.SIGTERM)
        assert said.getvalue() == "brio: terminated; run the same command again\n"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
