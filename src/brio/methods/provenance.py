"""Where an implementation comes from, and the block of a table in which its rows stand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Provenance:
    """Where an implementation comes from; every table shows it with the method's scores.

    Attributes
    ----------
    kind : str
        One phrase, such as "textbook".
    note : str
        What a reader has to know besides; may be empty.
    """

    kind: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind} ({self.note})" if self.note else self.kind


PAPERS_OWN = Provenance("the paper's own method", "no public code")
PUBLISHED = Provenance("as the published code reads")
TEXTBOOK = Provenance("textbook")
CODE_WITH_DIFFERENCES, INTENT, READING, REDESIGN = (
    "published code, with differences",
    "paper's intent",
    "our reading",
    "redesign",
)

BLOCKS = ("BRIO", "published code or equations", READING, REDESIGN, "linear", "controls", "other methods")
"""Blocks of a table of methods, in their order. The last one is for methods of users."""


def follow_code(difference: str) -> Provenance:
    """Declare that published code was followed, but for ``difference``, which says in what and why."""
    return Provenance(CODE_WITH_DIFFERENCES, difference)


def follow_paper(difference: str) -> Provenance:
    """Declare that a paper was followed where its published code differs; ``difference`` says in what."""
    return Provenance(INTENT, f"published code differs: {difference}")


def reconstruct(reason: str) -> Provenance:
    """Declare that a method was written without its complete text or code; ``reason`` says from what."""
    return Provenance(READING, reason)


def redesign(change: str) -> Provenance:
    """Declare that a part of the published method was replaced, since it does not fit; ``change`` says which and why.

    A score of a redesign says nothing about the published method.
    """
    return Provenance(REDESIGN, change)


def find_block(kind: str, family: str, control: bool) -> str:
    """Find the block of a table in which a method stands, one of :data:`BLOCKS`."""
    if control:
        return "controls"
    if kind in (READING, REDESIGN):
        return kind
    if family in ("linear", "BRIO"):
        return family
    published = (PUBLISHED.kind, TEXTBOOK.kind, CODE_WITH_DIFFERENCES, INTENT)
    return "published code or equations" if kind in published else "other methods"


def rank_block(block: str) -> int:
    """Return the position of a block in a table; blocks that are not known here come last."""
    return BLOCKS.index(block) if block in BLOCKS else len(BLOCKS)
