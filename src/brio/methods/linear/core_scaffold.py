"""Logistic regression on the scaffold of CORE, for comparison with its neural network."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from ...connectome import fill_dead
from ...settings import GridSize, Positive, require
from ...training import MethodFacts, Scans, SourceScans, Tensors, TensorSpec
from ..registry import method, reconstruct
from ..scaffold import Confounds, ScaffoldSettings, build_scaffold, declare_confounds, fit_confounds, remove_confounds
from .base import LinearSettings
from .logistic import LogisticMethod


@dataclass(frozen=True)
class CoreScaffoldSettings(ScaffoldSettings, LinearSettings):
    """Settings of the scaffold and of the logistic regression on it.

    Edges are chosen with the labels of all source scans. An inner fold would have seen the labels of its withheld site,
    so the penalty is chosen on validation scans only. A few chosen edges need stronger penalties than all edges do.
    """

    largest_penalty: Positive = 100.0
    penalties: GridSize = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "validation, because every source site took part in choosing the edges"
        require(self.choose_by == "validation", "choose_by", self.choose_by, rule)


@method(
    "core-scaffold",
    family="linear",
    needs={"sites", "sex", "age"},
    provenance=reconstruct("linear counterpart of our version of CORE"),
    reference="Wang, Zhang et al., When Brain Networks Travel (CORE), arXiv 2605.06050; scikit-learn",
)
class CoreScaffold(LogisticMethod):
    """Logistic regression (l2) on CORE's scaffold: reproducible edges, adjusted for age and sex."""

    settings: CoreScaffoldSettings
    version = 2  # of penalties that score alike the strongest is chosen; never calibrated
    features_use_labels = True
    edge_values = "Fisher z, adjusted for age and sex; 0 for edges outside the scaffold"

    @property
    def facts(self) -> MethodFacts:
        return replace(super().facts, setting_without_validation="")

    def declare_features(self, n_rois: int) -> dict[str, TensorSpec]:
        end = TensorSpec(("features",), 0, n_rois - 1, whole=True)
        confounds = {n.removeprefix("learned."): s for n, s in declare_confounds(2, "features").items()}
        mean = super().declare_features(n_rois)["mean"]
        return {"features": TensorSpec(("features",)), "mean": mean, "u": end, "v": end} | confounds

    def learn(self, source: SourceScans, scans: Scans) -> Tensors:
        mean = super().learn(source, scans)["mean"]
        edges = build_scaffold(source, scans, self.settings)
        values, live = _read_edges(scans, edges.u, edges.v, mean)
        confounds = fit_confounds(source, values, live, scans.covariates)
        return {"mean": mean, "u": edges.u, "v": edges.v} | confounds._asdict()

    def extract_features(self, scans: Scans, learned: Tensors) -> np.ndarray:
        confounds = Confounds(*(learned[name].to(scans.A) for name in Confounds._fields))
        values, live = _read_edges(scans, learned["u"], learned["v"], learned["mean"])
        return remove_confounds(values, live, scans.covariates, confounds).double().cpu().numpy()

    def pick_edges(self, features: np.ndarray, learned: Tensors) -> np.ndarray:
        n_rois = len(learned["mean"])
        position = np.zeros((n_rois, n_rois), dtype=np.int64)
        position[np.triu_indices(n_rois, 1)] = np.arange(n_rois * (n_rois - 1) // 2)
        edges = np.zeros((*features.shape[:-1], n_rois * (n_rois - 1) // 2))
        edges[..., position[learned["u"].numpy(), learned["v"].numpy()]] = features
        return edges


def _read_edges(scans: Scans, u: Tensor, v: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Read the FC of M edges, and 1 where both ends have signal. Shapes [n, M]."""
    u, v = u.to(scans.A.device), v.to(scans.A.device)
    A = fill_dead(scans.A, scans.alive, mean.to(scans.A))
    return A[:, u, v], (scans.alive[:, u] & scans.alive[:, v]).to(A.dtype)
