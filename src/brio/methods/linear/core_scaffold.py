"""What CORE's network adds: its scaffold under a plain logistic regression."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from ...connectome import fill_dead
from ...settings import require
from ...training import MethodFacts, Scans, SourceScans
from ..registry import method, reconstruct
from ..scaffold import Confounds, ScaffoldSettings, adjusted, confounds, scaffold
from .base import Dual, LinearMethod, LinearSettings
from .logistic import logistic_dual

__all__ = ["CoreScaffold", "CoreScaffoldSettings"]


@dataclass(frozen=True)
class CoreScaffoldSettings(ScaffoldSettings, LinearSettings):
    """Settings of the scaffold and of the logistic regression on it.

    Edges are chosen by the labels of all source scans, so a source site left out has been seen: the penalty is chosen
    on validation scans alone. Chosen edges ask for stronger penalties than all edges do.
    """

    largest_penalty: float = 100.0
    penalties: int = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "validation: every source site took part in the choice of edges"
        require(self.choose_by == "validation", "choose_by", self.choose_by, rule)


@method(
    "core-scaffold",
    family="linear",
    needs={"sites", "sex", "age"},
    provenance=reconstruct("the companion of our reading of CORE"),
    reference="Wang, Zhang et al., When Brain Networks Travel (CORE), arXiv 2605.06050; scikit-learn",
)
class CoreScaffold(LinearMethod):
    """Logistic regression (l2) on CORE's scaffold: reproducible edges, age and sex taken out."""

    Settings = CoreScaffoldSettings
    settings: CoreScaffoldSettings

    @property
    def facts(self) -> MethodFacts:
        return replace(super().facts, without_validation="")

    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> Dual:
        return logistic_dual(gram, y, penalty)

    def learn(self, source: SourceScans, scans: Scans) -> dict[str, Tensor]:
        mean = super().learn(source, scans)["mean"]
        edges = scaffold(source, scans, self.settings)
        values, live = _entries(scans, edges.u, edges.v, mean)
        known = confounds(source, values, live, scans.covariates)
        return {"mean": mean, "u": edges.u.cpu(), "v": edges.v.cpu()} | {
            name: t.cpu() for name, t in known._asdict().items()
        }

    def features(self, scans: Scans, learned: dict[str, Tensor]) -> np.ndarray:
        known = Confounds(*(learned[name].to(scans.A) for name in Confounds._fields))
        values, live = _entries(scans, learned["u"], learned["v"], learned["mean"])
        return adjusted(values, live, scans.covariates, known).double().cpu().numpy()


def _entries(scans: Scans, u: Tensor, v: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """FC of some edges, and 1 where both ends have signal. Shapes [n, M]."""
    u, v = u.to(scans.A.device), v.to(scans.A.device)
    A = fill_dead(scans.A, scans.alive, mean.to(scans.A))
    return A[:, u, v], (scans.alive[:, u] & scans.alive[:, v]).to(A.dtype)
