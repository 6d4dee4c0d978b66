"""One case of the matrix."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workplace import Recipe

Expected = Literal["refused", "same", "either", "result"]


def leave(box: Path) -> None:
    """Spoil nothing."""


@dataclass(frozen=True)
class Case:
    """A command on bad input, and what it must do.

    Attributes
    ----------
    recipe : Recipe
        The command on good input.
    kind : str
        What is bad.
    what : str
        The case in words.
    words : tuple of str
        What is given after ``brio``.
    spoil : function of Path
        Spoils the folder that the command runs in.
    expected : str
        ``refused``; ``same``: refused, or the result of good input; ``either``: refused, or a result that can be read;
        ``result``.
    names : tuple of str
        A refusal names one of these; empty if anything will do.
    outputs : tuple of str
        Files and folders that may change.
    forbidden : bool
        Whether the command runs as a user without rights.
    number : int
        Place in the matrix.
    """

    recipe: Recipe
    kind: str
    what: str
    words: tuple[str, ...]
    spoil: Callable[[Path], None] = leave
    expected: Expected = "either"
    names: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("new",)
    forbidden: bool = False
    number: int = -1

    @property
    def command(self) -> str:
        """Name of the command, that of the layout included."""
        return self.recipe.command

    def __str__(self) -> str:
        given = " ".join(word if len(word) < 60 else f"{word[:50]}..." for word in self.words)
        return f"case {self.number}, {self.kind}: brio {given!a} ({self.what!a})"
