"""Bad input files of users, each with the command that reads them and the sentence that must answer it.

Everything is small: sizes are refused under a limit of ``LIMIT_MB``, which a test sets in the environment. A case is
written into an empty folder by :meth:`BadInput.write`, and the command runs in that folder. It must end with exit
status 2, print one line that contains ``answer``, and leave nothing behind.
"""

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.io import savemat

LIMIT_MB = 1
LIMIT = {"BRIO_LARGEST_FILE_MB": str(LIMIT_MB)}
"""Environment under which the bombs of this module are too large."""

PEOPLE = [(f"p{i}", "AB"[i % 2], i // 2 % 2) for i in range(8)]
TABLE, PACKED, BIDS, FC = (f"import {kind} study --out new" for kind in ("table", "packed", "bids", "fc"))


def make_scan(i: int, n_frames: int = 12, n_rois: int = 4) -> np.ndarray:
    """Frames of participant i. Shape [T, P]."""
    return np.random.default_rng(i).normal(size=(n_frames, n_rois))


def write_study(src: Path, suffix: str = ".csv", ids: list[str] | None = None, header: bool = True) -> Path:
    """Write a study of eight people at two sites: a participants table, and one file for each."""
    src.mkdir(parents=True, exist_ok=True)
    names = ids or [person for person, _, _ in PEOPLE]
    for i, name in enumerate(names):
        if suffix == ".npy":
            np.save(src / f"{name}.npy", make_scan(i))
        else:
            words = "a,b,c,d" if header else ""
            np.savetxt(src / f"{name}{suffix}", make_scan(i), delimiter=",", header=words, comments="")
    rows = [
        f"{name},{site},{label},{20 + i}" for i, (name, (_, site, label)) in enumerate(zip(names, PEOPLE, strict=True))
    ]
    (src / "participants.csv").write_text("\n".join(["participant_id,site,label,age", *rows]) + "\n")
    return src


def write_packed(src: Path, **arrays: np.ndarray) -> Path:
    """Write packed scans, with some of the arrays replaced."""
    src.mkdir()
    whole = {
        "frames": np.round(20 * np.concatenate([make_scan(i) for i in range(8)])).astype(np.int8),
        "scale": np.full((8, 4), 0.05, dtype=np.float32),
        "n_frames": np.full(8, 12),
        "participant_id": np.array([person for person, _, _ in PEOPLE]),
    }
    np.savez_compressed(src / "mine.npz", **{**whole, **arrays})
    rows = "".join(f"{person}\t{site}\t{label}\t12\n" for person, site, label in PEOPLE)
    (src / "participants.tsv").write_text("participant_id\tsite\tdiagnosis\tn_frames\n" + rows)
    return src


def write_bids(src: Path, sidecar: str | bytes | None = None, run: str = "") -> Path:
    """Write time series of BIDS derivatives; the sidecar of the first may be anything."""
    src.mkdir()
    for i, (person, _, _) in enumerate(PEOPLE):
        name = f"sub-{person}_task-rest{run}_atlas-A_timeseries"
        np.savetxt(src / f"{name}.tsv", make_scan(i), delimiter="\t", header="a\tb\tc\td", comments="")
        if sidecar is not None and i == 0:
            (src / f"{name}.json").write_bytes(sidecar if isinstance(sidecar, bytes) else sidecar.encode())
    rows = "".join(f"{person}\t{site}\t{label}\n" for person, site, label in PEOPLE)
    (src / "participants.tsv").write_text("participant_id\tsite\tlabel\n" + rows)
    return src


class BadInput(NamedTuple):
    """What is run in a folder after ``write`` made it, and part of the one line that answers."""

    name: str
    command: str
    answer: str
    write: Callable[[Path], None]


def _replace(name: str, content: bytes | Callable[[Path], object]) -> Callable[[Path], None]:
    """Write a good study, then one file anew; the scan of p2 in another format takes its place."""

    def write(folder: Path) -> None:
        src = write_study(folder / "study")
        if name.startswith("p2."):
            (src / "p2.csv").unlink()
        (src / name).unlink(missing_ok=True)
        if isinstance(content, bytes):
            (src / name).write_bytes(content)
        else:
            content(src / name)

    return write


def _edit_table(change: Callable[[str], str | bytes]) -> Callable[[Path], None]:
    """Write a good study, then change the text of its participants table."""

    def write(folder: Path) -> None:
        path = write_study(folder / "study") / "participants.csv"
        text = change(path.read_text())
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


def _pack(**arrays: np.ndarray) -> Callable[[Path], None]:
    return lambda folder: write_packed(folder / "study", **arrays) and None


def _sidecar(content: str | bytes, run: str = "") -> Callable[[Path], None]:
    return lambda folder: write_bids(folder / "study", content, run) and None


def npy_bytes(shape: tuple[int, ...], descr: str = "<f8", data: bytes = b"") -> bytes:
    """An npy file whose header declares a shape, whatever it holds."""
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


def write_npz(path: Path, **members: bytes) -> None:
    """Write an archive of any members; ``_dot_`` in a name is a dot."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_dot_", "."), content)


def _archive(content: bytes, name: str = "timeseries_dot_npy") -> Callable[[Path], None]:
    return lambda path: write_npz(path, **{name: content})


def mat_bomb(n_bytes: int) -> bytes:
    """A MATLAB file with a 2 x 2 matrix whose deflated data element declares and holds ``n_bytes`` zeros."""
    flags = struct.pack("<IIII", 6, 8, 6, 0)
    shape = struct.pack("<IIii", 5, 8, 2, 2)
    name = struct.pack("<II", 1, 10) + b"timeseries" + bytes(6)
    data = struct.pack("<II", 9, n_bytes) + bytes(n_bytes)
    body = flags + shape + name + data
    packed = zlib.compress(struct.pack("<II", 14, len(body)) + body)
    header = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    return header + struct.pack("<II", 15, len(packed)) + packed


def _save_object(path: Path) -> None:
    savemat(path, {"timeseries": np.array([[{"a": 1}, "b"]], dtype=object)})


def _link_to(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


BOMB = 3 * LIMIT_MB * 2**20
TERABYTE = npy_bytes((10**6, 125_000))
LARGE = npy_bytes((BOMB // 32, 4), data=bytes(BOMB))
FORMATS = {"csv": "text", "npy": "npy", "npz": "npz", "mat": "a MATLAB file", "ptseries.nii": "a CIFTI file"}
PIPE, OBJECTS = "(it is a pipe, socket or device)", "holds pickled Python objects, which are never loaded"
NOT_REAL = "p2.mat: 'timeseries' holds no matrix of real numbers"

TABLES: list[tuple[str, str, Callable[[str], str | bytes]]] = [
    ("an unclosed quote", "line 4 has a quote that", lambda t: t.replace("p2,A", 'p2,"A')),
    ("a quote that a later row closes", "line 3 has", lambda t: t.replace("p1,B", 'p1,"B').replace("p7,B", 'p7,B"')),
    (
        "an integer of 20 digits",
        "column 'age' is 12345678901234567890 in row 4 (participant p3), a number out of range",
        lambda t: t.replace(",23\n", ",12345678901234567890\n"),
    ),
    ("an integer of 5,000 digits", "column 'age' is 99999", lambda t: t.replace(",23\n", f",{'9' * 5000}\n")),
    ("an age of 1e400", "column 'age' is 1e400 in row 4", lambda t: t.replace(",23\n", ",1e400\n")),
    ("an infinite age", "column 'age' is -inf in row 4", lambda t: t.replace(",23\n", ",-inf\n")),
    ("a long cell", "line 5 has a cell of more than 131,072", lambda t: t.replace(",23\n", f",{'x' * 200_000}\n")),
    ("a table in latin-1", "in line 3 is not UTF-8", lambda t: t.replace("B,0", "K\xf6ln,0", 1).encode("latin-1")),
    ("a table in UTF-16", "participants.csv: cannot be read as a table (it is UTF-16)", lambda t: t.encode("utf-16")),
    ("a null character", "null character in line 2", lambda t: t.replace("p0", "p\0")),
    ("an empty table", "needs a header and at least one row", lambda t: ""),
    ("a ragged table", "row 3 has 2 cells, the header 4", lambda t: t.replace("p2,A,1,22", "p2,A")),
]
"""Changes of the participants table: name, answer, and what becomes of its text."""


FILES: list[tuple[str, str, bytes | Callable[[Path], object], str]] = [
    ("a signal of 1e400", "p2.txt", b"5 2 3 4\n1 2 1e400 4\n", "p2.txt: line 2, column 3: 1e400 is too large"),
    ("a signal of 1e200", "p2.txt", b"5 2 3 4\n1 2 1e200 4\n", "p2.txt: frame 2, column 3: 1e+200 is too large"),
    ("a header with an open quote", "p2.csv", b'"a,b,c,d\n1,2,3,4\n', "p2.csv: line 1 has a quote"),
    ("a header of one long cell", "p2.csv", b"a" * 200_000 + b",b\n1,2\n", "p2.csv: line 1 has a cell of more than"),
    ("a row that is cut short", "p2.csv", b"a,b,c,d\n1,2,3,4\n1,2\n", "line 3 has 2 cells where 4 were expected"),
    ("text of 3 MB", "p2.csv", b"1" * BOMB, "p2.csv: holds 3 MB unpacked"),
    ("a scan without an end", "p2.csv", _link_to("/dev/zero"), f"p2.csv: cannot be read as text {PIPE}"),
    *(
        (f"a pipe for {kind}", f"p2.{suffix}", os.mkfifo, f"p2.{suffix}: cannot be read as {kind} {PIPE}")
        for suffix, kind in FORMATS.items()
    ),
    ("a link to itself", "p2.csv", _link_to("p2.csv"), "p2.csv: cannot be read as text (Too many levels"),
    ("a broken link", "p2.csv", _link_to("gone"), "p2.csv: cannot be read as text (No such file"),
    ("an array that declares a terabyte", "p2.npy", TERABYTE, "p2.npy: declares 1000000000000 bytes of data"),
    ("a negative shape", "p2.npy", npy_bytes((-2, -4), data=bytes(64)), "p2.npy: cannot be read as npy"),
    ("pickled objects", "p2.npy", npy_bytes((2, 2), "|O", b"cos\nsystem\n."), f"p2.npy: {OBJECTS}"),
    ("text in an array", "p2.npy", npy_bytes((1, 4), "<U1", b"a\0\0\0" * 4), "the array holds <U1, not numbers"),
    ("complex numbers", "p2.npy", npy_bytes((1, 2), "<c16", bytes(32)), "p2.npy: the array holds complex128, not"),
    ("one number", "p2.npy", npy_bytes((), data=bytes(8)), "p2.npy: two axes are needed"),
    ("an archive of 3 MB", "p2.npz", _archive(LARGE), "holds 3 MB unpacked, more than the 1 MB that brio reads"),
    ("an archive that declares a terabyte", "p2.npz", _archive(TERABYTE), "declares 1000000000000 bytes of data"),
    ("an archive of notes", "p2.npz", _archive(b"hello", "a_dot_txt"), "p2.npz: cannot tell which array"),
    ("an archive of objects", "p2.npz", _archive(npy_bytes((2, 2), "|O")), f"p2.npz: {OBJECTS}"),
    ("an array that is none", "p2.npz", _archive(b"hello"), "p2.npz: cannot be read as npz"),
    ("a MATLAB bomb", "p2.mat", mat_bomb(BOMB), "p2.mat: unpacks to more than the 1 MB that brio reads"),
    ("a MATLAB file with objects", "p2.mat", _save_object, NOT_REAL),
    ("complex numbers of MATLAB", "p2.mat", lambda p: savemat(p, {"timeseries": make_scan(2) * 1j}), NOT_REAL),
]
"""What takes the place of the scan of p2: name, file, content, and answer."""

ARCHIVES: list[tuple[str, dict[str, np.ndarray], str]] = [
    ("complex frames", {"frames": np.ones((96, 4)) * 1j}, "mine.npz: frames and scale must be real numbers"),
    ("frames of text", {"frames": np.full((96, 4), "a")}, "mine.npz: frames and scale must be real numbers"),
    ("one scale", {"scale": np.array(1.0)}, "do not fit together"),
    ("ids without an axis", {"participant_id": np.array("p0")}, "'participant_id' has shape ()"),
    ("lengths without an axis", {"n_frames": np.array(12)}, "'n_frames' must have a positive number for each of the 8"),
    ("lengths that are no numbers", {"n_frames": np.full(8, "12")}, "n_frames whole numbers"),
    ("a negative length", {"n_frames": np.array([-12] + [12] * 7)}, "'n_frames' must have a positive number"),
    ("frames that nobody lists", {"frames": np.zeros((BOMB, 4), dtype=np.int8)}, "do not fit together"),
    ("an infinite scale", {"scale": np.full((8, 4), np.inf)}, "mine.npz: the scale of participant p0 is not finite"),
]
"""Arrays of packed scans that are replaced, and the answer."""

SIDECARS: list[tuple[str, str | bytes, str]] = [
    ("an infinite repetition time", '{"RepetitionTime": Infinity}', "RepetitionTime in its json sidecar is inf;"),
    ("milliseconds", '{"RepetitionTime": 2000}', "is 2000; a positive number of seconds is needed, from 0.01 to 100"),
    ("a time of 400 digits", f'{{"RepetitionTime": 1{"0" * 400}}}', "RepetitionTime in its json sidecar is 1000"),
    (
        "a frequency of 400 digits",
        f'{{"SamplingFrequency": 1{"0" * 400}}}',
        "SamplingFrequency in its json sidecar is 1",
    ),
    ("a list as repetition time", '{"RepetitionTime": [2]}', "RepetitionTime in its json sidecar is [2]"),
    ("deep JSON", f'{{"a": {"[" * 100_000}{"]" * 100_000}}}', ".json: not valid JSON (it is nested too deeply)"),
    ("a list", "[1, 2]", ".json: must hold a JSON object"),
    ("half an object", '{"RepetitionTime": ', ".json: not valid JSON"),
    ("bytes that are no text", b"\xff{}", ".json: cannot be read as JSON (byte 0xff in line 1"),
    ("3 MB", json.dumps({"a": "x" * BOMB}), ".json: holds 3 MB unpacked"),
]
"""Sidecars of the first time series, and the answer."""


def _write_covariances(folder: Path) -> None:
    src = write_study(folder / "study")
    for i, (person, _, _) in enumerate(PEOPLE):
        (src / f"{person}.csv").unlink()
        np.save(src / f"{person}.npy", 1e5 * np.corrcoef(make_scan(i).T))


def _write_complex_stack(folder: Path) -> None:
    src = write_study(folder / "study")
    stack = np.stack([np.corrcoef(make_scan(i).T) for i in range(8)]) * 1j
    np.savez(src / "fc.npz", fc=stack, participant_id=np.array([person for person, _, _ in PEOPLE]))


BY_NAME = f"{TABLE} --participants study/participants.csv"
NO_TABLE = "no such participants table"
BAD_INPUTS = [
    *(BadInput(name, TABLE, answer, _edit_table(change)) for name, answer, change in TABLES),
    *(BadInput(name, TABLE, answer, _replace(file, content)) for name, file, content, answer in FILES),
    *(BadInput(f"packed: {name}", PACKED, answer, _pack(**arrays)) for name, arrays, answer in ARCHIVES),
    *(BadInput(f"a sidecar with {name}", BIDS, answer, _sidecar(content)) for name, content, answer in SIDECARS),
    BadInput("a table that is a pipe", BY_NAME, NO_TABLE, _replace("participants.csv", os.mkfifo)),
    BadInput("a table without an end", BY_NAME, NO_TABLE, _replace("participants.csv", _link_to("/dev/zero"))),
    BadInput("a covariance as Fisher z", f"{FC} --measure fisher-z", "is no Fisher z", _write_covariances),
    BadInput("complex connectomes", "import fc study/fc.npz --out new", "one array of numbers", _write_complex_stack),
]
"""All bad inputs that must be refused."""


def write_formats(folder: Path) -> list[Path]:
    """Write one good scan in every format; mutations start from these."""
    import h5py
    import nibabel
    from nibabel import cifti2

    scan = make_scan(0)
    np.savetxt(folder / "a.csv", scan, delimiter=",", header="a,b,c,d", comments="")
    np.savetxt(folder / "b.1D", scan, header="#1 #2 #3 #4", comments="")
    np.save(folder / "c.npy", scan)
    np.savez_compressed(folder / "d.npz", timeseries=scan, other=np.arange(3))
    savemat(folder / "e.mat", {"ROISignals": scan, "x": 1.0}, do_compression=True)
    savemat(folder / "f.mat", {"ROISignals": scan}, format="4")
    with h5py.File(folder / "g.mat", "w") as file:
        file.create_dataset("ROISignals", data=scan.T, compression="gzip").attrs["MATLAB_class"] = np.bytes_("double")
    voxels = np.arange(8).reshape(2, 2, 2)
    models = [cifti2.BrainModelAxis.from_mask(voxels == k, affine=np.eye(4)) for k in range(scan.shape[1])]
    parcels = cifti2.ParcelsAxis.from_brain_models([(f"r{k}", model) for k, model in enumerate(models)])
    axes = cifti2.SeriesAxis(0, 2, len(scan), unit="SECOND"), parcels
    nibabel.save(nibabel.Cifti2Image(scan.astype(np.float32), axes), folder / "h.ptseries.nii")
    return sorted(path for path in folder.iterdir() if path.is_file())


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file: flip, cut, repeat, insert or overwrite bytes."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at, n = int(rng.integers(len(data) + 1)), int(rng.integers(1, 17))
        kind = rng.integers(6)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = data[max(0, at - n) : at] * 3
        elif kind == 3:
            data[at:at] = rng.bytes(n)
        elif kind == 4:
            data[at : at + n] = b"\xff" * n
        else:
            data[at : at + n] = b"\x00" * n
    return bytes(data)
