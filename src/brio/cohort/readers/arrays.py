"""Time series in binary files: npy, npz, MATLAB v5 to v7.3, CIFTI parcellated series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ...errors import BrioError

__all__ = ["open_npz", "read_cifti", "read_mat", "read_npy", "read_npz", "reading"]

PREFERRED = ("timeseries", "ROISignals")
"""Names that win where a file holds more than one array."""


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a parser raises on a damaged file into one error that names the file."""
    try:
        yield
    except BrioError:
        raise
    except Exception as error:  # parsers of damaged binary files raise whatever they stumble over
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrioError(f"{path}: cannot be read as {what} ({said}); it may be damaged or cut short") from error


def read_npy(path: Path) -> np.ndarray:
    """The array of an npy file."""
    with reading(path, "npy"):
        array = np.load(path, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            raise BrioError(f"{path}: is an npz archive under the name of an npy file; rename it")
        return array


def open_npz(path: Path, keys: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The arrays of an npz file, those named in ``keys`` alone where keys are given."""
    with reading(path, "npz"), np.load(path, allow_pickle=False) as archive:
        absent = [k for k in keys if k not in archive.files]
        if absent:
            raise BrioError(f"{path}: has no array '{absent[0]}'; it has {', '.join(archive.files)}")
        return {k: archive[k] for k in keys or archive.files}


def read_npz(path: Path) -> np.ndarray:
    """The array ``timeseries`` of an npz file, or the only one with two axes."""
    return _pick(path, open_npz(path), None)


def read_mat(path: Path, variable: str | None = None) -> np.ndarray:
    """A numeric matrix of a MATLAB file, oriented as MATLAB shows it.

    Parameters
    ----------
    path : Path
    variable : str, optional
        Its name; without one ``timeseries``, ``ROISignals`` or the only matrix there is.
    """
    import h5py
    from scipy.io import loadmat

    with reading(path, "a MATLAB file"):
        if h5py.is_hdf5(path):
            arrays = _hdf5_matrices(path)
        else:
            arrays = {k: v for k, v in loadmat(path, appendmat=False).items() if isinstance(v, np.ndarray)}
    return _pick(path, arrays, variable)


def _hdf5_matrices(path: Path) -> dict[str, np.ndarray]:
    import h5py

    def is_matrix(node: object) -> bool:
        # text and truth values are stored as numbers, too; their class is an attribute
        kind = node.attrs.get("MATLAB_class", b"") if isinstance(node, h5py.Dataset) else b"group"
        return (kind.decode() if isinstance(kind, bytes) else str(kind)) not in ("char", "cell", "logical", "group")

    with h5py.File(path, "r") as file:
        # MATLAB writes columns first, so a matrix arrives transposed
        return {name: node[()].T for name, node in file.items() if is_matrix(node)}


def _pick(path: Path, arrays: Mapping[str, np.ndarray], variable: str | None) -> np.ndarray:
    if variable is not None:
        if variable not in arrays:
            raise BrioError(f"{path}: has no variable '{variable}'; it has {', '.join(arrays) or 'none'}")
        return arrays[variable]
    # a MATLAB scalar is a matrix of one element: a series has more than one row and column
    matrices = [k for k, v in arrays.items() if v.ndim == 2 and v.dtype.kind in "fiu" and min(v.shape) > 1]
    chosen = next((k for k in PREFERRED if k in arrays), matrices[0] if len(matrices) == 1 else None)
    if chosen is None:
        shapes = ", ".join(f"{k} {'x'.join(map(str, v.shape))}" for k, v in arrays.items()) or "nothing"
        raise BrioError(f"{path}: which array is the series? It holds {shapes}; name one 'timeseries'")
    return arrays[chosen]


def read_cifti(path: Path) -> tuple[np.ndarray, tuple[str, ...], float | None]:
    """Frames, parcel names and repetition time in seconds of a ``ptseries.nii``."""
    import nibabel

    with reading(path, "a CIFTI file"):
        image = nibabel.load(path)
        if not isinstance(image, nibabel.Cifti2Image):
            raise BrioError(f"{path}: is not a CIFTI file")
        axes = [image.header.get_axis(i) for i in range(image.ndim)]
        kinds = [type(a).__name__ for a in axes]
        if kinds != ["SeriesAxis", "ParcelsAxis"]:
            raise BrioError(f"{path}: has the axes {', '.join(kinds)}; a parcellated series (ptseries) is needed")
        series, parcels = axes
        tr = float(series.step) if series.unit == "SECOND" and series.step > 0 else None
        return np.asarray(image.dataobj), tuple(str(n) for n in parcels.name), tr
