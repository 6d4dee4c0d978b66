"""BRIO plus: the paper's factors, re-estimation support and qualification-guided alignment, in closed form.

Nothing is trained by gradient steps. For a given qualification the model is a kernel ridge regression. The
qualification is that of the paper, computed from the contributions of the model and renewed a few times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ...connectome import Connectomes
from ...progress import Progress, silent
from ...training import FittedRun, Method, MethodFacts, Prediction, Run, Scans, SourceScans
from ..registry import Provenance, method, variant
from .log_edges import ReestimatedLogEdges, extract_log_edges, find_live_edges
from .model import FactorModel
from .run_fit import RunFit
from .settings import BrioPlusSettings

__all__ = ["BrioPlus"]


@method(
    "brio-plus",
    family="BRIO",
    needs={"sites"},
    provenance=Provenance("ours", "the paper's mechanism on a closed-form model"),
    reference="docs/brio-plus.md",
)
class BrioPlus(Method):
    """BRIO's factors, support and alignment on log-connectomes, with a linear path, solved in closed form."""

    Settings = BrioPlusSettings
    settings: BrioPlusSettings
    needs_validation = False
    version = 2

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        """Fit every run and score its test scans; runs with the same seed and block length share re-estimates."""
        log = extract_log_edges(connectomes.full, self.settings.shrinkage)
        live = find_live_edges(connectomes.alive)
        lengths = [self._find_block_length(connectomes, run) for run in runs]
        groups: dict[tuple[int, int], list[int]] = {}
        for position, (run, length) in enumerate(zip(runs, lengths, strict=True)):
            groups.setdefault((run.seed, int(np.floor((length or 0.0) + 0.5))), []).append(position)
        fitted_runs: dict[int, FittedRun] = {}
        for (seed, rounded), positions in groups.items():
            reestimates = None
            if self.settings.reestimates:
                s = self.settings
                scans = np.unique(np.concatenate([runs[p].fold.source for p in positions]))
                reestimates = ReestimatedLogEdges(connectomes, scans, rounded, s.block_rule, seed, s.K, s.shrinkage)
            for p in positions:
                progress(f"{len(runs)} runs, fold {runs[p].fold.name}", len(fitted_runs) / len(runs))
                run_fit = RunFit(self.settings, connectomes, runs[p], log, live, reestimates)
                fitted_runs[p] = run_fit.fit(lengths[p])
        return [fitted_runs[p] for p in range(len(runs))]

    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        """Predict margins; the representation is the coordinates of all factors, [n, J * d_t]."""
        model = FactorModel.from_tensors(fitted.parameters, scans.A)
        linear, own, r = model.split_contributions(self._centre_scans(model, scans))
        representation = r.transpose(0, 1).flatten(1)
        return Prediction(model.logit(linear + own).cpu().numpy(), representation.cpu().numpy())

    def compute_contributions(self, fitted: FittedRun, scans: Scans) -> np.ndarray:
        """Compute the contributions a of the factors, scaled so that the logit is their sum / sqrt(J) + c_0.

        Returns
        -------
        ndarray, shape [n, J]
        """
        model = FactorModel.from_tensors(fitted.parameters, scans.A)
        a = model.contributions(self._centre_scans(model, scans))
        return (a * model.calibration[0] * self.settings.J**0.5).cpu().numpy()

    def intercept(self, fitted: FittedRun) -> float:
        """Return the part of a margin that no factor contributes, c_0."""
        return float(fitted.parameters["calibration"][1])

    @property
    def facts(self) -> MethodFacts:
        """What a job plans and prints with."""
        s = self.settings
        return MethodFacts(reestimates=s.K if s.reestimates else None, relative_cost=4.0 if s.lambda_env else 2.0)

    def _centre_scans(self, model: FactorModel, scans: Scans) -> Tensor:
        """Centred log-connectomes of scans. Shape [n, edges]."""
        return model.centre_edges(extract_log_edges(scans.A, self.settings.shrinkage), find_live_edges(scans.alive))

    def _find_block_length(self, connectomes: Connectomes, run: Run) -> float | None:
        """Block length of the re-estimates of a run, unrounded; None where nothing is re-estimated."""
        s = self.settings
        if not s.reestimates or s.block_length is not None:
            return s.block_length if s.reestimates else None
        source = SourceScans.of_run(connectomes, run)
        return connectomes.estimate_block_length(source.scans, source.site, source.label, s.block_rule, source.seed)


variant("brio-plus-factors", BrioPlus, "its factors' own kernels alone", linear=False)
variant("brio-plus-wo-qg", BrioPlus, "alignment without qualification", variant="w/o QG")
