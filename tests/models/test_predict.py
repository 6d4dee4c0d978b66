"""Probabilities, intervals, calls, and scans that a model should not be asked about."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

from brio import Cohort
from brio.cohort import Atlas
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.models import choose_rule, predict_scans, trace_risk
from brio.models.evidence import (
    TESTED,
    CallRule,
    Estimate,
    ReasonEvidence,
    compare_reasons,
    find_flagged_scans,
    flag_by_other_sites,
    learn_call_rules,
)
from brio.models.external import (
    count_called_participants,
    expect_scores,
    score_labelled_scans,
    summarise_predictions,
    tabulate_scores,
)
from brio.models.folder import write_card
from brio.models.known_scans import list_known_scans
from brio.models.model import check_atlas
from brio.models.predict import PREDICTION_REESTIMATES, ScanPredictions
from brio.models.ranges import check_left_out_sites, check_ranges, find_code, learn_ranges
from brio.report.predictions import render_prediction_page
from commands import refuse
from made_cohorts import rebuild
from stored import load_benchmark, make_evidence


def predict(model, scans):
    return predict_scans(model, scans, reestimates=2, device="cpu")


def summarise(model, scans):
    return "; ".join(summarise_predictions(model, scans, predict(model, scans)))


@pytest.fixture(scope="module")
def predictions(ridge, new_scans):
    return predict_scans(ridge, new_scans, reestimates=8, device="cpu")


def test_probabilities_are_calibrated_margins_and_intervals_hold_them(predictions, ridge, cohort):
    table = predictions.table
    slope, intercept = ridge.members[0].fitted.details["calibration"]
    np.testing.assert_allclose(table["logit"], slope * table["margin"] + intercept)
    np.testing.assert_allclose(table["probability"], expit(table["logit"]))
    assert (table["low"] <= table["probability"]).all()
    assert (table["probability"] <= table["high"]).all()
    _, reestimated = ridge.average_members(ridge.compute_margins(Connectomes(cohort), 8))
    assert reestimated.shape[1] == 11  # the next prime with remainder 3 when divided by 4
    spread = reestimated.std(1, ddof=1)
    half = ridge.interval_factor * student.ppf(0.975, 10) * np.sqrt(2) * spread
    np.testing.assert_allclose(table["high"], expit(predictions.logit + half))
    side = np.sign(reestimated) == np.sign(predictions.logit)[:, None]
    np.testing.assert_allclose(table["agreement"], side.mean(1))
    assert (table["flag"] == "").all(), "scans like those of the model"
    assert (table["notes"] == "").mean() > 0.9
    assert table["distance"].between(0, 1).all()


def test_the_spread_is_that_of_many_drawn_re_estimates_whatever_the_first_frame(ridge, cohort):
    cohort = cohort.select(np.arange(0, len(cohort), 4))
    connectomes = Connectomes(cohort)
    _, balanced = ridge.compute_logits(connectomes, PREDICTION_REESTIMATES)
    request = ridge.request_reestimates(connectomes, 600)
    _, drawn = ridge.average_members(ridge.collect_margins(connectomes, request))
    ratio = balanced.std(1, ddof=1) / drawn.std(1, ddof=1)
    assert 0.97 < np.median(ratio) < 1.03
    assert ratio.std() < 0.08
    turned = rebuild(cohort, [np.roll(cohort.scan(i), 5 + i % 60, axis=0) for i in range(len(cohort))])
    _, again = ridge.compute_logits(Connectomes(turned), PREDICTION_REESTIMATES)
    moved = again.std(1, ddof=1) / balanced.std(1, ddof=1)
    assert moved.std() < 0.06  # 32 draws: 0.13


def test_several_members_are_averaged_and_their_factors_listed(fit, cohort):
    model = fit("brio")
    found = predict(model, cohort)
    by_seed = found.contributions.groupby(["participant_id", "seed"], sort=False)["contribution"].sum()
    margin = by_seed.groupby("participant_id", sort=False).mean()
    np.testing.assert_allclose(margin[cohort.ids], found.table["margin"], atol=1e-5)
    assert set(found.contributions["factor"]) == {"1", "2", "intercept"}


# ---------------------------------------------------------------- calls


def test_accuracy_rises_where_logits_are_informative_and_the_rule_takes_the_largest_share():
    label, logits, _ = make_sites(1)
    risk = trace_risk(label, logits)
    accuracy = [p.accuracy for p in risk]
    assert accuracy[0] > accuracy[9] > accuracy[-1]
    for point in risk:
        chosen = np.abs(logits) >= point.threshold
        assert chosen.sum() == point.n == round(point.coverage * 4000)
        assert point.accuracy == pytest.approx(((logits > 0) == label)[chosen].mean())


def make_sites(seed, n=4000, slope=1.5):
    """Labels that follow calibrated logits, at ten sites."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=n) * slope
    return (rng.uniform(size=n) < expit(logits)).astype(int), logits, np.arange(n) % 10


def test_a_rule_calls_the_most_scans_at_the_wanted_accuracy():
    label, logits, site = make_sites(1)
    rules = learn_call_rules(label, logits, site)
    rule = choose_rule(rules, 0.8)
    called = np.abs(logits) >= rule.threshold
    right = (logits > 0) == label
    assert right[called].mean() >= 0.8
    more = np.abs(logits) >= np.quantile(np.abs(logits), 1 - called.mean() - 0.02)
    assert right[more].mean() < 0.8
    assert rule.accuracy.value == pytest.approx(0.8, abs=0.02)
    assert choose_rule(rules, 1.0) is None
    assert [r.wanted_accuracy for r in rules] == sorted({r.wanted_accuracy for r in rules})


def test_what_a_rule_promises_is_scored_at_sites_that_did_not_choose_it():
    """By hand, site by site: the others choose the threshold."""
    label, logits, site = make_sites(2, n=300, slope=0.8)
    rule = choose_rule(learn_call_rules(label, logits, site), 0.7)
    n_called = n_right = 0
    for e in range(10):
        others = site != e
        chosen = choose_rule(learn_call_rules(label[others], logits[others], site[others]), 0.7)
        called = (site == e) & (np.abs(logits) >= (np.inf if chosen is None else chosen.threshold))
        n_called += called.sum()
        n_right += ((logits > 0) == label)[called].sum()
    assert (rule.n_called, rule.n_right, rule.n_participants) == (n_called, n_right, 300)
    chosen_on_them = ((logits > 0) == label)[np.abs(logits) >= rule.threshold].mean()
    assert rule.accuracy.value < chosen_on_them


def test_a_rule_prints_the_counts_and_the_interval_behind_its_accuracy():
    """Wilson's interval by its formula."""
    rule = CallRule(0.8, 0.5, 21, 18, 140)
    n, p, z = 21, 18 / 21, 1.959963984540054
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    found = rule.accuracy.low, rule.accuracy.high
    np.testing.assert_allclose(found, np.array([centre - half, centre + half]) / (1 + z * z / n))
    assert rule.describe() == (
        "15% of 140 participants without a flag were called, 85.7% of them correctly (18 of 21; 95% interval "
        "65.4 to 95.0%), with the threshold for each site chosen on the other sites"
    )


def test_calls_follow_the_evidence(ridge, new_scans, predictions):
    assert set(predictions.table["predicted"]) == {""}
    everything = CallRule(0.8, 0.0, 30, 26, 40)
    model = replace(ridge, evidence=make_evidence((everything,)))
    found = predict(model, new_scans)
    named = np.where(found.logit > 0, "patient", "control")
    assert found.table["predicted"].tolist() == named.tolist()
    crosses = (found.table["low"] < 0.5) & (found.table["high"] > 0.5)
    np.testing.assert_array_equal(found.table["interval_crosses_half"] == "yes", crosses)
    assert 0 < crosses.sum() < len(new_scans)
    said = summarise_predictions(model, new_scans, found)
    assert any(
        line.startswith(f"{crosses.sum()} of the called scans have an interval that crosses one half") for line in said
    )
    strange = replace(new_scans, frames=new_scans.frames.copy())
    strange.frames[: new_scans.starts[3]] /= 2  # the first three are scans of the model again
    found = predict(model, strange)
    assert found.table["predicted"].tolist() == ["no call"] * 3 + named[3:].tolist()  # flagged: never
    said = " ".join(summarise_predictions(model, strange, found))
    expected = round(0.75 * (len(new_scans) - 3))
    assert f"{len(new_scans) - 3} of {len(new_scans)} participants called" in said
    assert f"expected at a new site: {expected}; at left-out sites, 75% of" in said
    median = float(np.median(np.abs(found.logit)))
    model = replace(ridge, evidence=make_evidence((replace(everything, threshold=median),)))
    called = predict(model, new_scans).table["predicted"] != "no call"
    np.testing.assert_array_equal(called, np.abs(found.logit) >= median)
    model = replace(ridge, evidence=make_evidence((), risk=trace_risk(new_scans.labels, found.logit)))
    assert set(predict(model, new_scans).table["predicted"]) == {"no call"}
    assert "no threshold that calls at least a tenth" in summarise(model, new_scans)


# ---------------------------------------------------------------- flags and notes


def test_a_difference_is_a_flag_only_where_scans_with_it_did_worse(ridge, new_scans, predictions):
    slow = new_scans.participants["tr"].where(np.arange(len(new_scans)) > 2, 3.0)
    strange = replace(new_scans, participants=new_scans.participants.assign(tr=slow))
    evidence = make_evidence((CallRule(0.8, 0.0, 30, 26, 40),))
    for p, flags, notes in ((0.3, "", "tr"), (None, "", "tr"), (0.01, "tr", "")):
        tested = replace(evidence, reasons=(ReasonEvidence("tr", 40, 3, 0.5, 0.7, p),))
        found = predict(replace(ridge, evidence=tested), strange).table
        assert found["flag"].tolist() == [flags] * 3 + [""] * (len(found) - 3)
        assert set(found["notes"][:3]) == {notes}
        assert found["reasons"].str.contains("repetition time 3 s, usually 2 s").sum() == 3
        no_call = [bool(flags)] * 3 + [False] * (len(found) - 3)  # flagged scans only
        assert (found["predicted"] == "no call").tolist() == no_call


def test_reasons_are_tested_over_scans_and_sites():
    """Variances by their formulas: over scans where sites agree, over sites where these differ."""
    n, sites = 120, np.repeat(["a", "b", "c", "d"], 30)
    left_out = pd.DataFrame(False, index=[f"p{i}" for i in range(n)], columns=["foreign", *TESTED])
    left_out["tr"], left_out["short"] = np.isin(sites, ["a", "b"]), np.arange(n) % 15 < 4
    right = np.ones(n, dtype=bool)
    right[:60:3] = False  # a third of the scans of sites a and b
    right[60:120:6] = False  # a sixth of the others
    scans = pd.DataFrame({"fold": sites, "participant_id": left_out.index, "label": 1, "logit": np.where(right, 1, -1)})
    tested = {one.code: one for one in compare_reasons(scans, left_out)}
    tr = tested["tr"]
    assert (tr.n, tr.n_sites, tr.accuracy, tr.accuracy_without) == (60, 2, pytest.approx(2 / 3), pytest.approx(5 / 6))
    z = (2 / 3 - 5 / 6) / np.sqrt(2 / 9 / 60 + 5 / 36 / 60)
    assert tr.p == pytest.approx(norm.cdf(z), rel=1e-4)
    assert tr.is_flag
    assert tested["dead_rois"].n == 0
    assert tested["dead_rois"].p is None
    uneven = scans.assign(logit=np.where((sites == "a") | ((sites == "c") & (np.arange(n) % 3 == 0)), -1, 1))
    worse = {one.code: one for one in compare_reasons(uneven, left_out)}["tr"]
    sums = 30 * 0.5  # site a has no scan right, b all of them; c two thirds, d all
    over_sites = 2 * 2 * sums**2 / 60**2 + 2 * 2 * (30 * (5 / 6 - 2 / 3)) ** 2 / 60**2
    assert worse.p == pytest.approx(norm.cdf((1 / 2 - 5 / 6) / np.sqrt(over_sites)), rel=1e-4)
    assert not worse.is_flag
    left_out["tr"] = sites == "a"  # one site cannot be told from its repetition time
    assert {one.code: one for one in compare_reasons(scans, left_out)}["tr"].p is None


def test_evidence_scans_are_checked_against_the_other_sites(cohort):
    tr = np.where(cohort.sites == "site03", 3.0, 2.0)
    slow = Connectomes(replace(cohort, participants=cohort.participants.assign(tr=tr)))
    left_out = check_left_out_sites(slow)
    np.testing.assert_array_equal(left_out["tr"].loc[cohort.ids], cohort.sites == "site03")
    assert not left_out["foreign"].any()
    scans = pd.DataFrame({"participant_id": cohort.ids[::-1]})
    flag = (ReasonEvidence("tr", 40, 3, 0.5, 0.7, 0.01),)
    np.testing.assert_array_equal(find_flagged_scans(scans, left_out, flag), (cohort.sites == "site03")[::-1])
    assert not find_flagged_scans(scans, left_out, (replace(flag[0], p=0.2),)).any()


def test_ranges_say_nothing_about_fewer_than_ten_participants(cohort):
    """No limit moves when the nine most extreme participants become more extreme, whatever they have."""
    everyone = np.arange(len(cohort))
    table = cohort.participants.assign(tr=np.linspace(1, 3, len(cohort)))

    def learn(participants, scans=everyone):
        return learn_ranges(Connectomes(replace(cohort, participants=participants)), scans)[0]

    before = learn(table)
    for column, other in (("tr", 40.0), ("mean_fd", 50.0)):
        extreme = table[column].nlargest(9).index
        assert learn(table.assign(**{column: table[column].where(~table.index.isin(extreme), other)})) == before
    often = np.r_[everyone, np.repeat(np.argmax(table["tr"]), 12)]  # one participant
    twice = Connectomes(replace(cohort, participants=table).select(often))
    assert learn_ranges(twice, np.arange(len(often)))[0].tr == before.tr
    few = learn(table, np.flatnonzero(np.isin(cohort.sites, ["site01", "site02"])))
    assert set(vars(few).values()) == {None}


def test_names_are_compared_whatever_the_atlas_is_called(ridge, cohort):
    names = [f"region {u}" for u in range(cohort.n_rois)]
    table = pd.DataFrame({"name": names, "code": [str(7 * u) for u in range(cohort.n_rois)]})
    model = replace(ridge, atlas=Atlas("own", table))

    def named(columns):
        return replace(cohort, atlas=Atlas("unknown", pd.DataFrame({"name": columns})))

    check_atlas(model.atlas, named(names))
    check_atlas(model.atlas, named(list(table["code"])))
    with pytest.raises(BrioError, match="in another order: column 1 is region 1, but the model has region 0 there"):
        check_atlas(model.atlas, named([names[1], names[0], *names[2:]]))
    refuse("another atlas: column 3 is Foo", check_atlas, model.atlas, named([*names[:2], "Foo", *names[3:]]))
    unnamed = replace(cohort, atlas=Atlas.unnamed(cohort.n_rois))
    check_atlas(model.atlas, unnamed)
    with pytest.raises(BrioError, match=r"the scans have 12 ROIs, .*; extract time series with that atlas$"):
        check_atlas(model.atlas, replace(cohort, frames=cohort.frames[:, :12], atlas=Atlas.unnamed(12)))
    assert "the ROIs of the scans have no names, so columns are matched by position" in summarise(model, unnamed)


def test_strange_scans_have_a_flag_or_a_note_with_the_reason(ridge, new_scans):
    cohort, rng = new_scans, np.random.default_rng(3)
    order = np.arange(16).reshape(4, 4).T.flatten()  # one region of each planted network side by side
    blend = np.stack([rng.permutation(16) < 2 for _ in range(16)], axis=1) / 2  # an atlas whose regions join two
    silenced = np.arange(16) >= 9
    table, foreign = cohort.participants, r"mean connectome [01]\.[0-9]{2} \(1: nothing in common\)"

    def scans(alter, **changes):
        return rebuild(cohort, [alter(cohort.scan(i)) for i in range(len(cohort))], **changes)

    for strange, column, code, share, reason in (
        (scans(lambda x: x[: len(x) // 2]), "notes", "short", 1, "short: [0-9]+ frames, usually 65 or more"),
        (scans(lambda x: rng.normal(size=x.shape)), "flag", "foreign", 0.6, foreign),  # of 16 regions it looks like any
        (scans(lambda x: x[:, order], atlas=Atlas.unnamed(16)), "flag", "foreign", 0.9, foreign),
        (scans(lambda x: x @ blend, atlas=Atlas.unnamed(16)), "flag", "foreign", 0.6, foreign),
        (replace(cohort, participants=table.assign(tr=2.5)), "notes", "tr", 1, "time 2.5 s, usually 2 s"),
        (replace(cohort, participants=table.assign(mean_fd=2.0)), "notes", "motion", 1, "displacement 2.00 mm"),
        (replace(cohort, participants=table.drop(columns="tr")), "notes", "tr_unknown", 1, "repetition time unknown"),
        (scans(lambda x: x * silenced), "notes", "dead_rois", 1, "[0-9]+ ROIs without signal, us"),
    ):
        found = predict(ridge, strange).table
        has = found[column].str.split().map(lambda codes, code=code: code in codes)
        assert has.mean() >= share, code
        assert found["reasons"][has].str.contains(reason).all(), code
        assert code != "tr_unknown" or (found["flag"] == "").all()


def test_exchanged_classes_are_refused_and_other_names_are_said_where_there_are_labels(ridge, cohort):
    turned = replace(cohort.select([0, 1, 30]), classes=("Patient", "control"))
    refuse("its classes are swapped: 0 is Patient and 1 is control", predict, ridge, turned)
    sexes = replace(ridge, classes=("F", "M"))
    refuse("its classes are swapped", predict, sexes, replace(turned, classes=("male", "female")))
    bare = replace(turned, participants=turned.participants.drop(columns="label"))
    assert len(predict(ridge, bare).table) == 3
    for classes, warned in ((("control", "Patient"), False), (("0", "1"), False), (("control", "depression"), True)):
        text = summarise(ridge, replace(turned, classes=classes))
        assert ("labels are control and depression, but the model has control and patient" in text) == warned
    some, unnamed = replace(turned, classes=("2", "1")), replace(ridge, classes=("0", "1"))
    assert "1 is matched with 1 (patients) and 2 with 0 (controls)" in summarise(unnamed, some)
    assert "1 is matched with patient and 2 with control;" in summarise(ridge, some)
    assert "matched with" not in summarise(unnamed, replace(bare, classes=("2", "1")))
    unnamed_labels = replace(turned, classes=("0", "1"))
    assert "1 is matched with M and 0 with F" in summarise(sexes, unnamed_labels)
    assert "matched with" not in summarise(replace(ridge, classes=("HC", "MDD")), unnamed_labels)


@pytest.mark.parametrize("names", [("ASD", "TC"), ("patients", "healthy controls"), ("MDD", "HC"), ("1", "controls")])
def test_classes_that_mean_the_opposite_are_refused_whatever_their_names(ridge, new_scans, names):
    some = replace(new_scans.select([0, 1, 30]), classes=names)
    for model in (ridge, replace(ridge, classes=("0", "1")), replace(ridge, classes=("TD", "ASD"))):
        refuse("its classes are swapped", predict, model, some)
        assert len(predict(model, replace(some, classes=names[::-1])).table) == 3


def test_a_weak_signal_is_not_foreign_and_a_weak_signal_in_another_order_is():
    cohort = simulate(Simulation(n_sites=4, per_class=8, n_rois=116, frames=150, stable=0.5, dead_share=0.0, seed=1))
    ranges, mean = learn_ranges(Connectomes(cohort), np.flatnonzero(cohort.sites != "site04"))
    here, rng = cohort.select(np.flatnonzero(cohort.sites == "site04")), np.random.default_rng(0)
    foreign = {}
    for name, order in (("own", np.arange(116)), ("another", rng.permutation(116))):
        scans = [here.scan(i)[:, order] for i in range(len(here))]
        noisy = rebuild(here, [scan + 2.5 * scan.std(0) * rng.normal(size=scan.shape) for scan in scans])
        checked = check_ranges(ranges, mean, Connectomes(noisy), np.zeros(len(here), dtype=bool))
        assert (checked["distance"] > ranges.foreign_distance).mean() > 0.8, "far enough to be foreign"
        foreign[name] = find_code(checked["flag"], "foreign").mean()
    assert foreign["own"] < 0.1
    assert foreign["another"] == 1


def test_foreign_scans_are_named(ridge, new_scans):
    frames, order = new_scans.frames.copy(), np.arange(16).reshape(4, 4).T.flatten()
    end = new_scans.starts[2]
    frames[:end] = frames[:end, order]
    lines = summarise(ridge, replace(new_scans, frames=frames)).split("; ")
    (line,) = [line for line in lines if "foreign, which" in line]
    assert line.endswith(f": {new_scans.ids[0]} and {new_scans.ids[1]}")


def test_participants_are_called_not_scans(ridge, new_scans):
    everything = CallRule(wanted_accuracy=0.8, threshold=0.0, n_called=3, n_right=2, n_participants=4)
    model, n = replace(ridge, evidence=make_evidence((everything,))), len(new_scans)
    index = np.r_[:n, :3]
    twice = rebuild(new_scans, index=index, session=["a"] * n + ["b"] * 3)
    found = predict(model, twice)
    assert count_called_participants(twice, found.table) == (n, n, n)
    assert f"{n} of {n} participants called" in " ".join(summarise_predictions(model, twice, found))
    assert f"<b>{n}</b> of {n} participants called" in render_prediction_page(model, twice, found)


def test_flags_and_notes_are_counted_by_their_codes(ridge, cohort, new_scans):
    slow = new_scans.participants["tr"].where(np.arange(len(cohort)) > 2, 3.0)
    strange = replace(new_scans, participants=new_scans.participants.assign(tr=slow)).select(np.arange(6))
    assert not Connectomes(strange).alive.all()  # one scan has ROIs without signal
    lines = summarise(ridge, strange).split("; ")
    assert "6 scans predicted, 0 flagged" in lines
    counts = "4 with a note: repetition time (3), ROIs without signal (1)"
    assert [counts, "see the columns notes and reasons", "notes do not change predictions"] == lines[1:4]
    lines = summarise(ridge, cohort.select(np.arange(6))).split("; ")
    assert "6 scans predicted, 6 flagged: known to the model (6)" in lines
    assert "see the columns flag and reasons" in lines


def test_a_further_named_column_is_named_with_its_option(ridge, cohort):
    names = cohort.atlas.rois["name"].tolist()

    def advise(columns, **words):
        frames = np.random.default_rng(0).normal(size=(60, len(columns)))
        atlas = Atlas("other", pd.DataFrame({"name": columns}))
        one = Cohort.from_scans([frames, frames + 1], site=["A", "A"], label=[0, 1], atlas=atlas, **words)
        with pytest.raises(BrioError) as error:
            predict(ridge, one)
        return str(error.value)

    assert advise([*names, "Global"]).endswith("; add --drop-roi Global")
    assert advise(["CSF", *names, "white matter"]).endswith("; add --drop-roi CSF --drop-roi 'white matter'")
    folder = advise([*names, "Global"], provenance={"kind": "cohort"})
    assert "give the files from which" in folder
    assert folder.endswith("the cohort was imported, with --drop-roi Global")
    assert "they lack 'region 3' and 1 more" in advise([*names[:3], *names[5:]])
    assert "--drop-roi" not in advise([f"n{u}" for u in range(20)]), "no column of another atlas is worth dropping"


# ---------------------------------------------------------------- scans that are not new


def test_single_scans_of_the_model_are_recognised_by_digests_of_their_own(ridge, cohort):
    some = cohort.select([5, 40, 7])
    learned = np.isin(cohort.sites, list(ridge.training.sites))
    np.testing.assert_array_equal(ridge.known_scans.recognise(cohort), learned)
    np.testing.assert_array_equal(ridge.known_scans.recognise(some), learned[[5, 40, 7]])
    frames = cohort.frames.copy()
    frames[cohort.starts[5], 0] += 1
    changed = replace(cohort, frames=frames).select([5, 7])
    assert ridge.known_scans.recognise(changed).tolist() == [False, True]
    assert summarise(ridge, changed).startswith("warning: the model was fitted to 1 of these scans")
    assert predict(ridge, changed).table["flag"].tolist() == ["", "known"]
    assert f"short salted digest of each of the {learned.sum()} scans" in write_card(ridge)
    known, other = ridge.known_scans, list_known_scans(cohort.select(np.arange(50)))
    assert not set(known.digests) & set(other.digests)
    assert other.recognise(cohort).tolist() == [True] * 50 + [False] * (len(cohort) - 50)
    assert list(known.digests) == sorted(known.digests)  # not in the order of the participants
    assert {len(digest) for digest in known.digests} == {8}  # those of two cohorts cannot be compared


def test_wrong_numbers_are_refused(ridge, cohort):
    for words in ({"reestimates": 1}, {"level": 1.0}, {"wanted_accuracy": 0.3}):
        refuse(next(iter(words)).removeprefix("wanted_"), predict_scans, ridge, cohort, device="cpu", **words)


def test_external_scores_count_participants():
    """Whoever was scanned twice with the same result counts as if scanned once."""
    label, again = np.repeat([0, 1], 15), np.r_[np.arange(30), np.arange(7)]
    logit = np.random.default_rng(0).normal(size=30) + label
    once = make_labelled(["A"] * 30, label)
    assert score(once.select(again), logit[again]) == score(once, logit)


def score(cohort, logit):
    """External scores of logits, of which the larger ones are called."""
    called = np.where(np.abs(logit) > 0.5, np.where(logit > 0, "patient", "control"), "no call")
    table = pd.DataFrame({"probability": expit(logit), "predicted": called, "flag": ""})
    return score_labelled_scans(cohort, ScanPredictions(table, None, None, logit))


def make_labelled(site, label):
    rng = np.random.default_rng(3)
    return Cohort.from_scans([rng.normal(size=(20, 3)) for _ in label], site=site, label=label)


def test_external_scores_are_within_sites_as_those_of_the_evidence():
    """Sites differ in the level of the logits and in the share of patients, which the pooled AUC takes for skill."""
    rng = np.random.default_rng(0)
    n = np.array([[30, 10], [10, 30], [20, 24]])  # controls, patients
    site = np.repeat(["A", "B", "C"], n.sum(1))
    label = np.concatenate([np.repeat([0, 1], own) for own in n])
    logit = rng.normal(size=len(label)) + 0.6 * label + np.repeat([-2.0, 2.0, 0.0], n.sum(1))
    cohort = make_labelled(site, label)
    found = score(cohort, logit)
    areas = np.array([roc_auc_score(label[site == e], logit[site == e]) for e in "ABC"])
    assert found.auc.value == pytest.approx(areas.mean())
    low, high = student.interval(0.95, 2, areas.mean(), areas.std(ddof=1) / np.sqrt(3))
    assert (found.auc.low, found.auc.high) == pytest.approx((max(0, low), min(1, high)))
    assert found.pair_weighted_auc.value == pytest.approx(np.average(areas, weights=n.prod(1)))
    assert found.pooled.auc.value == pytest.approx(roc_auc_score(label, logit))
    assert found.pooled.auc.value > found.auc.value + 0.05
    by_site = [((logit > 0) == label)[site == e].mean() for e in "ABC"]
    assert found.accuracy.value == pytest.approx(np.mean(by_site))
    assert (found.n_small_sites, found.warning) == (0, "")
    few = np.flatnonzero((site != "C") | (label == 0) | (np.arange(len(label)) == np.flatnonzero(label)[-1]))
    small = score(cohort.select(few), logit[few])
    warning = "1 of 3 sites with both classes has fewer than 5 participants in a class; a small site counts less"
    assert small.warning.startswith(warning)
    alone = score(cohort.select(site == "A"), logit[site == "A"])
    assert alone.auc == alone.pooled.auc  # DeLong's interval
    assert alone.auc.value == pytest.approx(areas[0])
    right = score(cohort.select(site == "A"), np.where(label == 1, 1.0, -1.0)[site == "A"])
    assert right.auc == right.pooled.auc  # Newcombe's interval, since DeLong's has no width
    assert right.auc.value == right.auc.high == 1
    assert 0.8 < right.auc.low < 0.95
    apart = score(make_labelled(np.where(label == 1, "A", "B"), label), logit)
    assert apart.auc.value is None  # no site has both classes
    assert apart.n_two_class_sites == 0


def test_what_the_evidence_promised_stands_beside_what_was_found():
    label, site = np.tile([0, 1], 30), np.repeat(["A", "B", "C"], 20)
    logit = np.random.default_rng(1).normal(size=60) + label
    rule, known = CallRule(0.8, 0.5, 30, 26, 40), Estimate(0.71, 0.6, 0.8)
    evidence = replace(make_evidence((rule,)), auc=known, pair_weighted_auc=known, accuracy_over_sites=0.66)
    found = score(make_labelled(site, label), logit)
    share = found.n_unflagged / found.n_people
    rows = {row.field: row for row in tabulate_scores(found, expect_scores(evidence, rule, share, found.n_sites))}
    assert rows["auc"].expected == known
    assert rows["accuracy"].expected.value == 0.66
    assert rows["called"].expected.value == 0.75
    assert rows["called"].here.value == pytest.approx((np.abs(logit) > 0.5).mean())
    text = found.describe(("TC", "ASD"), list(rows.values()))
    assert text[0] == "external validation: 30 participants labelled ASD and 30 participants labelled TC at 3 sites"
    assert text[2].split()[-4:] == ["71.0", "(60.0", "to", "80.0)"]
    bare = tabulate_scores(found, {})
    assert all(row.expected.value is None for row in bare)
    assert not any("called" in row.name for row in bare)


def test_scans_that_the_model_has_seen_are_no_external_validation(ridge, cohort):
    assert score_labelled_scans(cohort, predict(ridge, cohort)) is None
    new = np.arange(len(cohort)) % 2 == 0
    scale = np.repeat(np.where(new, 2.0, 1.0), cohort.n_frames)[:, None].astype(np.float32)
    some = replace(cohort, frames=cohort.frames * scale)
    found = score_labelled_scans(some, predict(ridge, some))
    assert (found.n_patients + found.n_controls, found.n_known) == (new.sum(), (~new).sum())
    assert found.describe(some.classes, [])[0].endswith(
        f"; left out: {(~new).sum()} participants with a scan that is known to the model"
    )


def test_a_rule_is_scored_with_flags_that_other_sites_gave():
    """Scans that did badly by chance must not be taken out of the score of a rule for that reason."""
    site = np.repeat(list("ABCD"), 30)
    scans = pd.DataFrame({"fold": site, "participant_id": [f"p{i}" for i in range(120)], "label": 1})
    scans["logit"] = np.where(np.isin(site, ["A", "B"]), -1.0, 1.0)  # all wrong at A and B, where all are short
    left_out = pd.DataFrame(False, index=scans["participant_id"], columns=["foreign", *TESTED])
    left_out["short"] = np.isin(site, ["A", "B"])
    assert compare_reasons(scans, left_out)[0].is_flag
    assert not flag_by_other_sites(scans, left_out).any()  # without A, the scans of one site alone have the reason


def test_few_labelled_scans_are_called_too_few(ridge, new_scans):
    def choose(n_patients, n_controls):
        patients, controls = (np.flatnonzero(new_scans.labels == label) for label in (1, 0))
        return new_scans.select(np.r_[patients[:n_patients], controls[:n_controls]])

    for some, few in ((choose(4, 9), True), (choose(9, 4), True), (choose(5, 5), False)):
        found = predict(ridge, some)
        scores = score_labelled_scans(some, found)
        text = "; ".join(scores.describe(some.classes, tabulate_scores(scores, {})))
        page = render_prediction_page(ridge, some, found)
        right = int(((found.logit > 0) == some.labels).sum())
        assert (f"{right} of 13 correct; fewer than 5 participants in a class are too few to judge" in text) == few
        assert ("Fewer than 5 participants in a class" in page) == few
        for words in ("AUC", "Brier score"):
            assert (f"{words}" in text.split("correct; fewer")[0]) == (not few)
        assert ('<th scope="row">AUC' in page) == (not few)
        assert "unknown" not in text
        assert "called" not in text.split("correct; fewer")[0], "the model was not evaluated"


SITE = "CALTECH"
FLAGGED = {"noise", "another atlas of the same size", "regions in another order", "all left regions first"}
NOTED = {"half the length", "another repetition time"}


@pytest.mark.soak
def test_strange_scans_of_a_left_out_site(abide_folder, tmp_path):
    benchmark = load_benchmark("strange_scans")  # that of all sites
    aal, cc = benchmark.read_atlases(abide_folder, tmp_path)
    own, wide = (cohort.select(cohort.sites == SITE) for cohort in (aal, cc))
    scans = {"ordinary": own} | benchmark.make_strange(own, wide)
    checked = benchmark.check_without(aal, scans, SITE)
    assert {name for name, table in checked.items() if (table["flag"] == "foreign").all()} == FLAGGED
    assert {name for name, table in checked.items() if (table["flag"] == "").all()} == checked.keys() - FLAGGED
    assert {name for name, table in checked.items() if (table["notes"] != "").all()} >= NOTED
