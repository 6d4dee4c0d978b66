"""BRIO plus: ridge regression on log-connectomes that relies less on evidence that changes under re-estimation.

It is ``log-ridge`` with one more penalty, on changes of the margin between a scan and its re-estimates, Eq. (2) of the
paper. It is solved in closed form, and the model holds one coefficient for each edge. Equations: docs/brio-plus.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from scipy.linalg import solve

from .. import connectome
from ..connectome import BlockRule, Connectomes, ReestimateRequest, find_live_edges, log_connectome, read_edges
from ..console import Progress, silent
from ..machine import map_on_cores
from ..settings import BlockLength, Count, Weight
from ..training import FittedRun, Inputs, MethodFacts, Run
from ..training.trainer import report_part
from .linear.base import HeldRows, OpenedScans, PreparedRun, ScanReader
from .linear.log_ridge import LogRidge, LogRidgeSettings
from .registry import Provenance, method

Result = TypeVar("Result")
Resampling: TypeAlias = tuple[int, float] | None
"""Seed and block length of re-estimates; None if nothing is re-estimated."""

_SCANS_AT_ONCE = 64  # whose re-estimates a core makes at a time


@dataclass(frozen=True)
class BrioPlusSettings(LogRidgeSettings):
    """Settings of BRIO plus.

    Attributes
    ----------
    lambda_re : float
        Weight of the penalty on changes of the margin under re-estimation; 0 for none. It is fixed, because inner
        folds cannot choose it: evidence on which all source sites agree looks good in every fold.
    K : int
        Number of re-estimates of each scan. More re-estimates reduce the variance of the penalty, not its expected
        value.
    block_length : float or None
        Fixed block length that replaces the estimate for each fold.
    """

    lambda_re: Weight = 1.0
    K: Count = 2
    block_length: BlockLength | None = None


class _Reader(ScanReader):
    """Log-connectomes of a cohort by position, and how much their edges change under re-estimation.

    Shapes: logs [N, P, P], scans [n], changes [n, K, edges].
    """

    def __init__(self, inputs: Inputs, logs: torch.Tensor, scans: np.ndarray, changes: np.ndarray) -> None:
        super().__init__(inputs, logs)
        self._changes = changes
        self._position = np.full(len(logs), -1)
        self._position[scans] = np.arange(len(scans))

    def read_changes(self, scans: np.ndarray) -> np.ndarray:
        """Read the changes of scans by position [n], one row for each re-estimate. Shape [n * K, edges]."""
        position = self._position[scans]
        if (position < 0).any():
            raise ValueError("scans of this run were not re-estimated; pass the run to open_scans")
        return self._changes[position].reshape(-1, self._changes.shape[-1])


@dataclass(frozen=True)
class _PenalisedRows(HeldRows):
    """Source scans x (I + T' T)^-1/2 of a run. Shapes: T [changes, d], correction [changes, n]."""

    T: np.ndarray  # scaled changes
    correction: np.ndarray  # (I + T T')^-1 T x'

    def multiply(self, scans: np.ndarray) -> np.ndarray:
        """Compute x (I + T' T)^-1 x' for the centred features of scans [m] and source scans. Shape [m, n]."""
        x = self.read(scans) - self.centre
        return x @ self.x.T - (x.astype(self.T.dtype) @ self.T.T) @ self.correction

    def combine(self, weights: np.ndarray) -> np.ndarray:
        """Compute the coefficients (I + T' T)^-1 x' weights. Shape [n] -> [d]."""
        return super().combine(weights) - (self.correction @ weights).astype(self.T.dtype) @ self.T


@method(
    "brio-plus",
    family="BRIO",
    needs={"sites"},
    provenance=Provenance("ours", "log-ridge with a penalty based on the paper's re-estimates"),
    reference="The brio developers (docs/brio-plus.md)",
)
class BrioPlus(LogRidge):
    """Ridge regression on log-connectomes, penalised for margins that change under re-estimation."""

    settings: BrioPlusSettings
    version = 5

    @property
    def uses_seed(self) -> bool:  # type: ignore[override]
        """Whether anything depends on the seed, as re-estimates do."""
        return bool(self.settings.lambda_re)

    @property
    def can_store_edges(self) -> bool:  # type: ignore[override]
        """Whether edges may be read in batches of scans, as for ``log-ridge``."""
        return not self.settings.lambda_re

    @property
    def facts(self) -> MethodFacts:
        """Facts that a job needs for planning and printing."""
        return replace(super().facts, reestimates=self._count_reestimates() or None)

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        """Fit every run and score its test scans; runs with the same seed and block length share re-estimates."""
        fitted_runs = self._compute_in_groups(super().fit, connectomes, runs, progress)
        return [replace(fitted, block_length=key and key[1]) for fitted, key in fitted_runs]

    def fit_labels(
        self, connectomes: Connectomes, runs: Sequence[Run], labels: np.ndarray, progress: Progress = silent
    ) -> list[np.ndarray]:
        """Compute the margins of the ordinary fit for many columns of labels."""
        compute = partial(super().fit_labels, labels=labels)
        return [margins for margins, _ in self._compute_in_groups(compute, connectomes, runs, progress)]

    def open_scans(self, connectomes: Connectomes, runs: Sequence[Run] = ()) -> OpenedScans:
        """Take the logarithm of every scan, and of the re-estimates of the source scans of runs that share them."""
        if not runs or (key := self._find_resampling(connectomes, runs[0])) is None:
            return super().open_scans(connectomes, runs)
        logs = self.transform(connectomes.full)
        scans = np.unique(np.concatenate([run.fold.source for run in runs]))
        return _Reader(self.gather_inputs(connectomes), logs, scans, self._find_changes(connectomes, logs, scans, *key))

    def prepare_run(self, connectomes: Connectomes, opened: OpenedScans, run: Run) -> PreparedRun:
        """Prepare a run of ``log-ridge``, then penalise changes under re-estimation.

        With rows T of changes, least |w|^2 + |T w|^2 for scans x is least |w|^2 for scans x (I + T' T)^-1/2. So
        products x x' become x (I + T' T)^-1 x', which Woodbury's identity computes.
        """
        prepared = super().prepare_run(connectomes, opened, run)
        if not isinstance(opened, _Reader) or not isinstance(prepared.rows, HeldRows):
            return prepared
        T = opened.read_changes(run.fold.source)
        scale = max(np.trace(prepared.gram) / len(prepared.gram), 1e-9)  # tau: so lambda_re has no unit
        T *= np.sqrt(self.settings.lambda_re / (self.settings.K * scale))
        across = (T @ prepared.rows.x.T.astype(T.dtype)).astype(np.float64)
        correction = solve(np.eye(len(T)) + T @ T.T, across, assume_a="pos", overwrite_a=True)
        rows = _PenalisedRows(**vars(prepared.rows), T=T, correction=correction)
        return replace(prepared, rows=rows, gram=prepared.gram - across.T @ correction)

    def estimate_fit_bytes(self, n_scans: int, n_rois: int) -> float:
        """Estimate the memory of a fit: if scans are re-estimated, log-connectomes and changes in addition to a run."""
        if not self.settings.lambda_re:
            return super().estimate_fit_bytes(n_scans, n_rois)
        shared = 4.0 * (1 + self._count_reestimates() / 2) * n_scans * n_rois**2
        return self.estimate_run_bytes(n_scans, n_rois) + shared

    def estimate_run_bytes(self, n_scans: int, n_rois: int, decomposed: bool = False) -> float:
        """Estimate the memory of one run, with changes of its edges and their products."""
        n_changes = n_scans * self._count_reestimates()
        own = 4.0 * n_changes * n_rois**2 / 2 + 8.0 * (2 * n_changes**2 + 2 * n_changes * n_scans)
        return super().estimate_run_bytes(n_scans, n_rois, decomposed) + own

    def _count_reestimates(self) -> int:
        """Re-estimates of a scan that are penalised."""
        return self.settings.K if self.settings.lambda_re else 0

    def _compute_in_groups(
        self, compute: Callable[..., list[Result]], connectomes: Connectomes, runs: Sequence[Run], progress: Progress
    ) -> list[tuple[Result, Resampling]]:
        """Compute runs that share re-estimates together, so that those of one group are in memory at a time.

        Draws depend on the frames of a scan, so that neither names nor the order of participants matter.
        """
        if self.settings.lambda_re:
            connectomes = connectomes.address_by_content()
        groups: dict[Resampling, list[int]] = {}
        for position, run in enumerate(runs):
            groups.setdefault(self._find_resampling(connectomes, run), []).append(position)
        results: dict[int, tuple[Result, Resampling]] = {}
        for key, positions in groups.items():
            report = report_part(progress, len(results) / len(runs), len(positions) / len(runs))
            computed = compute(connectomes, [runs[p] for p in positions], progress=report)
            results |= {p: (result, key) for p, result in zip(positions, computed, strict=True)}
        return [results[position] for position in range(len(runs))]

    def _find_resampling(self, connectomes: Connectomes, run: Run) -> Resampling:
        """Find seed and block length of the re-estimates of a run. Labels have no part in it."""
        if not self.settings.lambda_re:
            return None
        length, source = self.settings.block_length, run.fold.source
        if length is None:
            site, none = connectomes.cohort.sites[source], np.zeros(len(source), dtype=np.int64)
            length = connectomes.estimate_block_length(source, site, none, BlockRule(), run.seed)
        return run.seed, float(np.floor(length + 0.5))

    def _find_changes(
        self, connectomes: Connectomes, logs: torch.Tensor, scans: np.ndarray, seed: int, block_length: float
    ) -> np.ndarray:
        """Edges of K re-estimated log-connectomes of scans [n] less those of the scan. Shape [n, K, edges]."""
        K = self.settings.K
        blocks = connectome.clip_block_length(block_length, connectomes.n_frames[scans], BlockRule())
        changes = torch.empty(len(scans), K, logs.shape[-1] * (logs.shape[-1] - 1) // 2, dtype=logs.dtype)

        def fill(part: np.ndarray) -> None:
            request = ReestimateRequest(scans[part], blocks[part], seed, 0, K)
            for positions, A in connectomes.iterate_reestimates(request):
                here = part[positions]
                index = torch.from_numpy(scans[here]).to(logs.device)
                again = read_edges(log_connectome(A.flatten(0, 1), self.settings.shrinkage)).unflatten(0, (-1, K))
                live = find_live_edges(connectomes.alive[index]).unsqueeze(1)
                change = again - read_edges(logs[index]).unsqueeze(1)
                changes[torch.from_numpy(here)] = torch.where(live, change, 0.0).cpu()

        parts = np.array_split(np.arange(len(scans)), -(-len(scans) // _SCANS_AT_ONCE))
        map_on_cores(fill, parts, connectomes.device)
        return changes.numpy()
