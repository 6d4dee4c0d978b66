"""Arms of a study: a method with settings under a protocol, each an ordinary folder of runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["Arm", "Finished", "arm", "printed"]

_PRINTED = {
    "brio": "BRIO",
    "brio-wo-rs": "w/o RS",
    "brio-wo-tr": "w/o TR",
    "brio-wo-sm": "w/o SM",
    "brio-wo-sf": "w/o SF",
    "brio-wo-qg": "w/o QG",
}


@dataclass(frozen=True)
class Arm:
    """A method, the settings in which it departs from its own, and the protocol it is run under.

    ``tuned``: rows of a tuned job, where some are handed in, may stand for it. So it is where methods are compared with
    each other, and not where a method is compared with parts of itself, which nobody tuned.
    """

    method: str
    settings: tuple[tuple[str, Any], ...] = ()
    protocol: str = "loso"
    tuned: bool = False

    @property
    def name(self) -> str:
        """What tables and folders call it: ``brio``, ``brio,K=2``."""
        return ",".join([self.method, *(f"{key}={value}" for key, value in self.settings)])

    @property
    def untuned(self) -> Arm:
        """The arm for which tuned rows do not stand."""
        return replace(self, tuned=False)


def arm(method: str, protocol: str = "loso", *, tuned: bool = False, **settings: Any) -> Arm:
    """An arm from keywords.

    Examples
    --------
    >>> arm("brio", K=2).name
    'brio,K=2'
    """
    return Arm(method, tuple(settings.items()), protocol, tuned)


def printed(name: str) -> str:
    """What readers are shown instead of an arm's name: the paper's words where it has some, settings behind them.

    Examples
    --------
    >>> printed("brio-wo-rs"), printed("brio,K=2"), printed("ridge")
    ('w/o RS', 'BRIO, K=2', 'ridge')
    """
    method, *settings = name.split(",")
    return ", ".join([_PRINTED.get(method, method), *(one.strip() for one in settings)])


@dataclass(frozen=True, eq=False)
class Finished:
    """The finished runs of an arm: its rows, the summary over sites, and the folder they came from.

    ``changed`` holds settings of runs that were handed in where they are not the method's own.
    """

    arm: Arm
    folder: Path
    rows: pd.DataFrame
    summary: dict[str, Any]
    changed: dict[str, Any] = field(default_factory=dict)

    @property
    def tuned(self) -> bool:
        """Whether settings were chosen among several for each fold."""
        return (self.summary["methods"][self.arm.method].get("tuning") or {"budget": 1})["budget"] > 1

    @property
    def facts(self) -> dict[str, Any]:
        """What every row of a study says of the runs behind it."""
        found = self.summary["methods"][self.arm.method]
        counted = {"folds": self.rows["fold"].nunique(), "seeds": self.rows["seed"].nunique()}
        return counted | {name: found[name] for name in ("epochs", "K")}
