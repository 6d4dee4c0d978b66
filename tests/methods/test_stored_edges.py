"""Large cohorts: stored edges and conjugate gradients give what held features and eigenvectors give."""

import numpy as np
import pytest
import torch

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.errors import BrioError
from brio.jobs.job import check_memory
from brio.methods import make_method
from brio.methods.linear import base
from brio.methods.linear.base import ScanReader, StoredEdges, StoredRows
from brio.methods.linear.ridge import KernelRidgeMethod
from brio.protocol import leave_one_site_out
from brio.training import Run

SIMULATION = Simulation(n_sites=5, per_class=8, n_rois=20, frames=60, dead_share=0.3, stable=0.6)


@pytest.fixture(scope="module")
def graphs():
    return Connectomes(simulate(SIMULATION))


@pytest.fixture(scope="module")
def runs(graphs):
    return [Run(fold, 0) for fold in leave_one_site_out(graphs.cohort, 0, validation_sites=1)[:2]]


@pytest.fixture
def count_as_large(monkeypatch):
    """Return a function after which this small cohort is fitted as a large one, some scans and edges at a time."""

    def switch():
        monkeypatch.setattr(base, "HELD_BYTES", 0)
        monkeypatch.setattr(base, "PORTION_BYTES", 8 * 190 * 7)
        monkeypatch.setattr(base, "_BLOCK_SCANS", 32)
        monkeypatch.setattr(base, "_BLOCK_EDGES", 48)
        monkeypatch.setattr(KernelRidgeMethod, "most_decomposed", 10)

    return switch


@pytest.mark.parametrize("fill", ["source-mean", "zero"])
@pytest.mark.parametrize("choose_by", ["source-sites", "validation"])
@pytest.mark.parametrize("name", ["ridge", "log-ridge", "svm", "logistic"])
def test_a_large_cohort_is_fitted_as_a_small_one(graphs, runs, count_as_large, name, choose_by, fill):
    method = make_method(name, {"choose_by": choose_by, "dead_rois": fill})
    assert isinstance(method.open_scans(graphs), ScanReader)
    small = method.fit(graphs, runs)
    count_as_large()
    assert isinstance(method.open_scans(graphs), StoredEdges)
    for fitted, expected in zip(method.fit(graphs, runs), small, strict=True):
        scale = np.abs(expected.test_logit).max()
        tolerance = 1e-6 if name != "svm" else 2e-3  # libsvm stops at a tolerance of its own
        np.testing.assert_allclose(fitted.test_logit, expected.test_logit, rtol=0, atol=tolerance * scale)
        assert fitted.details["penalty"] == pytest.approx(expected.details["penalty"], rel=1e-6)
        assert fitted.validation_auc == pytest.approx(expected.validation_auc, abs=1e-9)
        test = method.gather_inputs(graphs).take(torch.from_numpy(fitted.run.fold.test))
        np.testing.assert_allclose(method.predict(fitted, test).margin, fitted.test_logit, rtol=0, atol=1e-6 * scale)


def test_columns_of_labels_of_a_large_cohort_have_the_margins_of_a_small_one(graphs, runs, count_as_large):
    labels = np.random.default_rng(0).permuted(np.repeat(graphs.cohort.labels[:, None], 3, axis=1), axis=0)
    method = make_method("ridge", {"choose_by": "validation"})
    expected = method.fit_labels(graphs, runs, labels)
    count_as_large()
    np.testing.assert_allclose(method.fit_labels(graphs, runs, labels), expected, rtol=0, atol=1e-6)


def test_stored_rows_are_centred_features(graphs, count_as_large):
    """Against plain algebra on features that are filled by hand."""
    count_as_large()
    stored = StoredEdges(graphs.full.split(9), graphs.alive)
    u, v = np.triu_indices(graphs.n_rois, 1)
    fill, source, others = np.linspace(-1, 1, len(u)), np.arange(5, 60), np.array([70, 2, 61])
    live = graphs.alive.numpy()[:, u] & graphs.alive.numpy()[:, v]
    assert not live[others].all()  # there is something to fill
    assert not live[source].all()
    x = np.where(live, graphs.full.numpy()[:, u, v].astype(np.float64), fill)
    centred = x - x[source].mean(0)
    rows, gram = StoredRows.prepare(stored, source, fill)
    weights, coefficients = np.cos(source), np.sin(fill)
    np.testing.assert_allclose(rows.centre, x[source].mean(0), atol=1e-12)
    np.testing.assert_allclose(gram, centred[source] @ centred[source].T, atol=1e-5)
    np.testing.assert_allclose(rows.multiply(others), centred[others] @ centred[source].T, atol=1e-5)
    np.testing.assert_allclose(rows.combine(weights), weights @ centred[source], atol=1e-11)
    np.testing.assert_allclose(rows.project(others, coefficients), centred[others] @ coefficients, atol=1e-11)
    assert len(rows.project(others[:0], coefficients)) == 0  # a model of all sites has no test scans
    mean = np.where(live[source], x[source], 0.0).sum(0) / live[source].sum(0).clip(1)
    np.testing.assert_allclose(stored.average_live(source), mean, atol=1e-12)


def test_a_linear_model_whose_gram_matrix_cannot_fit_is_refused(graphs):
    """A hundred thousand scans: products of all, and the Gram matrix of a run, of 80 GB each."""
    for name in ("ridge", "log-ridge"):
        assert make_method(name).estimate_fit_bytes(100_000, 400) > 2 * 8e10
    with pytest.raises(BrioError, match=r"method 'ridge' .* needs about .* TB of memory"):
        check_memory([make_method("ridge")], MillionScans(graphs.cohort), resolve_device("cpu"))


class MillionScans:
    """A cohort that says it has a million scans."""

    def __init__(self, cohort):
        self.n_rois = cohort.n_rois

    def __len__(self):
        return 10**6
