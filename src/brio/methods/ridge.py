"""Ridge regression on the FC entries: the model to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from sklearn.kernel_ridge import KernelRidge

from ..connectome import Connectomes, fill_dead, source_mean
from ..progress import Progress, silent
from ..protocol import auc
from ..settings import require
from ..training import Method, Outcome, Run, Source
from .registry import method

__all__ = ["Ridge", "RidgeSettings"]


@dataclass(frozen=True)
class RidgeSettings:
    """Settings of ridge regression.

    Attributes
    ----------
    least_penalty, largest_penalty : float
        Ends of the grid of penalties, as multiples of the mean squared norm of a centred source connectome, so that
        the same grid serves any atlas and estimator.
    penalties : int
        Steps of the grid, evenly spaced in the logarithm.
    choose_by : {"validation", "source-sites"}
        The penalty with the best AUC on the validation scans, as every other method chooses; or with the best mean
        AUC over source sites left out in turn, which a closed-form model can afford and which is less noisy.
    dead_rois : {"source-mean", "zero"}
        What the edges of an ROI without signal hold.
    """

    least_penalty: float = 0.1
    largest_penalty: float = 10.0
    penalties: int = 5
    choose_by: Literal["validation", "source-sites"] = "validation"
    dead_rois: Literal["source-mean", "zero"] = "source-mean"

    def __post_init__(self) -> None:
        require(self.penalties >= 1, "penalties", self.penalties, "at least 1")
        require(self.least_penalty > 0, "least_penalty", self.least_penalty, "above 0")
        require(self.largest_penalty >= self.least_penalty, "largest_penalty", self.largest_penalty, "the larger one")

    @property
    def grid(self) -> np.ndarray:
        return np.logspace(np.log10(self.least_penalty), np.log10(self.largest_penalty), self.penalties)


@method("ridge", family="linear", reference="Hoerl & Kennard 1970; scikit-learn's KernelRidge")
class Ridge(Method):
    """Ridge regression of the label (-1, 1) on the Fisher z entries, penalty chosen on the validation scans."""

    Settings = RidgeSettings
    settings: RidgeSettings

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[Outcome]:
        outcomes = []
        for i, run in enumerate(runs):
            progress(f"{len(runs)} runs, fold {run.fold.name}", i / len(runs))
            outcomes.append(self._fit(connectomes, run))
        return outcomes

    def margins(self, outcome: Outcome, connectomes: Connectomes, scans: np.ndarray) -> np.ndarray:
        x = _entries(connectomes, scans, outcome.weights["mean"].to(connectomes.device))
        centred = x - outcome.weights["centre"].double().numpy()
        return centred @ outcome.weights["coefficients"].double().numpy() + float(outcome.weights["intercept"])

    def _fit(self, connectomes: Connectomes, run: Run) -> Outcome:
        cohort, fold = connectomes.cohort, run.fold
        source = Source(connectomes, fold.source, cohort.sites[fold.source], cohort.labels[fold.source], run.seed)
        mean = torch.zeros_like(connectomes.full[0])
        if self.settings.dead_rois == "source-mean":
            mean = source_mean([connectomes.site_mean(m) for m in source.by_site()])
        x = _entries(connectomes, fold.source, mean)
        centre = x.mean(0)
        x = x - centre
        y = 2.0 * source.label - 1.0
        gram = x @ x.T
        penalties = self.settings.grid * np.trace(gram) / len(gram)
        across = (_entries(connectomes, fold.validation, mean) - centre) @ x.T
        duals = [_dual(gram, y - y.mean(), penalty) for penalty in penalties]
        validation = np.array([auc(cohort.labels[fold.validation], across @ dual) for dual in duals])
        choice = validation
        if self.settings.choose_by == "source-sites":
            choice = _left_out_auc(gram, y, source.site, penalties)
        best = int(np.nanargmax(choice))
        outcome = Outcome(
            run=run,
            test_logit=np.empty(0),
            validation_auc=float(validation[best]),
            notes={"penalty": float(penalties[best])},
            weights={
                "mean": mean.cpu(),
                "centre": torch.from_numpy(centre),
                "coefficients": torch.from_numpy(x.T @ duals[best]),
                "intercept": torch.tensor(y.mean(), dtype=torch.float64),
            },
        )
        outcome.test_logit = self.margins(outcome, connectomes, fold.test)
        return outcome


def _dual(gram: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
    return KernelRidge(alpha=penalty, kernel="precomputed").fit(gram, y).dual_coef_


def _left_out_auc(gram: np.ndarray, y: np.ndarray, site: np.ndarray, penalties: np.ndarray) -> np.ndarray:
    """Mean AUC over source sites left out in turn, for each penalty; centred anew without the site."""
    found = []
    for e in np.unique(site):
        inside, left = np.flatnonzero(site != e), np.flatnonzero(site == e)
        inner = gram[np.ix_(inside, inside)]
        row, total = inner.mean(0), inner.mean()
        inner = inner - row - row[:, None] + total
        across = gram[np.ix_(left, inside)]
        across = across - across.mean(1, keepdims=True) - row + total
        target = y[inside] - y[inside].mean()
        found.append([auc(y[left] > 0, across @ _dual(inner, target, penalty)) for penalty in penalties])
    return np.mean(found, axis=0)


def _entries(connectomes: Connectomes, scans: np.ndarray, mean: torch.Tensor) -> np.ndarray:
    """Upper triangle of the filled FC matrices, float64. Shape [n, P (P - 1) / 2]."""
    index = torch.from_numpy(scans).to(connectomes.device)
    A = fill_dead(connectomes.full[index], connectomes.alive[index], mean.to(connectomes.dtype))
    u, v = torch.triu_indices(connectomes.n_rois, connectomes.n_rois, 1, device=A.device)
    return A[:, u, v].double().cpu().numpy()
