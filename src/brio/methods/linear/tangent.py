"""Ridge regression in tangent space: covariances as points of a curved space, seen from the mean of the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...connectome import fill_dead
from ...settings import require
from ...training import Scans, SourceScans
from ..registry import TEXTBOOK, method
from .base import Dual, LinearMethod, LinearSettings, fc_entries
from .ridge import ridge_dual

__all__ = [
    "FCTangentRidge",
    "TangentRidge",
    "TangentSettings",
    "geometric_mean",
    "shrunk_correlation",
    "tangent_vectors",
]

_SMALLEST = 1e-6


@dataclass(frozen=True)
class TangentSettings(LinearSettings):
    """Settings of models in tangent space.

    Attributes
    ----------
    shrinkage : float or None
        Share of the identity in each scan's correlation matrix; ``none`` estimates it for each scan from its matrix
        and number of frames (oracle approximating shrinkage, Chen et al. 2010).
    reference : {"euclidean", "geometric"}
        Mean of the source scans at which the tangent space touches: the plain one, or the Frechet mean.
    """

    shrinkage: float | None = None
    reference: Literal["euclidean", "geometric"] = "euclidean"

    def __post_init__(self) -> None:
        super().__post_init__()
        s = self.shrinkage
        require(s is None or 0 < s <= 1, "shrinkage", s, "above 0 and at most 1, or none for the estimate")


def shrunk_correlation(A: Tensor, n_frames: Tensor, shrinkage: float | None) -> Tensor:
    """Correlation matrices from Fisher z, shrunk towards the identity. Shapes [n, P, P] and [n], float64.

    With ``shrinkage`` None by scikit-learn's formula for OAS, which needs no more than the matrix and its frames.
    """
    p = A.shape[-1]
    eye = torch.eye(p, dtype=torch.float64, device=A.device)
    R = A.double().tanh() * (1 - eye) + eye
    if shrinkage is None:
        square = R.square().mean((-1, -2))
        share = ((square + 1.0) / ((n_frames.double() + 1.0) * (square - 1.0 / p)).clamp_min(1e-12)).clamp_max(1.0)
    else:
        share = torch.full_like(n_frames, shrinkage, dtype=torch.float64)
    share = share[:, None, None]
    return (1 - share) * R + share * eye


def _spectral(S: Tensor, function: str) -> Tensor:
    """A function of the eigenvalues of symmetric matrices, held above a small positive number."""
    size, axes = torch.linalg.eigh(S)
    size = size if function == "exp" else size.clamp_min(_SMALLEST)
    value = {"log": torch.log, "exp": torch.exp, "root": torch.sqrt, "inverse root": torch.rsqrt}[function](size)
    return (axes * value.unsqueeze(-2)) @ axes.mT


def geometric_mean(S: Tensor, iterations: int = 10, tolerance: float = 1e-7) -> Tensor:
    """Frechet mean of positive definite matrices [n, P, P] under the affine-invariant metric."""
    mean = S.mean(0)
    for _ in range(iterations):
        root, inverse = _spectral(mean, "root"), _spectral(mean, "inverse root")
        step = _spectral(inverse @ S @ inverse, "log").mean(0)
        mean = root @ _spectral(step, "exp") @ root
        mean = (mean + mean.mT) / 2
        if float(step.abs().max()) < tolerance:
            break
    return mean


def tangent_vectors(S: Tensor, whitening: Tensor) -> Tensor:
    """log(W S W) for the inverse root W of the reference, vectorised so that norms are kept.

    Returns
    -------
    Tensor, shape [n, P (P + 1) / 2]
        Entries above the diagonal times the root of two, and the diagonal.
    """
    T = _spectral(whitening @ S @ whitening, "log")
    u, v = torch.triu_indices(T.shape[-1], T.shape[-1], device=T.device)
    return T[:, u, v] * torch.where(u == v, 1.0, 2.0**0.5).to(T)


@method(
    "tangent-ridge",
    family="linear",
    provenance=TEXTBOOK,
    reference="Varoquaux et al. 2010; Dadi et al. 2019; Chen et al. 2010 (shrinkage)",
)
class TangentRidge(LinearMethod):
    """Ridge regression in tangent space: shrunk covariances, reference from source sites."""

    Settings = TangentSettings
    settings: TangentSettings
    draws = False

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> Dual:
        return ridge_dual(gram, y, penalty)

    def learn(self, source: SourceScans, scans: Scans) -> dict[str, Tensor]:
        learned = super().learn(source, scans)
        S = self._covariances(scans, learned)
        reference = geometric_mean(S) if self.settings.reference == "geometric" else S.mean(0)
        return learned | {"whitening": _spectral(reference, "inverse root").cpu()}

    def features(self, scans: Scans, learned: dict[str, Tensor]) -> np.ndarray:
        S = self._covariances(scans, learned)
        return tangent_vectors(S, learned["whitening"].to(S)).cpu().numpy()

    def _covariances(self, scans: Scans, learned: dict[str, Tensor]) -> Tensor:
        filled = fill_dead(scans.A, scans.alive, learned["mean"].to(scans.A))
        return shrunk_correlation(filled, scans.n_frames, self.settings.shrinkage)


@method(
    "fc-tangent-ridge",
    family="linear",
    provenance=TEXTBOOK,
    reference="sum of the kernels of ridge and tangent-ridge",
)
class FCTangentRidge(TangentRidge):
    """Ridge regression on FC entries and tangent space together, both scaled to the same mean square."""

    def learn_features(self, source: SourceScans, scans: Scans) -> tuple[dict[str, Tensor], np.ndarray]:
        learned = self.learn(source, scans)
        parts = self._parts(scans, learned)  # once: the logarithms of all matrices are what this method costs
        scale = [float(np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean())) for x in parts]
        learned["scale"] = torch.tensor(scale, dtype=torch.float64)
        return learned, np.concatenate([x / s for x, s in zip(parts, scale, strict=True)], axis=1)

    def features(self, scans: Scans, learned: dict[str, Tensor]) -> np.ndarray:
        scale = learned["scale"].tolist()
        return np.concatenate([x / s for x, s in zip(self._parts(scans, learned), scale, strict=True)], axis=1)

    def _parts(self, scans: Scans, learned: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        return fc_entries(scans, learned["mean"]), super().features(scans, learned)
