"""The demonstration: what it leaves, what it says, and what stands of it in the documentation."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from brio import Cohort, demo
from brio.demo import list_networks
from brio.models import read_model
from commands import command, refuse

ROOT = Path(__file__).parents[1]
NUMBER = r"[+-]?\d+(?:\.\d+)?"
pytestmark = pytest.mark.xdist_group("demo")  # its tests share one small demonstration


def run_small(out, **options):
    """Run the demonstration on a small cohort with few epochs."""
    small = replace(demo.SIMULATION, n_sites=6, per_class=6, n_rois=8, frames=90, last_site_per_class=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "BRIO_SETTINGS", {**demo.BRIO_SETTINGS, "epochs": 2, "T_w": 1})
        patch.setattr(demo, "SIMULATION", small)
        return demo.run_demo(out, **options)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A small demonstration: its folder, its result, what it said and the shares it reported; never changed."""
    said, shares = [], []
    out = tmp_path_factory.mktemp("a demo") / "demo"
    return out, run_small(out, progress=lambda message, share: shares.append(share), say=said.append), said, shares


def read_block(page="docs/demonstration.md"):
    """Lines of the demonstration in a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split("<!-- demo:begin -->\n\n```\n")[1].split("\n```\n\n<!-- demo:end -->")[0].splitlines()


def drop_folder(lines, folder):
    """The lines of a demonstration in the folder ``demo``."""
    return [line.replace(str(folder), "demo").replace("'", "") for line in lines]


def drop_numbers(lines):
    """Words alone, without what numbers decide: spaces of columns, why scans are flagged, what reverses."""
    words = [re.sub(r"\s+", " ", re.sub(NUMBER, "#", line)) for line in lines]
    words = [re.sub(r"(flagged .* scans) \(.+\) and", r"\1 and", line) for line in words]
    return [re.sub(r"(reverses at site#): .+", r"\1", line) for line in words]


def test_the_demonstration_leaves_results_models_predictions_and_a_report(shown):
    out, result, _, shares = shown
    names = {"cohort", "new-hospital", "results", "models", "predictions"}
    assert {path.name for path in out.iterdir()} == names | {"report.html", "report.bib", "MODEL_CARD.md", "sites.png"}
    assert not [p for p in out.rglob("*") if "partial" in p.name]
    rows = pd.read_csv(out / "results" / "results.csv")
    assert rows["method"].unique().tolist() == ["log-ridge", "brio", "brio-plus"]
    assert sorted(set(rows["fold"])) == [f"site0{k}" for k in range(1, 6)]
    assert len(rows) == 3 * 3 * 5
    assert not result.summary.smoke_run
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert (out / "sites.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "log-ridge" in page
    assert page.count("on scans of site06 that it had not seen") == 3
    for method in ("log-ridge", "brio", "brio-plus"):
        model = read_model(out / "models" / method)
        assert sorted(model.training.sites) == sorted(set(rows["fold"]))  # the new hospital took no part
        assert model.evidence is not None


def test_the_planted_copy_is_found_and_not_used(shown):
    out, result, said, _ = shown
    cohort = Cohort.load(out / "cohort")
    ((first, copy),) = cohort.provenance["duplicates"]
    np.testing.assert_array_equal(cohort.scan(0), cohort.scan(len(cohort) - 1))
    assert cohort.ids[[0, -1]].tolist() == [first, copy]
    assert f"   {copy} at site01: the same scan as {first}, which is kept" in said
    assert copy not in set(result.predictions["participant_id"])
    assert first in set(result.predictions["participant_id"])


def test_what_is_said_of_unseen_sites_is_what_the_predictions_hold(shown):
    out, _, said, _ = shown
    for method, own in pd.read_csv(out / "results" / "predictions.csv").groupby("method"):
        auc = np.mean([roc_auc_score(fold["label"], fold["margin"]) for _, fold in own.groupby(["fold", "seed"])])
        assert f"{100 * auc:.1f}" in "\n".join(said), method


def test_what_is_said_of_the_new_hospital_is_what_the_files_hold(shown):
    out, _, said, _ = shown
    new = Cohort.load(out / "new-hospital")
    start = next(k for k, line in enumerate(said) if line.startswith("4  "))
    areas = {}
    for line in said[start + 2 : start + 5]:
        method, *numbers = line.split()
        table = pd.read_csv(out / "predictions" / method / "predictions.csv")
        areas[method] = 100 * roc_auc_score(new.labels, table["probability"])
        assert float(numbers[4]) == pytest.approx(areas[method], abs=0.051)
    table = pd.read_csv(out / "predictions" / "brio-plus" / "predictions.csv", keep_default_na=False)
    called = table["predicted"] != "no call"
    crossing = called & (table["interval_crosses_half"] == "yes")
    counts = (table["flag"] != "").sum(), (table["notes"] != "").sum(), called.sum(), crossing.sum()
    found = re.findall(
        r"flagged (\d+) of .* note to (\d+)\.|called a class for (\d+) scans; for (\d+)", "".join(said[start:])
    )
    assert [number for pair in found for number in pair if number] == list(map(str, counts))
    here, *_, there = [float(x) for x in re.findall(r"([+-]?\d+\.\d) \(", said[start + 6])]
    assert there == pytest.approx(areas["brio-plus"] - areas["log-ridge"], abs=0.051)
    rows = pd.read_csv(out / "results" / "results.csv").groupby("method")["auc"].mean()
    assert here == pytest.approx(100 * (rows["brio-plus"] - rows["log-ridge"]), abs=0.051)


def test_parts_of_networks_add_up_to_the_margins(shown):
    out = shown[0]
    cohort, new = Cohort.load(out / "cohort"), Cohort.load(out / "new-hospital")
    source = cohort.select(np.arange(len(cohort) - 1))  # without the copy
    models = [read_model(out / "models" / method) for method in ("log-ridge", "brio-plus")]
    networks = list_networks(*models, source, new, cohort.provenance["truth"])
    for model, (at_source, at_new) in zip(models, sum(networks.values()), strict=True):
        assert at_source == pytest.approx(1.0)
        gaps = [compute_gap(model, c) for c in (source, new)]
        assert at_new == pytest.approx(gaps[1] / gaps[0], rel=1e-6)


def compute_gap(model, cohort):
    """Mean margin of patients less that of controls."""
    from brio.models import predict_scans

    margin = predict_scans(model, cohort, reestimates=2, device="cpu").table["margin"]
    return margin[cohort.labels == 1].mean() - margin[cohort.labels == 0].mean()


def test_a_demonstration_is_completed_and_not_repeated(shown, tmp_path, monkeypatch):
    monkeypatch.setattr(
        demo.Result, "report", lambda self, path, predictions: path.touch()
    )  # seconds, and tested elsewhere
    out = tmp_path / "demo"
    shutil.copytree(shown[0], out)
    for folder in ("models", "predictions"):
        shutil.rmtree(out / folder / "log-ridge")
    (out / "sites.png").unlink()
    kept = [*(out / "results" / "runs").rglob("*"), *(out / "models").rglob("*.json"), *(out / "cohort").iterdir()]
    before = {path: path.stat().st_mtime_ns for path in kept if path.is_file()}
    assert len(before) > 3 * 3 * 5
    said = []
    run_small(out, say=said.append)
    assert drop_folder(said, out) == drop_folder(shown[2], shown[0])
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for name in ("sites.png", "predictions/log-ridge/predictions.html", "models/log-ridge/model.json"):
        assert (out / name).is_file()


def test_the_folder_of_another_seed_is_refused(shown):
    before = sorted(shown[0].rglob("*"))
    refuse(
        "cohort: contains a different cohort, perhaps from another seed; choose another --out",
        run_small,
        shown[0],
        seed=1,
    )
    assert sorted(shown[0].rglob("*")) == before


def list_commands(said):
    """Words of the commands to try next."""
    return [shlex.split(line) for line in said[-3:]]


def test_the_first_commands_to_try_next_work(shown):
    audit, compare, explain = list_commands(shown[2])
    assert "the same scan as sim0001" in command(*audit[1:]).succeed().out
    assert "brio-plus" in command(*compare[1:]).succeed().out
    assert explain[1] == "explain"  # the long test runs it


def test_its_page_has_the_words_of_the_demonstration(shown):
    """``make readme`` writes them; numbers are compared by the long test, since machines differ in the last digit."""
    out, _, said, _ = shown
    assert drop_numbers(drop_folder(said, out)) == drop_numbers(read_block())


def test_the_readme_has_four_lines_of_the_page():
    page, shown_lines = read_block(), read_block("README.md")
    start = page.index(shown_lines[0])
    assert page[start : start + 4] == shown_lines
    assert page[start - 1].startswith("4  Fit to the 7 sites, predict")


@pytest.mark.soak
def test_its_page_has_the_numbers_of_the_demonstration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    demo.run_demo(Path("demo"), say=said.append)
    block = read_block()
    assert drop_numbers(said) == drop_numbers(block)
    ours, theirs = ([float(x) for x in re.findall(NUMBER, "\n".join(lines))] for lines in (said, block))
    # a network's AUC moves by tenths when its last bits do; the rest is the same to the last digit
    np.testing.assert_allclose(ours, theirs, atol=1.0)
    turned = [line for line in said if line.startswith("   Evidence that reverses")]
    assert turned == ["   Evidence that reverses at site08: unstable."]
    assert "stable_" in command(*list_commands(said)[2][1:]).succeed().out


def test_a_folder_of_others_and_the_one_we_are_in_are_refused(tmp_path, monkeypatch):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    refuse(r"thesis: contains 'chapter.txt' but no demonstration; choose another", demo.run_demo, tmp_path / "thesis")
    monkeypatch.chdir(tmp_path)
    refuse("needs its own folder; choose another --out", demo.run_demo, Path())
    assert [path.name for path in tmp_path.rglob("*")] == ["thesis", "chapter.txt"]
