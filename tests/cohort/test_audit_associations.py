"""Associations of label, covariates, scan length and repetition time against independent computations."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import contingency, f_oneway
from sklearn.metrics import roc_auc_score

from brio.cohort import Cohort, audit
from brio.cohort.auditing.associations import (
    measure_covariates_by_label,
    measure_label_by_site,
    measure_length_by_label,
    measure_length_by_site,
    summarise_repetition_times,
)
from commands import command


def cohort(lengths: np.ndarray, sites: np.ndarray, labels: np.ndarray, tr: np.ndarray | None = None) -> Cohort:
    scans = [np.zeros((n, 2)) for n in lengths]
    covariates = None if tr is None else pd.DataFrame({"tr": tr})
    return Cohort.from_scans(scans, site=sites, label=labels, covariates=covariates)


@pytest.fixture(scope="module")
def mixed() -> Cohort:
    rng = np.random.default_rng(0)
    sites = rng.choice(list("ABCDE"), 200)
    labels = (rng.random(200) < np.where(sites == "A", 0.8, 0.4)).astype(int)
    base = {"A": 60, "B": 90, "C": 90, "D": 120, "E": 150}
    lengths = np.array([base[s] for s in sites])
    varies = np.isin(sites, ["D", "E"])
    lengths[varies] += rng.integers(0, 30, varies.sum()) + 10 * labels[varies]
    return cohort(lengths, sites, labels)


def test_label_by_site_is_cramers_v(mixed: Cohort) -> None:
    result = measure_label_by_site(mixed)
    table = pd.crosstab(mixed.sites, mixed.labels).to_numpy()
    assert result.cramers_v == pytest.approx(contingency.association(table, method="cramer"))
    assert result.p is not None
    assert result.p < 0.01


def test_cramers_v_by_chance_is_what_shuffled_labels_give() -> None:
    rng = np.random.default_rng(1)
    sites = np.repeat(list("ABCDEFGHIJ"), 20)
    labels = np.tile([0, 1], 100)
    made = cohort(np.full(200, 3), sites, labels)
    tables = [made.participants.assign(label=rng.permutation(labels)) for _ in range(80)]
    drawn = [measure_label_by_site(dataclasses.replace(made, participants=table)) for table in tables]
    squares = [d.cramers_v**2 for d in drawn if d.cramers_v is not None]
    assert drawn[0].by_chance is not None
    assert np.sqrt(np.mean(squares)) == pytest.approx(drawn[0].by_chance, rel=0.1)


def test_label_by_site_needs_two_sites() -> None:
    assert measure_label_by_site(cohort(np.full(6, 5), np.full(6, "A"), np.tile([0, 1], 3))).cramers_v is None


def test_length_by_site(mixed: Cohort) -> None:
    result = measure_length_by_site(mixed)
    groups = [mixed.n_frames[mixed.sites == s] for s in "ABCDE"]
    ratio = f_oneway(*groups).statistic * 4 / (200 - 5)  # between over within
    assert result.eta_squared == pytest.approx(ratio / (1 + ratio))
    assert set(result.differs_inside) == {"D", "E"}
    assert result.differs_inside["D"] == (groups[3].min(), groups[3].max())
    assert result.all_shortest == {"A": len(groups[0])}
    assert (result.shortest, result.longest) == (60, groups[4].max())


def test_one_length_has_nothing_to_tell() -> None:
    alike = cohort(np.full(8, 50), np.repeat(["A", "B"], 4), np.tile([0, 1], 4))
    site, label = measure_length_by_site(alike), measure_length_by_label(alike)
    assert site.eta_squared is None
    assert site.all_shortest == site.differs_inside == {}
    assert (label.auc, label.p, label.auc_inside) == (0.5, 1.0, None)


def test_length_by_label(mixed: Cohort) -> None:
    result = measure_length_by_label(mixed)
    assert result.auc == pytest.approx(roc_auc_score(mixed.labels, mixed.n_frames))
    inside = {s: roc_auc_score(mixed.labels[mixed.sites == s], mixed.n_frames[mixed.sites == s]) for s in "DE"}
    assert result.auc_by_site == pytest.approx(inside)
    assert result.auc_inside == pytest.approx(np.mean(list(inside.values())))
    # the planted effect inside sites runs against the one between them
    assert result.auc is not None
    assert result.auc_inside is not None
    assert result.auc < 0.5 < result.auc_inside


def test_repetition_time_by_site() -> None:
    sites, labels = np.repeat(["A", "B", "C"], 4), np.tile([0, 1], 6)
    tr = np.array([2.0, 2.0, 2.0, np.nan, 1.5, 1.5, 2.0, 2.0, 0.79999, 0.8, 0.8, 0.8])
    result = summarise_repetition_times(cohort(np.full(12, 5), sites, labels, tr))
    assert result is not None
    assert result.by_site == {"A": {"2": 3}, "B": {"1.5": 2, "2": 2}, "C": {"0.8": 4}}
    assert result.sites_by_value == {"0.8": ["C"], "1.5": ["B"], "2": ["A", "B"]}
    assert (result.differs_inside, result.unknown) == (("B",), 1)
    assert summarise_repetition_times(cohort(np.full(12, 5), sites, labels)) is None
    assert summarise_repetition_times(cohort(np.full(12, 5), sites, labels, np.full(12, np.nan))) is None


def make_people(n_sites=4, per_site=30, seed=0, n_frames=50, **columns) -> Cohort:
    """Sites with both classes; each column is a function of (rng, label, number of the site)."""
    rng = np.random.default_rng(seed)
    site, label = np.repeat(np.arange(n_sites), per_site), np.tile([0, 1], n_sites * per_site // 2)
    table = pd.DataFrame({name: make(rng, label, site) for name, make in columns.items()})
    scans = rng.normal(size=(len(site), n_frames, 3))
    names = [f"site{k}" for k in site]
    return Cohort.from_scans(scans, site=names, label=label, covariates=table, classes=("control", "patient"))


def test_covariates_that_differ_between_classes_are_warnings(tmp_path):
    cohort = make_people(
        age=lambda rng, label, site: rng.normal(25, 8, len(label)) + 20 * label,
        sex=lambda rng, label, site: np.where(rng.uniform(size=len(label)) < 0.1 + 0.8 * label, "M", "F"),
        mean_fd=lambda rng, label, site: rng.lognormal(-1.9 + 1.4 * label, 0.4),
        fiq=lambda rng, label, site: rng.normal(100, 15, len(label)),
        handedness=lambda rng, label, site: rng.choice(["left", "right"], len(label)),
        ados=lambda rng, label, site: np.where(label == 1, 12.0, np.nan),
        scan_id=lambda rng, label, site: np.arange(len(label)) + 1000 * label,
    )
    found = {one.column: one for one in audit(cohort).covariates}
    assert list(found) == ["age", "sex", "mean_fd", "fiq", "handedness"]
    assert [name for name, one in found.items() if one.warn] == ["age", "sex", "mean_fd"]
    assert found["sex"].kind == "category"
    assert found["sex"].auc == pytest.approx(0.9, abs=0.04)
    labels, age = cohort.labels, cohort.participants["age"].to_numpy()
    assert found["age"].auc == pytest.approx(roc_auc_score(labels, age))
    said = command("audit", cohort.save(tmp_path / "cohort").path)
    assert len([line for line in said.out.splitlines() if line.endswith("WARNING: differs between classes")]) == 3
    stricter = command("audit", tmp_path / "cohort", "--set", "covariate_auc=0.99")
    assert "WARNING" not in stricter.out
    shown = json.loads(command("audit", tmp_path / "cohort", "--json").out)
    assert [one["column"] for one in shown["covariates"] if one["warn"]] == ["age", "sex", "mean_fd"]


def test_a_difference_between_sites_is_no_difference_between_classes():
    rng = np.random.default_rng(1)
    site = np.repeat(["A", "B"], 60)
    label = np.concatenate([rng.permutation([0] * 50 + [1] * 10), rng.permutation([0] * 10 + [1] * 50)])
    age = np.where(site == "A", 20.0, 60.0) + rng.normal(size=120)
    scans = [rng.normal(size=(50, 3)) for _ in site]
    cohort = Cohort.from_scans(scans, site=site, label=label, covariates=pd.DataFrame({"age": age}))
    (one,) = audit(cohort).covariates
    assert one.auc > 0.75
    assert abs(one.auc_inside - 0.5) < 0.12
    assert not one.warn
    one_class_each = np.where(label == 1, "A", "B")
    apart = Cohort.from_scans(scans, site=one_class_each, label=label, covariates=pd.DataFrame({"age": age}))
    (one,) = audit(apart).covariates  # site and class are one: nothing to stratify by
    assert (one.auc_inside, one.n_sites, one.warn) == (None, 0, True)


def test_small_and_large_cohorts_do_not_cry_wolf():
    noise = lambda rng, label, site: rng.normal(size=len(label))  # noqa: E731
    for n_sites, per_site in ((2, 10), (4, 30), (6, 100)):
        cohorts = [make_people(n_sites, per_site, seed, 2, a=noise, b=noise) for seed in range(20)]
        assert sum(any(one.warn for one in measure_covariates_by_label(cohort, 0.57)) for cohort in cohorts) <= 3
    slight = make_people(10, 200, n_frames=2, a=lambda rng, label, site: rng.normal(size=len(label)) + 0.15 * label)
    (one,) = measure_covariates_by_label(slight, 0.57)
    assert one.p_inside < 0.01  # significant, and too small to matter
    assert not one.warn


def test_the_stratified_tests_are_those_of_others():
    from statsmodels.stats.contingency_tables import StratifiedTable

    cohort = make_people(sex=lambda rng, label, site: np.where(rng.random(len(label)) < 0.4 + 0.15 * label, "M", "F"))
    (one,) = measure_covariates_by_label(cohort, 0.57)
    tables = [
        pd.crosstab(cohort.labels[cohort.sites == s], cohort.participants["sex"][cohort.sites == s]).to_numpy()
        for s in np.unique(cohort.sites)
    ]
    assert one.p_inside == pytest.approx(StratifiedTable(tables).test_null_odds(correction=False).pvalue)


def test_the_column_of_the_classes_is_no_covariate():
    sexes = make_people(sex=lambda rng, label, site: np.where(label == 1, "M", "F"))
    assert measure_covariates_by_label(sexes, 0.57)[0].warn
    named = dataclasses.replace(sexes, classes=("female", "male"))
    assert measure_covariates_by_label(named, 0.57) == ()
