"""How reports and model cards speak of the two classes: by the names that the cohort gives them."""

from __future__ import annotations

from dataclasses import dataclass

from .covariates import SEX_CODES

_PEOPLE = ("patient", "control", "case")
"""Names that are words for people; others are labels."""


@dataclass(frozen=True)
class ClassNames:
    """The names of both classes."""

    negative: str = "control"  # of label 0 and label 1
    positive: str = "patient"

    @property
    def positives(self) -> str:
        """What participants of the positive class are called."""
        return _name_several(self.positive)

    @property
    def are_positive(self) -> str:
        """What completes "where half are ..."."""
        return self.positives.removeprefix("participants ")

    @property
    def are_negative(self) -> str:
        """What completes "where half are ...", of the negative class."""
        return self.negatives.removeprefix("participants ")

    @property
    def negatives(self) -> str:
        """What participants of the negative class are called."""
        return _name_several(self.negative)

    @property
    def pair(self) -> str:
        """What a pair of both classes is called."""
        if self.positive in _PEOPLE and self.negative in _PEOPLE:
            return f"a {self.positive} and a {self.negative}"
        return f"a participant labelled {self.positive} and one labelled {self.negative}"

    @property
    def are_sexes(self) -> bool:
        """Whether the names are those of the sexes."""
        codes = {SEX_CODES.get(name.strip().lower()) for name in (self.negative, self.positive)}
        return len(codes) == 2 and None not in codes


def _name_several(name: str) -> str:
    return f"{name}s" if name in _PEOPLE else f"participants labelled {name}"
