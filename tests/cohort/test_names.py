"""Names that a spreadsheet would execute or that steer a terminal are refused; names with HTML or TeX are text."""

import contextlib
import csv
import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest
from file_layouts import refuse
from hypothesis import given, settings
from hypothesis import strategies as st

from brio.cohort import Atlas, Cohort
from brio.cohort.readers import import_cohort
from brio.cohort.simulate import Simulation, simulate
from brio.cohort.values import compare_classes, is_formula
from brio.console import say
from brio.drawing import make_panels, render_figure
from brio.errors import find_control
from brio.formatting import disarm_html, escape_markdown, format_table
from brio.jobs import JobSpec
from brio.models import fit_model
from brio.models.explain import explain_model
from brio.models.explain_output import describe_explanation
from brio.models.folder import write_card
from brio.report.explanation import render_explanation_page
from commands import command
from stored import rehash

FORMULA = "=HYPERLINK(A1)"


@settings(max_examples=50)
@given(st.text("aZ19e.+-=@ _", min_size=1, max_size=8), st.sampled_from("=+-@"))
def test_a_formula_begins_with_its_mark_and_is_no_number(text, mark):
    assert not is_formula(f"a{mark}{text}")
    is_number = False
    with contextlib.suppress(ValueError):
        is_number = float(mark + text) is not None
    if any(c.isalpha() for c in text) and not is_number:
        assert is_formula(mark + text)
        assert is_formula(f" {mark}{text}")


@pytest.mark.parametrize(
    "name", ["\ufeff=1+A1", "\u200b@SUM(A1)", "\uff1dA1", "\uff0bA1", "\uff0dA1", "\uff20A1", "\t=A1", "\u00a0=A1"]
)
def test_a_formula_does_not_hide_behind_blanks_or_wide_marks(name):
    assert is_formula(name)


@pytest.mark.parametrize(
    ("theirs", "own", "compared"),
    [
        (("Control ", "PATIENT"), ("control", "patient"), "same"),
        (("patient", "CONTROL"), ("control", "patient"), "swapped"),
        (("female", "Männlich"), ("F", "M"), "same"),
        (("male", "w"), ("F", "M"), "swapped"),
        (("1.0", "2"), ("1", "2.00"), "same"),
        (("2", "1"), ("1", "2"), "swapped"),
        (("HC", "MDD"), ("control", "patient"), "other"),
        (("f", "x"), ("female", "x"), "other"),  # no sexes
    ],
)
def test_class_names_are_compared_as_values_are(theirs, own, compared):
    assert compare_classes(theirs, own) == compare_classes(own, theirs) == compared


NAMES = {"participant_id": "p1", "site": "A", "label": "MDD", "handedness": "right", "column": "notes", "roi": "d"}


def write_study(folder, **changes):
    """Write six participants; one of their names is changed. Returns the value of patients."""
    names = NAMES | changes
    columns = {"participant_id": ["p0", names["participant_id"], "p2", "p3", "p4", "p5"]}
    columns |= {"site": [names["site"]] * 2 + list("BBCC"), "label": ["HC", names["label"]] * 3}
    columns |= {"handedness": ["left", names["handedness"]] * 3, names["column"]: ["x"] * 6}
    folder.mkdir()
    pd.DataFrame(columns).to_csv(folder / "participants.tsv", sep="\t", index=False)
    (folder / "rois.tsv").write_text("\n".join(["name", "a", "b", "c", names["roi"]]))
    for i, name in enumerate(columns["participant_id"]):
        np.save(folder / f"{name}.npy", np.random.default_rng(i).normal(size=(50, 4)))
    return names["label"]


CONTROLS = ["\x1b[31mA", "\x1b]0;title\x07A", "A\x9b2J", "A\u202eB", "A\u2028B"]
CONTROLS += ["A\u200bB", "A\u2066B", "\ufeffA", "A\x7f"]


PLACES = [*NAMES, "name"]  # of a name that somebody else chose: in tables, or that of the cohort


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("name", "reason"),
    [(FORMULA, "begins with '=', so spreadsheets treat it as a formula"), (CONTROLS[0], "control character")],
)
def test_a_formula_or_a_control_character_is_refused_at_import_and_never_printed(
    name, reason, place, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    in_table_alone = place == "participant_id" and name != FORMULA  # not in the name of a file
    patient = write_study(tmp_path / "study", **{} if in_table_alone else {place: name})
    if in_table_alone:
        table = tmp_path / "study" / "participants.tsv"
        table.write_text(table.read_text().replace("p1", name))
    words = ["import", "table", "study", "--patient", patient, "--control", "HC", "--atlas-table", "study/rois.tsv"]
    words += ["--name", name] if place == "name" else []
    said = command(*words, "--out", "new").refuse()
    assert said.err.count("\n") == 1
    assert reason in said.err
    assert not find_control(said.err, "\n")
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


def test_names_of_files_and_cells_are_escaped_in_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "study")
    np.save(tmp_path / "study" / "p7\x1b[2J.npy", np.ones((50, 4)))
    for words in (["study", "--patient", "MDD", "--control", "HC"], ["no\x1b[2Jfolder"]):
        said = command("import", "table", *words, "--out", "new").refuse()
        assert "\\x1b[2J" in said.err
        assert not find_control(said.err, "\n")
    refuse(r"no column '\\x1b\[2J'", import_cohort, "table", "study", "new", label_column="\x1b[2J")


@pytest.mark.parametrize("name", CONTROLS)
def test_a_cohort_made_in_python_takes_no_control_character(name):
    scans = [np.random.default_rng(i).normal(size=(50, 4)) for i in range(4)]
    plain = {"site": list("AABB"), "label": [0, 1, 0, 1]}
    rois = pd.DataFrame({"name": ["a", "b", "c", name]})
    for changes in (
        {"site": ["A", "A", "B", name]},
        {"participant_id": ["p1", "p2", "p3", name]},
        {"classes": ("HC", name)},
        {"name": name},
        {"covariates": pd.DataFrame({"handedness": ["l", "r", "l", name]})},
    ):
        refuse("control character", Cohort.from_scans, scans, **plain | changes)
    refuse("control character", Atlas, "mine", rois)


@pytest.mark.parametrize(
    ("file", "old"), [("participants.tsv", "sim0001"), ("atlas.tsv", "stable_1_L"), ("cohort.json", "plain")]
)
@pytest.mark.parametrize(("name", "reason"), [(FORMULA, "spreadsheets treat it as a formula"), ("a\u202eb", "\\u202e")])
def test_a_cohort_folder_of_somebody_else_is_not_trusted_either(file, old, name, reason, tmp_path, monkeypatch):
    """Its hashes fit, as if its maker had written the name."""
    cohort = simulate(Simulation(n_sites=2, per_class=3, n_rois=8, frames=40))
    dataclasses.replace(cohort, name="plain").save(tmp_path / "cohort")
    path, declared = tmp_path / "cohort" / file, json.loads((tmp_path / "cohort" / "cohort.json").read_text())["tables"]
    path.write_text(path.read_text().replace(old, name))
    monkeypatch.setattr("brio.cohort.cohort.hash_tables", lambda folder: declared)
    rehash(tmp_path / "cohort")
    said = command("audit", tmp_path / "cohort")
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert reason in said.err
    assert not find_control(said.err, "\n")


def test_what_is_printed_and_written_shows_control_characters(capsys):
    say("site\x1b[2J\u202e [bold]1")
    assert capsys.readouterr().out == "site\\x1b[2J\\u202e [bold]1\n"
    assert not find_control(format_table(["a\x1b"], [["b\x9b"]]), "\n")
    assert escape_markdown("a\u202eb") == r"a\\u202eb"


def test_no_name_is_a_formula_of_a_figure():
    figure, (left, right) = make_panels(2)
    left.set_yticks([0, 1], [r"$\frac{$", "a$b$c"])
    left.set_title(r"$\frac{$")
    left.plot([0, 1], [0, 1], label=r"\$x_1$\x1b")
    left.legend()
    right.set_xscale("log")
    right.plot([1, 1000], [0, 1])
    svg = render_figure(figure, "svg").decode()
    assert r"<!-- $\frac{$ -->" in svg
    assert "<!-- a$b$c -->" in svg
    assert "mathdefault{10^{" in svg  # typeset from numbers, as before
    assert not find_control(svg, "\n\t")
    render_figure(figure, "png")


def test_numbers_with_a_sign_and_marks_of_missing_values_are_names_like_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "study", label="-1", handedness="--")
    command("import", "table", "study", "--patient", "-1", "--control", "HC", "--out", "new").succeed()
    assert Cohort.load("new").classes == ("HC", "-1")


HOSTILE = "<img src=x onerror=alert(1)>|`*[a](javascript:alert(1))"


def test_names_with_markup_are_text_in_every_markdown_file(tmp_path):
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
    described = describe_explanation(explain_model(model, device="cpu"))
    for name in ("brain", "matrix", "chord"):
        (tmp_path / f"{name}.png").touch()
    page = render_explanation_page(described, tmp_path)
    assert page.count("<img") == page.count('<img src="data:image/png') == 3
    title, heading = (re.search(f"<{tag}>(.*?)(?:: brio explanation)?</{tag}>", page)[1] for tag in ("title", "h1"))
    assert title == heading
    for text in (write_card(model), described):
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
