"""Search spaces of settings, and configurations drawn from them for tuning."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from . import draws


@dataclass(frozen=True)
class Space:
    """The values that one setting may take when it is tuned; made by :func:`choice`, :func:`uniform`, ..."""

    kind: str
    values: tuple[Any, ...]  # the values of a choice, or both ends of an interval

    def at(self, u: float) -> Any:
        """Return the value at a share u in [0, 1) of the space."""
        if self.kind == "choice":
            return self.values[int(u * len(self.values))]
        low, high = self.values
        if self.kind == "log-uniform":
            # two significant digits are fine enough for a search, and easy to read
            return float(f"{math.exp(math.log(low) + u * (math.log(high) - math.log(low))):.2g}")
        return float(f"{low + u * (high - low):.2g}")

    def __str__(self) -> str:
        if self.kind == "choice":
            return ", ".join(str(v) for v in self.values)
        return f"{self.values[0]:g} to {self.values[1]:g}" + (" (log)" if self.kind == "log-uniform" else "")


def choice(*values: Any) -> Space:
    """Make a space of some values, all equally likely.

    Examples
    --------
    >>> print(choice(16, 32, 64))
    16, 32, 64
    """
    return Space("choice", values)


def uniform(low: float, high: float) -> Space:
    """Make a space of the numbers in an interval, all equally likely.

    Examples
    --------
    >>> print(uniform(0, 0.5))
    0 to 0.5
    """
    return Space("uniform", (low, high))


def log_uniform(low: float, high: float) -> Space:
    """Make a space of the numbers in an interval, uniform in their logarithm.

    Examples
    --------
    >>> print(log_uniform(1e-4, 1e-2))
    0.0001 to 0.01 (log)
    """
    return Space("log-uniform", (low, high))


def draw_configurations(settings: Any, budget: int, fixed: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Draw configurations of the tunable settings of a method; the first one is the default.

    The address of a value is the name of its setting and the number of its configuration, so a larger budget or a
    further setting changes none of the others. A configuration that repeats an earlier one, or that the settings
    reject, is replaced by the next draw.
    """
    spaces = {
        f.name: f.metadata["space"]
        for f in dataclasses.fields(settings)
        if f.metadata.get("space") is not None and f.name not in (fixed or {})
    }
    configurations: list[dict[str, Any]] = [{name: getattr(settings, name) for name in spaces}]
    number = 0
    while len(configurations) < budget and number < 100 * budget and spaces:
        number += 1
        drawn = {
            name: space.at(float(draws.draw_uniform("configuration", name, number))) for name, space in spaces.items()
        }
        try:
            dataclasses.replace(settings, **drawn)
        except ValueError:  # BrioError is one
            continue
        if drawn not in configurations:
            configurations.append(drawn)
    return configurations
