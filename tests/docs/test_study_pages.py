"""The pages of our own studies: their numbers follow from the stored rows, and their commands are commands."""

import importlib
import re
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.main import get_command

from brio.cli.app import app
from brio.results import StoredStudy

REPOSITORY = Path(__file__).resolve().parents[2]
EVIDENCE = REPOSITORY / "evidence" / "studies"
STUDIES = ("permutation", "learning-curve", "subgroups", "calibration", "decision-curve", "adaptation")
ATLASES = ("aal116", "cc200")


def load(name):
    return importlib.import_module(f"result_pages.{name}")


def render(name):
    return importlib.import_module("result_pages").render_page(name).replace("\N{MINUS SIGN}", "-")


def correct_interval(values):
    """95% interval of a mean over left-out sites, which share training scans."""
    n = len(values)
    return list(stats.t.interval(0.95, n - 1, values.mean(), values.std(ddof=1) * np.sqrt(1 / n + 1 / (n - 2))))


def read_table(study, atlas, method="ridge"):
    table = pd.read_csv(EVIDENCE / atlas / study / "table.csv")
    return table[table["arm"].str.split(",").str[0] == method]


@pytest.mark.parametrize("atlas", ATLASES)
def test_studies_of_an_atlas_are_whole_and_of_the_same_scans(atlas):
    records = [StoredStudy.read(EVIDENCE / atlas / name).record for name in STUDIES]
    assert len({(r.fingerprint, r.n_scans, r.folds, r.seeds) for r in records}) == 1
    assert not any(r.smoke for r in records)
    for record in records:
        assert record.options.settings == {"protocol.validation_sites": "0"}
        figure = EVIDENCE / atlas / record.name / "figure.svg"
        assert ElementTree.parse(figure).getroot().tag.endswith("svg")


@pytest.mark.parametrize("study", STUDIES)
def test_commands_are_those_that_the_command_line_understands(study):
    command_line = get_command(app)
    block = load("evidence").write_study_commands(study)
    commands = block.strip("`\n").replace("\\\n", " ").split("\nbrio ")
    assert len(commands) == 2
    for text, atlas in zip(commands, ATLASES, strict=True):
        words = shlex.split(text.removeprefix("brio "))
        assert words[0] == "study"
        parsed = command_line.commands["study"].make_context("study", words[1:]).params
        options = StoredStudy.read(EVIDENCE / atlas / study).record.options
        assert parsed["name"] == study
        assert tuple(parsed["method"]) == options.methods
        assert parsed["setting"] == [f"{key}={value}" for key, value in options.settings.items()]
        assert (parsed["seeds"], parsed["device"]) == (options.seeds, options.device)


def test_lines_of_a_command_do_not_part_an_option_from_its_value():
    block = load("markdown").write_commands(
        ["brio run cohort --records-only " + "--method ridge " * 12 + "--out there"]
    )
    lines = block.strip("`\n").split("\n")
    assert len(lines) > 2
    assert max(map(len, lines)) <= 90
    assert all(line.strip(" \\").split()[-1] in ("ridge", "there") for line in lines)


def test_permuted_scores_on_the_page_are_those_of_the_rows():
    rows = load("permutation").summary().set_index(["atlas", "method", "estimand"])
    for atlas in ATLASES:
        table = read_table("permutation", atlas, "log-ridge")
        permuted, observed = 100 * table["auc"].to_numpy()[1:], 100 * table["auc"].iloc[0]
        row = rows.loc[(atlas, "log-ridge", "mean over sites")]
        assert row["n"] == len(permuted) == 1000
        expected = [observed, permuted.mean(), permuted.max(), (1 + (permuted >= observed).sum()) / 1001]
        assert row[["observed", "mean", "largest", "p"]].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("atlas", ATLASES)
@pytest.mark.parametrize(("axis", "size"), [("sites", "3"), ("participants", "0.75")])
def test_gains_of_the_learning_curve_are_paired_over_sites(atlas, axis, size):
    rows = read_table("learning-curve", atlas).query("axis == @axis")
    few, every = (100 * rows[rows["size"] == s].groupby("fold")["auc"].mean() for s in (size, "all"))
    point = load("learning_curve").curve(atlas, axis).loc[size]
    assert point["auc"] == pytest.approx(few.mean())
    assert point["gain"] == pytest.approx((every - few).mean())
    assert [point["gain low"], point["gain high"]] == pytest.approx(correct_interval(every - few))
    sites = read_table("calibration", atlas).groupby("fold")[["patients", "controls"]].first()
    weighted = np.average(few, weights=sites.prod(axis=1).loc[few.index])
    cells = [line.split(" | ") for line in render("learning-curve").splitlines() if line.startswith("| ")]
    label = {"aal116": "| AAL116", "cc200": "| CC200"}[atlas]
    (row,) = (c for c in cells if c[:2] == [label, axis] and c[3] == f"{point['source_participants']:.0f}")
    assert (row[4].split(" ")[0], row[5]) == (f"{few.mean():.1f}", f"{weighted:.1f}")


@pytest.mark.parametrize("atlas", ATLASES)
def test_sites_that_are_off_are_those_whose_interval_excludes_the_ideal(atlas):
    calibration = load("calibration")
    own = read_table("calibration", atlas).groupby("fold").mean(numeric_only=True)
    for quantity, ideal in (("slope", 1), ("in_the_large", 0)):
        z = ((own[quantity] - ideal) / own[f"{quantity}_se"]).abs()
        off = calibration.miscalibrated(atlas, "ridge", quantity)
        assert off == own.index[z > stats.norm.ppf(0.975)].tolist()
        mean = calibration.mean(atlas, "ridge", quantity)
        weight = 1 / (own[f"{quantity}_se"] ** 2 + mean.sd**2)
        assert mean.mean == pytest.approx(np.average(own[quantity], weights=weight))


def test_thresholds_of_the_decision_curve_are_those_with_a_gain_above_zero():
    page = load("decision_curve")
    for atlas in ATLASES:
        rows = read_table("decision-curve", atlas).groupby(["threshold", "fold"]).mean(numeric_only=True)
        above = []
        for threshold, own in rows.groupby(level="threshold"):
            rule = own["treat_all"] if own["treat_all"].mean() > 0 else 0 * own["treat_all"]
            if correct_interval(own["net_benefit"] - rule)[0] > 0:
                above.append(threshold)
        assert page.shown_thresholds(page.curves(atlas)["ridge"]).tolist() == above


def test_differences_between_subgroups_are_on_the_page_with_their_corrected_p():
    text = render("subgroups")
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    for atlas, section in zip(ATLASES, sections, strict=False):
        assert section.lower().startswith(atlas)
        rows = read_table("subgroups", atlas)
        compared = rows[rows["p"].notna()]
        p = np.sort(compared["p"])
        holm = np.minimum(1, np.maximum.accumulate(p * np.arange(len(p), 0, -1)))
        assert np.sort(compared["p Holm"]) == pytest.approx(holm, abs=1e-5)
        for _, row in compared.iterrows():
            name = f"{row['variable'].split(',')[0]}: {row['subgroup'].replace(' third', '')}"
            assert f"| `ridge` | {name} | {row['AUC']:+.1f} |" in section


@pytest.mark.parametrize("name", ["index", "unseen-sites", "in-distribution", "brio-plus", *STUDIES])
def test_pages_with_tables_say_where_their_intervals_are_explained(name):
    text = (REPOSITORY / "docs" / "results" / f"{name}.md").read_text(encoding="utf-8")
    assert "[statistics](../statistics.md)" in text
    assert (REPOSITORY / "docs" / "statistics.md").is_file()


@pytest.mark.parametrize("atlas", ATLASES)
def test_changes_by_adaptation_are_paired_at_each_site(atlas):
    page = load("adaptation")
    table = read_table("adaptation", atlas, "log-ridge")
    for size in (10, 20, 40):
        by_site = table[table["size"] == size].groupby("fold").mean(numeric_only=True)
        change = by_site["brier_adapted"] - by_site["brier"]
        low, high = correct_interval(change)
        point = page.points(atlas, "log-ridge").loc[size]
        assert point["sites"] == len(change) == 20 - len(page.missing_sites(size))
        names = ["brier adapted", "brier adapted low", "brier adapted high"]
        np.testing.assert_allclose(point[names].to_numpy(dtype=float), [change.mean(), low, high], atol=1e-9)
        assert f"{change.mean():+.3f} ({low:+.3f} to " in render("adaptation").replace("\u00a0", " ")
