"""What the coordinator refuses: answers that are missing, of another request, or that no scans could give."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from brio.errors import BrioError
from brio.federation import (
    Answer,
    Request,
    answer,
    combine,
    decode,
    digest,
    encode,
    read_message,
    start,
    write_message,
)
from brio.federation.messages import ALL, CalibratedScore
from brio.models import read_model, write_model
from made_cohorts import rebuild

LEAST = 5


def change(answer: Answer, model: str = ALL, **values) -> Answer:
    return replace(answer, sums=answer.sums | {model: answer.sums[model] | values})


def put(values: np.ndarray, place, value: float) -> np.ndarray:
    changed = np.array(values, dtype=float)
    changed[place] = value
    return changed


def refuse(request, answers, message):
    with pytest.raises(BrioError, match=message) as refused:
        combine(request, list(answers.values()) if isinstance(answers, dict) else answers)
    assert "\n" not in str(refused.value)


def test_the_same_answers_in_another_order_give_the_same_request(project):
    run = project()
    for request, answers, following in zip(run.requests[:-1], run.answers[:-1], run.requests[1:], strict=True):
        assert digest(combine(request, list(answers.values())[::-1])) == digest(following)
        assert digest(combine(request, [*answers.values(), answers["site03"]])) == digest(following)


def test_sites_that_drop_out_answer_twice_or_something_else_are_named(project):
    run = project()
    for number in range(1, 6):
        request, answers = run.requests[number], run.answers[number]
        without = {name: one for name, one in answers.items() if name != "site02"}
        refuse(request, without, f"site 'site02': has not answered round {number + 1}; wait for its answer, or")
        refuse(
            request,
            without | {"site02": run.answers[number - 1]["site02"]},
            f"site02': its answer is to another request \\(round {number}\\); ask for",
        )
        other = project(penalty=2.0).answers[number]["site02"]
        refuse(
            request, without | {"site02": other}, f"site02': its answer is to another request \\(round {number + 1}\\);"
        )
        stranger = replace(answers["site02"], site="site09")
        refuse(request, [*answers.values(), stranger], "site09': does not take part in")
    twice = change(run.answers[1]["site02"], labels=run.answers[1]["site02"].sums[ALL]["labels"] / 2)
    refuse(run.requests[1], [*run.answers[1].values(), twice], "site 'site02': sent two different answers")
    refuse(
        run.requests[0], dict(list(run.answers[0].items())[:2]), "only 2 sites answered.*, but at least 3 must answer"
    )


def test_three_sites_are_enough_unless_one_is_left_out(project):
    for evaluation in ("site-models", "leave-one-site-out"):
        run = project(evaluation=evaluation)
        three = dict(list(run.answers[0].items())[:3])
        if evaluation == "site-models":
            assert list(combine(run.requests[0], list(three.values())).sites) == list(three)
        else:
            refuse(run.requests[0], three, "only 3 sites answered.*, but at least 4 must answer")


def test_values_that_no_scans_could_give_are_refused(project):
    run = project()
    request, answers = run.requests[0], run.answers[0]
    own, d = answers["site02"].sums[ALL], 28
    n = own["n"].sum()
    odd = {
        "n": [own["n"] + 0.5, own["n"] * -1.0, own["n"] * 1e12],
        "live": [own["live"] + 1.0 * n, put(own["live"], 0, -1), put(own["live"], 0, 0.5)],
        "features": [own["features"] * 100, put(own["features"], 3, 1e6)],
        "fc_means": [np.full(d, 7.5), np.full(d, -1e9)],
        "fc_sites": [np.full(d, 2.0), np.zeros(d)],
        "squares": [own["squares"] * 1e-6, -own["squares"]],
        "block_length": [own["block_length"] * 2, np.array([0, n])],
        "facts": [put(own["facts"], (0, 0), n + 1), put(own["facts"], (1, 2), 0), put(own["facts"], (2, 1), 1e9)],
    }
    assert set(odd) == set(own)
    for name, values in odd.items():
        for value in values:
            word = "features" if name == "squares" else name
            wrong = answers | {"site02": change(answers["site02"], **{name: value})}
            refuse(request, wrong, f"site 'site02': '{word}' contains values that no scans could give")


def test_vectors_that_are_too_large_or_not_finite_are_refused(project):
    run = project(evaluation="leave-one-site-out")
    seen = set()
    for request, answers in zip(run.requests[1:], run.answers[1:], strict=True):
        for model, own in answers["site02"].sums.items():
            for name, values in own.items():
                for wrong in (values * np.nan, np.full_like(values, np.inf), values * 1e9, values[..., None]):
                    if name == "halves" and np.all(wrong == values * 1e9):
                        continue
                    refuse(request, answers | {"site02": change(answers["site02"], model, **{name: wrong})}, name)
                seen.add(name)
    assert seen >= {
        "labels",
        "models",
        "distance",
        "product",
        "spread",
        "direction",
        "covariance",
        "variance",
        "halves",
    }
    models = run.answers[1]["site02"]
    twofold = change(models, models=2 * models.sums[ALL]["models"])
    refuse(run.requests[1], run.answers[1] | {"site02": twofold}, "'models' contains values that no scans could give")


def test_answers_about_other_models_or_scores_are_refused(project):
    for run in (project(), project(evaluation="leave-one-site-out")):
        last, answers = run.requests[-1], run.answers[-1]
        refuse(
            last,
            answers | {"site02": replace(answers["site02"], score=None)},
            "its answer lacks the requested scores, or contains others",
        )
        early = replace(run.answers[1]["site02"], score=answers["site02"].score)
        refuse(run.requests[1], run.answers[1] | {"site02": early}, "its answer lacks the requested scores")
        nothing = replace(run.answers[1]["site02"], sums={})
        refuse(run.requests[1], run.answers[1] | {"site02": nothing}, "its answer is not about the requested models")
    scores = [one.answers[-1]["site02"].score for one in (project(), project(evaluation="leave-one-site-out"))]
    swapped = replace(project().answers[-1]["site02"], score=scores[1])
    refuse(project().requests[-1], project().answers[-1] | {"site02": swapped}, "its answer lacks the requested scores")
    with pytest.raises(BrioError, match="contains impossible scores"):
        replace(scores[1], calibrated=CalibratedScore(1000, 0.1, (None,) * 6, scores[1].calibrated.spread))
    with pytest.raises(BrioError, match="contains impossible scores"):
        replace(scores[0], n_controls=0)


def test_terms_are_checked_when_a_project_starts(terms):
    for values, message in (
        ({"method": "lasso"}, "method is 'lasso'"),
        ({"project": "../up"}, "project is '../up'"),
        ({"penalty": -1.0}, "penalty is -1.0"),
        ({"iterations": 0}, "iterations is 0"),
        ({"evaluation": "k-fold"}, "evaluation is 'k-fold'"),
    ):
        with pytest.raises(BrioError, match=message):
            start(replace(terms, **values))


def test_no_number_of_a_description_may_be_absurd(project):
    run = project()
    request, answers = run.requests[0], run.answers[0]
    for name, values in answers["site02"].sums[ALL].items():
        for absurd in (np.nan, np.inf, -np.inf, 1e300, -1e300, 0.3):
            if (name, absurd) in {("squares", 0.3), ("features", 0.3), ("fc_means", 0.3)}:
                continue  # some scans could have it
            wrong = change(answers["site02"], **{name: np.full(values.shape, absurd)})
            refuse(request, answers | {"site02": wrong}, "site02")


ABSURD_SCORES = (
    [{"auc": value} for value in (2.0, -1.0, np.nan, np.inf)]
    + [{"variance": value} for value in (0.0, 2.0, -1.0, np.nan, np.inf, None)]
    + [{"n_patients": value} for value in (10**9, 40, 0, -3, 2.5)]
    + [{"quantiles": value} for value in ({}, {"0.3": 1.0}, {"0.5": np.inf}, {"0.5": np.nan}, {"0.5": 1e12})]
)


@pytest.mark.parametrize("values", ABSURD_SCORES, ids=str)
def test_no_score_may_be_absurd(project, values, tmp_path):
    run = project()
    answers = run.answers[-1]
    wrong = replace(answers["site02"])
    object.__setattr__(wrong, "score", replace(wrong.score))
    for name, value in values.items():  # as somebody writes it who does not ask the class
        object.__setattr__(wrong.score, name, value)
    refuse(run.requests[-1], answers | {"site02": wrong}, "site02")
    if not any(value in (np.inf, {"0.5": np.inf}) for value in values.values()):  # which no file can hold
        write_message(tmp_path / "file", wrong)
        with pytest.raises(BrioError, match="file"):
            read_message(tmp_path / "file")


@pytest.mark.parametrize("field", ["n_right", "brier", "calibration", "spread"])
def test_no_score_of_a_left_out_site_may_be_absurd(project, field):
    run = project(evaluation="leave-one-site-out")
    answers = run.answers[-1]
    own = answers["site02"].score
    for absurd in (np.nan, np.inf, -1.0, 1e12):
        value = getattr(own.calibrated, field)
        value = (
            absurd
            if field in ("n_right", "brier")
            else type(value)(*[absurd] * 4)
            if field == "spread"
            else [absurd] * 6
        )
        if field == "calibration" and np.isnan(absurd):
            continue  # missing, for classes that are separated
        score = replace(own)
        object.__setattr__(score, "calibrated", replace(own.calibrated, **{field: value}))
        wrong = replace(answers["site02"])
        object.__setattr__(wrong, "score", score)
        refuse(run.requests[-1], answers | {"site02": wrong}, "site02")


def test_a_perfect_score_at_every_site_makes_a_model(project, tmp_path):
    run = project()
    answers = {k: replace(one, score=replace(one.score, auc=1.0, variance=0.0)) for k, one in run.answers[-1].items()}
    model = combine(run.requests[-1], list(answers.values()))
    write_model(model, tmp_path / "model")
    evidence = read_model(tmp_path / "model").evidence
    assert evidence == model.evidence
    assert (evidence.auc.value, evidence.pair_weighted_auc.ends) == (1.0, None)


@pytest.mark.parametrize("evaluation", ["site-models", "leave-one-site-out"])
@pytest.mark.parametrize(("controls", "patients"), [(1, 5), (1, 9), (2, 2)])
def test_sites_with_hardly_any_controls_make_a_model(terms, sites, tmp_path, evaluation, controls, patients):
    chosen = {}
    for name, cohort in sites.items():
        parts = [np.flatnonzero(cohort.labels == k)[:n] for k, n in ((0, controls), (1, patients))]
        chosen[name] = cohort.select(np.sort(np.concatenate(parts)))
    result = start(replace(terms, evaluation=evaluation))
    while isinstance(result, Request):
        result = combine(result, [read_again(answer(result, one, 1)) for one in chosen.values()])
    write_model(result, tmp_path / "model")
    assert read_model(tmp_path / "model").members[0].fitted.parameters["coefficients"].isfinite().all()
    with pytest.raises(BrioError, match="of each class"):
        answer(start(terms), sites["site01"].select(sites["site01"].labels == 1), 0)


def read_again(one):
    return decode(encode(one), Path("mail"))


def test_regions_in_another_order_are_seen_in_the_means(terms, pool, sites):
    order = np.array([4, 6, 0, 7, 2, 1, 5, 3])
    turned = {name: rebuild(one, [one.scan(k)[:, order] for k in range(len(one))]) for name, one in sites.items()}
    request = start(terms)
    combine(request, [answer(request, one, LEAST) for one in turned.values()])  # in the same order everywhere
    for name in sites:
        answers = [answer(request, one, LEAST) for one in (sites | {name: turned[name]}).values()]
        refuse(request, answers, f"site '{name}': its mean connectome is not like that of the other sites")


def test_sites_that_collude_know_the_sums_of_the_last_one_and_no_two_sites_are_enough(project, terms, sites):
    run = project()
    shown = run.requests[1].shown[ALL][0]
    own = sum(run.answers[0][name].sums[ALL]["features"] for name in ("site01", "site02", "site03"))
    np.testing.assert_allclose(shown["features"] - own, run.answers[0]["site04"].sums[ALL]["features"], atol=1e-9)
    refuse(run.requests[0], list(run.answers[0].values())[:2], "at least 3 must answer")
    with pytest.raises(BrioError, match="n_sites"):
        start(replace(terms, n_sites=2))
