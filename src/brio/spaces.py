"""Where a setting may lie when it is tuned, and configurations drawn from there."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from . import draws

__all__ = ["Space", "choice", "configurations", "log_uniform", "uniform"]


@dataclass(frozen=True)
class Space:
    """A set of values for one setting: some values, or an interval."""

    kind: str
    values: tuple[Any, ...]

    def at(self, u: float) -> Any:
        """The value at a share u in [0, 1) of the way through."""
        if self.kind == "choice":
            return self.values[int(u * len(self.values))]
        low, high = self.values
        if self.kind == "log-uniform":
            # two figures are enough to search by and can be read
            return float(f"{math.exp(math.log(low) + u * (math.log(high) - math.log(low))):.2g}")
        return float(f"{low + u * (high - low):.2g}")

    def __str__(self) -> str:
        if self.kind == "choice":
            return ", ".join(str(v) for v in self.values)
        return f"{self.values[0]:g} to {self.values[1]:g}" + (" (log)" if self.kind == "log-uniform" else "")


def choice(*values: Any) -> Space:
    """One of some values."""
    return Space("choice", values)


def uniform(low: float, high: float) -> Space:
    """Anywhere in an interval."""
    return Space("uniform", (low, high))


def log_uniform(low: float, high: float) -> Space:
    """Anywhere in an interval, evenly in the logarithm."""
    return Space("log-uniform", (low, high))


def configurations(settings: Any, budget: int, fixed: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Values of the tunable settings for each of ``budget`` configurations; the first is the default.

    Each value is drawn by its own address (name of the setting, number of the configuration), so another budget or a
    further setting moves none of the others. A configuration that repeats an earlier one, or whose values break a
    rule of the settings, is drawn again.

    Parameters
    ----------
    settings : dataclass
        The settings of a method with its defaults; fields with a space (:func:`brio.settings.setting`) are tuned.
    fixed : dict, optional
        Settings that are not tuned.
    """
    spaces = {
        f.name: f.metadata["space"]
        for f in dataclasses.fields(settings)
        if f.metadata.get("space") is not None and f.name not in (fixed or {})
    }
    out: list[dict[str, Any]] = [{name: getattr(settings, name) for name in spaces}]
    number = 0
    while len(out) < budget and number < 100 * budget and spaces:
        number += 1
        drawn = {name: space.at(float(draws.uniform("configuration", name, number))) for name, space in spaces.items()}
        try:
            dataclasses.replace(settings, **drawn)
        except ValueError:  # BrioError is one
            continue
        if drawn not in out:
            out.append(drawn)
    return out
