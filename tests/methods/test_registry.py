"""Methods by name and by file: what a name fixes, the example of the documentation, and what a wrong one says."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import brio
from brio.errors import BrioError
from brio.methods import Ridge, find_method, list_methods, load_methods, make_method, registry, variant
from brio.methods.brio import BrioSettings
from brio.methods.catalogue import describe_classes
from brio.methods.registry import BLOCKS, CATALOGUE, Provenance, rank_block
from commands import command


@pytest.mark.parametrize("part", ["RS", "TR", "SM", "SF", "QG"])
def test_names_fix_the_ablations(part):
    full, ablated = make_method("brio").settings, make_method(f"brio-wo-{part.lower()}").settings
    assert (full.variant, ablated.variant) == ("full", f"w/o {part}")
    assert ablated.lambda_env == full.lambda_env > make_method("backbone").settings.lambda_env == 0


def test_the_values_the_paper_gives_are_the_defaults():
    s = BrioSettings()
    assert (s.layers, s.d_h, s.d_e, s.J, s.d_t, s.d_qk, s.d_mlp) == (2, 64, 16, 4, 16, 32, 32)
    assert (s.temperature, s.assignment_iterations, s.rho_g) == (0.10, 60, 0.20)
    assert (s.learning_rate, s.weight_decay) == (3e-4, 1e-4)
    rule = s.block_rule
    assert (rule.subjects, rule.signals, rule.products) == (128, 24, 48)
    assert (rule.tau_ac, rule.largest_lag, rule.quantile, rule.l_min, rule.l_max) == (0.10, 30, 0.75, 2, 30)


def test_settings_are_read_by_type_and_what_a_name_fixes_cannot_be_set():
    made = make_method("brio", {"K": "3", "patience": "none", "mlp_bias": "false", "lambda_env": "0.25"})
    assert (made.settings.K, made.settings.patience, made.settings.mlp_bias) == (3, None, False)
    assert made.settings.lambda_env == 0.25
    with pytest.raises(BrioError, match="fixes 'lambda_env'"):
        make_method("backbone", {"lambda_env": 1.0})
    with pytest.raises(BrioError, match="epochs"):
        make_method("brio", {"epoch": 3})
    with pytest.raises(BrioError, match="heads"):  # which must divide the width
        make_method("gat", {"heads": 3})
    with pytest.raises(BrioError, match="brio"):
        make_method("bio")


def test_every_method_stands_in_one_block_of_the_tables():
    own = [e for e in list_methods() if not e.file]  # another test may have loaded a file of methods
    blocks = {block: [e.name for e in own if e.block == block] for block in BLOCKS}
    assert blocks["our reading"] == ["core-scaffold", "cepg", "disco", "agmgc", "core"]
    assert blocks["redesign"] == ["fc-hgnn"]
    assert blocks["controls"] == ["covariates-only", "length-only", "dead-rois-only"]
    assert blocks["linear"] == ["ridge", "logistic", "svm", "tangent-ridge", "fc-tangent-ridge", "log-ridge"]
    assert {"mlp", "gcn", "coral", "gsat", "disc", "brainood", "deci", "xg-gnn", "xg-gnn-published"} <= set(
        blocks["published code or equations"]
    )
    assert blocks["other methods"] == []
    mine = dataclasses.replace(find_method("mlp"), provenance=Provenance("a talk of mine"), family="mine")
    assert mine.block == "other methods"
    assert rank_block("of another version") == len(BLOCKS)


def test_a_variant_may_have_a_provenance_of_its_own():
    assert find_method("brainood-kl").provenance == find_method("brainood").provenance
    assert find_method("xg-gnn-published").provenance != find_method("xg-gnn").provenance
    assert make_method("xg-gnn-published").settings.published
    with pytest.raises(BrioError, match="fixes 'published'"):
        make_method("xg-gnn-published", {"published": False})


def test_a_variant_of_a_class_without_a_name_is_refused():
    class Nameless(Ridge):
        """Inherits the name of its parent."""

    with pytest.raises(BrioError, match="class Nameless is not registered"):
        variant("nameless-2", Nameless, "never", penalties=3)


def test_the_catalogue_says_what_the_classes_say():
    stored = json.loads(CATALOGUE.read_text("utf-8"))
    assert stored == describe_classes(), "run: python -m brio.methods.catalogue"
    assert [facts["name"] for facts in stored] == [e.name for e in list_methods() if not e.file][: len(stored)]
    for facts in stored:
        entry, made = find_method(facts["name"]), make_method(facts["name"])
        assert entry.settings == dataclasses.asdict(made.settings), "tuples stay tuples"
        assert entry.method_class is type(made)


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
    brio.simulate(brio.Simulation(n_sites=4, per_class=3, n_rois=8, frames=60)).save(tmp_path / "cohort")
    options = ["--load", EXAMPLE, "--set", "epochs=2", "--set", "learning_rate=0.01", "--device", "cpu", "--quiet"]
    assert "gated-profiles" in call_brio("run", tmp_path / "cohort", *options, "--out", tmp_path / "o").out
    tune = ["tune", tmp_path / "cohort", "--method", "gated-profiles", *options, "--budget", "2"]
    call_brio(*tune, "--seeds", "1", "--fold", "site01", "--out", tmp_path / "t")
    assert (tmp_path / "t" / "tuning.json").is_file()


def test_a_command_says_that_it_executes_a_file():
    said = call_brio("methods", "--json", "--load", EXAMPLE)
    assert said.err == f"brio: --load executes the file {EXAMPLE}\n"
    assert "gated-profiles" in [one["name"] for one in json.loads(said.out)]
    assert "executed with all your permissions" in " ".join(command("run", "--help").out.replace("│", " ").split())


def test_a_file_is_loaded_once_and_named_by_its_methods():
    assert load_methods(EXAMPLE) == load_methods(EXAMPLE) == ["gated-profiles"]
    assert find_method("gated-profiles").family == "mine"


OWN = "from brio.authoring import Method, NeuralMethod, method\nfrom brio.methods import Ridge\n"
NEW = OWN + "@method('new', family='x', provenance='y', reference='z'{})\nclass A({}): {}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "registers no method"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError"),
        ("raise SystemExit('bye')\n", "SystemExit: bye"),
        (NEW.format("", "Ridge", "pass").replace("'new'", "'ridge'"), "'ridge' is registered twice"),
        (NEW.format(", needs='blood'", "Ridge", "pass"), "need 'blood' is unknown"),
        (NEW.format("", "Method", "pass"), "does not define fit, predict"),
        (NEW.format("", "NeuralMethod", "network = None"), "does not define loss"),
        (NEW.format("", "Ridge", "pass") + "1 / 0\n", "ZeroDivisionError: division by zero"),
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
    with pytest.raises(BrioError, match=r"mine.txt: the file name must end in \.py"):
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
        (
            "return out.logit",
            r"wrong.py, method '.*': RuntimeError: .*its loss must be a single number, but has shape",
        ),
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
        "some methods are your own: give their file with --load on the command line"
        in call_brio("config", tmp_path / "o").out
    )
    monkeypatch.delitem(registry._DECLARED, "gated-profiles")
    said = command("config", tmp_path / "o")
    assert said.status == 2
    assert f"is your own method; give its file: brio config --load FILE.py {tmp_path / 'o'}" in said.err


@pytest.mark.soak  # three processes, each of which imports torch
def test_runs_of_a_changed_file_are_not_taken_for_those_of_the_old_one(tmp_path, short_job):
    file, (cohort, options) = tmp_path / "mine.py", short_job
    options = ["--load", file, *options, "--out", tmp_path / "o"]
    run = list(map(str, [sys.executable, "-m", "brio", "run", cohort, *options]))
    text = EXAMPLE.read_text()
    file.write_text(text)
    subprocess.run(run, capture_output=True, check=True)
    file.write_text(text.replace("return authoring.", "return 2 * authoring."))
    again = subprocess.run(run, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "belongs to another job (hash of the file of method gated-profiles: " in again.stderr


def test_a_model_of_a_method_that_declares_no_state_is_read_again(tmp_path, short_job):
    cohort, _ = short_job
    text = EXAMPLE.read_text().replace("gated-profiles", "scaled-profiles")
    text += """
    def update_inference_state(self, stack):
        stack.state = stack.state._replace(inference={"scale": torch.ones(len(stack.runs), 3)})
"""
    (tmp_path / "scaled.py").write_text(text if "import torch\n" in text else "import torch\n" + text)
    words = ["--load", tmp_path / "scaled.py", "--method", "scaled-profiles", "--set", "epochs=2", "--quiet"]
    call_brio("fit", cohort, *words, "--out", tmp_path / "model")
    call_brio("predict", tmp_path / "model", cohort, "--load", tmp_path / "scaled.py", "--out", tmp_path / "p")
