"""A fitted BRIO plus: what it makes of log-connectomes, factor by factor."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import BrioError
from ...training import Tensors
from .factors import Factors

__all__ = ["Model"]


class Model(NamedTuple):
    """Contributions a_j = linear path of the factor + its own kernel; the logit is their calibrated sum."""

    centre: Tensor  # [edges] mean log-connectome of the source scans
    factors: Factors
    theta: Tensor  # [J, edges] linear path of each factor
    points: Tensor  # [J, m, d_t] coordinates of the source scans and of their re-estimates
    beta: Tensor  # [J, m] their weights in each factor's own kernel
    gamma: Tensor  # scalar
    calibration: Tensor  # [2] slope and intercept of the logit

    def view(self, log: Tensor, live: Tensor) -> Tensor:
        """Centred edges; an edge without signal says nothing. Shape [n, edges]."""
        x = log.to(self.centre) - self.centre
        return torch.where(live, x, torch.zeros_like(x))

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Linear and own contributions [n, J] of viewed scans, and their coordinates [J, n, d_t]."""
        r = self.factors.coordinates(x)
        own = torch.einsum("jnm,jm->nj", self.factors.kernel(r, self.points, float(self.gamma)), self.beta)
        return x @ self.theta.T, own, r

    def contributions(self, x: Tensor) -> Tensor:
        """a [n, J]."""
        linear, own, _ = self.parts(x)
        return linear + own

    def logit(self, a: Tensor) -> Tensor:
        return self.calibration[0] * a.sum(-1) + self.calibration[1]

    def to_tensors(self) -> Tensors:
        """Tensors to keep; float32 where numbers are many."""
        kept = self._asdict()
        del kept["factors"]
        named = kept | {f"factors.{name}": t for name, t in self.factors._asdict().items()}
        return {name: (t.float() if t.numel() > 1000 else t).cpu().contiguous().clone() for name, t in named.items()}

    @staticmethod
    def from_tensors(weights: Tensors, like: Tensor) -> Model:
        """The model of kept tensors, in float64 on the device of another tensor."""
        needed = {*Model._fields, *(f"factors.{name}" for name in Factors._fields)} - {"factors"}
        if lacking := sorted(needed - set(weights)):
            raise BrioError(
                f"these weights are of another version of 'brio-plus' (no {', '.join(lacking)}): fit it again"
            )
        there = {name: t.to(like.device, torch.float64) for name, t in weights.items()}
        factors = Factors(*(there[f"factors.{name}"] for name in Factors._fields))
        return Model(factors=factors, **{name: there[name] for name in Model._fields if name != "factors"})
