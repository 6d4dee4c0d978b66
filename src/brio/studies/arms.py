"""Arms of a study: a method with settings under a protocol, each an ordinary job folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ..results import MethodSummary, StoredJob

__all__ = ["TUNED", "Arm", "ArmResults", "arm", "display_name"]

TUNED = " (tuned)"
"""What the folder of an arm ends in where its reused results are tuned."""

_PAPER_NAMES = {
    "brio": "BRIO",
    "brio-wo-rs": "w/o RS",
    "brio-wo-tr": "w/o TR",
    "brio-wo-sm": "w/o SM",
    "brio-wo-sf": "w/o SF",
    "brio-wo-qg": "w/o QG",
}


@dataclass(frozen=True)
class Arm:
    """A method, the settings in which it differs from its defaults, and the protocol it is run under.

    Attributes
    ----------
    method : str
    settings : tuple of (str, value)
    protocol : {"loso", "kfold"}
    tuned : bool
        Whether reused results of a tuned job may stand for it. They may where methods are compared with each other,
        and not where a method is compared with parts of itself, which nobody tuned.
    """

    method: str
    settings: tuple[tuple[str, Any], ...] = ()
    protocol: str = "loso"
    tuned: bool = False

    @property
    def name(self) -> str:
        """Its name in tables and folders: ``brio``, ``brio,K=2``."""
        return ",".join([self.method, *(f"{key}={value}" for key, value in self.settings)])

    @property
    def untuned(self) -> Arm:
        """The same arm, for which tuned results do not stand."""
        return replace(self, tuned=False)


def arm(method: str, protocol: str = "loso", *, tuned: bool = False, **settings: Any) -> Arm:
    """Make an arm from keywords.

    Parameters
    ----------
    method : str
    protocol : {"loso", "kfold"}
    tuned : bool
        See :class:`Arm`.
    **settings
        Settings in which it differs from the defaults of the method.

    Examples
    --------
    >>> arm("brio", K=2).name
    'brio,K=2'
    """
    return Arm(method, tuple(settings.items()), protocol, tuned)


def display_name(name: str) -> str:
    """Return the name of an arm as readers see it: the paper's words where it has some, then the settings.

    Examples
    --------
    >>> display_name("brio-wo-rs"), display_name("brio,K=2"), display_name("ridge")
    ('w/o RS', 'BRIO, K=2', 'ridge')
    """
    method, *settings = name.split(",")
    return ", ".join([_PAPER_NAMES.get(method, method), *(one.strip() for one in settings)])


@dataclass(frozen=True, eq=False)
class ArmResults:
    """The results of an arm, trained here or reused.

    Attributes
    ----------
    arm : Arm
    job : StoredJob
        The job they are from.
    rows : DataFrame
        One row per run of the arm.
    reused : bool
    """

    arm: Arm
    job: StoredJob
    rows: pd.DataFrame
    reused: bool = False

    @property
    def summary(self) -> MethodSummary:
        """What the method reached in that job, which may have more runs than the arm."""
        return self.job.summary.methods[self.arm.method]

    @property
    def changed_settings(self) -> dict[str, Any]:
        """Settings of reused runs that are not the method's defaults."""
        return dict(self.summary.changed or {}) if self.reused else {}

    @property
    def facts(self) -> dict[str, Any]:
        """What every row of a study says about the runs behind it: folds, seeds, epochs and K."""
        counts = {"folds": self.rows["fold"].nunique(), "seeds": self.rows["seed"].nunique()}
        return counts | {"epochs": self.summary.epochs, "K": self.summary.K}
