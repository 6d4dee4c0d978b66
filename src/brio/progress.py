"""Progress of long work: a callback that receives a message and the share of the work that is done."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A function that is called with what is being done and the share of the job that is done (0 to 1)."""

    def __call__(self, message: str, share: float) -> None: ...


def silent(message: str, share: float) -> None:
    """Show no progress."""
