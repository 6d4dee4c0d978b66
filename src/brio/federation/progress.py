"""What follows from the sums of earlier answers: the penalty, the coefficients so far, and what is asked next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .equations import Point, Spread, calibrate, find_best_point
from .messages import ALL, Arrays, Request, Terms


@dataclass(frozen=True, eq=False)
class Totals:
    """What the descriptions of all sites of a model add up to. Shapes: fill, centre, mean [d]."""

    n: np.ndarray  # scans of each class
    fill: np.ndarray  # what edges of regions without signal hold
    centre: np.ndarray  # mean of the features
    mean: np.ndarray  # mean connectome, every site with equal weight
    penalty: float

    @property
    def n_all(self) -> int:
        """Number of scans."""
        return int(self.n.sum())

    @property
    def share(self) -> float:
        """Share of patients."""
        return float(self.n[1] / self.n.sum())


def add_up(terms: Terms, sums: Arrays) -> Totals:
    """Find mean features, the mean connectome and the penalty from the sums of descriptions."""
    n_all = sums["n"].sum()
    mean = sums["fc_means"] / np.maximum(sums["fc_sites"], 1)
    fill = sums["features"] / np.maximum(sums["live"], 1) if terms.method == "log-ridge" else mean
    filled = n_all - sums["live"]
    centre = (sums["features"] + filled * fill) / n_all
    squares = float(sums["squares"] + (filled * fill**2).sum() - n_all * (centre**2).sum())
    return Totals(sums["n"], fill, centre, mean, terms.penalty * max(squares / n_all, 1e-9))


@dataclass(frozen=True, eq=False)
class Progress:
    """How far the model of some sites has come."""

    totals: Totals
    labels: np.ndarray  # A'b [d]
    directions: np.ndarray  # [k, d]
    products: np.ndarray  # [k, d], or one fewer: those of the newest direction are asked for
    spread: Spread | None  # of margins under the models of the other sites

    @property
    def point(self) -> Point:
        """The best coefficients so far."""
        known = len(self.products)
        return find_best_point(self.directions[:known], self.products, self.labels, self.totals.penalty)

    def calibrate(self, held_out: Spread | None = None) -> tuple[float, float]:
        """Find slope and intercept of the coefficients so far.

        Without margins of such coefficients at sites that they have not seen, those of the mean of the other sites'
        models stand for them, in units of the spread of all margins of each.
        """
        w, _, product = self.point
        variance, scale = float(w @ product) / self.totals.n_all, 1.0
        if held_out is None:
            assert self.spread is not None
            held_out = self.spread
            scale = np.sqrt(variance * self.totals.n_all / float(self.directions[0] @ self.products[0]))
        return calibrate(held_out, float(scale), variance, self.totals.share)


def follow(terms: Terms, rounds: list[Arrays]) -> Progress:
    """Follow the sums of the rounds so far, the first two at least."""
    d = len(rounds[0]["features"])
    found: dict[str, list[Any]] = {"direction": [rounds[1]["models"]], "product": []}
    for sums in rounds[2:]:
        for name in found:
            found[name] += [sums[name]] if name in sums else []
    directions, products = (np.reshape(found[name], (-1, d)) for name in ("direction", "product"))
    spread = Spread(*rounds[2]["spread"]) if len(rounds) > 2 else None
    return Progress(add_up(terms, rounds[0]), rounds[1]["labels"], directions, products, spread)


def name_models(request: Request) -> list[str]:
    """Name the models of a request: that of all sites, and those that leave one out."""
    left_out = request.sites if request.terms.evaluation == "leave-one-site-out" else ()
    return [ALL, *left_out]
