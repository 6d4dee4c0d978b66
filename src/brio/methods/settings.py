"""Settings that several methods share, and checks of values that many settings need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from ..domains import Domain
from ..settings import require
from ..training import NeuralSettings

__all__ = ["BoldSettings", "require_above", "require_at_least", "require_share"]


@dataclass(frozen=True)
class BoldSettings(NeuralSettings):
    """Settings of methods that read BOLD; the rule itself is :class:`brio.connectome.BoldRule`.

    Attributes
    ----------
    bold_frames : int
        Frames of a window; shorter scans are mirrored at their ends.
    bold_windows : int
        Windows of a scan, spread evenly over it; one lies in the middle. As many as ``bold_frames`` goes into the
        longest scan, rounded up, use all frames: 3 for scans of up to 300 frames. It is a number and not "all", since
        the longest scan may be one of the test site.
    bold_tr : float or None
        Seconds between frames, to which scans are interpolated; ``none`` takes their own frames as they are.
    """

    bold_frames: Annotated[int, Domain(8, 10_000)] = 100
    bold_windows: Annotated[int, Domain(1, 1_000)] = 3
    bold_tr: Annotated[float, Domain(0.01, 100)] | None = 2.0


def require_at_least(settings: Any, least: float, *names: str) -> None:
    """Require that some settings are not below a bound.

    Parameters
    ----------
    settings : dataclass
    least : float
        The smallest value that is allowed.
    *names : str
        Of the settings.

    Raises
    ------
    BrioError
        Naming the first setting that breaks the rule, with its value.

    Examples
    --------
    >>> require_at_least(BoldSettings(), 1, "epochs", "bold_frames")
    """
    for name in names:
        require(getattr(settings, name) >= least, name, getattr(settings, name), f"at least {least}")


def require_above(settings: Any, bound: float, *names: str) -> None:
    """Require that some settings are above a bound; see :func:`require_at_least`.

    Parameters
    ----------
    settings : dataclass
    bound : float
    *names : str
        Of the settings.

    Examples
    --------
    >>> require_above(BoldSettings(), 0, "learning_rate")
    """
    for name in names:
        require(getattr(settings, name) > bound, name, getattr(settings, name), f"above {bound}")


def require_share(settings: Any, *names: str) -> None:
    """Require that some settings are shares: at least 0 and below 1; see :func:`require_at_least`.

    Examples
    --------
    >>> require_share(BoldSettings(epochs=1), "epochs")
    Traceback (most recent call last):
    brio.errors.BrioError: setting 'epochs'=1: must be at least 0 and below 1
    """
    for name in names:
        require(0 <= getattr(settings, name) < 1, name, getattr(settings, name), "at least 0 and below 1")
