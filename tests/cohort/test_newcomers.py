"""What newcomers trip over when they import files of their own, and the words that help."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from file_layouts import refuse

from brio import BrioError, Cohort
from brio.cohort import load_bundled_atlas
from brio.cohort.readers import import_cohort, read_series, summarise_import
from brio.cohort.readers.participants import TextTable, read_participants
from brio.cohort.readers.rois import find_nuisance


def make_frames(i: int, n_frames: int = 60, n_rois: int = 5) -> np.ndarray:
    return np.random.default_rng(i).normal(size=(n_frames, n_rois))


def write_scans(src: Path, names: list[str], header: str = "", n_rois: int = 5) -> Path:
    src.mkdir()
    for i, name in enumerate(names):
        np.savetxt(src / f"{name}.csv", make_frames(i, n_rois=n_rois), delimiter=",", header=header, comments="")
    return src


def write_table(src: Path, ids: list[str], header: str = "participant_id,site,label") -> None:
    rows = [f"{name},{'AB'[i % 2]},{i // 2 % 2}" for i, name in enumerate(ids)]
    (src / "participants.csv").write_text("\n".join([header, *rows]) + "\n")


PEOPLE = ["001", "002", "003", "004"]


@pytest.mark.parametrize(
    ("files", "ids", "hint"),
    [
        ([f"sub-{p}" for p in PEOPLE], PEOPLE, "names of files have 'sub-' in front: write sub-001 in the table"),
        ([f"study_{p}_rest" for p in PEOPLE], PEOPLE, "names of files have 'study_' in front: write study_001"),
        (PEOPLE, [f"sub-{p}" for p in PEOPLE], "names of files lack 'sub-': leave it out in the table"),
        (PEOPLE, ["1", "2", "3", "4"], "ids in the table lack the leading zeros of the files"),
    ],
)
def test_ids_that_are_written_in_another_way_get_a_hint(tmp_path, files, ids, hint):
    write_table(write_scans(tmp_path / "study", files), ids)
    with pytest.raises(BrioError, match="no file whose name starts with the participant_id") as error:
        import_cohort("table", tmp_path / "study", tmp_path / "out")
    assert hint in str(error.value)


def test_one_row_with_several_sessions_reads_them_from_the_names_of_the_files(tmp_path):
    names = [f"{p}_ses-{s}" for p in PEOPLE for s in ("2", "10")] + ["005"]
    write_table(write_scans(tmp_path / "study", names), [*PEOPLE, "005"])
    with pytest.raises(BrioError, match=r"4 of 5 participants have several scans \(001: sessions 2, 10\)"):
        import_cohort("table", tmp_path / "study", tmp_path / "out")
    cohort = import_cohort("table", tmp_path / "study", tmp_path / "out", sessions="all")
    assert cohort.ids.tolist()[:2] == ["001_ses-2", "001_ses-10"]
    np.testing.assert_allclose(cohort.scan(1), make_frames(1), rtol=1e-5)
    assert len(cohort) == 9


@pytest.mark.parametrize("sessions", ["join", "average"])
@pytest.mark.parametrize("change", ["copy", "cut", "scaled"])
def test_a_scan_that_is_stored_under_two_sessions_is_found_before_it_is_joined(tmp_path, sessions, change):
    names = [f"{p}_ses-{s}" for p in PEOPLE for s in "12"]
    src = write_scans(tmp_path / "study", names)
    write_table(src, PEOPLE)
    assert len(import_cohort("table", src, tmp_path / "out", sessions=sessions)) == 4
    first = make_frames(2)
    copy = {"copy": first, "cut": first[5:], "scaled": 3 + 2 * first}[change]
    np.savetxt(src / "002_ses-2.csv", copy, delimiter=",")
    with pytest.raises(BrioError, match=r"002_ses-2\.csv: is the same scan as .*002_ses-1\.csv"):
        import_cohort("table", src, tmp_path / "out2", sessions=sessions)
    assert not (tmp_path / "out2").exists()


def test_a_mistyped_label_is_said_to_be_one(tmp_path):
    src = write_scans(tmp_path / "study", PEOPLE)
    rows = ["001,A,MDD", "002,A,HC", "003,B,hc", "004,B,MDD"]
    (src / "participants.csv").write_text("\n".join(["participant_id,site,dx", *rows]))
    cohort = import_cohort("table", src, tmp_path / "out", label_column="dx", patient="MDD", control="HC")
    assert summarise_import(cohort) == (
        "3 scans imported, 1 row or file skipped: label 'hc' is neither patient nor control (mistyped 'HC'?) (1); "
        "cohort.json lists each under 'skipped'"
    )


NUISANCE = [
    "GlobalSignal",
    "global_signal",
    "GlobSig",
    "CSF",
    "csf_mean",
    "white matter",
    "FD",
    "Framewise_displacement",
]
NUISANCE += ["rot_x", "X_trans", "trans_y_derivative1_power2", "std_dvars", "a_comp_cor_01", "motion_outlier02", "rmsd"]


def test_a_column_that_is_hardly_a_region_is_refused(tmp_path):
    assert find_nuisance(NUISANCE) == NUISANCE
    name = "global_signal"
    write_table(write_scans(tmp_path / "study", PEOPLE, header=f"a,b,c,{name},e"), PEOPLE)
    with pytest.raises(BrioError, match=f"column '{name}' is named like a nuisance signal.*--drop-roi.*--atlas-table"):
        import_cohort("table", tmp_path / "study", tmp_path / "out")
    without = import_cohort("table", tmp_path / "study", tmp_path / "out", drop_roi=name)
    assert without.n_rois == 4
    rois = tmp_path / "rois.csv"
    rois.write_text("\n".join(["name", *f"a,b,c,{name},e".split(",")]))
    assert import_cohort("table", tmp_path / "study", tmp_path / "out2", atlas_table=rois).n_rois == 5


def test_confounds_of_fmriprep_are_no_scans(tmp_path):
    header = "global_signal,csf,white_matter,framewise_displacement,trans_x"
    write_table(write_scans(tmp_path / "study", PEOPLE, header=header), PEOPLE)
    with pytest.raises(
        BrioError, match=r"5 of its 5 columns are confounds \(global_signal, csf, white_matter, \.\.\.\)"
    ):
        import_cohort("table", tmp_path / "study", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["aal116", "cc200"])
def test_no_region_of_an_atlas_is_named_like_a_nuisance_signal(name):
    assert find_nuisance(load_bundled_atlas(name).rois["name"]) == []


def test_transposed_files_get_a_hint(tmp_path):
    src = write_scans(tmp_path / "study", PEOPLE)
    write_table(src, PEOPLE)
    for i, person in enumerate(PEOPLE):  # as many rows as ROIs, as many columns as frames
        np.savetxt(src / f"{person}.csv", make_frames(i, n_frames=40 + i).T, delimiter=",")
    with pytest.raises(BrioError, match="both have as many rows; if rows are the ROIs, transpose the files"):
        import_cohort("table", src, tmp_path / "out")
    (tmp_path / "rois.csv").write_text("name\n" + "\n".join("abcde"))
    with pytest.raises(BrioError, match="the file has as many rows: if they are the ROIs, transpose the files"):
        import_cohort("table", src, tmp_path / "out", atlas_table=tmp_path / "rois.csv")


@pytest.mark.skipif(sys.platform == "win32", reason="names of files are bytes")
def test_a_name_that_the_terminal_cannot_show_does_not_stop_a_command(tmp_path):
    src = write_scans(Path(os.fsdecode(os.fsencode(str(tmp_path)) + b"/caf\xe9")), PEOPLE)
    write_table(src, PEOPLE)
    words = [sys.executable, "-m", "brio", "import", "table", src, "--out", tmp_path / "caf\u00e9"]
    done = subprocess.run(words, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "wrote Cohort('caf\\\\xe9'" in done.stdout


def test_a_column_of_the_same_meaning_is_suggested_before_one_that_is_spelt_alike(tmp_path):
    table = TextTable(tmp_path / "participants.tsv", ["participant_id", "sex", "Centre"], [])
    refuse(r"no column 'site', did you mean 'Centre'\?.*--site-column", table.require_column, "site", "--site-column")
    table = TextTable(tmp_path / "participants.tsv", ["participant_id", "sex", "clinic"], [])
    refuse("no column 'site', known: clinic, participant_id, sex", table.require_column, "site", "--site-column")


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        (["NYU", "nyu", "NYU", "Yale  1"], "the sites 'NYU' (2 scans) and 'nyu' (1 scan) differ in capitals, blanks"),
        (["1", "1.0", "01", "2"], "the way to write a number alone and count as 3"),
    ],
)
def test_sites_that_are_one_written_in_two_ways_get_a_warning(tmp_path, sites, words):
    src = write_scans(tmp_path / "study", PEOPLE)
    rows = [f"{person},{site},{i % 2}" for i, (person, site) in enumerate(zip(PEOPLE, sites, strict=True))]
    (src / "participants.csv").write_text("\n".join(["participant_id,site,label", *rows]))
    cohort = import_cohort("table", src, tmp_path / "out")
    assert cohort.sites.tolist() == sites
    (warning,) = cohort.provenance["warnings"]
    assert words in warning
    assert json.loads((tmp_path / "out" / "cohort.json").read_text())["provenance"]["warnings"] == [warning]


def test_the_line_that_tells_excel_the_separator_is_no_header(tmp_path):
    src = write_scans(tmp_path / "study", PEOPLE)
    write_table(src, PEOPLE)
    expected = import_cohort("table", src, tmp_path / "a")
    for path in src.glob("*.csv"):
        path.write_text("sep=;\n" + path.read_text().replace(",", ";"))
    assert import_cohort("table", src, tmp_path / "b").fingerprint == expected.fingerprint


@pytest.mark.parametrize(("name", "sep"), [("001.csv", ","), ("001.tsv", "\t"), ("001.txt", " ")])
def test_row_names_of_r_are_named_as_such(tmp_path, name, sep):
    """As write.table(x, file, sep=sep) writes it: the header has no cell for the row names."""
    rows = [sep.join(f'"{cell}"' for cell in ("V1", "V2"))]
    rows += [sep.join((f'"{i + 1}"', *map(str, frame))) for i, frame in enumerate(make_frames(0, n_rois=2))]
    (tmp_path / name).write_text("\n".join(rows))
    refuse(rf"{name}: line 2 has 3 cells, the header 2; .*row\.names=FALSE", read_series, tmp_path / name)


def test_row_names_of_r_in_a_table_are_named_as_such(tmp_path):
    rows = ['"participant_id","site","label"', '"1","p1","A",0', '"2","p2","B",1']
    (tmp_path / "participants.csv").write_text("\n".join(rows))
    with pytest.raises(BrioError, match=r"row 1 has 4 cells, the header 3; .*write\.table\(\.\.\., row\.names=FALSE\)"):
        read_participants(tmp_path / "participants.csv")
    (tmp_path / "participants.csv").write_text("\n".join([rows[0], "p1,A,0,x", "p2,B,1"]))
    refuse(r"row 1 has 4 cells, the header 3$", read_participants, tmp_path / "participants.csv")


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("2001,2002,2101,2102,2111", ["2001", "2002", "2101", "2102", "2111"]),
        ("1,2,3,5,6", ["1", "2", "3", "5", "6"]),
        ("1.0,2.0,3.0,4.0,5.0", ["roi001", "roi002", "roi003", "roi004", "roi005"]),
    ],
)
def test_a_header_of_codes_is_no_frame(tmp_path, header, names):
    frames = np.random.default_rng(0).normal(size=(50, 5))
    rows = [",".join(f"{value:.5f}" for value in frame) for frame in frames]
    (tmp_path / "p1.csv").write_text("\n".join([header, *rows]))
    series = read_series(tmp_path / "p1.csv")
    assert len(series.frames) == 50
    assert list(series.columns or [f"roi{u:03d}" for u in range(1, 6)]) == names
    # whole numbers above whole numbers may be a frame
    (tmp_path / "p2.csv").write_text("\n".join(["7,3,9", "4,5,6", "1,8,2"]))
    assert len(read_series(tmp_path / "p2.csv").frames) == 3


def test_a_region_without_signal_in_every_scan_is_a_warning(tmp_path):
    src = write_scans(tmp_path / "study", PEOPLE)
    for person in PEOPLE:
        frames = np.random.default_rng(0).normal(size=(50, 3))
        path = next(src.glob(f"{person}.*"))
        path.unlink()
        rows = ["".join(f"{value:.4f}," for value in frame) for frame in frames]
        path.with_suffix(".csv").write_text("\n".join(rows))
    write_table(src, PEOPLE)
    cohort = import_cohort("table", src, tmp_path / "out")
    (warning,) = cohort.provenance["warnings"]
    assert warning.startswith("roi004: without signal in every scan")
    assert warning.endswith("--drop-roi roi004")
    assert "warnings" not in import_cohort("table", src, tmp_path / "out2", drop_roi="roi004").provenance


def test_marks_of_missing_values_are_missing_values(tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("participant_id,site,label,age,iq,note\np1,NULL,0,.,98,.\np2,#N/A,1,23,-,-\np3,<NA>,1,24,None,x\n")
    rows = read_participants(table).rows
    assert [row["site"] for row in rows] == [None, None, None]
    assert [row["age"] for row in rows] == [None, "23", "24"]
    assert [row["iq"] for row in rows] == ["98", None, None]
    assert [row["note"] for row in rows] == [".", "-", "x"]  # text may be anything
    scans = [np.random.default_rng(i).normal(size=(50, 3)) for i in range(2)]
    with pytest.raises(BrioError, match=r"age of participant s00002 is -9999\.0, which seems to be a code for a"):
        Cohort.from_scans(scans, site=["A", "A"], label=[0, 1], covariates=pd.DataFrame({"age": [20.0, -9999.0]}))
