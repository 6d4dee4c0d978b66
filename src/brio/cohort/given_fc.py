"""Cohorts of connectomes without frames: one matrix per participant, where time series are not to be had.

Such a cohort holds Fisher z with a zero diagonal in place of frames: as many rows per participant as there are ROIs.
A column of its participants table marks it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from ..errors import BrioError

FC_ONLY = "brio_fc_only"
"""Column that marks a participants table whose scans are connectomes; its values are 1."""

Measure = Literal["correlation", "fisher-z"]
MEASURES: tuple[Measure, ...] = ("correlation", "fisher-z")
"""What the entries of a connectome may be."""

_LARGEST = 1.0 - 1e-6  # as psi clips correlations, so that Fisher z stays finite
_LARGEST_FISHER_Z = 20.0  # double precision has no correlation below 1 with a larger one
_ASYMMETRY = 1e-4  # largest difference of two entries that are one edge; files have few digits


def holds_fc(participants: pd.DataFrame) -> bool:
    """Return whether the scans of a participants table are connectomes without frames."""
    return FC_ONLY in participants.columns


def require_frames(participants: pd.DataFrame, cohort: str, purpose: str) -> None:
    """Require that scans have frames."""
    if holds_fc(participants):
        raise BrioError(
            f"cohort '{cohort}' holds one connectome per participant and no frames, which {purpose} needs; import the "
            "time series ('brio import table'), or evaluate methods that need connectomes alone, such as ridge"
        )


def _is_fc(matrix: np.ndarray) -> bool:
    """Return whether a matrix can only be a connectome: square and symmetric, as no time series is.

    Whatever it holds: correlations, covariances, precisions, or vectors of a tangent space.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 3:
        return False
    scale = np.abs(matrix[np.isfinite(matrix)]).max(initial=0.0)
    return bool(np.allclose(matrix, matrix.T, rtol=0.0, atol=_ASYMMETRY * scale, equal_nan=True))


def refuse_fc(matrix: np.ndarray, where: str) -> None:
    """Refuse a connectome where a time series is needed."""
    if _is_fc(matrix):
        raise BrioError(
            f"{where}: is a square symmetric matrix (a connectome, covariance or the like), not a time series (frames, "
            "ROIs); give the frames that it was estimated from. 'brio import fc' reads correlations and Fisher z"
        )


def find_measure(matrix: np.ndarray, where: str) -> Measure:
    """Find what the entries of a connectome are, by its diagonal and its largest entry.

    Shapes: matrix [P, P].
    """
    _require_square(matrix, where)
    diagonal, beside = np.diagonal(matrix), matrix[~np.eye(len(matrix), dtype=bool)]
    finite = diagonal[np.isfinite(diagonal)]
    if np.nanmax(np.abs(beside), initial=0.0) > 1 + 1e-6 or np.isposinf(diagonal).any() or (finite > 1.01).any():
        return "fisher-z"
    if len(finite) and np.allclose(finite[finite != 0], 1, atol=1e-3) and finite.any():
        return "correlation"
    raise BrioError(f"{where}: may hold correlations or Fisher z; say which with --measure correlation or fisher-z")


def convert_fc(matrix: np.ndarray, measure: Measure, where: str) -> np.ndarray:
    """Convert a connectome to Fisher z with a zero diagonal; rows and columns of ROIs without signal become zero.

    Shapes: matrix [P, P]; returns [P, P].
    """
    _require_square(matrix, where)
    values = matrix.astype(np.float64)
    np.fill_diagonal(values, 0.0)
    missing = ~np.isfinite(values)
    np.fill_diagonal(missing, val=True)
    dead = missing.all(axis=1)  # an ROI outside the field of view
    values[dead], values[:, dead] = 0.0, 0.0
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise BrioError(f"{where}: row {row + 1}, column {column + 1} has no value; only whole ROIs may be missing")
    if not np.allclose(values, values.T, atol=_ASYMMETRY):
        raise BrioError(f"{where}: is not symmetric; a connectome has the same value for both directions of an edge")
    if measure == "correlation":
        largest = np.abs(values).max(initial=0.0)
        if largest > 1 + 1e-6:
            raise BrioError(f"{where}: holds {largest:.3g}, which is no correlation; say --measure fisher-z")
        values = np.arctanh(np.clip(values, -_LARGEST, _LARGEST))
    elif np.abs(values).max(initial=0.0) > _LARGEST_FISHER_Z:
        raise BrioError(f"{where}: holds {np.abs(values).max():.3g}, which is no Fisher z; it may be a covariance")
    return values.astype(np.float32)


def _require_square(matrix: np.ndarray, where: str) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise BrioError(
            f"{where}: has shape {matrix.shape}; a connectome is square, one row and one column per ROI. Time series "
            "are imported with 'brio import table'"
        )
