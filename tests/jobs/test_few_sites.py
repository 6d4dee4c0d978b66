"""Few sites, by command: what is run without validation sites, what is refused, and what is said."""

import csv
import dataclasses
import functools
import hashlib
import json
import shlex

import numpy as np
import pytest

from brio.cohort.simulate import Simulation, simulate
from brio.jobs import JobSpec
from brio.jobs.job import prepare_job
from brio.jobs.plan import assign_stacks, build_plan
from brio.models import read_model
from brio.studies import StudyContext
from brio.studies.context import make_arm

SMALL_METHODS = ["ridge", "gcn", "brio"]
TINY_VALUES = ["epochs=2", "cell_batch=4", "T_w=1", "M=2", "K=1", "J=2", "sinkhorn_iterations=5"]
SMALL_OPTIONS = [
    *(word for name in SMALL_METHODS for word in ("--method", name)),
    *(word for value in TINY_VALUES for word in ("--set", value)),
    *("--device", "cpu", "--quiet"),
]


@functools.cache
def few(n_sites, per_class=5, one_class=0):
    """So many sites; the last few hold one class only."""
    cohort = simulate(Simulation(n_sites=n_sites + one_class, per_class=per_class, n_rois=8, frames=50, dead_share=0))
    names = sorted(set(cohort.sites))[n_sites:]
    return cohort.select([s not in names or c == 0 for s, c in zip(cohort.sites, cohort.labels, strict=True)])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_rows(folder):
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("n_sites", "folds"),
    [(3, ["site02"]), *(pytest.param(n, [], marks=pytest.mark.soak, id=f"{n} sites, all folds") for n in (3, 4))],
)
def test_leaving_one_site_out_of_few(here, n_sites, folds, brio):
    few(n_sites).save(here / "cohort")
    words = [*SMALL_OPTIONS, "--keep-all", *(word for name in folds for word in ("--fold", name)), "--out", "job"]
    said = brio("run", "cohort", *words).succeed()
    assert f"{n_sites} sites have both classes, too few for validation sites" in said.out
    assert "ridge: choose_by=source-sites" in said.out
    assert "gcn, brio: inner folds choose the number of epochs" in said.out
    rows = read_rows(here / "job")
    assert len(rows) == (len(folds) or n_sites) * len(SMALL_METHODS)
    for row in rows:
        assert row["validation_sites"] == ""
        assert row["n_validation"] == "0"
        assert 0 <= float(row["validation_auc"]) <= 1
        assert 0 <= float(row["auc"]) <= 1
    plan = json.loads((here / "job" / "plan.json").read_text())
    assert plan["protocol_settings"]["validation_sites"] == 0
    assert plan["methods"]["ridge"]["settings"]["choose_by"] == "source-sites"
    weights = {path.name: path.read_bytes() for path in (here / "job" / "runs").rglob("*.safetensors")}
    again = brio("run", "cohort", *words).succeed()
    assert f"{len(rows)} of {len(rows)} runs are finished" in again.out
    assert weights == {path.name: path.read_bytes() for path in (here / "job" / "runs").rglob("*.safetensors")}


@pytest.mark.parametrize("n_sites", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_kfold_of_one_or_two_sites(here, n_sites, brio):
    few(n_sites, per_class=12).save(here / "cohort")
    folds = ["--protocol", "kfold", "--set", "protocol.n_folds=4", "--set", "protocol.validation_folds=1"]
    only = ["--fold", "2", "--keep-all"]
    brio("run", "cohort", *SMALL_OPTIONS, *folds, *only, "--out", "job").succeed()
    for row in read_rows(here / "job"):
        assert int(row["n_validation"]) > 0
        assert 0 <= float(row["auc"]) <= 1


def plan_of(cohort, methods, **settings):
    job = prepare_job(JobSpec(cohort, methods, settings=settings, device="cpu", exclude=False))
    return build_plan(job, methods), job


def test_from_five_sites_on_the_default_is_the_same_plan_as_two_validation_sites():
    cohort = few(5)
    default, _ = plan_of(cohort, SMALL_METHODS)
    explicit, _ = plan_of(cohort, SMALL_METHODS, **{"protocol.validation_sites": 2})
    assert default.document == explicit.document
    assert list(default.runs) == list(explicit.runs)
    for key, planned in default.runs.items():  # as before the number of validation sites followed that of sites
        identity = {
            "cohort": cohort.fingerprint,
            "method": planned.method.name,
            "version": planned.method.version,
            "settings": dataclasses.asdict(planned.method.settings),
            "protocol": "loso",
            "protocol_settings": {"validation_sites": 2, "n_folds": 10, "validation_folds": 2},
            "fold": planned.run.fold.name,
            "seed": planned.run.seed,
        }
        assert key == hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]
    kfold = prepare_job(JobSpec(few(2), ["ridge"], "kfold", device="cpu", exclude=False))
    assert build_plan(kfold, ["ridge"]).document.protocol_settings["validation_sites"] == 2, "and so are its keys"


def test_inner_folds_count_in_the_cost_and_in_the_memory():
    plan, job = plan_of(few(4), ["gcn", "ridge"])
    trainings = {planned.method.name: planned.count_trainings(job.cohort) for planned in plan.runs.values()}
    assert trainings == {"gcn": 1 + 3, "ridge": 1}
    for n_sites, n_trainings in ((3, 1 + 5), (5, 1)):  # fifths of the participants of two source sites
        plan, job = plan_of(few(n_sites), ["gcn"])
        assert next(iter(plan.runs.values())).count_trainings(job.cohort) == n_trainings
    assert len(assign_stacks(plan, job.connectomes, 2).document.stacks) == 3


def test_explicit_settings_are_obeyed():
    cohort = few(4)
    plan, _ = plan_of(cohort, ["ridge", "gcn"], **{"protocol.validation_sites": "1"})
    assert plan.document.methods["ridge"].settings["choose_by"] == "validation"
    assert all(len(planned.run.fold.validation_sites) == 1 for planned in plan.runs.values())
    plan, _ = plan_of(few(5), ["gcn"], **{"protocol.validation_sites": "0"})
    assert all(len(planned.run.fold.validation) == 0 for planned in plan.runs.values())


RIDGE = ["--method", "ridge"]
CORE = ["--method", "core-scaffold"]
REFUSED = [
    # sites, one-class sites, participants of each class, command, words, what the answer says
    (2, 0, 3, "run", RIDGE, ["at least 3 sites", "there are 2 (site01, site02)", "--method ridge --keep-all"]),
    (1, 0, 3, "run", RIDGE, ["at least 3 sites", "there is 1 (site01)", "brio run cohort", "--out cohort-kfold"]),
    (0, 2, 3, "run", RIDGE, ["at least 3 sites", "there are none", "add participants"]),
    (2, 1, 3, "run", [*RIDGE, "--set", "penalties=3"], ["there are 2", "--set penalties=3", "--protocol kfold"]),
    (2, 0, 3, "tune", RIDGE, ["at least 3 sites", "kfold"]),
    (3, 0, 3, "run", [*RIDGE, "--set", "protocol.validation_sites=2"], ["2 other sites", "lower", "to 0", "leave out"]),
    (3, 0, 3, "run", [*RIDGE, "--set", "protocol.validation_sites=1"], ["2 other sites", "leave out protocol"]),
    (4, 0, 3, "run", [*RIDGE, "--set", "protocol.validation_sites=2"], ["3 other sites", "lower it to 1"]),
    (3, 0, 3, "run", [*RIDGE, "--set", "protocol.validation_sites=0"], ["add --set choose_by=source-sites", "kfold"]),
    (4, 0, 3, "run", [*RIDGE, "--set", "choose_by=validation"], ["at least 5 sites", "validation_sites to 1"]),
    (
        3,
        0,
        3,
        "run",
        [*RIDGE, "--set", "choose_by=validation"],
        ["at least 5 sites", "add --set choose_by=source-sites"],
    ),
    (3, 0, 3, "run", CORE, ["have both classes (found 3)", "at least 5 sites", "choose another method"]),
    (3, 0, 2, "run", ["--method", "gcn"], ["at least 5 participants of each class", "one class has 4"]),
    (
        1,
        0,
        2,
        "run",
        [*RIDGE, "--protocol", "kfold"],
        ["has only 4 participants", "--set protocol.n_folds=N"],
    ),
    (1, 0, 4, "run", ["--method", "log-ridge", "--protocol", "kfold", "--set", "protocol.n_folds=4"], ["at least 5"]),
    (1, 0, 6, "fit", RIDGE, ["at least 2 sites", "--protocol kfold"]),
    (2, 0, 3, "fit", [*RIDGE, "--evaluate"], ["at least 3 sites", "there are 2", "leave out --evaluate"]),
    (2, 0, 3, "study", ["ablation"], ["at least 3 sites", "use --protocol kfold"]),
    (2, 0, 3, "study", ["agreement"], ["at least 3 sites", "use --protocol kfold with a study that supports it"]),
    (
        2,
        0,
        3,
        "study",
        ["retention", "--protocol", "kfold"],
        ["does not support k-fold", "ablation"],
    ),
]


@pytest.mark.parametrize(("n_sites", "one_class", "per_class", "name", "words", "parts"), REFUSED)
def test_what_few_sites_do_not_allow(here, n_sites, one_class, per_class, name, words, parts, brio):
    exact = few(n_sites, 8, one_class)
    cells = np.char.add(exact.sites.astype(str), exact.labels.astype(str))
    kept = np.concatenate([np.flatnonzero(cells == cell)[:per_class] for cell in np.unique(cells)])
    exact.select(np.sort(kept)).save(here / "cohort")
    positional, rest = ([words[0], "cohort"], words[1:]) if name == "study" else (["cohort"], words)
    line = brio(name, *positional, *rest, "--keep-all", "--device", "cpu", "--out", "new").refuse_in_a_line()
    for part in parts:
        assert part in line
    assert not (here / "new").exists()


def test_the_proposed_command_works(here, brio):
    few(2, per_class=7).save(here / "cohort")
    said = brio("run", "cohort", "--method", "ridge", "--set", "penalties=2", "--keep-all", "--out", "new")
    proposed = shlex.split(said.err.split("with --protocol kfold: ")[1])
    assert proposed[:2] == ["brio", "run"]
    brio(*proposed[1:], "--device", "cpu", "--quiet").succeed()
    assert len(read_rows(here / "cohort-kfold")) == 10


def test_all_methods_leave_out_what_needs_validation_sites(here):
    job = prepare_job(JobSpec(few(3), "all", device="cpu", exclude=False))
    assert job.runnable_methods(["ridge", "core-scaffold", "gcn"]) == ["ridge", "gcn"]


@pytest.mark.parametrize("evaluate", [[], pytest.param(["--evaluate"], marks=pytest.mark.soak)])
def test_a_model_of_three_sites_is_fitted(here, evaluate, brio):
    few(3).save(here / "cohort")
    assert "3 sites have both classes: leave one site out, without validation" in brio("audit", "cohort").out
    words = ["--method", "mlp", "--set", "epochs=2", "--set", "width=4", "--device", "cpu", "--quiet", "--keep-all"]
    said = brio("fit", "cohort", *words, *evaluate, "--out", "model").succeed()
    assert "inner folds choose the number of epochs" in said.out
    assert len(read_model(here / "model").training.sites) == 3


def test_arms_follow_the_protocol_of_a_study(here):
    spec = JobSpec(few(2, per_class=8), protocol="kfold", device="cpu", exclude=False)
    context = StudyContext(spec, here / "s")
    assert context.plan_arm(make_arm("ridge")).document.protocol == "kfold"
    assert context.record_options([]).protocol == "kfold"
    three = StudyContext(JobSpec(few(3), device="cpu", exclude=False), here / "s")
    assert three.plan_arm(make_arm("ridge")).document.methods["ridge"].settings["choose_by"] == "source-sites"
    assert three.plan_arm(make_arm("ridge", "kfold")).document.protocol == "kfold"
    assert three.record_options([]).protocol is None
