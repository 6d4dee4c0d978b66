"""The one user-facing error of brio."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "REPEAT_JOB",
    "WHILE_TRAINING",
    "BrioError",
    "describe_error",
    "file_error",
    "find_nearest",
    "nearest",
    "take_first_line",
]

REPEAT_JOB = "repeat the job that wrote it"
"""What to do about a file of a job that cannot be used."""
WHILE_TRAINING = "while training "
"""Begins the note that an error gets when it ends a stack; method and folds follow."""


class BrioError(ValueError):
    """An error in the user's input; its message says what is wrong, where, and what to do.

    The command line prints the message as one line and ends with exit status 2.
    """


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that is closest to ``name``; None where none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not close:  # capitals are what people get wrong most
        lowered = {one.lower(): one for one in names}
        close = [lowered[one] for one in difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)]
    return close[0] if close else None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that suggests the known name closest to ``name``, or lists all known names.

    Examples
    --------
    >>> nearest("epoch", ["epochs", "K"])
    "did you mean 'epochs'?"
    >>> nearest("Pitt", ["NYU", "PITT"])
    "did you mean 'PITT'?"
    """
    names = sorted(known)
    close = find_nearest(name, names)
    return f"known: {', '.join(names)}" if close is None else f"did you mean '{close}'?"


def file_error(path: Path, problem: str, remedy: str = REPEAT_JOB) -> BrioError:
    """Make the error for a file that cannot be used.

    Parameters
    ----------
    path : Path
        The file, or the folder where it is missing.
    problem : str
        What is wrong with it.
    remedy : str
        What to do about it.

    Examples
    --------
    >>> str(file_error(Path("job/summary.json"), "is empty"))
    'job/summary.json: is empty; repeat the job that wrote it'
    """
    return BrioError(f"{path}: {' '.join(problem.split())}; {remedy}")


def describe_error(error: BaseException) -> str:
    """Say what went wrong: the message of a user-facing error, else also its kind.

    Examples
    --------
    >>> describe_error(BrioError("no such fold")), describe_error(KeyError("fold"))
    ('no such fold', "KeyError: 'fold'")
    """
    return str(error) if isinstance(error, BrioError) else f"{type(error).__name__}: {error}"


def take_first_line(text: str) -> str:
    r"""Return the first line of a text that is not blank, such as a reason without the trace that follows it.

    Examples
    --------
    >>> take_first_line("RuntimeError: no kernel\nException raised from launch at CUDA.cpp:7")
    'RuntimeError: no kernel'
    """
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
