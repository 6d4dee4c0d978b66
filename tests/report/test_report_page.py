"""The page against the results it was made from, and what it says where something is missing."""

import base64
import gzip
import json
import re
import shutil
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from harmful import NASTY
from pages import read_rows, read_section

from brio import run
from brio.formatting import format_interval
from brio.report.cohort import draw_sites
from brio.report.comparisons import compare_methods, markdown_table
from brio.report.html import figures
from brio.report.html import page as page_module
from brio.report.html.figures import render_brain_viewer
from brio.report.html.markdown import render_markdown
from brio.report.write import write_report
from brio.results import StoredJob, describe_smoke_run
from brio.results.files import COHORT_FACTS, GROUPS
from commands import refuse
from doctored import change_json
from stored import rehash

METRICS = ("auc", "acc", "balanced_acc", "sensitivity", "specificity", "brier")


@pytest.fixture
def copy(copy):
    """A copy without the groups of participants: subgroups take longest of a page."""
    (copy / GROUPS).unlink()
    return rehash(copy)


def cells(page: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Cells of the main table and of the differences below it: method -> metric -> (value, text)."""
    shown: dict[str, dict[str, tuple[str, str]]] = {}
    for row in [*read_rows(page, "results-table"), *read_rows(page, "results-table-paired")]:
        for attributes, text in row.cells:
            if "data-metric" in attributes:
                value = attributes["data-value"], text.strip()
                shown.setdefault(row.attributes["data-method"], {})[attributes["data-metric"]] = value
    return shown


def test_the_table_holds_the_numbers_of_the_summary(page, finished):
    shown, summary = cells(page), json.loads((finished / "summary.json").read_text())
    assert set(shown) == set(summary["methods"]) == {"brio", "ridge", "covariates-only"}
    for name, scores in summary["methods"].items():
        wanted = {metric: scores[metric]["mean"] for metric in METRICS}
        wanted |= {"sd": scores["auc"]["sd"], "auc_of_averaged_logits": scores["auc_of_averaged_logits"]["mean"]}
        for metric, value in wanted.items():
            raw, text = shown[name][metric]
            assert float(raw) == value, (name, metric)
            assert text == f"{100 * value:.1f}", (name, metric)
        assert format_interval(scores["auc"]["interval"]) in read_section(page, "results")
    assert ">Seeds averaged<" in read_section(page, "results")
    assert not re.search(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}", read_section(page, "results")), "no escape of ours is shown"


def test_differences_are_those_of_the_comparison_over_sites(page, finished):
    rows = pd.read_csv(finished / "results.csv")
    (difference,) = compare_methods(rows[rows["method"] != "covariates-only"], "ridge").to_dict("records")
    shown = cells(page)["brio"]
    assert float(shown["difference"][0]) == pytest.approx(difference["mean_difference"])
    assert float(shown["p_holm"][0]) == pytest.approx(difference["p"])  # one comparison: nothing to correct for
    assert "difference" not in cells(page)["ridge"], "the reference is not compared with itself"
    assert "difference" not in cells(page)["covariates-only"], "a control is no rival"


def test_every_site_and_method_is_in_the_forest(page, finished):
    rows = pd.read_csv(finished / "results.csv")
    chart = read_section(page, "sites")
    shown = sorted(float(v) for v in re.findall(r'data-auc="([^"]+)"', chart))
    assert shown == pytest.approx(sorted(rows.groupby(["fold", "method"])["auc"].mean()))
    sites = pd.read_csv(finished / "sites.csv").query("auc_variance > 0")
    assert len(sites) > 10
    half = 1.96 * sites["auc_variance"] ** 0.5
    for low, high in zip((sites["auc"] - half).clip(lower=0), (sites["auc"] + half).clip(upper=1), strict=True):
        assert f"<small>{format_interval([low, high])}</small>" in chart
    plain = int(rows.loc[rows["fold"] == "plain", "n_test"].iloc[0])
    assert f"plain: {plain} participants, {plain // 2} controls and {plain // 2} patients" in chart


def test_one_file_that_needs_nothing_else(page, finished):
    assert len((finished / "report.html").read_bytes()) < 5_000_000
    assert page.count("brain-page") == 2, "the viewer, and what unpacks it"
    assert not re.findall(r'\b(?:src|href)="(?!#|data:)[^"]*"', page)
    assert not re.search(r"@import|url\((?!data:)", page)
    assert (finished / "MODEL_CARD.md").is_file()
    assert not list(finished.glob("*.partial"))


def test_names_are_escaped(renamed):
    text = write_report(renamed).read_text(encoding="utf-8")
    for name in ("<script>window", "<img", "<em>cohort", "<i>atlas", "<b>who"):
        assert name not in text, name
    assert "&lt;script&gt;window.pwned=1&lt;/script&gt;" in text
    assert "{{ 7 * 7 }}" in text, "a name is not a template"
    viewer = gzip.decompress(base64.b64decode(re.search(r'id="brain-page">([^<]+)<', text)[1])).decode()
    assert "connectomeInfo" in viewer
    assert NASTY not in text + viewer, "nor does the viewer run a region's name"


def test_participants_are_named_among_the_exclusions_alone(page, finished, cohort):
    left_out = read_section(page, "exclusions")
    rest = page.replace(left_out, "")
    who = [name.removeprefix("<b>").removesuffix("</b>") for name in cohort.ids]
    excluded = pd.read_csv(finished / "exclusions.tsv", sep="\t")
    assert len(excluded) == 1
    assert [name for name in who if name in left_out] == ["who002", "who046"], "the twin, and whose it is"
    assert not [name for name in who if name in rest]
    for path in (finished / "MODEL_CARD.md", finished / COHORT_FACTS):
        assert not [name for name in who if name in path.read_text()], path.name


def test_settings_that_were_changed_and_versions(page, finished):
    settings = read_section(page, "configuration")
    assert re.search(r"<li class=changed><span>epochs</span> <b>4</b>", settings)
    assert re.search(r"<li><span>J</span> <b>4</b>", settings)
    record = json.loads(next(finished.glob("runs/*/run.json")).read_text())
    for version in record["versions"].values():
        assert version in read_section(page, "repeat")


def test_without_audit_the_page_says_so(copy, rewrite):
    (copy / "audit.json").unlink()
    change_json(copy / "plan.json", lambda plan: plan.update(audit=None, excluded={}))
    text = rewrite()
    assert "--keep-all" in read_section(text, "repeat")
    assert "None: no audit was applied." in read_section(text, "exclusions")


def test_without_coordinates_weights_or_curves_the_page_says_so(copy, rewrite):
    change_json(copy / COHORT_FACTS, lambda facts: facts["rois"].update(xyz=None))
    text = rewrite()
    assert "lacks coordinates" in text
    assert "<iframe" not in text
    for path in copy.glob("runs/*/run.json"):
        change_json(path, lambda record: record["details"].pop("validation_curve", None))
    for path in copy.glob("runs/*/weights.safetensors"):
        path.unlink()
    text = rewrite()
    assert "This folder has no factors" in text
    assert "This folder has no training curves for BRIO." in read_section(text, "training")


def test_brio_plus_alone_has_no_section_of_factors(cohort, tmp_path):
    run(cohort, ["brio-plus"], seeds=1, out=tmp_path / "run", settings={"lambda_re": 0}, device="cpu")
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "BRIO plus" in page
    assert 'id="factors"' not in page


def test_without_nilearn_the_page_says_so(copy, rewrite, monkeypatch):
    monkeypatch.setitem(sys.modules, "nilearn", None)
    assert render_brain_viewer([[0.0, 0.0, 0.0]], ["region"], [0]) is None
    text = rewrite()
    assert "needs nilearn" in text
    assert "from the left" in text, "the flat views need no nilearn"


def test_training_curves_are_the_mean_over_runs(copy, rewrite):
    rng, curves = np.random.default_rng(0), []
    for path in sorted(copy.glob("runs/*/run.json")):
        record = json.loads(path.read_text())
        if record["row"]["method"] == "brio":
            curves.append(rng.uniform(0.5, 1, 4).round(4).tolist())
            record["details"]["validation_curve"] = list(zip(range(3, 7), curves[-1], strict=True))
            path.write_text(json.dumps(record))
    chart = read_section(rewrite(), "training")
    points = re.search(r'class="curve" points="([^"]+)"', chart).group(1)
    height = [float(point.split(",")[1]) for point in points.split()]
    # the frame of the drawing: 40% at the floor, 100% at the top
    wanted = 8 + 148 * (1 - (np.mean(curves, axis=0) - 0.4) / 0.6)
    assert height == pytest.approx(wanted.tolist(), abs=0.06)
    assert "15 runs" in chart


def test_too_large_a_page_leaves_out_the_viewer_and_says_so(copy, rewrite, monkeypatch):
    monkeypatch.setattr(page_module, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(figures, "render_brain_viewer", lambda *_: np.random.default_rng(0).bytes(2_000_000).hex())
    text = rewrite()
    assert len(text.encode()) < 1_000_000
    assert "The interactive brain was left out to keep this page below 1 MB" in text


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "predictions.csv").unlink(), "predictions.csv: cannot be read"),
        (lambda folder: [path.unlink() for path in folder.rglob("*") if path.is_file()], "has no results"),
        (shutil.rmtree, "this folder does not exist"),
    ],
)
def test_broken_folders_are_user_facing_errors(copy, spoil, says):
    spoil(copy)
    refuse(re.escape(says), write_report, rehash(copy))
    assert not (copy / "report.html").exists()


def test_long_tables_of_studies_are_folded():
    rows = lambda n: "\n".join(f"| {k} | <b>{k}</b> |" for k in range(n))  # noqa: E731
    text = f"| a | b |\n| --- | --- |\n{rows(9)}\n\nwords\n\n| c | d |\n| --- | --- |\n{rows(8)}\n"
    made = render_markdown(text)
    assert made.count("<details") == made.count("</details>") == 1
    folded, rest = made.split("</details>")
    assert "<summary>Table, 9 rows</summary>" in folded
    assert folded.count("<table>") == rest.count("<table>") == 1
    assert "<b>" not in made


def test_numbers_of_a_text_have_typographic_signs_and_code_has_none():
    made = render_markdown("| a | b |\n| --- | --- |\n| -1.5 | - |\n\nvalue -0.3, `-1`, sub-01, 2026-11-19, p = 0.04\n")
    assert ">−1.5</td>" in made
    assert ">–</td>" in made
    assert "value −0.3, <code>-1</code>, sub-01, 2026-11-19, p\u00a0=\u00a00.04" in made


def test_a_text_shows_only_the_images_that_are_given():
    assert "<img" not in render_markdown("![a](https://example.org/a.png)")
    assert '<img src="data:x" alt="All &lt;b&gt; edges">' in render_markdown(
        "![All <b> edges](a.png)", images={"a.png": "data:x"}
    )
    with pytest.raises(KeyError):
        render_markdown("![a](b.png)", images={"a.png": "data:x"})


def test_every_fold_of_every_seed_is_shown_by_itself(by_folds, tmp_path):
    write_report(by_folds, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    rows = pd.read_csv(by_folds / "results.csv", dtype={"fold": str})
    shown = re.findall(r'<tr data-method="(fold [^"]+)".*?data-auc="([^"]*)"', text, flags=re.DOTALL)
    wanted = {f"fold {row.fold} of seed {row.seed}": row.auc for row in rows.itertuples()}
    assert {name: float(auc) for name, auc in shown} == wanted
    assert f"ridge regression from {100 * rows['auc'].min():.1f} to {100 * rows['auc'].max():.1f}%" in text
    assert "Each seed has its own folds" in text


def test_tables_and_figures_of_a_smoke_run_say_so(finished, tmp_path, monkeypatch):
    job, drawn = StoredJob.read(finished), []
    summaries = [replace(job.summary, smoke_run=True), job.summary]
    assert markdown_table(summaries).splitlines()[-2:] == [describe_smoke_run(), job.summary.few_sites_note]
    assert "smoke" not in markdown_table(summaries[1:])
    monkeypatch.setattr("brio.report.cohort.save_figure", lambda figure, path: drawn.append(figure))
    for summary in summaries:
        draw_sites(job.rows, summary, tmp_path / "sites.png")
    assert [figure.get_suptitle() for figure in drawn] == [describe_smoke_run(), ""]


def test_the_figure_has_a_line_for_every_fold_of_every_seed(by_folds, tmp_path):
    job = StoredJob.read(by_folds)
    svg = draw_sites(job.rows, job.summary, tmp_path / "f.svg").read_text()
    assert svg.count("of seed 0") == svg.count("of seed 2") == 4
    assert "12 test folds, 3 seeds" in svg
