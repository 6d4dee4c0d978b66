"""Find and read time-series files of all supported formats: frames in rows, ROIs in columns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import BrioError, find_control
from ..signal import convert_frames
from .arrays import read_cifti, read_npy, read_npz
from .input_files import describe_name, is_utf8
from .matlab import read_mat
from .text import read_text

TEXT = (".tsv", ".csv", ".txt", ".1d")
"""Suffixes of delimited text."""
SUFFIXES = (*TEXT, ".npy", ".npz", ".mat", ".ptseries.nii")


@dataclass(frozen=True, eq=False)
class Series:
    """Time series of one scan, with what its file states about it.

    Shapes: frames [T, P].
    """

    frames: np.ndarray
    columns: tuple[str, ...] | None = None  # names of the P ROIs, where the file has them
    tr: float | None = None  # repetition time in seconds, where the file has it
    parts: tuple[Series, ...] = ()  # the scans that it was joined of, as they were read; empty where it is one scan
    left_out: tuple[tuple[int, str], ...] = ()


def get_series_suffix(path: Path) -> str | None:
    """Return the suffix of a time-series file."""
    name = path.name.lower()
    return next((s for s in SUFFIXES if name.endswith(s)), None)


def get_series_stem(path: Path) -> str:
    """Return the name of a time-series file without its suffix (``.ptseries.nii`` is one suffix)."""
    return path.name[: len(path.name) - len(get_series_suffix(path) or "")]


def find_series(src: Path) -> list[Path]:
    """List the files below a folder that may hold a time series. Hidden files and folders are ignored."""
    if src.is_file():
        files = [src] if get_series_suffix(src) else []
    else:
        files = sorted(path for path in _list_files(src) if get_series_suffix(path))
    for path in files:
        if not is_utf8(path.name):
            raise BrioError(f"{src}: the name of the file {describe_name(path.name)} is not valid UTF-8; rename it")
        if control := find_control(path.name):
            raise BrioError(f"{path}: the name of this file has the control character {control}; rename it")
    return files


def _list_files(src: Path) -> Iterator[Path]:
    """List all files below a folder. A folder that is linked to is listed once, so links may form a circle."""
    seen: set[tuple[int, int]] = set()
    folders, links = [src], list[Path]()
    while folders or links:
        folder = folders.pop() if folders else links.pop()  # links last: a folder keeps its own name
        try:
            status = folder.stat()
            entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
        except OSError as error:
            raise BrioError(f"{folder}: cannot be read ({error.strerror})") from error
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            path = Path(entry.path)
            if path.is_dir():
                (links if entry.is_symlink() else folders).append(path)
            else:
                yield path


def read_series(path: str | Path, variable: str | None = None) -> Series:
    """Read a time-series file. The array is never transposed."""
    path = Path(path)
    suffix = get_series_suffix(path)
    columns: tuple[str, ...] | None = None
    tr: float | None = None
    left_out: tuple[tuple[int, str], ...] = ()
    if suffix in TEXT:
        array, columns, left_out = read_text(path)
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
    return Series(_convert_frames(array, path), columns, tr, left_out=left_out)


def _convert_frames(array: np.ndarray, path: Path) -> np.ndarray:
    """Check the array of a file and convert it to float32. Shape [T, P]."""
    if array.ndim != 2:
        raise BrioError(f"{path}: two axes are needed (frames, ROIs), this array has shape {array.shape}")
    if array.dtype.kind not in "fiu":
        raise BrioError(f"{path}: the array holds {array.dtype}, not numbers")
    if array.size == 0:
        raise BrioError(f"{path}: is empty, its shape is {array.shape}")
    return np.ascontiguousarray(convert_frames(array, str(path)))
