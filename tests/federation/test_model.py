"""The model is that of pooled scans, and nothing of a site is in the model that leaves it out."""

import functools

import numpy as np
import pytest

from brio import federation
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.federation.messages import ALL
from brio.federation.progress import Progress
from brio.federation.site import Site
from brio.jobs import JobSpec
from brio.models import adapt_model, explain_model, fit_model, predict_scans, read_model, write_model
from brio.models.external import summarise_predictions
from brio.models.folder import write_card
from brio.protocol.metrics import auc
from made_cohorts import rebuild

CONVERGED = 8
"""Iterations after which the 28 coefficients are those of pooled scans."""
LEFT_OUT = {"evaluation": "leave-one-site-out"}


@functools.cache
def fit_pooled(pool, method="log-ridge"):
    fixed = {"least_penalty": 3.0, "largest_penalty": 3.0, "penalties": 1, "choose_by": "source-sites"}
    return fit_model(JobSpec(pool, [method], settings=fixed, device="cpu", exclude=False))


def scale(vector):
    return np.asarray(vector, dtype=float) / np.linalg.norm(vector)


def take_parameters(model):
    fitted = model.members[0].fitted
    return {
        "coefficients": scale(fitted.parameters["coefficients"].double().numpy()),
        "centre": fitted.parameters["centre"].double().numpy(),
        "fill": fitted.state.learned["mean"].double().numpy(),
        "penalty": fitted.details["penalty"],
        "mean": model.mean.double().numpy(),
        "pattern": scale(model.patterns[0].pattern),
    }


def compute_logits(model, cohort):
    return model.compute_logits(Connectomes(cohort)).full


@pytest.mark.parametrize("method", ["log-ridge", "ridge"])
def test_the_converged_model_is_that_of_pooled_scans(method, pool, project):
    own, pooled = project(method=method, iterations=CONVERGED).model, fit_pooled(pool, method)
    theirs = take_parameters(pooled)
    for name, values in take_parameters(own).items():
        np.testing.assert_allclose(values, theirs[name], atol=1e-6, rtol=1e-6, err_msg=name)
    assert own.training.sites == pooled.training.sites
    assert not Connectomes(pool).alive.all(), "no region lacks signal"
    logits = [compute_logits(model, pool) for model in (own, pooled)]
    assert np.corrcoef(*logits)[0, 1] == pytest.approx(1, abs=1e-9)
    assert abs(np.tanh(logits[0] / 2).mean() / 2 + 0.5 - pool.labels.mean()) < 0.02
    assert (
        0.5 < np.polyfit(logits[1], logits[0], 1)[0] < 2
    )  # calibrated by normal margins instead of logistic regression


def test_two_iterations_are_close_to_pooled_scans(pool, project):
    w = [take_parameters(one)["coefficients"] for one in (project().model, fit_pooled(pool, "log-ridge"))]
    assert 1e-6 < np.linalg.norm(w[0] - w[1]) < 0.1


def test_models_and_scores_of_left_out_sites_are_those_of_pooled_scans(pool, sites, project):
    run = project(iterations=CONVERGED, **LEFT_OUT)
    last, answers = run.requests[-1], run.answers[-1]
    right = 0
    for name, cohort in sites.items():
        pooled = fit_pooled(pool.select(pool.sites != name))
        own = Progress(last.terms, last.shown[name])
        np.testing.assert_allclose(scale(own.point.w), take_parameters(pooled)["coefficients"], atol=1e-6, err_msg=name)
        score = answers[name].score
        assert score.auc == pytest.approx(auc(cohort.labels, compute_logits(pooled, cohort)), abs=1e-12)
        slope, intercept = own.calibrate()
        logit = slope * (Site(last.terms, cohort).read(own) @ own.point.w) + intercept
        assert score.calibrated.n_right == ((logit > 0) == cohort.labels).sum()
        right += score.calibrated.n_right
    evidence = run.model.evidence
    assert evidence.auc.value == pytest.approx(np.mean([one.score.auc for one in answers.values()]))
    assert evidence.accuracy == pytest.approx(right / len(pool))
    assert evidence.differences == ()


def test_site_models_are_scored_where_they_are_new(sites, project):
    run = project()
    last = run.requests[-1]
    models = {name: one.sums[ALL]["models"] / sum(last.sites[name]) for name, one in run.answers[1].items()}
    for name, one in run.answers[-1].items():
        others = sum(sum(last.sites[other]) * models[other] for other in models if other != name)
        site = Site(last.terms, sites[name])
        margin = site.read(Progress(last.terms, last.shown[ALL])) @ others
        assert one.score.auc == pytest.approx(auc(site.label, margin), abs=1e-12)
        assert one.score.calibrated is None
    assert "not this model" in run.model.evidence.differences[0]
    assert run.model.evidence.accuracy is None


def test_nothing_of_a_left_out_site_is_in_the_model_that_leaves_it_out(sites, project):
    rng, cohort = np.random.default_rng(1), sites["site02"]
    scans = [scan + rng.standard_normal(scan.shape).astype(np.float32) for scan in map(cohort.scan, range(len(cohort)))]
    table = cohort.participants.assign(label=rng.permutation(cohort.labels))
    noise = rebuild(cohort, scans, table=table, classes=cohort.classes)
    runs = [project(**LEFT_OUT), project({"site02": noise}, **LEFT_OUT)]
    for number, (one, other) in enumerate(zip(*(run.requests[-1].shown["site02"] for run in runs), strict=True)):
        for name in one:
            assert np.array_equal(one[name], other[name]), (number, name)
    others = [run.requests[-1].shown["site01"] for run in runs]
    changed = {
        name
        for pair in zip(*others, strict=True)
        for name in pair[0]
        if not np.array_equal(*(one[name] for one in pair))
    }
    assert {"features", "labels", "models", "product", "direction"} <= changed
    points = [Progress(run.requests[-1].terms, run.requests[-1].shown["site02"]).point.w for run in runs]
    assert np.array_equal(*points)


def test_a_model_is_written_read_and_used(tmp_path, pool, project):
    model = project().model
    write_model(model, tmp_path / "model")
    read = read_model(tmp_path / "model")
    assert read.training.federated
    assert take_parameters(read)["coefficients"] == pytest.approx(take_parameters(model)["coefficients"])
    predictions = predict_scans(read, pool).table
    assert auc(pool.labels, predictions["logit"].to_numpy()) > 0.6
    assert (predictions["flag"] == "known").all()  # it holds no digests, so all scans of its sites are taken for known
    said = summarise_predictions(read, pool, predict_scans(read, pool))
    assert said[0].startswith(
        f"warning: judging by site names, the model was fitted to {len(pool)} of {len(pool)} scans"
    )
    assert said[0].endswith("if the scans are new, give their site another name")
    assert explain_model(read) is not None
    elsewhere = pool.select(pool.sites == "site01")
    with pytest.raises(BrioError, match="judging by site names, the model was fitted to all labelled scans"):
        adapt_model(read, elsewhere)
    elsewhere = rebuild(elsewhere, table=elsewhere.participants.assign(site="elsewhere"))
    assert (predict_scans(read, elsewhere).table["flag"] == "").all()
    adapted = adapt_model(read, elsewhere)
    assert adapted.adaptation is not None
    assert "stores a short salted digest of each scan it was adapted to" in write_card(adapted)
    assert "0.88" in write_card(read)


@pytest.mark.parametrize("words", [{}, LEFT_OUT], ids=["site-models", "leave-one-site-out"])
def test_a_federation_tests_no_threshold(pool, project, words):
    model = project(**words).model
    said = summarise_predictions(model, pool, predict_scans(model, pool))
    assert any("because no threshold was tested" in line for line in said)
    assert "because no threshold was tested" in write_card(model)


def test_ranges_hold_most_scans_of_the_sites(pool, project):
    ranges = project().model.ranges
    assert 50 < ranges.least_frames <= 66
    assert ranges.tr == pytest.approx((2.0, 2.0))
    assert 0.005 < ranges.motion[0] < 0.05
    assert 0.3 < ranges.motion[1] < 1.5
    assert ranges.dead_rois in (0, 1, 2, 3)
    assert 0.1 < ranges.distance < 1.5
    assert project().model.interval_factor > 1


@pytest.mark.parametrize(("n_known", "is_sent"), [(1, False), (9, False), (10, True)])
def test_a_property_that_few_participants_have_is_left_out(sites, terms, n_known, is_sent):
    cohort = sites["site01"]
    motion = np.where(np.arange(len(cohort)) < n_known, 0.1234, np.nan)
    one = rebuild(cohort, table=cohort.participants.assign(mean_fd=motion, tr=np.nan))
    facts = federation.answer(federation.start(terms), one).sums[ALL]["facts"]
    n, total, _ = facts[2]
    assert (n, total) == pytest.approx((n_known, n_known * np.log(0.1234)) if is_sent else (0, 0))
    assert (facts[1] == 0).all()
    assert (facts[[0, 3, 4], 0] == len(cohort)).all()


def test_a_pair_of_regions_with_signal_in_few_participants_is_left_out(sites, terms):
    cohort, sums = sites["site02"], {}
    pairs = Site(terms, cohort, 1).live
    with_signal = np.array([pairs[cohort.labels == k].sum(0) for k in (0, 1)])
    for least in (5, 10):
        sums[least] = Site(terms, cohort, least).describe()
        shown = (with_signal >= least).all(0)
        assert (sums[least]["live"] == np.where(shown, with_signal.sum(0), 0)).all()
        assert (sums[least]["features"][~shown] == 0).all()
        assert (sums[least]["fc_means"][~shown] == 0).all()
    silent = [cohort.scan(k).copy() for k in range(len(cohort))]
    for k, scan in enumerate(silent):
        scan[:, 0] *= k == 3  # region 0 has signal in one scan
    one = federation.answer(federation.start(terms), rebuild(cohort, silent)).sums[ALL]
    assert (one["live"][:7] == 0).all()
    assert (one["features"][:7] == 0).all()


def test_many_scans_of_few_participants_are_few(sites, terms):
    cohort = sites["site01"]
    label = cohort.labels
    ids = [f"p{label[k]}-{np.sum(label[:k] == label[k]) // 2}" for k in range(len(cohort))]  # two scans of each
    table = cohort.participants.assign(participant_id=ids, mean_fd=np.where(np.arange(len(cohort)) < 12, 0.1, np.nan))
    one = rebuild(cohort, table=table, session=[str(k) for k in range(len(cohort))])
    assert (federation.answer(federation.start(terms), one, 5).sums[ALL]["facts"][2] == 0).all()
