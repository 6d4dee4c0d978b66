"""Settings of BRIO plus."""

from __future__ import annotations

from dataclasses import dataclass

from ...connectome import BlockRule
from ...settings import require
from ..brio.settings import BrioSettings, Variant
from ..settings import require_above, require_at_least

__all__ = ["BrioPlusSettings"]


@dataclass(frozen=True)
class BrioPlusSettings:
    """Settings of BRIO plus; docs/brio-plus.md has the equations.

    Attributes
    ----------
    shrinkage : float
        Share of the identity in each correlation matrix before its logarithm is taken.
    J : int
        Number of factors.
    d_t : int
        Number of principal coordinates that a factor's own kernel reads.
    temperature : float
        Of the similarities between ROIs and factors; a low value assigns each ROI to one factor.
    assignment_iterations : int
        Log-domain iterations of the balanced assignment.
    linear : bool
        Whether there is a linear path.
    rho : float
        Weight of the factors' own kernels together, where the linear path has weight 1; 0 leaves the linear path only.
    gamma : float
        Inverse width of the factors' kernels, in units of the mean squared distance of source scans.
    K : int
        Re-estimates of each scan.
    lambda_re : float
        Weight of the penalty on changes of contributions under re-estimation; 0 for none.
    sketch : int
        Largest number of such changes that are penalised one by one; where there are more, as many random combinations
        of them are penalised instead.
    lambda_env : float
        Weight of qualification-guided alignment; 0 for none.
    variant : str
        Qualification that guides alignment: full or one of the paper's ablations.
    refreshes : int
        How often the factors are qualified and the model is solved again under their qualification, after a first
        solution without these penalties.
    least_penalty, largest_penalty : float
        Ends of the grid of ridge penalties, in units in which the linear kernel of a source scan with itself is 1 on
        average.
    penalties : int
        Number of penalties in the grid, evenly spaced in the logarithm.
    site_intercepts : bool
        Whether each source site has an intercept of its own, or all share one.
    block_length : float or None
        A fixed block length instead of the fold-level estimate.
    """

    shrinkage: float = 0.5
    J: int = 4
    d_t: int = 32
    temperature: float = 0.1
    assignment_iterations: int = 60
    linear: bool = True
    rho: float = 1.0
    gamma: float = 1.0
    K: int = 2
    lambda_re: float = 1.0
    sketch: int = 256
    lambda_env: float = 0.1
    variant: Variant = "full"
    refreshes: int = 1
    least_penalty: float = 0.1
    largest_penalty: float = 30.0
    penalties: int = 6
    site_intercepts: bool = True
    block_length: float | None = None

    def __post_init__(self) -> None:
        require_at_least(self, 1, "J", "d_t", "K", "assignment_iterations", "sketch", "penalties")
        require_above(self, 0, "temperature", "gamma", "least_penalty")
        require_at_least(self, 0, "rho", "lambda_re", "lambda_env", "refreshes")
        require(0 < self.shrinkage < 1, "shrinkage", self.shrinkage, "above 0 and below 1")
        require(self.linear or self.rho > 0, "rho", self.rho, "above 0 where there is no linear path")
        rule = "at least the least penalty"
        require(self.largest_penalty >= self.least_penalty, "largest_penalty", self.largest_penalty, rule)
        length = self.block_length
        require(length is None or length >= 1, "block_length", length, "at least 1 frame, or none for the estimate")

    @property
    def qualification(self) -> BrioSettings:
        """The paper's constants and variant of the qualification."""
        return BrioSettings(variant=self.variant)

    @property
    def block_rule(self) -> BlockRule:
        """The rule that estimates and bounds the block length."""
        return self.qualification.block_rule

    @property
    def reestimates(self) -> bool:
        """Whether re-estimates are used at all."""
        return self.refreshes > 0 and (self.lambda_re > 0 or self.lambda_env > 0)
