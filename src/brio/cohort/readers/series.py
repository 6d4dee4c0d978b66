"""One time-series file of any format we read: frames in rows, ROIs in columns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import BrioError
from .arrays import read_cifti, read_mat, read_npy, read_npz
from .text import read_text

__all__ = ["SUFFIXES", "Series", "find_series", "read_series", "series_stem", "series_suffix"]

TEXT = (".tsv", ".csv", ".txt", ".1d")
SUFFIXES = (*TEXT, ".npy", ".npz", ".mat", ".ptseries.nii")


@dataclass(frozen=True, eq=False)
class Series:
    """The series of one scan and what its file says about it.

    Attributes
    ----------
    frames : ndarray of float32, shape [T, P]
    columns : tuple of str, or None
        Names of the ROIs where the file has them.
    tr : float, or None
        Repetition time in seconds where the file has it.
    """

    frames: np.ndarray
    columns: tuple[str, ...] | None = None
    tr: float | None = None


def series_suffix(path: Path) -> str | None:
    """The suffix of a file that holds a series, in lower case, or None for any other file."""
    name = path.name.lower()
    return next((s for s in SUFFIXES if name.endswith(s)), None)


def series_stem(path: Path) -> str:
    """The name of a series file without its suffix (``.ptseries.nii`` goes as a whole)."""
    return path.name[: len(path.name) - len(series_suffix(path) or "")]


def find_series(folder: Path) -> list[Path]:
    """Every file below ``folder`` that could hold a series, sorted; hidden folders are left out."""
    found = []
    for here, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [f for f in folders if not f.startswith(".")]
        found += [Path(here, f) for f in files if not f.startswith(".") and series_suffix(Path(f))]
    return sorted(found)


def read_series(path: str | Path, variable: str | None = None) -> Series:
    """Read one file; the frames are never transposed.

    Parameters
    ----------
    path : str or Path
        tsv, csv, txt, 1D (with or without header), npy, npz, mat or ptseries.nii.
    variable : str, optional
        The variable to take from a MATLAB file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "scan.tsv"
    >>> _ = path.write_text("left\\tright\\n0.5\\t1\\n0.25\\tn/a\\n")
    >>> series = read_series(path)
    >>> series.columns, series.frames.shape
    (('left', 'right'), (2, 2))
    """
    path = Path(path)
    suffix = series_suffix(path)
    columns: tuple[str, ...] | None = None
    tr: float | None = None
    if suffix in TEXT:
        array, columns = read_text(path)
    elif suffix == ".npy":
        array = read_npy(path)
    elif suffix == ".npz":
        array = read_npz(path)
    elif suffix == ".mat":
        array = read_mat(path, variable)
    elif suffix == ".ptseries.nii":
        array, columns, tr = read_cifti(path)
    else:
        raise BrioError(f"{path}: not a kind of file that holds a series; known: {', '.join(SUFFIXES)}")
    return Series(_frames(array, path), columns, tr)


def _frames(array: np.ndarray, path: Path) -> np.ndarray:
    if array.ndim != 2:
        raise BrioError(f"{path}: two axes are needed (frames, ROIs), this array has shape {array.shape}")
    if array.dtype.kind not in "fiu":
        raise BrioError(f"{path}: the array holds {array.dtype}, not numbers")
    if array.size == 0:
        raise BrioError(f"{path}: is empty, its shape is {array.shape}")
    with np.errstate(over="ignore"):
        frames = np.ascontiguousarray(array, dtype=np.float32)
    lost = np.isinf(frames) & np.isfinite(array)
    if lost.any():
        row, column = np.argwhere(lost)[0]
        raise BrioError(f"{path}: frame {row + 1}, column {column + 1}: {array[row, column]} is too large for a signal")
    return frames
