"""Nobody waits for torch who asks for help, lists something, or gives a command that is refused."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import brio

LAZY_PACKAGES = ["brio", "brio.connectome", "brio.methods", "brio.models"]

RUN = ["run", "COHORT", "--out", "NEW"]
COMMANDS = [
    (["--help"], 0, "Usage"),
    (["run", "--help"], 0, "Usage"),
    (["--version"], 0, brio.__version__),
    (["version"], 0, brio.__version__),
    (["methods"], 0, "log-ridge"),
    (["methods", "brio"], 0, "lambda_env"),
    (["methods", "--json"], 0, '"name": "ridge"'),
    (["studies"], 0, "ablation"),
    (["run", "MISSING", "--out", "NEW"], 2, "not a cohort folder"),
    ([*RUN, "--method", "rigde"], 2, "did you mean 'ridge'?"),
    ([*RUN, "--method", "ridge", "--set", "penaltys=1"], 2, "did you mean 'penalties'?"),
    ([*RUN, "--method", "ridge", "--set", "harmonise.kin=combat"], 2, "did you mean 'harmonise.kind'?"),
    ([*RUN, "--method", "ridge", "--fold", "site9"], 2, "The folds are site01, site02, site03, site04, site05."),
    ([*RUN, "--method", "ridge", "--protocol", "kfold", "--fold", "site01"], 2, "known: 1, 10, 2"),
    ([*RUN, "--method", "ridge", "--device", "gpu"], 2, "device 'gpu' is unknown"),
    (["run", "COHORT", "--method", "ridge", "--out", "USED"], 2, "choose another --out"),
    (["tune", "COHORT", "--method", "rigde", "--out", "NEW"], 2, "did you mean 'ridge'?"),
    (["study", "ablatoin", "COHORT", "--out", "NEW"], 2, "study 'ablatoin' is unknown"),
    (["study", "ablation", "MISSING", "--out", "NEW"], 2, "not a cohort folder"),
    (["fit", "COHORT", "--method", "ridge", "--set", "penaltys=1", "--out", "NEW"], 2, "did you mean 'penalties'?"),
    (["fit", "MISSING", "--method", "ridge", "--out", "NEW"], 2, "not a cohort folder"),
    (["fit", "COHORT", "--method", "ridge", "--out", "USED"], 2, "exists"),
    (["predict", "MISSING", "COHORT", "--out", "NEW"], 2, "is not a model"),
    (["adapt", "MISSING", "COHORT", "--out", "NEW"], 2, "is not a model"),
    (["explain", "MISSING", "--out", "NEW"], 2, "is not a model"),
    (
        [*RUN, "--method", "ridge", "--engine", "dask"],
        2,
        "needs exactly one of --workers N, --scheduler ADDRESS and --slurm",
    ),
    ([*RUN, "--method", "ridge", "--shard", "3/2"], 2, "such as 2/8"),
    (["status", "MISSING"], 2, "this folder does not exist"),
    (["table", "MISSING"], 2, "this folder does not exist"),
    (["audit", "MISSING"], 2, "not a cohort folder"),
    (["import", "table", "MISSING", "--out", "NEW"], 2, "no such folder"),
    (["federate", "start", "--out", "NEW", "--rois", "MISSING", "--classes", "a,b", "--sites", "4"], 2, "missing"),
    (
        ["federate", "start", "--out", "NEW", "--rois", "COHORT", "--classes", "a,b", "--sites", "4", "--method", "x"],
        2,
        "method is 'x'",
    ),
    (["federate", "start", "--out", "USED", "--rois", "COHORT", "--classes", "a,b", "--sites", "4"], 2, "exists"),
    (["federate", "answer", "MISSING", "COHORT"], 2, "cannot be read"),
    (["federate", "combine", "MISSING"], 2, "contains no request"),
    (["federate", "show", "MISSING"], 2, "cannot be read"),
]

SCRIPT = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from commands import command
answers = []
for words in json.loads(sys.argv[1]):
    said = command(*words)
    heavy = ("torch", "scipy.stats", "sklearn", "nilearn", "dask", "distributed")
    answers.append([said.status, said.text, sorted(name for name in heavy if name in sys.modules)])
print(json.dumps(answers))
"""


def run_fresh(code: str, *words: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_lists_and_refusals_import_no_torch(made, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "letter.txt").write_text("mine")
    places = {"COHORT": made / "cohort", "USED": "used", "NEW": "new", "MISSING": "missing"}
    commands = [[str(tmp_path / places[w]) if w in places else w for w in words] for words, _, _ in COMMANDS]
    answers = json.loads(run_fresh(SCRIPT, json.dumps(commands)))
    for (words, status, said), answer in zip(COMMANDS, answers, strict=True):
        assert answer[2] == [], f"brio {' '.join(words)} imports {', '.join(answer[2])}"
        assert answer[0] == status, f"brio {' '.join(words)}: {answer[1]}"
        assert said in " ".join(answer[1].split()), f"brio {' '.join(words)}: {answer[1]}"
    assert not (tmp_path / "new").exists()


def test_packages_and_the_faces_are_imported_without_torch():
    light = [
        "brio",
        "brio.api",
        "brio.cohort.readers",
        "brio.protocol",
        "brio.federation",
        "brio.report",
        "brio.studies",
        *LAZY_PACKAGES,
    ]
    heavy = {"torch", "scipy.stats", "sklearn", "dask", "distributed"}
    code = f"import sys, {', '.join(light)}; print(sorted({heavy} & set(sys.modules)))"
    assert run_fresh(code).strip() == "[]"


@pytest.mark.soak  # two interpreters that import torch
def test_methods_of_brio_that_an_own_file_is_the_first_to_import_stay_methods_of_brio(tmp_path):
    head = "from brio.methods import method\nfrom brio.methods.gnn import GIN\n"
    decorator = "@method('mine', family='own', reference='none', provenance='own')\n"
    (tmp_path / "own.py").write_text(f"{head}{decorator}class Mine(GIN):\n    'Mine.'\n")
    (tmp_path / "broken.py").write_text(f"{head}1 / 0\n")
    code = (
        "import sys; from brio.methods import find_method, load_methods, make_method\n"
        "try: load_methods(sys.argv[1])\n"
        "except ValueError: print(make_method('gin').name)\n"
        "load_methods(sys.argv[2]); print([bool(find_method(name).file) for name in ('gin', 'gcn', 'mine')])"
    )
    said = run_fresh(code, str(tmp_path / "broken.py"), str(tmp_path / "own.py"))
    assert said.split("\n")[:2] == ["gin", "[False, False, True]"]


@pytest.mark.parametrize("name", LAZY_PACKAGES)
def test_a_lazy_package_exports_what_type_checkers_and_readers_see(name):
    package = importlib.import_module(name)
    tree = ast.parse(Path(package.__file__).read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If) and node.test.id == "TYPE_CHECKING")
    seen = {alias.name: node.module for node in checked.body for alias in node.names}
    assert seen.keys() <= set(package.__all__)
    assert set(dir(package)) == set(package.__all__)
    for attribute in package.__all__:
        assert getattr(package, attribute) is not None
    for attribute, module in seen.items():
        assert getattr(package, attribute) is getattr(importlib.import_module(f"{name}.{module}"), attribute)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing
