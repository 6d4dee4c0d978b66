"""What follows from the sums of earlier answers: the penalty, the coefficients so far, and the next request."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .equations import Point, Spread, calibrate, find_best_point
from .messages import Arrays, Terms


class Progress:
    """The state of a model, from its sums over the rounds so far, of which there is at least one.

    Shapes: n [2], fill, centre, mean, labels [d], directions, products [k, d].
    """

    def __init__(self, terms: Terms, rounds: Sequence[Arrays]) -> None:
        first, d = rounds[0], len(rounds[0]["live"])
        self.terms, self.n = terms, first["n"]  # scans of each class
        self.n_all, self.share = int(self.n.sum()), float(self.n[1] / self.n.sum())  # share of patients
        self.mean = first["fc_means"] / np.maximum(first["fc_sites"], 1)  # connectome, every site with equal weight
        # what edges of regions without signal hold
        self.fill = first["features"] / np.maximum(first["live"], 1) if terms.method == "log-ridge" else self.mean
        filled = self.n_all - first["live"]
        self.centre = (first["features"] + filled * self.fill) / self.n_all  # mean of the features
        squares = first["squares"] + (filled * self.fill**2).sum() - self.n_all * (self.centre**2).sum()
        self.squares = max(float(squares), 1e-9 * self.n_all)  # sum of the squares of all features less their mean
        self.penalty = terms.penalty * self.squares / self.n_all
        self.block_length = float(first["block_length"][0] / first["block_length"][1])
        self.labels = rounds[1]["labels"] if len(rounds) > 1 else np.zeros(d)  # A'b
        self.spread = Spread(*rounds[2]["spread"]) if len(rounds) > 2 else None  # under the models of the other sites

        def gather(*names: str) -> np.ndarray:
            return np.reshape([sums[name] for sums in rounds for name in names if name in sums], (-1, d))

        self.directions = gather("models", "direction")
        self.products = gather("product")  # or one fewer: that of the newest direction is asked for

    @cached_property
    def point(self) -> Point:
        """The best coefficients so far."""
        return find_best_point(self.directions[: len(self.products)], self.products, self.labels, self.penalty)

    def calibrate(self, held_out: Spread | None = None) -> tuple[float, float]:
        """Find slope and intercept of the coefficients so far.

        If the sites have no margins under coefficients that have not seen them, the margins under the mean of the other
        sites' models are used instead, in units of the spread of all margins.
        """
        w, _, product = self.point
        variance, scale = float(w @ product) / self.n_all, 1.0
        if held_out is None:
            assert self.spread is not None
            held_out = self.spread
            scale = np.sqrt(variance * self.n_all / float(self.directions[0] @ self.products[0]))
        return calibrate(held_out, float(scale), variance, self.share)
