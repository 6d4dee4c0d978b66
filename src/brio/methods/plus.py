"""BRIO plus: ridge regression on log-connectomes, penalised for evidence that does not persist under re-estimation.

The features are the edges of the log-connectome. The penalty is the variance of the margin over re-estimates of the
source scans, in closed form. Every source site has its own intercept, as in ``log-ridge``, which is the same method
without this penalty. There is one coefficient for each edge. Equations: docs/brio-plus.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..connectome import Connectomes, differentiate_log, find_live_edges, read_edges
from ..machine import map_on_cores
from ..settings import Count, Weight
from ..training import MethodFacts, Run
from .linear.base import HeldRows, OpenedScans, PreparedRun, ScanReader
from .linear.log_ridge import LogRidge, LogRidgeSettings
from .registry import Provenance, method

_SCANS_AT_ONCE = 8  # whose changes a core computes at a time


@dataclass(frozen=True)
class BrioPlusSettings(LogRidgeSettings):
    """Settings of BRIO plus.

    Attributes
    ----------
    lambda_re : float
        Weight of the penalty on changes of the margin under re-estimation; 0 for none. It is fixed, because inner
        folds cannot choose it: evidence on which all source sites agree looks good in every fold.
    K : int
        Number of blocks of each scan from which the variance under re-estimation is computed. More blocks make it more
        precise, and take more time and memory.
    block_length : int or None
        Length of the blocks in frames; None for the square root of the number of frames of the scan.
    """

    lambda_re: Weight = 1.0
    K: Count = 24
    block_length: Count | None = None


class _Reader(ScanReader):
    """Log-connectomes of a cohort by position, and products of their edges with their changes under re-estimation.

    Nothing here is learned: a product depends on its two scans alone.

    Shapes: z [N, edges], products [changes, N], owner [changes].
    """

    def __init__(self, method: "BrioPlus", connectomes: Connectomes, scans: np.ndarray) -> None:
        logs = method.transform(connectomes.full)
        super().__init__(method.gather_inputs(connectomes), logs)
        self.z = read_edges(logs).cpu().numpy()
        live, A = find_live_edges(connectomes.alive).cpu().numpy(), connectomes.full.cpu().numpy()
        settings = method.settings

        def multiply(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            owner, changes = [], []
            for i in part.tolist():
                change = connectomes.find_block_changes(i, settings.K, settings.block_length)
                moved = differentiate_log(A[i], change, settings.shrinkage)
                changes.append(np.where(live[i], read_edges(torch.from_numpy(moved)).numpy(), 0.0))
                owner.append(np.full(len(change), i))
            return np.concatenate(owner), np.concatenate(changes) @ self.z.T

        parts = np.array_split(scans, -(-len(scans) // _SCANS_AT_ONCE))
        owners, products = zip(*map_on_cores(multiply, parts), strict=True)
        self.owner, self.products = np.concatenate(owners), np.concatenate(products)

    def sum_products(self, scans: np.ndarray) -> np.ndarray:
        """Sum z change change' z' over all changes of scans [n]. Shape [n, n]."""
        rows = self.products[np.isin(self.owner, scans)][:, scans].astype(np.float64)
        return np.asarray(rows.T @ rows)


@dataclass(frozen=True)
class _PenalisedRows(HeldRows):
    """Source scans whose coefficients are sums of their log-connectomes z [n, d]. Shapes: correction [n, n]."""

    z: np.ndarray
    correction: np.ndarray  # (z z' + penalty)^-1 z x'

    def multiply(self, scans: np.ndarray) -> np.ndarray:
        """Compute the penalised products of the centred features of scans [m] and source scans. Shape [m, n]."""
        return (self.read(scans) - self.centre) @ self.z.T @ self.correction

    def combine(self, weights: np.ndarray) -> np.ndarray:
        """Compute the coefficients z' (z z' + penalty)^-1 z x' weights. Shape [n] -> [d]."""
        return self.z.T @ (self.correction @ weights)


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
    version = 6  # the variance under re-estimation in closed form; nothing is drawn

    @property
    def can_store_edges(self) -> bool:  # type: ignore[override]
        """Whether edges may be read in batches of scans, as for ``log-ridge``."""
        return not self.settings.lambda_re

    @property
    def facts(self) -> MethodFacts:
        """Facts that a job needs for planning and printing."""
        return replace(super().facts, reestimates=self.settings.K if self.settings.lambda_re else None)

    def open_scans(self, connectomes: Connectomes, runs: Sequence[Run] = ()) -> OpenedScans:
        """Take the logarithm of every scan, and find how the source scans of runs change under re-estimation."""
        if not self.settings.lambda_re or not runs:
            return super().open_scans(connectomes, runs)
        return _Reader(self, connectomes, np.unique(np.concatenate([run.fold.source for run in runs])))

    def prepare_run(self, connectomes: Connectomes, opened: OpenedScans, run: Run) -> PreparedRun:
        """Prepare a run of ``log-ridge``, then penalise changes under re-estimation.

        Coefficients are sums z' a of the source scans' log-connectomes z. The penalty is |z' a|^2 and, for changes T,
        weight |T z' a|^2. So products x x' become x z' (z z' + weight z T' T z')^-1 z x'.
        """
        prepared = super().prepare_run(connectomes, opened, run)
        if not isinstance(opened, _Reader) or not isinstance(prepared.rows, HeldRows):
            return prepared
        z = opened.z[run.fold.source].astype(np.float64)
        tau = max(np.trace(prepared.gram) / len(prepared.gram), 1e-9)  # so lambda_re has no unit
        size, axes = np.linalg.eigh(z @ z.T)
        axes, size = axes[:, size > 1e-8 * size[-1]], size[size > 1e-8 * size[-1]]  # scans may outnumber edges
        basis = axes / np.sqrt(size)
        penalty = (self.settings.lambda_re / tau) * (basis.T @ opened.sum_products(run.fold.source) @ basis)
        penalty[np.diag_indices_from(penalty)] += 1.0
        across = z @ prepared.rows.x.T
        correction = basis @ np.linalg.solve(penalty, basis.T @ across)
        rows = _PenalisedRows(**vars(prepared.rows), z=z, correction=correction)
        return replace(prepared, rows=rows, gram=across.T @ correction)

    def estimate_fit_bytes(self, n_scans: int, n_rois: int) -> float:
        """Estimate the memory of a fit: log-connectomes and the products of changes, in addition to a run."""
        if not self.settings.lambda_re:
            return super().estimate_fit_bytes(n_scans, n_rois)
        shared = 4.0 * n_scans * (n_rois**2 + self.settings.K * n_scans)
        return self.estimate_run_bytes(n_scans, n_rois) + shared

    def estimate_run_bytes(self, n_scans: int, n_rois: int, decomposed: bool = False) -> float:
        """Estimate the memory of one run, with log-connectomes and the products of the changes of its scans."""
        own = 4.0 * n_scans * (n_rois**2 + 3.0 * self.settings.K * n_scans) if self.settings.lambda_re else 0.0
        return super().estimate_run_bytes(n_scans, n_rois, decomposed) + own
