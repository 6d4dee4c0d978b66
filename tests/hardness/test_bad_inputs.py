"""Bad input files: one line that names the file, exit status 2, nothing written; no file hangs or fills the memory.

Everything is small: sizes are refused under a limit of :data:`LIMIT_MB`, which the tests set in the environment.
"""

import functools
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
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from brio.cohort import Cohort
from brio.cohort.readers import import_cohort, read_scans_to_predict
from brio.cohort.readers.participants import read_participants
from brio.cohort.readers.series import Series, read_series
from brio.errors import BrioError
from cohort import file_layouts
from cohort.file_layouts import make_frames, save_cifti, write_csv, write_layout
from commands import command, refuse

LIMIT_MB = 1
NAMES = [f"p{i}" for i in range(8)]
TABLE, PACKED, BIDS, FC = (f"import {kind} study --out new" for kind in ("table", "packed", "bids", "fc"))
Content = str | bytes | Callable[[Path], object]


def write_study(src: Path) -> Path:
    """Write a good study of eight people at two sites."""
    rows = [f"{name},{'AB'[i % 2]},{i // 2 % 2},{20 + i}" for i, name in enumerate(NAMES)]
    write = functools.partial(write_csv, header="a,b,c,d,e")
    return file_layouts.write_study(src, NAMES, write, header="participant_id,site,label,age", rows=rows)


class BadInput(NamedTuple):
    """A file of a good study and what takes its place, the command that reads it, and part of its one line of answer.

    The scan of p2 may be of another format. The content of a file is a text, or what changes or replaces it.
    """

    name: str
    command: str
    file: str
    content: Content
    answer: str

    def write(self, folder: Path) -> None:
        """Write the study."""
        kind = self.command.split()[1]
        src = write_layout(kind, folder / "study") if kind in ("packed", "bids") else write_study(folder / "study")
        if self.file.startswith("p2."):
            (src / "p2.csv").rename(src / self.file)
        if callable(self.content):
            self.content(src / self.file)
        else:
            content = self.content
            (src / self.file).write_bytes(content.encode() if isinstance(content, str) else content)


def _edit(change: Callable[[str], str | bytes]) -> Content:
    """Change the text of a file."""

    def edit(path: Path) -> None:
        text = change(path.read_text())
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    return edit


def _pack(**arrays: np.ndarray) -> Content:
    """Replace some arrays of packed scans."""

    def pack(path: Path) -> None:
        with np.load(path) as whole:
            np.savez_compressed(path, **{**whole, **arrays})

    return pack


def _link_to(target: str) -> Content:
    return lambda path: path.unlink() or path.symlink_to(target)


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def npy_bytes(shape: tuple[int, ...], descr: str = "<f8", data: bytes = b"") -> bytes:
    """An npy file whose header declares a shape, whatever it holds."""
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


def write_npz(path: Path, members: dict[str, bytes]) -> None:
    """Write an archive of any members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _archive(content: bytes, name: str = "timeseries.npy") -> Content:
    return lambda path: write_npz(path, {name: content})


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


def _make_covariances(src: Path) -> None:
    for i, name in enumerate(NAMES):
        (src / f"{name}.csv").unlink()
        np.save(src / f"{name}.npy", 1e5 * np.corrcoef(make_frames(i).T))


def _make_complex_stack(path: Path) -> None:
    np.savez(path, fc=np.stack([np.corrcoef(make_frames(i).T) for i in range(8)]) * 1j, participant_id=NAMES)


BOMB = 3 * LIMIT_MB * 2**20
TERABYTE = npy_bytes((10**6, 125_000))
LARGE = npy_bytes((BOMB // 32, 4), data=bytes(BOMB))
FORMATS = {"csv": "text", "npy": "npy", "npz": "npz", "mat": "a MATLAB file", "ptseries.nii": "a CIFTI file"}
PIPE, OBJECTS = "(it is a pipe, socket or device)", "contains pickled Python objects, which are never loaded"
NOT_REAL = "p2.mat: 'timeseries' must be a matrix of real numbers"

TABLES: list[tuple[str, str, Callable[[str], str | bytes]]] = [
    ("an unclosed quote", "line 4 has an unclosed quote", lambda t: t.replace("p2,A", 'p2,"A')),
    ("a quote that a later row closes", "line 3 has", lambda t: t.replace("p1,B", 'p1,"B').replace("p7,B", 'p7,B"')),
    (
        "an integer of 20 digits",
        "column 'age' is 12345678901234567890 in row 4 (participant p3), which is out of range",
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
    ("a ragged table", "row 3 has 2 cells, but the header has 4", lambda t: t.replace("p2,A,1,22", "p2,A")),
]
"""Changes of the participants table: name, answer, and what becomes of its text."""

FILES: list[tuple[str, str, Content, str]] = [
    ("a signal of 1e400", "p2.txt", b"5 2 3 4\n1 2 1e400 4\n", "p2.txt: line 2, column 3: 1e400 is too large"),
    ("a signal of 1e200", "p2.txt", b"5 2 3 4\n1 2 1e200 4\n", "p2.txt: frame 2, column 3: 1e+200 is too large"),
    ("a header with an open quote", "p2.csv", b'"a,b,c,d\n1,2,3,4\n', "p2.csv: line 1 has an unclosed quote"),
    ("a header of one long cell", "p2.csv", b"a" * 200_000 + b",b\n1,2\n", "p2.csv: line 1 has a cell of more than"),
    ("a truncated row", "p2.csv", b"a,b,c,d\n1,2,3,4\n1,2\n", "line 3 has 2 cells where 4 were expected"),
    ("an archive called npy", "p2.npy", b"PK" + bytes(90), "p2.npy: is an npz archive, not an npy file; rename it"),
    ("an array without numbers", "p2.npy", npy_bytes((0, 5)), "p2.npy: the array is empty (shape (0, 5))"),
    ("text of 3 MB", "p2.csv", b"1" * BOMB, "p2.csv: contains 3 MB of data"),
    ("a scan without an end", "p2.csv", _link_to("/dev/zero"), f"p2.csv: cannot be read as text {PIPE}"),
    *(
        (f"a pipe for {kind}", f"p2.{suffix}", _make_pipe, f"p2.{suffix}: cannot be read as {kind} {PIPE}")
        for suffix, kind in FORMATS.items()
    ),
    ("a link to itself", "p2.csv", _link_to("p2.csv"), "p2.csv: cannot be read as text (Too many levels"),
    ("a broken link", "p2.csv", _link_to("gone"), "p2.csv: cannot be read as text (No such file"),
    ("an array that declares a terabyte", "p2.npy", TERABYTE, "p2.npy: should have 1,000,000,000,000 bytes of data"),
    ("a negative shape", "p2.npy", npy_bytes((-2, -4), data=bytes(64)), "p2.npy: cannot be read as npy"),
    ("pickled objects", "p2.npy", npy_bytes((2, 2), "|O", b"cos\nsystem\n."), f"p2.npy: {OBJECTS}"),
    (
        "text in an array",
        "p2.npy",
        npy_bytes((1, 4), "<U1", b"a\0\0\0" * 4),
        "the array must contain real numbers, but contains text",
    ),
    (
        "complex numbers",
        "p2.npy",
        npy_bytes((1, 2), "<c16", bytes(32)),
        "p2.npy: the array must contain real numbers, but contains complex numbers",
    ),
    ("one number", "p2.npy", npy_bytes((), data=bytes(8)), "p2.npy: the array needs two axes"),
    ("an archive of 3 MB", "p2.npz", _archive(LARGE), "contains 3 MB of data, but brio reads at most 1 MB"),
    (
        "an archive that declares a terabyte",
        "p2.npz",
        _archive(TERABYTE),
        "should have 1,000,000,000,000 bytes of data",
    ),
    ("an archive of notes", "p2.npz", _archive(b"hello", "a.txt"), "p2.npz: contains nothing; save the array"),
    ("an archive of objects", "p2.npz", _archive(npy_bytes((2, 2), "|O")), f"p2.npz: {OBJECTS}"),
    ("an array that is none", "p2.npz", _archive(b"hello"), "p2.npz: cannot be read as npz"),
    (
        "a MATLAB bomb",
        "p2.mat",
        mat_bomb(BOMB),
        "p2.mat: is larger than 1 MB when unpacked; if this size is correct",
    ),
    ("a MATLAB file with objects", "p2.mat", _save_object, NOT_REAL),
    ("complex numbers of MATLAB", "p2.mat", lambda p: savemat(p, {"timeseries": make_frames(2) * 1j}), NOT_REAL),
]
"""What takes the place of the scan of p2: name, file, content, and answer."""

PACKS: list[tuple[str, dict[str, np.ndarray], str]] = [
    ("complex frames", {"frames": np.ones((27, 116)) * 1j}, "aal116.npz: frames and scale must be real numbers"),
    ("frames of text", {"frames": np.full((27, 116), "a")}, "aal116.npz: frames and scale must be real numbers"),
    ("one scale", {"scale": np.array(1.0)}, "do not match"),
    (
        "ids without an axis",
        {"participant_id": np.array("p0")},
        "'participant_id' must be a list of names, but has shape ()",
    ),
    (
        "lengths without an axis",
        {"n_frames": np.array(9)},
        "'n_frames' must contain a positive number for each of the 3",
    ),
    ("lengths that are no numbers", {"n_frames": np.full(3, "9")}, "n_frames whole numbers"),
    ("a negative length", {"n_frames": np.array([-8, 9, 10])}, "'n_frames' must contain a positive number"),
    ("frames that nobody lists", {"frames": np.zeros((BOMB // 100, 116), dtype=np.int8)}, "do not match"),
    ("an infinite scale", {"scale": np.full((3, 116), np.inf)}, "aal116.npz: the scale of participant 007 is not"),
]
"""Arrays of packed scans that are replaced, and the answer."""

SIDECARS: list[tuple[str, Content, str]] = [
    ("an infinite repetition time", '{"RepetitionTime": Infinity}', "RepetitionTime in its JSON sidecar is inf;"),
    ("milliseconds", '{"RepetitionTime": 2000}', "is 2000; a number of seconds is needed, from 0.01 to 100"),
    ("a time of 400 digits", f'{{"RepetitionTime": 1{"0" * 400}}}', "RepetitionTime in its JSON sidecar is 1000"),
    (
        "a frequency of 400 digits",
        f'{{"SamplingFrequency": 1{"0" * 400}}}',
        "SamplingFrequency in its JSON sidecar is 1",
    ),
    ("frames per minute", '{"SamplingFrequency": 300}', "frames per second is needed, from 0.01 to 100"),
    ("a list as repetition time", '{"RepetitionTime": [2]}', "RepetitionTime in its JSON sidecar is [2]"),
    ("deep JSON", f'{{"a": {"[" * 100_000}{"]" * 100_000}}}', ".json: is not valid JSON (it is nested too deeply)"),
    ("a list", "[1, 2]", ".json: must contain a JSON object"),
    ("half an object", '{"RepetitionTime": ', ".json: is not valid JSON"),
    ("bytes that are no text", b"\xff{}", ".json: cannot be read as JSON (byte 0xff in line 1"),
    ("3 MB", json.dumps({"a": "x" * BOMB}), ".json: contains 3 MB of data"),
]
"""Sidecars of the first time series, and the answer."""
SIDECAR = "sub-001/func/sub-001_task-rest_atlas-Tian_timeseries.json"
BY_NAME = f"{TABLE} --participants study/participants.csv"
NO_TABLE = "no such participants table"
BAD_INPUTS = [
    *(BadInput(name, TABLE, "participants.csv", _edit(change), answer) for name, answer, change in TABLES),
    *(BadInput(name, TABLE, file, content, answer) for name, file, content, answer in FILES),
    *(BadInput(f"packed: {name}", PACKED, "aal116.npz", _pack(**arrays), answer) for name, arrays, answer in PACKS),
    *(BadInput(f"a sidecar with {name}", BIDS, SIDECAR, content, answer) for name, content, answer in SIDECARS),
    BadInput("a table that is a pipe", BY_NAME, "participants.csv", _make_pipe, NO_TABLE),
    BadInput("a table without an end", BY_NAME, "participants.csv", _link_to("/dev/zero"), NO_TABLE),
    BadInput(
        "a covariance as Fisher z", f"{FC} --measure fisher-z", "", _make_covariances, "is too large for a Fisher z"
    ),
    BadInput(
        *("complex connectomes", "import fc study/fc.npz --out new", "fc.npz", _make_complex_stack),
        "one array of numbers",
    ),
]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder that commands run in, with a small limit of sizes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIO_LARGEST_FILE_MB", str(LIMIT_MB))
    return tmp_path


@pytest.mark.parametrize("case", BAD_INPUTS, ids=[case.name for case in BAD_INPUTS])
def test_a_bad_input_is_answered_by_one_line_and_leaves_nothing(here: Path, case: BadInput):
    """One bad scan of eight is left out, and the line is its reason."""
    case.write(here)
    before = sorted(os.listdir(here))
    said = command(*case.command.split())
    if said.status == 0:
        (skipped,) = Cohort.load("new").provenance["skipped"]
        assert (skipped["participant_id"], skipped["file"]) == ("p2", case.file)
        assert f"7 scans imported, 1 row or file skipped: {skipped['reason']} (1)" in said.out
        assert case.answer in f"study/{skipped['file']}: {skipped['reason']}"
        return
    assert said.out == ""
    assert case.answer in said.refuse_in_a_line()
    assert sorted(os.listdir(here)) == before


def test_the_study_that_bad_inputs_start_from_is_read(here):
    write_study(here / "study")
    assert command("import", "table", "study", "--out", "new").status == 0
    np.testing.assert_allclose(Cohort.load("new").scan(3), make_frames(3), rtol=1e-6)


def test_the_limit_is_configurable_and_its_message_says_how(here, monkeypatch):
    np.savez_compressed(here / "p.npz", timeseries=np.zeros((2**16, 4)))
    refuse("set the environment variable BRIO_LARGEST_FILE_MB to 2", read_series, here / "p.npz")
    monkeypatch.setenv("BRIO_LARGEST_FILE_MB", "2")
    assert read_series(here / "p.npz").frames.shape == (2**16, 4)
    for wrong in ("much", "-1", "inf", "nan", "0"):
        monkeypatch.setenv("BRIO_LARGEST_FILE_MB", wrong)
        refuse("give megabytes", read_series, here / "p.npz")


def test_folders_that_link_in_a_circle_are_read_once(here):
    src = write_study(here / "study" / "deep").parent
    (src / "deep" / "participants.csv").rename(src / "participants.csv")
    (src / "deep" / "back").symlink_to(src)
    (src / "again").symlink_to(src / "deep")
    (src / "self").symlink_to(src / "self")
    assert len(import_cohort("table", src, here / "new")) == 8


def test_names_that_are_not_utf8_are_refused_and_a_folder_of_such_a_name_is_read(here):
    src = write_study(Path(os.fsdecode(os.fsencode(str(here)) + b"/caf\xe9")))
    cohort = import_cohort("table", src, here / "new")
    assert cohort.name == Cohort.load(here / "new").provenance["source"] == "caf\\xe9"
    assert command("import", "table", src, "--out", "newer").status == 0
    np.save(Path(os.fsdecode(os.fsencode(str(src)) + b"/p\xff.npy")), make_frames(0))
    said = command("import", "table", src, "--out", "newest").refuse()
    assert "the file name p\\xff.npy is not valid UTF-8; rename it" in said.err
    with pytest.raises(BrioError, match="not valid UTF-8"):
        read_scans_to_predict(Path(os.fsdecode(os.fsencode(str(src)) + b"/p\xff.npy")), here / "newest")


def test_runs_are_ordered_although_a_number_is_no_number(here):
    src = write_layout("bids", here / "study")
    for path in src.rglob("*_timeseries.*"):
        path.rename(path.with_name(path.name.replace("_atlas", "_run-1²2_atlas")))
    assert len(import_cohort("bids", src, here / "new")) == 3


def test_other_members_of_an_archive_are_ignored(here):
    data = make_frames(1)
    series, objects = npy_bytes(data.shape, "<f4", data.tobytes()), npy_bytes((3,), "|O")
    write_npz(here / "p.npz", {"notes.txt": b"hello", "pickled.npy": objects, "series.npy": series})
    np.testing.assert_allclose(read_series(here / "p.npz").frames, data, rtol=1e-6)


def write_formats(folder: Path) -> list[Path]:
    """Write one good scan in every format; mutations start from these."""
    import h5py

    scan = make_frames(0)
    np.savetxt(folder / "a.csv", scan, delimiter=",", header="a,b,c,d,e", comments="")
    np.savetxt(folder / "b.1D", scan, header="#1 #2 #3 #4 #5", comments="")
    np.save(folder / "c.npy", scan)
    np.savez_compressed(folder / "d.npz", timeseries=scan, other=np.arange(3))
    savemat(folder / "e.mat", {"ROISignals": scan, "x": 1.0}, do_compression=True)
    savemat(folder / "f.mat", {"ROISignals": scan}, format="4")
    with h5py.File(folder / "g.mat", "w") as file:
        file.create_dataset("ROISignals", data=scan.T, compression="gzip").attrs["MATLAB_class"] = np.bytes_("double")
    save_cifti(folder / "h.ptseries.nii", scan, [f"r{k}" for k in range(scan.shape[1])], tr=2.0)
    return sorted(path for path in folder.iterdir() if path.is_file())


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file: flip, cut, repeat, insert or overwrite bytes."""
    for _ in range(rng.integers(1, 5)):
        at, n = rng.integers(len(content) + 1), rng.integers(1, 17)
        before, after = content[:at], content[at:]
        content = (
            before,
            before + bytes(byte ^ 1 << rng.integers(8) for byte in after[:1]) + after[1:],
            before + before[-n:] * 3 + after,
            before + rng.bytes(n) + after,
            before + b"\xff" * n + after[n:],
            before + b"\0" * n + after[n:],
        )[rng.integers(6)]
    return content


def test_a_truncated_binary_file_is_named(here):
    for path in write_formats(here):
        if path.suffix in (".npy", ".npz", ".mat", ".nii"):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) * 3 // 5])
            refuse(f"{path.name}: .*damaged or truncated", read_series, path)


def read_anything(path: Path) -> None:
    """Read a file as a series and as a table; only errors for people, which name the file, may come out."""
    for read in (read_series, read_participants):
        message, result = path.name, None
        try:
            result = read(path)
        except BrioError as error:
            message = str(error)
        assert path.name in message
        if isinstance(result, Series):
            assert (result.frames.ndim, result.frames.dtype) == (2, np.float32)


CELLS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(['"', "'", "1e400", "-1e999", "1_0", "٣", "²", "inf", "nan", "n/a", "9" * 30, "=1", "\r", "#"]),
    st.integers().map(str),
    st.floats().map(str),
)


def test_damaged_scans_are_read_or_refused(here):
    originals = [(path, path.read_bytes()) for path in write_formats(here)]
    rng = np.random.default_rng(0)
    for _ in range(20):
        for path, content in originals:
            path.write_bytes(mutate(content, rng))
            read_anything(path)


FEW = settings(max_examples=15, suppress_health_check=list(HealthCheck))


@FEW
@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=5),
    delimiter=st.sampled_from(list(",;\t ")),
    suffix=st.sampled_from([".csv", ".tsv", ".txt", ".1D"]),
)
def test_any_text_is_read_or_refused(tmp_path, rows, delimiter, suffix):
    path = tmp_path / f"p{suffix}"
    path.write_text("\n".join(delimiter.join(row) for row in rows), encoding="utf-8", errors="replace")
    read_anything(path)


@FEW
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".csv", ".npy", ".npz", ".mat", ".1D"]))
def test_any_bytes_are_read_or_refused(tmp_path, content, suffix):
    path = tmp_path / f"p{suffix}"
    path.write_bytes(content)
    read_anything(path)


@settings(FEW, max_examples=6)
@given(values=st.lists(CELLS, min_size=8, max_size=8))
def test_a_cohort_that_was_written_can_be_opened(tmp_path_factory, values):
    """Whatever a covariate holds: the import is refused, or the cohort opens with as many participants."""
    folder = tmp_path_factory.mktemp("any")
    path = file_layouts.write_study(folder / "study", NAMES) / "participants.csv"
    lines = path.read_text().splitlines()
    rows = [f"{line},{value}" for line, value in zip(lines, ["extra", *values], strict=True)]
    path.write_text("\n".join(rows), encoding="utf-8", errors="replace")
    try:
        import_cohort("table", folder / "study", folder / "new")
    except BrioError:
        assert not (folder / "new").exists()
    else:
        cohort = Cohort.load(folder / "new")
        cohort.verify()
        assert len(cohort) == 8
