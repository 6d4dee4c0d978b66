"""Linear models with a penalty chosen on validation scans, all solved in the dual: scans are fewer than edges."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...connectome import Connectomes, fill_dead, source_mean
from ...errors import BrioError
from ...progress import Progress, silent
from ...protocol import auc
from ...settings import require
from ...training import FittedRun, Method, MethodFacts, Prediction, Run, RunState, Scans, SourceScans

__all__ = ["Dual", "LinearMethod", "LinearSettings", "fc_entries"]

Dual = tuple[np.ndarray, float]
"""Weights of the source scans, and an intercept: margin = k(x, source) @ weights + intercept."""


@dataclass(frozen=True)
class LinearSettings:
    """Settings of a penalised linear model.

    Attributes
    ----------
    least_penalty, largest_penalty : float
        Ends of the grid of penalties, as multiples of the mean squared norm of a centred source scan's features, so
        that the same grid serves any atlas and estimator.
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


class LinearMethod(Method):
    """A linear model on features of a scan. A subclass solves the dual; it may have features of its own."""

    Settings = LinearSettings
    settings: LinearSettings
    draws = True
    """Whether anything may depend on the seed. If not, seeds whose folds hold the same scans share one solution; a
    subclass of such a model that draws something has to say so again."""

    @property
    def needs_validation(self) -> bool:  # type: ignore[override]
        return self.settings.choose_by == "validation"

    @property
    def facts(self) -> MethodFacts:
        return MethodFacts(dead_rois=self.settings.dead_rois, without_validation="choose_by=source-sites")

    @abstractmethod
    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> Dual:
        """The model for centred features with this Gram matrix and labels -1 and 1."""

    def learn(self, source: SourceScans, scans: Scans) -> dict[str, Tensor]:
        """What the features learn from the source scans, under names of their own."""
        mean = torch.zeros_like(source.connectomes.full[0])
        if self.settings.dead_rois == "source-mean":
            mean = source_mean([source.connectomes.site_mean(m) for m in source.by_site()])
        return {"mean": mean.cpu()}

    def features(self, scans: Scans, learned: dict[str, Tensor]) -> np.ndarray:
        """Features of scans, here the entries of the FC matrix. Shape [n, d], float64."""
        return fc_entries(scans, learned["mean"])

    def learn_features(self, source: SourceScans, scans: Scans) -> tuple[dict[str, Tensor], np.ndarray]:
        """What the features learn, and the features of the source scans."""
        learned = self.learn(source, scans)
        return learned, self.features(scans, learned)

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        fitted_runs = []
        solved: dict[tuple[bytes, ...], FittedRun] = {}
        inputs = self.inputs(connectomes)

        def take(scans: np.ndarray) -> Scans:
            return inputs.take(torch.from_numpy(scans).to(connectomes.device))

        for i, run in enumerate(runs):
            progress(f"{len(runs)} runs, fold {run.fold.name}", i / len(runs))
            fold, cohort = run.fold, connectomes.cohort
            same = tuple(scans.tobytes() for scans in (fold.source, fold.validation, fold.test))
            if same in solved and not self.draws:
                fitted_runs.append(replace(solved[same], run=run))
                continue
            source = SourceScans(
                connectomes, fold.source, cohort.sites[fold.source], cohort.labels[fold.source], run.seed
            )
            learned, x = self.learn_features(source, take(fold.source))
            across = self.features(take(fold.validation), learned)
            fitted_runs.append(self._fit(run, source, learned, x, across, cohort.labels[fold.validation]))
            fitted_runs[-1].test_logit = self.predict(fitted_runs[-1], take(fold.test)).margin
            solved[same] = fitted_runs[-1]
        return fitted_runs

    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        p = fitted.parameters
        centred = self.features(scans, fitted.state.learned) - p["centre"].double().numpy()
        return Prediction(centred @ p["coefficients"].double().numpy() + float(p["intercept"]), centred)

    def _fit(
        self,
        run: Run,
        source: SourceScans,
        learned: dict[str, Tensor],
        x: np.ndarray,
        validation: np.ndarray,
        label: np.ndarray,
    ) -> FittedRun:
        centre = x.mean(0)
        x = x - centre
        y = 2.0 * source.label - 1.0
        gram = x @ x.T
        penalties = self.settings.grid * max(np.trace(gram) / len(gram), 1e-9)  # features may all be constant
        across = (validation - centre) @ x.T
        duals = [self.solve(gram, y, penalty) for penalty in penalties]
        by_sites = self.settings.choose_by == "source-sites"
        left_out = self._left_out_auc(gram, y, source.site, penalties) if by_sites else np.empty(0)
        found = np.array([auc(label, across @ weights) for weights, _ in duals]) if len(label) else left_out
        choice = left_out if by_sites else found
        if np.isnan(choice).all():
            raise BrioError(
                f"fold {run.fold.name}: the validation scans hold one class only, so no penalty can be chosen; "
                "use more validation sites"
            )
        best = int(np.nanargmax(choice))
        weights, intercept = duals[best]
        return FittedRun(
            run=run,
            test_logit=np.empty(0),
            validation_auc=float(found[best]),
            details={"penalty": float(penalties[best])},
            state=RunState.from_learned(**learned),
            parameters={
                "centre": torch.from_numpy(centre),
                "coefficients": torch.from_numpy(x.T @ weights),
                "intercept": torch.tensor(intercept, dtype=torch.float64),
            },
        )

    def _left_out_auc(self, gram: np.ndarray, y: np.ndarray, site: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Mean AUC over source sites left out in turn, for each penalty; centred anew without the site."""
        found = []
        for e in np.unique(site):
            inside, left = np.flatnonzero(site != e), np.flatnonzero(site == e)
            inner = gram[np.ix_(inside, inside)]
            row, total = inner.mean(0), inner.mean()
            inner = inner - row - row[:, None] + total
            across = gram[np.ix_(left, inside)]
            across = across - across.mean(1, keepdims=True) - row + total
            duals = [self.solve(inner, y[inside], penalty)[0] for penalty in penalties]
            found.append([auc(y[left] > 0, across @ weights) for weights in duals])
        return np.mean(found, axis=0)


def fc_entries(scans: Scans, mean: Tensor) -> np.ndarray:
    """Upper triangle of the filled FC matrices, float64. Shape [n, P (P - 1) / 2]."""
    A = fill_dead(scans.A, scans.alive, mean.to(scans.A))
    u, v = torch.triu_indices(A.shape[-1], A.shape[-1], 1, device=A.device)
    return A[:, u, v].double().cpu().numpy()
