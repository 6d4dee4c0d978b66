"""A smoke run is called that wherever its numbers are shown, in one sentence."""

import pytest

from brio import run
from brio.report import draw_sites, markdown_table
from brio.results import describe_smoke_run


@pytest.fixture(scope="module")
def quick(cohort, tmp_path_factory):
    """Two methods with one seed."""
    return run(cohort, ["ridge", "svm"], seeds=1, out=tmp_path_factory.mktemp("quick") / "run", device="cpu")


@pytest.fixture(scope="module")
def whole(cohort, tmp_path_factory):
    """The same with three seeds."""
    return run(cohort, ["ridge", "svm"], seeds=3, out=tmp_path_factory.mktemp("whole") / "run", device="cpu")


def test_the_sentence_is_that_of_brio_run(quick, whole):
    assert describe_smoke_run() in quick.notes
    assert quick.summary.smoke_note == describe_smoke_run()
    assert whole.summary.smoke_note == ""


def test_tables_say_why_below_them(quick, whole):
    text = markdown_table([quick.summary, whole.summary])
    assert text.count(describe_smoke_run()) == 1
    assert text.splitlines()[-1] == describe_smoke_run()
    assert "smoke" not in markdown_table([whole.summary])


def test_the_figure_of_sites_says_it(quick, whole, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("brio.report.cohort.save_figure", lambda figure, path: drawn.append(figure))
    for result in (quick, whole):
        draw_sites(result.rows, result.summary, tmp_path / "sites.png")
    assert [figure.get_suptitle() for figure in drawn] == [describe_smoke_run(), ""]
