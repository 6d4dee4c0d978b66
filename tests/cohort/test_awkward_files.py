"""Files as hospitals have them: spreadsheets in other languages, damaged archives, a region that one scan lacks."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from file_layouts import refuse

from brio import BrioError
from brio.cohort.readers import import_cohort, read_scans_to_predict, read_series
from brio.cohort.readers.participants import read_participants


def make_frames(i: int, n_rois: int = 4) -> np.ndarray:
    return np.random.default_rng(i).normal(size=(50, n_rois)).round(5)


def write_text(path: Path, lines: list[str], mark: str = "\ufeff") -> Path:
    path.write_bytes((mark + "".join(f"{line}\r\n" for line in lines)).encode())
    return path


def format_rows(frames: np.ndarray, delimiter: str) -> list[str]:
    return [delimiter.join(f"{value:.5f}".replace(".", ",") for value in row) for row in frames]


@pytest.mark.parametrize(
    ("name", "delimiter"), [("p.csv", ";"), ("p.csv", "\t"), ("p.tsv", "\t"), ("p.txt", " "), ("p.1D", ";")]
)
def test_decimal_commas_are_read_with_and_without_a_header(tmp_path, name, delimiter):
    frames = make_frames(0)
    rows = format_rows(frames, delimiter)
    series = read_series(write_text(tmp_path / name, rows))
    assert series.columns is None
    np.testing.assert_array_equal(series.frames, frames.astype(np.float32))
    header = delimiter.join(["a", "b", "c", "d"])
    series = read_series(write_text(tmp_path / name, [header, *rows]))
    assert series.columns == ("a", "b", "c", "d")
    np.testing.assert_array_equal(series.frames, frames.astype(np.float32))


def test_names_with_commas_stay_between_semicolons_and_missing_values_are_missing(tmp_path):
    path = write_text(tmp_path / "p.csv", ["Gyrus, left;Gyrus, right", "1,5;n/a", ";2,25"])
    series = read_series(path)
    assert series.columns == ("Gyrus, left", "Gyrus, right")
    np.testing.assert_array_equal(series.frames, np.array([[1.5, np.nan], [np.nan, 2.25]], dtype=np.float32))


@pytest.mark.parametrize("lines", [["1,250\t980", "1,251\t981"], ["1.250,5;1", "1.251,5;2"], ["0.5;1,5", "1,5;0.5"]])
def test_numbers_that_may_mean_two_things_are_refused(tmp_path, lines):
    with pytest.raises(BrioError, match="is not a number; write a decimal point, and nothing between thousands"):
        read_series(write_text(tmp_path / "p.csv", lines))


def test_a_spreadsheet_in_another_language_is_imported(tmp_path):
    people = ['participant_id;Zentrum;Diagnose;age;code;"Größe, cm"']
    for i in range(4):
        write_text(tmp_path / f"VP {i} (Ä)_ses-1.csv", ["a;b;c;d", *format_rows(make_frames(i), ";")])
        people.append(f"VP {i} (Ä);{'München' if i < 2 else 'Wien'};{'krank' if i % 2 else 'gesund'};2{i},5;1,00{i};")
    write_text(tmp_path / "participants.csv", ["", *people])
    cohort = import_cohort(
        "table", tmp_path, tmp_path / "out", site_column="Zentrum", label_column="Diagnose", patient="krank"
    )
    assert cohort.participants["age"].tolist() == [20.5, 21.5, 22.5, 23.5]
    assert cohort.participants["code"].tolist() == [1.0, 1.001, 1.002, 1.003]
    assert cohort.sites.tolist() == ["München", "München", "Wien", "Wien"]
    assert cohort.ids.tolist()[0] == "VP 0 (Ä)"
    np.testing.assert_array_equal(cohort.scan(3), make_frames(3).astype(np.float32))


def test_thousands_and_text_with_commas_stay_as_they_are(tmp_path):
    table = read_participants(write_text(tmp_path / "t.tsv", ["a\tb\tc", "1,250\tx,y\t2,5", "980\tz\tn/a"]))
    assert table.rows == [{"a": "1,250", "b": "x,y", "c": "2.5"}, {"a": "980", "b": "z", "c": None}]


@pytest.mark.parametrize(
    ("column", "hint"),
    [
        ("subject_id", "did you mean 'subject_id'? It has subject_id, site, label; --id-column can name another"),
        ("Versuchsperson", "known: Versuchsperson, label, site; --id-column can name another"),
    ],
)
def test_a_table_without_participant_id_says_what_to_do(tmp_path, column, hint):
    write_text(tmp_path / "participants.csv", [f"{column},site,label", "p1,A,0"])
    with pytest.raises(BrioError, match="no column 'participant_id'") as error:
        import_cohort("table", tmp_path, tmp_path / "out")
    assert hint in str(error.value)


def test_a_workbook_is_named_as_one(tmp_path):
    (tmp_path / "people.xlsx").write_bytes(b"PK\x03\x04" + bytes(40))
    with pytest.raises(BrioError, match=r"it is a workbook.*save the sheet as CSV in UTF-8"):
        import_cohort("table", tmp_path, tmp_path / "out", participants="people.xlsx")


def test_a_table_among_scans_to_predict_is_pointed_out(tmp_path):
    write_text(tmp_path / "people.csv", ["participant_id;age", "p1;20,5"])
    with pytest.raises(BrioError, match="'p1' is not a number; if this is the participants table, name it with"):
        read_scans_to_predict(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("lacking", [0, 1])
def test_the_region_that_one_scan_lacks_is_named_whichever_scan_it_is(tmp_path, lacking):
    for i in range(2):
        rois = list("abcd")[: 3 if i == lacking else 4]
        write_text(tmp_path / f"p{i}.csv", [",".join(rois), *("1,2,3,4"[: 2 * len(rois) - 1] for _ in range(3))])
    write_text(tmp_path / "participants.csv", ["participant_id,site,label", "p0,A,0", "p1,A,1"])
    refuse(rf"p{lacking}\.csv lacks d; .* needs a column of n/a", import_cohort, "table", tmp_path, tmp_path / "out")


def write_connectomes(folder: Path, ids: list[str], matrices: np.ndarray, table: list[str]) -> Path:
    folder.mkdir()
    np.savez(folder / "all.npz", fc=matrices, participant_id=np.array(ids))
    rows = [f"{name}\tA\t{i % 2}" for i, name in enumerate(table)]
    (folder / "participants.tsv").write_text("\n".join(["participant_id\tsite\tlabel", *rows]) + "\n")
    return folder / "all.npz"


def make_connectomes(n: int) -> np.ndarray:
    return np.stack([np.corrcoef(make_frames(i).T) for i in range(n)])


def test_an_archive_lists_connectomes_without_a_row_and_refuses_sessions(tmp_path):
    src = write_connectomes(tmp_path / "fc", ["p0", "p1", "p2"], make_connectomes(3), ["p0", "p1", "p9"])
    cohort = import_cohort("fc", src, tmp_path / "out")
    assert [(entry["participant_id"], entry["reason"]) for entry in cohort.provenance["skipped"]] == [
        ("p9", "no connectome in all.npz"),
        ("p2", "no row in participants.tsv"),
    ]
    refuse("leave out --sessions and --session-column", import_cohort, "fc", src, tmp_path / "again", sessions="first")


def test_connectomes_of_two_measures_are_refused(tmp_path):
    matrices = make_connectomes(2)
    matrices[1][0, 1] = matrices[1][1, 0] = 1.7  # Fisher z whose diagonal was set to one
    src = write_connectomes(tmp_path / "fc", ["p0", "p1"], matrices, ["p0", "p1"])
    with pytest.raises(BrioError, match=r"participant p1: seems to hold fisher-z, but .*participant p0 correlation"):
        import_cohort("fc", src, tmp_path / "out")
    assert len(import_cohort("fc", src, tmp_path / "out", measure="fisher-z")) == 2


def write_study(folder: Path, stems: list[str], rows: list[str]) -> Path:
    for i, stem in enumerate(stems):
        (folder / stem).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{stem}.npy", make_frames(i))
    write_text(folder / "participants.tsv", rows, mark="")
    return folder


def test_accents_match_whichever_way_they_are_written(tmp_path):
    people = ["Zoë", "José"]
    stems = [f"{unicodedata.normalize('NFD', name)}_ses-{s}" for name in people for s in "12"]
    rows = [f"{name}\tA\t{i}" for i, name in enumerate(people)]
    src = write_study(tmp_path / "study", stems, ["participant_id\tsite\tlabel", *rows])
    cohort = import_cohort("table", src, tmp_path / "out", sessions="all")
    assert cohort.ids.tolist() == [f"{name}_ses-{s}" for name in people for s in "12"]
    assert cohort.provenance["skipped"] == []


def test_paths_of_a_table_from_windows_are_found(tmp_path):
    rows = ["participant_id\tsite\tlabel\tfile", "p1\tA\t0\tscans\\one.npy", "p2\tA\t1\tscans\\two.npy"]
    src = write_study(tmp_path / "study", ["scans/one", "scans/two"], rows)
    cohort = import_cohort("table", src, tmp_path / "out")
    np.testing.assert_array_equal(cohort.scan(1), make_frames(1).astype(np.float32))


def test_other_capitals_get_a_hint(tmp_path):
    rows = ["participant_id\tsite\tlabel", "vp1\tA\t0", "vp2\tA\t1"]
    src = write_study(tmp_path / "study", ["VP1_rest", "VP2_rest"], rows)
    with pytest.raises(BrioError, match="names of files have other capitals: write ids in the table as the files do"):
        import_cohort("table", src, tmp_path / "out")
