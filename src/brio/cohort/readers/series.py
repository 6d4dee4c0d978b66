"""Find and read time-series files of all supported formats: frames in rows, ROIs in columns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import BrioError
from .arrays import read_cifti, read_mat, read_npy, read_npz
from .text import read_text

__all__ = ["SUFFIXES", "Series", "find_series", "get_series_stem", "get_series_suffix", "read_series"]

TEXT = (".tsv", ".csv", ".txt", ".1d")
"""Suffixes of delimited text."""
SUFFIXES = (*TEXT, ".npy", ".npz", ".mat", ".ptseries.nii")


@dataclass(frozen=True, eq=False)
class Series:
    """Time series of one scan, with what its file states about it.

    Attributes
    ----------
    frames : ndarray of float32, shape [T, P]
    columns : tuple of str, or None
        Names of the P ROIs, where the file has them.
    tr : float, or None
        Repetition time in seconds, where the file has it.
    parts : tuple of Series
        The scans that it was joined of, as they were read; empty where it is one scan.
    """

    frames: np.ndarray
    columns: tuple[str, ...] | None = None
    tr: float | None = None
    parts: tuple[Series, ...] = ()


def get_series_suffix(path: Path) -> str | None:
    """Return the suffix of a time-series file.

    Returns
    -------
    str or None
        One of ``SUFFIXES``, in lower case; None for any other file.
    """
    name = path.name.lower()
    return next((s for s in SUFFIXES if name.endswith(s)), None)


def get_series_stem(path: Path) -> str:
    """Return the name of a time-series file without its suffix (``.ptseries.nii`` is one suffix).

    Returns
    -------
    str
    """
    return path.name[: len(path.name) - len(get_series_suffix(path) or "")]


def find_series(src: Path) -> list[Path]:
    """List the files below a folder that may hold a time series. Hidden files and folders are ignored.

    Parameters
    ----------
    src : Path
        A folder, or one file.

    Returns
    -------
    list of Path
        Sorted.
    """
    if src.is_file():
        return [src] if get_series_suffix(src) else []
    paths: list[Path] = []
    for here, folders, files in os.walk(src, followlinks=True):
        folders[:] = [f for f in folders if not f.startswith(".")]
        paths += [Path(here, f) for f in files if not f.startswith(".") and get_series_suffix(Path(f))]
    return sorted(paths)


def read_series(path: str | Path, variable: str | None = None) -> Series:
    """Read a time-series file. The array is never transposed.

    Parameters
    ----------
    path : str or Path
        tsv, csv, txt, 1D (with or without header), npy, npz, mat or ptseries.nii.
    variable : str, optional
        Variable to read from a MATLAB file.

    Returns
    -------
    Series

    Raises
    ------
    BrioError
        If the format is unknown, the file is damaged, or the array is not a matrix of numbers.

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
    suffix = get_series_suffix(path)
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
        raise BrioError(f"{path}: not a time-series file; supported: {', '.join(SUFFIXES)}")
    return Series(_convert_frames(array, path), columns, tr)


def _convert_frames(array: np.ndarray, path: Path) -> np.ndarray:
    """Check an array and convert it to float32. Shape [T, P]."""
    if array.ndim != 2:
        raise BrioError(f"{path}: two axes are needed (frames, ROIs), this array has shape {array.shape}")
    if array.dtype.kind not in "fiu":
        raise BrioError(f"{path}: the array holds {array.dtype}, not numbers")
    if array.size == 0:
        raise BrioError(f"{path}: is empty, its shape is {array.shape}")
    with np.errstate(over="ignore"):
        frames = np.ascontiguousarray(array, dtype=np.float32)
    overflow = np.isinf(frames) & np.isfinite(array)
    if overflow.any():
        row, column = np.argwhere(overflow)[0]
        raise BrioError(f"{path}: frame {row + 1}, column {column + 1}: {array[row, column]} is too large for a signal")
    return frames
