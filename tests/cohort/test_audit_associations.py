"""Associations of label, scan length and repetition time against independent computations."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import contingency, f_oneway
from sklearn.metrics import roc_auc_score

from brio.cohort import Cohort
from brio.cohort.auditing.associations import (
    measure_label_by_site,
    measure_length_by_label,
    measure_length_by_site,
    summarise_repetition_times,
)


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
    drawn = [measure_label_by_site(cohort(np.full(200, 3), sites, rng.permutation(labels))) for _ in range(80)]
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
