"""Removal of covariates: slopes against scikit-learn, planted confounds and effects, leakage, and gaps."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score

from brio import run
from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import (
    Connectomes,
    HarmonisationRule,
    HarmonisedConnectomes,
    ReestimateRequest,
    fit_harmoniser,
    harmonise_connectomes,
)
from brio.connectome.harmonisation import fit_residualiser
from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.settings import replace_values
from brio.training import Run
from cohort.file_layouts import refuse
from made_cohorts import rebuild

RULE = HarmonisationRule("residualise", covariates="age,sex,motion")


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return simulate(Simulation(n_sites=5, per_class=6, n_rois=12, frames=60, dead_share=0.05))


@pytest.fixture(scope="module")
def graphs(cohort) -> Connectomes:
    return Connectomes(cohort)


def test_slopes_are_those_of_a_regression_with_an_intercept_for_each_group():
    rng = np.random.default_rng(0)
    site = np.repeat(["ant", "bee", "cat"], [9, 14, 6])
    known = rng.normal(size=(29, 3)) + (site == "bee")[:, None]
    X = rng.normal(size=(29, 20)) + known @ rng.normal(size=(3, 20)) + 3 * (site == "cat")[:, None]
    fitted = fit_residualiser(X, site, known)
    one_hot = (site[:, None] == np.unique(site)).astype(float)
    model = LinearRegression(fit_intercept=False).fit(np.hstack([one_hot, known]), X)
    np.testing.assert_allclose(fitted.slope, model.coef_[:, 3:].T, atol=1e-12)
    left = fitted.apply(X, site, known)
    refit = LinearRegression(fit_intercept=False).fit(np.hstack([one_hot, known]), left)
    np.testing.assert_allclose(refit.coef_[:, 3:], 0, atol=1e-12)


def plant(rng, site, sign, confound, effect):
    """Features of one site: age moves ten of them, the class ten others; patients are older where the sign is 1."""
    label = np.repeat([0, 1], 60)
    age = rng.normal(size=120) + sign * 0.8 * (2 * label - 1)
    X = rng.normal(size=(120, 30)) + rng.normal(size=30)
    X[:, :10] += confound * age[:, None]
    X[:, 10:20] += effect * (2 * label[:, None] - 1)
    return X, np.full(120, site), age[:, None], label


@pytest.mark.parametrize("effect", [0.0, 0.5])
def test_a_planted_confound_is_removed_and_a_planted_effect_kept(effect):
    """At an unseen site, patients are younger instead of older: who reads age there is wrong."""
    rng = np.random.default_rng(3)
    parts = [plant(rng, f"s{e}", 1, 1.0, effect) for e in range(4)]
    X, site, age, label = (np.concatenate(values) for values in zip(*parts, strict=True))
    X_new, site_new, age_new, label_new = plant(rng, "new", -1, 1.0, effect)
    fitted = fit_residualiser(X, np.char.add(site, label.astype(str)), age)
    auc = []
    for train, test in ((X, X_new), (fitted.apply(X, site, age), fitted.apply(X_new, site_new, age_new))):
        classifier = LogisticRegression(C=0.01, max_iter=500).fit(train, label)
        auc.append(roc_auc_score(label_new, classifier.decision_function(test)))
    if effect == 0:
        assert auc[0] < 0.2
        assert 0.35 < auc[1] < 0.65
    else:
        assert auc[1] > 0.95
        assert auc[1] > auc[0] + 0.05
        kept = LinearRegression().fit(label[:, None], fitted.apply(X, site, age)[:, 10:20]).coef_.mean()
        assert kept == pytest.approx(2 * effect, rel=0.1)  # the effect itself, not only its rank


def test_connectomes_lose_the_covariates(graphs, cohort):
    source = np.flatnonzero(cohort.sites <= "site04")
    flat = harmonise_connectomes(graphs, source, RULE)
    slope = fit_harmoniser(flat, source, RULE).effects.slope
    before = fit_harmoniser(graphs, source, RULE).effects.slope
    whole = graphs.alive[source].all(0).numpy()  # elsewhere, ROIs without signal are filled with the mean
    u, v = np.triu_indices(12, 1)
    assert np.abs(slope[:, whole[u] & whole[v]]).max() < 1e-6 < np.abs(before).max()
    asked = ReestimateRequest(source[:3], np.full(3, 4), 0, 0, 2)
    (_, plain), (_, mapped) = (next(g.iterate_reestimates(asked)) for g in (graphs, flat))
    shift = (graphs.full - flat.full)[torch.from_numpy(source[:3])].unsqueeze(1)
    torch.testing.assert_close(plain - mapped, shift.expand_as(plain), atol=1e-6, rtol=0)


def spoil(cohort: Cohort, site: str) -> Cohort:
    """Replace scans, labels and covariates of a site by noise."""
    rng = np.random.default_rng(1)
    here = cohort.sites == site
    scans = [rng.normal(size=cohort.scan(i).shape) if h else cohort.scan(i) for i, h in enumerate(here)]
    table = cohort.participants[["age", "sex", "mean_fd", "tr"]].copy()
    table.loc[here, "age"] = rng.uniform(60, 90, here.sum())
    table.loc[here, "sex"] = "F"
    table.loc[here, "mean_fd"] = np.nan
    return rebuild(cohort, scans, label=np.where(here, 1 - cohort.labels, cohort.labels), covariates=table)


COMBAT = [HarmonisationRule("combat", "identity"), HarmonisationRule("combat", "pooled", covariates=True)]


@pytest.mark.parametrize(
    ("method", "rule"), [("ridge", RULE), ("log-ridge", RULE), *(("ridge", one) for one in COMBAT)]
)
def test_the_test_site_moves_no_weight(graphs, cohort, method, rule):
    other = Connectomes(spoil(cohort, "site05"))
    fold = next(f for f in leave_one_site_out(cohort, 0) if f.name == "site05")
    fitted = []
    for one in (graphs, other):
        (single,) = make_method(method).fit(harmonise_connectomes(one, fold.source, rule), [Run(fold, 0)])
        fitted.append((single, fit_harmoniser(one, fold.source, rule)))
    (first, one), (second, two) = fitted
    for name, value in vars(one.effects).items():
        assert np.array_equal(value, vars(two.effects)[name]), name
    assert np.array_equal(one.covariate_mean, two.covariate_mean)
    assert first.parameters.keys() == second.parameters.keys()
    for name, value in first.parameters.items():
        assert torch.equal(value, second.parameters[name]), name
    assert first.validation_auc == second.validation_auc
    assert not np.array_equal(first.test_logit, second.test_logit)


def test_gaps_and_what_the_source_sites_never_had(cohort):
    table = cohort.participants.copy()
    source = np.flatnonzero(cohort.sites != "site05")
    table.loc[source, "sex"] = "M"  # one sex alone at the source sites
    table.loc[source[:7], "mean_fd"] = np.nan
    test = np.flatnonzero(cohort.sites == "site05")
    table.loc[test[0], "mean_fd"] = np.nan
    graphs = Connectomes(rebuild(cohort, table=table))
    harmoniser = fit_harmoniser(graphs, source, RULE)
    assert RULE.covariate_names == ("sex", "age", "motion")
    assert not harmoniser.effects.slope[0].any()
    assert np.isfinite(harmoniser.effects.slope).all()
    motion = table["mean_fd"].to_numpy()[source]
    assert harmoniser.covariate_mean[2] == pytest.approx(np.nanmean(motion))
    # a gap is the mean of the source scans, and women at the new site are treated as men
    filled = table.assign(mean_fd=table["mean_fd"].fillna(np.nanmean(motion)), sex="M")
    twin = Connectomes(rebuild(cohort, table=filled))
    found, expected = (HarmonisedConnectomes(one, harmoniser).full for one in (graphs, twin))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert not torch.allclose(found, graphs.full, atol=1e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "residualise"}, "'harmonise.covariates'=False: must be one or more of sex, age, motion"),
        ({"kind": "residualise", "covariates": "age,height"}, "=age,height: must be one or more of sex, age, motion"),
        ({"kind": "residualise", "covariates": "true"}, "must be one or more of"),
        ({"kind": "residualise", "covariates": "age", "unseen": "pooled"}, "unseen'=pooled: must be left out"),
        ({"kind": "combat", "covariates": "age"}, "must be true or false, unless harmonise.kind is residualise"),
        ({"covariates": "age"}, "must be true or false, unless harmonise.kind is residualise"),
        ({"kind": "residuals"}, "'harmonise.kind'=residuals: must be combat, none or residualise"),
    ],
)
def test_rules_that_are_refused(values, message):
    refuse(message, replace_values, HarmonisationRule(), values, "harmonise.")


def test_a_rule_has_one_spelling():
    for text in ("motion, Age", "age,motion", "age,age,motion"):
        rule = replace_values(HarmonisationRule(), {"kind": "residualise", "covariates": text}, "harmonise.")
        assert dataclasses.asdict(rule) == {"kind": "residualise", "unseen": "identity", "covariates": "age,motion"}
        assert str(rule) == "without effects of age, motion"
        assert not rule.transductive
    for value in (True, "true", "yes"):  # what ComBat was before
        rule = replace_values(HarmonisationRule(), {"kind": "combat", "covariates": value}, "harmonise.")
        assert dataclasses.asdict(rule) == {"kind": "combat", "unseen": "identity", "covariates": True}
        assert rule.covariates is True
    assert HarmonisationRule("combat").covariates is False


def test_a_job_says_what_was_removed_and_what_is_missing(cohort, tmp_path):
    settings = {"harmonise.kind": "residualise", "harmonise.covariates": "age,motion"}
    options = {"device": "cpu", "settings": settings, "exclude": False}
    result = run(cohort, ["ridge"], out=tmp_path / "job", folds=["site01"], **options)
    assert result.summary.harmonise == "without effects of age, motion"
    assert not result.summary.methods["ridge"].transductive

    table = cohort.participants
    fourth, first_site = table.index == 4, cohort.sites == "site01"
    settings["harmonise.covariates"] = RULE.covariates
    for changed, message in (
        (table.drop(columns="mean_fd"), "needs the motion .* has no column 'mean_fd'"),
        (table.assign(age=table["age"].mask(fourth)), r"needs the age .*, but 1 of \d+ scans have no value"),
        (table.assign(sex=table["sex"].mask(fourth, "X")), "sex of participant sim0005 is 'X'; write F or M"),
        (
            table.assign(mean_fd=table["mean_fd"].where(first_site)),
            "fold site01: no source scan has a value for motion",
        ),
    ):
        refuse(message, run, rebuild(cohort, table=changed), ["ridge"], out=tmp_path / "o", **options)
        assert not (tmp_path / "o").exists()
