"""The application that commands are added to, and its entry point."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from ..console import protect_streams
from ..errors import WHILE_TRAINING, BrioError, escape_controls, explain_import
from ..storage import remove_old_scratch
from ..version import __version__
from .config_file import KINDS, find_kinds, name_config_file, show_option

DATA, EVALUATION, MODELS, STUDIES = "Data", "Evaluation", "Models", "Studies of the paper"
OTHERS = "Everything else"
"""Panels of commands in the help, in the order in which a study uses them, from files to models."""

_RESUMING = ("run", "tune", "study", "demo")
"""Commands that resume where they stopped when they are run again."""

_UsageError: Any = typer.BadParameter.__base__
"""What typer raises for invalid usage; typer exports only one of its subclasses."""


class _AskedToEnd(KeyboardInterrupt):
    """Ctrl-C or a signal. Python kills itself at the end if a plain KeyboardInterrupt has passed through ``exec``."""


class _Commands(typer.core.TyperGroup):
    """All commands."""

    def list_commands(self, context: typer.Context) -> list[str]:  # type: ignore[override]
        """List the commands panel by panel."""
        panels = [DATA, EVALUATION, MODELS, STUDIES, OTHERS]
        return sorted(self.commands, key=lambda name: panels.index(str(self.commands[name].rich_help_panel)))  # type: ignore[attr-defined]

    def invoke(self, context: typer.Context) -> Any:  # type: ignore[override]
        """Run a command; an error about an option says whether it stands in a file, an interruption passes."""
        try:
            return super().invoke(context)
        except BrioError as error:
            raise name_config_file(error, context.meta) from error
        except KeyboardInterrupt as interruption:
            _asked.signal = _asked.signal or signal.SIGINT
            raise SystemExit(130) from interruption  # the parser of options has an end of its own for interruptions
        finally:
            _asked.command = context.invoked_subcommand


app = typer.Typer(
    help="Classify patients and controls from functional connectomes, at hospitals the model was not trained on.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    cls=_Commands,
)
# sub-commands of ``brio fetch``; here so that modules of commands import one module only
fetch_app = typer.Typer(help="Download public data and write them as a cohort.", no_args_is_help=True)
app.add_typer(fetch_app, name="fetch", rich_help_panel=DATA)


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

    A BrioError, an OSError, a lack of memory or an invalid option is reported in one line on standard error, with exit
    status 2. An interrupted command cleans up, says how to resume, and exits with status 130 (Ctrl-C) or 143
    (terminated). Any other error is a defect: one line names the stack in which it occurred, then Python prints the
    traceback and exits with status 1.
    """
    BrioError.names_options = True
    protect_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that a terminal cannot show is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    remove_old_scratch()
    _asked.command, _asked.signal = None, None
    try:
        with _end_when_asked():
            try:
                status = app(standalone_mode=False, prog_name="brio")
            finally:
                sys.stdout.flush()  # a full disk shows here, not when Python ends
    except BaseException as error:  # whatever a request to end became on its way through other packages
        if _asked.signal is not None or isinstance(error, KeyboardInterrupt):
            _explain_interruption()
        _explain_error(error)
        raise
    if _asked.signal is not None:  # another package kept the exception to itself until the command was finished
        _explain_interruption()
    if status:  # of an exit that a command asked for; commands return nothing
        sys.exit(status)


def _explain_error(error: BaseException) -> None:
    """Print what is wrong and exit; introduce a defect, whose trace is needed to fix it."""
    if isinstance(error, BrioError):
        _fail(str(error))
    if isinstance(error, _UsageError):
        _explain_usage(error)
    if isinstance(error, Exception) and (cause := explain_import(error)):
        _fail(cause)
    if isinstance(error, OSError):  # a missing file or a full disk is for the user to mend, not a defect to trace
        _fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    if isinstance(error, Exception):
        if _is_lack_of_memory(error):
            _fail(
                "not enough memory; close other programs, use fewer scans or an atlas with fewer ROIs or, in "
                "training, a smaller --runs-per-stack with another --out"
            )
        _introduce_trace(error)


def _is_cleaning_up() -> bool:
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


@dataclass
class _Asked:
    """The command that was given, and the signal by which it was asked to end."""

    command: str | None = None
    signal: int | None = None


_asked = _Asked()


@contextmanager
def _end_when_asked() -> Iterator[None]:
    """Let Ctrl-C, or a request to end from a scheduler or a closed terminal, interrupt the command.

    An exception that comes while other packages are imported or collected may be lost there. It is raised again until
    the command cleans up.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _asked.signal is None:
            _asked.signal = number
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
        elif number == getattr(signal, "SIGALRM", None) and _is_cleaning_up():
            return
        raise _AskedToEnd

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM"):
        if (number := getattr(signal, name, None)) is not None:
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler) or hasattr(handler, "before_the_command"):
                earlier[number] = handler  # others are left alone, as under nohup
                signal.signal(number, interrupt)
    try:
        yield
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _explain_interruption() -> NoReturn:
    how = " to resume" if _asked.command in _RESUMING else " (no half-written files were left)"
    interrupted = _asked.signal in (None, signal.SIGINT)
    print(f"brio: {'interrupted' if interrupted else 'terminated'}; run the same command again{how}", file=sys.stderr)
    sys.exit(130 if interrupted else 143)


def _is_lack_of_memory(error: Exception) -> bool:
    """Whether memory ran out. PyTorch has an error of its own for a GPU, and none for a CPU."""
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
    whose = "in brio, or in your file if you used --load; the traceback below shows where"
    print(f"brio: {what}. This is a bug {whose}", file=sys.stderr)


def _explain_usage(error: Any) -> NoReturn:
    """Say in one line why arguments are not a valid command, and where help is; without arguments, print the help."""
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
    print(f"brio: {escape_controls(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(2)
