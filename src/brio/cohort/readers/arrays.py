"""Read time series from binary files: npy, npz, MATLAB v5 to v7.3 and parcellated CIFTI series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ...errors import BrioError

__all__ = ["name_damaged_file", "read_cifti", "read_mat", "read_npy", "read_npz", "read_npz_arrays"]

PREFERRED = ("timeseries", "ROISignals")
"""Names of the array to read from a file that holds several."""


@contextmanager
def name_damaged_file(path: Path, file_format: str) -> Iterator[None]:
    """Turn any exception of a parser into a :class:`BrioError` that names the file.

    Parameters
    ----------
    path : Path
        The file that is parsed inside the block.
    file_format : str
        What it is parsed as, for the message.
    """
    try:
        yield
    except BrioError:
        raise
    except Exception as error:  # parsers raise exceptions of all kinds on damaged files
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise BrioError(
            f"{path}: cannot be read as {file_format} ({message}); it may be damaged or cut short"
        ) from error


def read_npy(path: Path) -> np.ndarray:
    """Read the array of an npy file.

    Returns
    -------
    ndarray of any shape
    """
    with name_damaged_file(path, "npy"):
        array = np.load(path, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            raise BrioError(f"{path}: is an npz archive, not an npy file; rename it to .npz")
        return array


def read_npz_arrays(path: Path, keys: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Read arrays of an npz file.

    Parameters
    ----------
    path : Path
    keys : tuple of str
        Names of the arrays; all by default.

    Returns
    -------
    dict of name to ndarray
    """
    with name_damaged_file(path, "npz"), np.load(path, allow_pickle=False) as archive:
        absent = [k for k in keys if k not in archive.files]
        if absent:
            raise BrioError(f"{path}: has no array '{absent[0]}'; it has {', '.join(archive.files)}")
        return {k: archive[k] for k in keys or archive.files}


def read_npz(path: Path) -> np.ndarray:
    """Read the array ``timeseries`` of an npz file, or the only one with two axes.

    Returns
    -------
    ndarray, shape [T, P]
    """
    return _choose_array(path, read_npz_arrays(path), None)


def read_mat(path: Path, variable: str | None = None) -> np.ndarray:
    """Read a numeric matrix of a MATLAB file, oriented as MATLAB shows it.

    Parameters
    ----------
    path : Path
    variable : str, optional
        Name of the matrix; by default ``timeseries``, ``ROISignals`` or the only matrix in the file.

    Returns
    -------
    ndarray, shape [T, P]
    """
    import h5py
    from scipy.io import loadmat

    with name_damaged_file(path, "a MATLAB file"):
        if h5py.is_hdf5(path):
            arrays = _read_hdf5_matrices(path)
        else:
            arrays = {k: v for k, v in loadmat(path, appendmat=False).items() if isinstance(v, np.ndarray)}
    return _choose_array(path, arrays, variable)


def _read_hdf5_matrices(path: Path) -> dict[str, np.ndarray]:
    import h5py

    def is_matrix(node: object) -> bool:
        # text and logical values are stored as numbers too; an attribute names their class
        kind = node.attrs.get("MATLAB_class", b"") if isinstance(node, h5py.Dataset) else b"group"
        return (kind.decode() if isinstance(kind, bytes) else str(kind)) not in ("char", "cell", "logical", "group")

    with h5py.File(path, "r") as file:
        # MATLAB stores columns first, so that a matrix arrives transposed
        return {name: node[()].T for name, node in file.items() if is_matrix(node)}


def _choose_array(path: Path, arrays: Mapping[str, np.ndarray], variable: str | None) -> np.ndarray:
    if variable is not None:
        if variable not in arrays:
            raise BrioError(f"{path}: has no variable '{variable}'; it has {', '.join(arrays) or 'none'}")
        return arrays[variable]
    # MATLAB stores scalars as 1 x 1 matrices; a series has more than one row and column
    matrices = [k for k, v in arrays.items() if v.ndim == 2 and v.dtype.kind in "fiu" and min(v.shape) > 1]
    chosen = next((k for k in PREFERRED if k in arrays), matrices[0] if len(matrices) == 1 else None)
    if chosen is None:
        shapes = ", ".join(f"{k} {'x'.join(map(str, v.shape))}" for k, v in arrays.items()) or "nothing"
        raise BrioError(f"{path}: cannot tell which array is the series. It holds {shapes}; name one 'timeseries'")
    return arrays[chosen]


def read_cifti(path: Path) -> tuple[np.ndarray, tuple[str, ...], float | None]:
    """Read a parcellated CIFTI series (``ptseries.nii``).

    Returns
    -------
    frames : ndarray, shape [T, P]
    columns : tuple of P str
        Names of the parcels.
    tr : float or None
        Repetition time in seconds, where the file states it.
    """
    import nibabel

    with name_damaged_file(path, "a CIFTI file"):
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
