"""What Python users see: the result of a job as text, as a page in a notebook and as a report."""

import dataclasses
import re
from pathlib import Path

import pytest

import brio
from brio import BrioError
from brio.cohort.simulate import Simulation, simulate


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    cohort = simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60))
    return brio.run(cohort, ["ridge", "length-only"], seeds=2, out=tmp_path_factory.mktemp("api") / "o", device="cpu")


def test_the_table_is_the_summary_in_percent(result):
    table = result.table()
    assert list(table.index) == ["ridge", "length-only"]
    ridge = result.summary.methods["ridge"]
    assert table.loc["ridge", "AUC"] == 100 * ridge.auc.mean
    assert table.loc["ridge", "low"] == 100 * ridge.auc.interval[0]


def test_a_result_prints_its_table_and_is_named_in_one_line(result):
    auc = f"{100 * result.summary.methods['ridge'].auc.mean:.1f}"
    assert re.search(rf"^ +ridge +{re.escape(auc)} ", str(result), flags=re.MULTILINE)
    assert str(result).endswith(f"Folder: {result.folder}")
    assert repr(result) == f"Result(folder={str(result.folder)!r}, methods=['ridge', 'length-only'])"


def test_a_notebook_shows_the_table_with_what_to_know_about_it(result):
    page = result._repr_html_()
    auc = f"{100 * result.summary.methods['ridge'].auc.mean:.1f}"
    assert page.count("<tr>") == 3
    assert re.search(rf"<th [^>]*>ridge</th><td [^>]*>{re.escape(auc)}</td>", page)
    assert "Scores in percent" in page
    assert "This is a smoke run" in page
    warned = dataclasses.replace(result.summary, warnings=("a <b>shortcut</b>",), smoke_run=False)
    page = dataclasses.replace(result, summary=warned)._repr_html_()
    assert "warning: a &lt;b&gt;shortcut&lt;/b&gt;" in page
    assert "smoke run" not in page
    single = dataclasses.replace(result.summary, folds=("site01",), seeds=(0,))
    assert dataclasses.replace(result, summary=single).notes[0].startswith("1 test site, 1 seed, ")


def test_a_result_writes_its_report(result, tmp_path):
    assert result.report() == result.folder / "report.html"
    page = result.report(tmp_path / "new" / "mine.html")
    assert page == tmp_path / "new" / "mine.html"
    assert "ridge" in page.read_text(encoding="utf-8")
    assert (tmp_path / "new" / "MODEL_CARD.md").is_file()


def test_all_studies_of_the_paper_are_left_to_the_command_line(tmp_path):
    with pytest.raises(BrioError, match=r"brio.study makes a single study; .* 'brio study paper COHORT --out DIR'"):
        brio.study("paper", tmp_path / "nowhere", out=tmp_path / "o")


def test_single_values_need_no_list(tmp_path):
    cohort = simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60))
    options = {"folds": "site02", "companions": cohort, "device": "cpu"}
    once = brio.run(cohort, "ridge", out=tmp_path / "job", **options)
    assert once.rows["fold"].tolist() == ["site02"]
    study = brio.study(
        "comparison", cohort, out=tmp_path / "study", methods="ridge", reuse=tmp_path / "job", seeds=1, **options
    )
    assert [Path(folder).name for folder in study.record.options.reuse] == ["job"]
