"""The one user-facing error of brio."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BrioError", "nearest"]


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
