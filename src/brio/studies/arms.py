"""Arms of a study: a method with settings under a protocol, each trained as an ordinary job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ..results import MethodSummary, StoredJob

TUNED = " (tuned)"
"""Suffix of the folder of an arm whose reused results are tuned."""

_PAPER_NAMES = {
    "brio": "BRIO",
    "brio-wo-rs": "w/o RS",
    "brio-wo-tr": "w/o TR",
    "brio-wo-sm": "w/o SM",
    "brio-wo-sf": "w/o SF",
    "brio-wo-qg": "w/o QG",
    "brio-shuffled": "shuffled sites",
    "backbone-shuffled": "backbone, shuffled sites",
}


@dataclass(frozen=True)
class Arm:
    """A method, the settings in which it differs from its defaults, and the protocol it is run under."""

    method: str
    settings: tuple[tuple[str, Any], ...] = ()
    protocol: str = "loso"
    tuned: bool = False
    label: str | None = None

    @property
    def name(self) -> str:
        """Its name in tables and folders: ``brio``, ``brio,K=2``."""
        return ",".join([self.method, *(f"{key}={value}" for key, value in self.settings)])

    @property
    def untuned(self) -> Arm:
        """The same arm without reuse of tuned results."""
        return replace(self, tuned=False)


def make_arm(method: str, protocol: str = "loso", *, tuned: bool = False, **settings: Any) -> Arm:
    """Make an arm; settings are given as keywords."""
    return Arm(method, tuple(settings.items()), protocol, tuned)


def display_name(name: str) -> str:
    """Return the name of an arm as readers see it: the paper's name if it has one, then the settings."""
    method, *settings = name.split(",")
    return ", ".join([_PAPER_NAMES.get(method, method), *(setting.strip() for setting in settings)])


@dataclass(frozen=True, eq=False)
class ArmResults:
    """The results of an arm, trained here or reused."""

    arm: Arm
    job: StoredJob  # the job that computed them
    rows: pd.DataFrame  # one row per run of the arm
    reused: bool = False  # whether another command computed them

    @property
    def summary(self) -> MethodSummary:
        """The summary of the method in that job, which may have more runs than the arm."""
        return self.job.summary.methods[self.arm.method]

    @property
    def changed_settings(self) -> dict[str, Any]:
        """Settings of reused runs that are not the method's defaults."""
        return dict(self.summary.changed or {}) if self.reused else {}

    @property
    def facts(self) -> dict[str, Any]:
        """Folds, seeds, epochs and K, which every row of a study states about the runs behind it."""
        counts = {"folds": self.rows["fold"].nunique(), "seeds": self.rows["seed"].nunique()}
        return counts | {"epochs": self.summary.epochs, "K": self.summary.K}
