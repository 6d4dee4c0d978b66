"""What follows from the sums of earlier answers: the penalty, the coefficients so far, and what is asked next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .equations import Point, Spread, calibrate, find_best_point
from .messages import ALL, Request


@dataclass(frozen=True, eq=False)
class Progress:
    """How far a model has come. Shapes: n [2], fill, centre, mean, labels [d], directions, products [k, d]."""

    request: Request
    model: str
    n: np.ndarray  # scans of each class
    fill: np.ndarray  # what edges of regions without signal hold
    centre: np.ndarray  # mean of the features
    mean: np.ndarray  # mean connectome, every site with equal weight
    squares: float  # sum of the squares of all features less their mean
    block_length: float
    labels: np.ndarray  # A'b
    directions: np.ndarray
    products: np.ndarray  # or one fewer: that of the newest direction is asked for
    spread: Spread | None  # of margins under the models of the other sites

    @property
    def n_all(self) -> int:
        """Number of scans."""
        return int(self.n.sum())

    @property
    def share(self) -> float:
        """Share of patients."""
        return float(self.n[1] / self.n.sum())

    @property
    def penalty(self) -> float:
        """Penalty in the units of the features."""
        return self.request.terms.penalty * max(self.squares / self.n_all, 1e-9)

    @cached_property
    def point(self) -> Point:
        """The best coefficients so far."""
        return find_best_point(self.directions[: len(self.products)], self.products, self.labels, self.penalty)

    def calibrate(self, held_out: Spread | None = None) -> tuple[float, float]:
        """Find slope and intercept of the coefficients so far.

        Without margins of such coefficients at sites that they have not seen, those of the mean of the other sites'
        models stand for them, in units of the spread of all margins of each.
        """
        w, _, product = self.point
        variance, scale = float(w @ product) / self.n_all, 1.0
        if held_out is None:
            assert self.spread is not None
            held_out = self.spread
            scale = np.sqrt(variance * self.n_all / float(self.directions[0] @ self.products[0]))
        return calibrate(held_out, float(scale), variance, self.share)


def follow(request: Request, model: str = ALL) -> Progress:
    """Follow the sums of a model over the rounds so far, the first at least."""
    rounds = request.shown[model]
    first, d, n_all = rounds[0], len(rounds[0]["live"]), rounds[0]["n"].sum()
    mean = first["fc_means"] / np.maximum(first["fc_sites"], 1)
    fill = first["features"] / np.maximum(first["live"], 1) if request.terms.method == "log-ridge" else mean
    filled = n_all - first["live"]
    centre = (first["features"] + filled * fill) / n_all
    squares = float(first["squares"] + (filled * fill**2).sum() - n_all * (centre**2).sum())

    def gather(*names: str) -> np.ndarray:
        return np.reshape([sums[name] for sums in rounds for name in names if name in sums], (-1, d))

    return Progress(
        request,
        model,
        first["n"],
        fill,
        centre,
        mean,
        squares,
        block_length=float(first["block_length"][0] / n_all),
        labels=rounds[1]["labels"] if len(rounds) > 1 else np.zeros(d),
        directions=gather("models", "direction"),
        products=gather("product"),
        spread=Spread(*rounds[2]["spread"]) if len(rounds) > 2 else None,
    )
