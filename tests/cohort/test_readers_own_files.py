"""Files as people have them: spellings of columns, spreadsheets, an index among the ROIs, and the words that help."""

import contextlib
import io
import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from file_layouts import (
    PEOPLE,
    check,
    check_scans,
    list_skipped,
    make_frames,
    refuse,
    refuse_import,
    write_csv,
    write_study,
)
from scipy.io import savemat

from brio import BrioError, Cohort
from brio.cli import main
from brio.cohort import Atlas, load_bundled_atlas
from brio.cohort.readers import find_layout, import_cohort, read_scans_to_predict, summarise_columns, summarise_import
from brio.cohort.readers.participants import TextTable, read_participants
from brio.cohort.readers.rois import find_nuisance
from brio.cohort.readers.series import find_row_counters, read_series
from commands import command

# ---------------------------------------------------------------- names of columns

COVARIATES = [f"{p},{'AB'[i % 2]},{i // 2},{20 + i},{'FM'[i % 2]},0.1{i},2" for i, p in enumerate(PEOPLE)]


@pytest.mark.parametrize("mean_fd", ["MeanFD", "meanFD", "mean_FD", "FD_mean", "Mean FD"])
def test_capitals_and_signs_in_names_of_columns_do_not_matter(tmp_path, mean_fd):
    header = "participant_id,site,label,age,sex,mean_fd,tr"
    plain = write_study(tmp_path / "plain", header=header, rows=COVARIATES)
    header = f"Participant_ID,Site,LABEL,Age,SEX,{mean_fd},TR"
    other = write_study(tmp_path / "other", header=header, rows=COVARIATES)
    expected, cohort = (import_cohort("table", src, tmp_path / f"{src.name}-out") for src in (plain, other))
    assert cohort.fingerprint == expected.fingerprint
    assert "renamed_columns" not in expected.provenance
    found = "columns that some methods need: "
    assert summarise_columns(expected) == f"{found}age, mean_fd, sex, tr"
    renamed = f"age (column 'Age'), mean_fd (column '{mean_fd}'), sex (column 'SEX'), tr (column 'TR')"
    assert summarise_columns(cohort) == found + renamed
    assert read_scans_to_predict(other, tmp_path / "c", kind="table").fingerprint == expected.fingerprint


def test_columns_that_were_not_found_are_said(tmp_path):
    src = write_study(tmp_path / "study", header="participant_id,site,label,years,sex,fd,tr_ms", rows=COVARIATES)
    cohort = import_cohort("table", src, tmp_path / "out")
    assert summarise_columns(cohort) == "columns that some methods need: sex; not found: age, mean_fd, tr"


def test_two_columns_that_would_become_one_are_refused(tmp_path):
    src = write_study(tmp_path / "a", header="participant_id,site,label,age,Sex,MeanFD,FD_mean", rows=COVARIATES)
    refuse_import(r"columns 'MeanFD' and 'FD_mean' would both be read as 'mean_fd'; rename", src)
    src = write_study(tmp_path / "b", header="participant_id,Site,label,SITE,Sex,a,b", rows=COVARIATES)
    refuse(r"columns 'Site' and 'SITE' would both be read as 'site'", import_cohort, "table", src, tmp_path / "out")
    assert import_cohort("table", src, tmp_path / "out", site_column="Site").sites.tolist() == ["A", "B"] * 2


def test_the_exact_name_stays_and_others_are_kept_beside_it(tmp_path):
    src = write_study(tmp_path / "study", header="participant_id,site,label,age,sex,mean_fd,Age", rows=COVARIATES)
    cohort = import_cohort("table", src, tmp_path / "out")
    check(cohort, age=[20, 21, 22, 23], Age=[2, 2, 2, 2])
    assert "renamed_columns" not in cohort.provenance


def test_a_column_that_an_option_names_is_not_a_covariate(tmp_path):
    src = write_study(tmp_path / "study", header="participant_id,TR,x,Age,Sex,MeanFD,y", rows=COVARIATES)
    cohort = import_cohort("table", src, tmp_path / "out", site_column="TR", label_column="Sex", patient="F")
    assert cohort.labels.tolist() == [1, 0, 1, 0]
    assert not {"sex", "tr", "Sex", "TR"} & set(cohort.participants)
    assert cohort.provenance["renamed_columns"] == {"age": "Age", "mean_fd": "MeanFD"}


def test_session_and_file_are_found_in_any_capitals(tmp_path):
    rows = ["p1,A,0,1,p2.npy", "p1,A,0,2,p1.npy", "p3,B,1,1,p4.npy"]
    src = write_study(tmp_path / "study", header="participant_id,site,label,Session,File", rows=rows)
    assert find_layout(src) == "table"
    cohort = import_cohort("table", src, tmp_path / "out", sessions="all")
    assert cohort.ids.tolist() == ["p1_ses-1", "p1_ses-2", "p3_ses-1"]
    np.testing.assert_allclose(cohort.scan(0), np.load(src / "p2.npy"), rtol=1e-6)
    assert cohort.provenance["renamed_columns"] == {"session": "Session", "file": "File"}
    assert not {"Session", "File", "file"} & set(cohort.participants)


@pytest.mark.parametrize("kind", ["table", "fc", "bids"])
def test_the_column_of_the_participant_can_be_named(tmp_path, kind):
    header = "Subject,site,label,participant_id,sex,mean_fd,tr"
    src = write_study(tmp_path / "study", header=header, rows=COVARIATES)
    for person in PEOPLE:
        frames = np.load(src / f"{person}.npy")
        if kind == "fc":
            np.save(src / f"{person}.npy", np.corrcoef(frames.T))
        elif kind == "bids":
            lines = ["a\tb\tc\td\te", *("\t".join(map(str, row)) for row in frames)]
            (src / f"sub-{person}_atlas-X_timeseries.tsv").write_text("\n".join(lines))
    refuse(r"no (file|time series)", import_cohort, kind, src, tmp_path / "out")
    cohort = import_cohort(kind, src, tmp_path / "out", id_column="Subject")
    check(cohort, ids=PEOPLE, participant_id_in_source=[20, 21, 22, 23])
    assert cohort.provenance["options"]["id_column"] == "Subject"
    message = r"no column 'subject'; did you mean 'Subject'\?.*give the right column with --id-column"
    refuse_import(message, src, kind, id_column="subject")


# ---------------------------------------------------------------- columns that count the rows

NAMES = list("abcde")


def write_pandas(columns=None, **options):
    return lambda frames, path: pd.DataFrame(frames, columns=columns).to_csv(f"{path}.csv", **options)


def write_named(column: str, position: int = 0, step: float = 1.0, start: float = 0.0):
    def write(frames: np.ndarray, path: Path) -> None:
        table = pd.DataFrame(frames, columns=NAMES)
        table.insert(position, column, start + step * np.arange(len(frames)))
        table.to_csv(path.with_suffix(".csv"), index=False)

    return write


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("corner", ["", "frame", "Unnamed: 0"])
def test_the_index_beside_numbered_columns_is_left_out_with_a_warning(tmp_path, base, corner):
    write = write_pandas(np.arange(5) + base, index_label=corner or None)
    cohort = import_cohort("table", write_study(tmp_path / "study", write=write), tmp_path / "out")
    plain = import_cohort("table", write_study(tmp_path / "plain"), tmp_path / "plain-out")
    assert cohort.fingerprint == plain.fingerprint
    (warning,) = cohort.provenance["warnings"]
    column = f"column 1 ('{corner}')" if corner else "column 1"
    assert f"p1.csv: {column} contains only row numbers" in warning
    assert warning.endswith("was left out in 4 of 4 scans")


@pytest.mark.parametrize(
    "write",
    [
        write_named("volume"),
        write_named("index", start=1),
        write_named("time", step=0.72),  # not exact in float32
        write_named("time", step=-2.5, start=1000.0),
        write_named("Insula", position=3),
    ],
)
def test_a_named_column_that_counts_is_refused_until_it_is_dropped(tmp_path, write):
    src = write_study(tmp_path / "study", write=write)
    columns = read_series(src / "p1.csv").columns
    (name,) = set(columns) - set(NAMES)
    column = rf"column {columns.index(name) + 1} \('{name}'\)"
    expected = rf"p1\.csv: {column} contains only row numbers .*--drop-roi {name}$"
    refuse_import(expected, src)
    refuse(expected, read_scans_to_predict, src / "p1.csv", tmp_path / "out", kind="table")
    cohort = import_cohort("table", src, tmp_path / "out", drop_roi=name)
    np.testing.assert_array_equal(cohort.scan(2), make_frames(2))


def add_index(frames: np.ndarray) -> np.ndarray:
    return np.column_stack([np.arange(len(frames)), frames])


@pytest.mark.parametrize(
    "write",
    [
        write_pandas(header=False),
        lambda frames, path: np.save(path.with_suffix(".npy"), add_index(frames)),
        lambda frames, path: np.savetxt(path.with_suffix(".1D"), add_index(frames)),
        lambda frames, path: savemat(path.with_suffix(".mat"), {"ROISignals": add_index(frames)}),
    ],
)
def test_an_index_without_header_is_refused_in_every_format(tmp_path, write):
    src = write_study(tmp_path / "study", write=write)
    for options in ({}, {"atlas": "aal116"}):
        refuse_import(r"p1\.\w+: column 1 \('roi001'\) contains only row numbers \(0, 1, .*roi001", src, **options)
    cohort = import_cohort("table", src, tmp_path / "out", drop_roi="roi001")
    np.testing.assert_allclose(cohort.scan(2), make_frames(2), rtol=1e-6)


def test_a_nameless_column_that_does_not_count_is_refused(tmp_path):
    frames = pd.DataFrame(make_frames(0), index=np.arange(60) ** 2)
    frames.to_csv(tmp_path / "a.csv")
    refuse(r"a\.csv: column 1 has no name in the header; .*index=False", read_series, tmp_path / "a.csv")
    frames.set_axis([f"t{i}" for i in range(60)]).to_csv(tmp_path / "b.csv")
    refuse(r"b\.csv: column 1 has no name in the header; .*names the rows", read_series, tmp_path / "b.csv")


def test_noise_on_a_large_mean_is_no_line():
    """Steps that float32 cannot hold look like a line to rounding, not to the rule."""
    noise = np.random.default_rng(0).normal(size=(200, 300)).astype(np.float32)
    for mean, scale in ((0, 1), (1e4, 1e-3), (1e6, 1e-6)):
        assert find_row_counters(np.float32(mean) + np.float32(scale) * noise).size == 0
    line = np.arange(200, dtype=np.float32)
    assert find_row_counters(np.column_stack([noise[:, :2], line, 3 - line / 7, noise])).tolist() == [2, 3]
    line[50] += 0.01
    assert find_row_counters(line[:, None]).size == 0


@pytest.mark.parametrize("drop", [["Unnamed: 0"], ["Unnamed: 0", "b"]])
def test_an_index_that_was_left_out_may_be_dropped_too(tmp_path, drop):
    src = write_study(tmp_path / "study", write=write_pandas(NAMES, index_label="Unnamed: 0"))
    cohort = import_cohort("table", src, tmp_path / "out", drop_roi=drop)
    assert cohort.atlas.rois["name"].tolist() == [name for name in NAMES if name not in drop]
    refuse_import("has no ROI 'Unnamed: 1' to drop", src, drop_roi="Unnamed: 1")


# ---------------------------------------------------------------- names of files, sessions, labels, regions

NUMBERS = ["001", "002", "003", "004"]


@pytest.mark.parametrize(
    ("files", "ids", "hint"),
    [
        (
            [f"sub-{p}" for p in NUMBERS],
            NUMBERS,
            "file names begin with 'sub-'; add it to the ids in the table, for example sub-001",
        ),
        (
            [f"study_{p}_rest" for p in NUMBERS],
            NUMBERS,
            "file names begin with 'study_'; add it to the ids in the table, for example study_001",
        ),
        (NUMBERS, [f"sub-{p}" for p in NUMBERS], "file names lack 'sub-'; leave it out in the table"),
        (NUMBERS, ["1", "2", "3", "4"], "ids in the table lack the leading zeros of the file names"),
        (
            ["sub-001", "sub-002", "sub-003", "sub-004"],
            ["1", "2", "3", "4"],
            "ids in the table lack the prefix and the leading zeros",
        ),
        (NUMBERS, ["1.0", "2.0", "3.0", "4.0"], "ids became decimals (7.0); write them as text"),
        (
            [f"VP{p}_rest" for p in NUMBERS],
            [f"vp{p}" for p in NUMBERS],
            "file names differ in capitals; write the ids",
        ),
    ],
)
def test_ids_that_are_written_in_another_way_get_a_hint(tmp_path, files, ids, hint):
    write_study(tmp_path / "study", files, ids=ids)
    refuse_import(rf"no file whose name starts with the participant_id \({re.escape(hint)}", tmp_path / "study")


def test_one_row_with_several_sessions_reads_them_from_the_names_of_the_files(tmp_path):
    names = [f"{p}_ses-{s}" for p in NUMBERS for s in ("2", "10")] + ["005"]
    write_study(tmp_path / "study", names, ids=[*NUMBERS, "005"])
    refuse_import(r"4 of 5 participants have several scans \(001: sessions 2, 10\)", tmp_path / "study")
    cohort = import_cohort("table", tmp_path / "study", tmp_path / "out", sessions="all")
    assert cohort.ids.tolist()[:2] == ["001_ses-2", "001_ses-10"]
    np.testing.assert_allclose(cohort.scan(1), make_frames(1), rtol=1e-5)
    assert len(cohort) == 9


@pytest.mark.parametrize("sessions", ["join", "average"])
@pytest.mark.parametrize("change", ["copy", "cut", "scaled"])
def test_a_scan_that_is_stored_under_two_sessions_is_found_before_it_is_joined(tmp_path, sessions, change):
    names = [f"{p}_ses-{s}" for p in NUMBERS for s in "12"]
    src = write_study(tmp_path / "study", names, write_csv, ids=NUMBERS)
    assert len(import_cohort("table", src, tmp_path / "out", sessions=sessions)) == 4
    first = make_frames(2)
    copy = {"copy": first, "cut": first[5:], "scaled": 3 + 2 * first}[change]
    np.savetxt(src / "002_ses-2.csv", copy, delimiter=",")
    refuse_import(r"002_ses-2\.csv: seems to be the same scan as .*002_ses-1\.csv", src, sessions=sessions)


def test_a_mistyped_label_is_said_to_be_one(tmp_path):
    rows = ["001,A,MDD", "002,A,HCT", "003,B,HCTS", "004,B,MDD"]
    src = write_study(tmp_path / "study", NUMBERS, header="participant_id,site,dx", rows=rows)
    cohort = import_cohort("table", src, tmp_path / "out", label_column="dx", patient="MDD", control="HCT")
    assert summarise_import(cohort) == (
        "3 scans imported, 1 row or file skipped: label 'HCTS' is neither patient nor control (mistyped 'HCT'?) (1); "
        "see 'skipped' in cohort.json"
    )


NUISANCE = ["GlobalSignal", "global_signal", "GlobSig", "CSF", "csf_mean", "white matter", "Framewise_displacement"]
NUISANCE += ["rot_x", "X_trans", "trans_y_derivative1_power2", "std_dvars", "a_comp_cor_01", "motion_outlier02", "rmsd"]


def test_a_column_that_is_hardly_a_region_is_refused(tmp_path):
    """Confounds alone, and the way to leave one out: tests/ordinary."""
    assert find_nuisance([*NUISANCE, "FD"]) == [*NUISANCE, "FD"]
    for name in ("aal116", "cc200"):
        assert find_nuisance(load_bundled_atlas(name).rois["name"]) == []
    header = "a,b,c,global_signal,e"
    src = write_study(tmp_path / "study", NUMBERS, partial(write_csv, header=header))
    refuse_import(r": global_signal; .*--drop-roi global_signal.*--atlas-table", src)
    confounds = write_study(tmp_path / "confounds", write=partial(write_csv, header="csf,trans_x,rot_z,dvars,e"))
    refuse_import(r"4 of 5 columns are named like nuisance signals \(csf, trans_x, rot_z and 1 more\)", confounds)
    (tmp_path / "rois.csv").write_text("\n".join(["name", *header.split(",")]))
    assert import_cohort("table", src, tmp_path / "out", atlas_table=tmp_path / "rois.csv").n_rois == 5


def test_transposed_files_get_a_hint(tmp_path):
    src = write_study(tmp_path / "study")
    for i, person in enumerate(PEOPLE):  # as many rows as ROIs, as many columns as frames
        np.save(src / f"{person}.npy", make_frames(i, n_frames=40 + i).T)
    refuse_import("both have the same number of rows; if rows are the ROIs, transpose the files", src)
    (tmp_path / "rois.csv").write_text("name\n" + "\n".join("abcde"))
    message = "if the rows of the file are the ROIs, transpose"
    refuse_import(message, src, atlas_table=tmp_path / "rois.csv")


@pytest.mark.skipif(sys.platform == "win32", reason="names of files are bytes")
def test_a_name_that_the_terminal_cannot_show_does_not_stop_a_command(tmp_path, monkeypatch):
    src = write_study(Path(os.fsdecode(os.fsencode(str(tmp_path)) + b"/caf\xe9")))
    monkeypatch.setattr(sys, "argv", ["brio", "import", "table", str(src), "--out", str(tmp_path / "caf\u00e9")])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    main()
    assert b"wrote Cohort('caf\\\\xe9'" in sys.stdout.buffer.getvalue()


@pytest.mark.parametrize(
    ("columns", "wanted", "hint"),
    [
        (
            ["participant_id", "sex", "Centre"],
            "site",
            "did you mean 'Centre'? The columns are participant_id, sex, Centre;",
        ),
        (["participant_id", "sex", "clinic"], "site", "its columns are participant_id, sex, clinic;"),
        (["subject_id", "site"], "participant_id", "did you mean 'subject_id'? The columns are subject_id, site;"),
        (["Versuchsperson", "site"], "participant_id", "its columns are Versuchsperson, site;"),
    ],
)
def test_a_column_of_the_same_meaning_is_suggested_before_one_that_is_spelt_alike(tmp_path, columns, wanted, hint):
    table = TextTable(tmp_path / "participants.tsv", columns, [])
    message = re.escape(f"no column '{wanted}'; {hint} give the right column with --column")
    refuse(message, table.require_column, wanted, "--column")


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        (
            ["NYU", "nyu", "NYU", "Yale  1"],
            "'NYU' (2 scans) and 'nyu' (1 scan) count as 2 sites; if they are one site",
        ),
        (["1", "1.0", "01", "2"], "count as 3 sites; if they are one site"),
        (["10", "1e1", "B", "B"], "count as 2 sites; if they are one site"),
        (["site_1", "site 1", "Site-01", "Site2"], "count as 3 sites; if they are one site"),
        (["A", "\u0410", "B", "B"], "count as 2 sites; if they are one site"),
    ],
)
def test_sites_that_are_one_written_in_two_ways_get_a_warning(tmp_path, sites, words):
    rows = [f"{person},{site},{i % 2}" for i, (person, site) in enumerate(zip(PEOPLE, sites, strict=True))]
    src = write_study(tmp_path / "study", rows=rows)
    cohort = import_cohort("table", src, tmp_path / "out")
    assert cohort.sites.tolist() == [" ".join(site.split()) for site in sites]
    (warning,) = cohort.provenance["warnings"]
    assert words in warning
    assert json.loads((tmp_path / "out" / "cohort.json").read_text())["provenance"]["warnings"] == [warning]


def test_a_site_that_reads_like_a_missing_value_is_said(tmp_path):
    sites = ["NA", "e\u0301", "\u00e9", "B", "nan", "NA", "n/a", "", "B", "B"]
    people = [f"p{i}" for i in range(10)]
    rows = [f"{person},{site},{i % 2}" for i, (person, site) in enumerate(zip(people, sites, strict=True))]
    cohort = import_cohort("table", write_study(tmp_path / "study", people, rows=rows), tmp_path / "out")
    assert cohort.sites.tolist() == ["\u00e9", "\u00e9", "B", "B", "B"]
    told = summarise_import(cohort)
    assert "'NA' (2)" in told
    assert "'nan' (1)" in told
    assert "'site' (2)" in told


@pytest.mark.parametrize(("sites", "kept"), [(["None", "1", "2", "2"], 3), (["-", "\u0663", "1", "1"], 4)])
def test_a_sign_for_a_missing_number_is_said_too(tmp_path, sites, kept):
    rows = [f"{person},{site},{i // 2}" for i, (person, site) in enumerate(zip(PEOPLE, sites, strict=True))]
    cohort = import_cohort("table", write_study(tmp_path / "study", rows=rows), tmp_path / "out")
    assert cohort.sites.tolist() == sites[-kept:]
    assert ("'None' (1)" in summarise_import(cohort)) == ("None" in sites)


def test_the_line_that_tells_excel_the_separator_is_no_header(tmp_path):
    src = write_study(tmp_path / "study", write=write_csv)
    expected = import_cohort("table", src, tmp_path / "a")
    for path in src.glob("*.csv"):
        path.write_text("sep=;\n" + path.read_text().replace(",", ";"))
    assert import_cohort("table", src, tmp_path / "b").fingerprint == expected.fingerprint


@pytest.mark.parametrize(("name", "sep"), [("001.csv", ","), ("001.tsv", "\t"), ("001.txt", " ")])
def test_row_names_of_r_are_named_as_such(tmp_path, name, sep):
    """As write.table(x, file, sep=sep) writes it: the header has no cell for the row names."""
    rows = [sep.join(f'"{cell}"' for cell in ("V1", "V2"))]
    rows += [sep.join((f'"{i + 1}"', *map(str, frame))) for i, frame in enumerate(make_frames(0, 2))]
    (tmp_path / name).write_text("\n".join(rows))
    refuse(rf"{name}: line 2 has 3 cells where 2 were expected; .*row\.names=FALSE", read_series, tmp_path / name)


def test_row_names_of_r_in_a_table_are_named_as_such(tmp_path):
    rows = ['"participant_id","site","label"', '"1","p1","A",0', '"2","p2","B",1']
    (tmp_path / "participants.csv").write_text("\n".join(rows))
    hint = r"; .*write\.table\(\.\.\., row\.names=FALSE\)"
    for lines, words in ((rows, hint), ([rows[0], "p1,A,0,x", "p2,B,1"], "$")):
        (tmp_path / "participants.csv").write_text("\n".join(lines))
        refuse(rf"row 1 has 4 cells, but the header has 3{words}", read_participants, tmp_path / "participants.csv")


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


CODES = (2001, 2002, 2101, 2102, 2111)


def write_whole(seed: int, path: Path, header: Sequence[object] | None, ending: str, look: str = "") -> np.ndarray:
    """Write whole numbers under a header; ``look`` says what is special about the text."""
    frames = np.random.default_rng(seed).integers(-500 if look == "negative" else 0, 1000, size=(50, 5)).astype(float)
    frames = frames / 7 if look == "decimals" else frames
    frames[3] = 0  # a frame that was censored
    sep = {".csv": ",", ".tsv": "\t", ".1D": " ", ".txt": "  ", ".semicolons.csv": ";"}[ending]
    digits = "{:.6g}" if look == "decimals" else "{:.1f}" if look in ("floats", "commas") else "{:.0f}"
    rows = [sep.join(digits.format(v) for v in row) for row in frames]
    rows = [row.replace(".", ",") for row in rows] if look == "commas" else rows
    names = [
        f'"{name}"' if look == "quotes" else f"{name}.0" if look == "floats.0" else str(name) for name in header or ()
    ]
    if look == "index":
        names, rows = ["", *names], [f"{k}{sep}{row}" for k, row in enumerate(rows)]
    path.with_name(path.name + ending).write_text("\n".join([sep.join(names)] * bool(names) + rows) + "\n")
    return np.array([[float(digits.format(v)) for v in row] for row in frames], dtype=np.float32)


@pytest.mark.parametrize("header", [CODES, (7, 3, 9, 1, 12), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize(
    ("ending", "look", "alone"),
    [
        (".csv", "", False),
        (".tsv", "", False),
        (".1D", "", False),
        (".txt", "", False),
        (".semicolons.csv", "", False),
        (".csv", "negative", False),
        (".csv", "decimals", True),
        (".csv", "floats", True),
        (".csv", "floats.0", False),
        (".semicolons.csv", "commas", True),
        (".csv", "index", True),
        (".tsv", "quotes", True),
        (".txt", "quotes", True),
    ],
)
def test_a_header_of_numbers_is_no_frame_in_any_format(tmp_path, header, ending, look, alone):
    written: list[np.ndarray] = []
    src = write_study(
        tmp_path / "s", write=lambda _, path: written.append(write_whole(len(written), path, header, ending, look))
    )
    cohort = import_cohort("table", src, tmp_path / "out")
    check_scans(cohort, written)
    is_order = header == (1, 2, 3, 4, 5)
    names = [str(name) + ".0" * (look == "floats.0") for name in header]
    assert cohort.atlas.rois["name"].tolist() == ([f"roi{u:03d}" for u in range(1, 6)] if is_order else names)
    one = src / f"p1{ending}"
    if alone or is_order:
        check_scans(read_scans_to_predict(one, tmp_path / "one"), written[:1])
    else:
        refuse("p1.*header or a frame", read_scans_to_predict, one, tmp_path / "one")
        one.write_text(f"#{one.read_text()}")  # as the message says
        check_scans(read_scans_to_predict(one, tmp_path / "one"), written[:1])


@pytest.mark.parametrize("look", ["", "negative"])
def test_first_frames_of_whole_numbers_stay_frames(tmp_path, look):
    written: list[np.ndarray] = []
    src = write_study(
        tmp_path / "s", write=lambda _, path: written.append(write_whole(len(written), path, None, ".csv", look))
    )
    path = src / "p1.csv"  # by chance in order
    path.write_text("\n".join(["1,2,3,4,5", *path.read_text().splitlines()[1:]]))
    written[0][0] = 1, 2, 3, 4, 5
    check_scans(import_cohort("table", src, tmp_path / "out"), written)


def test_an_index_makes_any_row_of_numbers_a_header(tmp_path):
    written: list[np.ndarray] = []
    src = write_study(
        tmp_path / "s",
        write=lambda _, path: written.append(write_whole(len(written), path, (1, 1, 2, 2, 3), ".csv", "index")),
    )
    check_scans(import_cohort("table", src, tmp_path / "out"), written)
    check_scans(read_scans_to_predict(src / "p1.csv", tmp_path / "one"), written[:1])


def test_a_frame_of_whole_numbers_among_decimals_stays_a_frame_beside_other_files(tmp_path):
    src = write_study(tmp_path / "s", write=write_csv)
    rows = (src / "p1.csv").read_text().splitlines()
    (src / "p1.csv").write_text("\n".join(["7,3,9,1,12", *rows[1:]]))
    assert import_cohort("table", src, tmp_path / "out").n_frames.tolist() == [60] * 4
    (src / "p2.csv").write_text("\n".join(["1,1,2,2,3", *rows]))  # alone, and not different: no header to be sure of
    refuse("header or a frame", read_scans_to_predict, src / "p2.csv", tmp_path / "one")


def test_copies_of_one_file_do_not_make_its_first_frame_a_header(tmp_path):
    src = write_study(tmp_path / "s", write=lambda _, path: write_whole(0, path, None, ".csv"))
    refuse_import("header or a frame", src)


def test_a_file_without_the_shared_header_is_left_out_by_name(tmp_path):
    names = [f"p{i}" for i in range(10)]
    src = write_study(tmp_path / "s", names, lambda f, path: write_whole(int(path.name[1]), path, CODES, ".csv"))
    lines = (src / "p7.csv").read_text().splitlines()
    (src / "p7.csv").write_text("\n".join(lines[1:]))
    (src / "p6.csv").write_text(
        "\n".join(",".join(line.split(",")[:4]) for line in (src / "p6.csv").read_text().splitlines())
    )
    cohort = import_cohort("table", src, tmp_path / "out")
    assert cohort.n_frames.tolist() == [50] * 8
    assert {*list_skipped(cohort)} == {"p6", "p7"}


def test_codes_above_connectomes_are_a_header(tmp_path):
    def write(frames: np.ndarray, path: Path) -> None:
        rows = [",".join(f"{value:.6g}" for value in row) for row in np.corrcoef(frames.T)]
        path.with_suffix(".csv").write_text("\n".join([",".join(map(str, CODES)), *rows]))

    cohort = import_cohort("fc", write_study(tmp_path / "s", write=write), tmp_path / "out")
    assert cohort.atlas.rois["name"].tolist() == list(map(str, CODES))
    assert cohort.n_frames.tolist() == [5] * 4


def test_a_region_without_signal_in_every_scan_is_a_warning_and_no_index(tmp_path):
    def write(frames: np.ndarray, path: Path) -> None:
        frames[:, :3] = 0.0, 7.5, np.nan
        rows = ["".join(f"{value:.4f}," for value in frame) for frame in frames]
        path.with_suffix(".csv").write_text("\n".join(rows))

    src = write_study(tmp_path / "study", write=write)
    cohort = import_cohort("table", src, tmp_path / "out")
    assert cohort.n_rois == 6
    (warning,) = cohort.provenance["warnings"]
    assert warning.startswith("roi001, roi002, roi003, roi006: no signal in any scan")
    assert warning.endswith(" --drop-roi roi006")
    drop = ["roi001", "roi002", "roi003", "roi006"]
    assert "warnings" not in import_cohort("table", src, tmp_path / "out2", drop_roi=drop).provenance


def test_marks_of_missing_values_are_missing_values(tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("participant_id,site,label,age,iq,note\np1,NULL,0,.,98,.\np2,#N/A,1,23,-,-\np3,<NA>,1,24,None,x\n")
    rows = read_participants(table).rows
    assert [row["site"] for row in rows] == [None, None, None]
    assert [row["age"] for row in rows] == [None, "23", "24"]
    assert [row["iq"] for row in rows] == ["98", None, None]
    assert [row["note"] for row in rows] == [".", "-", "x"]  # text may be anything
    scans = [np.random.default_rng(i).normal(size=(50, 3)) for i in range(2)]
    with pytest.raises(BrioError, match=r"age of participant s00002 is -9999\.0, which looks like a code for a"):
        Cohort.from_scans(scans, site=["A", "A"], label=[0, 1], covariates=pd.DataFrame({"age": [20.0, -9999.0]}))


@pytest.mark.parametrize(
    ("age", "says"),
    [
        (["20", "twenty", "21"], "age of participant s00002 is twenty, which is not a number; correct the cell"),
        ([20, 999, 21], "age of participant s00002 is 999, which looks like a code for a missing value"),
        (["18-20", "21-25", "21-25"], ""),
        ([20, None, 21.5], ""),
    ],
)
def test_an_age_that_is_no_age_is_named_unless_the_whole_column_is_text(age, says):
    scans = [np.random.default_rng(i).normal(size=(50, 3)) for i in range(3)]
    with pytest.raises(BrioError, match=says) if says else contextlib.nullcontext():
        Cohort.from_scans(scans, site=["A"] * 3, label=[0, 1, 1], covariates=pd.DataFrame({"age": age}))


# ---------------------------------------------------------------- spreadsheets in other languages, damaged archives


def write_text(path: Path, lines: list[str], mark: str = "\ufeff") -> Path:
    path.write_bytes((mark + "".join(f"{line}\r\n" for line in lines)).encode())
    return path


def format_rows(frames: np.ndarray, delimiter: str) -> list[str]:
    return [delimiter.join(f"{value:.5f}".replace(".", ",") for value in row) for row in frames]


@pytest.mark.parametrize(
    ("name", "delimiter"), [("p.csv", ";"), ("p.csv", "\t"), ("p.tsv", "\t"), ("p.txt", " "), ("p.1D", ";")]
)
def test_decimal_commas_are_read_with_and_without_a_header(tmp_path, name, delimiter):
    frames = make_frames(0, 4)
    rows = format_rows(frames, delimiter)
    series = read_series(write_text(tmp_path / name, rows))
    assert series.columns is None
    np.testing.assert_array_equal(series.frames, frames)
    header = delimiter.join(["a", "b", "c", "d"])
    series = read_series(write_text(tmp_path / name, [header, *rows]))
    assert series.columns == ("a", "b", "c", "d")
    np.testing.assert_array_equal(series.frames, frames)


def test_names_with_commas_stay_between_semicolons_and_missing_values_are_missing(tmp_path):
    path = write_text(tmp_path / "p.csv", ["Gyrus, left;Gyrus, right", "1,5;n/a", ";2,25"])
    series = read_series(path)
    assert series.columns == ("Gyrus, left", "Gyrus, right")
    np.testing.assert_array_equal(series.frames, np.array([[1.5, np.nan], [np.nan, 2.25]], dtype=np.float32))


@pytest.mark.parametrize("lines", [["1,250\t980", "1,251\t981"], ["1.250,5;1", "1.251,5;2"], ["0.5;1,5", "1,5;0.5"]])
def test_numbers_that_may_mean_two_things_are_refused(tmp_path, lines):
    path = write_text(tmp_path / "p.csv", lines)
    refuse("is not a number; use a decimal point and no thousands separators", read_series, path)


def test_a_spreadsheet_in_another_language_is_imported(tmp_path):
    people = ['participant_id;Zentrum;Diagnose;age;code;"Größe, cm"']
    for i in range(4):
        write_text(tmp_path / f"VP {i} (Ä)_ses-1.csv", ["a;b;c;d", *format_rows(make_frames(i, 4), ";")])
        people.append(f"VP {i} (Ä);{'München' if i < 2 else 'Wien'};{'krank' if i % 2 else 'gesund'};2{i},5;1,00{i};")
    write_text(tmp_path / "participants.csv", ["", *people])
    options = {"site_column": "Zentrum", "label_column": "Diagnose", "patient": "krank"}
    cohort = import_cohort("table", tmp_path, tmp_path / "out", **options)
    check(cohort, age=[20.5, 21.5, 22.5, 23.5], code=[1.0, 1.001, 1.002, 1.003])
    assert cohort.sites.tolist() == ["München", "München", "Wien", "Wien"]
    assert cohort.ids.tolist()[0] == "VP 0 (Ä)"
    np.testing.assert_array_equal(cohort.scan(3), make_frames(3, 4))


def test_thousands_and_text_with_commas_stay_as_they_are(tmp_path):
    table = read_participants(write_text(tmp_path / "t.tsv", ["a\tb\tc", "1,250\tx,y\t2,5", "980\tz\tn/a"]))
    assert table.rows == [{"a": "1,250", "b": "x,y", "c": "2.5"}, {"a": "980", "b": "z", "c": None}]


def test_a_workbook_is_named_as_one(tmp_path):
    (tmp_path / "people.xlsx").write_bytes(b"PK\x03\x04" + bytes(40))
    refuse_import(
        r"it is a workbook.*save the sheet as CSV in UTF-8, or unpack the archive", tmp_path, participants="people.xlsx"
    )


@pytest.mark.parametrize(
    ("ids", "options"),
    [("participant_id", {}), ("Subject", {"id_column": "Subject"}), ("Proband", {"id_column": "Proband"})],
)
def test_the_only_table_of_a_folder_is_taken_and_said(tmp_path, ids, options):
    src = write_study(tmp_path / "s", write=partial(write_csv, header="a,b,c,d,e"), header=f"{ids},site,label")
    (src / "participants.csv").rename(src / "clinical.csv")
    (src / "notes.tsv").write_text("day\tnote\n1\tnone\n")
    cohort = import_cohort("table", src, tmp_path / "out", match="p[1-4].csv", **options)
    assert cohort.ids.tolist() == PEOPLE
    assert any("clinical.csv" in line for line in cohort.provenance["warnings"])
    assert cohort.provenance["options"]["participants"] == "clinical.csv"
    (src / "notes.tsv").unlink()
    options |= {"site_column": "site"}
    assert read_scans_to_predict(src, tmp_path / "new", **options).labels.tolist() == [0, 0, 1, 1]
    (src / "second.csv").write_text(f"{ids},x\np1,2\n")
    refuse_import("clinical.csv and second.csv", src, **options)


def test_a_folder_without_table_or_scans_is_refused(tmp_path):
    src = write_study(tmp_path / "s", header="name,site,label")
    (src / "participants.csv").rename(src / "clinical.csv")
    refuse_import("no participants.tsv", src)
    (tmp_path / "t").mkdir()
    write_text(tmp_path / "t" / "people.csv", ["participant_id;age", "p1;20,5"])
    refuse("--participants", read_scans_to_predict, tmp_path / "t", tmp_path / "out")


@pytest.mark.parametrize("option", ["sex_column", "age_column", "site_column", "id_column"])
@pytest.mark.parametrize("kind", ["table", "bids", "fc"])
def test_a_column_cannot_be_the_label_and_something_else(tmp_path, option, kind):
    src = write_study(tmp_path / "s", header="participant_id,site,Male")
    if kind == "bids":
        write_csv(make_frames(0), src / "sub-p1_atlas-T_timeseries")
        (src / "sub-p1_atlas-T_timeseries.csv").rename(src / "sub-p1_atlas-T_timeseries.tsv")
    refuse_import("'Male'", src, kind, label_column="Male", **{option: "Male"})


def test_codes_of_missing_values_are_said_until_they_are_named(tmp_path):
    rows = [f"p{i},{'AB'[i % 2]},{i // 2 % 2},{100 + i},{i},{i},{600 + 80 * i},{20230100 + i}" for i in range(1, 7)]
    for row, column, code in ((0, 3, "-99"), (1, 3, "-99.0"), (2, 4, "999"), (3, 2, "-99")):
        cells = rows[row].split(",")
        cells[column] = code
        rows[row] = ",".join(cells)
    header = "participant_id,site,label,iq,bdi,score,reaction,day"
    src = write_study(
        tmp_path / "s", [f"p{i}" for i in range(1, 7)], header=header, rows=[r.replace("-99,1", "-99,1") for r in rows]
    )
    before = import_cohort("table", src, tmp_path / "before", patient="1", control="0")
    (said,) = (line for line in before.provenance["warnings"] if "--missing" in line)
    assert [word in said for word in ("bdi 999 (1)", "iq -99 (2)", "-99,999", "reaction")] == [True, True, True, False]
    assert before.participants["bdi"].tolist() == [1, 2, 999, 5, 6]
    for missing in ("-99,999", ["-99", 999], ("-99", "999")):
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        cohort = import_cohort("table", src, out, missing=missing)
        assert cohort.ids.tolist() == ["p1", "p2", "p3", "p5", "p6"]
        assert cohort.participants["iq"].isna().tolist() == [True, True, False, False, False]
        assert cohort.participants["bdi"].isna().tolist() == [False, False, True, False, False]
        assert cohort.participants["reaction"].tolist() == [680, 760, 840, 1000, 1080]
    assert cohort.provenance["options"]["missing"] == ["-99", "999"]


@pytest.mark.parametrize(
    ("values", "is_odd"),
    [
        ([30, 130, 60, 777], True),
        ([100, 110, 95, -99], True),
        ([100, 110, 95, 999], True),
        ([1, 2, 3, 88], False),
        ([0.1, 0.2, 0.3, -9999.0], True),
        ([-120, -99, 30, 150], False),
        ([700, 900, 999, 1100], False),
        ([310, 999, None, None], False),
        ([310, -999, None, None], True),
        (["x", "y", "z", "-99"], False),
    ],
)
def test_codes_far_from_all_values_are_said_in_any_column_and_refused_in_two(tmp_path, values, is_odd):
    cells = ["" if value is None else value for value in values]
    rows = [f"{name},{'AB'[i % 2]},{i // 2},{cells[i]}" for i, name in enumerate(PEOPLE)]
    src = write_study(tmp_path / "s", header="participant_id,site,label,x", rows=rows)
    cohort = import_cohort("table", src, tmp_path / "out")
    assert any("--missing" in line for line in cohort.provenance.get("warnings", [])) == is_odd
    assert cohort.participants["x"].astype(object).where(cohort.participants["x"].notna(), None).tolist() == values
    if is_odd and 777 not in values:
        text = (src / "participants.csv").read_text()
        for column in ("age", "mean_fd"):
            (src / "participants.csv").write_text(text.replace("label,x", f"label,{column}"))
            refuse_import("--missing", src)


def test_the_command_takes_codes_that_begin_with_a_sign(tmp_path):
    rows = [f"p{i},{'AB'[i % 2]},{i // 2},{[-99, 100, 120, 110][i]}" for i in range(4)]
    src = write_study(tmp_path / "s", [f"p{i}" for i in range(4)], header="participant_id,site,label,iq", rows=rows)
    words = ["import", "table", str(src), "--out", str(tmp_path / "out")]
    assert "--missing '-99'" in command(*words).succeed().text
    shutil.rmtree(tmp_path / "out")
    command(*words, "--missing", "-99").succeed()
    assert np.isnan(Cohort.load(tmp_path / "out").participants["iq"][0])


@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_a_file_without_names_among_files_with_names(tmp_path, ending):
    def write(frames: np.ndarray, path: Path) -> None:
        if path.name == "p2" and ending == "npy":
            np.save(path, frames)
        else:
            write_csv(frames, path, "" if path.name == "p2" else "a,b,c,d,e")

    src = write_study(tmp_path / "s", write=write)
    with pytest.raises(BrioError) as error:
        import_cohort("table", src, tmp_path / "out")
    assert "p2" in str(error.value)
    assert ("save it as csv" in str(error.value)) == (ending == "npy")


def test_an_order_that_is_taken_from_the_table_of_rois_is_said(tmp_path):
    src = write_study(tmp_path / "s", write=write_csv)
    (tmp_path / "rois.tsv").write_text("name\n" + "\n".join("abcde"))
    cohort = import_cohort("table", src, tmp_path / "out", atlas_table=tmp_path / "rois.tsv")
    assert any("rois.tsv" in line for line in cohort.provenance["warnings"])


@pytest.mark.parametrize("lacking", [0, 1])
def test_the_region_that_one_scan_lacks_is_named_whichever_scan_it_is(tmp_path, lacking):
    for i in range(2):
        rois = list("abcd")[: 3 if i == lacking else 4]
        write_text(tmp_path / f"p{i}.csv", [",".join(rois), *("1,2,3,4"[: 2 * len(rois) - 1] for _ in range(3))])
    write_text(tmp_path / "participants.csv", ["participant_id,site,label", "p0,A,0", "p1,A,1"])
    refuse(
        rf"p{lacking}\.csv lacks d; .* add its column, filled with n/a",
        import_cohort,
        "table",
        tmp_path,
        tmp_path / "out",
    )


def write_connectomes(folder: Path, ids: list[str], matrices: np.ndarray, table: list[str]) -> Path:
    folder.mkdir()
    np.savez(folder / "all.npz", fc=matrices, participant_id=np.array(ids))
    rows = [f"{name}\tA\t{i % 2}" for i, name in enumerate(table)]
    (folder / "participants.tsv").write_text("\n".join(["participant_id\tsite\tlabel", *rows]) + "\n")
    return folder / "all.npz"


def make_connectomes(n: int) -> np.ndarray:
    return np.stack([np.corrcoef(make_frames(i, 4).T) for i in range(n)])


def test_an_archive_lists_connectomes_without_a_row_and_refuses_sessions(tmp_path):
    src = write_connectomes(tmp_path / "fc", ["p0", "p1", "p2"], make_connectomes(3), ["p0", "p1", "p9"])
    cohort = import_cohort("fc", src, tmp_path / "out")
    assert list_skipped(cohort) == {"p9": "no connectome in all.npz", "p2": "no row in participants.tsv"}
    refuse("leave out --sessions and --session-column", import_cohort, "fc", src, tmp_path / "again", sessions="first")


@pytest.mark.parametrize("ids", [["p0", "p0"], ["p0"]])
def test_an_archive_whose_ids_do_not_fit_its_connectomes_is_refused(tmp_path, ids):
    src = write_connectomes(tmp_path / "fc", ids, make_connectomes(2), ["p0", "p1"])
    refuse_import("'participant_id' must contain a different name for each of the 2 connectomes", src, "fc")


def test_connectomes_of_two_measures_are_refused(tmp_path):
    matrices = make_connectomes(2)
    matrices[1][0, 1] = matrices[1][1, 0] = 1.7  # Fisher z whose diagonal was set to one
    src = write_connectomes(tmp_path / "fc", ["p0", "p1"], matrices, ["p0", "p1"])
    message = "participant p1: seems to contain Fisher z, but .*participant p0 seems to contain correlations"
    refuse_import(message, src, "fc")
    assert len(import_cohort("fc", src, tmp_path / "out", measure="fisher-z")) == 2


def test_accents_match_whichever_way_they_are_written(tmp_path):
    people = ["Zoë", "José"]
    stems = [f"{unicodedata.normalize('NFD', name)}_ses-{s}" for name in people for s in "12"]
    src = write_study(tmp_path / "study", stems, rows=[f"{name},A,{i}" for i, name in enumerate(people)])
    cohort = import_cohort("table", src, tmp_path / "out", sessions="all")
    assert cohort.ids.tolist() == [f"{name}_ses-{s}" for name in people for s in "12"]
    assert cohort.provenance["skipped"] == []


def test_paths_of_a_table_from_windows_are_found(tmp_path):
    header, rows = "participant_id,site,label,file", ["p1,A,0,scans\\one.npy", "p2,A,1,scans\\two.npy"]
    src = write_study(tmp_path / "study", ["scans/one", "scans/two"], header=header, rows=rows)
    cohort = import_cohort("table", src, tmp_path / "out")
    np.testing.assert_array_equal(cohort.scan(1), make_frames(1))


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("excluded.csv", ["participant_id,reason", "s1,motion", "s2,motion"]),
        ("rois.csv", ["id,name,x,y,z", "1,a,1,2,3", "2,b,1,2,3"]),
        ("excluded.tsv", ["subject\treason", "s1\tmotion"]),
    ],
)
def test_a_list_beside_scans_to_predict_is_no_table_of_them(tmp_path, name, lines):
    src = tmp_path / "s"
    src.mkdir()
    for i in range(10):
        np.save(src / f"s{i}.npy", make_frames(i))
    write_text(src / name, lines)
    assert read_scans_to_predict(src, tmp_path / "out").ids.tolist() == [f"s{i}" for i in range(10)]
    if "s1" in lines[1]:  # an option is about the table
        cohort = read_scans_to_predict(
            src, tmp_path / "few", where="reason == 'motion'", id_column=lines[0][:14].split("\t")[0]
        )
        assert {*cohort.ids} <= {"s1", "s2"}


def test_scans_to_predict_may_have_a_first_column_with_the_name_of_ids(tmp_path):
    for i in range(2):
        write_csv(make_frames(i), tmp_path / f"s{i}", "id,b,c,d,e")
    cohort = read_scans_to_predict(tmp_path, tmp_path / "out")
    assert (cohort.ids.tolist(), cohort.n_rois) == (["s0", "s1"], 5)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt", ".1D"])
@pytest.mark.parametrize(
    ("header", "known", "is_header"),
    [
        (CODES, Atlas("m", pd.DataFrame({"name": list(map(str, CODES))})), True),
        (CODES, Atlas("m", pd.DataFrame({"name": list("abcd"), "code": CODES[:4]})), True),  # one region is dropped
        (None, Atlas("m", pd.DataFrame({"name": list(map(str, CODES))})), False),
        (None, Atlas.unnamed(5), False),
    ],
)
def test_a_model_says_whether_one_file_of_whole_numbers_has_a_header(tmp_path, header, known, is_header, ending):
    path = tmp_path / "one"
    written = write_whole(0, path, header, ending)
    path = path.with_suffix(ending)
    refuse("header or a frame", read_scans_to_predict, path, tmp_path / "unsure")
    cohort = read_scans_to_predict(path, tmp_path / "out", known_rois=known)
    check_scans(cohort, [written])
    assert (cohort.atlas.rois["name"].tolist() == list(map(str, CODES))) == is_header


def test_cells_that_missing_clears_are_counted_and_named_as_the_reason(tmp_path):
    values = ["A,0,9,1", "9,0,20,9", "A,9,22,3", "B,1,9,4", "B,1,25,9", "A,1,26,6"]
    rows = [f"{9 if i == 3 else f'p{i}'},{value}" for i, value in enumerate(values)]
    ids = [row.split(",")[0] for row in rows]
    src = write_study(tmp_path / "s", ids, header="participant_id,site,label,age,dose", rows=rows)
    cohort = import_cohort("table", src, tmp_path / "out", missing="9")
    assert cohort.ids.tolist() == ["p0", "9", "p4", "p5"]
    assert cohort.participants["age"].isna().tolist() == [True, True, False, False]
    reasons = list_skipped(cohort)
    assert [("'9'" in reasons[name], "site" in reasons[name]) for name in ("p1", "p2")] == [(True, True), (True, False)]
    (said,) = (line for line in cohort.provenance["warnings"] if "--missing" in line)
    assert "6 cells" in said
    assert all(count in said for count in ("site 1", "label 1", "age 2", "dose 2"))


@pytest.mark.parametrize(("missing", "absent"), [("-99", "'-99'"), ("22,777,-1", "'777', '-1'"), ("p2", "'p2'")])
@pytest.mark.parametrize("kind", ["table", "fc"])
def test_a_code_that_no_cell_has_is_refused(tmp_path, missing, absent, kind):
    src = write_study(tmp_path / "s", header="participant_id,site,label,age", rows=[f"{p},A,0,22" for p in PEOPLE])
    refuse_import(f"{absent}.*--missing|--missing.*{absent}", src, kind, missing=missing)


def test_marks_that_are_missing_anyway_may_be_named(tmp_path):
    rows = [f"{p},{'AB'[i % 2]},{i // 2},{['NA', '22', '.', '24'][i]}" for i, p in enumerate(PEOPLE)]
    src = write_study(tmp_path / "s", header="participant_id,site,label,age", rows=rows)
    cohort = import_cohort("table", src, tmp_path / "out", missing="NA,.")
    assert cohort.participants["age"].isna().tolist() == [True, False, True, False]
