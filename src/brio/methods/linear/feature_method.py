"""What a linear method reads of scans, what a run prepares from it, and the memory that both need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from ...connectome import Connectomes, read_edges, source_mean
from ...training import Method, Run, Scans, SourceScans, Tensors
from .features import vectorise_fc
from .prepared import HeldRows, OpenedScans, PreparedRun, ScanReader
from .settings import LinearSettings
from .sites import centre_gram
from .stored_edges import READ_BYTES, StoredEdges, StoredRows


class FeatureMethod(Method):
    """A method that reads features of a scan, here the entries of its FC matrix. A subclass says how it is solved."""

    Settings = LinearSettings
    settings: LinearSettings
    fits_on_cpu = True
    features_are_edges = False
    """Whether the features are the edges that :meth:`read_scans` reads, but for ROIs without signal. Their products are
    then computed once for all folds."""
    feature_copies = 3
    """Copies of all edges in float64 that a run has in memory at once, to estimate what it needs."""

    @property
    def most_decomposed(self) -> float:
        """Most source scans of which the Gram matrix is decomposed, or copied to be solved; beyond, only multiplied."""
        return math.inf

    @property
    def can_store_edges(self) -> bool:
        """Whether :meth:`read_matrices` gives matrices whose edges are the features."""
        return self.features_are_edges

    def learn(self, source: SourceScans, scans: Scans) -> Tensors:
        """Learn what the features need from the source scans."""
        return {"mean": self._average_source(source)}

    def learn_fill(self, source: SourceScans, stored: StoredEdges) -> tuple[Tensors, np.ndarray]:
        """Learn what :meth:`learn` does from stored edges, and what fills those of ROIs without signal.

        Shapes: returns fill [d].
        """
        mean = self._average_source(source)
        return {"mean": mean}, read_edges(mean).double().numpy()

    def _average_source(self, source: SourceScans) -> Tensor:
        """Average what fills edges of ROIs without signal: source connectomes, or zeros. Shape [P, P], on the CPU."""
        mean = torch.zeros_like(source.connectomes.full[0])
        if self.settings.dead_rois == "source-mean":
            mean = source_mean([source.connectomes.site_mean(m) for m in source.by_site()])
        return mean.cpu()

    def extract_features(self, scans: Scans, learned: Tensors) -> np.ndarray:
        """Extract the features of scans, here the entries of the FC matrix.

        Shapes: returns [n, d].
        """
        return vectorise_fc(scans, learned["mean"])

    def learn_features(self, source: SourceScans, scans: Scans) -> tuple[Tensors, np.ndarray]:
        """Learn what the features need, and extract those of the source scans. Parameters as of :meth:`learn`."""
        learned = self.learn(source, scans)
        return learned, self.extract_features(scans, learned)

    def open_scans(self, connectomes: Connectomes, runs: Sequence[Run] = ()) -> OpenedScans:
        """Return what runs read scans from: their edges, stored once, where features of a run would be too large.

        A subclass may add what its runs share.
        """
        matrices = self.read_matrices(connectomes)
        if matrices is None or not StoredEdges.are_needed(len(connectomes), connectomes.n_rois):
            return self.read_scans(connectomes)
        return StoredEdges(matrices, connectomes.alive)

    def read_matrices(self, connectomes: Connectomes) -> Iterable[Tensor] | None:
        """Iterate over matrices [m, P, P] of all scans whose edges are the features; None where features are others.

        Edges of ROIs without signal must be zero in the matrices; what a run fills them with, it learns by
        :meth:`learn_fill`.
        """
        return connectomes.full.split(1024) if self.features_are_edges else None

    def read_scans(self, connectomes: Connectomes) -> ScanReader:
        """Return a function from positions in the cohort to scans as :meth:`extract_features` reads them.

        A subclass may transform every scan of the cohort here once, for all folds, if the result depends on that scan
        alone; :meth:`predict` has to do the same.
        """
        return ScanReader(self.gather_inputs(connectomes), share_products=self.features_are_edges)

    def prepare_run(self, connectomes: Connectomes, opened: OpenedScans, run: Run) -> PreparedRun:
        """Learn the features of a run, centre those of its source scans, and scale the grid of penalties."""
        source = SourceScans.of_run(connectomes, run)
        rows: HeldRows | StoredRows
        if isinstance(opened, StoredEdges):
            learned, fill = self.learn_fill(source, opened)
            rows, gram = StoredRows.prepare(opened, source.scans, fill)
        else:
            learned, rows, gram = self._hold_features(source, opened)
        penalties = self.settings.grid * max(np.trace(gram) / len(gram), 1e-9)  # features may all be constant
        return PreparedRun(source, learned, rows, gram, penalties, source.assign_inner_folds(run.fold))

    def _hold_features(self, source: SourceScans, reader: ScanReader) -> tuple[Tensors, HeldRows, np.ndarray]:
        """Learn what the features of source scans need, centre the features, and multiply them with each other."""
        learned, x = self.learn_features(source, reader(source.scans))
        centre = x.mean(0)
        if self.features_are_edges:
            gram = centre_gram(reader.multiply(source.scans, x), np.zeros(len(x)))
            x -= centre
        else:
            x = x - centre
            gram = x @ x.T
        return learned, HeldRows(x, centre, lambda scans: self.extract_features(reader(scans), learned)), gram

    def estimate_fit_bytes(self, n_scans: int, n_rois: int) -> float:
        """Estimate the memory of a fit: that of a run, and where edges are stored these and their products."""
        stored = self.can_store_edges and StoredEdges.are_needed(n_scans, n_rois)
        shared = StoredEdges.count_bytes(n_scans, n_rois) if stored else 0.0
        return self.estimate_run_bytes(n_scans, n_rois) + shared

    def estimate_run_bytes(self, n_scans: int, n_rois: int, decomposed: bool = False) -> float:
        """Estimate the memory of one run: copies of its features, and of its Gram matrix."""
        stored = self.can_store_edges and StoredEdges.are_needed(n_scans, n_rois)
        features = READ_BYTES if stored else 8.0 * self.feature_copies * n_scans * n_rois**2 / 2
        n_decomposed = n_scans if decomposed or not stored else min(n_scans, self.most_decomposed)
        return features + 8.0 * max(6.0 * n_decomposed**2, 1.5 * n_scans**2)
