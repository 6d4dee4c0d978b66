"""Held-out sites reach nothing that is trained, bit for bit, from the cohort through the audit to the weights."""

import numpy as np
import pytest
import torch
from small_cohorts import SITES, SOURCES, cohort_of, small, split

from brio.cohort import audit
from brio.connectome import Connectomes
from brio.protocol import leave_one_site_out
from brio.training import Run
from fitted_runs import assert_same_training

METHODS = ["brio", "ridge"]
TEST = "fox"


def noisy(rows, site, seed=1, length=None, labels=True):
    """Everyone of a site replaced by noise: scans of the same or another length, labels drawn anew."""
    rng = np.random.default_rng(seed)
    out = []
    for where, label, who, scan in rows:
        if where == site:
            n = len(scan) if length is None else int(rng.integers(length, length + 20))
            scan = 50 * rng.normal(size=(n, scan.shape[1])) + rng.normal(0, 200, scan.shape[1])
            label = int(rng.integers(0, 2)) if labels else label
        out.append((where, label, who, scan))
    return out


def fitted(rows, name, dtype, source="abc", validation="de", test="f", epochs=2):
    """Audit, exclude, estimate, fit one run."""
    cohort = cohort_of(rows)
    kept = cohort.select(audit(cohort).keep)
    run = Run(split(kept, source, validation, test), 0)
    return small(name, epochs=epochs, T_w=1).fit(Connectomes(kept, dtype=dtype), [run])[0], kept


@pytest.fixture(scope="module")
def real(rows):
    """Outcomes of the untouched cohort in double precision, by method."""
    return {name: fitted(rows, name, torch.float64)[0] for name in METHODS}


@pytest.fixture(scope="module")
def spoiled(rows):
    """The rows with a scan that the audit excludes, one at a source site and one at the test site."""
    where = np.arange(rows[0][3].shape[1]) < 4
    return [(s, c, w, np.where(where, 0.0, x) if w in ("bee-05", "fox-02") else x) for s, c, w, x in rows]


@pytest.mark.parametrize("name", METHODS)
def test_scans_and_labels_of_the_test_site_reach_no_weight(spoiled, name):
    real, kept = fitted(spoiled, name, torch.float64)
    assert len(kept) == sum(SITES.values()) - 2
    noise, kept = fitted(noisy(spoiled, TEST), name, torch.float64)
    assert len(kept) == sum(SITES.values()) - 1
    assert_same_training(real, noise)
    assert not np.array_equal(real.test_logit, noise.test_logit)


@pytest.mark.parametrize("name", METHODS)
def test_lengths_of_the_test_scans_reach_no_weight(rows, name):
    """Also where source scans are so long that a matrix product sums them block by block."""
    rng = np.random.default_rng(5)
    long = [(s, c, w, np.concatenate([x, rng.normal(size=(330, x.shape[1]))])) for s, c, w, x in rows]
    assert_same_training(*(fitted(noisy(long, TEST, length=length), name, torch.float32)[0] for length in (60, 700)))


@pytest.mark.parametrize("name", METHODS)
def test_a_cohort_without_the_test_site_gives_the_same_weights(rows, real, name):
    without, _ = fitted([row for row in rows if row[0] != TEST], name, torch.float64, test="d")
    assert_same_training(real[name], without)


def test_no_weight_is_reached_through_the_stack_of_all_folds(rows):
    # the test site of one run is a source site of the others, trained and re-estimated side by side
    def stacked(rows):
        cohort = cohort_of(rows)
        kept = cohort.select(audit(cohort).keep)
        runs = [Run(fold, 0) for fold in leave_one_site_out(kept, 0)]
        return small("brio", epochs=3).fit(Connectomes(kept, dtype=torch.float32), runs)

    cut = [(s, c, w, x[:51]) for s, c, w, x in rows]
    real = stacked(cut)
    others = [i for i, o in enumerate(real) if TEST not in (o.run.fold.name, *o.run.fold.validation_sites)]
    noise = stacked(noisy(cut, TEST, length=120, labels=False))
    assert_same_training(*(next(o for o in out if o.run.fold.name == TEST) for out in (real, noise)))
    assert all(not torch.equal(real[i].parameters["w"], noise[i].parameters["w"]) for i in others)


def test_validation_sites_choose_but_do_not_teach(rows, every_epoch):
    real, _ = fitted(rows, "brio", torch.float64)
    taught = list(every_epoch)
    every_epoch.clear()
    noise, _ = fitted(noisy(noisy(rows, "dog"), "elk", seed=2), "brio", torch.float64)
    assert len(taught) == len(every_epoch) == 1
    for a, b in zip(taught, every_epoch, strict=True):
        assert a.keys() == b.keys()
        assert [n for n in a if not torch.equal(a[n], b[n])] == []
    assert real.validation_auc != noise.validation_auc


def test_the_penalty_of_ridge_is_all_that_validation_sites_decide(rows, real):
    noise, _ = fitted(noisy(noisy(rows, "dog"), "elk", seed=2), "ridge", torch.float64)
    for name in ("learned.mean", "parameters.centre", "parameters.intercept"):
        assert torch.equal(real["ridge"].tensors[name], noise.tensors[name])


@pytest.mark.parametrize("name", METHODS)
def test_scans_and_labels_of_a_source_site_do_reach_the_weights(rows, real, name):
    # the counterpart, without which the tests above could not fail
    noise, _ = fitted(noisy(rows, "bee", labels=False), name, torch.float64)
    weight = "parameters.coefficients" if name == "ridge" else "parameters.w"
    assert not torch.equal(real[name].tensors[weight], noise.tensors[weight])
    flipped = [(s, 1 - c if s == "bee" else c, w, x) for s, c, w, x in rows]
    assert not torch.equal(real[name].tensors[weight], fitted(flipped, name, torch.float64)[0].tensors[weight])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["gcn", pytest.param("brio", marks=pytest.mark.soak)])
def test_without_validation_sites_the_test_site_reaches_no_weight(rows, name, source):
    noise = noisy(rows, TEST, length=47)
    real, noise = (fitted(r, name, torch.float64, source, "", epochs=4)[0] for r in (rows, noise))
    assert_same_training(real, noise)
    assert not np.array_equal(real.test_logit, noise.test_logit)


def test_without_validation_sites_labels_of_source_sites_choose(rows):
    """The test above could not fail if nothing moved the choice."""
    flipped = [(s, 1 - c if s == "bee" else c, w, x) for s, c, w, x in rows]
    real, other = (fitted(r, "gcn", torch.float32, "abc", "", epochs=1)[0] for r in (rows, flipped))
    assert real.details["validation_curve"] != other.details["validation_curve"]
