"""The application that commands are added to, and its entry point."""

from __future__ import annotations

import sys

import typer

from ..errors import BrioError

__all__ = ["app", "fetch_app", "main"]

app = typer.Typer(
    help="Classify patients and controls from functional connectomes, at hospitals the model was not trained on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
fetch_app = typer.Typer(help="Download public data and turn it into a cohort.", no_args_is_help=True)
app.add_typer(fetch_app, name="fetch")


def main() -> None:
    """Entry point: user-facing errors are one line on standard error and exit status 2."""
    try:
        app()
    except BrioError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    else:
        return
    print(f"brio: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
