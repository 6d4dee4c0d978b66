"""Read matrices from MATLAB files, v4 to v7.3. Only the variable that is wanted is unpacked."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

import numpy as np

from ...errors import BrioError
from .arrays import DeclaredArray, choose_array, name_damaged_file
from .input_files import find_limit, require_bounded, require_regular

__all__ = ["read_mat"]

KINDS = {"double": "f", "single": "f", "logical": "u", "char": "U"}
"""``dtype.kind`` of MATLAB classes; int8 to uint64 are found by their first letter, all others hold objects."""

_HEADER_BYTES = 128
_COMPRESSED = 15  # type of a data element that holds another one, deflated
_CHUNK = 1 << 20


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

    Raises
    ------
    BrioError
        If the file is damaged, declares more than is read, or the variable holds no numbers.
    """
    import h5py

    require_regular(path, "a MATLAB file")
    with name_damaged_file(path, "a MATLAB file"):
        if h5py.is_hdf5(path):
            return _read_hdf5(path, variable)
        return _read_mat5(path, variable)


def _read_mat5(path: Path, variable: str | None) -> np.ndarray:
    """Read a variable of a file of MATLAB v4 to v7."""
    from scipy.io import loadmat, whosmat

    _check_unpacked_size(path)
    arrays = {name: _declare(shape, kind) for name, shape, kind in whosmat(path, appendmat=False) if kind != "sparse"}
    chosen = _require_numbers(path, arrays, choose_array(path, arrays, variable))
    return loadmat(path, appendmat=False, variable_names=[chosen])[chosen]


def _declare(shape: tuple[int, ...], matlab_class: str) -> DeclaredArray:
    kind = KINDS.get(matlab_class, matlab_class[0] if matlab_class.rstrip("0123456789") in ("int", "uint") else "O")
    return DeclaredArray(tuple(shape), kind, math.prod(shape) * 8)


def _require_numbers(path: Path, arrays: dict[str, DeclaredArray], chosen: str) -> str:
    """Refuse a variable of cells, structures, text or objects, and one that is too large."""
    if arrays[chosen].kind not in "fiuc":
        raise BrioError(f"{path}: '{chosen}' holds no matrix of numbers, but text, cells, structures or objects")
    require_bounded(arrays[chosen].n_bytes, path)
    return chosen


def _check_unpacked_size(path: Path) -> None:
    """Inflate the elements of a file of MATLAB v5 to v7 piece by piece, and stop at the largest size that is read.

    The parser would allocate what the deflated data declare, whatever the matrix is said to be.
    """
    limit = find_limit()
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
        if order is None:  # v4 has no compression
            return
        total = 0
        while len(tag := file.read(8)) == 8:
            kind, n_bytes = struct.unpack(f"{order}II", tag)
            if kind != _COMPRESSED:
                file.seek(n_bytes, 1)
                continue
            inflate, left = zlib.decompressobj(), n_bytes
            while left > 0 and (piece := file.read(min(left, _CHUNK))):
                left -= len(piece)
                while piece and total <= limit:
                    total += len(inflate.decompress(piece, _CHUNK))
                    piece = inflate.unconsumed_tail
            require_bounded(total, path)


def _read_hdf5(path: Path, variable: str | None) -> np.ndarray:
    """Read a variable of a file of MATLAB v7.3."""
    import h5py

    with h5py.File(path, "r") as file:
        arrays = {}
        for name in file:
            # links to other files, and data kept in them, are not followed
            node = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
            if isinstance(node, h5py.Dataset) and node.shape and not node.external and not node.is_virtual:
                if _get_matlab_class(node) in ("char", "cell", "logical"):  # stored as numbers too
                    continue
                # MATLAB stores columns first, so that a matrix arrives transposed
                arrays[name] = DeclaredArray(node.shape[::-1], node.dtype.kind, math.prod(node.shape) * 8)
        chosen = _require_numbers(path, arrays, choose_array(path, arrays, variable))
        return file[chosen][()].T


def _get_matlab_class(node: object) -> str:
    kind = node.attrs.get("MATLAB_class", b"")  # type: ignore[attr-defined]
    return kind.decode() if isinstance(kind, bytes) else str(kind)
