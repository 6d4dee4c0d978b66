"""Settings of BRIO plus."""

from __future__ import annotations

from dataclasses import dataclass

from ...connectome import BlockRule
from ...settings import require
from ..brio.settings import BrioSettings, Variant

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
        Principal coordinates that a factor's kernel reads.
    temperature : float
        Of the similarities between ROIs and factors; low values give each ROI to one factor.
    assignment_iterations : int
        Log-domain iterations of the balanced assignment.
    linear : bool
        Whether there is a linear path.
    rho : float
        Share of the factors' own kernels beside the linear path; 0 leaves the linear path alone.
    gamma : float
        Inverse width of the factors' kernels, in units of the mean squared distance of source scans.
    K : int
        Re-estimates of each scan.
    lambda_re : float
        Weight of the changes of contributions under re-estimation; 0 lets them be.
    sketch : int
        Random combinations of those changes that stand for all of them, where there are more of them than that.
    lambda_env : float
        Weight of qualification-guided alignment; 0 aligns nothing.
    variant : str
        Qualification that guides alignment: full or one of the paper's ablations.
    refreshes : int
        Times the factors are qualified and the model is solved under what that says, after a first solution that
        penalises nothing.
    least_penalty, largest_penalty : float
        Ends of the grid of penalties, where the linear kernel of a source scan with itself is 1 on average.
    penalties : int
        Steps of the grid.
    site_intercepts : bool
        Whether each source site has an intercept of its own, or all have one.
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
        for name in ("J", "d_t", "K", "assignment_iterations", "sketch", "penalties"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("temperature", "gamma", "least_penalty"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in ("rho", "lambda_re", "lambda_env", "refreshes"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        require(0 < self.shrinkage < 1, "shrinkage", self.shrinkage, "above 0 and below 1")
        require(self.linear or self.rho > 0, "rho", self.rho, "above 0 where there is no linear path")
        require(self.largest_penalty >= self.least_penalty, "largest_penalty", self.largest_penalty, "the larger one")
        fixed = self.block_length
        require(fixed is None or fixed >= 1, "block_length", fixed, "at least 1 frame, or none for the estimate")

    @property
    def qualification(self) -> BrioSettings:
        """The paper's constants and variant of the qualification."""
        return BrioSettings(variant=self.variant)

    @property
    def block_rule(self) -> BlockRule:
        return self.qualification.block_rule

    @property
    def reestimates(self) -> bool:
        """Whether any re-estimate is looked at."""
        return self.refreshes > 0 and (self.lambda_re > 0 or self.lambda_env > 0)
