"""BRIO plus: kernel ridge regression on a view of the connectome that each run chooses.

Regions are grouped into factors whose contributions add up to the margin. Contributions that change when a scan is
re-estimated from its own frames are penalised. The solution is closed: nothing is trained by gradient steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...connectome import Connectomes, find_live_edges
from ...formatting import format_count
from ...progress import Progress, silent
from ...training import (
    ExplainedScans,
    Explanation,
    FittedRun,
    Method,
    MethodFacts,
    Prediction,
    Run,
    Scans,
    SourceScans,
    TensorSpec,
)
from ..registry import Provenance, method
from .model import FactorModel
from .run_fit import RunFit
from .settings import BrioPlusSettings
from .views import VIEWS, ReestimatedEdges, read_views

__all__ = ["BrioPlus"]


@method(
    "brio-plus",
    family="BRIO",
    needs={"sites"},
    provenance=Provenance("ours", "kernel ridge regression with the paper's factors and re-estimates"),
    reference="docs/brio-plus.md",
)
class BrioPlus(Method):
    """Kernel ridge on a chosen view of the connectome, penalised for what does not survive re-estimation."""

    Settings = BrioPlusSettings
    settings: BrioPlusSettings
    needs_validation = False
    version = 4

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        """Fit every run and score its test scans; runs with the same seed, block length and view share re-estimates.

        Re-estimates are drawn by the frames of a scan, so that neither names nor the order of participants matter.
        """
        connectomes = connectomes.address_by_content()
        views = read_views(connectomes.full, self.settings.views)
        live = find_live_edges(connectomes.alive)
        scans = np.unique(np.concatenate([run.fold.source for run in runs]))
        shared: dict[tuple[int, int, str], ReestimatedEdges] = {}
        fitted_runs: list[FittedRun] = []
        for run in runs:
            progress(f"{format_count(len(runs), 'run')}, fold {run.fold.name}", len(fitted_runs) / len(runs))
            run_fit = RunFit(self.settings, connectomes, run, views, live)
            length = self._find_block_length(connectomes, run)
            key = run.seed, int(np.floor(length + 0.5)), run_fit.view
            if key not in shared:
                seed, rounded, view = key
                s = self.settings
                shared[key] = ReestimatedEdges(connectomes, scans, rounded, s.block_rule, seed, s.K, view)
            fitted_runs.append(run_fit.fit(length, shared[key]))
        return fitted_runs

    def declare_tensors(self, n_rois: int) -> dict[str, TensorSpec]:
        """Declare the fields of a factor model; its points and coordinates are as many as the scans gave."""
        J, edges, above = self.settings.J, n_rois * (n_rois - 1) // 2, float(np.finfo(np.float32).tiny)
        own = {
            "view": TensorSpec((), 0, len(VIEWS) - 1),
            "centre": TensorSpec((edges,)),
            "theta": TensorSpec((J, edges)),
            "points": TensorSpec((J, "points", "coordinates")),
            "beta": TensorSpec((J, "points")),
            "calibration": TensorSpec((2,)),
            "factors.Pi": TensorSpec((J, n_rois), low=0.0),
            "factors.scale": TensorSpec((), low=above),
            "factors.axes": TensorSpec((J, edges, "coordinates")),
            "factors.width": TensorSpec((J,), low=0.0),
        }
        Pi_bar = {"inference.Pi_bar": own["factors.Pi"]}
        return {f"parameters.{name}": spec for name, spec in own.items()} | Pi_bar

    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        """Predict margins; the representation is the coordinates of all factors, [n, J * d_t]."""
        model = FactorModel.from_tensors(fitted.parameters, scans.A)
        linear, own, r = model.split_contributions(model.read_scans(scans))
        representation = r.transpose(0, 1).flatten(1)
        return Prediction(model.logit(linear + own).cpu().numpy(), representation.cpu().numpy())

    def compute_contributions(self, fitted: FittedRun, scans: Scans) -> np.ndarray:
        """Compute the contributions a of the factors, scaled so that the logit is their sum / sqrt(J) + c_0.

        Returns
        -------
        ndarray, shape [n, J]
        """
        model = FactorModel.from_tensors(fitted.parameters, scans.A)
        a = model.contributions(model.read_scans(scans))
        return (a * model.calibration[0] * self.settings.J**0.5).cpu().numpy()

    def intercept(self, fitted: FittedRun) -> float:
        """Return the part of a margin that no factor contributes, c_0."""
        return float(fitted.parameters["calibration"][1])

    def explain(self, fitted: FittedRun) -> Explanation:
        """Return the linear path of all factors together, and the assignment of ROIs."""
        model = FactorModel.from_tensors(fitted.parameters, torch.empty(0))
        return Explanation(
            edge_values=f"view {model.view_name} of the connectome",
            coefficients=(model.calibration[0] * model.theta.sum(0)).numpy(),
            beyond_edges="the kernels of the factors",
            assignment=model.factors.Pi.numpy(),
        )

    def read_explained(self, fitted: FittedRun, scans: Scans) -> ExplainedScans:
        """Read margins, edges under the chosen view, and contributions of factors."""
        model = FactorModel.from_tensors(fitted.parameters, scans.A)
        x = model.read_scans(scans)
        a = model.contributions(x)
        contributions = model.calibration[0] * a
        return ExplainedScans(*(t.cpu().numpy() for t in (model.logit(a), x, contributions)))

    @property
    def facts(self) -> MethodFacts:
        """What a job plans and prints with."""
        return MethodFacts(
            reestimates=self.settings.K,
            relative_cost=4.0,
            holds="coefficients of edges, learned from all source scans, and coordinates of every source scan",
            keeps_scans="its kernel compares a new scan with the coordinates of each source scan and its re-estimates",
            explains="coefficients of edges, and factors",
        )

    def estimate_fit_bytes(self, n_scans: int, n_rois: int) -> float:
        """Estimate the memory of a run: views, kernels and, where changes are penalised, what is made of them."""
        s, n, edges = self.settings, n_scans, n_rois * (n_rois - 1) // 2
        views = (4 * len(s.views) + 8 * 3) * n * edges  # as they are, and centred: the best, the next, a copy
        kernels = 8 * 2 * s.J * n**2
        if not s.lambda_re:
            return float(views + kernels)
        rows, points = min(s.sketch, n * s.K), n * (s.K + 1)
        changes = 8 * rows * (2 * n * s.K + edges) + 8 * 2 * s.J * points * s.d_t  # omega twice, edges, coordinates
        return float(views + kernels + changes + (4 * 2 * points**2 if s.rho else 0))  # distances and their squares

    def _find_block_length(self, connectomes: Connectomes, run: Run) -> float:
        """Block length of the re-estimates of a run, unrounded."""
        s, source = self.settings, SourceScans.of_run(connectomes, run)
        if s.block_length is not None:
            return s.block_length
        return connectomes.estimate_block_length(source.scans, source.site, source.label, s.block_rule, source.seed)
