"""What 'brio import' says about a table of one's own, and the option that names its participants."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def study(tmp_path: Path) -> Path:
    rows = []
    for i, person in enumerate(("p1", "p2", "p3", "p4", "p5")):
        frames = np.random.default_rng(i).normal(size=(40, 3))
        np.savetxt(tmp_path / f"{person}.csv", frames, delimiter=",", header="a,b,c", comments="")
        rows.append(f"{person};{'AB'[i % 2]};{i // 2 % 2};2{i},5;0,1")
    (tmp_path / "participants.csv").write_text("\n".join(["Subject;Site;Label;Age;MeanFD", *rows, "p6;A;1;30;0,1"]))
    return tmp_path


def test_a_column_of_participants_is_named_and_found_columns_are_printed(study, brio):
    said = brio("import", "table", study, "--out", study / "out").refuse()
    assert "did you mean 'Subject'?" in said.err
    assert "--id-column can name another" in said.err
    said = brio("import", "table", study, "--id-column", "Subject", "--out", study / "out").succeed()
    assert "age (column 'Age'), mean_fd (column 'MeanFD'); not found: sex, tr" in said.out
    assert "1 row or file skipped: no file whose name starts with the participant_id (1); cohort.json lists" in said.out


@pytest.mark.parametrize("command", ["predict", "adapt"])
def test_scans_to_predict_take_the_option(command, brio, here, study):
    assert brio("fit", "cohort", "--method", "ridge", "--out", "model", "--device", "cpu", "--quiet").status == 0
    words = [command, "model", study, "--out", "out", "--kind", "table", "--id-column"]
    assert "there is no column 'Person'" in brio(*words, "Person").err
    said = brio(*words, "Subject")
    assert "no column" not in said.err
    assert "5 scans read" in said.out
