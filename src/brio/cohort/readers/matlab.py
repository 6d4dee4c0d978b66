"""Read matrices of numbers from MATLAB files, v4 to v7.3.

Files of v4 to v7 are parsed here: of a damaged file, every size and type is checked before it is used, where a general
parser may crash. The formats are described in MathWorks' "MAT-File Format". Files of v7.3 are HDF5 and read by h5py.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import BrioError
from .arrays import DeclaredArray, choose_array, name_damaged_file
from .input_files import LIMIT_VARIABLE, find_limit, require_bounded, require_regular

_MATRIX, _COMPRESSED = 14, 15  # types of data elements
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_CHAR, _SPARSE, _OPAQUE = 4, 5, 17  # classes with a layout of their own
_COMPLEX = 0x800  # flag of a matrix
_V4_TYPES = ("f8", "f4", "i4", "i2", "u2", "u1")
_HEADER_BYTES = 128


@dataclass(frozen=True)
class _Variable:
    """A variable of a file of v4 to v7: what it declares, and its numbers, column by column, as they are stored."""

    name: str
    declared: DeclaredArray
    data: bytes
    stored_type: str
    type: str


def read_mat(path: Path, variable: str | None = None) -> np.ndarray:
    """Read a numeric matrix of a MATLAB file, oriented as MATLAB shows it.

    Shapes: returns [T, P].
    """
    import h5py

    require_regular(path, "a MATLAB file")
    with name_damaged_file(path, "a MATLAB file"):
        if h5py.is_hdf5(path):
            return _read_hdf5(path, variable)
        content = path.read_bytes()
        listed = _list_v4(content) if 0 in content[:4] else _list_v5(content, path)
        variables = {one.name: one for one in listed}
        chosen = _choose(path, {name: one.declared for name, one in variables.items()}, variable)
        return _read_numbers(variables[chosen])


def _choose(path: Path, arrays: dict[str, DeclaredArray], variable: str | None) -> str:
    """Choose the matrix; text, cells, structures, objects, complex numbers and too many of them are refused."""
    chosen = choose_array(path, arrays, variable)
    if arrays[chosen].kind not in "fiu":
        raise BrioError(
            f"{path}: '{chosen}' holds no matrix of real numbers, but complex ones, text, cells, structures or objects"
        )
    require_bounded(arrays[chosen].n_bytes, path)
    return chosen


def _read_numbers(variable: _Variable) -> np.ndarray:
    """Read the numbers of a variable. Shape [T, P]."""
    shape, stored = variable.declared.shape, np.dtype(variable.stored_type)
    if len(variable.data) != math.prod(shape) * stored.itemsize:
        raise ValueError(f"variable '{variable.name}' has not as many numbers as its shape {shape}")
    return np.frombuffer(variable.data, stored).astype(variable.type).reshape(shape, order="F")


def _list_v4(content: bytes) -> Iterator[_Variable]:
    """List the variables of a file of MATLAB v4."""
    order = "<" if 0 <= struct.unpack("<i", content[:4])[0] < 5000 else ">"
    at = 0
    while at < len(content):
        kind, rows, columns, is_complex, n_name = struct.unpack_from(f"{order}5i", content, at)
        if not 0 <= kind < 5000 or min(rows, columns, n_name) < 0:
            raise ValueError("it has no header of a matrix where one should be")
        name = content[at + 20 : at + 20 + n_name].rstrip(b"\0").decode("latin-1")
        stored = f"{order}{_V4_TYPES[kind // 10 % 10]}"
        n_bytes = rows * columns * np.dtype(stored).itemsize
        data = content[at + 20 + n_name : at + 20 + n_name + n_bytes]
        letter = "O" if kind % 10 or is_complex else stored[1]  # text and sparse matrices end in 1 and 2
        yield _Variable(name, DeclaredArray((rows, columns), letter, n_bytes), data, stored, stored[1:])
        at += 20 + n_name + n_bytes * (2 if is_complex else 1)


def _list_v5(content: bytes, path: Path) -> Iterator[_Variable]:
    """List the variables of a file of MATLAB v5 to v7."""
    order = {b"IM": "<", b"MI": ">"}.get(content[_HEADER_BYTES - 2 : _HEADER_BYTES])
    if order is None:
        raise ValueError("it has no header of MATLAB")
    at, total = _HEADER_BYTES, 0
    while at + 8 <= len(content):
        kind, n_bytes = struct.unpack_from(f"{order}2I", content, at)
        body = content[at + 8 : at + 8 + n_bytes]
        if len(body) < n_bytes:
            raise ValueError("it ends inside a variable")
        if kind == _COMPRESSED:
            body = _inflate(body, path, max(find_limit() - total, 0))
            kind, n_bytes = struct.unpack_from(f"{order}2I", body)
            body = body[8 : 8 + n_bytes]
        total += len(body)
        if kind == _MATRIX and body:
            yield _parse_matrix(body, order)
        at += 8 + struct.unpack_from(f"{order}2I", content, at)[1]


def _inflate(packed: bytes, path: Path, limit: int) -> bytes:
    """Inflate a variable, but no more than the largest size that is read."""
    inflate = zlib.decompressobj()
    body = inflate.decompress(packed, limit + 1)
    if len(body) > limit:
        raise BrioError(
            f"{path}: unpacks to more than the {find_limit() / 2**20:,.0f} MB that brio reads; if the file is right, "
            f"set the environment variable {LIMIT_VARIABLE} to a larger number"
        )
    if not inflate.eof:
        raise ValueError("it ends inside a variable")
    return body


def _parse_matrix(body: bytes, order: str) -> _Variable:
    """Parse the parts of a matrix: flags, shape, name and, of real numbers, the data."""
    flags, _, at = _read_part(body, 0, order)
    (word,) = struct.unpack_from(f"{order}I", flags)
    matlab_class = word & 0xFF
    if matlab_class == _OPAQUE:
        return _Variable("object", DeclaredArray((), "O", 0), b"", "u1", "u1")
    sizes, _, at = _read_part(body, at, order)
    shape = tuple(np.frombuffer(sizes, f"{order}i4").tolist())
    name, _, at = _read_part(body, at, order)
    label = name.rstrip(b"\0").decode("latin-1")
    number_type = _CLASSES.get(matlab_class)
    if number_type is None or word & _COMPLEX or min(shape, default=-1) < 0:
        kind = "c" if number_type else "U" if matlab_class == _CHAR else "S" if matlab_class == _SPARSE else "O"
        return _Variable(label, DeclaredArray(shape, kind, 0), b"", "u1", "u1")
    data, stored, _ = _read_part(body, at, order)
    n_bytes = math.prod(shape) * np.dtype(number_type).itemsize
    return _Variable(label, DeclaredArray(shape, number_type[0], n_bytes), data, f"{order}{stored}", number_type)


def _read_part(body: bytes, at: int, order: str) -> tuple[bytes, str, int]:
    """Read a part of a matrix: its bytes, their type, and where the next part starts."""
    kind, n_bytes = struct.unpack_from(f"{order}2I", body, at)
    start, end = at + 8, at + 8 + -(-n_bytes // 8) * 8  # parts are padded to eight bytes
    if kind >> 16:  # up to four bytes stand in the place of their length
        kind, n_bytes, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
    if kind not in _TYPES and kind != 16:  # 16 is UTF-8 text
        raise ValueError(f"it has a part of unknown type {kind}")
    if start + n_bytes > len(body):
        raise ValueError("it ends inside a variable")
    return body[start : start + n_bytes], _TYPES.get(kind, "u1"), end


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
                n_bytes = math.prod(node.shape) * node.dtype.itemsize
                arrays[name] = DeclaredArray(node.shape[::-1], node.dtype.kind, n_bytes)
        return file[_choose(path, arrays, variable)][()].T


def _get_matlab_class(node: object) -> str:
    kind = node.attrs.get("MATLAB_class", b"")  # type: ignore[attr-defined]
    return kind.decode() if isinstance(kind, bytes) else str(kind)
