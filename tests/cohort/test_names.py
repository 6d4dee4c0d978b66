"""Names that a spreadsheet would execute are refused wherever they enter; names with HTML are shown as text."""

import csv
import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brio.cohort import Atlas, Cohort
from brio.cohort.names import is_formula
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.jobs import JobSpec
from brio.models import fit_model
from brio.models.card import write_card
from brio.models.explain import explain_model
from brio.models.explain_output import describe_explanation
from brio.results.format import disarm_html, escape_markdown, format_table
from commands import command
from stored import rehash

FORMULA = "=HYPERLINK(A1)"


@settings(max_examples=50)
@given(st.text("aZ19e.+-=@ _", min_size=1, max_size=8), st.sampled_from("=+-@"))
def test_a_formula_begins_with_its_mark_and_is_no_number(text, mark):
    assert not is_formula(f"a{mark}{text}")
    if any(c.isalpha() for c in text) and not is_number(mark + text):
        assert is_formula(mark + text)
        assert is_formula(f" {mark}{text}")


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_study(folder, **changes):
    """Six participants; one value is changed."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    columns = {"participant_id": [f"p{i}" for i in range(6)], "site": list("AABBCC"), "label": ["HC", "MDD"] * 3}
    columns["handedness"] = ["left", "right"] * 3
    for name, value in changes.items():
        if name in columns:
            columns[name] = [value if v == columns[name][1] else v for v in columns[name]]
    if "column" in changes:
        columns[changes["column"]] = ["x"] * 6
    table = pd.DataFrame(columns)
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)
    for name in table["participant_id"]:
        np.save(folder / f"{name}.npy", rng.normal(size=(50, 4)))
    names = ["a", "b", "c", changes.get("roi", "d")]
    pd.DataFrame({"name": names}).to_csv(folder / "rois.tsv", sep="\t", index=False)
    return columns["label"][1]


PLACES = ["participant_id", "site", "label", "handedness", "column", "roi", "name"]


@pytest.mark.parametrize("place", PLACES)
def test_a_formula_is_refused_at_import(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patient = write_study(tmp_path / "study", **{place: FORMULA})
    words = ["import", "table", "study", "--patient", patient, "--control", "HC", "--atlas-table", "study/rois.tsv"]
    words += ["--name", FORMULA] if place == "name" else []
    said = command(*words, "--out", "new")
    assert said.status == 2
    assert said.err.count("\n") == 1
    assert "begins with '=', which spreadsheets execute as a formula" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


def test_numbers_with_a_sign_and_marks_of_missing_values_are_names_like_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "study", label="-1", handedness="--")
    said = command("import", "table", "study", "--patient", "-1", "--control", "HC", "--out", "new")
    assert said.status == 0, said
    assert Cohort.load("new").classes == ("HC", "-1")


@pytest.mark.parametrize("file", ["participants.tsv", "atlas.tsv", "cohort.json"])
def test_a_cohort_folder_of_somebody_else_is_not_trusted_either(file, tmp_path, monkeypatch):
    cohort = simulate(Simulation(n_sites=2, per_class=3, n_rois=8, frames=40))
    if file == "cohort.json":
        cohort = dataclasses.replace(cohort, name="plain")
    cohort.save(tmp_path / "cohort")
    path = tmp_path / "cohort" / file
    old = {"participants.tsv": "sim0001", "atlas.tsv": "stable_1_L", "cohort.json": '"plain"'}[file]
    path.write_text(path.read_text().replace(old, json.dumps(FORMULA) if file == "cohort.json" else FORMULA))
    monkeypatch.setattr("brio.cohort.content.hash_tables", lambda folder: json_tables(folder))
    rehash(tmp_path / "cohort")
    with pytest.raises(BrioError, match="spreadsheets execute as a formula"):
        Cohort.load(tmp_path / "cohort")


def json_tables(folder):
    """The hash that the folder declares, as if its maker had written the formula."""
    return json.loads((folder / "cohort.json").read_text())["tables"]


HOSTILE = "<img src=x onerror=alert(1)>|`*[a](javascript:alert(1))"


def test_names_with_markup_are_text_in_every_markdown_file():
    base = simulate(Simulation(n_sites=4, per_class=6, n_rois=8, frames=60))
    rois = base.atlas.rois.assign(name=[f"{name}{HOSTILE}" for name in base.atlas.rois["name"]])
    cohort = Cohort.from_scans(
        [base.scan(i) for i in range(len(base))],
        site=[f"{site}{HOSTILE}" for site in base.sites],
        label=base.labels,
        atlas=Atlas(f"atlas{HOSTILE}", rois),
        classes=(f"control{HOSTILE}", f"patient{HOSTILE}"),
        name=f"cohort{HOSTILE}",
    )
    model = fit_model(JobSpec(cohort, ["ridge"], device="cpu", exclude=False))
    for text in (write_card(model), describe_explanation(explain_model(model, device="cpu"))):
        assert "img src=x" in text
        assert "<img" not in text
    table = format_table([HOSTILE], [[HOSTILE]])
    assert "<img" not in table
    assert [row.replace("\\|", "").count("|") for row in table.splitlines()] == [2, 2, 2]
    assert escape_markdown("Paris\n# heading") == "Paris # heading"
    assert disarm_html("p < 0.001 and a<b &amp;") == "p < 0.001 and a&lt;b &amp;amp;"


def test_no_cell_of_a_job_is_a_formula(tmp_path):
    cohort = simulate(Simulation(n_sites=3, per_class=3, n_rois=8, frames=60))
    cohort.save(tmp_path / "cohort")
    words = ["run", tmp_path / "cohort", "--method", "ridge", "--device", "cpu", "--quiet", "--out", tmp_path / "job"]
    assert command(*words).status == 0
    for path in (tmp_path / "job").glob("*.csv"):
        with path.open(newline="") as file:
            assert not [cell for row in csv.reader(file) for cell in row if is_formula(cell)], path
