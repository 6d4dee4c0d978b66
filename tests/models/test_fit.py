"""Fit a model: what it learns from, its evidence, its interval factor, and what it gives away."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes, HarmonisationRule, harmonise_connectomes
from brio.jobs import JobSpec, run_job
from brio.methods import make_method
from brio.models import add_evidence, fit_model
from brio.models.attacks import fit_halves, read_measured_attacks
from brio.models.evidence import CallRule, Estimate, read_evidence_job
from brio.models.external import summarise_predictions
from brio.models.fit import learn_interval_factor, settle_final_settings
from brio.models.folder import write_card
from brio.models.predict import predict_scans
from brio.models.ranges import ScanRanges, halve_scans
from brio.protocol import leave_one_site_out, make_training_fold
from brio.training import Run
from commands import refuse
from doctored import change_json
from made_cohorts import rebuild
from stored import load_benchmark, make_evidence, rehash

COMBAT = {"harmonise.kind": "combat"}
INNER = {"choose_by": "source-sites", "protocol.validation_sites": 0}


def specify(scans, method="ridge", **options):
    return JobSpec(scans, [method], seeds=1, exclude=False, device="cpu", **options)


@pytest.fixture(scope="module")
def diagnosis_job(cohort, tmp_path_factory):
    """A job that evaluated ridge on the whole cohort."""
    folder = tmp_path_factory.mktemp("evidence") / "job"
    run_job(specify(cohort, settings=INNER), folder)
    return folder


@pytest.mark.parametrize(
    ("words", "covariates", "in_other_words"),
    [
        ({"kind": "combat", "unseen": "pooled"}, True, True),
        ({"kind": "combat", "unseen": "unlabelled"}, True, True),
        ({"kind": "residualise"}, "age,sex", "sex,age"),
    ],
)
def test_harmonisation_is_part_of_the_model(cohort, fit, words, covariates, in_other_words):
    fold = leave_one_site_out(cohort, 0, validation_sites=0)[1]
    (site,) = fold.test_sites
    settings = {f"harmonise.{name}": value for name, value in words.items()} | {"harmonise.covariates": covariates}
    model = fit("ridge", cohort.select(cohort.sites != site), **settings)
    rule = HarmonisationRule(**words, covariates=in_other_words)
    (fitted,) = model.method.fit(harmonise_connectomes(Connectomes(cohort), fold.source, rule), [Run(fold, 0)])
    here = cohort.select(cohort.sites == site)
    np.testing.assert_allclose(model.compute_margins(Connectomes(here)).full[0], fitted.test_logit, atol=1e-6)
    ageless = replace(here, participants=here.participants.drop(columns="age"))
    refuse(r"harmonise\.covariates needs the age of every participant", model.compute_margins, Connectomes(ageless))


def test_a_harmonised_network_is_not_trained_on_sites_without_site_effects(cohort, fit):
    said = []
    spec = specify(cohort, "gcn", settings={"epochs": 2, **COMBAT})
    model = fit_model(spec, validation_sites=("site02", "site04"), say=said.append)
    assert not model.method.settings.refit
    assert set(model.members[0].harmoniser.effects.sites) == set(model.training.sites)
    assert not {"site02", "site04"} & set(model.training.sites)
    fold = model.members[0].fitted.run.fold
    assert set(cohort.sites[fold.validation]) == set(fold.validation_sites) == {"site02", "site04"}
    assert not set(cohort.sites[fold.source]) & {"site02", "site04"}
    assert "sites not used for training (harmonisation is fitted without them): site02, site04" in said
    for settings, words in (
        ({"refit": True, **COMBAT}, "refit=true trains on validation scans"),
        ({"harmonise.unseen": "pooled"}, "needs harmonise.kind=combat"),
    ):
        refuse(words, fit, "gcn", **settings)


@pytest.mark.parametrize(("method", "settings"), [("ridge", {"choose_by": "validation"}), ("gcn", {"refit": False})])
def test_sites_that_only_choose_a_model_are_named_for_each_seed(cohort, method, settings):
    quick = {"epochs": 1} if method == "gcn" else {}
    for sites in ((), ("site02", "site04")):
        said = []
        spec = replace(specify(cohort, method, settings=quick | settings), seeds=2)
        model = fit_model(spec, validation_sites=sites, say=said.append)
        why = "(they only choose the penalty or the epoch)"
        chosen = [member.fitted.run.fold.validation_sites for member in model.members]
        seeds = ["", ""] if sites else [" with seed 0", " with seed 1"]
        expected = [f"sites not used for training{s} {why}: {', '.join(c)}" for s, c in zip(seeds, chosen, strict=True)]
        assert list(dict.fromkeys(expected)) == [line for line in said if "not used for training" in line]


def test_evidence_under_another_harmonisation_is_named(fit, diagnosis_job):
    plain = add_evidence(fit("ridge"), diagnosis_job)
    assert plain.evidence.differences == ()
    assert "smoke run" not in write_card(plain), "one seed is all there is of them"
    pooled = fit("ridge", **COMBAT, **{"harmonise.unseen": "pooled"})
    differences = add_evidence(pooled, diagnosis_job).evidence.differences
    assert differences == (
        "different values of harmonise.kind (none in the evidence, combat in the model), harmonise.unseen (identity in "
        "the evidence, pooled in the model)",
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda job: change_json(job / "summary.json", lambda summary: summary.update(protocol="kfold")),
            "was evaluated by k-fold, which does not test new sites",
        ),
        (lambda job: (job / "predictions.csv").unlink(), "has no stored predictions"),
    ],
)
def test_jobs_that_are_no_evidence_are_refused(diagnosis_job, tmp_path, spoil, words):
    folder = shutil.copytree(diagnosis_job, tmp_path / "job")
    spoil(folder)
    refuse(words, read_evidence_job, rehash(folder), "ridge")


def test_a_rule_that_called_nobody_has_no_accuracy():
    rule = CallRule(wanted_accuracy=0.9, threshold=2.0, n_called=0, n_right=0, n_participants=40)
    assert rule.accuracy == Estimate(None, None, None)
    assert rule.accuracy.write(str) == "unknown"
    assert rule.describe() == "none of 40 participants without a flag was called"
    refuse("one end of an interval", Estimate, 0.5, 0.4, None)


def other_question(cohort):
    """The same scans under other labels or names, and what is said of them."""

    def relabel(classes=cohort.classes, **changed):
        return replace(cohort, participants=cohort.participants.assign(**changed), classes=classes, fingerprint="ab")

    sex = np.arange(len(cohort)) // 2 % 2
    yield relabel(("F", "M"), label=sex), "cannot be evidence for this model: its classes are control and patient"
    n = int((sex != cohort.labels).sum())
    yield relabel(label=sex), f"{n} of {len(cohort)} shared participants have a different label"
    once = cohort.labels.copy()
    once[:2] = once[1::-1] if once[0] != once[1] else 1 - once[:2]
    yield relabel(label=once), f"2 of {len(cohort)} shared participants have a different label"
    yield relabel(("0", "1"), label=1 - cohort.labels), "have a different label"
    names = [f"other-{k}" for k in range(len(cohort))]
    yield relabel(participant_id=names), "has no participant .by participant_id and site. in common"


def test_evidence_of_another_question_is_refused(cohort, diagnosis_job):
    for other, words in other_question(cohort):
        refuse(words, fit_model, specify(other), evidence=diagnosis_job)
    sex = next(other_question(cohort))[0]
    model = fit_model(specify(sex))
    refuse("cannot be matched with the scans of the model; give the cohort", add_evidence, model, diagnosis_job)
    refuse("cannot be evidence", add_evidence, model, diagnosis_job, Connectomes(sex))
    refuse("is not the cohort that the model was fitted to", add_evidence, model, diagnosis_job, Connectomes(cohort))


def test_evidence_of_some_of_the_scans_is_named_with_its_count(cohort, diagnosis_job, tmp_path):
    fewer = cohort.select(np.arange(len(cohort)) > 0)
    (more,) = fit_model(specify(fewer), evidence=diagnosis_job).evidence.differences
    assert more == "the evidence has 1 participant that the model was not fitted to"
    run_job(specify(fewer, settings=INNER), tmp_path / "job")
    said = []
    model = fit_model(specify(cohort), evidence=tmp_path / "job", say=said.append)
    n = len(cohort)
    assert model.evidence.differences == (
        f"the evidence covers only {n - 1} of the {n} participants in the cohort of the model",
    )
    assert any(f"covers only {n - 1} of the {n} participants" in line for line in said)
    assert add_evidence(model, diagnosis_job, Connectomes(cohort)).evidence.differences == ()


def test_evidence_of_other_sites_names_them_wherever_it_is_shown(cohort, diagnosis_job, new_scans):
    part = cohort.select(np.flatnonzero(cohort.sites != "site02"))
    said = []
    model = fit_model(specify(part), evidence=diagnosis_job, say=said.append)
    told = "the model was not fitted to site02"
    assert told in model.evidence.differences
    assert told in said[0]
    assert told in model.evidence.describe()
    card = write_card(model)
    assert card.index(told) < card.index("- Leave one site out")
    lines = summarise_predictions(model, new_scans, predict_scans(model, new_scans, reestimates=2, device="cpu"))
    assert lines[0].startswith("warning")
    assert told in lines[0]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"smoke_run": True}, "smoke run"),
        ({"n_fewest": 9}, "only 9 participants of one class"),
        ({"auc": Estimate(1.0, None, None)}, "the same at all 6 sites"),
        ({"n_two_class_sites": 1}, "only one site"),
        ({}, ""),
    ],
)
def test_evidence_that_supports_no_claim_says_so_in_the_card_and_with_predictions(ridge, new_scans, changes, why):
    found = {"auc": Estimate(0.8, 0.7, 0.9), "n_sites": 6, "n_two_class_sites": 6, "n_fewest": 40} | changes
    model = replace(ridge, evidence=make_evidence(**found))
    reason = model.evidence.no_claim
    assert bool(reason) == bool(changes)
    assert why in reason
    lines = summarise_predictions(model, new_scans, predict_scans(model, new_scans, reestimates=2, device="cpu"))
    assert (f"warning: {reason}" in lines) == bool(changes)
    assert (f"**{reason[:1].upper()}{reason[1:]}.**" in write_card(model)) == bool(changes)


def test_evidence_says_how_many_sites_have_an_auc(cohort, fit, tmp_path):
    one_class = cohort.select((cohort.sites != "site01") | (cohort.labels == 1))
    run_job(specify(one_class, settings=INNER), tmp_path / "job")
    model = add_evidence(fit("ridge", one_class), tmp_path / "job")
    assert model.evidence.describe().startswith("at 6 sites, each left out in turn: AUC, mean over the 5 sites with")
    assert "AUC, mean over the 5 sites with both classes:" in write_card(model)
    assert replace(model.evidence, n_two_class_sites=6).averaged_sites == "sites"


def test_a_model_that_holds_scans_is_fitted_only_where_the_user_says_so(cohort, fit, monkeypatch):
    spec = specify(cohort, "fc-hgnn")
    monkeypatch.setattr("brio.models.fit.prepare_job", lambda *args: pytest.fail("refused before anything is computed"))
    refuse(r"stores values from individual source scans: .*log-ridge, or give --holds-scans", fit_model, spec)
    monkeypatch.undo()
    assert "stores values from individual source scans" not in write_card(fit("ridge"))
    second = write_card(fit("fc-hgnn")).split("\n\n")[1]
    assert second.startswith("**This model stores values from individual source scans**")
    assert "AUC of 0.99" in second or "AUC of 1.0" in second


def test_the_card_says_what_the_holder_of_a_scan_can_tell(cohort, fit):
    assert "**Not evaluated.**" in write_card(fit("ridge"))
    tangent = write_card(replace(fit("ridge"), method=make_method("tangent-ridge"), ranges=ScanRanges()))
    assert "- `shrinkage`: none" in tangent
    assert "Ranges are not stored" in tangent
    assert "ranges above" not in tangent
    measured = read_measured_attacks("ridge")
    card = write_card(fit("ridge"))
    measured_on = "whether the scan was in the training set. This AUC was measured for models fitted to half of the"
    assert (
        f"AUC of {measured.membership:.2f} (0.50: guessing) {measured_on} participants of ABIDE (AAL116) (1,030" in card
    )
    assert "No identifiers" not in card
    assert "has not been measured" in write_card(replace(fit("ridge"), method=make_method("brainood-kl")))
    model = fit_model(specify(cohort), to_evaluate=True)
    assert 0.5 < model.attacks.membership <= 1
    membership = f"{model.attacks.membership:.2f}"
    this = f"participants of this cohort ({len(cohort)} scans from 6 sites)"
    assert f"AUC of {membership} (0.50: guessing) {measured_on} {this}" in write_card(model)
    assert {one.code for one in model.evidence.reasons} == {"short", "dead_rois", "tr", "motion", "edge_sd", "far"}
    assert "| `tr`: repetition time | 0 | 0 |" in write_card(model)


def test_halves_hold_every_participant_once(cohort):
    method = settle_final_settings("ridge", {})
    (_, _, inside), (_, fold, outside) = fit_halves(method, Connectomes(cohort))
    np.testing.assert_array_equal(inside, ~outside)
    np.testing.assert_array_equal(np.sort(fold.source), np.flatnonzero(outside))
    for site in np.unique(cohort.sites):
        for label in (0, 1):
            n = inside[(cohort.sites == site) & (cohort.labels == label)]
            assert abs(n.sum() - (~n).sum()) <= 1


def test_what_the_user_sets_stays():
    assert settle_final_settings("ridge", {"choose_by": "validation"}).settings.choose_by == "validation"
    assert not settle_final_settings("gcn", {"refit": False}).settings.refit


def test_validation_sites_are_chosen_by_name(cohort):
    refuse("validation site 'Atlantis'", make_training_fold, cohort, 0, ["Atlantis"])


def test_halves_are_equally_long_and_share_no_frame(cohort):
    first, second = halve_scans(cohort)
    for i in range(0, len(cohort), 7):
        n = len(cohort.scan(i)) // 2
        np.testing.assert_array_equal(np.concatenate([first.scan(i), second.scan(i)]), cohort.scan(i)[: 2 * n])
        assert len(first.scan(i)) == len(second.scan(i)) == n


def test_scans_that_change_half_way_need_wider_intervals(cohort, ridge):
    connectomes, scans = Connectomes(cohort), np.arange(len(cohort))
    steady = learn_interval_factor(ridge, connectomes, scans)
    frames = cohort.frames.copy()
    rng = np.random.default_rng(0)
    for i in range(len(cohort)):  # a region that goes with another one in one half only
        start, n = int(cohort.starts[i]), int(cohort.n_frames[i])
        half = slice(start + n // 2, start + n) if rng.uniform() < 0.5 else slice(start, start + n // 2)
        frames[half, :4] += 3 * frames[half, 4:5]
    changed = Connectomes(replace(cohort, frames=frames, path=None))
    assert 1 <= steady < 2
    assert learn_interval_factor(ridge, changed, scans) > 1.5 * steady


def begin_with(cohort, first_scan):
    """The same cohort with another first scan."""
    return rebuild(cohort, [first_scan, *(cohort.scan(i) for i in range(1, len(cohort)))])


def test_a_censored_scan_is_halved_as_if_it_had_its_valid_frames_alone(cohort, ridge):
    scan, everyone = cohort.scan(0), np.arange(len(cohort))
    gap = np.full((len(scan) + 10, scan.shape[1]), np.nan, dtype=np.float32)
    censored, plain = begin_with(cohort, np.concatenate([gap, scan])), begin_with(cohort, scan)
    for half, expected in zip(halve_scans(censored), halve_scans(plain), strict=True):
        np.testing.assert_array_equal(half.frames, expected.frames)
    factors = [learn_interval_factor(ridge, Connectomes(one), everyone) for one in (censored, plain)]
    assert factors[0] == factors[1]


def test_scans_with_halves_that_are_too_short_are_left_out_of_the_factor(cohort, ridge):
    scan, everyone = cohort.scan(0), np.arange(len(cohort))
    flat = np.concatenate([np.ones_like(scan), scan])  # its first half has no signal
    expected = learn_interval_factor(ridge, Connectomes(cohort), everyone[1:])
    for changed in (scan[:7], flat):
        assert learn_interval_factor(ridge, Connectomes(begin_with(cohort, changed)), everyone) == expected
    short = Connectomes(begin_with(cohort, scan[:7]))
    with pytest.warns(
        UserWarning, match="none of 1 source scans has two halves with signal and 4 valid frames or more"
    ):
        assert learn_interval_factor(ridge, short, np.array([0])) == 1.0


ROOT = Path(__file__).parents[2]
ATTACKS = load_benchmark("model_attacks")


@pytest.fixture(scope="module")
def connectomes():
    return Connectomes(simulate(Simulation(n_sites=4, per_class=12, n_rois=24, frames=80, seed=2)))


def test_stored_rows_give_labels_and_participants_away(connectomes, tmp_path, monkeypatch):
    """Rows are stored as scans are, however long a network was trained."""
    monkeypatch.setattr(ATTACKS, "settle_final_settings", lambda name, _: settle_final_settings(name, {"epochs": 2}))
    found = ATTACKS.attack_method("fc-hgnn", connectomes, "simulated")
    assert found.rows_diagnosis > 0.95
    assert found.rows_recognised > 0.5 * found.rows
    ATTACKS.add_row(tmp_path / "rows.csv", found)
    ATTACKS.add_row(tmp_path / "rows.csv", found)
    (row,) = csv.DictReader((tmp_path / "rows.csv").open())
    assert (row["method"], row["rows"]) == ("fc-hgnn", str(found.rows))


def test_coefficients_tell_members_from_others(connectomes):
    ridge = ATTACKS.attack_method("ridge", connectomes, "simulated")
    assert ridge.membership > 0.6
    assert ridge.diagnosis_in > ridge.diagnosis_out
    assert ridge.rows is None


def test_the_package_carries_the_figures_of_the_evidence():
    evidence = ROOT / "evidence" / "measurements" / "model-attacks.csv"
    assert (ROOT / "src" / "brio" / "models" / "measured_attacks.csv").read_bytes() == evidence.read_bytes()
    names, page = [row["method"] for row in csv.DictReader(evidence.open())], (ROOT / "docs" / "models.md").read_text()
    assert {*names} == {*ATTACKS.METHODS}, "every kind of model that a cohort can be fitted with"
    for name in names:
        measured = read_measured_attacks(name)
        numbers = (measured.membership, measured.diagnosis_in, measured.diagnosis_out)
        assert f"| `{name}` | {' | '.join(f'{number:.2f}' for number in numbers)} |" in page
        assert (measured.rows is not None) == (name in ATTACKS.ATTACKS_ON_ROWS)
    assert read_measured_attacks("own method") is None
