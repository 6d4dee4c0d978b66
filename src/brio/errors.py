"""The one user-facing error of brio."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["REPEAT_JOB", "BrioError", "file_error", "nearest"]

REPEAT_JOB = "repeat the job that wrote it"
"""What to do about a file of a job that cannot be used."""


class BrioError(ValueError):
    """An error in the user's input; its message says what is wrong, where, and what to do.

    The command line prints the message as one line and ends with exit status 2.
    """


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
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not close:  # capitals are what people get wrong most
        lowered = {one.lower(): one for one in names}
        close = [lowered[one] for one in difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)]
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"


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
