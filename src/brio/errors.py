"""The one kind of error a user should ever see."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BrioError", "nearest"]


class BrioError(ValueError):
    """Something in the user's input is wrong: what, where and what to do.

    The command line prints its message as one line and leaves with exit status 2.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the known word closest to ``name``, or lists them all.

    Examples
    --------
    >>> nearest("epoch", ["epochs", "K"])
    "did you mean 'epochs'?"
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
