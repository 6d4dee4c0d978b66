"""A method in a user's own file: the example of the documentation, and what goes wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import brio
from brio.errors import BrioError
from brio.methods import find_method, load_methods, registry
from commands import command

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_method.py"


@pytest.fixture(scope="module", autouse=True)
def forget_own_methods():
    """Take methods of the files that these tests load off the list, which other tests of the process read."""
    before = {entry.name for entry in registry._DECLARED.values() if entry.file}
    yield
    for entry in [entry for entry in registry._DECLARED.values() if entry.file and entry.name not in before]:
        sys.modules.pop(entry.module, None)
        for known in (registry._DECLARED, registry._CLASSES):
            known.pop(entry.name, None)


def call_brio(*words):
    """Give a command of brio in this process; it must end well."""
    said = command(*words)
    assert said.status == 0, said.text
    return said


def test_the_example_of_the_documentation_runs_and_is_tuned(tmp_path):
    cohort = brio.simulate(brio.Simulation(n_sites=5, per_class=6, n_rois=12, frames=60, stable=1.0))
    cohort.save(tmp_path / "cohort")
    options = ["--load", EXAMPLE, "--set", "epochs=12", "--set", "learning_rate=0.01", "--device", "cpu", "--quiet"]
    assert "gated-profiles" in call_brio("run", tmp_path / "cohort", *options, "--out", tmp_path / "o").out
    tune = ["tune", tmp_path / "cohort", "--method", "gated-profiles", *options, "--budget", "2"]
    call_brio(*tune, "--seeds", "1", "--fold", "site01", "--out", tmp_path / "t")
    assert (tmp_path / "t" / "tuning.json").is_file()


def test_a_command_says_that_it_executes_a_file():
    said = command("methods", "--json", "--load", EXAMPLE)
    assert said.status == 0
    assert said.err == f"brio: --load executes {EXAMPLE}\n"
    assert "gated-profiles" in [one["name"] for one in json.loads(said.out)]
    assert "executed with all your rights" in " ".join(command("run", "--help").out.replace("│", " ").split())


def test_a_file_is_loaded_once_and_named_by_its_methods():
    assert load_methods(EXAMPLE) == load_methods(EXAMPLE) == ["gated-profiles"]
    assert find_method("gated-profiles").family == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "registers no method"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError"),
        ("raise SystemExit('bye')\n", "SystemExit: bye"),
        (
            "from brio.methods import Ridge, method\n"
            "@method('ridge', family='x', provenance='y', reference='z')\nclass A(Ridge): pass\n",
            "'ridge' is registered twice",
        ),
        (
            "from brio.methods import Ridge, method\n"
            "@method('new', family='x', provenance='y', reference='z', needs='blood')\nclass A(Ridge): pass\n",
            "need 'blood' is unknown",
        ),
        (
            "from brio.methods import method\nfrom brio.training import Method\n"
            "@method('new', family='x', provenance='y', reference='z')\nclass A(Method): pass\n",
            "does not define fit, predict",
        ),
        (
            "from brio.authoring import NeuralMethod, method\n"
            "@method('new', family='x', provenance='y', reference='z')\nclass A(NeuralMethod):\n"
            "    def network(self, shape): ...\n",
            "does not define loss",
        ),
        (
            "from brio.methods import Ridge, method\n"
            "@method('new', family='x', provenance='y', reference='z')\nclass A(Ridge): pass\n1 / 0\n",
            "ZeroDivisionError: division by zero",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, text, message):
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(BrioError, match=message) as caught:
        load_methods(file)
    assert str(file) in str(caught.value)
    with pytest.raises(BrioError, match="no such file"):
        load_methods(tmp_path / "none.py")
    with pytest.raises(BrioError, match="method 'new' is unknown"):  # nothing of the file stays
        find_method("new")


def test_a_file_without_the_ending_of_python(tmp_path):
    (tmp_path / "mine.txt").write_text("x = 1\n")
    with pytest.raises(BrioError, match=r"mine.txt: its name must end in \.py"):
        load_methods(tmp_path / "mine.txt")


@pytest.fixture(scope="module")
def short_job(tmp_path_factory):
    """A cohort, and the options of a short job with the method of a file."""
    folder = tmp_path_factory.mktemp("own")
    brio.simulate(brio.Simulation(n_sites=5, per_class=3, n_rois=8, frames=60)).save(folder / "cohort")
    return folder / "cohort", ["--set", "epochs=2", "--device", "cpu", "--quiet", "--fold", "site01"]


@pytest.mark.parametrize(
    ("loss", "problem"),
    [
        ("return out.logit", r"wrong.py, method '.*': RuntimeError: .*its loss is not one number"),
        ("1 / 0", r"wrong.py, line \d+, method '.*': ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_in_training_names_the_file(loss, problem, tmp_path, short_job):
    cohort, options = short_job
    text = EXAMPLE.read_text().replace("gated-profiles", f"profiles-{len(loss)}")
    assert "return authoring.classification_loss(out.logit, batch)" in text
    (tmp_path / "wrong.py").write_text(text.replace("return authoring.classification_loss(out.logit, batch)", loss))
    said = command("run", cohort, "--load", tmp_path / "wrong.py", *options, "--out", tmp_path / "o")
    assert said.status == 2
    assert re.search(problem, said.err), said.err


def test_the_configuration_of_a_job_names_the_file_it_needs(tmp_path, short_job, monkeypatch):
    cohort, options = short_job
    call_brio("run", cohort, "--load", EXAMPLE, *options, "--out", tmp_path / "o")
    assert (
        "some are your own: give their file with --load on the command line" in call_brio("config", tmp_path / "o").out
    )
    monkeypatch.delitem(registry._DECLARED, "gated-profiles")
    said = command("config", tmp_path / "o")
    assert said.status == 2
    assert f"load its file: brio config --load FILE.py {tmp_path / 'o'}" in said.err


@pytest.mark.soak  # three processes, each of which imports torch
def test_runs_of_a_changed_file_are_not_taken_for_those_of_the_old_one(tmp_path):
    brio.simulate(brio.Simulation(n_sites=5, per_class=5, n_rois=12, frames=60)).save(tmp_path / "cohort")
    file = tmp_path / "mine.py"
    options = ["--load", file, "--set", "epochs=2", "--device", "cpu", "--quiet", "--fold", "site01"]
    run = list(map(str, [sys.executable, "-m", "brio", "run", tmp_path / "cohort", *options, "--out", tmp_path / "o"]))
    text = EXAMPLE.read_text()
    file.write_text(text)
    subprocess.run(run, capture_output=True, check=True)
    file.write_text(text.replace("return authoring.", "return 2 * authoring."))
    again = subprocess.run(run, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "belongs to another job: the file of method gated-profiles has changed since" in again.stderr


def test_a_model_of_a_method_that_declares_no_state_is_read_again(tmp_path, short_job):
    cohort, _ = short_job
    text = EXAMPLE.read_text().replace("gated-profiles", "scaled-profiles")
    text += """
    def update_inference_state(self, stack):
        stack.state = stack.state._replace(inference={"scale": torch.ones(len(stack.runs), 3)})
"""
    (tmp_path / "scaled.py").write_text(text if "import torch\n" in text else "import torch\n" + text)
    words = ["--load", tmp_path / "scaled.py", "--method", "scaled-profiles", "--set", "epochs=2", "--quiet"]
    said = command("fit", cohort, *words, "--out", tmp_path / "model")
    assert said.status == 0, said.err
    said = command("predict", tmp_path / "model", cohort, "--load", tmp_path / "scaled.py", "--out", tmp_path / "p")
    assert said.status == 0, said.err
