"""The application that commands are added to, and its entry point."""

from __future__ import annotations

import io
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from ..errors import WHILE_TRAINING, BrioError
from ..storage import UnhashedFilesWarning, warn_unhashed
from ..version import __version__
from .config_file import KINDS, find_kinds, name_config_file, show_option

__all__ = ["app", "fetch_app", "main"]

_RESUMING = ("run", "tune", "study", "demo")
"""Commands that go on from where they were when they are given again."""

_UsageError: Any = typer.BadParameter.__base__
"""What typer raises where words make no command; it exports one kind of it alone."""


class _Terminated(KeyboardInterrupt):
    """The system asks the command to end; it cleans up as after Ctrl-C."""


class _Commands(typer.core.TyperGroup):
    """All commands; each ends in the same way when it is interrupted."""

    def invoke(self, context: typer.Context) -> Any:  # type: ignore[override]
        """Run a command; on Ctrl-C say what is left of it and exit with status 130, or 143 where it is terminated."""
        try:
            return super().invoke(context)
        except BrioError as error:
            raise name_config_file(error, context.meta) from error
        except KeyboardInterrupt as interruption:
            _explain_interruption(interruption, context.invoked_subcommand)


app = typer.Typer(
    help="Classify patients and controls from functional connectomes, at hospitals the model was not trained on.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    cls=_Commands,
)
# sub-commands of ``brio fetch``; here so that modules of commands import one module only
fetch_app = typer.Typer(help="Download public data and turn it into a cohort.", no_args_is_help=True)
app.add_typer(fetch_app, name="fetch")


def _print_version(requested: bool) -> None:
    if requested:
        print(__version__)
        raise typer.Exit


@app.callback()
def _read_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Read the options that stand before the command."""


def main() -> None:
    """Run the command line.

    A BrioError, OSError, lack of memory or a wrong option is printed as one line on standard error; the exit status is
    then 2. An interrupted command cleans up, says how to go on, and exits with status 130 (Ctrl-C) or 143 (terminated).
    Any other error is a defect: one line names the stack that it ended, then Python prints its trace, with status 1.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that a terminal cannot show is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    try:
        with _end_when_terminated(), _show_notice_once():
            try:
                status = app(standalone_mode=False, prog_name="brio")
            finally:
                sys.stdout.flush()  # a full disk shows here, not when Python ends
    except BrioError as error:
        _fail(str(error))
    except _UsageError as error:
        _explain_usage(error)
    except KeyboardInterrupt as interruption:  # before the command began, or after it ended
        _explain_interruption(interruption, None)
    except OSError as error:  # a missing file or a full disk is for the user to mend, not a defect to trace
        _fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    except Exception as error:  # a defect, whose trace is needed to mend it, unless memory was short
        if _is_lack_of_memory(error):
            _fail("not enough memory; close other programs, or take fewer scans, ROIs or runs at once")
        _introduce_trace(error)
        raise
    if status:  # of an exit that a command asked for; commands return nothing
        sys.exit(status)


@contextmanager
def _end_when_terminated() -> Iterator[None]:
    """Let a request to end, as a scheduler or a closed terminal sends it, interrupt the command like Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    earlier = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
    earlier = {number: handler for number, handler in earlier.items() if handler == signal.SIG_DFL}  # not under nohup
    for number in earlier:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def _show_notice_once() -> Iterator[None]:
    """Print the notice about files without hashes in one line, once by a command."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnhashedFilesWarning)
        warn_unhashed.cache_clear()
        show = warnings.showwarning

        def show_in_one_line(message: Warning | str, category: type[Warning], *where: Any, **further: Any) -> None:
            if issubclass(category, UnhashedFilesWarning):
                print(f"brio: notice: {message}", file=sys.stderr)
            else:
                show(message, category, *where, **further)

        warnings.showwarning = show_in_one_line
        yield


def _explain_interruption(interruption: KeyboardInterrupt, command: str | None) -> NoReturn:
    terminated = isinstance(interruption, _Terminated)
    how = " to go on from where it was" if command in _RESUMING else "; nothing is left half-written"
    word = "terminated" if terminated else "interrupted"
    print(f"brio: {word}; give the same command again{how}", file=sys.stderr)
    sys.exit(143 if terminated else 130)


def _is_lack_of_memory(error: Exception) -> bool:
    """Whether memory was short. PyTorch has an error of its own for a GPU, and none for a CPU."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error))  # other words differ by build
    )


def _introduce_trace(error: Exception) -> None:
    """Say in one line that a defect follows, and in which stack of a job it appeared."""
    notes = (note for note in getattr(error, "__notes__", ()) if note.startswith(WHILE_TRAINING))
    where = next((f" {note}" for note in notes), "")
    kept = "; finished runs are kept" if where else ""
    what = f"unexpected {type(error).__name__}{where}{kept}"
    whose = "of brio, or of a file that --load executed; the trace below says where"
    print(f"brio: {what}. This is a defect {whose}", file=sys.stderr)


def _explain_usage(error: Any) -> NoReturn:
    """Say in one line why words make no command, and where help is; without any word, the help itself is printed."""
    message = error.format_message().strip()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        sys.exit(2)
    param, context = getattr(error, "param", None), error.ctx
    if param is not None and context is not None and message.startswith("Invalid value"):
        kind = find_kinds(context.command)[param.name][0]
        message = f"{show_option(param)}: must be {KINDS[kind]}"  # the parser has words of its own
    message = f"{message[:1].lower()}{message[1:].rstrip('.')}"
    see = "See" if message.endswith("?") else "; see"
    _fail(f"{message} {see} '{'brio' if context is None else context.command_path} --help'".replace(" ;", ";"))


def _fail(message: str) -> NoReturn:
    print(f"brio: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
