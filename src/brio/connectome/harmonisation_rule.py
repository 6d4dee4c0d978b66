"""Settings for harmonising connectomes, in a module of their own because a job is checked without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..cohort.covariates import COVARIATE_COLUMNS
from ..errors import BrioError
from ..settings import require

KINDS = ("none", "combat", "residualise")
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
"""Spellings of a setting that is true or false."""


@dataclass(frozen=True)
class HarmonisationRule:
    """Whether and how connectomes are harmonised before a method reads them.

    Attributes
    ----------
    kind : {"none", "combat", "residualise"}
        What is fitted to the source scans of each run, edge by edge. ``combat``: site effects, which are removed.
        ``residualise``: slopes on covariates within sites and classes; the effects of these covariates are removed from
        all scans.
    unseen : {"identity", "pooled", "raise", "unlabelled"}
        What happens to scans from a site that ComBat was not fitted to (validation and test sites). ``identity``: they
        are left unchanged. ``pooled``: the average site effect is removed. ``raise``: an error is raised.
        ``unlabelled``: an effect estimated from all scans of that site, without their labels, is removed; this is
        transductive, and the results say so. Used only for ``combat``, because slopes on covariates apply to scans from
        any site.
    covariates : bool or str
        ``combat``: whether effects of age and sex are preserved. ``residualise``: the covariates whose effects are
        removed, any of sex, age and motion, separated by commas.
    """

    kind: Literal["none", "combat", "residualise"] = "none"
    unseen: Literal["identity", "pooled", "raise", "unlabelled"] = "identity"
    covariates: str | bool = False

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "harmonise.kind", self.kind, "none, combat or residualise")
        text = str(self.covariates).replace(" ", "").lower()
        if self.kind != "residualise":
            rule = "true or false, unless harmonise.kind is residualise"
            require(text in TRUTH, "harmonise.covariates", self.covariates, rule)
            object.__setattr__(self, "covariates", TRUTH[text])
            return
        names, known = set(text.split(",")), ", ".join(COVARIATE_COLUMNS)
        rule = f"one or more of {known}, separated by commas, if harmonise.kind is residualise"
        require(names <= set(COVARIATE_COLUMNS), "harmonise.covariates", self.covariates, rule)
        require(self.unseen == "identity", "harmonise.unseen", self.unseen, "left out if harmonise.kind is residualise")
        # one spelling, so that a run has one name
        object.__setattr__(self, "covariates", ",".join(name for name in COVARIATE_COLUMNS if name in names))

    @property
    def covariate_names(self) -> tuple[str, ...]:
        """Covariates that are preserved or removed."""
        if isinstance(self.covariates, str):
            return tuple(self.covariates.split(","))
        return ("sex", "age") if self.covariates else ()

    @property
    def transductive(self) -> bool:
        """Whether harmonisation uses the scans of the test site before they are predicted."""
        return self.kind != "none" and self.unseen == "unlabelled"

    def __str__(self) -> str:
        if self.kind == "residualise":
            return f"without effects of {', '.join(self.covariate_names)}"
        return "" if self.kind == "none" else f"ComBat, unseen sites: {self.unseen}"


def require_covariates(values: np.ndarray, rule: HarmonisationRule, where: str) -> None:
    """Require that each covariate of a rule is known for at least one source scan.

    Shapes: values [n, C].
    """
    for name, column in zip(rule.covariate_names, values.T, strict=True):
        if np.isnan(column).all():
            lack = f"no source scan has a value for {name}, so its effect cannot be learned"
            raise BrioError(f"{where}: {lack}; leave {name} out of harmonise.covariates")
