"""``brio federate``: what people type, from the first request to the model."""

import numpy as np
import pytest

from brio import Cohort
from commands import command
from made_cohorts import rebuild


@pytest.fixture
def here(tmp_path, monkeypatch, sites):
    """A folder with the cohorts of four hospitals."""
    monkeypatch.chdir(tmp_path)
    for name, cohort in sites.items():
        cohort.save(name)
    return tmp_path


def start(*words):
    return command(
        "federate",
        "start",
        "--out",
        "project",
        "--rois",
        "site01",
        "--classes",
        "control,patient",
        "--sites",
        4,
        *words,
    )


def test_from_the_first_request_to_the_model(here, sites):
    fingerprint = Cohort.load("site01").fingerprint
    said = start("--iterations", 1).succeed().out
    assert "Request 1 of 4 of the project 'project': log-ridge, 8 regions (mine), patient against control" in said
    assert "send project/request-1.brio to every site" in said
    for number in range(1, 5):
        for name in sites:
            said = command("federate", "answer", "project", name).succeed().out
            assert f"Answer {number} of site '{name}'" in said
            assert f"wrote project/answers/answer-{number}-{name}.brio" in said
            assert f"{name}/federation/project/log.md" in said
        said = command("federate", "combine", "project").succeed().out
    assert "at 4 sites, each testing the mean of the other sites' models: AUC" in said
    assert "wrote Model('log-ridge'" in said
    assert (here / "site01" / "federation" / "project" / "log.md").read_text().count("## Round") == 4
    assert "- `auc` = " in command("federate", "show", "project/answers/answer-4-site02.brio").succeed().out
    assert (
        "Requested from each site: counts, means" in command("federate", "show", "project/request-1.brio").succeed().out
    )
    assert command("predict", "project/model", "site02", "--out", "predictions").succeed()
    command("report", "project").succeed()
    page = (here / "project" / "report.html").read_text()
    assert "at each site, the mean of the other sites' models was tested" in page
    assert "leaving one site out" not in page
    assert all(f"{name}<small>" in page and word in page for name in sites for word in ("fc_means", "quantiles"))
    assert "has ended" in command("federate", "combine", "project").refuse_in_a_line()
    assert Cohort.load("site01").fingerprint == fingerprint


def test_an_unfinished_project_has_no_report(here):
    start().succeed()
    assert "project: the project has not ended" in command("report", "project").refuse_in_a_line()
    assert not (here / "project" / "report.html").exists()


def test_mail_instead_of_a_common_folder(here, sites):
    start("--method", "ridge", "--iterations", 1).succeed()
    files = []
    for name in sites:
        (here / f"mail-{name}").mkdir()
        request = here / f"mail-{name}" / "request-1.brio"
        request.write_bytes((here / "project" / "request-1.brio").read_bytes())
        command("federate", "answer", request, name).succeed()
        files.append(here / f"mail-{name}" / f"answer-1-{name}.brio")
    assert "Request 2 of 4" in command("federate", "combine", "project", *files).succeed().out
    assert command("federate", "answer", "project/request-2.brio", "site01", "--out", "mine.brio").succeed()
    assert (here / "mine.brio").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("start --out new --rois nowhere --sites 4 --classes a,b", "nowhere"),
        ("start --out new --rois site01 --sites 4 --classes a", "classes"),
        ("start --out new --rois site01 --sites 4 --classes 0,1", "'0' is a code"),
        ("start --out new --rois site01 --sites 4 --classes a,b --label dx=1", "'1' is a code"),
        ("start --out new --rois site01 --sites 4 --classes a,b --method lasso", "method is 'lasso'"),
        ("start --out new --rois site01 --sites 4 --classes a,b --penalty 0", "--penalty 0.0: must be"),
        ("start --out new --rois site01 --sites 4 --classes a,b --iterations 101", "--iterations 101: must be"),
        ("start --out new --rois site01 --sites 4 --classes a,b --evaluation none", "evaluation is 'none'"),
        ("start --out project --rois site01 --sites 4 --classes a,b", "already exists"),
        ("answer nothing site01", "nothing: "),
        ("answer site02 site01", "contains no request"),
        ("answer project nothing", "nothing: "),
        ("answer project site01 --vectors 3", "needs 4 requests with a vector, but this site answers at most 3"),
        ("answer project site01 --least-per-class 40", "answers only with at least 40 of each class"),
        ("combine nothing", "nothing: contains no request"),
        ("combine project", "only 0 sites answered, but at least 4 must answer"),
        ("combine project project/request-1.brio", "is request 1 of a project; give one of its answers instead"),
        ("show site01/cohort.json", "is neither a request nor an answer"),
        ("show nothing", "nothing: "),
        ("show project", "project: "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_nothing_is_written(here, words, message):
    start().succeed()
    before = sorted(here.rglob("*"))
    assert message in command("federate", *words.split()).refuse_in_a_line()
    assert [path for path in sorted(here.rglob("*")) if path.name != ".lock"] == before


def test_a_second_question_about_the_same_scans(here, sites):
    for cut in (30, 31):
        terms = ("--classes", "young,old", "--label", f"age>{cut}", "--iterations", 1, "--sites", 4)
        command("federate", "start", "--out", f"over{cut}", "--rois", "site01", *terms).succeed()
    aged = rebuild(sites["site01"], table=sites["site01"].participants.assign(age=20.5 + np.arange(22)))
    aged.save("aged")
    aged.save("again")
    assert "warning" not in command("federate", "answer", "over30", "aged").succeed().text
    for folder in ("aged", "again"):
        said = command("federate", "answer", "over31", folder).refuse_in_a_line()
        assert "1 participant" in said
        assert "--agree-further-question" in said
    assert not list((here / "over31" / "answers").iterdir())
    agreed = command("federate", "answer", "over31", "again", "--agree-further-question", "--answered", "elsewhere")
    assert "warning" not in agreed.succeed().text  # another record knows of no other question
    said = command("federate", "answer", "over31", "aged", "--agree-further-question").succeed().text
    assert "warning: project 'over31'" in said
    assert "1 participant" in said
    assert "1 participant" in (here / "aged" / "federation" / "over31" / "log.md").read_text()
