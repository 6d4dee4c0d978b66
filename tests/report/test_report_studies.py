"""A folder of studies: its arms, its texts and figures, and the commands that repeat it."""

import json
import re
import shlex
import shutil
import subprocess
from functools import partial
from unittest import mock

import pandas as pd
import pytest
from pages import read_section

from brio import run, tune
from brio.cohort.simulate import Simulation, simulate
from brio.jobs import JobSpec
from brio.methods import load_methods, registry
from brio.report.evidence import read_evidence
from brio.report.repeat import wrap_command
from brio.report.write import write_report
from brio.results import StoredStudy, StudyOptions, StudyRecord
from brio.studies import StudyContext, run_study
from brio.studies.study import PAPER
from commands import command
from doctored import change_json
from stored import rehash

TWO_SEEDS = {"seeds": 2, "folds": ["site02", "site04"]}
QUICK = {"seeds": 1, "runs_per_stack": 2, "folds": ["site01", "site02"]}
STUDIES = ["comparison", "agreement"]
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("cohorts") / "small"
    return simulate(Simulation(n_sites=5, per_class=5, n_rois=8, frames=60)).save(path)


@pytest.fixture(scope="module")
def studies(small, tmp_path_factory):
    """Three arms that compete, one with other settings, one in distribution, one unfinished, and two studies."""
    folder = tmp_path_factory.mktemp("studies") / "paper"
    for protocol, name, method, settings in (
        ("loso", "ridge", "ridge", {}),
        ("loso", "logistic", "logistic", {}),
        ("loso", "covariates-only", "covariates-only", {}),
        ("loso", "mlp,epochs=2", "mlp", {"epochs": 2}),
        ("kfold", "ridge", "ridge", {"protocol.n_folds": 5, "protocol.validation_folds": 1}),
    ):
        place = folder / "arms" / protocol / name
        run(small, [method], protocol=protocol, seeds=3, out=place, settings=settings, device="cpu")
    (folder / "arms" / "loso" / "gcn").mkdir()
    found = "Found **little** <script>window.pwned=1</script>."
    rows, own = pd.DataFrame({"arm": ["<u>a</u>"] * 40, "auc": 0.123456}), "\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    for name, title in (("sensitivity", "Settings"), ("ablation", "Parts & <pieces>")):
        record = StudyRecord(name=name, title=title, paper="all <b>parts</b> help", arms=("ridge", "core"))
        text = "\n\n".join(record.frame([found])) + "\n" + (own if name == "ablation" else "")
        StoredStudy(folder / "studies" / name, record, text, rows).write(figures={"figure.svg": SVG.encode()})
    return folder


@pytest.fixture(scope="module")
def reused(small, tmp_path_factory):
    """A study whose arms were all run elsewhere: one job stored predictions, one its rows only."""
    place = tmp_path_factory.mktemp("elsewhere")
    run(small, ["ridge", "covariates-only"], seeds=3, out=place / "linear", device="cpu")
    tune(small, ["gcn"], seeds=3, budget=2, out=place / "tuned", settings={"epochs": 2}, device="cpu")
    for unwanted in ("predictions.csv", "plan.json", "audit.json"):
        (place / "tuned" / unwanted).unlink()
    rehash(place / "tuned")
    spec = JobSpec(small, methods=["ridge", "covariates-only", "gcn"], seeds=3, device="cpu")
    with mock.patch("brio.studies.study.render_figure", return_value=SVG.encode()):
        run_study("comparison", StudyContext(spec, place / "out", reuse=[place / "linear", place / "tuned"]))
    return place / "out"


def test_a_report_shows_reused_results(reused):
    evidence = read_evidence(reused)
    assert {arm.name for arm in evidence.main} == {"ridge", "covariates-only", "gcn"}
    assert evidence.elsewhere == []
    text = write_report(reused).read_text(encoding="utf-8")
    assert "no method that uses connectomes has an AUC" not in text
    assert "The highest mean AUC of 2 methods" in text
    assert "best of 2 configurations" in text
    assert "REUSED is the folder with" in text
    assert {arm.name for arm in evidence.main if arm.roc} == {"ridge", "covariates-only"}
    (line, _) = evidence.commands
    assert [w for w in shlex.split(line) if w.startswith("REUSED")] == [
        f"REUSED/{reused.parent.name}/{name}" for name in ("linear", "tuned")
    ]
    assert "--set" not in line, "settings of reused results are not those of the study"


def test_what_was_trained_here_comes_before_what_is_reused(reused, small, tmp_path):
    copy = shutil.copytree(reused, tmp_path / "copy")
    run(small, ["ridge"], seeds=1, out=copy / "arms" / "loso" / "ridge", device="cpu")
    (ridge,) = [arm for arm in read_evidence(copy).arms if arm.name == "ridge"]
    assert ridge.job.folder == copy / "arms" / "loso" / "ridge"


@pytest.fixture(scope="module")
def text(studies):
    return write_report(studies).read_text(encoding="utf-8")


def test_arms_are_told_apart(studies):
    evidence = read_evidence(studies)
    assert {a.name for a in evidence.main} == {"ridge", "logistic", "covariates-only"}
    assert [a.name for a in evidence.varied] == ["mlp,epochs=2"]
    assert evidence.protocol == "loso"
    assert evidence.unfinished == ["loso/gcn"]
    assert evidence.elsewhere == ["core"]
    assert [s.name for s in evidence.studies] == ["ablation", "sensitivity"], "in the order of the paper"


def test_the_verdict_is_about_the_methods_as_they_come(text):
    section = read_section(text, "verdict")
    assert "of 2 methods" in section
    assert "loso/gcn" in section
    assert "other folders: core" in section


def test_other_settings_and_other_protocols_have_tables_of_their_own(text):
    tables = dict(re.findall(r'<table class="sortable results" id="([^"]+)">(.*?)</table>', text, re.S))
    names = {key: re.findall(r'<tr data-method="([^"]+)"', body) for key, body in tables.items()}
    assert set(names["results-table"]) == {"ridge", "logistic", "covariates-only"}
    assert names["varied-table"] == ["mlp,epochs=2"]
    assert names["others-table"] == ["ridge"]


def test_studies_show_figure_text_and_a_small_table(text):
    section = read_section(text, "studies")
    assert section.count('<img src="data:image/svg+xml;base64,') == 2
    assert "Found <strong>little</strong> &lt;script&gt;" in section
    assert "Parts &amp; &lt;pieces&gt;" in section
    assert "all &lt;b&gt;parts&lt;/b&gt; help" in section
    assert "The paper: " not in section, "it stands beside the text"
    assert section.count("<table") == 2, "the text's own, or the first rows of the csv"
    assert section.count("&lt;u&gt;a&lt;/u&gt;") == 30
    assert section.count(">0.123<") == 30, "three digits, as in every table of a study"
    assert "Full table (40 rows): studies/ablation/table.csv" in section


def test_arms_with_settings_of_their_own_are_ranked_where_there_are_no_others(studies, small, tmp_path):
    """A study may have such arms only; the verdict names the method of the table below it."""
    place = tmp_path / "study" / "arms" / "loso" / "ridge,choose_by=source-sites"
    run(small, ["ridge"], out=place, seeds=3, settings={"choose_by": "source-sites"}, device="cpu")
    evidence = read_evidence(tmp_path / "study")
    assert [arm.plain for arm in evidence.main] == [False]
    text = write_report(tmp_path / "study").read_text(encoding="utf-8")
    mean = 100 * evidence.main[0].summary.auc.mean
    assert "ridge regression, choose_by=source-sites" in text
    assert f"<b>{mean:.0f}%</b>" in text
    assert "no method that uses connectomes has an AUC" not in text
    assert "compare it with at least one linear method" not in text


def test_studies_alone_make_a_report(studies, tmp_path):
    place = tmp_path / "alone" / "studies"
    place.parent.mkdir()
    place.symlink_to(studies / "studies")
    text = write_report(tmp_path / "alone", tmp_path / "r.html").read_text(encoding="utf-8")
    assert "no method that uses connectomes has an AUC" in text
    assert "brio study ablation COHORT --seeds 3 --out DIR" in text


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (["ridge"], {"protocol": "kfold", "settings": {"protocol.n_folds": 5, "protocol.validation_folds": 1}}),
        (["mlp", "ridge"], {"settings": {"epochs": 2, "patience": None, "learning_rate": 0.00123}, **TWO_SEEDS}),
        (["ridge"], {"exclude": False, "settings": {"harmonise.kind": "combat", "harmonise.unseen": "pooled"}}),
    ],
)
def test_the_command_makes_the_same_runs(small, tmp_path, methods, words):
    run(small, methods, out=tmp_path / "first", device="cpu", **words)
    again(small, tmp_path)
    plans = [json.loads((tmp_path / name / "plan.json").read_text()) for name in ("first", "again")]
    assert plans[0] == plans[1]


def again(cohort, place):
    """Execute the commands of the report of ``first``, with ``again`` as their folder."""
    *commands, report = read_evidence(place / "first").commands
    assert report == "brio report DIR"
    places = {"COHORT": str(cohort.path), "DIR": str(place / "again")}
    for line in commands:
        words = [places.get(w, w).replace("REUSED", str(place.parent)) for w in shlex.split(line)]
        said = command(*words[1:], "--quiet")
        assert said.status == 0, said.text


@pytest.mark.parametrize(
    ("names", "words", "elsewhere"),
    [
        (["comparison"], {**QUICK, "settings": {"epochs": "1", "audit.min_frames": "30"}}, ["ridge"]),
        *(
            pytest.param(STUDIES, {"settings": {"epochs": "1"}, **words}, elsewhere, marks=pytest.mark.soak)
            for words, elsewhere in (
                ({"settings": {"epochs": "2", "protocol.validation_sites": "1"}, "folds": ["site02"]}, []),
                ({"exclude": False, "seeds": 2, "folds": ["site01", "site02"]}, ["ridge", "mlp"]),
                ({"exclude": False}, ["ridge", "mlp"]),
            )
        ),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_the_command_of_a_study_makes_it_again(small, tmp_path, names, words, elsewhere):
    """Also where arms of some or of all methods were run elsewhere."""
    words = {"seeds": 3, "device": "cpu"} | words
    finished = [tmp_path / f"of {name}" for name in elsewhere]
    for name, folder in zip(elsewhere, finished, strict=True):
        own = {k: v for k, v in words["settings"].items() if k != "epochs" or name == "mlp"}
        run(small, [name], out=folder, **words | {"settings": own})
    first = StudyContext(JobSpec(small, methods=["ridge", "mlp"], **words), tmp_path / "first", reuse=finished)
    for name in names:
        run_study(name, first)
    again(small, tmp_path)
    for name in names:
        one, other = (tmp_path / at / "studies" / name for at in ("first", "again"))
        tables = [pd.read_csv(at / "table.csv") for at in (one, other)]
        if name == "agreement":  # float32 predictions of re-estimates once differed in their last digit
            pd.testing.assert_series_equal(*(table.pop("D_re_pred") for table in tables), rtol=1e-6)
        pd.testing.assert_frame_equal(*tables, check_exact=True)
        assert (one / "study.json").read_bytes() == (other / "study.json").read_bytes()


def test_all_studies_of_the_paper_are_one_command(tmp_path):
    def ask(**others):
        for name in PAPER:
            options = StudyOptions(**{"seeds": 2, "device": "cuda-tf32"} | others.get(name, {}))
            record = StudyRecord(name=name, options=options)
            StoredStudy(tmp_path / "out" / "studies" / name, record, "# Found\n", None).write()
        return read_evidence(tmp_path / "out").commands

    rest = "--seeds 2 --device cuda-tf32 --out DIR"
    assert ask() == [f"brio study paper COHORT {rest}", "brio report DIR"]
    each = ask(agreement={"methods": ("irm", "my own")})
    assert len(each) == 13
    assert f"brio study agreement COHORT --method irm --method 'my own' {rest}" in each
    each = ask(retention={"seeds": 3})
    assert f"brio study retention COHORT {rest.replace('2', '3', 1)}" in each
    assert f"brio study regions COHORT {rest}" in each


@pytest.mark.usefixtures("undrawn")
def test_the_command_says_that_a_method_is_of_the_users_own(small, tmp_path, request):
    file = tmp_path / "mine.py"
    file.write_text(
        "from brio.methods import method\nfrom brio.methods.linear.ridge import Ridge\n"
        '@method("mine", family="linear", provenance="ours", reference="")\n'
        'class Mine(Ridge):\n    """Ridge again."""\n'
    )
    load_methods(file)
    for known in (registry._DECLARED, registry._CLASSES):
        request.addfinalizer(partial(known.pop, "mine"))
    words = {"seeds": 1, "device": "cpu", "folds": ["site01"]}
    run_study("comparison", StudyContext(JobSpec(small, methods=["mine", "ridge"], **words), tmp_path / "study"))
    run(small, ["mine"], out=tmp_path / "run", **words)
    run(small, ["ridge"], out=tmp_path / "usual", **words)
    commands = {name: read_evidence(tmp_path / name).commands[0] for name in ("study", "run", "usual")}
    assert [name for name, line in commands.items() if "--load METHODS.py" in line] == ["study", "run"]
    assert "METHODS.py is the file with your own methods" in write_report(tmp_path / "study").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("width", [1, 30, 70, 1000])
def test_a_command_over_several_lines_is_the_same_to_a_shell(width):
    words = ["brio", "study", "paper", "COHORT", "--seeds", "3", *(["--reuse", "REUSED/it's/my own"] * 5)]
    wrapped = wrap_command(shlex.join(words), width)
    assert wrapped.count("\n") == {1: 6, 30: 6, 70: 2, 1000: 0}[width]
    shell = subprocess.run(["sh", "-c", f"printf '%s|' {wrapped}"], capture_output=True, text=True, check=True)
    assert shell.stdout.split("|") == [*words, ""]


@pytest.mark.usefixtures("undrawn")
def test_the_command_tells_where_arms_were_trained(small, tmp_path):
    """A folder that came from a GPU and is read here."""
    context = StudyContext(JobSpec(small, methods=["ridge"], device="cpu", folds=["site01"]), tmp_path / "out")
    run_study("comparison", context)
    change_json(tmp_path / "out/arms/loso/ridge/plan.json", lambda plan: plan.update(device="cuda-tf32"))
    run_study("comparison", context)
    assert "--device cuda-tf32" in read_evidence(tmp_path / "out").commands[0]


def test_the_command_of_a_search(small, tmp_path):
    tune(small, ["mlp"], out=tmp_path / "tuned", budget=2, seeds=1, settings={"epochs": 2}, device="cpu")
    line, rest = read_evidence(tmp_path / "tuned").commands[0], "--set epochs=2 --device cpu --out DIR"
    assert line == f"brio tune COHORT --method mlp --budget 2 --protocol loso --seeds 1 {rest}"
    text = write_report(tmp_path / "tuned").read_text(encoding="utf-8")
    assert "Settings chosen for each fold, from 2 configurations" in text
    assert "best of 2 configurations" in text
