"""Jobs on ordinary cohorts: every number is that of an independent computation, whatever the order and the names."""

import json
import shutil

import numpy as np
import pytest
from checks import check_job, check_ridge, close, mark_long, read, same_predictions
from cohorts import BUILDERS, build, other_sites, rename, rename_sites, run_job, shuffle

from brio.methods import list_methods
from commands import command

LINEAR = ("ridge", "logistic", "svm", "log-ridge")
CONTROLS = ("covariates-only", "length-only", "dead-rois-only")
FAST = ("two sessions", "one-class site", "dead region")
KFOLD = (("protocol__n_folds", 5), ("protocol__validation_folds", 1))
ALL = [entry.name for entry in list_methods()]
CLOSED_FORM = (*LINEAR, *CONTROLS)
EVERYWHERE = mark_long([(name, CLOSED_FORM) for name in BUILDERS])
TOLERANCE = {"core": 1e-4}
"""Scaffolds are computed in single precision."""


@pytest.mark.parametrize("seeds", mark_long([1, 3], [3]))
@pytest.mark.parametrize("name", mark_long(BUILDERS, FAST))
def test_scores_and_intervals_are_those_of_the_predictions(name, seeds):
    folder, people = run_job(name, "ridge", "covariates-only", seeds=seeds), BUILDERS[name]()
    check_job(folder, people, n_methods=2, n_seeds=seeds)
    check_ridge(folder, people)


@pytest.mark.parametrize("seeds", mark_long([1, 3], [3]))
@pytest.mark.parametrize("name", mark_long(BUILDERS, ["named"]))
def test_k_fold_scores_are_those_of_the_predictions(name, seeds):
    folder = run_job(name, "ridge", "length-only", seeds=seeds, protocol="kfold", settings=KFOLD)
    check_job(folder, BUILDERS[name](), n_methods=2, n_seeds=seeds, protocol="kfold")
    people = BUILDERS[name]().table.drop_duplicates("participant_id")
    for _, fold in read(folder / "predictions.csv").groupby(["method", "seed", "fold"]):
        for label in (0, 1):  # balanced: classes are dealt evenly
            assert abs((fold["label"] == label).sum() - (people["label"] == label).sum() / 5) < 1


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("5 sites", ("svm", "log-ridge")),
        ("dead region", ("ridge", "dead-rois-only")),
        *(("5 sites", (method,)) for method in ("gcn", "brio-plus")),
        *EVERYWHERE,
        *mark_long([("5 sites", (m,)) for m in ALL if m not in (*CLOSED_FORM, "gcn", "brio-plus")]),
    ],
)
def test_the_order_of_participants_decides_nothing(name, methods):
    options = {} if methods == CLOSED_FORM else {"folds": ("site01",)}  # where all folds are alike
    first, second = (run_job(name, *methods, change=change, **options) for change in (None, shuffle))
    same_predictions(first, second, TOLERANCE.get(methods[0], 1e-6))
    assert read(first / "predictions.csv")["margin"].std() > 0


@pytest.mark.parametrize(("name", "methods"), [("numbered", ("logistic", "covariates-only")), *EVERYWHERE])
def test_names_of_participants_decide_nothing_where_nothing_is_drawn(name, methods):
    ids = [BUILDERS[name]().table["participant_id"], rename(BUILDERS[name]()).table["participant_id"]]
    first, second = run_job(name, *methods), run_job(name, *methods, change=rename)
    same_predictions(first, second, renamed=dict(zip(*ids, strict=True)))


WITHOUT_A_DRAW = (("choose_by", "source-sites"), ("protocol__validation_sites", 0))
"""Validation sites are drawn by name; without them, nothing that a closed-form method does is."""


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("5 sites", ("ridge", "log-ridge")),
        *EVERYWHERE,
        # dropout is drawn by the position in a batch, where sites lie in the order of their names; brio has none
        *mark_long([("4 sites", ("brio-plus",)), ("named", ("brio-plus",)), ("4 sites", ("brio",))]),
    ],
)
def test_names_of_sites_decide_nothing_where_nothing_is_drawn(name, methods):
    settings = WITHOUT_A_DRAW if "ridge" in methods else WITHOUT_A_DRAW[1:]
    first, second = (run_job(name, *methods, change=change, settings=settings) for change in (None, rename_sites))
    names = other_sites(BUILDERS[name]())
    same_predictions(first, second, renamed=names)
    for folder, sites in ((first, sorted(names)), (second, sorted(names.values()))):
        runs = read(folder / "results.csv")
        assert all(own["fold"].tolist() == sites for _, own in runs.groupby("method")), "tables follow the names"
        assert all(own["fold"].tolist() == sites for _, own in read(folder / "sites.csv").groupby("method"))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "method"),
    # the scaffold of CORE needs validation sites, or four sites
    [(n, m) for n in ("3 sites", "one-class site") for m in ALL if (n, m) != ("3 sites", "core-scaffold")],
)
def test_every_method_answers_and_its_scores_are_right(name, method):
    check_job(run_job(name, method), BUILDERS[name](), n_methods=1, n_seeds=1)


def test_separable_classes_are_separated_and_printed_as_such():
    folder = run_job("separable", "ridge", "logistic", seeds=3)
    check_job(folder, BUILDERS["separable"](), n_methods=2, n_seeds=3)
    assert (read(folder / "results.csv")["auc"] == 1).all()
    probability = read(folder / "predictions.csv").query("method == 'ridge'")["probability"]
    assert probability.between(1e-4, 1 - 1e-4).all(), "no certainty from few scans"
    said = command("compare", folder).succeed()
    rows = [line.split(" | ") for line in said.out.splitlines() if line.startswith(("| ridge", "| logistic"))]
    assert rows[0][1:4] == ["100.0", "-", "-"], "scores that do not vary say nothing of their spread"
    differences = [row[-1].strip(" |") for row in rows if len(row) > 8 or row[1] == "6"]
    unknown = "the difference is the same at every site, so its spread is unknown and nothing can be tested."
    assert f"logistic: {unknown}" in said.out
    assert differences == ["-"], "differences of none say nothing of what could have been detected"
    command("report", folder, "--out", folder.parent / "separable.html")
    page = (folder.parent / "separable.html").read_text()
    assert "no claim" in page, "the same score at every site leaves its uncertainty unknown"
    assert "a mean AUC of 50.0% or more" not in page


@pytest.mark.parametrize("methods", [("ridge",), pytest.param((*LINEAR, "brio-plus", "gcn"), marks=pytest.mark.soak)])
def test_chance_is_not_called_better_than_chance(methods):
    folder = run_job("chance", *methods, seeds=3)
    said = command("compare", folder)
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in said.out.splitlines()]
    rows = [row for row in rows if row[0] in methods and len(row) == 8]
    assert len(rows) == len(methods)
    assert min(float(row[-1]) for row in rows) > 0.05 / len(methods)
    assert command("report", folder, "--out", folder.parent / "report.html").status == 0
    assert "was not significantly better than chance" in (folder.parent / "report.html").read_text()


def test_a_confound_is_found_by_the_confound_baseline(tmp_path):
    methods = [word for name in ("ridge", *CONTROLS) for word in ("--method", name)]
    said = command("run", build("confounded"), *methods, "--device", "cpu", "--out", tmp_path / "job").succeed()
    check_job(tmp_path / "job", BUILDERS["confounded"](), n_methods=4, n_seeds=1)
    auc = read(tmp_path / "job" / "results.csv").groupby("method")["auc"].mean()
    assert auc["covariates-only"] > 0.99
    assert max(auc["length-only"], auc["dead-rois-only"]) == 0.5
    assert (
        "covariates-only reaches an AUC of 100.0% (the same everywhere) at unseen sites without connectomes" in said.out
    )
    assert "length-only reaches" not in said.out
    assert {"method", "ridge", *CONTROLS} <= {line.split(" ")[0] for line in said.out.splitlines()}, "no name is cut"
    (warning,) = (line for line in said.out.splitlines() if line.startswith("warning: "))
    assert f"\n{warning}\n" in command("table", tmp_path / "job").out


@pytest.mark.parametrize("name", mark_long(BUILDERS, ["unequal scans", "two sessions", "one-class site"]))
def test_the_audit_counts_what_the_table_holds(name):
    people = BUILDERS[name]()
    said, table = command("audit", build(name)).succeed(), people.table.drop_duplicates("participant_id")
    n_scans, n_sites = len(people.table), table["site"].nunique()
    of = f" of {len(table)} participants" if len(table) < n_scans else ""
    counts = [f"{(table['label'] == k).sum()} {word}" for k, word in ((0, "control"), (1, "patient"))]
    assert f"{n_scans} scans{of} at {n_sites} sites: {', '.join(counts)}\n" in said.out
    short = sum(len(scan) < 40 for scan in people.scans)
    assert (f"{short} of {n_scans} scans; {n_scans - short} remain" in said.out) == (short > 0)
    lengths = [len(scan) for scan in people.scans if len(scan) >= 40]
    assert f"{min(lengths)} to {max(lengths)} frames" in said.out
    dead = [(scan.std(axis=0) == 0).sum() for scan in people.scans]
    assert (f"{np.count_nonzero(dead)} scans, up to {max(dead)} of 12 ROIs" in said.out) == any(dead)
    one_class = table.groupby("site")["label"].nunique() == 1
    assert ("one class only: none" in said.out) == (not one_class.any())


@pytest.mark.parametrize("name", mark_long(BUILDERS, ["one-class site"]))
def test_tables_print_the_numbers_of_the_files(name):
    folder = run_job(name, "ridge", "covariates-only", seeds=3)
    said = command("table", folder).succeed()
    values = read(folder / "results.csv").groupby(["method", "fold"])[["auc", "acc"]].mean()
    for method, own in values.groupby("method"):
        row = next(line for line in said.out.splitlines() if f"| {method} |" in line)
        for metric in ("auc", "acc"):
            mean, sd = own[metric].mean(), own[metric].std(ddof=1)
            assert f"| {100 * mean:.1f} ± {100 * sd:.1f} |" in row
    compared = command("compare", folder).succeed()
    difference = (values.loc["covariates-only"] - values.loc["ridge"])["auc"].dropna()
    row = next(
        line for line in compared.out.splitlines() if line.startswith(f"| covariates-only | {len(difference)} |")
    )
    close(float(row.split(" | ")[2]), 100 * difference.mean(), 0.0501)
    better, worse = (difference > 1e-12).sum(), (difference < -1e-12).sum()
    assert row.split(" | ")[4:6] == [str(better), str(worse)]
    for number in (
        cell for line in compared.out.splitlines() if line.startswith("| ridge") for cell in line.split("|")
    ):
        assert all(0 <= float(part) <= 100 for part in number.split(" to ") if " to " in number)
    close(read(folder / "sites.csv").groupby("method")["auc"].mean(), values["auc"].groupby("method").mean())


def change_table(file, column, change):
    """Return what changes one cell of a table of a job."""

    def spoil(folder):
        table = read(folder / file)
        table.loc[1, column] = change(table.loc[1, column])
        table.to_csv(folder / file, index=False)

    return spoil


def change_summary(folder):
    summary = json.loads((folder / "summary.json").read_text())
    summary["methods"]["ridge"]["auc_interval_over_people"][0] += 1e-6
    (folder / "summary.json").write_text(json.dumps(summary))


@pytest.mark.parametrize(
    "spoil",
    [
        change_table("results.csv", "auc", lambda auc: auc - 0.01),
        change_table("results.csv", "n_source", lambda n: n + 1),
        change_table("predictions.csv", "margin", lambda margin: margin + 1e-4),
        change_table("predictions.csv", "probability", lambda p: p * 0.999),
        change_table("predictions.csv", "label", lambda label: 1 - label),
        change_table("predictions.csv", "participant_id", lambda name: "nobody"),
        change_summary,
    ],
)
def test_the_checks_of_this_folder_can_fail(spoil, tmp_path):
    folder, people = run_job("3 sites", "ridge", "covariates-only"), BUILDERS["3 sites"]()
    copied = shutil.copytree(folder, tmp_path / "job")
    check_all(copied, people, folder)
    spoil(copied)
    with pytest.raises((AssertionError, KeyError)):
        check_all(copied, people, folder)


def check_all(folder, people, other):
    """Apply every check of a job."""
    check_job(folder, people, n_methods=2, n_seeds=1)
    check_ridge(folder, people)
    same_predictions(other, folder)
