"""How long work tells where it is: a call with words and a share done, drawn by whoever listens."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "silent"]


class Progress(Protocol):
    """Called with what is being done and the share of the present job that is done (0 to 1)."""

    def __call__(self, message: str, share: float) -> None: ...


def silent(message: str, share: float) -> None:
    """Tell nobody."""
