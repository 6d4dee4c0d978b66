"""What a site refuses and records, and the folder of a coordinator whose process is killed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from brio.cohort import Atlas
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
        agreement = agreement or (None if (record / own.AGREEMENT).exists() else Agreement(least_per_class=5))
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
    agreement = record / own.AGREEMENT
    agreement.write_text(agreement.read_text().replace('"vectors": 16', '"vectors": 15'))
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
    refuse(record, problem, hospital, first, Agreement(), cohort=nine)
    ids = [f"p{k % 9 if y == 0 else 100 + k}" for k, y in enumerate(label)]  # many scans of nine controls
    same = rebuild(cohort, table=cohort.participants.assign(participant_id=ids), session=[str(k) for k in order])
    refuse(record, "has 9 participants of class control", hospital, first, Agreement(), cohort=same)
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
    refuse(
        record,
        "label 0 is 'control' here, but 'patient' in",
        hospital,
        start(replace(terms, classes=terms.classes[::-1])),
    )
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


@pytest.fixture
def asks(tmp_path, mail, sites, terms):
    """Ask a question about other labels of scans of site01, in a project of two requests with a vector."""

    def ask(label, cohort=None, name="second", **agreed):
        cohort = cohort or sites["site01"]
        own = cohort.labels
        if label is not None:
            scans = map(sites["site01"].scan, range(len(label)))
            known = {scan.tobytes(): y for scan, y in zip(scans, label, strict=True)}
            own = np.array([known[cohort.scan(i).tobytes()] for i in range(len(cohort))])
        cohort = rebuild(cohort, table=cohort.participants.assign(label=own), index=np.flatnonzero(own >= 0))
        request = start(replace(terms, project=name, iterations=1))
        agreement = Agreement(least_per_class=3, **agreed)
        said = []
        answer_and_record(mail(request, name), cohort, tmp_path / f"cohort-{name}", agreement, say=said.append)
        return said

    return ask


def change_labels(label, flipped=(), left_out=()):
    """Labels of which some are those of the other class, and some are left out."""
    changed = np.array(label)
    changed[list(flipped)] ^= 1
    changed[list(left_out)] = -1
    return changed


def import_again(cohort, **changes):
    """The same frames, in another order and under other names."""
    order = np.arange(len(cohort))[::-1]
    ids = [f"renamed{k}" for k in range(len(cohort))]
    table = cohort.participants.iloc[order].assign(participant_id=ids, **changes)
    return rebuild(cohort, [cohort.scan(k) for k in order], table=table.set_axis(range(len(order))))


@pytest.mark.parametrize(
    ("flipped", "left_out", "group"),
    [
        ([3], [], "1 participant"),
        ([], [3], "1 participant"),
        ([], [3, 20], "1 participant"),  # one of each class
        (range(6, 15), [], "4 participants"),
        (range(21), [], "1 participant"),  # all but one
    ],
)
@pytest.mark.parametrize("again", [False, True], ids=["folder", "imported again"])
def test_a_second_question_that_singles_out_participants_is_refused(
    asks, sites, answered, flipped, left_out, group, again
):
    label = sites["site01"].labels
    order = np.argsort(label, kind="stable")  # controls, then patients
    assert asks(label, name="first") == []
    second = change_labels(label, order[list(flipped)], order[left_out])
    cohort = import_again(sites["site01"]) if again else None
    before = list_files(answered)
    with pytest.raises(BrioError, match=f"sums over .*{group}.*project 'first'.*--agree-further-question"):
        asks(second, cohort)
    assert list_files(answered) == before
    (said,) = asks(second, cohort, further_question=True)
    assert "project 'first'" in said
    assert len(list_files(answered)) == len(before) + 1


def test_the_difference_of_two_answers_is_a_connectome(sites, terms):
    """What the record prevents: labels age>30 and age>31, and one participant between."""
    from brio.federation.progress import Progress
    from brio.federation.site import Site

    cohorts = {
        name: rebuild(cohort, table=cohort.participants.assign(age=20.5 + np.arange(len(cohort))))
        for name, cohort in sites.items()
    }
    sums = []
    for cut in (30, 31):
        asked = replace(terms, label=f"age>{cut}", classes=("young", "old"))
        ask = {name: Site(asked, cohort, 5) for name, cohort in cohorts.items()}
        request = start(asked)
        following = combine(request, [one.answer(request) for one in ask.values()])
        site, progress = ask["site01"], Progress(asked, following.shown[ALL])
        first, second = site.answer(request).sums[ALL], site.answer(following).sums[ALL]
        n = first["n"].sum()
        whole = first["features"] + (n - first["live"]) * progress.fill
        sums.append(second["labels"] + whole * (first["n"][1] - first["n"][0]) / n)  # patients less controls
    person = int(np.flatnonzero(site.cohort.participants["age"] == 30.5)[0])
    found, live = (sums[0] - sums[1]) / 2, site.live[person]
    np.testing.assert_allclose(found[live], site.plain[person][live], atol=1e-12)


def test_the_same_question_may_be_asked_again(asks, sites):
    label = sites["site01"].labels
    asks(label, name="first")
    assert asks(label, import_again(sites["site01"])) == []
    with pytest.raises(BrioError, match="in addition to the 4 of other projects"):  # of the scans, not of a folder
        asks(label, name="third")


@pytest.mark.parametrize("column", ["mean_fd", "tr"])
def test_a_fact_filled_in_later_singles_out_its_participant(asks, sites, answered, column):
    cohort, label = sites["site01"], sites["site01"].labels
    values = 0.2 + 0.01 * np.arange(len(label))
    some = np.where(np.arange(len(label)) == 4, np.nan, values)
    whole, part = (rebuild(cohort, table=cohort.participants.assign(**{column: one})) for one in (values, some))
    asks(label, part, name="first")
    before = list_files(answered)
    for again in (whole, import_again(whole)):
        with pytest.raises(BrioError, match="1 participant"):
            asks(label, again, vectors=6)
    assert list_files(answered) == before
    asks(label, import_again(part))  # the same facts


def test_facts_that_all_participants_share_may_be_added(asks, sites):
    cohort, label = sites["site01"], sites["site01"].labels
    asks(label, name="first")
    filled = rebuild(cohort, table=cohort.participants.assign(mean_fd=0.2 + 0.01 * np.arange(len(label))))
    assert asks(label, filled) == []


@pytest.mark.parametrize("change", ["doubled", "shifted", "rounded", "noisy"])
def test_scans_and_participants_are_recognised_though_their_frames_differ(asks, sites, answered, change):
    cohort, label = sites["site01"], sites["site01"].labels
    draw, sd = np.random.default_rng(5), float(np.std(cohort.scan(0)))
    make = {
        "doubled": lambda scan: 2 * scan,
        "shifted": lambda scan: scan + (scan != 0) * np.float32(3),
        "rounded": lambda scan: (scan / sd).round(3) * sd,
        "noisy": lambda scan: scan + draw.normal(0, sd, scan.shape),
    }[change]
    scans = [make(cohort.scan(k)).astype(np.float32) for k in range(len(cohort))]
    other, left = rebuild(cohort, scans), np.arange(1, len(cohort))
    asks(label, name="first")
    before = list_files(answered)
    for again in (other, import_again(other)) if change != "noisy" else (other,):
        singled = again.select(left)
        with pytest.raises(BrioError, match=r"sums over .*1 participant"):
            asks(None, singled)
        with pytest.raises(BrioError, match="in addition to"):
            asks(None, again, vectors=2)
        assert list_files(answered) == before
    exchanged = rebuild(cohort, [other.scan(0), *map(cohort.scan, left)])  # the scan of one participant
    with pytest.raises(BrioError, match=r"sums over .*1 participant"):
        asks(None, exchanged)
    assert asks(None, other) == []
    stored = "".join(path.read_text() for path in answered.glob("*.json"))
    assert not any(str(one) in stored for one in cohort.participant_ids)


def test_a_project_goes_on_after_another_was_allowed(hospital, asks, sites, project, monkeypatch):
    monkeypatch.setattr(own, "SCANS_FOR_EACH_VECTOR", 1)
    run, label = project(), sites["site01"].labels
    hospital(run.requests[0], Agreement(vectors=6, least_per_class=5))
    assert asks(change_labels(label, [2]), further_question=True, vectors=6)
    assert digest(hospital(run.requests[1])) == digest(run.answers[1]["site01"])


def test_two_scans_of_a_participant_are_one_participant():
    def ask(label):
        scans = {str(k): (y, k if k < 40 else 20 + k // 2) for k, y in enumerate(label) if y is not None}
        return own.Question("p", str(label), ("a", "b"), 1, scans)

    first = ask([0] * 40 + [1] * 40)
    assert own.find_small_groups(ask([0] * 30 + [None] * 10 + [1] * 40), [first]) == []
    assert own.find_small_groups(ask([0] * 40 + [1] * 28 + [None] * 12), [first])  # of six participants
    (found,) = own.find_small_groups(ask([0] * 40 + [1] * 39 + [None]), [first])  # one scan of two
    assert found.startswith("1 participant ")


def find_least(questions, n):
    """Fewest participants whose sum follows from the sums of the classes, by trying all groups of equal classes."""
    rows = np.array([[label[k] == one for label in questions for one in (0, 1)] for k in range(n)], dtype=float)
    kinds, member = np.unique(rows[rows.any(1)], axis=0, return_inverse=True)
    counts, whole, least = np.bincount(member), np.linalg.matrix_rank(kinds), n
    for chosen in range(1, 2 ** len(kinds)):
        inside = np.array([chosen >> k & 1 for k in range(len(kinds))], dtype=bool)
        left = np.linalg.matrix_rank(kinds[~inside]) if not inside.all() else 0
        if counts[inside].sum() < least and left < whole:
            least = int(counts[inside].sum())
    return least


def test_no_sum_over_few_participants_follows_from_allowed_questions():
    """For questions on three sets of participants, at random and such that a third makes up for two."""
    rng, allowed, singled = np.random.default_rng(0), 0, 0
    for trial in range(150):
        blocks = rng.permutation([14] * 6 + [int(rng.choice([1, 4, 14]))])
        n, questions = int(blocks.sum()), []
        for _ in range(3):
            label = np.repeat(rng.choice([-1, 0, 1], len(blocks), p=[0.1, 0.45, 0.45]), blocks)
            scans = {str(k): (int(y), k) for k, y in enumerate(label) if y >= 0}
            if min(np.sum(label == k) for k in (0, 1)) < 10:
                continue
            one = own.Question(f"{trial}-{len(questions)}", "0", ("a", "b"), 1, scans)
            if not own.find_small_groups(one, [asked for asked, _ in questions]):
                questions.append((one, label))
            elif find_least([*(held for _, held in questions), label], n) < 10:
                singled += 1
        allowed += len(questions) > 1
        assert find_least([label for _, label in questions], n) >= 10
    assert allowed > 20
    assert singled > 20


def test_a_question_needs_ten_changes_in_each_direction():
    def ask(label):
        return own.Question("p", str(label), ("a", "b"), 1, {str(k): (y, k) for k, y in enumerate(label)})

    first = ask([0] * 40 + [1] * 40)
    assert own.find_small_groups(ask([1] * 10 + [0] * 30 + [1] * 30 + [0] * 10), [first]) == []
    assert own.find_small_groups(ask([1] * 10 + [0] * 30 + [1] * 40), [first])
    assert own.find_small_groups(ask([1] * 10 + [0] * 30 + [1] * 31 + [0] * 9), [first])


def test_answered_questions_are_recorded_before_anything_is_sent(tmp_path, mail, sites, terms, monkeypatch):
    path, place = mail(start(terms)), tmp_path / "record"
    (tmp_path / "file").write_text("")
    with pytest.raises(BrioError, match="file"):
        answer_and_record(path, sites["site01"], place, answered=tmp_path / "file" / "answered")
    assert not place.exists() or not list(place.glob("answer*"))
    answer_and_record(path, sites["site01"], place, answered=tmp_path / "named")
    (stored,) = (tmp_path / "named").glob("*.json")
    assert len(json.loads(stored.read_text())["scans"]) == len(sites["site01"])
    stored.write_text("{}")
    with pytest.raises(BrioError, match=stored.name):
        answer_and_record(path, sites["site02"], tmp_path / "other", answered=tmp_path / "named")


def test_scans_exchanged_between_rounds_are_noticed(hospital, record, sites, project):
    run, cohort = project(), sites["site01"]
    hospital(run.requests[0])
    scans = [cohort.scan(k) for k in range(len(cohort))]
    other = rebuild(cohort, [scans[0] * np.float32(1.001), *scans[1:]])
    refuse(record, "other scans or labels than before", hospital, run.requests[1], cohort=other)
    a, b = (int(np.flatnonzero(cohort.labels == k)[0]) for k in (0, 1))
    swapped = rebuild(cohort, table=cohort.participants.assign(label=change_labels(cohort.labels, [a, b])))
    refuse(record, "other scans or labels than before", hospital, run.requests[1], cohort=swapped)
    assert digest(hospital(run.requests[1])) == digest(run.answers[1]["site01"])


@pytest.mark.parametrize("evaluation", ["site-models", "leave-one-site-out"])
def test_sums_that_other_sites_cannot_have_are_refused(hospital, record, project, evaluation, monkeypatch):
    monkeypatch.setattr(own, "SCANS_FOR_EACH_VECTOR", 0)
    run, agreed = project(evaluation=evaluation), Agreement(vectors=99, leave_out=True, least_per_class=5)
    hospital(run.requests[0], agreed)
    d = 28
    invented = [
        {"features": np.zeros(d)},  # which would ask for the scans of this site alone
        {"features": np.full(d, 1e6)},
        {"fc_means": np.full(d, -0.1)},
        {"fc_sites": np.full(d, 9.0)},
        {"live": np.full(d, 1e6)},
        {"squares": np.array(1e-9)},
        {"squares": np.array(-1.0)},
        {"facts": np.full((5, 3), 1e9)},
        {"block_length": np.array([1e300, 1.0])},
        {"labels": np.full(d, 1e9)},
        {"models": np.eye(d)[0] * 2},
        {"distance": np.array([1.0, 2.0, 3.0])},
        {"spread": np.array([1.0, 1e6, 0.0, 2.0])},
        {"product": np.full(d, 1e9)},
        {"direction": np.full(d, 1e9)},
    ]
    for request, following in zip(run.requests[:-1], run.requests[1:], strict=True):
        hospital(request)
        for model, rounds in following.shown.items():
            for odd in [one for one in invented if set(one) <= set(rounds[-1])]:
                shown = following.shown | {model: [*rounds[:-1], rounds[-1] | odd]}
                changed = replace(following, shown=shown)
                refuse(record, "sums over the other sites that cannot be right", hospital, changed, name="odd")
    assert digest(hospital(run.requests[-1])) == digest(run.answers[-1]["site01"])


def test_a_site_with_as_many_scans_as_a_country_is_refused(mail, project):
    request = project().requests[1]
    sites = request.sites | {"site02": (10**9, 10**9)}
    first = request.shown[ALL][0] | {"n": np.sum([*sites.values()], axis=0)}
    with pytest.raises(BrioError, match=r"site02\[0\] is 1000000000"):
        read_message(mail(replace(request, sites=sites, shown={ALL: [first]})))


def test_regions_without_names_are_refused(hospital, record, sites, terms):
    nameless = Atlas.unnamed(8)
    with pytest.raises(BrioError, match="--atlas-table"):
        replace(terms, rois={"name": nameless.rois["name"].tolist()})
    refuse(record, "--atlas-table", hospital, start(terms), cohort=rebuild(sites["site01"], atlas=nameless))


@pytest.mark.parametrize("label", ["dx", "dx=patient", None])
def test_classes_mean_the_same_at_every_site(hospital, record, sites, terms, label):
    cohort, first = sites["site01"], start(replace(terms, label=label))

    def write(*words):
        if label:
            return rebuild(cohort, table=cohort.participants.assign(dx=[words[k] for k in cohort.labels]))
        return rebuild(cohort, classes=words)

    odd = [("0", "1"), ("control", "ASD"), ("TC", "patient"), ("x", "y")]
    for words in odd if label else [*odd, ("patient", "control")]:
        with pytest.raises(BrioError):
            hospital(first, cohort=write(*words))
    assert not record.exists()
    assert hospital(first, cohort=write(" Control", "patient ")).site == "site01"
    for codes in ({"classes": ("1", "2")}, {"label": "dx=1"}):
        with pytest.raises(BrioError, match="code"):
            replace(terms, **codes)


@pytest.mark.parametrize("words", [("F", "M"), ("f", "m"), ("w", "m"), ("female", "male"), ("weiblich", "männlich")])
@pytest.mark.parametrize(
    ("label", "classes"), [("sex", ("female", "male")), ("sex=M", ("F", "M")), ("sex", ("F", "M")), (None, ("F", "M"))]
)
def test_sexes_are_the_same_however_they_are_written(hospital, sites, terms, words, label, classes):
    cohort, first = sites["site01"], start(replace(terms, label=label, classes=classes))
    table = cohort.participants.assign(sex=[words[k] for k in cohort.labels])
    made = rebuild(cohort, table=table) if label else rebuild(cohort, classes=words)
    assert hospital(first, cohort=made).site == "site01"


def test_a_session_without_a_value_says_nothing_of_its_class(hospital, sites, terms):
    cohort, first = sites["site01"], start(replace(terms, label="dx=ASD", classes=("TC", "ASD")))
    twice = np.r_[np.arange(len(cohort)), np.arange(len(cohort))]
    table = cohort.participants.assign(dx=np.where(cohort.labels == 1, "ASD", "TC"))
    table = table.iloc[twice].reset_index(drop=True)
    table.loc[len(cohort) :, "dx"] = np.nan
    scans = [cohort.scan(k) * np.float32(1 + (i >= len(cohort))) for i, k in enumerate(twice)]
    sessions = [str(1 + (i >= len(cohort))) for i in range(len(twice))]
    again = rebuild(cohort, scans, table=table, index=range(len(twice)), session=sessions)
    assert hospital(first, cohort=again).site == "site01"


def test_waiting_for_the_record_of_questions_names_its_own_option(hospital, record, terms, answered, monkeypatch):
    lock = own.lock_folder
    monkeypatch.setattr(own, "lock_folder", lambda folder, wait=0.0, **more: lock(folder, wait and 0.1, **more))
    with lock(answered), pytest.raises(BrioError) as refused:
        hospital(start(terms))
    assert str(answered) in str(refused.value)
    assert "--answered" in str(refused.value)
    assert "--out" not in str(refused.value)


def test_a_folder_that_no_option_names_is_waited_for(hospital, record, tmp_path, terms):
    project = tmp_path / "project"
    start_project(project, terms)
    for folder, call in ((record, lambda: hospital(start(terms))), (project, lambda: combine_project(project))):
        with own.lock_folder(folder), pytest.raises(BrioError) as refused:
            call()
        assert str(folder) in str(refused.value)
        assert "--" not in str(refused.value)
