"""Scans to predict: one is enough, in every layout, and sites, labels and a participants table are optional."""

from pathlib import Path

import numpy as np
import pytest
from file_layouts import CODES, IDS, LABELS, SITES, WRITERS, check, check_scans, refuse, scan, write_layout, write_text
from scipy.io import savemat

from brio import BrioClassifier, Cohort, audit
from brio.cohort.readers import LAYOUTS, find_layout, import_cohort, read_scans_to_predict, summarise_scans_to_predict
from brio.jobs import JobSpec, prepare_job

KINDS = sorted(WRITERS)
N_ROIS = {"pcp": 116, "dpabi": 116, "bids": 5, "table": 6, "packed": 116}
FINGERPRINTS = {
    "pcp": "841f4bea22b40f7634a22fa8613fc3835dd7bcefce4e553127b41516b2323562",
    "dpabi": "89df5098576ede86dc9dd33d7e0d08f7d71ccbc925f86aa9203c9afec2126841",
    "bids": "065a38ef229a3be3a5f05f1d9fe271fd55917100e4a5d5c924e6067fbb8dc549",
    "table": "2b60fe729e98e5ea73f7812603805ae007b3e83a1872fe88a0d4bfd10228f847",
    "packed": "4228fb75924d394c39325245261108f9dd3c9908fb0ef8d25809dc01eca728aa",
}
"""What the readers gave for these files before scans without labels could be read."""


def atlas(kind: str) -> dict[str, str]:
    return {"atlas": "aal116"} if kind == "dpabi" else {}


def refuse_scans(message: str, src: Path, **options: object) -> None:
    refuse(message, read_scans_to_predict, src, src.parent / "refused", **options)


def check_frames(cohort: Cohort, kind: str) -> None:
    """Compare with what was written; packed scans are rounded to halves."""
    written = [scan(i, N_ROIS[kind]) for i in range(len(cohort))]
    check_scans(cohort, [np.round(x * 2) / 2 for x in written] if kind == "packed" else written)


# ---------------------------------------------------------------- every layout


@pytest.mark.parametrize("kind", KINDS)
def test_labelled_files_give_the_cohort_they_gave(kind, tmp_path):
    src = write_layout(kind, tmp_path / "study")
    imported = import_cohort(kind, src, tmp_path / "imported", **atlas(kind))
    read = read_scans_to_predict(src, tmp_path / "read", **atlas(kind))
    assert imported.fingerprint == read.fingerprint == FINGERPRINTS[kind]
    assert read.provenance["kind"] == kind
    assert read.labels.tolist() == list(LABELS)
    assert read.labelled.all()
    read.require_labels()
    read.verify()


@pytest.mark.parametrize("kind", KINDS)
def test_without_table(kind, tmp_path):
    """DPABI states site and label in the names of its files; all others have neither."""
    src = write_layout(kind, tmp_path / "study", None)
    assert find_layout(src) == kind
    cohort = read_scans_to_predict(src, tmp_path / "out", **atlas(kind))
    check(cohort, ids=list(IDS[kind]), n_rois=N_ROIS[kind])
    assert cohort.name == "study"
    check_frames(cohort, kind)
    if kind == "dpabi":
        assert cohort.labels.tolist() == list(LABELS)
    else:
        assert not {"site", "label"} & set(cohort.participants)
        assert not cohort.labelled.any()
        assert cohort.classes == ("0", "1")
    cohort.verify()


@pytest.mark.parametrize("kind", KINDS)
def test_one_file(kind, tmp_path):
    src = tmp_path / "study"
    src.mkdir()
    WRITERS[kind](src, IDS[kind][:1])
    (file,) = (path for path in src.rglob("*") if path.is_file() and path.suffix != ".json")
    cohort = read_scans_to_predict(file, tmp_path / "out", tr=1.5, **atlas(kind))
    assert cohort.ids.tolist() == list(IDS[kind][:1])
    check_frames(cohort, kind)
    assert cohort.participants["tr"].tolist() == [0.8 if kind == "bids" else 1.5]
    assert cohort.provenance["options"]["tr"] == 1.5


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"dpabi"}))
@pytest.mark.parametrize("labels", [(1, None, 0), (None, None, None), (1,), (None,)])
def test_labelled_and_unlabelled_rows(kind, labels, tmp_path):
    src = write_layout(kind, tmp_path / "study", labels)
    cohort = read_scans_to_predict(src, tmp_path / "out")
    n = len(labels)
    check(cohort, ids=list(IDS[kind][:n]), sites=list(SITES[:n]), labelled=[label is not None for label in labels])
    known = [label for label in labels if label is not None]
    assert not known or cohort.select(cohort.labelled).labels.tolist() == known
    assert ("label" in cohort.participants) == bool(known)
    assert cohort.participants["age"].tolist() == [20, 31, 42][:n]
    assert cohort.provenance["skipped"] == []
    check_frames(cohort, kind)
    cohort.verify()
    saved = cohort.save(tmp_path / "saved")
    assert saved.fingerprint == cohort.fingerprint
    assert Cohort.load(tmp_path / "saved").labelled.tolist() == cohort.labelled.tolist()


def test_dpabi_names_of_other_hospitals(tmp_path):
    src = tmp_path / "study"
    src.mkdir()
    for participant in ("S1-1-0001", "S2-3-0001", "Sub_007"):
        savemat(src / f"ROISignals_{participant}.mat", {"ROISignals": scan(0, 1833)})
    savemat(src / "ROICorrelation_Sub_007.mat", {"ROICorrelation": np.eye(9)})
    cohort = read_scans_to_predict(src, tmp_path / "out", atlas="aal")
    check(cohort, ids=["S1-1-0001", "S2-3-0001", "Sub_007"], labelled=[True, False, False], site=["S1", "S2", ""])
    refuse("1 of 3 scans have no site", lambda: cohort.sites)
    assert [entry["participant_id"] for entry in cohort.provenance["unlabelled"]] == ["S2-3-0001", "Sub_007"]
    refuse_scans("kind 'dpabi' needs --atlas", src)


# ---------------------------------------------------------------- participants tables


def table(src: Path, *lines: str) -> Path:
    write_layout("table", src, None)
    (src / "participants.tsv").write_text("\n".join(lines) + "\n")
    return src


def test_table_without_site_and_label(tmp_path):
    src = table(tmp_path / "study", "participant_id\tage", "007\t20", "p1\t30")
    cohort = read_scans_to_predict(src, tmp_path / "out")
    assert cohort.ids.tolist() == ["007", "p1"]
    assert cohort.participants.columns.tolist() == ["participant_id", "age", "n_frames"]
    skipped = {"participant_id": "p10", "reason": "no row in participants.tsv", "file": "p10.npy"}
    assert cohort.provenance["skipped"] == [skipped]
    assert summarise_scans_to_predict(cohort) == (
        "2 scans read in the layout 'table' (one file per scan); with a label: 0; "
        "skipped: 1 (no row in participants.tsv (1))"
    )


def test_columns_that_an_option_names_must_be_there(tmp_path):
    src = table(tmp_path / "study", "participant_id\tdx", "007\tMDD", "p1\tHC")
    for options, column in (({"site_column": "centre"}, "centre"), ({"patient": "MDD"}, "label")):
        refuse_scans(f"has no column '{column}'", src, **options)
    cohort = read_scans_to_predict(src, tmp_path / "out", label_column="dx", patient="MDD")
    check(cohort, labels=[1, 0], classes=("HC", "MDD"))


def test_participants_of_another_group_are_predicted(tmp_path):
    src = table(tmp_path / "study", "participant_id\tlabel", "007\tMDD", "p1\tBP", "p10\tHC")
    cohort = read_scans_to_predict(src, tmp_path / "out", patient="MDD", control="HC")
    assert (cohort.labelled.tolist(), cohort.classes) == ([True, False, True], ("HC", "MDD"))
    assert cohort.select(cohort.labelled).labels.tolist() == [1, 0]
    reason = "label 'BP' is neither patient nor control"
    assert cohort.provenance["unlabelled"] == [{"participant_id": "p1", "reason": reason}]
    refuse_scans("has 'BP' .1., 'HC' .1., 'MDD' .1.; brio separates two classes: give the values", src)


def test_table_for_one_file(tmp_path):
    src = table(tmp_path / "study", "participant_id\tsite\tlabel\tfile", "p1\tA\t1\t007.npy", "007\tB\t0\tp1.npy")
    assert read_scans_to_predict(src, tmp_path / "folder").ids.tolist() == ["p1", "007"]
    cohort = read_scans_to_predict(src / "p1.npy", tmp_path / "out", participants=src / "participants.tsv")
    check(cohort, ids=["007"], sites=["B"], labels=[0])
    np.testing.assert_array_equal(cohort.scan(0), scan(1, 6).astype(np.float32))


@pytest.mark.parametrize("kind", ["table", "bids"])
@pytest.mark.parametrize("option", ["patient", "control", "site_column", "label_column", "participants"])
def test_options_of_a_table_that_is_not_there(kind, option, tmp_path):
    src = write_layout(kind, tmp_path / "study", None)
    refuse_scans(r"no participants\.tsv; give the participants table|no such participants table", src, **{option: "x"})


def test_two_files_of_one_name(tmp_path):
    src = write_layout("table", tmp_path / "study", None)
    np.savetxt(src / "007.csv", scan(0, 6), delimiter=",")
    refuse_scans(r"007\.npy: this file and \S+007\.csv would both be participant '007'; rename one", src)


# ---------------------------------------------------------------- repetition time


@pytest.mark.parametrize(
    ("in_table", "given", "expected"), [("", None, 0.8), ("0.8", None, 0.8), ("0.8", 2.0, 0.8), ("", 2.0, 0.8)]
)
def test_repetition_time_of_the_file(in_table, given, expected, tmp_path):
    src = write_layout("bids", tmp_path / "study", None)
    (src / "participants.tsv").write_text(f"participant_id\ttr\nsub-001\t{in_table}\n")
    cohort = read_scans_to_predict(src, tmp_path / "out", tr=given)
    assert cohort.participants["tr"].tolist() == [expected]


def test_repetition_time_of_table_and_option(tmp_path):
    src = table(tmp_path / "study", "participant_id\ttr", "007\t2.5", "p1\t", "p10\tn/a")
    assert read_scans_to_predict(src, tmp_path / "a", tr=2).participants["tr"].tolist() == [2.5, 2, 2]
    np.testing.assert_array_equal(read_scans_to_predict(src, tmp_path / "b").participants["tr"], [2.5, np.nan, np.nan])
    (src / "participants.tsv").unlink()
    assert "tr" not in read_scans_to_predict(src, tmp_path / "c").participants


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("2.0", "0.8 s in the file, but 2 s in the table"),
        ("2000", "column 'tr' of the participants table is '2000'; write the repetition time in seconds"),
        ("2s", "column 'tr' of the participants table is '2s'; write the repetition time in seconds"),
        ("0", "is '0'"),
        ("2_0", "is '2_0'"),
        ("inf", "is 'inf'"),
    ],
)
def test_repetition_times_that_cannot_be(stated, message, tmp_path):
    src = write_layout("bids", tmp_path / "study", None)
    rows = ["participant_id\tsite\tlabel\tTR", f"sub-001\ta\t1\t{stated}", f"sub-002\ta\t0\t{stated}"]
    (src / "participants.tsv").write_text("\n".join(rows))
    for read in ((import_cohort, "bids"), (read_scans_to_predict,)):
        refuse(rf"sub-001_\S+\.tsv: .*{message}", *read, src, tmp_path / "out")


@pytest.mark.parametrize("tr", [0, -2.0, float("nan"), float("inf")])
def test_impossible_repetition_time(tr, tmp_path):
    src = write_layout("table", tmp_path / "study", None)
    refuse_scans("repetition time cannot be", src, tr=tr)


# ---------------------------------------------------------------- names and order of ROIs


def test_order_of_rois_is_that_of_the_bundled_atlas(tmp_path):
    shuffled = np.random.default_rng(0).permutation(116)
    names = [CODES[u] for u in shuffled]
    write_text(tmp_path / "007_rois_aal.1D", scan(0)[:, shuffled], [f"#{name}" for name in names])
    write_text(tmp_path / "007.tsv", scan(0)[:, shuffled], [f"c{name}" for name in names])
    pcp = read_scans_to_predict(tmp_path / "007_rois_aal.1D", tmp_path / "pcp")
    np.testing.assert_array_equal(pcp.scan(0), scan(0).astype(np.float32))
    assert pcp.atlas.rois["code"].astype(str).tolist() == CODES
    named = read_scans_to_predict(tmp_path / "007.tsv", tmp_path / "named", atlas="mine")
    np.testing.assert_array_equal(named.scan(0), scan(0)[:, shuffled].astype(np.float32))
    assert named.atlas.rois["name"].tolist() == [f"c{name}" for name in names]


# ---------------------------------------------------------------- finding the layout


def test_nothing_to_read(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "brain.nii.gz").write_bytes(b"")
    refuse_scans("nowhere: no such file or folder", tmp_path / "nowhere")
    refuse_scans(r"empty: has no time-series file in or below it; supported file types: \.tsv", tmp_path / "empty")
    refuse_scans(r"brain\.nii\.gz: is not a time-series file; supported file types: \.tsv", tmp_path / "brain.nii.gz")
    refuse_scans("no such file or folder", tmp_path / "nowhere", kind="table")


def test_ambiguous_layouts_are_refused(tmp_path):
    src = write_layout("pcp", tmp_path / "study", None)
    (src / "participants.tsv").write_text("participant_id\tsex\nNorth_001\tF\n")
    refuse_scans(r"study: fits several layouts, 'pcp' \(.*'table' \(one file per scan\); choose one", src)
    assert len(read_scans_to_predict(src, tmp_path / "pcp", kind="pcp")) == 3
    as_table = read_scans_to_predict(src, tmp_path / "table", kind="table", atlas="aal")
    assert as_table.participants["sex"].tolist() == ["F"]
    (src / "participants.tsv").write_text("participant_id\tfile\n007\tNorth_001_rois_aal.1D\n")
    assert find_layout(src) == "table"
    (src / "participants.tsv").rename(tmp_path / "people.tsv")
    assert find_layout(src) == "pcp"
    assert read_scans_to_predict(src, tmp_path / "o", participants=tmp_path / "people.tsv").ids.tolist() == ["007"]
    savemat(src / "ROISignals_Sub001.mat", {"ROISignals": scan(0, 1833)})
    refuse_scans(r"'pcp' .*'dpabi' .*choose one with --kind", src)


@pytest.mark.parametrize("n_tables", [1, 2])
def test_a_clinical_table_beside_files_of_dpabi_does_not_change_the_layout(tmp_path, n_tables):
    src = write_layout("dpabi", tmp_path / "study", None)
    for i in range(n_tables):
        (src / f"clinical{i}.csv").write_text("subject,bdi\nS1-1-0001,3\n")
    assert read_scans_to_predict(src, tmp_path / "out", **atlas("dpabi")).provenance["kind"] == "dpabi"


def test_kind_and_options_are_checked(tmp_path):
    src = write_layout("table", tmp_path / "study", None)
    refuse_scans("unknown layout 'tabel'; did you mean 'table'", src, kind="tabel")
    refuse_scans("kind 'table' does not take --task", src, task="rest")
    refuse("study: already exists", read_scans_to_predict, src, src)
    assert set(LAYOUTS) == {"cohort", "fmriprep", *WRITERS}


# ---------------------------------------------------------------- cohort folders


def test_cohort_folder_is_read_in_place(tmp_path):
    src = write_layout("pcp", tmp_path / "study")
    imported = import_cohort("pcp", src, tmp_path / "cohort")
    cohort = read_scans_to_predict(tmp_path / "cohort", tmp_path / "out", atlas="aal")
    assert not (tmp_path / "out").exists()
    assert cohort.fingerprint == imported.fingerprint
    assert cohort.provenance["cohort"] == imported.provenance
    summary = "3 scans read in the layout 'cohort' (a brio cohort folder); with a label: 3; skipped: 0"
    assert summarise_scans_to_predict(cohort) == summary
    refuse_scans("are in atlas 'aal116', not 'cc200'; leave out --atlas", tmp_path / "cohort", atlas="cc200")
    message = "--tr, --participants cannot be used with a cohort folder"
    refuse_scans(message, tmp_path / "cohort", tr=2.0, participants="x.tsv")
    refuse_scans(
        r"frames\.npy: contains all scans of a cohort; give the folder \S+cohort$", tmp_path / "cohort" / "frames.npy"
    )
    content = bytearray((tmp_path / "cohort" / "frames.npy").read_bytes())
    content[-1] ^= 1
    (tmp_path / "cohort" / "frames.npy").write_bytes(content)
    refuse_scans("changed or damaged", tmp_path / "cohort")


def test_a_cohort_that_lost_its_header_is_named_with_the_file(tmp_path):
    folder = tmp_path / "cohort"
    Cohort.from_scans([scan(i) for i in range(4)], site=["A"] * 4, label=[0, 1, 0, 1]).save(folder)
    (folder / "cohort.json").unlink()
    refuse_scans(r"cohort\.json: is missing, although the folder has the other files", folder)


# ---------------------------------------------------------------- what learns refuses them


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ((1, None, 0), r"cohort 'study': 1 of 3 scans have no label \(the first is p1\); add a label for every scan"),
        (None, "cohort 'study': the scans have no label; .*add a label for every scan to the participants table and"),
    ],
)
def test_jobs_and_audit_refuse_scans_without_labels(labels, message, tmp_path):
    cohort = read_scans_to_predict(write_layout("table", tmp_path / "study", labels), tmp_path / "out")
    labelled = import_cohort("table", write_layout("table", tmp_path / "labelled"), tmp_path / "imported")
    for learn in (
        lambda: audit(cohort),
        lambda: audit(labelled, companions=[cohort]),
        lambda: prepare_job(JobSpec(cohort=tmp_path / "out", methods=["ridge"])),
        lambda: prepare_job(JobSpec(cohort=cohort, methods=["ridge"], exclude=False)),
        lambda: BrioClassifier("ridge").fit(cohort),
        lambda: cohort.labels,
    ):
        refuse(message, learn)


def test_display_of_scans_to_predict(tmp_path):
    cohort = read_scans_to_predict(write_layout("table", tmp_path / "a", None), tmp_path / "b")
    assert repr(cohort).startswith("Cohort('a': 3 scans, 6 ROIs (unknown), 8 to 10 frames")
    assert "<table" in cohort._repr_html_()
    mixed = read_scans_to_predict(write_layout("table", tmp_path / "c", (1, None, 0)), tmp_path / "d")
    assert "3 scans at 2 sites" in repr(mixed)
    assert "patients" not in mixed._repr_html_()
