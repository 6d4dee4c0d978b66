"""A participants table and one file a scan; also what all kinds share: options, labels, provenance."""

import time
from pathlib import Path

import numpy as np
import pytest
from file_layouts import check, check_scans, list_skipped, make_frames, refuse, refuse_import, write_study
from scipy.io import savemat

import brio
from brio.cohort.readers import READERS, import_cohort, summarise_import
from brio.cohort.readers.participants import Layout, map_labels
from brio.cohort.readers.table import match_by_name

HEAD = "participant_id\tsite\tlabel\n"
IDS = ("007", "p1", "p10", "p2")


def scan(seed: int, n_rois: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(9 + seed, n_rois)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    src = tmp_path / "study"
    (src / "scans").mkdir(parents=True)
    (src / "participants.tsv").write_text(HEAD + "".join(f"{p}\tS{i % 2}\t{i // 2}\n" for i, p in enumerate(IDS)))
    np.save(src / "scans" / "007.npy", scan(0))
    np.savez(src / "scans" / "p1_rest.npz", timeseries=scan(1))
    savemat(src / "scans" / "p10-rest.mat", {"x": scan(2), "TR": 2.0})
    np.savetxt(src / "scans" / "p2.txt", scan(3), fmt="%.9g")
    return src


def test_files_by_name(folder, tmp_path):
    cohort = import_cohort("table", folder, tmp_path / "out", atlas="mine")
    assert cohort.ids.tolist() == list(IDS)
    check_scans(cohort, [scan(i) for i in range(4)])
    check(cohort, labels=[0, 0, 1, 1], classes=("0", "1"))
    assert cohort.atlas.name == "mine"
    assert (cohort.name, import_cohort("table", folder, tmp_path / "own", name="north").name) == ("study", "north")
    assert cohort.provenance == {
        "kind": "table",
        "source": "study",
        "options": {"atlas": "mine", "participants": "participants.tsv"},
        "brio": brio.__version__,
        "n_files": 4,
        "skipped": [],
        "rois": "the ROIs have no names",
        "label_values": [{"0": 2}, {"1": 2}],
    }


def test_files_by_column(folder, tmp_path):
    (folder / "participants.tsv").unlink()
    lines = [
        "participant_id;site;label;file;tr",
        "a;X;0;scans/007.npy;2",
        "b;X;1;scans/p2.txt;1.5",
        "c;X;1;gone.npy;2",
        "d;X;1;;",
    ]
    (folder / "people.csv").write_text("\ufeff" + "\n".join(lines) + "\n", encoding="utf-8")
    cohort = import_cohort("table", folder, tmp_path / "out", participants="people.csv")
    assert cohort.ids.tolist() == ["a", "b"]
    np.testing.assert_allclose(cohort.scan(1), scan(3), rtol=1e-6)
    assert cohort.participants["tr"].tolist() == [2.0, 1.5]
    assert "file" not in cohort.participants
    assert {s["participant_id"] for s in cohort.provenance["skipped"]} == {"c", "d"}
    assert summarise_import(cohort).startswith("2 scans imported, 2 rows or files skipped: ")
    (folder / "people.csv").write_text("\n".join([*lines[:2], "b;X;1;scans/../scans/007.npy;2"]))
    refuse_import(r"007\.npy: column 'file' lists this file for both a and b", folder, participants="people.csv")


def test_missing_and_stray_files_are_told(folder, tmp_path):
    (folder / "scans" / "p2.txt").rename(folder / "scans" / "other.txt")
    (folder / "scans" / "007_notes.txt").write_text("1 2\n")
    cohort = import_cohort("table", folder, tmp_path / "out")
    assert list_skipped(cohort) == {
        "p2": "no file whose name starts with the participant_id",
        "other": "no row in participants.tsv",
        "007": "the row of this participant matches another file",
    }


@pytest.mark.parametrize(
    ("name", "frames", "options", "message"),
    [
        ("p1_task", scan(1), {}, r"participant p1: \S+p1_rest\.npz and \S+p1_task\.npy both match"),
        ("007", scan(0, 5), {}, r"p1_rest\.npz: has 6 ROIs, but \S+007\.npy has 5"),
        ("007", np.full((5, 6), np.nan), {}, r"007\.npy: .*no finite value"),
        ("007", scan(0), {"atlas": "aal"}, r"007\.npy: has 6 columns, but atlas aal116 has 116 ROIs$"),
        ("007", make_frames(0, 80, 116), {"atlas": "aal116"}, "rows seem to be the ROIs, so transpose the files"),
    ],
)
def test_files_that_are_refused(folder, tmp_path, name, frames, options, message):
    np.save(folder / "scans" / f"{name}.npy", frames)
    refuse(message, import_cohort, "table", folder, tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "p1\tA\t0\np2\tA\t1\np1\tB\t1\n", "participant p1 appears in rows 1 and 3"),
        (HEAD + "p1\tA\t0\n\tA\t1\n", "column 'participant_id' is empty in row 2"),
        ("participant_id\tsite\tsite\np1\tA\tA\n", "column 'site' appears more than once"),
        ("id\tsite\tlabel\np1\tA\t0\n", "no column 'participant_id'"),
        (HEAD + "007\tA\t0\np1\tA\t0\n", r"column 'label' has only one class, '0' \(2\)"),
        (HEAD + "007\tA\t0\np1\tA\t1\np1_rest\tA\t1\n", r"p1_rest\.npz: matches both p1 and p1_rest"),
        (HEAD + "xx\tA\t0\nyy\tA\t1\n", "study: no scan can be imported; reasons: .*no file whose name .* \\(2\\)"),
    ],
)
def test_wrong_table(folder, tmp_path, text, message):
    (folder / "participants.tsv").write_text(text)
    refuse(message, import_cohort, "table", folder, tmp_path / "out")


def test_two_tables(folder, tmp_path):
    (folder / "participants.csv").write_text("participant_id,site,label\n007,A,0\np1,A,1\n")
    refuse(r"both participants\.tsv and participants\.csv", import_cohort, "table", folder, tmp_path / "out")
    cohort = import_cohort("table", folder, tmp_path / "out", participants=folder / "participants.csv")
    assert cohort.ids.tolist() == ["007", "p1"]


def test_source_columns_with_our_names_are_kept_apart(folder, tmp_path):
    rows = "007\tA\tx\t0\t9\np1\tA\ty\t1\t9\n"
    (folder / "participants.tsv").write_text("participant_id\tsite\tlabel\tdx\tn_frames\n" + rows)
    cohort = import_cohort("table", folder, tmp_path / "out", label_column="dx")
    check(cohort, label_in_source=["x", "y"], n_frames_in_source=[9, 9], n_frames=[9, 10])


@pytest.mark.parametrize(
    ("values", "patient", "control", "required", "labels", "classes"),
    [
        (["0", "1.0", None], None, None, True, [0, 1, None], ("0", "1")),
        (["MDD", "HC"], "MDD", None, True, [1, 0], ("HC", "MDD")),
        (["MDD", "HC"], None, "HC", True, [1, 0], ("HC", "MDD")),
        (["2", "1", "3"], "1", "2", True, [0, 1, None], ("2", "1")),
        (["MDD", "SZ", "HC", "BP"], ["MDD", "SZ"], ["HC"], True, [1, 1, 0, None], ("HC", "MDD/SZ")),
        (["MDD", "SZ", "HC", None], ("SZ", "MDD", "SZ"), None, True, [1, 1, 0, None], ("HC", "SZ/MDD")),
        (["3", "1", "2.0"], "3", ["1", "2"], True, [1, 0, 0], ("1/2", "3")),
        (["mdd", "HC "], "MDD", " hc", True, [1, 0], ("HC", "mdd")),
        (["1", "1.00", "2e0"], "1", "2", True, [1, 1, 0], ("2", "1")),
        (["a", "b", "c", "C"], "a", "b", True, [1, 0, None, None], ("b", "a")),
        (["MDD"], "MDD", "HC", False, [1], ("HC", "MDD")),
        (["HC"], "MDD", "HC", False, [0], ("HC", "MDD")),
        ([None, None], "MDD", "HC", False, [None, None], ("HC", "MDD")),
        (["MDD"], "MDD", None, False, [1], ("not MDD", "MDD")),
        (["HC", None], None, "HC", False, [0, None], ("HC", "not HC")),
        (["1", "1"], None, None, False, [1, 1], ("0", "1")),
        (["0"], None, None, False, [0], ("0", "1")),
    ],
)
def test_labels(values, patient, control, required, labels, classes):
    assert map_labels(values, "here", patient, control, required) == (labels, classes)


@pytest.mark.parametrize(
    ("values", "patient", "control", "required", "message"),
    [
        (["1", "2"], None, None, True, r"here has '1' \(1\), '2' \(1\); give the values of both classes"),
        (["a", "b", "c"], "a", None, True, r"'c' \(1\); brio separates two classes: give the values of both classes"),
        ([str(k) for k in range(117)], None, None, True, "has 117 values, so it seems to be continuous; .*'age>14.5'$"),
        ([f"c{k}" for k in range(117)], "x", None, True, "the column has 117 values, so it seems to be multi-class$"),
        (
            [f"{k}.5" for k in range(13)],
            "0.5",
            None,
            True,
            "13 values, so it seems to be continuous; brio separates two",
        ),
        ([f"c{k}" for k in range(117)], None, None, True, r"multi-class; .*--label 'group=ASD'$"),
        (["a", "a"], None, None, True, r"has only one class, 'a' \(2\)"),
        (["a", "a"], "a", None, True, r"has only one class, 'a' \(2\)"),
        (["a", "b"], "a", "a", True, "are both 'a'"),
        (["a", "b", "c"], ["a", "b"], ["c", "b"], True, "are both 'b'"),
        (["a", "b", "c"], ["a", "x"], ["c"], True, "no value 'x' for --patient"),
        (["a", "b", "c", "d"], ["a", "b"], None, True, "each accepts several values"),
        ([None, None], None, None, True, "here is empty in every row"),
        (["a", "b"], "x", "b", True, "no value 'x' for --patient; the column has 'a' .1., 'b'"),
        (["a", "A", "b"], "a", "b", True, r"'A' \(1\), 'a' \(1\)"),
        (["a", "A", "b"], "b", None, True, r"'A' \(1\), 'a' \(1\)"),
        (["MDD", "HC"], None, None, False, r"has 'HC' \(1\), 'MDD' \(1\); give the values of both classes"),
        (["MDD", "HC"], "MMD", "HC", False, "has no value 'MMD' for --patient"),
        (["MDD", "BP", "HC"], "MDD", None, False, "give the values of both classes"),
    ],
)
def test_labels_that_are_not_two_classes(values, patient, control, required, message):
    refuse(message, map_labels, values, "here", patient, control, required)


@pytest.mark.parametrize(("column", "kept"), [("dx", "dx"), ("label", "label_in_source")])
def test_a_class_of_several_groups_keeps_the_groups(folder, tmp_path, column, kept):
    groups = ["HC", "MDD", "SZ", "HC"]
    rows = "".join(f"{p}\tS{i % 2}\t{group}\n" for i, (p, group) in enumerate(zip(IDS, groups, strict=True)))
    (folder / "participants.tsv").write_text(f"participant_id\tsite\t{column}\n" + rows)
    options = {"label_column": column, "patient": ["MDD", "SZ"], "control": "HC"}
    cohort = import_cohort("table", folder, tmp_path / "out", **options)
    check(cohort, labels=[0, 1, 1, 0], classes=("HC", "MDD/SZ"))
    assert cohort.participants[kept].tolist() == groups
    alone = import_cohort("table", folder, tmp_path / "alone", **(options | {"patient": ["MDD"]}))
    assert kept not in alone.participants
    assert len(alone) == 3


def test_options_that_a_kind_does_not_take_or_needs(folder, tmp_path):
    message = "kind 'pcp' does not take --site-column; its options are --atlas, --participants, --where, --exclude"
    refuse_import(message, folder, "pcp", site_column="x", patient=None)
    refuse("kind 'dpabi' needs --atlas", import_cohort, "dpabi", folder, tmp_path / "out", atlas=None)


@pytest.mark.parametrize("kind", sorted(READERS))
def test_every_kind_checks_its_folders_first(kind, folder, tmp_path):
    refuse("nowhere: no such folder", import_cohort, kind, tmp_path / "nowhere", tmp_path / "out", atlas="aal116")
    refuse("study: already exists", import_cohort, kind, tmp_path / "nowhere", folder, atlas="aal116")


def test_codes_stay_text_and_numbers_stay_numbers(tmp_path):
    rows = [f"p{i},S{i // 2},{i % 2},1284000000000000000{i},00{i},123456789012345{i}789,{20 + i}" for i in range(4)]
    rows[0] = rows[0].replace("1234567890123450789", "")
    header = "participant_id,site,label,uid,code,accession,age"
    src = write_study(tmp_path / "study", ["p0", "p1", "p2", "p3"], header=header, rows=rows)
    cohort = import_cohort("table", src, tmp_path / "out")
    check(cohort, uid=[f"1284000000000000000{i}" for i in range(4)], code=["000", "001", "002", "003"])
    assert cohort.participants["accession"].tolist()[1:] == [f"123456789012345{i}789" for i in (1, 2, 3)]
    assert cohort.participants["age"].tolist() == [20, 21, 22, 23]
    assert cohort.save(tmp_path / "again").fingerprint == cohort.fingerprint


def test_ids_that_match_nothing_are_compared_in_a_few_seconds():
    n = 3000  # each with each took minutes
    rows = [{"participant_id": f"9{i:05d}"} for i in range(n)]
    files = [Path(f"study-x_{i:05d}_bold.csv") for i in range(n)]
    start = time.monotonic()
    layout = Layout(rows)
    scans = match_by_name(layout, files, "participants.tsv")
    assert time.monotonic() - start < 20
    assert (len(scans), len(layout.skipped)) == (0, 2 * n)
    layout = Layout([{"participant_id": f"{i:05d}"} for i in range(n)])
    match_by_name(layout, [Path(f"x{i:05d}_bold.csv") for i in range(n)], "participants.tsv")
    assert (
        "file names begin with 'x'; add it to the ids in the table, for example x00000" in layout.skipped[0]["reason"]
    )
