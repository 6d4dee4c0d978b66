"""What an answer means: counts, predictive values, calibration and subgroups against loops and planted truth."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import nct, t
from sklearn.metrics import roc_auc_score, roc_curve

from brio.cohort.covariates import ClassNames
from brio.report.answers import (
    SMALLEST_CLASS,
    Answers,
    OperatingPoint,
    balanced_accuracy_allowed,
    judge_transfer,
    judge_usability,
    score_subgroups,
)
from brio.report.evidence import EvidenceArm, read_evidence
from brio.report.html import make_environment
from brio.report.html.paper import write_paragraph
from brio.results import MetricSummary, StoredJob, summarise_scores
from doctored import change_json, make_method, make_summary


def make_arm(predictions, *, groups=None, facts=None, protocol="loso", **means):
    """An arm with these predictions; scores that are not given are those of the predictions."""
    scores = predictions.groupby("fold").apply(lambda p: roc_auc_score(p["label"], p["margin"]), include_groups=False)
    rows = pd.DataFrame({"method": "ridge", "fold": scores.index, "seed": 0, "auc": scores.to_numpy()})
    rows = rows.assign(n_test=10, n_source=90, n_validation=0)
    rates = {"balanced_acc": 0.65, "sensitivity": 0.6, "specificity": 0.7, "acc": 0.65, "brier": 0.2} | means
    auc = summarise_scores(scores.to_numpy(), limits=(0.0, 1.0))
    auc = dataclasses.replace(auc, mean=rates.pop("auc", auc.mean))
    metrics = {m: MetricSummary(mean=value, interval=(value - 0.05, value + 0.05), n=20) for m, value in rates.items()}
    summary = make_summary({"ridge": make_method(auc=auc, **metrics)}, scores.index, protocol=protocol)
    predictions = predictions.assign(method="ridge")
    job = StoredJob(Path("."), summary, rows, predictions=predictions, groups=groups, cohort_facts=facts)
    return EvidenceArm("ridge", "ridge", job, plain=True)


def draw(sites=8, per_site=60, slope=1.0, seed=0, seeds=1):
    """Predictions whose calibrated logits would be ``slope`` times the stored ones."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(scale=1.5, size=sites * per_site)
    table = pd.DataFrame(
        {
            "fold": np.repeat([f"s{k}" for k in range(sites)], per_site),
            "participant_id": [f"p{k:04d}" for k in range(len(truth))],
            "label": (rng.random(len(truth)) < expit(truth)).astype(int),
            "margin": truth / slope,
        }
    )
    table = table.assign(site=table["fold"], probability=expit(table["margin"]))
    return pd.concat([table.assign(seed=k) for k in range(seeds)], ignore_index=True)


def point(sensitivity, specificity):
    return OperatingPoint("", MetricSummary(mean=sensitivity), MetricSummary(mean=specificity))


def say(sentence, answers, **differences):
    """What the page says about the answers of a method, with these comparisons with ridge."""
    comparison = SimpleNamespace(reference=SimpleNamespace(title="ridge regression"), differences=differences)
    evidence = SimpleNamespace(classes=ClassNames("TD", "ASD"), comparison=comparison)
    template = make_environment(True).get_template("answers.html.j2").make_module({"evidence": evidence})
    return " ".join(str(getattr(template, sentence)(answers)).split())


def test_predictive_values_are_shares_of_counted_people():
    rng = np.random.default_rng(0)
    ill = rng.random(400_000) < 0.2
    positive = np.where(ill, rng.random(len(ill)) < 0.7, rng.random(len(ill)) < 0.15)
    wanted = ill[positive].mean(), (~ill)[~positive].mean()
    assert point(0.7, 0.85).predictive_values(0.2) == pytest.approx(wanted, abs=0.005)
    assert np.isnan(point(0.0, 1.0).predictive_values(0.3)[0]), "nobody gets a positive answer"


@pytest.mark.parametrize("share", [0.001, 0.333, 0.5, 0.999])
def test_a_thousand_people_are_a_thousand(share):
    people = dataclasses.astuple(point(0.613, 0.702).count_decisions(1_000, share))
    assert sum(people) == 1_000
    assert min(people) >= 0
    assert people[0] + people[1] == round(1_000 * share)


def test_decisions_count_every_participant_once():
    table = draw(seeds=3)
    table["margin"] += np.random.default_rng(1).normal(scale=2, size=len(table))  # seeds disagree
    confusion = Answers(make_arm(table)).confusion
    counts = {(y, d): 0 for y in (0, 1) for d in (False, True)}
    for _, own in table.groupby("participant_id"):
        counts[own["label"].iloc[0], own["margin"].mean() > 0] += 1
    assert (confusion.true_positive, confusion.false_negative) == (counts[1, True], counts[1, False])
    assert (confusion.false_positive, confusion.true_negative) == (counts[0, True], counts[0, False])
    assert confusion.prevalence == round(table["label"].mean(), 3)


def test_sensitivity_at_90_percent_specificity_is_the_mean_over_sites():
    table = draw()
    rates = []
    for _, own in table.groupby("fold"):
        false, true, _ = roc_curve(own["label"], own["margin"])
        rates.append(np.interp(0.1, false, true))
    own, high = Answers(make_arm(table)).points
    assert own.sensitivity.mean == 0.6, "that of the summary"
    assert high.specificity.mean == 0.9
    assert high.sensitivity.mean == pytest.approx(np.mean(rates))
    assert high.sensitivity.interval[0] < np.mean(rates) < high.sensitivity.interval[1]


@pytest.mark.parametrize(
    ("slope", "says"), [(0.5, "too extreme."), (1.0, "1 is ideal"), (2.0, "probabilities are too cautious.")]
)
def test_calibration_at_new_sites_finds_the_planted_slope(slope, says):
    answers = Answers(make_arm(draw(sites=12, per_site=150, slope=slope)))
    assert answers.calibration.slope.low < slope < answers.calibration.slope.high
    assert answers.calibration.slope.mean == pytest.approx(slope, rel=0.15)
    assert says in say("calibration", answers)


def test_what_was_detectable_has_80_percent_power():
    table = draw()
    answers = Answers(make_arm(table))
    scores = np.array([roc_auc_score(own["label"], own["margin"]) for _, own in table.groupby("fold")])
    n = len(scores)
    error = scores.std(ddof=1) * np.sqrt(1 / n + 1 / (n - 2))
    shift, critical = (answers.detectable_auc - 0.5) / error, t.ppf(0.975, n - 1)
    assert nct.sf(critical, n - 1, shift) + nct.cdf(-critical, n - 1, shift) == pytest.approx(0.8, abs=1e-3)
    rows = {"gcn": {"detectable_in_family": 0.0312}, "gat": {"detectable_in_family": 0.05}}
    assert "The smallest detectable difference from ridge regression is 3.1 to 5.0 points of AUC (80% power" in say(
        "detectable", answers, **rows
    )
    assert "had to be" not in say("detectable", answers)


def test_few_sites_could_have_shown_nothing():
    wide = draw(sites=6).assign(margin=lambda p: p["margin"] * np.where(p["fold"] < "s3", 1, -1))
    answers = Answers(make_arm(wide))
    assert answers.detectable_auc is None, "no AUC above 100%"
    text = say("detectable", answers)
    assert text.startswith("With 6 sites and this spread of AUCs, a test cannot distinguish even a mean AUC")


def test_calibration_says_of_what_it_is_and_repeats_the_share_of_the_slider():
    table = pd.concat([draw(sites=6, per_site=21, seed=1, seeds=2), draw(sites=1, per_site=7, seed=2, seeds=2)])
    table["participant_id"] += np.where(np.arange(len(table)) < 6 * 21 * 2, "", "b")
    table.loc[table["participant_id"].str.endswith("b"), ["fold", "site"]] = "s9"
    answers = Answers(make_arm(table))
    by_site = table.groupby("fold")["label"].mean().mean()
    share = answers.confusion.prevalence
    assert f"{100 * share:.1f}" != f"{100 * by_site:.1f}", "sites of unequal size"
    text = say("calibration", answers)
    mean = table["probability"].mean()
    assert text.startswith(f"ridge regression (2 seeds averaged): the mean predicted probability is {100 * mean:.1f}%")
    assert f"(share of participants labelled ASD: {100 * share:.1f}%)." in text
    assert "The slope, fitted at each test site and averaged over 7 sites, is " in text


def test_balanced_accuracy_that_an_auc_allows():
    rng = np.random.default_rng(0)
    low, high = rng.normal(size=200_000), rng.normal(loc=1.2, size=200_000)
    auc = roc_auc_score(np.repeat([0, 1], len(low)), np.concatenate([low, high]))
    best = max(((high > cut).mean() + (low <= cut).mean()) / 2 for cut in np.linspace(0, 1.2, 25))
    assert balanced_accuracy_allowed(auc) == pytest.approx(best, abs=0.003)


def test_a_threshold_that_does_not_fit_is_explained():
    biased = Answers(make_arm(draw(), auc=0.75, balanced_acc=0.58, sensitivity=0.9, specificity=0.26))
    text = say("notes", biased)
    assert (
        "An AUC of 75% allows a balanced accuracy of about 68%, but the method's own threshold reaches only 58%" in text
    )
    assert "sensitivity 90%, specificity 26%: too many positive predictions" in text
    fits = Answers(make_arm(draw(), auc=0.75, balanced_acc=0.68))
    noise = draw().assign(margin=lambda p: np.random.default_rng(9).normal(size=len(p)))
    chance = Answers(make_arm(noise, auc=0.54, balanced_acc=0.46))
    assert not any("allows" in say("notes", answers) for answers in (fits, chance)), "no threshold helps a random order"


@pytest.mark.parametrize(
    ("change", "answer", "says"),
    [
        ({"sensitivity": 0.63}, "No", "too little for a decision (a positive prediction multiplies the odds by 2.1"),
        ({"sensitivity": 0.55, "specificity": 0.55}, "No", "hardly changes the odds"),
        ({"sensitivity": 0.95, "specificity": 0.95}, "Not yet", "only a prospective study can confirm this"),
        ({"protocol": "kfold"}, "No", "the evaluation says nothing about unseen sites"),
        # answers without errors, and answers that are never given, have words
        (
            {"sensitivity": 1, "specificity": 1},
            "Not yet",
            "no positive prediction was wrong and no negative prediction was wrong",
        ),
        (
            {"sensitivity": 0, "specificity": 1},
            "No",
            "for an individual (no prediction was positive and a negative prediction",
        ),
    ],
)
def test_usable_or_not(change, answer, says):
    answers = Answers(make_arm(draw(), **change))
    judged = judge_usability(answers, judge_transfer(answers))
    assert judged.answer == answer
    assert says in judged.sentence
    assert not re.search(r"\b(inf|nan)\b", judged.sentence)


@pytest.mark.parametrize(
    ("change", "answer"), [({}, "Yes"), ({"protocol": "kfold"}, "Not tested"), ({"n": 1}, "Not known")]
)
def test_better_than_chance_at_unseen_sites_or_not(change, answer):
    change = dict(change)
    table = draw(sites=change.pop("n", 8))
    assert judge_transfer(Answers(make_arm(table, **change))).answer == answer


def test_sites_with_the_same_auc_have_no_test():
    equal = Answers(make_arm(draw().assign(margin=lambda p: p["label"] - 0.5)))
    judged = judge_transfer(equal)
    assert (judged.answer, judged.reason) == ("Not known", equal.explain_no_claim())
    assert judge_usability(equal, judged) == judged
    assert "same at all 8 sites" in judged.reason


@pytest.mark.parametrize(
    ("change", "smoke"),
    [
        ({}, "1 seed"),
        ({"slope": 1.0, "sites": 1}, ""),
        ({"per_site": 2}, ""),  # fewer than ten of a class
        ({"perfect": True}, ""),
        ({"perfect": True}, "1 seed"),
        ({"perfect": True, "per_site": 2}, ""),
    ],
)
def test_what_supports_no_claim_has_one_answer_to_both_questions(change, smoke):
    """Whatever the predictions are: perfect ones of a smoke run change no odds."""
    perfect = change.get("perfect")
    table = draw(**{name: value for name, value in change.items() if name != "perfect"})
    if change.get("per_site"):
        table["label"] = np.arange(len(table)) % 2
    if perfect:
        table["margin"] = table["label"] - 0.5
    rates = {"sensitivity": 1.0, "specificity": 1.0, "balanced_acc": 1.0} if perfect else {}
    answers = Answers(make_arm(table, **rates))
    transfer = judge_transfer(answers, smoke)
    assert transfer == judge_usability(answers, transfer)
    assert (transfer.answer, transfer.size) == ("Not known", "")
    assert transfer.reason == answers.explain_no_claim(smoke) != ""
    assert ("smoke run" in transfer.reason) == bool(smoke)


def test_chance_and_smoke_runs_are_not_usable():
    noise = draw().assign(margin=lambda p: np.random.default_rng(9).normal(size=len(p)))
    chance, signal = Answers(make_arm(noise)), Answers(make_arm(draw()))
    assert "not significantly better than chance" in judge_usability(chance, judge_transfer(chance)).reason
    assert judge_transfer(chance).answer == judge_usability(chance, judge_transfer(chance)).answer == "No"
    for answers, smoke in ((signal, "1 seed"), (None, "")):
        transfer = judge_transfer(answers, smoke)
        assert judge_usability(answers, transfer) == transfer
        assert transfer.answer == "Not known"
    assert "smoke run (1 seed)" in judge_transfer(signal, "1 seed").reason


def test_the_best_of_many_methods_is_tested_as_such():
    answers, n = Answers(make_arm(draw())), 12
    assert judge_transfer(answers, "", [0.004] + [0.9] * (n - 1)).answer == "Yes"
    judged = judge_transfer(answers, "", [0.03, 0.01] + [0.9] * (n - 2))
    assert judged.answer == "No"
    assert "the best of 12 methods, was not significantly better" in judged.reason
    assert judged.reason.endswith("(p = 0.33, corrected for the number of methods)")
    assert judge_transfer(answers, "", [0.03]).answer == "Yes"


def test_subgroups_are_scored_on_their_own_participants():
    table = draw(sites=4, per_site=80)
    people = table["participant_id"].unique()
    sex = np.where(np.arange(len(people)) % 3 == 0, "F", "M")
    table.loc[table["participant_id"].isin(people[sex == "F"]), "margin"] *= -1  # misleads for one sex
    groups = pd.DataFrame({"participant_id": people, "sex": sex, "age": ["younger"] * 12 + ["older"] * 308})
    facts = {"halves": {"age": ["younger", "older"]}}  # the order is stored, not read from the words
    scored = {(g.kind, g.value): g for g in score_subgroups(make_arm(table, groups=groups, facts=facts))}
    assert list(scored) == [("sex", "F"), ("sex", "M"), ("age", "younger"), ("age", "older")]
    for value in "FM":
        own = table[table["participant_id"].isin(people[sex == value])]
        sites = [part for _, part in own.groupby("fold")]
        areas = [roc_auc_score(part["label"], part["margin"]) for part in sites]
        pairs = [part["label"].sum() * (1 - part["label"]).sum() for part in sites]
        group = scored["sex", value]
        assert group.auc.mean == pytest.approx(np.average(areas, weights=pairs))
        assert group.auc.low < group.auc.mean < group.auc.high
        assert group.counts.of_classes == ((own["label"] == 0).sum(), (own["label"] == 1).sum())
        assert group.rates[0] == pytest.approx((own["margin"] > 0)[own["label"] == 1].mean())
        assert group.p < 0.001
    few = scored["age", "younger"]
    assert min(few.counts.of_classes) < SMALLEST_CLASS
    assert few.auc is few.p is few.rates[0] is None
    skipped = score_subgroups(make_arm(table, groups=groups), skip=("sex",))
    assert {g.kind for g in skipped} == {"age"}
    assert score_subgroups(make_arm(table)) == []
    assert score_subgroups(make_arm(table, groups=groups, protocol="kfold")) == []


def test_a_single_participant_of_a_class_at_a_site_does_not_spoil_the_interval():
    table = draw(sites=4, per_site=80)
    first = table["fold"] == "s0"
    lonely = table[first & (table["label"] == 1)].iloc[:1]
    groups = pd.DataFrame({"participant_id": table["participant_id"], "sex": "M"})
    kept = pd.concat([table[~first], table[first & (table["label"] == 0)], lonely])
    (group,) = score_subgroups(make_arm(kept, groups=groups))
    assert np.isfinite(group.auc.error)
    assert group.counts.of_classes[1] == (table[~first]["label"] == 1).sum() + 1


# ---------------------------------------------------------------- words follow the data


@pytest.mark.parametrize(
    ("described", "is_sex"),
    [
        ({"classes": ["control", "patient"], "label_is_sex": True}, True),
        ({"classes": ["F", "M"], "label_is_sex": False}, False),
        ({"classes": ["F", "M"]}, True),  # written by version 0.2
        ({"classes": ["male", "Female"]}, True),
        ({"classes": ["M", "male"]}, False),
        ({"classes": ["F", "patient"]}, False),
    ],
)
def test_sex_as_the_label_is_read_from_the_facts(finished, described, is_sex):
    evidence = read_evidence(finished)
    job = dataclasses.replace(evidence.jobs[0], cohort_facts=described)
    changed = dataclasses.replace(evidence, jobs=[job], arms=[dataclasses.replace(a, job=job) for a in evidence.arms])
    assert changed.label_is_sex == is_sex
    assert changed.given_label == ({"covariates-only"} if is_sex else set())
    assert [arm.name for arm in changed.controls] == ([] if is_sex else ["covariates-only"])


def test_no_patients_where_the_classes_are_the_sexes(copy, rewrite):
    for name, changes in (("facts.json", {"label_is_sex": True}), ("audit.json", {})):
        change_json(copy / name, lambda document, new=changes: document.update(classes=["F", "M"], **new))
    text = rewrite()
    assert "patient" not in text[: text.index('<script type="application/json" id="q-data"')].lower()
    assert "share of participants labelled M" in text
    assert "a participant labelled M and one labelled F" in text
    assert "No confound baseline was scored without sex, which defines the label" in text
    assert "receives the label as a covariate" in text
    assert ">sex F<" not in text, "a group of one class has no AUC"
    card = (copy / "MODEL_CARD.md").read_text()
    assert "without connectomes" not in card
    assert "the classes M and F" in card


def test_a_duplicate_with_two_labels_is_a_warning_everywhere(copy, rewrite, page):
    def conflict(audit):
        for pair in audit["duplicates"]:
            pair["same_label"] = False

    assert "gave no warnings" in page
    assert '<li class="warn">' not in page
    change_json(copy / "audit.json", conflict)
    text = rewrite()
    assert "warns that 1 pair of duplicate scans has different labels" in text
    assert text.count('<li class="warn">') == 1
    assert "5 sites; 1 warning<" in text


def test_smoke_runs_show_no_p_value(copy, rewrite, page):
    assert 'data-metric="p_holm"' in page
    assert "p is the uncorrected p value for the difference in AUC between two groups" in page
    change_json(copy / "summary.json", lambda summary: summary.update(smoke_run=True))
    text = rewrite()
    assert 'data-metric="p_holm"' not in text
    assert 'data-metric="difference"' in text
    assert "Wilcoxon" not in text
    assert "p tests" not in text


@pytest.mark.parametrize("smoke", [False, True])
def test_a_perfect_score_supports_no_claim_in_any_corner(copy, rewrite, smoke):
    def perfect(summary):
        summary["smoke_run"] = smoke
        for method in summary["methods"].values():
            method["auc"] |= {"mean": 1.0, "sd": 0.0, "interval": None}
            method |= dict.fromkeys(("sensitivity", "specificity", "balanced_acc"), method["auc"])

    change_json(copy / "summary.json", perfect)
    text, card, evidence = rewrite(), (copy / "MODEL_CARD.md").read_text(), read_evidence(copy)
    assert ("smoke run (" in evidence.no_claim) == smoke
    assert evidence.transfer == evidence.usability
    reason = evidence.no_claim
    sentence = f"{reason[0].upper()}{reason[1:]}."
    assert text.count(f"<strong>Not known</strong>: {reason}.") == 2
    assert f"<strong>{sentence}</strong> The numbers below" in text
    assert (">smoke run<" in text, ">no claim<" in text) == (smoke, not smoke)
    assert card.count(f"Not known: {reason}.") == 2
    assert card.count(f"- {sentence}") == 2, "in the summary and among the limitations"
    assert write_paragraph(evidence).startswith(sentence)
    for words in (text, card):
        assert "changes the odds" not in words
        assert 'data-metric="p_holm"' not in words
        assert "significant difference (" not in words


def test_validation_is_named_only_where_there_was_some(copy, rewrite, page):
    assert "with the highest validation AUC" in page
    rows = pd.read_csv(copy / "results.csv")
    rows.assign(n_validation=0).to_csv(copy / "results.csv", index=False)
    text = rewrite()
    assert "validation AUC" not in text
    assert "with the highest AUC on inner folds" in text
    assert "AUC on inner folds by epoch" in text
    for words in (text, (copy / "MODEL_CARD.md").read_text()):
        assert "There were no validation scans" in words
    for path in copy.glob("runs/*/run.json"):
        change_json(path, lambda record: record["row"].update(validation_auc=None))
    text = rewrite()
    assert "in the first run of BRIO" in text
