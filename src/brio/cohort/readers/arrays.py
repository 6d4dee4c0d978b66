"""Read time series from npy and npz files and parcellated CIFTI series.

The header of an array is read first: what it declares is chosen from, and compared with the size of the file and with
the largest size that is read, before anything is unpacked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zipfile import ZipFile

import numpy as np

from ...errors import BrioError
from ..repetition_time import is_repetition_time
from .input_files import require_bounded, require_regular

PREFERRED = ("timeseries", "ROISignals")
"""Names of the array to read from a file that holds several."""


@dataclass(frozen=True)
class DeclaredArray:
    """What the header of an array declares."""

    shape: tuple[int, ...]
    kind: str  # dtype.kind of numpy; "O" for anything that is no array of numbers or text
    n_bytes: int  # size in memory

    @property
    def is_matrix(self) -> bool:
        """Whether it may be a series: real numbers, with more than one row and column."""
        # MATLAB stores scalars as 1 x 1 matrices
        return len(self.shape) == 2 and self.kind in "fiu" and min(self.shape) > 1


@contextmanager
def name_damaged_file(path: Path, file_format: str) -> Iterator[None]:
    """Turn any exception of a parser into a :class:`BrioError` that names the file."""
    try:
        yield
    except BrioError:
        raise
    except Exception as error:  # parsers raise exceptions of all kinds on damaged files
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrioError(
            f"{path}: cannot be read as {file_format} ({message}); it may be damaged or cut short"
        ) from error


def _read_npy_header(stream: IO[bytes], path: Path, size: int) -> DeclaredArray:
    """Read the header of an npy stream of ``size`` bytes, and check that it can hold what it declares."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        return DeclaredArray(shape, "O", 0)
    declared = DeclaredArray(shape, dtype.kind, math.prod(shape) * dtype.itemsize)
    if declared.n_bytes > size - stream.tell():
        raise BrioError(
            f"{path}: declares {declared.n_bytes} bytes of data, but holds {size - stream.tell()}; it may be damaged "
            "or cut short"
        )
    return declared


def _unpack(stream: IO[bytes], path: Path, declared: DeclaredArray) -> np.ndarray:
    """Read the array of an npy stream whose header was checked."""
    if declared.kind == "O":
        raise BrioError(f"{path}: holds pickled Python objects, which are never loaded; save plain arrays of numbers")
    return np.lib.format.read_array(stream, allow_pickle=False)


def read_npy(path: Path) -> np.ndarray:
    """Read the array of an npy file."""
    size = require_regular(path, "npy")
    with name_damaged_file(path, "npy"), path.open("rb") as file:
        if file.read(2) == b"PK":
            raise BrioError(f"{path}: is an npz archive, not an npy file; rename it to .npz")
        file.seek(0)
        declared = _read_npy_header(file, path, size)
        file.seek(0)
        return _unpack(file, path, declared)


def list_npz_arrays(path: Path) -> dict[str, DeclaredArray]:
    """List the arrays of an npz file without unpacking them. Other members of the archive are ignored."""
    require_regular(path, "npz")
    arrays = {}
    with name_damaged_file(path, "npz"), ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as stream:
                arrays[member.filename.removesuffix(".npy")] = _read_npy_header(stream, path, member.file_size)
    return arrays


def read_npz_arrays(path: Path, keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Read arrays of an npz file."""
    require_regular(path, "npz")
    with name_damaged_file(path, "npz"), ZipFile(path) as archive:
        members = {m.filename.removesuffix(".npy"): m for m in archive.infolist() if m.filename.endswith(".npy")}
        require_arrays(path, keys, members)
        declared, arrays = {}, {}
        for key in keys:
            with archive.open(members[key]) as stream:
                declared[key] = _read_npy_header(stream, path, members[key].file_size)
        require_bounded(sum(array.n_bytes for array in declared.values()), path)
        for key in keys:
            with archive.open(members[key]) as stream:
                arrays[key] = _unpack(stream, path, declared[key])
        return arrays


def require_arrays(path: Path, keys: Iterable[str], known: Iterable[str]) -> None:
    """Raise :class:`BrioError` unless an archive has all these arrays."""
    known = list(known)
    for key in keys:
        if key not in known:
            raise BrioError(f"{path}: has no array '{key}'; it has {', '.join(known) or 'none'}")


def read_npz(path: Path) -> np.ndarray:
    """Read the array ``timeseries`` of an npz file, or the only one with two axes.

    Shapes: returns [T, P].
    """
    chosen = choose_array(path, list_npz_arrays(path), None)
    return read_npz_arrays(path, (chosen,))[chosen]


def read_packed_ids(ids: np.ndarray, path: Path) -> list[str]:
    """Read the array ``participant_id`` of an archive of many scans.

    Shapes: ids [N].
    """
    if ids.ndim != 1 or ids.dtype.kind not in "USiu":
        raise BrioError(f"{path}: 'participant_id' has shape {ids.shape} and holds {ids.dtype}; a list of names is due")
    names = ids.tolist()
    return [name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name) for name in names]


def choose_array(path: Path, arrays: Mapping[str, DeclaredArray], variable: str | None) -> str:
    """Choose the array of a file that is the series."""
    if variable is not None:
        if variable not in arrays:
            raise BrioError(f"{path}: has no variable '{variable}'; it has {', '.join(arrays) or 'none'}")
        return variable
    matrices = [name for name, array in arrays.items() if array.is_matrix]
    chosen = next((k for k in PREFERRED if k in arrays), matrices[0] if len(matrices) == 1 else None)
    if chosen is None:
        shapes = ", ".join(f"{k} {'x'.join(map(str, v.shape))}" for k, v in arrays.items()) or "nothing"
        raise BrioError(f"{path}: cannot tell which array is the series. It holds {shapes}; name one 'timeseries'")
    return chosen


def read_cifti(path: Path) -> tuple[np.ndarray, tuple[str, ...], float | None]:
    """Read a parcellated CIFTI series (``ptseries.nii``).

    Shapes: returns frames [T, P].
    """
    import nibabel

    require_regular(path, "a CIFTI file")
    # nibabel prints what it mends in a header; what it cannot mend is an error
    with name_damaged_file(path, "a CIFTI file"), nibabel.imageglobals.LoggingOutputSuppressor():
        image = nibabel.load(path)
        if not isinstance(image, nibabel.Cifti2Image):
            raise BrioError(f"{path}: is not a CIFTI file")
        axes = [image.header.get_axis(i) for i in range(image.ndim)]
        kinds = [type(a).__name__ for a in axes]
        if kinds != ["SeriesAxis", "ParcelsAxis"]:
            raise BrioError(f"{path}: has the axes {', '.join(kinds)}; a parcellated series (ptseries) is needed")
        series, parcels = axes
        require_bounded(math.prod(image.shape) * 8, path)
        tr = float(series.step) if series.unit == "SECOND" and is_repetition_time(series.step) else None
        return np.asarray(image.dataobj), tuple(str(n) for n in parcels.name), tr
