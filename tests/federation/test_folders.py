"""What a site refuses and records, and the folder of a coordinator whose process is killed."""

from dataclasses import replace

import numpy as np
import pytest

from brio.errors import BrioError
from brio.federation import (
    Agreement,
    Answer,
    Request,
    answer_and_record,
    combine,
    digest,
    encode,
    read_message,
    start,
    write_message,
)
from brio.federation import folders as own
from brio.federation.folders import combine_project, name_answer, name_request, start_project
from brio.federation.messages import ALL
from brio.models import read_model
from made_cohorts import rebuild


@pytest.fixture
def mail(tmp_path, project):
    """Write requests into files."""

    def send(request: Request, name: str = ""):
        path = tmp_path / (name or name_request(request.round))
        write_message(path, request)
        return path

    return send


@pytest.fixture
def record(tmp_path):
    return tmp_path / "cohort" / "federation" / "trial"


@pytest.fixture
def hospital(mail, record, sites, project):
    """Answer requests at site01; ``upto`` rounds of the project are answered already."""

    def answer(request: Request, agreement: Agreement | None = None, cohort=None, name: str = ""):
        return answer_and_record(mail(request, name), cohort or sites["site01"], record, agreement)

    return answer


def list_files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refuse(record, message, call, *arguments, **options):
    """A refusal in one line, after which the record is as it was."""
    before = list_files(record) if record.exists() else None
    with pytest.raises(BrioError, match=message) as refused:
        call(*arguments, **options)
    assert "\n" not in str(refused.value)
    assert (list_files(record) if record.exists() else None) == before


def test_a_site_answers_all_rounds_and_logs_every_number(hospital, record, project):
    run = project()
    for request, answers in zip(run.requests, run.answers, strict=True):
        made = hospital(request)
        assert digest(made) == digest(answers["site01"])
        again = list_files(record)
        assert digest(hospital(request)) == digest(made)
        assert list_files(record) == again
    log = (record / "log.md").read_text()
    assert log.count("## Round ") == 6
    assert "least_per_class" in log
    for answers in run.answers:
        assert all(f"- `{name}`, " in log for name in answers["site01"].sums[ALL])
    for name in ("n_controls", "auc", "variance"):
        assert f"- `{name}` = {getattr(run.answers[-1]['site01'].score, name)}: " in log


def test_an_interrupted_answer_is_given_again_and_logged_once(hospital, record, project, monkeypatch):
    run = project()
    hospital(run.requests[0])
    for failing in (1, 2):
        calls = iter(range(1, 9))

        def write(path, message, calls=calls, failing=failing):
            if next(calls) == failing:
                raise KeyboardInterrupt
            write_message(path, message)

        monkeypatch.setattr(own, "write_message", write)
        with pytest.raises(KeyboardInterrupt):
            hospital(run.requests[1])
        monkeypatch.undo()
        assert not (record / "answer-2.brio").exists()
    assert digest(hospital(run.requests[1])) == digest(run.answers[1]["site01"])
    assert (record / "log.md").read_text().count("## Round 2, ") == 1


def test_a_request_that_does_not_follow_is_refused(hospital, record, project):
    run, other = project(), project(penalty=2.0)
    refuse(record, "round 1 was not answered from this cohort", hospital, run.requests[1])
    for request in run.requests[:2]:
        hospital(request)
    refuse(record, "does not follow from the previous request", hospital, other.requests[2])
    refuse(record, "round 3 was not answered from this cohort", hospital, run.requests[3])
    refuse(record, "differs from the request answered here", hospital, replace(run.requests[1], before="00"), name="x")
    request = run.requests[2]
    first, second = request.shown[ALL]
    scaled = first | {"features": first["features"] * (1 + 1e-12)}
    sites = request.sites | {"site02": (1, 1)}
    n = np.sum(list(sites.values()), axis=0)
    for changed in (
        replace(request, shown={ALL: [scaled, second]}),
        replace(request, terms=replace(request.terms, penalty=2.0)),
        replace(request, terms=replace(request.terms, iterations=50)),
        replace(request, sites=sites, shown={ALL: [first | {"n": n}, second]}),
        replace(request, before=digest(run.requests[0])),
    ):
        refuse(record, "does not follow from the previous request", hospital, changed, name="x")
    without = {name: one for name, one in request.answers.items() if name != "site01"}
    refuse(
        record,
        "does not follow from the previous request",
        hospital,
        replace(request, answers=without),
        name="x",
    )
    assert digest(hospital(request)) == digest(run.answers[2]["site01"])


def test_own_scans_must_be_counted_as_they_are(hospital, record, sites, project):
    run = project()
    hospital(run.requests[0])
    fewer = sites["site01"].select(np.arange(1, len(sites["site01"])))
    refuse(record, "give the scans with which the first request was answered", hospital, run.requests[1], cohort=fewer)
    request = run.requests[1]
    swapped = request.sites | {"site01": request.sites["site02"], "site02": request.sites["site01"]}
    if swapped != request.sites:
        refuse(record, r"the request lists \d+ and \d+; give", hospital, replace(request, sites=swapped))


def test_what_a_site_did_not_agree_to_is_refused(hospital, record, project, terms, monkeypatch):
    few, many = start(terms), start(replace(terms, iterations=3))
    apart = start(replace(terms, evaluation="leave-one-site-out"))
    refuse(record, "needs 6 requests with a vector, but this site answers at most 4; to agree, give", hospital, many)
    refuse(
        record, "needs 4 requests with a vector, but this site answers at most 3", hospital, few, Agreement(vectors=3)
    )
    twenty = replace(apart, terms=replace(apart.terms, n_sites=20))
    refuse(record, "needs 80 requests with a vector", hospital, twenty, Agreement(leave_out=True))
    refuse(record, "to allow it, give --agree-leave-out", hospital, apart)
    refuse(record, "to allow it, give --agree-leave-out", hospital, apart, Agreement(vectors=1000))
    refuse(
        record,
        "needs 16 requests with a vector, but this site answers at most 15",
        hospital,
        apart,
        Agreement(vectors=15, leave_out=True),
    )
    agreed = Agreement(vectors=16, leave_out=True)
    refuse(
        record,
        "16 requests with a vector need at least 64 scans, but this site has 22; ask for",
        hospital,
        apart,
        agreed,
    )
    monkeypatch.setattr(own, "SCANS_FOR_EACH_VECTOR", 0.5)  # as at a site with many scans
    hospital(apart, agreed)
    refuse(
        record,
        "in its first answer cannot be changed",
        hospital,
        apart,
        Agreement(vectors=30, leave_out=True),
    )
    hospital(apart, agreed)


def test_more_sites_than_agreed_to_are_refused_once_they_are_known(hospital, record, project, monkeypatch):
    monkeypatch.setattr(own, "SCANS_FOR_EACH_VECTOR", 0.5)
    run = project(evaluation="leave-one-site-out")
    agreed = Agreement(vectors=16, leave_out=True)
    hospital(run.requests[0], agreed)
    (record / own.AGREEMENT).write_text('{"vectors": 15, "leave_out": true, "least_per_class": 10}')
    refuse(record, "at most 15; this number cannot be changed after", hospital, run.requests[1])


def test_projects_of_a_cohort_count_together(hospital, mail, record, sites, terms, monkeypatch):
    hospital(start(terms))
    second = mail(start(replace(terms, project="second")), "second.brio")
    place = record.with_name("second")
    problem = (
        "'second' needs 4 requests with a vector in addition to the 4 of other projects, but this site answers at most "
        "4; "
    )
    refuse(place, f"{problem}to agree, give --vectors 8", answer_and_record, second, sites["site01"], place)
    agreed = Agreement(vectors=8)
    problem = r"8 requests with a vector \(4 of them in other projects\) need at least 32 scans, but this site has 22"
    refuse(place, problem, answer_and_record, second, sites["site01"], place, agreed)
    monkeypatch.setattr(own, "SCANS_FOR_EACH_VECTOR", 2)
    (record / "request-1.brio").write_text("as another version of brio wrote it")  # blocks no other project
    assert answer_and_record(second, sites["site01"], place, agreed).site == "site01"


def test_small_mixed_and_other_scans_are_refused(hospital, record, pool, sites, terms):
    cohort, first = sites["site01"], start(terms)
    label, order = cohort.labels, np.arange(len(cohort))
    nine = cohort.select(np.r_[order[label == 1], order[label == 0][:9]])
    n = int((label == 1).sum())
    problem = f"has 9 participants of class control and {n} of patient, but answers only with at least 10"
    refuse(record, problem, hospital, first, cohort=nine)
    ids = [f"p{k % 9 if y == 0 else 100 + k}" for k, y in enumerate(label)]  # many scans of nine controls
    same = rebuild(cohort, table=cohort.participants.assign(participant_id=ids), session=[str(k) for k in order])
    refuse(record, "has 9 participants of class control", hospital, first, cohort=same)
    refuse(
        record, "has 4 sites, but each site answers for itself; make a cohort for each", hospital, first, cohort=pool
    )
    silent = rebuild(cohort, [np.zeros_like(cohort.scan(k)) for k in order])
    refuse(record, "has no labelled scan left after the audit; add labels", hospital, first, cohort=silent)
    names = terms.rois["name"]
    turned = start(replace(terms, rois={"name": [names[1], names[0], *names[2:]]}))
    refuse(record, "in another order", hospital, turned)
    refuse(record, "the model was fitted to 7", hospital, start(replace(terms, rois={"name": names[1:]})))
    refuse(record, "another atlas", hospital, start(replace(terms, rois={"name": ["other", *names[1:]]})))
    refuse(record, "classes are swapped", hospital, start(replace(terms, classes=terms.classes[::-1])))
    assert hospital(first, Agreement(least_per_class=9), cohort=nine).site == "site01"


def test_refusals_and_counts_do_not_depend_on_the_values_of_scans(hospital, record, sites, terms):
    cohort = sites["site01"]
    rng = np.random.default_rng(2)
    other = rebuild(cohort, [rng.standard_normal(cohort.scan(i).shape).astype(np.float32) for i in range(len(cohort))])
    for agreement in (Agreement(vectors=1), Agreement(least_per_class=40)):
        said = []
        for one in (cohort, other):
            with pytest.raises(BrioError) as refused:
                hospital(start(terms), agreement, cohort=one)
            said.append(str(refused.value))
        assert said[0] == said[1]
    assert not record.exists()


def write_answers(folder, answers):
    (folder / "answers").mkdir(exist_ok=True)
    for one in answers.values():
        write_message(folder / "answers" / name_answer(one), one)


def test_a_coordinator_that_is_killed_between_rounds_loses_nothing(tmp_path, project, monkeypatch):
    run, folder = project(), tmp_path / "project"
    start_project(folder, run.requests[0].terms)
    for number, answers in enumerate(run.answers):
        write_answers(folder, answers)
        before = list_files(folder)

        def fail(path, message, number=number):
            if path.name == name_request(number + 1):
                raise KeyboardInterrupt
            write_message(path, message)

        if number < 5:
            monkeypatch.setattr(own, "write_message", fail)
            with pytest.raises(KeyboardInterrupt):
                combine_project(folder)
            monkeypatch.undo()
            assert {k: v for k, v in list_files(folder).items() if k.name != ".lock"} == {
                k: v for k, v in before.items() if k.name != ".lock"
            }
        path = combine_project(folder)
        if number < 5:
            assert digest(read_message(path, Request)) == digest(run.requests[number + 1])
            with pytest.raises(BrioError, match=f"'site01': has not answered round {number + 2}"):
                combine_project(folder)
    assert path == folder / "model"
    w = [one.members[0].fitted.parameters["coefficients"].numpy() for one in (read_model(path), run.model)]
    assert np.array_equal(*w)
    with pytest.raises(BrioError, match="already exists, so the project has ended"):
        combine_project(folder)


def test_scores_are_written_before_the_model_and_again_after_a_failure(tmp_path, project, monkeypatch):
    run, folder = project(), tmp_path / "project"
    start_project(folder, run.requests[0].terms)
    for answers in run.answers[:-1]:
        write_answers(folder, answers)
        combine_project(folder)
    write_answers(folder, run.answers[-1])

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("brio.models.folder.write_model", fail)
    with pytest.raises(KeyboardInterrupt):
        combine_project(folder)
    monkeypatch.undo()
    assert not (folder / "model").exists()
    combine_project(folder)
    rows = (folder / "scores" / "sites.csv").read_text().splitlines()
    assert len(rows) == 5
    assert "auc_variance" in rows[0]


def test_wrong_files_leave_a_project_as_it_was(tmp_path, project):
    run, folder = project(), tmp_path / "project"
    start_project(folder, run.requests[0].terms)
    given = []
    for name, one in run.answers[0].items():
        given.append(tmp_path / f"{name}.brio")
        write_message(given[-1], one)
    before = list_files(folder)

    def refuse_files(message, paths):
        with pytest.raises(BrioError, match=message):
            combine_project(folder, paths)
        assert {k: v for k, v in list_files(folder).items() if k.name != ".lock"} == before

    refuse_files(
        "request-1.brio: is request 1 of a project; give one of its answers instead", [folder / name_request(0)]
    )
    damaged = tmp_path / "damaged.brio"
    damaged.write_bytes(given[0].read_bytes()[:-9])
    refuse_files("damaged.brio: is neither", [damaged, *given[1:]])
    write_message(tmp_path / "wrong.brio", replace(run.answers[0]["site01"], request="00"))
    refuse_files("'site01': its answer is to another request", [tmp_path / "wrong.brio", *given[1:]])
    refuse_files("only 2 sites answered.*, but at least 3 must answer", given[:2])
    path = combine_project(folder, given)
    made = read_message(path, Request)
    assert digest(made) == digest(run.requests[1])
    assert len(list((folder / "answers").iterdir())) == 4
    with pytest.raises(BrioError, match="contains no request"):
        combine_project(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    assert path.name == "request-2.brio"


def test_files_of_sites_with_odd_names_are_kept_apart():
    names = [name_answer(Answer("", 0, site)) for site in ("St. Mary", "St._Mary", "a/b", "a%2Fb")]
    assert len(set(names)) == 4
    assert all("/" not in name for name in names)


def test_a_question_that_is_not_the_label_is_asked_at_every_site(terms, sites):
    asked = replace(terms, label="group=b")
    rng = np.random.default_rng(3)
    cohorts = {}
    for name, cohort in sites.items():
        group = np.where(rng.permutation(len(cohort)) % 2 == 0, "a", "b")
        cohorts[name] = rebuild(cohort, table=cohort.participants.assign(group=group))
    first = start(replace(asked, classes=("a", "b")))
    from brio.federation import answer

    answers = [answer(first, one) for one in cohorts.values()]
    following = combine(first, answers)
    assert following.sites["site01"] == (
        -(-len(sites["site01"]) // 2),
        len(sites["site01"]) // 2,
    )
    assert encode(answers[0]) != encode(answer(first, cohorts["site02"]))


def test_read_message_says_what_a_file_is(tmp_path, project):
    write_message(tmp_path / "one.brio", project().answers[0]["site01"])
    with pytest.raises(BrioError, match=r"one\.brio: is answer 1 of a project; give one of its requests instead"):
        read_message(tmp_path / "one.brio", Request)
