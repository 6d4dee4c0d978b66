"""Another question of the same scans: which scans stay, which label they get, and what no method may see then."""

from dataclasses import replace

import hypothesis
import numpy as np
import pandas as pd
import pytest
from file_layouts import check, check_scans, refuse, write_study
from hypothesis import given
from hypothesis import strategies as st

import brio
from brio.cohort import Cohort, audit, relabel
from brio.cohort.covariates import describe_labels, read_covariates
from brio.cohort.readers import import_cohort
from brio.cohort.simulate import Simulation, simulate
from brio.cohort.values import normalise_text, read_numbers, write_value
from brio.errors import BrioError
from brio.jobs import JobSpec
from made_cohorts import rebuild


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return simulate(Simulation(n_sites=5, per_class=12, n_rois=12, frames=60, stable=0.8))


def with_column(cohort: Cohort, **columns) -> Cohort:
    return replace(cohort, participants=cohort.participants.assign(**columns))


def test_the_scans_stay_and_their_labels_answer_the_question(cohort):
    asked = relabel(cohort, "age>14.5", min_class=0)
    check_scans(asked, [cohort.scan(i) for i in range(len(cohort))])
    check(asked, ids=cohort.ids, sites=cohort.sites, labels=(cohort.participants["age"] > 14.5).astype(int))
    check(asked, classes=("age up to 14.5", "age above 14.5"), former_label=[cohort.classes[k] for k in cohort.labels])
    kept = cohort.participants.drop(columns="label")
    pd.testing.assert_frame_equal(asked.participants[list(kept)], kept)


def test_every_question_is_a_cohort_of_its_own(cohort):
    questions = ["age>14.5", "age>14", "age>site-median", "sex", "sex=F"]
    prints = {cohort.fingerprint, *(relabel(cohort, q, min_class=0).fingerprint for q in questions)}
    assert len(prints) == 1 + len(questions)
    assert relabel(cohort, " age > 14.5 ").fingerprint == relabel(cohort, "age>14.5").fingerprint


def test_a_saved_question_is_still_one(cohort, tmp_path):
    asked = relabel(cohort, "sex", min_class=0).save(tmp_path / "sex")
    assert (asked.classes, asked.label_covariate) == (("F", "M"), "sex")
    assert asked.labels.tolist() == (cohort.participants["sex"] == "M").astype(int).tolist()


TWO_SITES = Cohort.from_scans(np.ones((24, 4, 2)), site=np.repeat(["A", "B"], 12), label=[0, 1] * 12)


@hypothesis.settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([8.0, 9.5, 12.0, 30.0, float("nan")]), min_size=24, max_size=24))
def test_nobody_above_the_median_of_the_own_site_is_called_below(ages):
    age, site = np.array(ages), np.repeat(["A", "B"], 12)
    cohort = with_column(TWO_SITES, age=age)
    above = np.array([v > np.nanmedian(age[site == s]) if v == v else False for v, s in zip(age, site, strict=True)])
    if above.any():
        asked = relabel(cohort, "age>site-median", min_class=0)
        check(asked, ids=cohort.ids[~np.isnan(age)], labels=above[~np.isnan(age)].astype(int))
    else:
        refuse("leaves only one class", relabel, cohort, "age>site-median", min_class=0)


def test_those_without_a_value_and_small_sites_are_left_out_and_counted(cohort):
    sex = np.array(cohort.participants["sex"].tolist(), dtype=object)
    sex[cohort.sites == "site02"] = "F"
    sex[np.flatnonzero(cohort.sites == "site01")[:3]] = None
    asked = relabel(with_column(cohort, sex=sex), "sex")
    assert "site02" not in asked.sites
    assert not set(cohort.ids[:3]) & set(asked.ids)
    n = int((cohort.sites == "site02").sum())
    told = describe_labels(asked)
    assert (
        f"left out: 3 participants without sex and {n} participants at sites with fewer than 5 participants in either"
        in told
    )
    assert "(site02)" in told
    assert f"'M' ({asked.labels.sum()}); F = 0: 'F' ({(1 - asked.labels).sum()})" in told
    assert "left out" not in describe_labels(cohort)


def test_values_may_be_words_or_numbers(cohort):
    hand = np.where(np.arange(len(cohort)) % 3 == 0, "left", np.where(np.arange(len(cohort)) % 3 == 1, "right", "both"))
    given = with_column(cohort, hand=hand, group=np.arange(len(cohort)) % 2 + 1.0)
    asked = relabel(given, "hand=LEFT", min_class=0)
    check(asked, classes=("hand other than left", "hand left"), labels=(hand == "left").astype(int))
    asked = relabel(given, "group", min_class=0)
    check(asked, classes=("group 1", "group 2"), labels=np.arange(len(cohort)) % 2)
    assert relabel(given, "group=2").labels.tolist() == relabel(given, "group").labels.tolist()


def repeat(values: list[str], cohort: Cohort) -> np.ndarray:
    return np.resize(np.array(values, dtype=object), len(cohort))


@pytest.mark.parametrize(
    ("question", "values"),
    [
        *[(f"hand={asked}", ["left", "Left", "LEFT", "right"]) for asked in ("left", "Left", "LEFT", "lEFT")],
        ("hand", ["left", "Left"]),
        ("hand", ["left", "Left", "right"]),
        ("hand=asd", ["ASD", "asd", "TC"]),
        ("hand=x", ["X", "x"]),
        ("hand=straße", ["Straße", "STRASSE", "Weg"]),
        ("hand=1", ["1", "1.0", "unknown"]),
        ("hand=0.5", ["0.5", ".50", "unknown"]),
    ],
)
def test_a_word_in_several_spellings_is_refused_with_their_counts(cohort, question, values):
    written = repeat(values, cohort)
    spellings = [value for value in dict.fromkeys(values) if value not in ("right", "TC", "Weg", "unknown")]
    with pytest.raises(BrioError) as error:
        relabel(with_column(cohort, hand=written), question, 0)
    assert all(f"'{value}' ({int((written == value).sum())})" in str(error.value) for value in spellings)


@pytest.mark.parametrize(
    ("question", "values", "ones"),
    [
        ("hand=right", ["left", "Left", "right"], ["right"]),  # spellings that are not asked about
        ("hand=Café Mond", ["CAFE\u0301  MOND", "b"], ["CAFE\u0301  MOND"]),
        ("hand=ＡＢ", ["ab", "c"], ["ab"]),
        ("hand=ab", ["ＡＢ ", "ab\u00a0c"], ["ＡＢ "]),
        ("dose=1", ["1", "1.0", "1.00", "1e0", "2"], ["1", "1.0", "1.00", "1e0"]),
        ("dose=1.00", ["1", "2.50", "10"], ["1"]),
        ("dose=01", ["01", "1", "2"], ["01"]),
        ("dose=14.5", ["14.5", "14.50", "15"], ["14.5", "14.50"]),
        ("sex=M", ["M", "male", "Male ", "männlich", "homme", "F"], ["M", "male", "Male ", "männlich", "homme"]),
        ("sex=female", ["m", "F", "w", "Weiblich", "MUJER"], ["F", "w", "Weiblich", "MUJER"]),
        ("sex", ["f", "Mann", "woman"], ["Mann"]),
        ("dose", ["9", "10", "9.0"], ["10"]),
        ("dose", ["b", "10"], ["b"]),
    ],
)
def test_values_are_read_as_people_mean_them(cohort, question, values, ones):
    written = repeat(values, cohort)
    asked = relabel(with_column(cohort, **{question.split("=")[0]: written}), question, 0)
    assert asked.labels.tolist() == np.isin(written, ones).astype(int).tolist()
    counts = {value: int((written == value).sum()) for value in values}
    told = describe_labels(asked)
    assert all(f"'{normalise_text(value)}' ({n})" in told for value, n in counts.items())


def test_sites_are_named_in_any_form_of_letters(cohort):
    spec = JobSpec(cohort, methods=["ridge"], leave_out="\uff53ite01 ", folds=[" site02"])
    assert (spec.leave_out, spec.folds) == (("site01",), ("site02",))
    assert "site01" not in spec.relabel(cohort).sites


def test_what_made_each_label_is_known_after_an_import(tmp_path):
    groups = ["1", "1.0", "2", "3"]
    rows = [f"p{i},{'AB'[i % 2]},{groups[i % 4]}" for i in range(16)]
    src = write_study(tmp_path / "study", [f"p{i}" for i in range(16)], header="participant_id,site,dx", rows=rows)
    cohort = import_cohort("table", src, tmp_path / "out", label_column="dx", patient=["1", "3"], control="2")
    patients, controls = describe_labels(cohort).split(";")
    assert all(text in patients for text in ("'1' (4)", "'1.0' (4)", "'3' (4)"))
    assert "'2' (4)" in controls
    patients, controls = describe_labels(cohort.select(np.arange(8))).split(";")
    assert "6 participants" in patients
    assert "2 participants" in controls


def test_a_participant_has_one_label_whatever_the_sessions_say():
    cohort = simulate(Simulation(n_sites=3, per_class=6, n_rois=8, frames=60, sessions=2))
    age = cohort.participants["age"] + (cohort.participants["session"].astype(str) == "2")  # a year later
    asked = relabel(with_column(cohort, age=age), "age>site-median", min_class=0)
    by_participant = pd.Series(asked.labels).groupby(asked.participant_ids).nunique()
    assert (by_participant == 1).all()
    first = cohort.participants.drop_duplicates("participant_id")
    expected = first["age"] > first.groupby("site")["age"].transform("median")
    assert asked.labels[::2].tolist() == expected.astype(int).tolist()


def test_scans_without_a_diagnosis_can_be_asked_for_their_age(cohort):
    bare = replace(cohort, participants=cohort.participants.drop(columns="label"))
    assert relabel(bare, "sex").labels.tolist() == relabel(cohort, "sex").labels.tolist()
    assert "former_label" not in relabel(bare, "sex").participants


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("agee>14", "no column 'agee'; did you mean 'age'?"),
        ("age<14", "cannot be read; write COLUMN, COLUMN=VALUE"),
        ("age>", "cannot be read"),
        ("", "cannot be read"),
        ("site", "'site' cannot be used as a question"),
        ("label=1", "'label' cannot be used as a question"),
        ("age>old", "'old' is not a number; write 'age>NUMBER' or 'age>site-median'"),
        *[(f"age>{odd}", "is not a number") for odd in ("1_4", "14,5", "1/2", "nan", "inf", "0x10", "2020-01-05", "٣")],
        ("sex>1", "correct this value and import again, or ask 'sex="),
        ("age", "values (.*), but a question needs two classes; ask 'age>NUMBER'"),
        ("age>300", "leaves only one class: no participant is in class 'age above 300'"),
        ("age>1", "in class 'age up to 1'"),
        ("uid=12345678901234567.0", "12345678901234567"),
        ("uid=12345678901234566", "12345678901234567"),
        ("sex=X", "no participant has the value 'X' in column 'sex'; this column contains F, M"),
        ("age>39", "leaves no site with at least 5 participants in each class; .*audit.min_class"),
    ],
)
def test_questions_that_cannot_be_asked(cohort, question, told):
    long = repeat(["12345678901234567", "12345678901234568"], cohort)
    refuse(told, relabel, with_column(cohort, uid=long), question)


def test_what_the_label_is_made_of_is_given_to_no_method(cohort):
    asked = relabel(cohort, "age>site-median")
    assert read_covariates(asked, ["sex"], "it").shape == (len(asked), 1)
    message = "it needs the age .* are computed from the column 'age'; leave out this method"
    refuse(message, read_covariates, asked, ["sex", "age"], "it")
    known = read_covariates(asked, ["sex", "age"], "it", partly=True)
    assert np.isnan(known).all(axis=0).tolist() == [False, True]
    settings = {"harmonise.kind": "residualise", "harmonise.covariates": "sex"}
    message = r"harmonise\.covariates needs the sex .*; leave out this covariate"
    refuse(message, brio.run, cohort, ["ridge"], label="sex", settings=settings)
    measured = {one.column for one in audit(asked).covariates}
    assert "age" not in measured
    assert {"sex", "former_label"} <= measured


def test_copies_under_two_diagnoses_are_trusted_for_no_question(cohort):
    """Which of the two was scanned is not known, so neither is their age."""
    scans, age = [cohort.scan(i) for i in range(len(cohort))], cohort.participants["age"].to_numpy(copy=True)
    i, j = (np.flatnonzero((cohort.sites == "site01") & (cohort.labels == k))[0] for k in (0, 1))
    scans[j], age[j] = scans[i], age[i]
    twice = rebuild(cohort, scans, covariates=pd.DataFrame({"age": age}))
    asked = relabel(twice, "age>site-median")
    assert asked.labels[i] == asked.labels[j]
    assert set(audit(asked).exclusions) == {cohort.ids[i], cohort.ids[j]} == set(audit(twice).exclusions)


def test_an_age_that_the_connectome_carries_is_found_and_a_random_one_is_not(cohort):
    rng = np.random.default_rng(0)
    planted = with_column(cohort, age=10 + 20 * cohort.labels + rng.uniform(0, 5, len(cohort)))
    settings = {"protocol.validation_sites": 0, "choose_by": "source-sites"}
    options = {"device": "cpu", "exclude": False, "settings": settings}
    own = brio.run(cohort, ["ridge"], **options)
    carried = brio.run(planted, ["ridge"], label="age>20", **options)
    assert carried.rows["auc"].tolist() == own.rows["auc"].tolist()  # the same labels under another name
    assert own.rows["auc"].mean() > 0.8
    random = brio.run(cohort, ["ridge"], label="age>site-median", **options)
    assert 0.35 < random.rows["auc"].mean() < 0.65


def test_an_empty_cell_of_a_cohort_in_memory_is_no_value(cohort):
    rows = cohort.participants.assign(age=["", *cohort.participants["age"].astype(str)[1:]])
    refuse("but 1 of .* have no value .*; fill in", read_covariates, replace(cohort, participants=rows), ["age"], "it")
    rows = rows.assign(mean_fd=np.nan)
    refuse(
        "fill in column 'mean_fd' and import again$",
        read_covariates,
        replace(cohort, participants=rows),
        ["motion"],
        "it",
    )


def test_sessions_of_a_participant_in_both_classes_are_refused():
    scans = [np.random.default_rng(i).normal(size=(40, 4)) for i in range(8)]
    ids = [f"p{i // 2}" for i in range(8)]
    covariates = pd.DataFrame(
        {"state": ["on", "off"] * 4, "age": [10, 11, 14, 14.5, 20, 21, 30, 31], "hand": list("llrrllrr")}
    )
    cohort = Cohort.from_scans(
        scans,
        site=["A"] * 8,
        label=[0, 0, 0, 0, 1, 1, 1, 1],
        participant_id=ids,
        session=list("12") * 4,
        covariates=covariates,
    )
    for question in ("state", "state=on"):
        refuse(r"p0.*different classes", relabel, cohort, question, 1)
    longitudinal = relabel(cohort, "age>14.2", 1)
    assert longitudinal.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1], "the first scan decides"
    assert longitudinal.provenance["label"]["first_scan_decides"] == 1
    assert "1 participant would be" in describe_labels(longitudinal)
    assert relabel(cohort, "hand=r", 1).labels.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert relabel(cohort, "age>14.5", 1).labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert relabel(cohort, "age>site-median", 1).labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_what_looks_different_stays_different():
    texts = ["S²", "S2", "1½", "①", "Ａ", "Z\u0308", "a\u2003 b\u00a0", "x\u2028y"]
    assert [normalise_text(text) for text in texts] == ["S²", "S2", "1½", "①", "A", "Z\u0308", "a b", "x\u2028y"]
    assert np.isnan(read_numbers(pd.Series(["14²", "9" * 400 + "x", "1_0"]))).all()
    assert read_numbers(pd.Series(["9" * 400, "2"])).tolist() == [np.inf, 2.0]
    assert write_value(np.float32(0.1)) == "0.1"
