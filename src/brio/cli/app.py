"""The application that commands are added to, and its entry point."""

from __future__ import annotations

import io
import sys
from typing import Annotated, NoReturn

import typer

from ..errors import BrioError
from ..version import __version__

__all__ = ["app", "fetch_app", "main"]

app = typer.Typer(
    help="Classify patients and controls from functional connectomes, at hospitals the model was not trained on.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
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

    A BrioError or OSError is printed as one line on standard error; the exit status is then 2.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that a terminal cannot show is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrioError as error:
        _fail(str(error))
    except OSError as error:  # a missing file or a full disk is for the user to mend, not a defect to trace
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _fail(message: str) -> NoReturn:
    print(f"brio: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
