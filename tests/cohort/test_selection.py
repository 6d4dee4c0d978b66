"""Participants' tables as hospitals have them: which rows and columns are taken, codes of the sex, rows of sessions."""

import json
import shutil
from pathlib import Path

import hypothesis
import numpy as np
import pandas as pd
import pytest
from file_layouts import (
    check,
    check_scans,
    list_skipped,
    make_frames,
    refuse,
    refuse_import,
    write_layout,
    write_study,
    write_text,
)
from hypothesis import given
from hypothesis import strategies as st

from brio import Cohort
from brio.cohort.readers import import_cohort, read_scans_to_predict, select_scans
from brio.cohort.readers.participants import explain_left_out, read_participants
from brio.cohort.selection import find_fulfilling
from brio.cohort.simulate import Simulation, simulate
from commands import command

TABLE = pd.DataFrame(
    {"age": ["20", "30.5", None, "9"], "site": list("ABCA"), "my col": list("xyxy"), "code": ["007", "08", "n/a", "9"]}
)
HEADER = "participant_id;site;label;Sex;Alter;IQ_raw;age;age.1"
ROWS = ("p1;A;0;1;20;9;3;4", "p2;B;0;2;17;9;3;4", "p3;A;1;1;;9;3;4", "p4;B;1;2;30;9;3;4")
NAMED = {"age_column": "Alter", "male": "1", "female": "2", "ignore_columns": "*_raw,age.1"}


def write_table(src: Path) -> Path:
    """Write four scans and a table from Excel."""
    src.mkdir()
    write_study(src)
    (src / "participants.csv").write_text("\n".join([HEADER, *ROWS]))
    return src


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        ("age >= 18 and site in ['A', 'B']", [0, 1]),
        ("10 < age <= 20 or age == 9", [0, 3]),
        ("not age > 25", [0, 3]),
        ("site not in ('A',)", [1, 2]),
        ('`my col` == "x" and age > -1', [0]),
        ('code != "007"', [1, 3]),
        ("site != '`a` and @b.c()'", [0, 1, 2, 3]),
    ],
)
def test_expressions(expression, rows):
    assert find_fulfilling(TABLE, expression, "t.csv")[0].nonzero()[0].tolist() == rows


NAMED_CELLS = pd.DataFrame(
    {
        "age": [10.0, 14.5, 15.0, 20.0, 30.0, 31.0],
        "iq": [120, 100, 90, 30, 110, 115],
        "site": ["S1", "S2", "S1", "Ort ä", "S2", "S3"],
    }
)
NUMBERS = st.tuples(st.sampled_from(["age", "iq"]), st.sampled_from(["<", "<=", ">", ">=", "==", "!="])).flatmap(
    lambda pair: st.sampled_from(["14.5", "30", "1e2", ".5", "-3", "age", "iq"]).map(
        lambda n: f"{pair[0]} {pair[1]} {n}"
    )
)
TEXTS = st.tuples(st.sampled_from(["==", "!="]), st.sampled_from(["'S1'", "'S3'", "'Ort ä'"])).map(
    lambda pair: f"site {pair[0]} {pair[1]}"
)
OTHERS = st.sampled_from(
    ["site in ['S1', 'S3']", "site not in ('S2',)", "10 < age <= 20", "120 >= iq > 100", "age in [10, 3e1]", "30 < iq"]
)
CONDITIONS = st.recursive(
    NUMBERS | TEXTS | OTHERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=4,
)


@hypothesis.settings(max_examples=100, deadline=None)
@given(CONDITIONS)
def test_what_is_accepted_selects_the_rows_of_pandas(condition):
    written = NAMED_CELLS.assign(  # as people's tables have it
        site=["S1 ", "\uff332", "S1", "Ort  a\u0308", "S2", "S3"], age=["10", "14.50", "15.0", "2e1", "30", "31"]
    )
    expected = NAMED_CELLS.eval(condition, engine="python").tolist()
    for table in (NAMED_CELLS, written):
        assert find_fulfilling(table, condition, "t.csv")[0].tolist() == expected


@pytest.mark.parametrize(
    "condition",
    [
        *(
            "1 < 2 < age",
            "1 < age < iq",
            "10 == age == 10",
            "age < 15 > 3 < iq",
            "(age > 15) == (iq > 110)",
            "age > iq > 3",
        ),
        *("site == ['S1', 'S2']", "site != ('S1',)", "'S1' in site", "site in site", "site in 'S1'", "age in 15"),
        *("site in ['S1', 3]", "age in [10, '20']", "site in []", "['S1'] == site", "site in [site]", "site == site"),
        *(
            "age > 1_4",
            "age > 0x10",
            "age > 1e999 - 1",
            "-age < 3",
            "age is 15",
            "age == True",
            "(age > 3) > 2",
            "site < 'S2'",
        ),
        *("age > '15'", "site == 1", "site == 'S9'", "site in ['S8', 'S9']", "not site == 'S9'", "age > 14,5", "1 < 2"),
    ],
)
def test_what_python_and_pandas_read_differently_is_refused(condition):
    refuse("--where", find_fulfilling, NAMED_CELLS, condition, "t.csv")


def test_texts_are_found_as_they_are_meant():
    table = pd.DataFrame({"site": ["KKI", "KKI ", "nyu", "NYU", "x"], "Sex": ["M", "male", "f", "Frau", "w"]})
    assert find_fulfilling(table, "site == 'kki'", "t.csv")[0].tolist() == [True, True, False, False, False]
    assert find_fulfilling(table, "Sex == 'Mann'", "t.csv")[0].tolist() == [True, True, False, False, False]
    for condition in ("site == 'nyu'", "site == 'NYU'", "site in ['x', 'Nyu']", "site != 'nyu'"):
        refuse(r"'NYU' \(1\), 'nyu' \(1\)", find_fulfilling, table, condition, "t.csv")
    refuse("'kk'; did you mean 'KKI'", find_fulfilling, table, "site == 'kk'", "t.csv")
    fulfilled, _, _, warnings = find_fulfilling(table, "site not in ['KKI', 'y']", "t.csv")
    assert fulfilled.tolist() == [False, False, True, True, True]
    assert len(warnings) == 1
    assert "'y'" in warnings[0]
    assert find_fulfilling(table, "site in ['KKI', 'y']", "t.csv")[3] == warnings
    assert find_fulfilling(table, "site in ['KKI', 'x']", "t.csv")[3] == []


def test_words_for_a_sex_are_read_and_others_told_at_import(tmp_path):
    rows = [f"p{i},{'AB'[i % 2]},{i // 2},{sex}" for i, sex in enumerate(["männlich", "Weiblich", "divers", "w"])]
    src = write_study(
        tmp_path / "study", [f"p{i}" for i in range(4)], header="participant_id,site,label,Sex", rows=rows
    )
    cohort = import_cohort("table", src, tmp_path / "out")
    (warning,) = cohort.provenance["warnings"]
    assert "'divers' (1)" in warning
    for males, females in (("Männlich", "w"), ("MÄNNLICH", None)):
        again = import_cohort("table", src, tmp_path / f"out{females}", male=males, female=females)
        assert again.participants["sex"].tolist() == ["M", "Weiblich", "divers", "F" if females else "w"]
    spanish = [
        row.replace("männlich", "H").replace("Weiblich", "M").replace("divers", "h").replace(",w", ",M") for row in rows
    ]
    write_study(src, [f"p{i}" for i in range(4)], header="participant_id,site,label,Sex", rows=spanish)
    cohort = import_cohort("table", src, tmp_path / "es", where="label < 2")
    assert "'H' (1), 'h' (1)" in cohort.provenance["warnings"][0]
    refuse_import(r"'H' \(1\), 'h' \(1\)", src, male="H", female="M")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("agee > 3", "t.csv: there is no column 'agee', which --where compares; did you mean 'age'"),
        ("`my cal` == 'x'", "no column 'my cal'.* did you mean 'my col'"),
        ("site > 5", "compares the text in column 'site' .such as 'A'. with a number; compare it with text in quotes"),
        ("`my col` == 3", "compares the text in column 'my col' .such as 'x'. with"),
        ("site > 'A'", "by < or >"),
        (
            "age == '20'",
            "compares the text '20' with a number; compare a column of numbers with numbers, without quotes",
        ),
        *[(text, "cannot be read; .*== for equal") for text in ("age = 3", "", "@age > 3", "age", "1 < 2", "age in 5")],
        *[(text, "cannot be read") for text in ("(" * 300, "-" * 900 + "1 < age", "age < 1" * 400, "\0", "not age")],
        *[
            (text, "may contain only comparisons; write comparisons such as")
            for text in (
                "__import__('os').system('ls') == 1",
                "age.__class__ == 1",
                "age > 3 & age < 4",
                "[x for x in age] == 1",
                "(lambda: 3) == age",
                "f'{age}' == 'x'",
                "(age := 3) > 2",
                "age[0] > 2",
                "age == None",
            )
        ],
    ],
)
def test_expressions_that_are_refused(expression, message):
    refuse(message, find_fulfilling, TABLE, expression, "t.csv")


def test_a_table_from_excel(tmp_path):
    src = write_table(tmp_path / "study")
    (tmp_path / "qc.tsv").write_text("participant_id\treason\np4\tmotion\nq9\tmotion\n")
    cohort = import_cohort("table", src, tmp_path / "all", **NAMED, class_names="HC,MDD")
    check(cohort, ids=["p1", "p2", "p3", "p4"], sex=["M", "F", "M", "F"], classes=["HC", "MDD"])
    columns = ["participant_id", "site", "label", "sex", "age", "age_in_source", "n_frames"]
    assert cohort.participants.columns.tolist() == columns
    assert cohort.participants["age"].tolist()[:2] == [20, 17]
    assert cohort.provenance["renamed_columns"] == {"age": "Alter", "sex": "Sex"}
    options = cohort.provenance["options"]
    assert options["ignore_columns"] == ["*_raw", "age.1"]
    given = NAMED | {"where": "Alter >= 18 or IQ_raw < 5", "exclude": tmp_path / "qc.tsv"}
    rows = [*ROWS, "p5;B;0;2;30;9;3;4", "p6;B;1;1;4;9;3;4", "p6;B;1;1;40;9;3;4"]
    write_study(src, [f"p{i}" for i in range(1, 7)], header=HEADER, rows=rows)
    cohort = import_cohort("table", src, tmp_path / "some", **given)
    check(cohort, ids=["p1", "p5", "p6"])
    why = list_skipped(cohort)
    assert (why["p2"], why["p4"]) == ("'Alter >= 18 or IQ_raw < 5' is false", "excluded by qc.tsv: motion")
    assert why["p3"] == "no value in Alter or IQ_raw, which --where compares"
    assert cohort.provenance["warnings"][0].endswith("participants.csv: q9")
    options = cohort.provenance["options"]
    assert (options["where"], options["exclude"]) == (given["where"], "qc.tsv")
    refuse_import(r"none of the 7 rows is left; reasons: 'label > 1' is false \(7\)", src, where="label > 1")
    refuse_import(r"participant p6 appears in rows 6 and 7", src)
    (src / "participants.csv").write_text("\n".join([HEADER, *ROWS]))
    refuse_import(
        "--ignore-columns: the table has no column 'IQraw'; did you mean 'IQ_raw'", src, ignore_columns="IQraw"
    )
    refuse_import("no column 'alter'; did you mean 'Alter'", src, age_column="alter")
    for names in ("HC", "HC,HC", "HC,,MDD", "a,b,c"):
        refuse_import("--class-names takes two different names", src, class_names=names)
    refuse_import(
        r"--class-names: '1' is a label of the other class \(1\); give the name of controls first",
        src,
        class_names="1,0",
    )
    refuse_import("--male and --female are both '1'", src, male="1", female="1")


def test_a_list_that_names_nobody_is_refused(tmp_path):
    src, listed = write_table(tmp_path / "study"), tmp_path / "qc.csv"
    for content, message in {
        "3;motion\n07;motion": r"to leave out .not found in .*participants.csv: 07;motion, 3;motion",
        "": "it is empty",
        "participant_id;reason\np1;motion\n;sleep": r"column 'participant_id' is empty in row 2",
    }.items():
        listed.write_text(content)
        refuse_import(message, src, **NAMED, exclude=listed)
    text = (src / "participants.csv").read_text()
    (src / "participants.csv").write_text(text.replace("participant_id", "Proband (ID)"))
    listed.write_text('"Proband (ID)";"reason"\n"p3";"motion"\n')
    cohort = import_cohort("table", src, tmp_path / "cohort", **NAMED, id_column="Proband (ID)", exclude=listed)
    assert list_skipped(cohort) == {"p3": "excluded by qc.csv: motion"}
    listed.write_text('"p3"\n')
    again = import_cohort("table", src, tmp_path / "again", **NAMED, id_column="Proband (ID)", exclude=listed)
    assert again.fingerprint == cohort.fingerprint


def test_conditions_on_scans_to_predict_need_a_table(tmp_path):
    for kind in ("table", "pcp"):
        src = write_layout(kind, tmp_path / kind, labels=None)
        refuse(
            "give the participants table with --participants",
            read_scans_to_predict,
            src,
            tmp_path / "out",
            where="age > 3",
        )


def test_what_is_asked_or_said_of_columns(tmp_path):
    src = write_table(tmp_path / "study")
    refuse_import(
        r"column 'Sex' contains the codes '1' \(2\), '2' \(2\); state what the codes mean.*--male 1 --female 2",
        src,
    )
    text = (src / "participants.csv").read_text()
    (src / "participants.csv").write_text(text.replace("p4;B;1;2", "p4;B;1;9").replace("p1;A;0;1", "p1;A;0;1.0"))
    cohort = import_cohort("table", src, tmp_path / "cohort", male="1", female="2")
    assert cohort.participants["sex"].tolist()[:3] == ["M", "F", "M"]
    assert cohort.participants["sex"].isna().tolist() == [False, False, False, True]
    copies, unclear = cohort.provenance["warnings"]
    assert "column 'Sex': numbers other than --male and --female are treated as missing: '9' (1)" in unclear
    assert "seems to have repeated columns, numbered by pandas (age.1); brio keeps these columns" in copies
    (src / "participants.csv").write_text(text.replace("p1;A;0;1", "p1;A;0;0").replace("p3;A;1;1", "p3;A;1;0"))
    refuse_import(r"contains the codes '0' \(2\), '2' \(2\)", src)
    refuse_import(r"contains the code '2' \(2\); state", src, male="0")
    for code, word in {";A;0;1": ";A;0;Male", ";A;1;1": ";A;1;m", ";B;0;2": ";B;0;w", ";B;1;2": ";B;1;F"}.items():
        text = text.replace(code, word)
    (src / "participants.csv").write_text(text)
    check(import_cohort("table", src, tmp_path / "words"), sex=["Male", "w", "m", "F"])


def test_left_out_sessions_do_not_lend_their_files(tmp_path):
    rows = [f"p{i},{'AB'[i % 2]},{i // 2},{session}" for i in range(4) for session in (1, 2)]
    names = [f"p{i}_ses-{session}" for i in range(4) for session in (1, 2)][1:]  # p0_ses-1 is not there
    write_study(tmp_path, names, header="participant_id,site,label,session", rows=rows)
    cohort = import_cohort("table", tmp_path, tmp_path / "cohort", where="session == 1")
    check(cohort, ids=["p1", "p2", "p3"])
    assert {"participant_id": "p1", "reason": "'session == 1' is false", "session": "2"} in cohort.provenance["skipped"]
    (tmp_path / "out.csv").write_text("participant_id,session\np1,2.0\np2,\np3,7.0\n")
    cohort = import_cohort("table", tmp_path, tmp_path / "other", sessions="all", exclude=tmp_path / "out.csv")
    assert cohort.ids.tolist() == ["p0_ses-2", "p1_ses-1", "p3_ses-1", "p3_ses-2"]
    assert cohort.provenance["warnings"][0].endswith("participants.csv: p3 (session 7)")


def write_sessions(src: Path, listed: bool, first: int = 1) -> Path:
    """Write two sessions of four participants, with rows in the participants table, or in files of their own."""
    src.mkdir()
    rows, people = ["participant_id\tsession_id\tsite\tlabel\tage"], ["participant_id\tsite\tlabel"]
    for i in range(4):
        ages = [(f"ses-0{k}", 20 + i + k) for k in (first, first + 1)]
        rows += [f"sub-{i}\t{session}\t{'AB'[i % 2]}\t{i // 2}\t{age}" for session, age in ages]
        people.append(f"sub-{i}\t{'AB'[i % 2]}\t{i // 2}")
        for session, age in ages:
            path = src / f"sub-{i}" / session / "func" / f"sub-{i}_{session}_task-rest_atlas-Tian_timeseries.tsv"
            write_text(path, make_frames(age, 2), ["a", "b"])
        if not listed:
            text = "".join(f"{session}\t{age}\n" for session, age in ages)
            (src / f"sub-{i}" / f"sub-{i}_sessions.tsv").write_text(f"session_id\tage\n{text}")
    (src / "participants.tsv").write_text("\n".join(rows if listed else people))
    return src


@pytest.mark.parametrize("listed", [True, False])
def test_sessions_of_bids_have_rows(tmp_path, listed):
    src = write_sessions(tmp_path / "bids", listed)
    refuse_import("4 of 4 participants have several scans .*sessions 01, 02.*--sessions", src, "bids")
    cohort = import_cohort("bids", src, tmp_path / "all", sessions="all")
    check(cohort, session=["01", "02"] * 4, age=[21, 22, 22, 23, 23, 24, 24, 25])
    cohort = import_cohort("bids", src, tmp_path / "second", where="session_id == 'ses-02'")
    check(cohort, session=["02"] * 4, age=[22, 23, 24, 25])
    check_scans(cohort, [make_frames(age, 2) for age in (22, 23, 24, 25)])


def test_a_session_that_is_called_0_is_one(tmp_path):
    src = write_sessions(tmp_path / "bids", True, first=0)
    next(src.glob("sub-0/ses-00/func/*.tsv")).unlink()
    (tmp_path / "out.csv").write_text("participant_id,session\nsub-1,0\n")
    cohort = import_cohort("bids", src, tmp_path / "all", sessions="all", exclude=tmp_path / "out.csv")
    expected = ["sub-0_ses-01", "sub-1_ses-01", *(f"sub-{i}_ses-0{k}" for i in (2, 3) for k in (0, 1))]
    assert cohort.ids.tolist() == expected
    left_out = [(entry["participant_id"], entry["session"]) for entry in cohort.provenance["skipped"]]
    assert left_out == [("sub-1", "ses-00"), ("sub-0", "ses-00")]


def test_scans_of_sessions_without_a_row_are_counted(tmp_path):
    src = write_sessions(tmp_path / "bids", True)
    text = (src / "participants.tsv").read_text()
    (src / "participants.tsv").write_text(text.replace("sub-2\tses-02\tA\t1\t24", "sub-2\tses-03\tA\t1\t24"))
    cohort = import_cohort("bids", src, tmp_path / "cohort", where="session_id != 'ses-01'")
    check(cohort, ids=["sub-0", "sub-1", "sub-3"], session=["02"] * 3)
    last = cohort.provenance["skipped"][-2:]
    assert [entry["reason"] for entry in last] == [
        "no time series of atlas 'Tian' for the session of this row",
        "no row for this session",
    ]
    assert last[1]["file"].startswith("sub-2_ses-02_task-rest")


def test_runs_of_rows_that_are_left_out_are_not_read_for_others(tmp_path):
    src = tmp_path / "bids"
    rows = ["participant_id\tsession\tsite\tlabel"]
    for i in range(4):
        rows += [f"sub-{i}\trun-{k}\t{'AB'[i % 2]}\t{i // 2}" for k in (1, 2)]
        for k in (1, 2):
            name = f"sub-{i}_task-rest_run-{k}_atlas-Tian_timeseries.tsv"
            write_text(src / f"sub-{i}" / "func" / name, make_frames(10 * i + k, 2), ["a", "b"])
    (src / "participants.tsv").write_text("\n".join(rows))
    cohort = import_cohort("bids", src, tmp_path / "cohort", where="session == 'run-2'")
    check_scans(cohort, [make_frames(10 * i + 2, 2) for i in range(4)])


def test_a_row_whose_session_has_no_series_is_skipped(tmp_path):
    src = write_sessions(tmp_path / "bids", True)
    shutil.rmtree(src / "sub-1" / "ses-02")
    cohort = import_cohort("bids", src, tmp_path / "out", sessions="all")
    assert list_skipped(cohort) == {"sub-1": "no time series of atlas 'Tian' for the session of this row"}
    check(cohort, session=["01", "02", "01", "01", "02", "01", "02"], age=[21, 22, 22, 23, 24, 24, 25])


@pytest.mark.parametrize("sessions", ["all", "join", "average"])
def test_sessions_with_two_labels_are_refused(tmp_path, sessions):
    src = write_sessions(tmp_path / "bids", True)
    text = (src / "participants.tsv").read_text()
    (src / "participants.tsv").write_text(text.replace("sub-0\tses-02\tA\t0", "sub-0\tses-02\tA\t1"))
    refuse_import("participant sub-0 has scans with label 0 and 1; .* --sessions first", src, "bids", sessions=sessions)


@pytest.mark.parametrize("kind", ["pcp", "dpabi"])
def test_releases_leave_rows_out(tmp_path, kind):
    src = write_layout(kind, tmp_path / kind)
    people = {"pcp": None, "dpabi": src / "table.csv"}[kind]
    (src / "table.csv").write_text("id,AGE_AT_SCAN\nS1-1-0001,20\nS1-2-0001,31\nS20-1-0007,42\n")
    given = {"atlas": "aal116" if kind == "dpabi" else None, "participants": people, "where": "AGE_AT_SCAN < 40"}
    cohort = import_cohort(kind, src, tmp_path / "cohort", **given)
    assert (len(cohort), list(list_skipped(cohort).values())) == (2, ["'AGE_AT_SCAN < 40' is false"])


def test_conditions_hold_for_no_participant_without_a_row_or_value(tmp_path):
    src = write_layout("dpabi", tmp_path / "dpabi")
    (src / "table.csv").write_text("id,AGE\nS1-1-0001,20\nS1-2-0001,31\n")
    given = {"atlas": "aal116", "participants": src / "table.csv"}
    check(import_cohort("dpabi", src, tmp_path / "all", **given), ids=["S1-1-0001", "S1-2-0001", "S20-1-0007"])
    cohort = import_cohort("dpabi", src, tmp_path / "some", **given, where="AGE < 40")
    assert list_skipped(cohort) == {"S20-1-0007": "no row in table.csv, whose columns --where compares"}
    src = write_layout("pcp", tmp_path / "pcp")
    text = (src / "Phenotypic.csv").read_text()
    (src / "Phenotypic.csv").write_text(text.replace(",42", ",-9999"))
    cohort = import_cohort("pcp", src, tmp_path / "pcp-some", where="AGE_AT_SCAN < 40")
    assert list_skipped(cohort) == {"South_003": "no value in AGE_AT_SCAN, which --where compares"}


def test_select_writes_a_cohort(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = simulate(Simulation(n_sites=3, per_class=3, n_rois=8, frames=40)).save("whole")
    (tmp_path / "out.txt").write_text(f"{whole.ids[0]}\n\n")
    said = command("select", "whole", "--where", "site != 'site02'", "--exclude", "out.txt", "--out", "some").succeed()
    kept = (whole.sites != "site02") & (whole.ids != whole.ids[0])
    assert f"{kept.sum()} of {len(whole)} scans selected\n" in said.out
    assert "  left out, excluded by out.txt: 1\n" in said.out
    some = Cohort.load("some")
    some.verify()
    check(some, ids=whole.ids[kept])
    assert (some.scan(1) == whole.scan(int(kept.nonzero()[0][1]))).all()
    (step,) = json.loads(Path("some/cohort.json").read_text())["provenance"]["selected"]
    assert (step["fingerprint"], step["where"], step["exclude"]) == (whole.fingerprint, "site != 'site02'", "out.txt")
    assert step["left_out"] == {"excluded by out.txt": 1, "'site != 'site02'' is false": int((~kept).sum()) - 1}
    assert "give --where or --exclude" in command("select", "whole", "--out", "x").refuse_in_a_line()
    again, _ = select_scans(some, "label == 1", None)
    assert [step["where"] for step in again.provenance["selected"]] == ["site != 'site02'", "label == 1"]


@pytest.mark.parametrize(
    ("listed", "left_out"), [("1", {"1"}), ("sub-1", {"sub-1"}), ("2", {"sub-2"}), ("sub-3", {"3"})]
)
def test_a_listed_id_is_the_one_that_is_written_so_or_else_the_one_of_bids(listed, left_out, tmp_path):
    table = pd.DataFrame({"participant_id": ["1", "sub-1", "sub-2", "3", "4"]})
    (tmp_path / "out.txt").write_text(listed)
    reasons, _ = explain_left_out(table, None, tmp_path / "out.txt", "table", "participant_id", "session")
    assert set(table["participant_id"][np.array(reasons) != ""]) == left_out


@pytest.mark.parametrize(("cells", "refused"), [("1.250 2.310", True), ("902,5 1.250", True), ("1.25 2.310", False)])
def test_thousands_beside_decimal_commas_are_refused(cells, refused, tmp_path):
    one, other = cells.split()
    text = f"participant_id;age;weight\np1;10,5;{one}\np2;11,5;{other}\n"
    (tmp_path / "people.csv").write_text(text)
    if refused:
        refuse("weight", read_participants, tmp_path / "people.csv")
    else:
        assert [row["weight"] for row in read_participants(tmp_path / "people.csv").rows] == [one, other]
    (tmp_path / "people.csv").write_text(text.replace("10,5", "10.5").replace("11,5", "11.5").replace("902,5", "902"))
    assert read_participants(tmp_path / "people.csv").rows[1]["weight"] == other
