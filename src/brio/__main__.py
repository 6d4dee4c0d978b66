"""The program ``brio``, also as ``python -m brio``."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def _end_before_the_command(number: int, frame: FrameType | None) -> NoReturn:
    """End at once: while the command line is being imported, nothing is written that could be left half-written."""
    word = "interrupted" if number == signal.SIGINT else "terminated"
    if sys.stderr is not None:
        print(f"brio: {word}; run the same command again", file=sys.stderr, flush=True)
    os._exit(128 + number)


_end_before_the_command.before_the_command = True  # type: ignore[attr-defined]
_END_BY = ("SIGINT", "SIGTERM", "SIGHUP")


def main() -> None:
    """Run the command line; a request to end is answered from the start."""
    for number in (getattr(signal, name) for name in _END_BY if hasattr(signal, name)):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # not under nohup
            signal.signal(number, _end_before_the_command)
    try:
        from .cli import main as run_command_line
    except Exception as error:
        from .errors import explain_import

        if not (cause := explain_import(error)):
            raise
        print(f"brio: {cause}", file=sys.stderr)
        sys.exit(2)
    run_command_line()


if __name__ == "__main__":
    main()
