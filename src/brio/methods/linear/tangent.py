"""Ridge regression on correlation matrices mapped to the tangent space at the mean of the source scans."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...connectome import fill_dead, invert_fisher_z
from ...settings import InnerShare
from ...training import MethodFacts, Scans, SourceScans, Tensors, TensorSpec
from ..registry import TEXTBOOK, method
from .base import LinearSettings, vectorise_fc
from .ridge import KernelRidgeMethod

_SMALLEST_EIGENVALUE = 1e-6


@dataclass(frozen=True)
class TangentSettings(LinearSettings):
    """Settings of models in tangent space.

    Attributes
    ----------
    shrinkage : float or None
        Weight of the identity in each scan's shrunk correlation matrix; ``none`` estimates it for each scan from its
        matrix and number of frames (oracle approximating shrinkage, Chen et al. 2010).
    reference : {"euclidean", "geometric"}
        Point at which the tangent space is taken: the arithmetic or the Frechet mean of the source scans.
    """

    shrinkage: InnerShare | None = None
    reference: Literal["euclidean", "geometric"] = "euclidean"


def shrink_correlations(A: Tensor, n_frames: Tensor, shrinkage: float | None) -> Tensor:
    """Turn Fisher z back into correlations and shrink them towards the identity.

    Shapes: A [n, P, P], n_frames [n]; returns [n, P, P].
    """
    p = A.shape[-1]
    R = invert_fisher_z(A)
    if shrinkage is None:
        square = torch.linalg.vector_norm(R, dim=(-1, -2)).square() / p**2
        share = ((square + 1.0) / ((n_frames.double() + 1.0) * (square - 1.0 / p)).clamp_min(1e-12)).clamp_max(1.0)
    else:
        share = torch.full_like(n_frames, shrinkage, dtype=torch.float64)
    R *= (1 - share)[:, None, None]
    R.diagonal(dim1=-2, dim2=-1).add_(share[:, None])
    return R


def _apply_to_eigenvalues(S: Tensor, function: str) -> Tensor:
    """Apply a function to the eigenvalues of symmetric matrices, which are clipped to stay positive."""
    size, axes = torch.linalg.eigh(S)
    size = size if function == "exp" else size.clamp_min(_SMALLEST_EIGENVALUE)
    value = {"log": torch.log, "exp": torch.exp, "root": torch.sqrt, "inverse root": torch.rsqrt}[function](size)
    return (axes * value.unsqueeze(-2)) @ axes.mT


def geometric_mean(S: Tensor, iterations: int = 10, tolerance: float = 1e-7) -> Tensor:
    """Compute the Frechet mean of positive definite matrices under the affine-invariant metric.

    Shapes: S [n, P, P]; returns [P, P].
    """
    mean = S.mean(0)
    for _ in range(iterations):
        root, inverse = _apply_to_eigenvalues(mean, "root"), _apply_to_eigenvalues(mean, "inverse root")
        step = _apply_to_eigenvalues(inverse @ S @ inverse, "log").mean(0)
        mean = root @ _apply_to_eigenvalues(step, "exp") @ root
        mean = (mean + mean.mT) / 2
        if float(step.abs().max()) < tolerance:
            break
    return mean


def map_to_tangent_space(S: Tensor, whitening: Tensor) -> Tensor:
    """Compute log(W S W), with W the inverse root of the reference, as vectors of the same norm.

    Shapes: S [n, P, P], whitening [P, P]; returns [n, P (P + 1) / 2].
    """
    T = _apply_to_eigenvalues(whitening @ S @ whitening, "log")
    P = T.shape[-1]
    u, v = torch.triu_indices(P, P, device=T.device)
    return T.flatten(1).index_select(1, u * P + v) * torch.where(u == v, 1.0, 2.0**0.5).to(T)


@method(
    "tangent-ridge",
    family="linear",
    provenance=TEXTBOOK,
    reference="Varoquaux et al. 2010; Dadi et al. 2019; Chen et al. 2010 (shrinkage)",
)
class TangentRidge(KernelRidgeMethod):
    """Ridge regression in tangent space, with shrunk correlation matrices and a reference from source sites."""

    settings: TangentSettings
    uses_seed = False
    feature_copies = 6  # besides the features whole matrices
    edge_values = "entry of the tangent-space matrix, times the square root of two"
    beyond_edges = "the diagonal of the tangent-space matrix"

    @property
    def facts(self) -> MethodFacts:
        """Facts that a job needs for planning and printing."""
        by_length = "shrinkage by the number of frames (instead of a fixed value, such as --set shrinkage=0.1)"
        return replace(super().facts, frames_for="" if self.settings.shrinkage is not None else by_length)

    def declare_features(self, n_rois: int) -> dict[str, TensorSpec]:
        square = TensorSpec((n_rois, n_rois))
        return {"features": TensorSpec((n_rois * (n_rois + 1) // 2,)), "mean": square, "whitening": square}

    def learn_features(self, source: SourceScans, scans: Scans) -> tuple[Tensors, np.ndarray]:
        learned = self.learn(source, scans)
        S = self._shrink_scans(scans, learned)
        reference = geometric_mean(S) if self.settings.reference == "geometric" else S.mean(0)
        learned["whitening"] = _apply_to_eigenvalues(reference, "inverse root")
        return learned, self._map_scans(S, learned)

    def extract_features(self, scans: Scans, learned: Tensors) -> np.ndarray:
        return self._map_scans(self._shrink_scans(scans, learned), learned)

    def pick_edges(self, features: np.ndarray, learned: Tensors) -> np.ndarray:
        n_rois = len(learned["whitening"])
        u, v = np.triu_indices(n_rois)
        return features[..., u < v]

    def _shrink_scans(self, scans: Scans, learned: Tensors) -> Tensor:
        filled = fill_dead(scans.A, scans.alive, learned["mean"].to(scans.A))
        return shrink_correlations(filled, scans.n_frames, self.settings.shrinkage)

    def _map_scans(self, S: Tensor, learned: Tensors) -> np.ndarray:
        return map_to_tangent_space(S, learned["whitening"].to(S)).cpu().numpy()


@method(
    "fc-tangent-ridge",
    family="linear",
    provenance=TEXTBOOK,
    reference="Hoerl & Kennard 1970; Varoquaux et al. 2010 (sum of the kernels of ridge and tangent-ridge)",
)
class FCTangentRidge(TangentRidge):
    """Ridge regression on FC entries and tangent-space features, both scaled to the same mean square."""

    feature_copies = 9
    edge_values = "Fisher z, divided by the same number for all edges"
    beyond_edges = "the tangent-space matrix, whose entries mix regions"

    def declare_features(self, n_rois: int) -> dict[str, TensorSpec]:
        both = {"features": TensorSpec((n_rois**2,)), "scale": TensorSpec((2,), low=1e-9)}
        return super().declare_features(n_rois) | both

    def learn_features(self, source: SourceScans, scans: Scans) -> tuple[Tensors, np.ndarray]:
        learned, tangent = super().learn_features(source, scans)
        parts = vectorise_fc(scans, learned["mean"]), tangent
        # features may all be constant
        scale = [max(float(np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean())), 1e-9) for x in parts]
        learned["scale"] = torch.tensor(scale, dtype=torch.float64)
        return learned, _join_parts(parts, scale)

    def extract_features(self, scans: Scans, learned: Tensors) -> np.ndarray:
        parts = vectorise_fc(scans, learned["mean"]), super().extract_features(scans, learned)
        return _join_parts(parts, learned["scale"].tolist())

    def pick_edges(self, features: np.ndarray, learned: Tensors) -> np.ndarray:
        n_rois = len(learned["whitening"])
        return features[..., : n_rois * (n_rois - 1) // 2]


def _join_parts(parts: tuple[np.ndarray, np.ndarray], scale: list[float]) -> np.ndarray:
    """Divide each part of the features by its scale, and put them side by side."""
    return np.concatenate([x / s for x, s in zip(parts, scale, strict=True)], axis=1)
