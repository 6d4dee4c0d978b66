"""What a study leaves: its files, whole and the same every time; and the commands."""

import json
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pandas as pd
import pytest
from study_contexts import METHODS, RENDERED, SETTINGS, bare, context_on, read, shorter, training, tree

from brio.drawing import render_figure
from brio.formatting import format_signed, state_p
from brio.methods import find_method, list_methods
from brio.methods.brio.method import Brio
from brio.storage import LOCK
from brio.studies import efficiency, list_studies, make_arm, run_study, study
from brio.studies.study import PAPER, find_study
from brio.studies.summaries import describe_differences
from brio.training import NeuralMethod
from commands import command

FILES = {"table.csv", "figure.svg", "figure.png", "finding.md", "study.json", "SHA256SUMS"}
NAMES = list(PAPER)
WHY = "2 seeds, " + ", ".join(f"{k}={v}" for k, v in SETTINGS.items() if "." not in k)


@pytest.mark.parametrize("name", NAMES)
def test_every_study_leaves_the_same_files(name, paper, table, context):
    """Its rows say of which runs they are; a smoke run is called that, and arms are printed alike everywhere."""
    place, cohort = paper / "out" / "studies" / name, context.cohort
    assert {p.name for p in place.iterdir()} == FILES
    rows = table(name)
    assert len(rows) > 0
    folds, seeds, epochs = {"efficiency": (1, 1, [12, 14]), "in-distribution": (4, 2, [2])}.get(name, (5, 2, [2]))
    assert (rows["folds"] == folds).all()
    assert (rows["seeds"] == seeds).all()
    assert sorted(set(rows["epochs"].dropna())) == epochs
    if "arm" in rows:
        assert rows[rows["arm"] == "brio"]["K"].eq(2).all()
        assert rows[rows["arm"].isin(["ridge", "gcn", "backbone", "brio-wo-qg", "backbone-shuffled"])]["K"].isna().all()
    assert (place / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(place / "figure.svg").getroot().tag.endswith("svg")
    told = json.loads((place / "study.json").read_text())
    assert (told["name"], told["title"], told["paper"]) == (name, find_study(name).title, find_study(name).paper)
    assert told["fingerprint"] == cohort.fingerprint
    assert (told["cohort"], told["n_scans"], told["seeds"]) == ("simulated", len(cohort), 2)
    assert (told["folds"], told["epochs"]) == (folds, epochs)
    with shorter():
        arms = find_study(name).list_arms(context)
    assert told["arms"] == [a.name for a in arms]
    if "arm" in rows:
        assert {a.split(",")[0] for a in rows["arm"]} <= {a.method for a in arms} | {*METHODS, "matched w/o QG"}
    assert told["smoke"] == WHY
    assert told["text"][0] == f"This is a smoke run ({WHY}): no basis for a claim."
    text = (place / "finding.md").read_text()
    assert text.startswith(f"# {told['title']}\n")
    assert f"The paper: {told['paper']}" in text
    assert all(sentence in text for sentence in told["text"])
    assert not [word for word in ("nan", "-0.0 ", "-0.0,") if word in text]
    shown = [line for line in text.splitlines() if line.startswith("| ")]
    for word in ("brio-wo", "| brio ", "| brio,", "minus brio"):
        assert not any(word in line for line in shown), word


def test_nothing_but_arms_and_studies_is_written(paper, seen):
    out = paper / "out"
    assert {p.name for p in out.iterdir()} == {"arms", "studies"}
    assert sorted("/".join(p.parts[-2:]) for p in out.glob("arms/*/*")) == sorted(seen["executed"])
    assert not list(out.rglob("*.partial*"))
    for folder in out.glob("arms/*/*"):
        names = {p.name for p in folder.iterdir()}
        assert {"plan.json", "audit.json", "exclusions.tsv", "results.csv", "predictions.csv", "summary.json"} <= names


def test_the_same_study_gives_the_same_bytes(paper, context, monkeypatch):
    monkeypatch.setattr(study, "render_figure", render_figure)
    place = run_study(RENDERED, context)
    assert tree(place) == tree(paper / "out" / "studies" / RENDERED)


# ---------------------------------------------------------------- writing


def test_a_summary_is_shown_with_display_names_and_whole_intervals():
    nan = float("nan")
    columns = ["arm", "AUC", "low", "high", "minus brio", "difference low", "difference high", "warning"]
    rows = [["brio", 70.0, 65.0, 75.0, nan, nan, nan, ""], ["brio-wo-rs", 68.0, nan, nan, -2.0, -4.04, 0.01, "too few"]]
    summary = pd.DataFrame(rows, columns=columns)
    assert study._format_summary(summary).splitlines() == [
        "| arm | AUC | 95% interval | AUC minus BRIO | interval of difference |",
        "| --- | --- | --- | --- | --- |",
        "| BRIO | 70.0 | 65.0 to 75.0 | - | - |",
        "| w/o RS | 68.0 | - | -2.0 | -4.0 to 0.0 |",
    ]
    variation = summary[["arm", "difference low", "difference high"]].assign(**{"difference low": [None, -0.0404]})
    assert study._format_summary(variation).splitlines()[-1] == "| w/o RS | -0.0404 to +0.01 |"


def test_differences_that_round_to_nothing_have_no_sign():
    assert [format_signed(v) for v in (-0.04, -0.0, 0.0, 0.04)] == ["0.0"] * 4
    assert [format_signed(v) for v in (-0.06, 12.34)] == ["-0.1", "+12.3"]
    assert state_p(float("nan")) == "no test"
    summary = pd.DataFrame({"arm": ["brio", "brio-wo-rs", "gcn"], "minus brio": [None, -0.01, -3.0], "warning": ""})
    assert describe_differences(summary.assign(p=[None, 1.0, 0.0001]), "brio") == [
        "Significantly lower AUC than BRIO after Holm's correction: gcn (-3.0 points, p < 0.001).",
        "No significant difference in AUC from BRIO: w/o RS (0.0 points, p = 1.00).",
    ]
    warned = summary.assign(p=[None, None, 0.0001], warning=["", "too few sites", ""])
    assert describe_differences(warned, "brio")[1:] == ["Not tested: w/o RS; too few sites."]


# ---------------------------------------------------------------- efficiency


def test_every_trained_method_is_measured_once(table):
    rows = table("efficiency")
    assert rows["arm"].tolist() == ["gcn", "brio", "brio, half of the scans"]  # K was given for all
    assert (rows["seconds_an_epoch"] > 0).all()
    assert rows["peak_memory_mib"].isna().all(), "on a CPU"
    whole, half = rows["source_scans"].iloc[1:]
    assert 0.4 < half / whole < 0.7


@pytest.fixture
def ticking(monkeypatch):
    """A clock whose k-th tick is at k squared: the k-th epoch takes 2 k + 1, and a mean tells which were counted."""
    ticks = iter(range(1000))
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)) ** 2)
    monkeypatch.setattr(efficiency, "time", clock)
    return ticks


def test_six_epochs_count_after_the_first_five(ticking, cohort, tmp_path):
    context = context_on(cohort, tmp_path, methods=["gcn"])
    fold = next(iter(context.plan_arm(make_arm("gcn")).runs.values())).run.fold
    row = efficiency.measure_training(context, "gcn", "gcn", fold, {})
    assert row["seconds_an_epoch"] == sum(2 * k + 1 for k in range(5, 11)) / 6
    assert next(ticking) == row["epochs"] == 12


def test_epochs_of_brio_hold_their_share_of_refreshes(ticking, cohort, tmp_path, monkeypatch):
    context = context_on(cohort, tmp_path, methods=["brio"], settings={**SETTINGS, "cell_batch": "1"})
    fold, seen = next(iter(context.plan_arm(make_arm("brio")).runs.values())).run.fold, []
    plain = Brio.refresh

    def watched(self, *words):
        seen.append(next(ticking))  # which counts on the clock as well
        return plain(self, *words)

    monkeypatch.setattr(Brio, "refresh", watched)
    starts: list[float] = []
    perf_counter = efficiency.time.perf_counter
    monkeypatch.setattr(efficiency.time, "perf_counter", lambda: starts.append(perf_counter()) or starts[-1])
    row = efficiency.measure_training(context, "brio", "brio", fold, {"M": 4})
    counted = 8
    assert row["epochs"] == len(starts) == 5 + counted + 1
    first, last = (round(starts[k] ** 0.5) for k in (5, 5 + counted))
    assert row["seconds_an_epoch"] == (starts[5 + counted] - starts[5]) / counted
    assert sum(first <= tick < last for tick in seen) == counted // 4


def test_brio_is_measured_with_few_and_many_reestimates(cohort, tmp_path, monkeypatch):
    asked = []

    def measured(context, label, name, fold, settings):
        asked.append((label, len(fold.source), settings))
        return dict.fromkeys(efficiency.COLUMNS, 1.0) | {"arm": label, "peak_memory_mib": 10.0 * len(asked), "K": 8}

    monkeypatch.setattr(efficiency, "measure_training", measured)
    context = context_on(cohort, tmp_path, settings={"epochs": "30"})
    found = find_study("efficiency").find(context)
    n = asked[0][1]
    labels = {"gcn": {}, "brio": {}, "brio, K = 2": {"K": 2}, "brio, K = 16": {"K": 16}, "brio, half of the scans": {}}
    assert {label: settings for label, _, settings in asked} == labels
    assert [size for _, size, _ in asked[:4]] == [n] * 4
    assert asked[4][1] < n
    assert "30 MiB at K = 2, 20 MiB at its default K, 40 MiB at K = 16, and 50 MiB with half" in found.text[1]


@pytest.mark.soak
@pytest.mark.parametrize("hungry", [set(), {"core", "core-scaffold", "covariates-only", "deci", "fc-hgnn", "xg-gnn"}])
def test_the_whole_paper_with_every_method_that_can_be_fed(hungry, cohort, tmp_path):
    said: list[str] = []
    used = bare(cohort) if hungry else cohort
    context = context_on(used, tmp_path, methods=None, seeds=1, say=said.append)
    place = run_study("paper", context)

    def arms(name):
        return set(read(place / name / "table.csv")["arm"])

    assert {p.name for p in place.iterdir()} - {LOCK} == set(NAMES)
    assert set(context.left_out) == hungry
    assert sum("left out" in line for line in said) == len(hungry)
    every = {e.name for e in list_methods() if not e.fixed and not e.file}
    for name in ("comparison", "in-distribution"):
        assert arms(name) == every - hungry
    assert arms("agreement") == {"coral", "irm", "gsat", "brainood", "core", "backbone", "brio"} - hungry
    assert arms("scan-length") == {"brio", "brio-wo-rs", "brio-wo-qg"}
    networks = {name for name in every - hungry if issubclass(find_method(name).method_class, NeuralMethod)}
    assert networks <= arms("efficiency")


# ---------------------------------------------------------------- commands


@pytest.fixture
def folder(cohort, tmp_path):
    cohort.save(tmp_path / "cohort")
    return tmp_path


@pytest.mark.usefixtures("undrawn")
def test_a_study_by_command(folder):
    words = ["--method", "ridge", "--method", "logistic", "--seeds", 1, "--fold", "site01", "--fold", "site02"]
    begin = ["study", "comparison", folder / "cohort", "--device", "cpu", "--quiet", *words]
    with training("loso/ridge", "loso/logistic"):
        status, out, err = command(*begin, "--out", folder / "out")
    assert (status, err) == (0, "")
    place = folder / "out" / "studies" / "comparison"
    assert {p.name for p in place.iterdir()} == FILES
    assert "# All methods at unseen sites" in out
    assert "This is a smoke run (not every fold, 1 seed): no basis for a claim." in out
    assert "figure.png" not in out
    assert out.rstrip().endswith(f"results: {place}")
    assert set(read(place / "table.csv")["fold"]) == {"site01", "site02"}
    # the results of this folder, reused elsewhere
    with training("loso/logistic"):
        again = command(*begin, "--out", folder / "other", "--reuse", folder / "out" / "arms" / "loso" / "ridge")
    assert (again.status, again.err) == (0, "")
    trained, given = (tree(folder / at / "studies") for at in ("out", "other"))
    told = [json.loads(files.pop("comparison/study.json")) for files in (trained, given)]
    for files in (trained, given):
        del files["comparison/SHA256SUMS"]  # has the hash of study.json
    assert given == trained
    assert [one["options"].pop("reuse") for one in told] == [[], ["loso/ridge"]]
    assert told[0] == told[1]
    before = tree(folder)
    refused = command(*begin, "--out", folder / "third", "--reuse", folder)
    assert "has no summary.json" in refused.refuse_in_a_line()
    assert tree(folder) == before


def test_the_list_of_studies():
    listed = command("studies").succeed()
    told = json.loads(command("studies", "--json").succeed().out)
    assert [t["name"] for t in told] == [s.name for s in list_studies()]
    assert all(set(t) == {"name", "title", "summary", "paper"} and all(t.values()) for t in told)
    by = {t["name"]: t for t in told}
    assert all(name in listed.out for name in by)
    assert by["retention"]["title"] == find_study("retention").title
    assert by["ablation"]["summary"].startswith("Compare BRIO with the paper's four ablations")
