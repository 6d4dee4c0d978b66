"""Bad input files: one line that names the file, exit status 2, nothing written; no file hangs or fills the memory."""

import os
from pathlib import Path

import numpy as np
import pytest
from bad_inputs import (
    BAD_INPUTS,
    LIMIT,
    BadInput,
    make_scan,
    mutate,
    npy_bytes,
    write_bids,
    write_formats,
    write_npz,
    write_study,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brio.cohort import Cohort
from brio.cohort.readers import import_cohort, read_scans_to_predict
from brio.cohort.readers.participants import read_participants
from brio.cohort.readers.series import Series, read_series
from brio.errors import BrioError
from commands import command


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder that commands run in, with a small limit of sizes."""
    monkeypatch.chdir(tmp_path)
    for name, value in LIMIT.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("case", BAD_INPUTS, ids=[case.name for case in BAD_INPUTS])
def test_a_bad_input_is_answered_by_one_line_and_leaves_nothing(here: Path, case: BadInput):
    case.write(here)
    before = sorted(os.listdir(here))
    said = command(*case.command.split()).refuse()
    assert said.out == ""
    assert case.answer in said.err
    assert said.err.count("\n") == 1
    assert sorted(os.listdir(here)) == before


def test_the_study_that_bad_inputs_start_from_is_read(here):
    write_study(here / "study")
    assert command("import", "table", "study", "--out", "new").status == 0
    np.testing.assert_allclose(Cohort.load("new").scan(3), make_scan(3), rtol=1e-6)


def test_the_limit_is_configurable_and_its_message_says_how(here, monkeypatch):
    np.savez_compressed(here / "p.npz", timeseries=np.zeros((2**16, 4)))
    with pytest.raises(BrioError, match="set the environment variable BRIO_LARGEST_FILE_MB to 2"):
        read_series(here / "p.npz")
    monkeypatch.setenv("BRIO_LARGEST_FILE_MB", "2")
    assert read_series(here / "p.npz").frames.shape == (2**16, 4)
    for wrong in ("much", "-1", "inf", "nan", "0"):
        monkeypatch.setenv("BRIO_LARGEST_FILE_MB", wrong)
        with pytest.raises(BrioError, match="give megabytes"):
            read_series(here / "p.npz")


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
    np.save(Path(os.fsdecode(os.fsencode(str(src)) + b"/p\xff.npy")), make_scan(0))
    said = command("import", "table", src, "--out", "newest").refuse()
    assert "the name of the file p\\xff.npy is not valid UTF-8; rename it" in said.err
    with pytest.raises(BrioError, match="not valid UTF-8"):
        read_scans_to_predict(Path(os.fsdecode(os.fsencode(str(src)) + b"/p\xff.npy")), here / "newest")


def test_runs_are_ordered_although_a_number_is_no_number(here):
    assert len(import_cohort("bids", write_bids(here / "study", run="_run-1²2"), here / "new")) == 8


def test_other_members_of_an_archive_are_ignored(here):
    data = make_scan(1)
    write_npz(
        here / "p.npz",
        notes_dot_txt=b"hello",
        pickled_dot_npy=npy_bytes((3,), "|O"),
        series_dot_npy=npy_bytes(data.shape, data=data.tobytes()),
    )
    np.testing.assert_allclose(read_series(here / "p.npz").frames, data, rtol=1e-6)


def test_a_binary_file_that_is_cut_short_is_named(here):
    for path in write_formats(here):
        if path.suffix in (".npy", ".npz", ".mat", ".nii"):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) * 3 // 5])
            with pytest.raises(BrioError, match=f"{path.name}: .*damaged or cut short"):
                read_series(path)


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
    path = write_study(folder / "study", suffix=".npy") / "participants.csv"
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
