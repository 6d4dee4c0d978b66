"""The result pages: what is committed is what the evidence says, and the evidence names no participant."""

import doctest
import importlib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import pandas as pd
import pytest

from brio.drawing import save_figure
from brio.results import mean_correction

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = REPOSITORY / "docs" / "results"
EVIDENCE = REPOSITORY / "evidence"
RERUN = "run `make results` and commit the pages"


@pytest.fixture
def result_pages():
    return importlib.import_module("result_pages")


def test_committed_pages_are_those_of_the_evidence(result_pages):
    generated = result_pages.generate_pages()
    assert sorted(generated) == sorted(str(p.relative_to(PAGES)) for p in PAGES.rglob("*") if p.is_file()), RERUN
    stale = [name for name, text in generated.items() if (PAGES / name).read_text(encoding="utf-8") != text]
    assert not stale, RERUN
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert result_pages.fill_readme(readme) == readme, RERUN


def test_drawn_figures_are_those_of_the_evidence(result_pages, tmp_path):
    figures = result_pages.draw_figures()
    for name, figure in figures.items():
        committed = (PAGES.parent / "images" / name).read_bytes()
        if f"Matplotlib v{matplotlib.__version__}".encode() in committed:  # other versions draw other bytes
            assert save_figure(figure, tmp_path / name).read_bytes() == committed, RERUN
    measured = (EVIDENCE / "measurements" / "prediction-intervals.txt").read_text(encoding="utf-8")
    coverage, risk = (figures[f"prediction-intervals-{name}.svg"].axes[0].lines for name in ("coverage", "risk"))
    for line in coverage[1:]:  # after the diagonal
        assert " | ".join(f"{y:.1f}%" for y in line.get_ydata()) in measured
    for x, y in zip(*risk[0].get_data(), strict=True):
        assert f"| {x:.0f}% | {y:.1f}% |" in measured
    growth = pd.read_csv(EVIDENCE / "growth" / "growth.csv")
    for axis in figures["growth.svg"].axes:
        drawn = sorted(y for line in axis.lines for y in line.get_ydata())
        assert drawn == sorted(growth.loc[growth["axis"] == axis.get_xlabel(), "seconds"])


def test_a_figure_places_rows_by_their_values_in_reach_of_its_axis(result_pages):
    forest = importlib.import_module("result_pages.forest")
    rows = pd.DataFrame(
        {"mean": [10.0, 20, 40], "low": [5, 15, 30], "high": [12, 30, 60]}, index=["ridge", "mlp", "brio"]
    )
    link = forest.draw("test", rows, "AUC, %", {50: "chance"})
    rows_named = 'Highest value: the row labelled "BRIO"; lowest value: the row labelled "ridge".'
    assert link == f"![AUC, %. {rows_named}](figures/forest-test.svg)"
    root = ElementTree.fromstring(forest.FIGURES.pop("forest-test.svg"))
    namespace = "{http://www.w3.org/2000/svg}"
    glyphs = [path.get("transform") for path in root.iterfind(f"{namespace}g/{namespace}path[@transform]")]
    ten, twenty, forty = (float(place.removeprefix("translate(").split()[0]) for place in glyphs)
    assert forty - twenty == pytest.approx(2 * (twenty - ten), abs=0.2)
    lines = [path.get("d") for path in root.iterfind(f"{namespace}g/{namespace}path[@d]") if "H" in path.get("d")]
    ends = [(float(line[1:].split()[0]), float(line.split("H")[1])) for line in lines]
    assert [low < x < high for (low, high), x in zip(ends, (ten, twenty, forty), strict=True)] == [True] * 3
    assert min(low for low, _ in ends) > 0
    assert max(high for _, high in ends) < float(root.get("width"))
    words = [text.text for text in root.iter(f"{namespace}text")]
    assert {"ridge", "mlp", "BRIO", "10.0", "chance", "linear", "neural"} <= set(words)


def test_readme_table_replaces_only_what_is_between_the_markers(result_pages):
    text = "before\n<!-- results:begin -->\nstale table\n<!-- results:end -->\nafter\n"
    filled = result_pages.fill_readme(text)
    assert filled.startswith("before\n<!-- results:begin -->\n\n**At unseen sites, our implementation of BRIO")
    assert "\n| method |" in filled
    assert filled.endswith("<!-- results:end -->\nafter\n")
    assert "stale" not in filled
    assert result_pages.fill_readme(filled) == filled


def test_sentence_without_support_in_the_evidence_stops_the_generator(result_pages):
    markdown = importlib.import_module("result_pages.markdown")
    assert markdown.state(True, lambda: "holds") == "holds"
    with pytest.raises(markdown.StaleSentenceError, match="rewrite it: does not hold"):
        markdown.state(False, lambda: "does not hold")


@pytest.mark.parametrize("folder", ["unseen-sites/aal116", "in-distribution/aal116"])
def test_pages_describe_scores_as_the_summaries_of_the_jobs_do(result_pages, folder):
    comparisons = importlib.import_module("result_pages.comparisons")
    evidence = importlib.import_module("result_pages.evidence")
    runs = evidence.read_runs(folder)
    scores = comparisons.fold_scores(runs) if "in-dist" in folder else comparisons.site_scores(runs)
    protocol = "kfold" if "in-dist" in folder else "loso"
    described = comparisons.describe_scores(scores, mean_correction(runs, protocol)) / 100
    methods = evidence.read_methods(folder)
    assert sorted(described.index) == sorted(methods)
    for name, method in methods.items():
        expected = [method.auc.mean, method.auc.sd, *method.auc.interval]
        assert described.loc[name].tolist() == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize("name", ["markdown", "comparisons", "forest", "benchmarks"])
def test_examples_in_docstrings(result_pages, name):
    outcome = doctest.testmod(importlib.import_module(f"result_pages.{name}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_evidence_has_no_row_of_a_participant():
    assert not list(EVIDENCE.rglob("predictions*"))
    for file in EVIDENCE.rglob("*.csv"):
        columns = pd.read_csv(file, nrows=0).columns
        assert not {"participant_id", "subject", "label", "logit", "age", "sex"} & set(columns), file


def test_every_folder_of_the_evidence_is_described():
    described = (EVIDENCE / "README.md").read_text(encoding="utf-8")
    folders = [path.name for path in EVIDENCE.iterdir() if path.is_dir()]
    assert folders
    assert not [name for name in folders if f"`{name}/" not in described]


def test_level_page_keeps_the_comparisons_of_both_atlases(result_pages):
    sensitivity = importlib.import_module("result_pages.sensitivity")
    tables = sensitivity.list_differences()
    verdicts = importlib.import_module("result_pages.comparisons").VERDICTS
    assert sum(family == "sensitivity" for family, *_ in verdicts) == sum(map(len, tables))
