"""Settings of BRIO plus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from ...connectome import BlockRule
from ...domains import BlockLength, Count, Domain, GridSize, Positive, Temperature, Weight
from ...settings import check_domains, require
from ..brio.settings import BrioSettings
from .views import VIEWS

__all__ = ["BrioPlusSettings"]

_ALIGNMENT = "alignment of sites and its qualification were removed in version 3, because they changed no score"


@dataclass(frozen=True)
class BrioPlusSettings:
    """Settings of BRIO plus; docs/brio-plus.md has the equations.

    Attributes
    ----------
    view : str
        What is read of a connectome: ``fc`` for its Fisher z, ``log-s`` for its logarithm after a share s of the
        identity is mixed in, or ``chosen`` for the view with the best mean AUC over inner folds, before the penalty on
        changes.
    J : int
        Number of factors.
    d_t : int
        Number of principal coordinates that a factor's own kernel reads.
    temperature : float
        Of the similarities between ROIs and factors; a low value assigns each ROI to one factor.
    assignment_iterations : int
        Log-domain iterations of the balanced assignment.
    rho : float
        Weight of the factors' own kernels together, where the linear path has weight 1; 0 leaves the linear path only.
    K : int
        Re-estimates of each scan.
    lambda_re : float
        Weight of the penalty on changes of contributions under re-estimation; 0 for none. It is fixed, because inner
        folds cannot choose it: evidence on which all source sites agree looks good in each of them.
    sketch : int
        Largest number of such changes that are penalised one by one; where there are more, as many random combinations
        of them are penalised instead.
    least_penalty, largest_penalty : float
        Ends of the grid of ridge penalties, in units in which the linear kernel of a source scan with itself is 1 on
        average.
    penalties : int
        Number of penalties in the grid, evenly spaced in the logarithm. Of penalties with the same score the strongest
        is chosen.
    block_length : float or None
        A fixed block length instead of the fold-level estimate.
    """

    removed: ClassVar[dict[str, str]] = {
        "shrinkage": "the view replaced it in version 3: set view to one of " + ", ".join(["chosen", *VIEWS]),
        "linear": "the linear path is always there since version 3",
        "gamma": "the width of a factor's kernel is the mean squared distance of source scans since version 3",
        "lambda_env": _ALIGNMENT,
        "variant": _ALIGNMENT,
        "refreshes": _ALIGNMENT,
        "site_intercepts": "every source site has an intercept of its own since version 3",
    }
    """Settings of earlier versions, and what became of them."""

    view: Literal["chosen", "fc", "log-0.8", "log-0.5", "log-0.2"] = "chosen"
    J: Annotated[int, Domain(1, 512)] = 4
    d_t: Count = 32
    temperature: Temperature = 0.1
    assignment_iterations: Count = 60
    rho: Weight = 1.0
    K: Count = 2
    lambda_re: Weight = 1.0
    sketch: Annotated[int, Domain(1, 10_000_000)] = 256
    least_penalty: Positive = 0.1
    largest_penalty: Positive = 30.0
    penalties: GridSize = 6
    block_length: BlockLength | None = None

    def __post_init__(self) -> None:
        check_domains(self)
        rule = "at least the least penalty"
        require(self.largest_penalty >= self.least_penalty, "largest_penalty", self.largest_penalty, rule)

    @property
    def views(self) -> tuple[str, ...]:
        """Views to choose from."""
        return tuple(VIEWS) if self.view == "chosen" else (self.view,)

    @property
    def grid(self) -> np.ndarray:
        """Penalties to choose from. Shape [penalties]."""
        return np.geomspace(self.largest_penalty, self.least_penalty, self.penalties)

    @property
    def qualification(self) -> BrioSettings:
        """The paper's constants of relevance and support."""
        return BrioSettings()

    @property
    def block_rule(self) -> BlockRule:
        """The rule that estimates and bounds the block length."""
        return self.qualification.block_rule
