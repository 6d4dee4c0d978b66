"""The verdict on doctored results: it claims what the numbers allow, and no more."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from brio.methods import list_methods
from brio.protocol import t_interval
from brio.report.evidence import Evidence, EvidenceArm
from brio.report.verdict import write_verdict
from brio.results import PlannedMethod, StoredJob, StoredStudy, StudyRecord, summarise_scores
from doctored import make_method, make_summary

AUDIT = {"label_by_site": None, "dead_patterns": {}, "one_class": []}
BASE = np.linspace(0.55, 0.85, 20)
WIGGLE = np.tile([0.003, -0.003], 10)


def arm(name, scores, *, smoke=False, audit=AUDIT, protocol="loso", plain=True, epochs=None, **facts):
    """An arm with these scores at sites (or folds) A, B, ..., one seed each."""
    scores = np.asarray(scores, dtype=float)
    folds = [f"{k:02d}" for k in range(len(scores))]
    rows = {"method": name, "fold": folds, "seed": 0, "auc": scores, "n_test": 10, "n_source": 90}
    method = make_method(auc=summarise_scores(scores), **facts)
    summary = make_summary({name: method}, folds, protocol=protocol, seeds=(0,), smoke_run=smoke)
    plan = SimpleNamespace(
        audit=None if audit is None else {"min_frames": 40},
        excluded=dict.fromkeys("abc", ("short",)),
        methods={name: PlannedMethod(1, {} if epochs is None else {"epochs": epochs})},
    )
    return EvidenceArm(name, name, StoredJob(Path("."), summary, pd.DataFrame(rows), plan, audit=audit), plain)


def write(*arms, studies=()):
    evidence = Evidence(Path("."), [a.job for a in arms], list(arms), list(studies))
    sentences = write_verdict(evidence)
    few_sites = arms[0].job.summary.few_sites_note
    assert sentences[3:] == [few_sites] * bool(few_sites)
    alone = sentences[0].removeprefix(f"{evidence.no_claim[:1].upper()}{evidence.no_claim[1:]}. ")
    assert all(s.endswith(".") and s.count(". ") == 0 for s in [alone, *sentences[1:3]]), "one sentence each"
    return sentences[:3]


def test_a_clear_winner_is_named_with_interval_and_test():
    better = BASE + 0.05 + 0.001 * np.arange(1, 21)
    best, difference, _ = write(arm("brio", better), arm("ridge", BASE))
    low, high = (f"{100 * v:.0f}" for v in t_interval(better))
    assert best.startswith("BRIO reaches a mean AUC of 76%")
    assert f"95% interval {low} to {high}, 20 sites" in best
    assert "the highest of 2 ranked methods" in best
    assert difference.startswith(
        "BRIO scored 6 points higher than ridge regression in mean AUC (95% interval of the difference +"
    )
    assert "), a significant difference (p < 0.001, corrected t test over 20 sites)." in difference


def test_a_linear_model_that_wins_is_compared_with_brio():
    _, difference, _ = write(arm("gcn", BASE - 0.01 + WIGGLE), arm("brio", BASE - 0.07 + WIGGLE), arm("ridge", BASE))
    assert difference.startswith("BRIO scored 7 points lower than ridge regression in mean AUC")
    assert ", a significant difference (" in difference
    assert "adjusted for 2 comparisons" in difference


@pytest.mark.parametrize(
    ("name", "noise", "words"),
    [
        ("logistic", [0.04, -0.02], "logistic regression scored 1 point higher than ridge regression"),
        ("brio", [0.05, -0.03], "BRIO scored 1 point higher than ridge regression"),
        ("brio", [0.02, -0.02], "BRIO and ridge regression have the same mean AUC (95% interval of the difference −"),
        ("brio", [0.02, -0.014], "BRIO and ridge regression differ by less than one point in mean AUC (95% interval"),
    ],
)
def test_noise_is_not_a_difference(name, noise, words):
    _, difference, _ = write(arm(name, BASE + np.tile(noise, 10)), arm("ridge", BASE))
    assert difference.startswith(words)
    assert ", not a significant difference (" in difference


def test_the_corrected_p_decides():
    base, gain = BASE[:10], 0.01 * np.array([1, 2, 3, 4, 5, -2, 7, 8, 9, 10])
    alone = write(arm("brio", base + gain), arm("ridge", base))[1]
    assert ", a significant difference (" in alone
    assert "p = 0.029" in alone
    swing = 0.01 * np.array([1, -2, 3, -4, 5, -6, 7, -8, 9, -10])
    many = write(arm("brio", base + gain), arm("ridge", base), arm("gcn", base + swing), arm("gat", base - swing))[1]
    assert "p = 0.088" in many
    assert ", not a significant difference (" in many


def test_a_difference_without_spread_claims_nothing():
    _, difference, _ = write(arm("brio", BASE[:5] + 0.1), arm("ridge", BASE[:5]))
    assert "; the difference is the same at every site, so its spread is unknown and nothing" in difference
    assert "significant" not in difference


def test_level_methods_are_called_level():
    _, difference, _ = write(arm("brio", BASE + 0.001 + WIGGLE), arm("ridge", BASE))
    assert difference.endswith("; the difference is below 2 points (two one-sided tests, p < 0.001).")
    _, difference, _ = write(arm("brio", BASE + np.tile([0.2, -0.2], 10)), arm("ridge", BASE))
    assert "one-sided" not in difference


def test_caution_names_networks_that_were_trained_too_briefly():
    caution = write(arm("brio", BASE, epochs=6), arm("gcn", BASE, epochs=80), arm("ridge", BASE))[2]
    assert caution.endswith(
        "; training for fewer epochs than the default may lower the score of BRIO (6 instead of 80)."
    )
    longer = write(arm("brio", BASE, epochs=90), arm("own", BASE, epochs=2), arm("ridge", BASE))[2]
    assert "epochs" not in longer, "more is not few, and the default of an own method is not known"


def test_smoke_runs_are_called_that_and_claim_nothing():
    best, difference, _ = write(arm("brio", BASE + 0.1, smoke=True), arm("ridge", BASE, smoke=True))
    assert best.startswith("This is a smoke run (1 seed, 20 folds), which supports no claim. BRIO reaches")
    assert difference.endswith("; this difference is not tested for significance.")
    assert "difference (p" not in difference
    study = StoredStudy(Path("ablation"), StudyRecord(name="ablation", smoke="epochs=3"), "", None)
    assert write(arm("brio", BASE), studies=[study])[0].startswith("This is a smoke run (epochs=3)")


@pytest.mark.parametrize(
    "other",
    [
        arm("lucky", BASE + 0.3, smoke=True),
        arm("covariates-only", BASE + 0.2, control=True),
        arm("brio,J=8", BASE + 0.1, plain=False),
    ],
)
def test_smoke_runs_controls_and_varied_settings_do_not_compete(other):
    best, *_ = write(other, arm("ridge", BASE), arm("brio", BASE - 0.01))
    assert best.startswith("ridge regression reaches")
    assert "of 2 ranked methods" in best


def test_brio_plus_is_linear_and_the_reference_where_it_is_the_only_one():
    assert write(arm("mlp", BASE), arm("brio-plus", BASE - 0.1))[1].startswith("MLP scored 10 points higher than BRIO")
    assert "; compare it" not in write(arm("brio-plus", BASE))[1]
    linear = [entry.name for entry in list_methods() if entry.linear]
    assert {"ridge", "svm", "log-ridge", "brio-plus"} < set(linear)
    assert not {"mlp", "gcn", "brio", "covariates-only"} & set(linear)
    assert linear[0] == "ridge", "the reference of every comparison that has it"


def test_without_a_linear_model_the_sentence_says_what_is_missing():
    assert write(arm("brio", BASE), arm("gcn", BASE - 0.1))[1].startswith("No linear method is ranked; GCN scored")
    only = write(arm("brio", BASE))
    assert "highest" not in only[0]
    assert only[1] == "Only one method was run, so there is no comparison; compare it with at least one linear method."
    left_out = write(arm("brio", BASE), arm("gcn", BASE - 0.1, smoke=True))
    assert left_out[1].startswith("Only BRIO can be ranked (the other methods are smoke runs, used")


def test_chance_and_unlabelled_test_scans_are_stated():
    low = 0.5 + np.tile([0.05, -0.05], 10)
    assert "the interval includes chance" in write(arm("ridge", low))[0]
    assert "includes chance" not in write(arm("ridge", BASE))[0]
    assert "includes chance" not in write(arm("ridge", 0.9 - BASE))[0], "worse than chance"
    few = write(arm("ridge", [0.5, 0.7, 0.9]))[0]
    assert "no claim. ridge regression reaches a mean AUC of 70% (3 sites, too few for an interval) at sites" in few
    assert "it used unlabelled test scans" in write(arm("ridge", BASE, transductive=True))[0]


def test_controls_above_chance_are_the_first_doubt():
    high, low = 0.6 + WIGGLE, 0.5 + np.tile([0.05, -0.06], 10)
    caution = write(arm("ridge", BASE), arm("length-only", high, control=True), arm("other", low, control=True))[2]
    assert caution.startswith("scan length alone (60%) scored above chance without connectomes")
    calm = write(arm("ridge", BASE), arm("other", low, control=True))[2]
    assert calm.startswith(
        "Confound baselines (other), which do not use connectomes, did not score significantly above chance"
    )
    untested = write(arm("ridge", BASE), arm("other", [0.6], control=True))[2]
    assert untested.startswith("Confound baselines (other), which do not use connectomes, were not tested")
    assert write(arm("ridge", BASE))[2].startswith("No confound baseline was scored")


@pytest.mark.parametrize(
    ("findings", "sentence"),
    [
        ({}, "excluded 3 of 100 scans and gave no warnings"),
        ({"label_by_site": {"p": 0.001}}, "warns that the share of patients differs between sites"),
        ({"label_by_site": {"p": 0.2}}, "gave no warnings"),
        ({"dead_patterns": {"aal": {"p": 0.001}}}, "warns that regions without signal reveal the site"),
        ({"one_class": ["A", "B"]}, "warns that 2 sites have one class only"),
        (None, "no audit was applied"),
    ],
)
def test_the_audit_is_the_second_doubt(findings, sentence):
    assert sentence in write(arm("ridge", BASE, audit=None if findings is None else AUDIT | findings))[2]


def test_k_fold_speaks_of_sites_that_were_seen():
    pair = arm("brio", BASE + 0.05, protocol="kfold"), arm("ridge", BASE + np.tile([0.01, 0.0], 10), protocol="kfold")
    best, difference, _ = write(*pair)
    assert "on new scans from sites it was trained on" in best
    assert ", 20 folds)" in best
    assert "corrected t test over 20 folds" in difference


def test_nothing_to_rank():
    best, *_ = write(arm("covariates-only", BASE, control=True))
    assert "there is no ranking" in best
