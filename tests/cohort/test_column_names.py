"""Columns of a participants table that brio knows: other spellings, and columns that an option names."""

from pathlib import Path

import numpy as np
import pytest
from file_layouts import refuse

from brio import BrioError
from brio.cohort.readers import find_layout, import_cohort, read_scans_to_predict, summarise_columns

PEOPLE = ["p1", "p2", "p3", "p4"]


def write_study(src: Path, header: str, rows: list[str] | None = None) -> Path:
    src.mkdir(parents=True)
    for i, person in enumerate(PEOPLE):
        np.save(src / f"{person}.npy", np.random.default_rng(i).normal(size=(40, 3)))
    values = rows or [f"{p},{'AB'[i % 2]},{i // 2},{20 + i},{'FM'[i % 2]},0.1{i},2" for i, p in enumerate(PEOPLE)]
    (src / "participants.csv").write_text("\n".join([header, *values]) + "\n")
    return src


@pytest.mark.parametrize("mean_fd", ["MeanFD", "meanFD", "mean_FD", "FD_mean", "Mean FD"])
def test_capitals_and_signs_in_names_of_columns_do_not_matter(tmp_path, mean_fd):
    plain = write_study(tmp_path / "plain" / "study", "participant_id,site,label,age,sex,mean_fd,tr")
    other = write_study(tmp_path / "other" / "study", f"Participant_ID,Site,LABEL,Age,SEX,{mean_fd},TR")
    expected = import_cohort("table", plain, tmp_path / "a")
    cohort = import_cohort("table", other, tmp_path / "b")
    assert cohort.fingerprint == expected.fingerprint
    assert "renamed_columns" not in expected.provenance
    assert summarise_columns(expected) == "columns that some methods need: age, mean_fd, sex, tr"
    assert summarise_columns(cohort) == (
        f"columns that some methods need: age (column 'Age'), mean_fd (column '{mean_fd}'), sex (column 'SEX'), "
        "tr (column 'TR')"
    )
    predicted = read_scans_to_predict(other, tmp_path / "c", kind="table")
    assert predicted.fingerprint == expected.fingerprint


def test_columns_that_were_not_found_are_said(tmp_path):
    src = write_study(tmp_path / "study", "participant_id,site,label,years,sex,fd,tr_ms")
    cohort = import_cohort("table", src, tmp_path / "out")
    assert summarise_columns(cohort) == "columns that some methods need: sex; not found: age, mean_fd, tr"


def test_two_columns_that_would_become_one_are_refused(tmp_path):
    src = write_study(tmp_path / "a", "participant_id,site,label,age,Sex,MeanFD,FD_mean")
    with pytest.raises(BrioError, match=r"columns 'MeanFD' and 'FD_mean' would both be read as 'mean_fd'; rename"):
        import_cohort("table", src, tmp_path / "out")
    src = write_study(tmp_path / "b", "participant_id,Site,label,SITE,Sex,a,b")
    refuse(r"columns 'Site' and 'SITE' would both be read as 'site'", import_cohort, "table", src, tmp_path / "out")
    assert import_cohort("table", src, tmp_path / "out", site_column="Site").sites.tolist() == ["A", "B"] * 2


def test_the_exact_name_stays_and_others_are_kept_beside_it(tmp_path):
    src = write_study(tmp_path / "study", "participant_id,site,label,age,sex,mean_fd,Age")
    cohort = import_cohort("table", src, tmp_path / "out")
    assert cohort.participants["age"].tolist() == [20, 21, 22, 23]
    assert cohort.participants["Age"].tolist() == [2, 2, 2, 2]
    assert "renamed_columns" not in cohort.provenance


def test_a_column_that_an_option_names_is_not_a_covariate(tmp_path):
    src = write_study(tmp_path / "study", "participant_id,TR,x,Age,Sex,MeanFD,y")
    cohort = import_cohort("table", src, tmp_path / "out", site_column="TR", label_column="Sex", patient="F")
    assert cohort.labels.tolist() == [1, 0, 1, 0]
    assert not {"sex", "tr", "Sex", "TR"} & set(cohort.participants)
    assert cohort.provenance["renamed_columns"] == {"age": "Age", "mean_fd": "MeanFD"}


def test_session_and_file_are_found_in_any_capitals(tmp_path):
    rows = ["p1,A,0,1,p2.npy", "p1,A,0,2,p1.npy", "p3,B,1,1,p4.npy"]
    src = write_study(tmp_path / "study", "participant_id,site,label,Session,File", rows)
    assert find_layout(src) == "table"
    cohort = import_cohort("table", src, tmp_path / "out", sessions="all")
    assert cohort.ids.tolist() == ["p1_ses-1", "p1_ses-2", "p3_ses-1"]
    np.testing.assert_allclose(cohort.scan(0), np.load(src / "p2.npy"), rtol=1e-6)
    assert cohort.provenance["renamed_columns"] == {"session": "Session", "file": "File"}
    assert not {"Session", "File", "file"} & set(cohort.participants)


@pytest.mark.parametrize("kind", ["table", "fc", "bids"])
def test_the_column_of_the_participant_can_be_named(tmp_path, kind):
    header = "Subject,site,label,participant_id,sex,mean_fd,tr"
    src = write_study(tmp_path / "study", header)
    for person in PEOPLE:
        frames = np.load(src / f"{person}.npy")
        if kind == "fc":
            np.save(src / f"{person}.npy", np.corrcoef(frames.T))
        elif kind == "bids":
            lines = ["a\tb\tc", *("\t".join(map(str, row)) for row in frames)]
            (src / f"sub-{person}_atlas-X_timeseries.tsv").write_text("\n".join(lines))
    refuse(r"no (file|time series)", import_cohort, kind, src, tmp_path / "out")
    cohort = import_cohort(kind, src, tmp_path / "out", id_column="Subject")
    assert cohort.ids.tolist() == PEOPLE
    assert cohort.participants["participant_id_in_source"].tolist() == [20, 21, 22, 23]
    assert cohort.provenance["options"]["id_column"] == "Subject"
    with pytest.raises(BrioError, match=r"no column 'subject', did you mean 'Subject'\?.*--id-column can name another"):
        import_cohort(kind, src, tmp_path / "out2", id_column="subject")
