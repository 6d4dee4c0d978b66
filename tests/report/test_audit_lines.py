"""The audit of a job in sentences: each finding is said once, at its level."""

from types import SimpleNamespace

import pytest

from brio.cohort.covariates import ClassNames
from brio.report.cohort import find_audit_warnings, list_audit_lines

CLASSES = ClassNames("control", "patient")
CLEAN = dict.fromkeys(("duplicates", "non_finite", "too_short", "one_class", "small_class"), ())
CLEAN |= {"dead_by_site": {}, "dead_patterns": {}, "rules": {"min_frames": 50, "min_class": 3}}
CLEAN |= {"label_by_site": {"cramers_v": 0.1, "by_chance": 0.12, "p": 0.6}}
CLEAN |= {"length_by_site": {"eta_squared": 0.5, "shortest": 80, "longest": 200}}
CLEAN |= {"repetition_time": {"by_site": {"A": {"2.0": 5}, "B": {"2.5": 4}}}}
DEAD = {"dead_by_site": {"aal116": {"A": 2, "B": 1}}}
DEAD |= {"dead_patterns": {"aal116": {"p": 0.001, "accuracy": 0.5, "by_chance": 0.2}}}


def describe(**findings):
    """Lines of a job on 40 scans of which none is excluded."""
    plan = SimpleNamespace(audit={}, excluded={})
    job = SimpleNamespace(require_plan=lambda: plan, audit=CLEAN | findings, summary=SimpleNamespace(n_scans=40))
    return list_audit_lines(job, CLASSES)


def test_a_clean_cohort_has_no_warning():
    assert not [text for level, text in describe() if level == "warn"]
    assert ("ok", "The audit excluded none of 40 scans.") in describe()
    assert ("note", "Repetition times range from 2.00 to 2.50 s.") in describe()


@pytest.mark.parametrize(
    ("findings", "line"),
    [
        (
            DEAD,
            "3 scans have regions without signal in aal116; these regions reveal the site (50.0% of scans "
            "assigned to the correct site, 20.0% by chance).",
        ),
        (
            {"duplicates": [{"same_label": True}, {"same_label": False}]},
            "Duplicate scans: 2 pairs, 1 of them with different labels.",
        ),
        (
            {"one_class": ["A", "B"]},
            "Sites with one class only, which have no AUC and are not used for training: A and B.",
        ),
        (
            {"label_by_site": {"cramers_v": 0.4, "by_chance": 0.1, "p": 0.001}},
            "The share of patients differs between sites (Cramér's V 0.40, 0.10 by chance, p = 0.001).",
        ),
    ],
)
def test_a_finding_that_can_mislead_is_one_warning(findings, line):
    assert [text for level, text in describe(**findings) if level == "warn"] == [line]
    assert len(find_audit_warnings(CLEAN | findings, CLASSES)) == 1


def covariate(column, **changes):
    same = {"column": column, "kind": "number", "typical": (21.0, 41.2), "value": "", "auc": 0.9, "p": 0.01}
    return same | {"auc_inside": 0.93, "p_inside": 0.01, "warn": True} | changes


def test_covariates_that_differ_are_warnings_and_the_others_one_line():
    sex = covariate("sex", kind="category", typical=(0.1, 0.9), value="M", auc_inside=None)
    found = {"covariates": [covariate("age"), sex, covariate("mean_fd", warn=False), covariate("tr", warn=False)]}
    lines, p = describe(**found), "p = 0.040, corrected for 4 covariates"
    assert [text for level, text in lines if level == "warn"] == [
        f"Age differs between classes (mean 41.2 in patients, 21 in controls; AUC 93.0% within sites, {p}).",
        f"Sex differs between classes (90% M in patients, 10% in controls; AUC 90.0% over all sites, {p}).",
    ]
    assert ("ok", "No clear difference between classes: motion and repetition time.") in lines
    assert find_audit_warnings(CLEAN | found, CLASSES) == {"covariates": "age and sex differ between classes"}


def test_defects_of_scans_are_notes():
    lines = describe(non_finite=["a"], too_short=["b", "c"])
    assert ("note", "1 scan has frames with missing values.") in lines
    assert ("note", "2 scans have fewer than 50 valid frames.") in lines


def test_what_does_not_differ_is_left_out():
    lines = describe(label_by_site=None, length_by_site=None, repetition_time={"by_site": {"A": {"2.0": 9}}})
    assert [text for _, text in lines] == [
        "The audit excluded none of 40 scans.",
        "No duplicate scans.",
        "Every region has signal in every scan.",
        "Every site has both classes.",
    ]
