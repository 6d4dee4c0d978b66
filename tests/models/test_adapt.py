"""Adapting a model to a hospital: slope and intercept alone, shrunk towards no change."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy.special import expit, logit

from brio import BrioClassifier
from brio.cohort import Atlas
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.formatting import format_signed
from brio.jobs import JobSpec
from brio.models import PriorWidths, adapt_model, fit_adaptation, fit_model, predict_scans, read_model, write_model
from brio.models.adaptation import choose_widths, expect_gain
from brio.models.evidence import CallRule, Estimate
from brio.models.external import summarise_predictions
from brio.models.fit import find_implied_share
from brio.models.folder import write_card
from brio.protocol.calibration import fit_recalibration
from brio.report.predictions import render_prediction_page
from commands import command, refuse
from stored import make_evidence

WIDE = PriorWidths(100.0, 100.0)
SLOPE = Estimate(0.8, None, None)


def draw_scans(n, rng, slope=1.0, intercept=0.0):
    """Logits of a model, and labels of a hospital where they should have another slope and intercept."""
    logits = rng.normal(size=n)
    return (rng.uniform(size=n) < expit(slope * logits + intercept)).astype(int), logits


# ---------------------------------------------------------------- the fit


def test_without_shrinkage_it_is_the_recalibration_of_cox():
    label, logits = draw_scans(300, np.random.default_rng(1), slope=1.5, intercept=-0.7)
    fitted, free = fit_adaptation(label, logits, WIDE), fit_recalibration(label, logits)
    assert fitted.slope == pytest.approx(free.slope, rel=1e-4)
    assert fitted.intercept == pytest.approx(free.intercept, rel=1e-4)
    assert fitted.slope_se == pytest.approx(free.slope_se, rel=1e-3)
    assert fitted.intercept_se == pytest.approx(free.intercept_se, rel=1e-3)


def test_separated_classes_and_inverse_order_have_a_finite_slope():
    logits = np.array([-3.0, -2.0, 2.0, 3.0])
    for label in ([0, 0, 1, 1], [1, 1, 0, 0]):
        fitted = fit_adaptation(np.array(label), logits, PriorWidths())
        assert 0.3 < fitted.slope < 2


def test_a_given_prevalence_takes_the_place_of_the_share_among_the_scans():
    rng = np.random.default_rng(3)
    label, logits = draw_scans(200_000, rng, intercept=-2.0)
    share = label.mean()
    patients, controls = np.flatnonzero(label), np.flatnonzero(label == 0)
    chosen = np.concatenate([patients[:4000], controls[:4000]])  # half of the scans, but not of the hospital
    fitted = fit_adaptation(label[chosen], logits[chosen], WIDE, prevalence=share)
    assert fitted.intercept == pytest.approx(-2.0, abs=0.1)
    assert fitted.slope == pytest.approx(1.0, abs=0.1)
    assert fit_adaptation(label[chosen], logits[chosen], WIDE).intercept > -0.7


def test_one_class_needs_the_prevalence_and_then_moves_the_intercept_alone():
    logits = np.array([0.3, -1.0, 0.8])
    for label, seen in (
        (np.zeros(3), "no patients among 3 labelled local participants; add patients"),
        (np.ones(3), "no controls among 3 labelled local participants; add controls"),
    ):
        refuse(seen, fit_adaptation, label, logits, PriorWidths())
        fitted = fit_adaptation(label, logits, PriorWidths(), prevalence=0.1, source_share=0.4)
        assert (fitted.slope, fitted.intercept) == (1.0, pytest.approx(logit(0.1) - logit(0.4)))
        assert expect_gain(fitted, label, logits, 0.4).brier_change is None
    for share in (0.0, 1.0, 40.0):
        refuse("give a number above 0 and below 1", fit_adaptation, label, logits, PriorWidths(), prevalence=share)


def test_the_expected_gain_leaves_each_scan_out():
    label, logits = draw_scans(12, np.random.default_rng(4), intercept=-1.0)
    whole = expect_gain(fit_adaptation(label, logits, PriorWidths()), label, logits)
    change = []
    for i in range(12):
        rest = np.delete(np.arange(12), i)
        fitted = fit_adaptation(label[rest], logits[rest], PriorWidths())
        change.append((expit(fitted.apply(logits[i])) - label[i]) ** 2 - (expit(logits[i]) - label[i]) ** 2)
    assert whole.brier_change == pytest.approx(np.mean(change))
    assert whole.brier_change_se == pytest.approx(np.std(change, ddof=1) / 12**0.5)
    squares = (expit(logits) - label) ** 2
    assert whole.brier_before == pytest.approx(np.mean(squares))
    rare = expect_gain(fit_adaptation(label, logits, PriorWidths(), prevalence=0.1), label, logits)
    assert rare.brier_before == pytest.approx(0.1 * squares[label == 1].mean() + 0.9 * squares[label == 0].mean())
    assert rare.brier_change < 0


def test_widths_come_from_the_evidence_unless_they_are_given():
    assert choose_widths(None) == choose_widths(make_evidence()) == PriorWidths()
    known = choose_widths(make_evidence(slope=SLOPE, slope_sd=0.2, intercept_sd=0.7))
    assert asdict(known) == {"slope": pytest.approx(0.25), "intercept": 0.7, "source": "evidence"}
    agreeing = choose_widths(make_evidence(slope=SLOPE, slope_sd=0.0, intercept_sd=0.0))
    assert (agreeing.slope, agreeing.intercept) == (0.1, 0.1)
    assert choose_widths(make_evidence(slope=SLOPE, slope_sd=0.2, intercept_sd=0.7), intercept=0.3).intercept == 0.3
    refuse("give a number above 0", choose_widths, None, slope=0.0)


# ---------------------------------------------------------------- simulated hospitals


@pytest.fixture(scope="module")
def hospital():
    """A model of three sites, and a fourth site of eighty patients and eighty controls."""
    cohort = simulate(Simulation(n_sites=4, per_class=80, n_rois=8, frames=50, stable=0.35, seed=8))
    own = cohort.sites == "site04"
    spec = JobSpec(cohort.select(np.flatnonzero(~own)[::3]), ["ridge"], exclude=False, device="cpu")
    return fit_model(spec), cohort.select(own)


def score_draws(hospital, n_patients, n_controls, share):
    """Brier scores of a hospital with a share of patients, before and after adapting to some of its scans."""
    model, site = hospital
    before, scores = predict_scans(model, site, reestimates=2, device="cpu").logit, []
    for draw in range(30):
        rng = np.random.default_rng(draw)
        patients, controls = (rng.permutation(np.flatnonzero(site.labels == c)) for c in (1, 0))
        patients = patients[: round(80 * share / (1 - share))]
        local = np.concatenate([patients[:n_patients], controls[:n_controls]])
        rest = np.concatenate([patients[n_patients:], controls[n_controls:]])
        fitted = fit_adaptation(site.labels[local], before[local], PriorWidths())
        pair = (before[rest], fitted.apply(before[rest]))
        scores.append([((expit(values) - site.labels[rest]) ** 2).mean() for values in pair])
    return np.array(scores).T


def test_brier_improves_where_the_share_of_patients_was_shifted_and_ten_scans_do_no_harm_elsewhere(hospital):
    before, after = score_draws(hospital, 8, 32, share=0.2)
    assert after.mean() < before.mean() - 0.01
    assert (after < before).mean() > 0.9
    before, after = score_draws(hospital, 5, 5, share=0.5)
    assert abs(after - before).max() < 0.02
    assert after.mean() < before.mean() + 0.002


# ---------------------------------------------------------------- models


@pytest.fixture(scope="module")
def local(cohort):
    """Scans of one site of the small cohort, changed so little that only their digests differ."""
    own = cohort.select(cohort.sites == "site02")
    own = replace(own, frames=own.frames * np.float32(2))
    return own.select(np.flatnonzero((own.labels == 0) | (np.arange(len(own)) % 3 == 0)))


def test_margins_stay_and_probabilities_and_intervals_are_adapted(ridge, local, tmp_path):
    adapted = adapt_model(ridge, local, device="cpu")
    a = adapted.adaptation
    assert (a.n_patients, a.n_controls) == (int(local.labels.sum()), int((1 - local.labels).sum()))
    own, new = (predict_scans(model, local, reestimates=4, device="cpu") for model in (ridge, adapted))
    np.testing.assert_array_equal(own.table["margin"], new.table["margin"])
    for name in ("probability", "low", "high"):
        np.testing.assert_allclose(new.table[name], expit(a.slope * logit(own.table[name]) + a.intercept), rtol=1e-6)
    margins = ridge.compute_margins(Connectomes(local), 4)
    own_logits, new_logits = (model.average_members(margins) for model in (ridge, adapted))
    for own_logit, new_logit in zip(own_logits, new_logits, strict=True):  # of the scans, of their re-estimates
        np.testing.assert_allclose(new_logit, a.slope * own_logit + a.intercept)
    write_model(adapted, tmp_path / "model")
    again = read_model(tmp_path / "model")
    assert again.adaptation == a
    assert adapt_model(again, local, device="cpu").adaptation == a  # it starts from the original
    card = write_card(again)
    assert f"Adapted to {len(local)} local participants ({a.n_patients} patients" in card
    assert f"leaving out each local participant in turn, is {format_signed(a.brier_change, 3)}" in card
    assert "Adapted" not in write_card(ridge)
    sexes = write_card(replace(again, classes=("F", "M")))
    assert f"({a.n_patients} labelled M, {a.n_controls} labelled F)" in sexes
    assert "the share of participants labelled M among these participants" in sexes
    assert "patients" not in sexes.split("## Adapted")[1].split("\n## ")[0]
    assert f"adapted to {len(local)} participants" in repr(again)
    estimator = BrioClassifier.load(tmp_path / "model").set_params(device="cpu")
    np.testing.assert_allclose(estimator.predict_proba(local)[:, 1], new.table["probability"], rtol=1e-9)


def test_scans_without_labels_are_not_read(ridge, local, cohort):
    labels = cohort.participants["label"].where(cohort.participants["participant_id"].isin(local.ids))
    mixed = replace(local, participants=cohort.participants.assign(label=labels))
    mixed = replace(mixed, starts=cohort.starts, n_frames=cohort.n_frames)
    assert adapt_model(ridge, mixed, device="cpu").adaptation == adapt_model(ridge, local, device="cpu").adaptation


def test_wrong_scans_are_refused(ridge, local, cohort):
    bare = replace(local, participants=local.participants.drop(columns="label"))
    turned = replace(local, classes=("Patient", "Control"))
    noise = replace(local, frames=np.random.default_rng(0).normal(size=local.frames.shape).astype(np.float32))
    flag = predict_scans(ridge, noise, reestimates=2, device="cpu").table["flag"]
    noise = noise.select((flag == "foreign").to_numpy())
    own = cohort.select(np.arange(30))
    some = replace(own, frames=np.concatenate([own.frames[: own.starts[3]], 2 * own.frames[own.starts[3] :]]))
    for scans, said in (
        (bare, "no scan has a label"),
        (cohort, "fitted to all labelled scans"),
        (own, "fitted to all labelled scans"),
        (some, "fitted to 3 of the 30 labelled scans"),
        (turned, "are swapped: 0 is Patient"),
        (noise, "none of the [0-9]+ labelled scans resembles those of the model; .* noise; .*--atlas-table"),
    ):
        refuse(said, adapt_model, ridge, scans, device="cpu")


def test_foreign_scans_are_left_out_and_counted(ridge, local):
    frames = local.frames.copy()
    end = local.starts[2]
    frames[:end] = frames[:end, np.arange(16).reshape(4, 4).T.flatten()]  # regions in another order
    strange = replace(local, frames=frames)
    adapted, rest = (adapt_model(ridge, scans, device="cpu") for scans in (strange, local.select(range(2, len(local)))))
    assert replace(adapted.adaptation, n_foreign=0) == rest.adaptation
    assert (adapted.adaptation.n_foreign, rest.adaptation.n_foreign) == (2, 0)
    assert "2 labelled scans were left out (different atlas, different order of regions, or only noise)." in write_card(
        adapted
    )
    assert "left out:" not in write_card(rest)


def test_a_class_that_is_foreign_as_a_whole_is_said_by_names_and_number(ridge, local, tmp_path):
    frames, controls = local.frames.copy(), np.flatnonzero(local.labels == 0)
    for i in controls:
        part = slice(local.starts[i], local.starts[i] + local.n_frames[i])
        frames[part] = frames[part][:, np.arange(16).reshape(4, 4).T.flatten()]
    strange = replace(local, frames=frames)
    listed = rf"left out: {len(controls)} of {len(local)} labelled scans flagged 'foreign' .*{local.ids[controls[0]]}"
    refuse(f"no controls among .*; {listed}", adapt_model, ridge, strange, device="cpu")
    said = []
    adapt_model(ridge, strange, prevalence=0.5, device="cpu", say=said.append)
    assert len(said) == 1
    assert all(name in said[0] for name in local.ids[controls][:10])


def test_the_command_writes_a_model_that_predict_uses(ridge, local, tmp_path):
    write_model(ridge, tmp_path / "model")
    local.save(tmp_path / "local")
    local.select(np.flatnonzero(local.labels == 0)).save(tmp_path / "controls")
    words = ("--device", "cpu")
    said = command("adapt", tmp_path / "model", tmp_path / "local", "--out", tmp_path / "here", *words).succeed()
    assert "Its expected change, estimated by" in said.text
    assert read_model(tmp_path / "here").adaptation == adapt_model(ridge, local, device="cpu").adaptation
    said = command(
        "adapt", tmp_path / "here", tmp_path / "controls", "--prevalence", 0.1, "--out", tmp_path / "next", *words
    ).succeed()
    assert "starts again from the original" in said.text
    assert "The share of patients was given as 10.0%" in said.text
    said = command("adapt", tmp_path / "model", tmp_path / "controls", "--out", tmp_path / "x", *words).refuse()
    assert "--prevalence" in said.err
    assert not (tmp_path / "x").exists()
    words = (*words, "--reestimates", 2, "--out", tmp_path / "p")
    said = command("predict", tmp_path / "here", tmp_path / "local", *words)
    assert f"adapted to {len(local)} participants of one hospital" in said.text
    assert "the model was adapted to all of these scans" in said.text
    page = (tmp_path / "p" / "predictions.html").read_text(encoding="utf-8")
    assert f"Adapted to {len(local)} local participants" in page


def test_adapt_says_what_speaks_against_these_scans(ridge, local, cohort, tmp_path):
    write_model(ridge, tmp_path / "model")
    unnamed = replace(local, atlas=Atlas.unnamed(len(local.atlas)))
    two = cohort.select(np.isin(cohort.sites, ["site02", "site03"]))
    several = replace(two, frames=two.frames * np.float32(2), classes=("HC", "MDD"))
    few = local.select(np.r_[np.flatnonzero(local.labels == 0)[:3], np.flatnonzero(local.labels == 1)[:2]])
    controls = local.select(np.flatnonzero(local.labels == 0))
    remarks = {
        "unnamed": (unnamed, (), "the ROIs of the scans have no names, so columns are matched by position"),
        "several": (several, (), "are from 2 sites (site02 and site03), but a model is adapted to one"),
        "classes": (several, (), "HC with control; if this is wrong, import the scans again with"),
        "few": (few, (), "Caution: the gain from fewer than 10 local participants was not measured"),
        "controls": (controls, ("--prevalence", 0.2), "Caution: all local participants are of one class"),
    }
    for name, (scans, words, _) in remarks.items():
        scans.save(tmp_path / name)
        words = (*words, "--out", tmp_path / f"{name}-model", "--device", "cpu")
        said = command("adapt", tmp_path / "model", tmp_path / name, *words).succeed()
        assert [other for other, (_, _, text) in remarks.items() if text in said.text] == (
            ["several", "classes"] if scans is several else [name]
        ), said.text


def test_networks_balance_the_classes_so_their_logits_stand_for_equal_shares(fit, ridge):
    n_controls, n_patients = np.array(list(ridge.training.sites.values())).sum(0)
    assert find_implied_share(ridge) == n_patients / (n_patients + n_controls)
    uneven = replace(fit("gcn"), training=replace(ridge.training, sites={"A": (30, 10)}))
    assert find_implied_share(uneven) == 0.5
    assert find_implied_share(replace(ridge, training=uneven.training)) == 0.25


def test_the_expected_accuracy_is_named_as_that_of_the_original(ridge, local):
    model = replace(ridge, evidence=make_evidence((CallRule(1.0, 0.0, 10, 9, 10),)))
    new = replace(local, frames=local.frames * np.float32(2))  # the adapted model knows the local scans
    adapted = adapt_model(model, local, device="cpu")
    for fitted, whose, is_adapted in ((model, "", False), (adapted, "for the original model ", True)):
        predictions = predict_scans(fitted, new, reestimates=2, device="cpu")
        text = "; ".join(summarise_predictions(fitted, new, predictions))
        assert f"expected {whose}at a new site: 12; at left-out sites, 100% of 10 participants without a flag" in text
        assert ("the adapted model was not evaluated" in text) == is_adapted
        assert ("Original model at new sites" in render_prediction_page(fitted, new, predictions)) == is_adapted
