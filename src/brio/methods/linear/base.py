"""Linear models with a chosen penalty. All are solved in the dual, because there are fewer scans than edges."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from ...connectome import Connectomes
from ...device import full_precision
from ...formatting import format_count
from ...progress import Progress, silent
from ...protocol import auc
from ...training import (
    ANY_TENSOR,
    ExplainedScans,
    Explanation,
    FittedRun,
    MethodFacts,
    Prediction,
    Run,
    RunState,
    Scans,
    Tensors,
    TensorSpec,
)
from .calibration import fit_calibration
from .distinct_runs import fit_distinct_runs
from .feature_method import FeatureMethod
from .features import project_rows
from .penalty_choice import choose_penalty
from .prepared import OpenedScans, PreparedRun
from .sites import average_site_auc, centre_gram, centre_within


class DualSolution(NamedTuple):
    """A linear model in terms of its source scans: margin = k(x, source) @ weights + intercept."""

    weights: np.ndarray  # [n] one for each source scan
    intercept: float


class LinearMethod(FeatureMethod):
    """A linear model on features of a scan. A subclass solves the dual; it may have features of its own."""

    version = 3  # of penalties that score alike the strongest is chosen; since 2 probabilities are calibrated
    uses_seed = True
    """Whether anything may depend on the seed. If not, runs whose folds hold the same scans share one solution. A
    subclass that draws random numbers must set it back to True."""
    features_use_labels = False
    """Whether features are learned from labels. Inner folds would then know the labels of their withheld site."""
    margins_are_log_odds = False
    """Whether margins are log-odds of the classes already. If not, probabilities are calibrated on inner folds."""
    site_intercepts = False
    """Whether each source site has an intercept of its own, which is not penalised. Then features and labels are
    centred within sites before :meth:`solve`, which comes to the same."""
    edge_values = "Fisher z"
    """What the value of an edge is, for an explanation; empty where features do not belong to edges."""
    beyond_edges = ""
    """What the margin is made of besides the edges, for an explanation."""

    @property
    def needs_validation(self) -> bool:  # type: ignore[override]
        """Whether the penalty is chosen on validation scans."""
        return self.settings.choose_by == "validation"

    @property
    def facts(self) -> MethodFacts:
        """What a job plans and prints with."""
        return MethodFacts(
            dead_rois=self.settings.dead_rois,
            setting_without_validation="choose_by=source-sites",
            holds="means of features and one coefficient for each, learned from all source scans",
            explains="coefficients of edges" if self.edge_values else "",
            uses_seed=self.uses_seed,
        )

    @abstractmethod
    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        """Fit the model for one penalty.

        Shapes: gram [n, n], y [n].
        """

    def solve_grid(self, prepared: PreparedRun, y: np.ndarray) -> list[DualSolution]:
        """Fit the model to all source scans for each penalty of the grid. Labels [n] of -1 or 1."""
        gram = prepared.gram
        if self.site_intercepts:
            gram, y = centre_gram(gram, prepared.source.site), centre_within(y, prepared.source.site)
        return [self.solve(gram, y, penalty) for penalty in prepared.penalties]

    def predict_inner_folds(self, prepared: PreparedRun, y: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Predict every source scan from the inner fold that withholds it, for each penalty.

        A model in closed form need not fit every inner fold, and overrides this.

        Shapes: y [n], penalties [penalties]; returns [penalties, n].
        """
        margins = np.empty((len(penalties), len(y)))
        for inside, withheld in prepared.split_inner_folds():
            inner, across = prepared.centre_inner_fold(inside, withheld)
            for p, penalty in enumerate(penalties):
                margins[p, withheld] = across @ self.solve(inner, y[inside], penalty).weights
        return margins

    def solve_run(
        self, prepared: PreparedRun, y: np.ndarray, with_inner_folds: bool
    ) -> tuple[list[DualSolution], np.ndarray | None]:
        """Fit all source scans for each penalty, and predict inner folds where they are needed.

        Shapes: y [n]; returns margins [penalties, n].
        """
        solutions = self.solve_grid(prepared, y)
        return solutions, self.predict_inner_folds(prepared, y, prepared.penalties) if with_inner_folds else None

    def calibrate(
        self, solution: DualSolution, inner_margin: np.ndarray | None, label: np.ndarray, inner_fold: np.ndarray
    ) -> tuple[float, float]:
        """Return slope and intercept that turn the products of a solution into margins; here 1 and its own intercept.

        Shapes: inner_margin [n], label, inner_fold [n].
        """
        return 1.0, solution.intercept

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        """Fit every run and score its test scans."""
        message = format_count(len(runs), "run")
        with full_precision():
            opened = self.open_scans(connectomes, runs)
            fitted_runs = fit_distinct_runs(
                lambda run: self._fit_run(connectomes, opened, run),
                runs,
                uses_seed=self.uses_seed,
                bytes_each=self.estimate_run_bytes(len(connectomes), connectomes.n_rois),
                message=message,
                progress=progress,
            )
        return [replace(fitted, run=run) for fitted, run in zip(fitted_runs, runs, strict=True)]

    def declare_tensors(self, n_rois: int) -> dict[str, TensorSpec]:
        """Declare centre and coefficient of each feature, the intercept, and what the features need."""
        if self.changes_after("declare_features", "learn"):
            learned = {"features": TensorSpec(("features",)), "*": ANY_TENSOR}
        else:
            learned = self.declare_features(n_rois)
        d = learned.pop("features").shape
        return {
            "parameters.centre": TensorSpec(d),
            "parameters.coefficients": TensorSpec(d),
            "parameters.intercept": TensorSpec(()),
        } | {f"learned.{name}": spec for name, spec in learned.items()}

    def declare_features(self, n_rois: int) -> dict[str, TensorSpec]:
        """Declare what :meth:`learn` returns, and under ``features`` the axis of the features."""
        return {"features": TensorSpec((n_rois * (n_rois - 1) // 2,)), "mean": TensorSpec((n_rois, n_rois))}

    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        """Predict margins; the representation is the centred features."""
        p = fitted.parameters
        with full_precision():  # as in fit
            centred = self.extract_features(scans, fitted.state.learned) - p["centre"].double().numpy()
        margin = project_rows(centred, p["coefficients"].double().numpy()) + float(p["intercept"])
        return Prediction(margin, centred)

    def explain(self, fitted: FittedRun) -> Explanation | None:
        """Return the coefficient of each edge."""
        if not self.edge_values:
            return None
        coefficients = fitted.parameters["coefficients"].double().numpy()
        return Explanation(self.edge_values, self.pick_edges(coefficients, fitted.state.learned), self.beyond_edges)

    def read_explained(self, fitted: FittedRun, scans: Scans) -> ExplainedScans:
        """Read margins and values of edges."""
        margin, features = self.predict(fitted, scans)
        return ExplainedScans(margin, self.pick_edges(features, fitted.state.learned))

    def pick_edges(self, features: np.ndarray, learned: Tensors) -> np.ndarray:
        """Pick the features that belong to edges. Shape [..., d] -> [..., edges]."""
        return features

    def _fit_run(self, connectomes: Connectomes, opened: OpenedScans, run: Run) -> FittedRun:
        """Learn features, choose the penalty, and score the test scans of one run."""
        fold, prepared = run.fold, self.prepare_run(connectomes, opened, run)
        source, penalties = prepared.source, prepared.penalties
        y = 2.0 * source.label - 1.0
        validation_label = connectomes.cohort.labels[fold.validation]
        by_sites = self.settings.choose_by == "source-sites"
        solutions, inner = self.solve_run(prepared, y, by_sites or self.site_intercepts)
        inner_auc = np.empty(0) if inner is None else average_site_auc(inner, source.label, prepared.inner_fold)
        validation_auc = inner_auc
        if len(validation_label) and (not by_sites or len(np.unique(validation_label)) == 2):
            across = prepared.rows.multiply(fold.validation)
            validation_auc = np.array([auc(validation_label, across @ solution.weights) for solution in solutions])
        scores = inner_auc if by_sites else validation_auc
        best = int(choose_penalty(scores, penalties, self.settings.choose_by, fold.name))
        inner_margin = self._predict_chosen(inner, best, prepared, y)
        slope, intercept = self.calibrate(solutions[best], inner_margin, source.label, prepared.inner_fold)
        coefficients = prepared.rows.combine(slope * solutions[best].weights)
        return FittedRun(
            run=run,
            test_logit=prepared.rows.project(fold.test, coefficients) + intercept,
            validation_auc=float(validation_auc[best]),
            details={"penalty": float(penalties[best])}
            | self._calibrate_probability(solutions[best], inner_margin, source.label, prepared.inner_fold),
            state=RunState.from_learned(**prepared.learned),
            parameters={
                "centre": torch.from_numpy(prepared.rows.centre),
                "coefficients": torch.from_numpy(coefficients),
                "intercept": torch.tensor(intercept, dtype=torch.float64),
            },
        )

    def _predict_chosen(
        self, inner: np.ndarray | None, best: int, prepared: PreparedRun, y: np.ndarray
    ) -> np.ndarray | None:
        """Margins of the inner folds [n] under the chosen penalty; None where they are not honest or not needed."""
        if self.features_use_labels:
            return None
        if inner is not None:
            return inner[best]
        if self.margins_are_log_odds:
            return None
        return self.predict_inner_folds(prepared, y, prepared.penalties[best : best + 1])[0]

    def _calibrate_probability(
        self, solution: DualSolution, inner_margin: np.ndarray | None, label: np.ndarray, inner_fold: np.ndarray
    ) -> dict[str, list[float]]:
        """Slope and intercept that turn a margin into the logit of a probability, for the details of a run."""
        if self.margins_are_log_odds or inner_margin is None:
            return {}
        slope, intercept = fit_calibration(inner_margin, label, inner_fold).tolist()
        return {"calibration": [slope, intercept - slope * solution.intercept]}  # inner margins have no intercept
