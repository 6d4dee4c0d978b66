"""Options in a file are the same options: the job of a file is that of its flags, and that of its own plan."""

import importlib
import json
import time
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from brio.cli import app
from brio.cli.config_file import find_kinds, list_options
from brio.cohort.simulate import Simulation, simulate
from brio.configuration import flatten_settings, format_settings, format_value, read_configuration, read_value
from brio.errors import BrioError
from brio.jobs import JobSpec
from brio.jobs.job import prepare_job
from brio.jobs.plan import build_plan
from brio.jobs.resume import recover_options

FLAGS = ["--method", "ridge", "--method", "log-ridge", "--seeds", "2", "--fold", "site02", "--fold", "site01"]
FLAGS += ["--set", "penalties=3", "--set", "least_penalty=1e-2", "--set", "audit.min_frames=30"]
FLAGS += ["--set", "protocol.validation_sites=1", "--runs-per-stack", "3", "--device", "cpu", "--quiet"]
FILE = """
cohort = "../cohort"
out = "job"
method = ["ridge", "log-ridge"]
seeds = 2
fold = ["site02", "site01"]
runs-per-stack = 3
device = "cpu"
quiet = true
[set]
penalties = 3
least_penalty = 0.01
[set.audit]
min_frames = 30
[set.protocol]
validation_sites = 1
"""
WHOLE = ("plan.json", "results.csv", "predictions.csv", "summary.json", "audit.json")


def read_whole(folder):
    parts = {name: (folder / name).read_text() for name in WHOLE}
    parts["runs"] = sorted(path.name for path in (folder / "runs").iterdir())
    return parts | {"results.csv": [line.split(",")[:6] for line in parts["results.csv"].splitlines()]}


def test_a_file_its_flags_and_the_plan_give_the_same_job(brio, here, monkeypatch):
    assert brio("run", "cohort", *FLAGS, "--out", "flags").status == 0
    wanted = read_whole(here / "flags")
    assert len(json.loads(wanted["plan.json"])["stacks"]) == 4, "the stacks are not those of the default"

    (here / "sub").mkdir()
    (here / "sub" / "study.toml").write_text(FILE)
    assert brio("run", "--config", "sub/study.toml").status == 0
    assert read_whole(here / "sub" / "job") == wanted, "paths are relative to the file"

    printed = brio("config", "run", "cohort", *FLAGS, "--out", "printed")
    (here / "printed.toml").write_text(printed.out)
    assert brio("run", "--config", "printed.toml").status == 0
    assert read_whole(here / "printed") == wanted

    (here / "again.toml").write_text(brio("config", "flags").out)
    assert brio("run", "cohort", "--config", "again.toml", "--out", "again", "--quiet").status == 0
    assert read_whole(here / "again") == wanted
    monkeypatch.chdir(here.parent)
    assert brio("config", "run", "--config", "here/again.toml").out == brio("config", "here/flags").out.replace(
        "\n# the job does not store this folder: give the folder of cohort 'simulated' (simulated), fingerprint "
        f"{json.loads(wanted['plan.json'])['fingerprint_before_exclusions'][:12]}",
        "",
    ).replace("\n# choose a folder other than here/flags, unless you want to resume the job there", "").replace(
        f"\n# to reproduce the numbers, set OMP_NUM_THREADS={json.loads(wanted['plan.json'])['threads']}", ""
    )


def test_a_search_is_repeated_from_its_folder(brio, here):
    words = ["cohort", "--method", "mlp", "--budget", "2", "--seeds", "1", "--fold", "site01", "--set", "epochs=2"]
    assert brio("tune", *words, "--set", "dropout=0.5", "--device", "cpu", "--quiet", "--out", "tuned").status == 0
    (here / "again.toml").write_text(brio("config", "tuned").out)
    assert brio("tune", "cohort", "--config", "again.toml", "--quiet", "--out", "again").status == 0
    assert read_whole(here / "again") == read_whole(here / "tuned")
    tuning = [json.loads((here / name / "tuning.json").read_text()) for name in ("tuned", "again")]
    assert tuning[0] == tuning[1]
    assert tuning[0]["given_settings"] == {"epochs": "2", "dropout": "0.5"}


def test_the_command_line_wins(brio, here):
    (here / "study.toml").write_text(FILE.replace("../cohort", "cohort"))
    words = ["--method", "svm", "--seeds", "1", "--set", "penalties=4", "--set", "audit.min_frames=20"]
    values = tomllib.loads(brio("config", "run", "--config", "study.toml", *words).out)
    assert (values["method"], values["seeds"], values["fold"]) == (["svm"], 1, ["site02", "site01"])
    filed = {"least_penalty": 0.01, "protocol": {"validation_sites": 1}}
    assert values["set"] == {"penalties": 4, "audit": {"min_frames": 20}, **filed}


@pytest.mark.parametrize("command", ["run", "tune", "study", "fit"])
def test_a_template_names_every_option(brio, command):
    said = brio("config", command).succeed()
    options = list_options(get_command(app).commands[command])
    keys = {line.removeprefix("# ").split(" =")[0] for line in said.out.splitlines() if " =" in line}
    assert keys >= options.keys() - {"set"}
    assert "config" not in keys
    assert set(tomllib.loads(said.out)) <= options.keys()
    kinds = find_kinds(get_command(app).commands[command])
    assert {kinds[param.name][0] for param in options.values()} <= {bool, int, float, str, Path}


TEXTS = ["", "a b", 'say "x"', "back\\slash", "two\nlines\ttab", "Zürich ✓", "\x00\x1f\x7f\x85", "# no = comment"]
NUMBERS = [0, -7, 10**20, 0.1, 1e-3, 1e-300, -2.5e22, float("inf"), True, False]


@pytest.mark.parametrize("value", [*TEXTS, *NUMBERS, TEXTS, NUMBERS])
def test_toml_is_read_as_it_was_written(value):
    back = tomllib.loads(f"x = {format_value(value)}")["x"]
    assert back == value
    assert type(back) is type(value)


def test_settings_are_read_as_they_were_written():
    settings = {"audit.min_frames": 60, "K": 4, "harmonise.covariates": "age,sex", "refit": True, "audit.min_class": 2}
    table = tomllib.loads("\n".join(format_settings(settings, "set")))["set"]
    assert table["audit"] == {"min_frames": 60, "min_class": 2}
    assert {name: read_value(text) for name, text in flatten_settings(table).items()} == settings
    assert [read_value(flatten_settings({"x": number})["x"]) for number in NUMBERS] == NUMBERS


@pytest.mark.parametrize(
    ("n_sites", "given"),
    [(5, {"dead_rois": "zero"}), (3, {})],
    ids=["methods with other defaults keep them", "few sites leave no validation sites, again"],
)
def test_recovered_options_give_the_plan_again(n_sites, given):
    """``dead_rois`` and ``choose_by`` differ between linear models: what was not given is not written."""
    cohort = simulate(Simulation(n_sites=n_sites, per_class=4, n_rois=8, frames=60))
    plan = build_plan(prepare_job(JobSpec(cohort, device="cpu", settings=given)), ["ridge", "log-ridge", "gcn"])
    assert plan.document.protocol_settings["validation_sites"] == (2 if n_sites == 5 else 0)
    options = recover_options(plan.document)
    assert n_sites == 3 or options["set"] == given
    again = build_plan(prepare_job(JobSpec(cohort, device="cpu", settings=options["set"])), options["method"])
    assert again.document == plan.document
    assert again.runs.keys() == plan.runs.keys()


@pytest.mark.parametrize(
    ("text", "words", "in_file"),
    [
        ('cohort = "missing"', ["missing"], False),  # an argument, equal to what the file has
        ('cohort = "missing"', [], True),
        ('cohort = "cohort"\nmethod = ["ridge"]', ["--set", "dead_rois=ridge"], False),
        ('cohort = "cohort"\nmethod = ["ridge"]\n[set]\ndead_rois = "ridge"', [], True),
        ('cohort = "cohort"\nmethod = ["ridge"]\nworkers = 2', [], True),
        ('cohort = "cohort"\nmethod = ["ridge"]', ["--workers", "2"], False),
        ('cohort = "cohort"\nmethod = ["ridge"]\nfold = ["site01"]', ["--method", "site01"], False),
        ('cohort = "cohort"\nmethod = ["ridge"]\nseeds = 100000', [], True),
        ('cohort = "cohort"\nmethod = ["ridge"]\nseeds = 1', ["--seeds", "2000"], False),
        ('cohort = "cohort"\nmethod = ["bryo"]', [], True),
        ('cohort = "cohort"\nmethod = ["ridge"]\n[set]\npenalties = inf', [], True),
        ('cohort = "cohort"\nmethod = ["ridge"]\nwith = ["gone"]', [], True),
    ],
)
def test_an_error_names_the_file_if_what_is_wrong_stands_there(brio, here, text, words, in_file):
    (here / "study.toml").write_text(text)
    said = brio("run", *words, "--config", "study.toml", "--out", "new").refuse()
    assert said.err.startswith("brio: study.toml: ") == in_file, said.err
    assert not (here / "new").exists()


@pytest.mark.parametrize("option", ["load", "slurm", "scheduler"])
def test_a_file_makes_no_command_execute_anything(brio, here, option):
    (here / "mine.py").write_text("open('executed', 'w')\n")
    value = '["mine.py"]' if option == "load" else '"mine.py"'
    (here / "study.toml").write_text(f'cohort = "cohort"\nengine = "dask"\n{option} = {value}\n')
    said = brio("run", "--config", "study.toml", "--out", "new").refuse()
    assert f"give --{option} on the command line" in said.err
    assert not (here / "executed").exists()
    assert f"\n{option} =" not in brio("config", "run", "cohort", "--load", "mine.py", "--out", "new").out


ODD = ["seeds = 1979-05-27", 'method = [["ridge"]]', "out = true", "seeds = 1\nseeds = 2", 'config = "study.toml"']
ODD += ["seeds = nan", "seeds = 1e300", "seeds = 1000000000000", '"" = 3']
ODD += [
    "[set.a.b.c]\nd = 1",
    "[set]\npenalties = [1, 2]",
    'with = ["a\\u0000b"]',
    f"method = {'[' * 5000}{']' * 5000}",
]


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:30])
def test_an_odd_file_is_refused_in_one_line_that_names_it(brio, here, text):
    (here / "study.toml").write_text(f"{text}\n")
    said = brio("run", "cohort", "--config", "study.toml", "--method", "ridge", "--out", "new")
    assert said.refuse_in_a_line().startswith("brio: study.toml: ")
    assert not (here / "new").exists()


def test_a_file_that_is_no_toml_is_refused_with_a_remedy_that_applies(tmp_path):
    path = tmp_path / "study.toml"
    for content, hint in ((b"label = age\n", True), (b"# \xff\n", False), (b"a = " + b"[" * 5000, False)):
        path.write_bytes(content)
        with pytest.raises(BrioError, match="'brio config COMMAND' prints a file to start from") as told:
            read_configuration(path)
        assert ("text needs quotes" in str(told.value)) == hint


MANY_KEYS = {
    "keys": "".join(f"key{k} = 1\n" for k in range(5_000)),
    "settings": "[set]\n" + "".join(f"k{k} = 1\n" for k in range(14_000)),
    "values": f"method = {[f'k{k}' for k in range(14_000)]}\n",
    "parts": ".".join(["a"] * 60_000) + " = 1\n",
    "parts of a table": "x = 1\n[" + ".".join(["a"] * 30_000) + "]\ny = 1\n",
    "parts inside": "x = [1, {'b'." + "a . " * 15_000 + "a = 1}]\n",
    "nothing but brackets": "[" * 130_000,
    "more settings than are read": "[set]\n" + "".join(f"key{k} = 1\n" for k in range(60_000)),
}


@pytest.mark.parametrize("option", ["--config", "--slurm"])
@pytest.mark.parametrize("text", MANY_KEYS.values(), ids=MANY_KEYS)
def test_a_file_of_thousands_of_keys_is_refused_at_once(brio, here, text, option):
    (here / "many.toml").write_text(text)
    words = ["--engine", "dask"] if option == "--slurm" else []
    importlib.import_module("brio.jobs.dask")  # not what is measured
    start = time.process_time()
    said = brio("run", "cohort", "--out", "new", *words, option, "many.toml").refuse_in_a_line()
    assert time.process_time() - start < 2
    assert "many.toml: " in said
    assert not (here / "new").exists()


def test_keys_of_some_parts_and_long_texts_are_read(tmp_path):
    text = 'prologue = ["' + "a." * 100 + '", \'{b.c}\']\n[set.protocol]\nvalidation_sites.x."y.z" = 1.5\n'
    (tmp_path / "few.toml").write_text(text)
    assert read_configuration(tmp_path / "few.toml") == tomllib.loads(text)
