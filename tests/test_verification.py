"""``brio verify``: nothing differs in a job as it was written, and every number that was changed is found."""

import dataclasses
import itertools
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from brio import Cohort, run, tune
from brio.cohort.simulate import Simulation, simulate
from brio.report.comparisons import markdown_table
from brio.verification import verify_folder
from commands import command
from stored import rehash

NETWORK = {"epochs": 2}
PAGES = ("report.html", "MODEL_CARD.md", "report.bib", "table.md")
TABLES = ("results.csv", "sites.csv", "covariances.csv", "predictions.csv")
UNKNOWABLE = {("details", "penalty"), ("details", "trained_epochs"), ("source_sites",)}
"""What stands in a record alone: training says it, and nothing else of a job follows from it."""


def make(n_sites, per_class=4, **changes):
    """Simulate a cohort."""
    return simulate(Simulation(n_sites=n_sites, per_class=per_class, n_rois=8, frames=60, **changes))


def lose_class(cohort):
    """Leave out the patients of a site, whose AUC is undefined then."""
    keep = np.flatnonzero((cohort.sites != cohort.sites[0]) | (cohort.labels == 0))
    return cohort.select(keep)


def coincide(cohort):
    """Let the sexes coincide with classes that are called 0 and 1, as many of each at every site."""
    sex = np.where(cohort.labels == 1, "M", "F")
    return dataclasses.replace(cohort, classes=("0", "1"), participants=cohort.participants.assign(sex=sex))


def differing(folder, *words):
    """Return the lines of what differs, as the command prints them; hashes fit."""
    said = command("verify", rehash(folder), *words)
    assert said.status in (0, 1), said
    lines = said.out.partition("\nDiffer")[2].partition("\nNot checked:")[0].splitlines()
    assert (said.status == 1) == bool(lines), said
    return [line for line in lines if line.startswith("- ")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A job with all that is printed of it."""
    folder = tmp_path_factory.mktemp("verify") / "job"
    result = run(make(3, 3), ["ridge"], seeds=2, out=folder, device="cpu")
    result.report()
    (folder / "table.md").write_text(markdown_table([result.summary]))
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    """A function that copies the job, by default without what is printed of it, which takes longest."""

    def copy_job(pages=False):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return shutil.copytree(whole, tmp_path / "copy", ignore=None if pages else shutil.ignore_patterns(*PAGES))

    return copy_job


@pytest.mark.parametrize(
    ("cohort", "options"),
    [
        (make(3), {"methods": ["ridge", "svm"]}),
        (coincide(make(3)), {"methods": ["ridge", "covariates-only"]}),
        (make(4), {"methods": ["ridge", "gcn"], "settings": NETWORK}),
        (make(4), {"methods": ["ridge", "gcn"], "settings": NETWORK | {"protocol.n_folds": 4}, "protocol": "kfold"}),
        (
            make(4),
            {"methods": ["ridge"], "settings": {"harmonise.kind": "combat", "audit.min_class": 1}, "label": "sex"},
        ),
        (lose_class(make(9)), {"methods": ["log-ridge", "covariates-only"], "folds": ["site01", "site05"]}),
    ],
    ids=["3 sites", "sex", "network", "k-fold", "harmonised", "no AUC"],
)
def test_nothing_differs_in_a_job_as_it_was_written(cohort, options, tmp_path):
    cohort.save(tmp_path / "cohort")
    cohort = Cohort.load(tmp_path / "cohort")
    run(cohort, options.pop("methods"), seeds=2, out=tmp_path / "job", device="cpu", **options).report()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    found = verify_folder(tmp_path / "job", tmp_path / "cohort", again=2)
    assert found.differences == {}
    assert sum(n for kind, n in found.counts.items() if "retrained" in kind) > 3
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_arms_of_a_study_and_tuned_jobs_are_verified(tmp_path):
    cohort = make(4)
    cohort.save(tmp_path / "cohort")
    tune(cohort, ["ridge", "mlp"], budget=3, seeds=1, out=tmp_path / "tuned", settings=NETWORK, device="cpu")
    words = ("comparison", tmp_path / "cohort", "--method", "ridge", "--method", "svm", "--seeds", 1, "--device", "cpu")
    command("study", *words, "--out", tmp_path / "study").succeed()
    for name in ("tuned", "study"):
        assert differing(tmp_path / name, "--cohort", tmp_path / "cohort", "--again", 1) == []
    path = tmp_path / "study" / "arms" / "loso" / "svm" / "sites.csv"
    path.write_text(path.read_text().replace("0.", "0.1", 1))
    assert len(differing(tmp_path / "study")) == 1


def test_runs_that_were_not_drawn_for_retraining_are_counted(tmp_path, monkeypatch):
    cohort = make(3, 3)
    cohort.save(tmp_path / "cohort")
    run(Cohort.load(tmp_path / "cohort"), ["ridge"], out=tmp_path / "job", device="cpu")
    monkeypatch.setattr("brio.verification._train_again", lambda *_: None)
    for again, rest in ((1, ["predictions of 2 of 3 runs"]), (3, [])):
        found = verify_folder(tmp_path / "job", tmp_path / "cohort", again=again)
        assert [line.partition(",")[0] for line in found.not_checked if "not drawn" in line] == rest


@pytest.mark.parametrize("name", TABLES)
def test_a_change_in_any_column_of_a_table_is_found(name, copy, whole):
    table = pd.read_csv(whole / name, dtype=str, keep_default_na=False)
    for column in table if name != "predictions.csv" else table.columns.drop(["seed"]):
        changed, old = table.copy(), table.loc[1, column]
        changed.loc[1, column] = repr(change(float(old))) if re.fullmatch(r"-?\d+\.\d+", old) else change(old)
        folder = copy()
        changed.to_csv(folder / name, index=False)
        assert any(f"line 3, {column}: stored " in line for line in differing(folder)), column


def change(value):
    """Return another value, of the same kind where it has one."""
    if isinstance(value, str):
        return str(int(value) + 1) if value.isdigit() else f"{value}x" if value else "1"
    if isinstance(value, list | dict):
        return ["x"]
    if isinstance(value, float):
        return 0.999 * value + 1e-5
    return 1 if value is None else not value if isinstance(value, bool) else 1 - value if value in (0, 1) else value + 1


def list_places(document, place=()):
    """List the places of all values in a JSON document."""
    if not isinstance(document, dict | list) or not document:
        return [place]
    items = document.items() if isinstance(document, dict) else enumerate(document)
    return [inner for key, value in items for inner in list_places(value, (*place, key))]


def change_json(path, place):
    """Change a value in a JSON file."""
    document = inner = json.loads(path.read_text())
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = change(inner[place[-1]])
    path.write_text(json.dumps(document))


def test_a_change_of_any_key_of_the_summary_is_found(copy, whole):
    folder, unspoilt = copy(), (whole / "summary.json").read_text()
    for place in list_places(json.loads(unspoilt)):
        change_json(folder / "summary.json", place)
        assert f"{folder / 'summary.json'}, {', '.join(map(str, place))}" in differing(folder)[0], place
        (folder / "summary.json").write_text(unspoilt)


def test_a_change_in_the_record_of_a_run_is_found_unless_training_alone_knows_it(copy, whole):
    path = min(whole.glob("runs/*/run.json"))
    for place in list_places(json.loads(path.read_text())):
        if place[:1] != ("versions",) and place[1:] != ("protocol",) and (place[0] != "predictions" or place[2] == 0):
            folder = copy()
            change_json(folder / path.relative_to(whole), place)
            assert bool(differing(folder)) == (not UNKNOWABLE & {place, place[:1]}), place


@pytest.mark.parametrize("name", ["report.html", "MODEL_CARD.md", "table.md"])
def test_a_change_of_a_printed_number_is_found(name, copy, whole):
    text = (whole / name).read_text()
    numbers = list(re.finditer(r"(?<![\d.])\d\d\.\d(?=\D)", text))
    assert len(numbers) >= 8
    for number in numbers[:: len(numbers) // 8]:
        folder = copy(pages=True)
        (folder / name).write_text(f"{text[: number.start()]}12.3{text[number.end() :]}")
        assert any(f"{name}, line " in line and "12.3" in line for line in differing(folder)), number


def test_files_that_were_changed_or_removed_without_their_hash_are_found(copy):
    folder = copy()
    (folder / "groups.csv").write_text("participant_id\n")
    (folder / "audit.json").unlink()
    said = command("verify", folder)
    assert said.status == 1
    assert f"{folder}, audit.json: stored " in said.out
    assert f"{folder}, groups.csv: stored " in said.out
    for path in folder.glob("runs/*/SHA256SUMS"):
        path.write_text("0" * 64 + path.read_text()[64:])
    assert "all later checks" in command("verify", folder).out


def test_runs_that_are_left_out_or_of_no_fold_end_in_no_trace(copy, tmp_path):
    make(3, 3).save(tmp_path / "cohort")
    folder = copy()
    first, second, *_ = sorted(folder.glob("runs/*"))
    shutil.rmtree(first)
    change_json(second / "run.json", ("row", "fold"))
    said = command("verify", rehash(folder), "--cohort", tmp_path / "cohort", "--again", 9)
    assert said.status == 1
    assert f"{first.name}: stored {first.name}, recomputed nothing" in said.out
    assert f"{second.name}: stored {second.name}, recomputed " in said.out
    assert "Traceback" not in said.err


def test_what_is_not_there_is_said_not_to_be_checked(copy):
    folder = copy()
    shutil.rmtree(folder / "runs")
    said = command("verify", rehash(folder)).succeed()
    assert "predictions against the records of runs" in said.out
    assert "report.html, which is missing" in said.out
    assert "whether the whole folder was fabricated" in said.out
    (folder / "predictions.csv").unlink()
    assert "from which everything else is recomputed" in command("verify", rehash(folder)).refuse_in_a_line()
    assert "give the cohort with --cohort" in command("verify", folder, "--again", 1).refuse_in_a_line()


def test_a_method_of_another_version_is_not_trained_again(copy, tmp_path):
    folder = copy()
    make(3, 3).save(tmp_path / "cohort")
    plan = json.loads((folder / "plan.json").read_text())
    plan["methods"]["ridge"]["version"] += 1
    (folder / "plan.json").write_text(json.dumps(plan))
    words = ("verify", rehash(folder), "--cohort", tmp_path / "cohort")
    assert "keys of runs" in command(*words).out
    assert "method 'ridge' has changed since brio" in command(*words, "--again", 1).refuse_in_a_line()


def test_labels_sites_and_margins_that_are_not_of_the_cohort_are_found(copy, whole, tmp_path):
    make(3, 3).save(tmp_path / "cohort")
    make(3, 3, seed=1).save(tmp_path / "other")
    assert "is a different cohort" in command("verify", whole, "--cohort", tmp_path / "other").out
    folder, sizes = copy(), []
    for path in folder.glob("runs/*/run.json"):  # as one who knows how everything is made would do it
        record = json.loads(path.read_text())
        sizes.append(len(record["predictions"]["margin"]))
        record["predictions"]["margin"] = [value + 1e-3 for value in record["predictions"]["margin"]]
        record["row"]["n_source"] += 1
        path.write_text(json.dumps(record))
    lines = differing(folder, "--cohort", tmp_path / "cohort", "--again", 2)
    assert sum("runs" in line and ", n_source: stored " in line for line in lines) == 6
    n_margins = sum("runs" in line and ", ridge, " in line for line in lines)
    assert n_margins in {one + other for one, other in itertools.combinations(sizes, 2)}
