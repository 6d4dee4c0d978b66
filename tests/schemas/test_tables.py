"""Tables are read as they are declared, and compared with Python's csv module."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brio.errors import BrioError
from brio.schemas import Name, StoredCount, StoredShare, parse_table, read_bounded
from commands import refuse

PATH = Path("stored.csv")


@dataclass(frozen=True)
class Row:
    fold: Name
    seed: StoredCount
    auc: StoredShare | None
    seconds: float = 0.0
    note: str = ""


GOOD = "fold,seed,auc,seconds,note\nNYU,0,0.5,1.5,\n007,1,,2,late\n"


def parse(text: str | bytes, **options: object) -> pd.DataFrame:
    content = text if isinstance(text, bytes) else text.encode()
    return parse_table(content, PATH, Row, remedy="mend it", **options)


def test_a_table_is_read_with_its_types():
    table = parse(GOOD)
    assert table["fold"].tolist() == ["NYU", "007"]
    assert table["seed"].tolist() == [0, 1]
    assert table["auc"].isna().tolist() == [False, True]
    assert table["seconds"].tolist() == [1.5, 2.0]
    assert table["note"].isna().tolist() == [True, False]
    pd.testing.assert_frame_equal(parse("\ufeff" + GOOD.replace("\n", "\r\n")), table)
    pd.testing.assert_frame_equal(parse(GOOD.replace("NYU", '"NYU"')), table)
    assert parse('fold,seed,auc\n"a, ""b""",0,1\n')["fold"].tolist() == ['a, "b"']
    assert parse("fold,seed,auc,later\nNYU,0,1,x\n")["later"].tolist() == ["x"]


@pytest.mark.parametrize("seconds", [["1" * 25, "0.5"], ["1" * 25, "2" * 25]])
def test_numbers_of_many_digits_are_numbers(seconds):
    text = f"fold,seed,auc,seconds\nNYU,0,,{seconds[0]}\nUM,0,,{seconds[1]}\n"
    read = parse_table(text.encode(), PATH, Row)["seconds"]
    assert read.dtype == float
    assert read.tolist() == [float(cell) for cell in seconds]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("fold,seed,auc\n", "has no rows"),
        ("fold,seed\nNYU,0\n", "has no column 'auc'"),
        ("fold,seed,auc,seed\nNYU,0,1,1\n", "has the column 'seed' more than once"),
        ("fold,seed,auc\nNYU,0,1\nKKI,0\n", "line 3 has 2 cells, but the header has 3"),
        ('fold,seed,auc\n"NYU",0,1\n\n"K\nKI",0\n', "line 5 has 2 cells, but the header has 3"),
        ('fold,seed,auc\n"NYU,0,1\nKKI,0,1\n', "line 3 cannot be read (unexpected end of data)"),
        ('fold,seed,auc\n"NYU" ,0,1\n', "line 2 cannot be read (',' expected after '\"')"),
        ("fold,seed,auc\nN\0YU,0,1\n", "line 2 contains the control character \\x00"),
        ("fold,seed,auc\n,0,1\n", "column 'fold' is empty in row 1, expected non-empty text on one line"),
        ("fold,seed,auc\nNYU,0,x\n", "column 'auc' is 'x' in row 1, expected a number from 0 to 1 or an empty cell"),
        ("fold,seed,auc\nNYU,0,1\nNYU,1,1.5\n", "column 'auc' is '1.5' in row 2, expected a number from 0 to 1 or an"),
        (
            "fold,seed,auc\nNYU,0,inf\n",
            "column 'auc' is 'inf' in row 1, expected a number from 0 to 1 or an empty cell",
        ),
        ("fold,seed,auc\nNYU,,1\n", "column 'seed' is empty in row 1, expected a whole number of at least 0"),
        ("fold,seed,auc\nNYU,-1,1\n", "column 'seed' is '-1' in row 1, expected a whole number of at least 0"),
        ("fold,seed,auc\nNYU,0.5,1\n", "column 'seed' is '0.5' in row 1, expected a whole number of at least 0"),
        ("fold,seed,auc\nNYU,2021-01-01,1\n", "column 'seed' is '2021-01-01' in row 1, expected a whole number of at"),
    ],
)
def test_what_does_not_fit_is_named_with_line_or_row(text, message):
    with pytest.raises(BrioError) as told:
        parse(text)
    assert str(told.value).startswith(f"stored.csv: {message}")
    assert str(told.value).endswith("; mend it")


def test_a_line_that_is_too_long_is_named():
    problem = r"stored\.csv: line 2 is too long \(2,000,004 characters\); mend it"
    refuse(problem, parse, f"fold,seed,auc\n{'z' * 2_000_000},0,1\n")


cells = st.sampled_from(["", "x", "0", "1", "1.5", "-1", "inf", "nan", "NA", '"', '""', "a,b", "é", " ", "1e400", "\r"])


@given(st.lists(st.lists(cells, min_size=3, max_size=4), min_size=1, max_size=4), st.sampled_from(["", '"', ",", "\0"]))
@example([["a", "0", "1"]], "")
@example([["\r", "x", "0"]], "")
@settings(max_examples=60)
def test_a_table_is_what_the_csv_module_reads_or_one_sentence(rows, end):
    """Rows of cells with quotes, gaps and other lengths: all cells are read as they are, or the file is refused."""
    text = "\n".join(["fold,seed,auc", *(",".join(row) for row in rows)]) + "\n" + end
    table, message = None, ""
    try:
        table = parse(text)
    except BrioError as error:
        message = str(error)
    if table is None:
        assert message.startswith("stored.csv: ")
        assert "\n" not in message
    else:
        _, *expected = (row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row)
        assert table["fold"].tolist() == [row[0] for row in expected]
        assert table["seed"].tolist() == [int(float(row[1])) for row in expected]
        auc = [None if pd.isna(value) else value for value in table["auc"]]
        assert auc == [float(row[2]) if row[2] else None for row in expected]


def test_files_that_are_too_large_or_no_files_are_refused(tmp_path):
    path = tmp_path / "plan.json"
    with path.open("wb") as file:
        file.truncate(200 << 20)  # of zeros that take no room on the disk
    refuse(r"plan\.json: is larger than 2 MiB", read_bounded, path, 2 << 20)
    refuse("is not a regular file", read_bounded, tmp_path, 64 << 20)
    endless = tmp_path / "endless.json"
    endless.symlink_to("/dev/zero")
    refuse(r"endless\.json: is not a regular file", read_bounded, endless, 64 << 20)
    refuse("cannot be read", read_bounded, tmp_path / "absent.json", 64 << 20)


def test_a_file_that_this_machine_cannot_read_is_not_blamed_on_its_job(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    path.write_text("{}")
    monkeypatch.setattr("brio.schemas.os.fstat", Mock(side_effect=MemoryError))
    refuse(r"plan\.json: does not fit into memory; use a machine with more memory", read_bounded, path, 64 << 20)
    monkeypatch.setattr("brio.schemas.os.fstat", Mock(side_effect=PermissionError(13, "Permission denied")))
    refuse(r"cannot be read \(Permission denied\); make it readable", read_bounded, path, 64 << 20)
