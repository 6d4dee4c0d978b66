"""A fitted BRIO plus model: contributions of factors to the logit, from edges under the chosen view."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...connectome import find_live_edges
from ...errors import BrioError
from ...training import Scans, Tensors
from .factors import FactorSpace
from .views import VIEWS, read_view

__all__ = ["FactorModel"]

_MANY = 1000
"""Tensors with more numbers than this are stored in float32."""


class FactorModel(NamedTuple):
    """Contributions a_j = linear path of the factor + its own kernel; the logit is their calibrated sum."""

    view: Tensor  # scalar, position of the view in VIEWS
    centre: Tensor  # [edges] mean of the source scans under that view
    factors: FactorSpace
    theta: Tensor  # [J, edges] linear path of each factor
    points: Tensor  # [J, m, d_t] coordinates of the re-estimates (where there are any), then of the source scans
    beta: Tensor  # [J, m] their weights in each factor's own kernel
    calibration: Tensor  # [2] slope and intercept of the logit

    @property
    def view_name(self) -> str:
        """Name of the chosen view, a key of :data:`VIEWS`."""
        return list(VIEWS)[int(self.view)]

    def read_scans(self, scans: Scans) -> Tensor:
        """Read the edges of scans under the view, centred; edges without signal become 0. Shape [n, edges]."""
        return self.centre_edges(read_view(scans.A, self.view_name), find_live_edges(scans.alive))

    def centre_edges(self, edges: Tensor, live: Tensor) -> Tensor:
        """Subtract the centre from edges; those without signal become 0.

        Parameters
        ----------
        edges : Tensor, shape [n, edges]
        live : Tensor of bool, shape [n, edges]

        Returns
        -------
        Tensor, shape [n, edges]
        """
        x = edges.to(self.centre) - self.centre
        return torch.where(live, x, torch.zeros_like(x))

    def split_contributions(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the two parts of the contributions.

        Parameters
        ----------
        x : Tensor, shape [n, edges]
            Centred edges.

        Returns
        -------
        linear : Tensor, shape [n, J]
            Of the linear path.
        own : Tensor, shape [n, J]
            Of the factors' own kernels.
        r : Tensor, shape [J, n, d_t]
            Coordinates of the scans.
        """
        r = self.factors.project(x)
        own = torch.einsum("jnm,jm->nj", self.factors.kernel(r, self.points), self.beta)
        return x @ self.theta.T, own, r

    def contributions(self, x: Tensor) -> Tensor:
        """Compute the contributions a of centred edges. Shape [n, edges] -> [n, J]."""
        linear, own, _ = self.split_contributions(x)
        return linear + own

    def logit(self, a: Tensor) -> Tensor:
        """Compute the calibrated logit from contributions. Shape [n, J] -> [n]."""
        return self.calibration[0] * a.sum(-1) + self.calibration[1]

    def to_tensors(self) -> Tensors:
        """Return the tensors to store, by name, on the CPU; large ones in float32."""
        own = self._asdict()
        del own["factors"]
        named = own | {f"factors.{name}": t for name, t in self.factors._asdict().items()}
        return {name: (t.float() if t.numel() > _MANY else t).cpu().contiguous().clone() for name, t in named.items()}

    @staticmethod
    def from_tensors(tensors: Tensors, like: Tensor) -> FactorModel:
        """Rebuild a model from stored tensors, in float64 on the device of ``like``.

        Raises
        ------
        BrioError
            If a tensor is missing.
        """
        needed = {*FactorModel._fields, *(f"factors.{name}" for name in FactorSpace._fields)} - {"factors"}
        if missing := sorted(needed - set(tensors)):
            raise BrioError(
                f"these weights are of another version of 'brio-plus' (no {', '.join(missing)}): fit it again"
            )
        placed = {name: t.to(like.device, torch.float64) for name, t in tensors.items()}
        factors = FactorSpace(*(placed[f"factors.{name}"] for name in FactorSpace._fields))
        own = {name: placed[name] for name in FactorModel._fields if name != "factors"}
        return FactorModel(factors=factors, **own)
