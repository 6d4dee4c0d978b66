"""Repeated scans: who they belong to, how readers choose among them, and what the audit says of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from file_layouts import check, check_scans, refuse, refuse_import, write_layout, write_text

from brio.cohort import Cohort, audit, format_audit
from brio.cohort.readers import import_cohort, read_scans_to_predict
from brio.cohort.readers.assembly import join_scans
from brio.cohort.readers.series import Series
from brio.cohort.scans import SCAN_ID, average_over_scans, index_participants, read_session_frames
from brio.cohort.simulate import Simulation, simulate
from brio.models.known_scans import list_known_scans

HEAD = "participant_id\tsite\tlabel\tsession\n"
ROWS = "p1\tA\t0\t1\np1\tA\t0\t2\np2\tB\t1\t1\n"


def scan(seed: int, n_rois: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(20 + seed, n_rois)).astype(np.float32)


def z(frames: np.ndarray) -> np.ndarray:
    return (frames - frames.mean(0)) / frames.std(0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    src = tmp_path / "study"
    src.mkdir()
    (src / "participants.tsv").write_text(HEAD + ROWS)
    for i, name in enumerate(("p1_ses-1", "p1_2", "p2")):
        np.save(src / f"{name}.npy", scan(i))
    return src


def twice(**options: object) -> Cohort:
    """Three participants, the first with two scans."""
    given = {"participant_id": list("ppqr"), "session": [1, 2, 1, 1], "site": list("AAAB"), "label": [0, 0, 1, 1]}
    return Cohort.from_scans([scan(i) for i in range(4)], **given | options)


def test_first_scans_and_means_by_participant():
    first, member = index_participants(np.array(["b", "a", "b", "c", "a"]))
    assert (first.tolist(), member.tolist()) == ([0, 1, 3], [0, 1, 0, 2, 1])
    values = np.arange(10.0).reshape(5, 2)
    expected = [values[[0, 2]].mean(0), values[[1, 4]].mean(0), values[3]]
    np.testing.assert_array_equal(average_over_scans(values, member), expected)
    alone = np.array([-0.0, np.nan, 3.0])
    assert average_over_scans(alone, np.arange(3)).tobytes() == alone.tobytes(), "values of one scan stay, bit for bit"


def test_a_cohort_names_scans_and_participants():
    cohort = twice()
    check(cohort, participant_ids=["p", "p", "q", "r"], ids=["p_ses-1", "p_ses-2", "q_ses-1", "r_ses-1"])
    assert cohort.has_repeated_scans
    assert "4 scans of 3 participants" in repr(cohort)
    one, other = cohort.select([0, 2, 3]), cohort.select([1, 2, 3])
    assert one.fingerprint != other.fingerprint, "another session is another cohort"
    assert one.ids.tolist() == ["p_ses-1", "q_ses-1", "r_ses-1"], "names of scans do not depend on which are left"
    assert not one.has_repeated_scans


def test_a_saved_cohort_is_the_same(tmp_path):
    cohort = twice(session=["01", "02", "01", "01"])
    loaded = cohort.save(tmp_path / "cohort")
    assert loaded.fingerprint == cohort.fingerprint
    check(loaded, session=["01", "02", "01", "01"], ids=cohort.ids.tolist())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"session": None},
            "participant p appears more than once; keep one of these scans, or distinguish them by 'session'",
        ),
        ({"session": [1, 1, 1, 1]}, "participant p has two scans of session '1'"),
        ({"session": [1, "", 1, 1]}, "participant p has several scans, but column 'session' is empty in row 2"),
        ({"site": list("ABAB")}, "participant p has scans with site A and B; .* --sessions first"),
        ({"label": [0, 1, 1, 1]}, "participant p has scans with label 0 and 1; .* --sessions first"),
    ],
)
def test_repeats_that_cannot_be_split_are_refused(options, message):
    refuse(message, twice, **options)


def test_table_asks_what_to_do(table, tmp_path):
    refuse_import(r"1 of 2 participants have several scans \(p1: sessions 1, 2\); .*--sessions", table)
    refuse_import("sessions cannot be 'al'; did you mean 'all'", table, sessions="al")


@pytest.mark.parametrize("times", [(2.0, None), (None, 2.0)])
def test_scans_that_differ_in_repetition_time_are_not_joined(times):
    parts = [Series(scan(i), tr=tr) for i, tr in enumerate(times)]
    here, there = ("unknown" if tr is None else "2.0 s" for tr in reversed(times))
    message = f"b: the repetition time is {here}, but {there} in a; scans can only be joined if their"
    refuse(message, join_scans, parts, [Path("a"), Path("b")])


def test_scans_to_predict_of_one_participant_agree_in_the_label(table, tmp_path):
    (table / "participants.tsv").write_text(HEAD + ROWS.replace("A\t0\t2", "A\tn/a\t2"))
    options = {"kind": "table", "patient": "1", "control": "0"}
    message = "participant p1 has scans with label 0 and n/a; correct the participants table"
    refuse(message, read_scans_to_predict, table, tmp_path / "join", sessions="join", **options)


def test_table_first_and_join(table, tmp_path):
    first, joined = (import_cohort("table", table, tmp_path / how, sessions=how) for how in ("first", "join"))
    assert first.ids.tolist() == joined.ids.tolist() == ["p1", "p2"]
    np.testing.assert_array_equal(first.scan(0), scan(0))
    skipped = {"participant_id": "p1", "reason": "another session; only the first was read"}
    assert first.provenance["skipped"] == [skipped]
    assert first.provenance["options"]["sessions"] == "first"
    np.testing.assert_allclose(joined.scan(0), np.concatenate([z(scan(0)), z(scan(1))]), atol=1e-6)
    np.testing.assert_array_equal(joined.scan(1), scan(2))
    assert joined.participants["session"].tolist() == ["1+2", "1"]
    assert read_session_frames(joined.participants) is None


def test_table_average_drops_invalid_frames_and_records_where_sessions_end(table, tmp_path):
    frames = scan(1)
    frames[3, 0] = np.nan
    np.save(table / "p1_2.npy", frames)
    cohort = import_cohort("table", table, tmp_path / "out", sessions="average")
    assert [part.tolist() for part in read_session_frames(cohort.participants)] == [[20, 20], []]
    expected = np.concatenate([z(scan(0)), z(np.delete(scan(1), 3, axis=0))])
    np.testing.assert_allclose(cohort.scan(0), expected, atol=1e-6)


@pytest.mark.parametrize("sessions", ["join", "average"])
def test_a_session_of_a_joined_scan_is_recognised(table, tmp_path, sessions):
    frames = scan(1)
    frames[3, 0] = np.nan  # averaging drops the frame, the file has it
    np.save(table / "p1_2.npy", frames)
    joined = import_cohort("table", table, tmp_path / "joined", sessions=sessions)
    each = import_cohort("table", table, tmp_path / "each", sessions="all")
    known = list_known_scans(joined)
    assert len(known.digests) == 2 + 2, "a digest for each scan, and for each session of p1"
    assert known.recognise(each).tolist() == [True, True, True]
    assert list_known_scans(joined.select([1])).recognise(each).tolist() == [False, False, True]
    stranger = Cohort.from_scans([scan(7), scan(8)], site=["A", "A"], label=[0, 1])
    assert not known.recognise(stranger).any()
    again = read_scans_to_predict(tmp_path / "joined", tmp_path / "scans")  # as predict reads a cohort folder
    assert list_known_scans(each.select([1])).recognise(again).tolist() == [True, False], "and the other way round"


def test_table_all(table, tmp_path):
    cohort = import_cohort("table", table, tmp_path / "out", sessions="all")
    assert cohort.ids.tolist() == ["p1_ses-1", "p1_ses-2", "p2_ses-1"]
    check_scans(cohort, [scan(i) for i in range(3)])
    predicted = read_scans_to_predict(table, tmp_path / "scans")
    assert predicted.ids.tolist() == cohort.ids.tolist(), "scans to predict are all read"
    assert predicted.fingerprint == cohort.fingerprint


def test_table_with_columns_of_other_names(table, tmp_path):
    rows = "p1\tA\t0\tpre\tx\tp1_2.npy\np2\tB\t1\tpre\tx\tp2.npy\np1\tA\t0\tpost\tx\tp1_ses-1.npy\n"
    (table / "participants.tsv").write_text("participant_id\tsite\tlabel\tvisit\tsession\tfile\n" + rows)
    options = {"session_column": "visit", "sessions": "all"}
    cohort = import_cohort("table", table, tmp_path / "out", **options)
    assert cohort.ids.tolist() == ["p1_ses-pre", "p1_ses-post", "p2_ses-pre"], "the order is that of the table"
    assert cohort.participants["session_in_source"].tolist() == ["x"] * 3
    np.testing.assert_array_equal(cohort.scan(0), scan(1))
    first = import_cohort("table", table, tmp_path / "first", session_column="visit", sessions="first")
    np.testing.assert_array_equal(first.scan(0), scan(1))
    refuse_import(r"has no column 'vist'; did you mean 'visit'.*--session-column", table, session_column="vist")


def test_table_refuses(table):
    path = table / "participants.tsv"
    path.write_text(HEAD + "p1\tA\t0\t1\np1\tA\t0\t1\np2\tB\t1\t1\n")
    refuse_import(
        "p1 appears in rows 1 and 2; keep one of these rows, or give each scan its own session", table, sessions="join"
    )
    path.write_text(HEAD + "p1\tA\t0\t1\np1\tA\t1\t2\np2\tB\t1\t1\n")
    refuse_import(
        "p1 has scans with label 0 and 1; correct the participants table, or keep one scan", table, sessions="join"
    )
    rows = "p1\tA\t0\t1\tp2.npy\np1\tA\t0\t2\tp2.npy\np2\tB\t1\t1\tp1_2.npy\n"
    path.write_text(HEAD.replace("\n", "\tfile\n") + rows)
    refuse_import(r"lists this file for both p1 \(session 1\) and p1 \(session 2\)", table, sessions="all")


def write_bids(src: Path, names: tuple[str, ...]) -> Path:
    src.mkdir()
    (src / "participants.tsv").write_text("participant_id\tsite\tlabel\nsub-1\tA\t0\nsub-2\tB\t1\n")
    for i, name in enumerate(names):
        write_text(src / f"{name}_atlas-Tian_timeseries.tsv", scan(i), list("abcde"))
    return src


def test_bids_sessions_and_runs(tmp_path):
    names = ("sub-1_ses-1_run-1", "sub-1_ses-1_run-2", "sub-1_ses-10_run-1", "sub-1_ses-2_run-1", "sub-2_ses-1_run-1")
    src = write_bids(tmp_path / "src", names)
    cohort = import_cohort("bids", src, tmp_path / "all", sessions="all")
    ids = ["sub-1_ses-1", "sub-1_ses-2", "sub-1_ses-10", "sub-2_ses-1"]
    check(cohort, ids=ids, n_frames=[20, 23, 22, 24])  # the first run of each session
    runs = import_cohort("bids", src, tmp_path / "runs", sessions="all", runs="concatenate")
    assert runs.n_frames.tolist() == [41, 23, 22, 24], "all runs of each session"
    joined = import_cohort("bids", src, tmp_path / "join", sessions="join")
    assert joined.n_frames.tolist() == [20 + 23 + 22, 24]
    as_before = import_cohort("bids", src, tmp_path / "before")
    assert as_before.n_frames.tolist() == [20, 24]
    assert "session" not in as_before.participants


def test_bids_runs_are_sessions_where_there_are_none(tmp_path):
    src = write_bids(tmp_path / "src", ("sub-1_task-rest_run-1", "sub-1_task-rest_run-2", "sub-2_task-rest"))
    cohort = import_cohort("bids", src, tmp_path / "all", sessions="all")
    assert cohort.ids.tolist() == ["sub-1_run-1", "sub-1_run-2", "sub-2_ses-1"]


def test_packed_sessions(tmp_path):
    src = write_layout("packed", tmp_path / "src")
    archive = dict(np.load(src / "aal116.npz"))
    archive["participant_id"][1] = "007"
    np.savez(src / "aal116.npz", **archive)
    rows = "007\tA\t1\ta\t8\n007\tA\t1\tb\t9\np10\tB\t0\ta\t10\n"
    header = "participant_id\tsite\tdiagnosis\tsession\tn_frames\n"
    (src / "participants.tsv").write_text(header + rows.replace("\tb\t", "\ta\t"))
    refuse("give each scan its own session in column 'session'$", import_cohort, "packed", src, tmp_path / "no")
    (src / "participants.tsv").write_text(header + rows)
    refuse("--sessions", import_cohort, "packed", src, tmp_path / "no")
    every = import_cohort("packed", src, tmp_path / "all", sessions="all")
    assert every.ids.tolist() == ["007_ses-a", "007_ses-b", "p10"]
    assert import_cohort("packed", src, tmp_path / "join", sessions="join").n_frames.tolist() == [17, 10]


@pytest.mark.parametrize("sessions", [None, "first", "join", "average", "all"])
def test_without_repeats_nothing_changes(tmp_path, sessions):
    """The fingerprint is that of the code that knew no sessions, for a table with a column ``session`` by chance."""
    src = write_layout("table", tmp_path / "src")
    lines = (src / "participants.tsv").read_text().splitlines()
    own = [lines[0] + "\tsession\tscan_id", *(f"{line}\t0{i}\tx{i}" for i, line in enumerate(lines[1:]))]
    (src / "participants.tsv").write_text("\n".join(own) + "\n")
    cohort = import_cohort("table", src, tmp_path / "out", sessions=sessions)
    assert cohort.fingerprint.startswith("6ca10323bb765492")
    assert cohort.select([2, 0]).fingerprint.startswith("cf974aaa02136b2e")
    assert cohort.ids.tolist() == cohort.participant_ids.tolist()
    assert SCAN_ID not in cohort.participants


def test_repeated_scans_are_no_duplicates_but_one_scan_under_two_sessions_is():
    cohort = simulate(Simulation(n_sites=2, per_class=3, n_rois=8, frames=60, dead_share=0, sessions=2))
    result = audit(cohort)
    assert result.exclusions == {}
    assert f"{len(cohort)} scans of {len(cohort) // 2} participants" in format_audit(result)
    scans = [cohort.scan(i) for i in range(len(cohort))]
    scans[1] = 2 * scans[0] + 1
    columns = cohort.participants[["participant_id", "session", "site", "label"]]
    copied = Cohort.from_scans(scans, **{name: columns[name] for name in columns})
    result = audit(copied)
    assert result.explain_exclusions() == {"sim0001_ses-2": ["the same scan as sim0001_ses-1, which is kept"]}
    assert "ONE SCAN UNDER TWO SESSIONS" in format_audit(result)
    counts = f"1 of {len(cohort)} scans; {len(cohort) - 1} scans of {len(cohort) // 2} participants remain"
    assert counts in format_audit(result)
    assert "frames in first scans of participants" in format_audit(result)
    assert result.to_dict().keys() == audit(cohort.select(np.arange(0, len(cohort), 2))).to_dict().keys()


def test_the_audit_counts_participants():
    once, repeated = (simulate(Simulation(3, 3, n_rois=8, frames=60, sessions=n)) for n in (1, 3))
    one, many = audit(once), audit(repeated)
    assert many.n_before == 3 * one.n_before
    for name in ("classes_before", "classes_after", "sites", "label_by_site", "length_by_label", "repetition_time"):
        assert getattr(many, name) == getattr(one, name), name


def test_first_sessions_of_the_simulator_are_the_scans_of_one_session():
    once = simulate(Simulation(n_sites=2, per_class=2, n_rois=8, frames=40))
    repeated = simulate(Simulation(n_sites=2, per_class=2, n_rois=8, frames=40, sessions=2))
    first = repeated.select(np.flatnonzero(repeated.participants["session"] == "1"))
    check_scans(first, [once.scan(i) for i in range(len(once))])
    assert not np.allclose(repeated.scan(0), repeated.scan(1))
    pd.testing.assert_series_equal(first.participants["mean_fd"], once.participants["mean_fd"])
