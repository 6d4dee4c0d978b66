"""Small cohorts and models of them."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from brio import Cohort
from brio.cohort.simulate import Simulation
from brio.jobs import JobSpec
from brio.models import fit_model
from made_cohorts import simulate_named

SIMULATION = Simulation(n_sites=6, per_class=7, n_rois=16, frames=90, stable=0.5, dead_share=0.05, seed=5)
SMALL = {
    "brio": {"epochs": 4, "T_w": 2, "M": 6, "K": 2, "J": 2, "cell_batch": 3, "sinkhorn_iterations": 5},
    "gcn": {"epochs": 3},
    "fc-hgnn": {"epochs": 2},
    "brio-plus": {"K": 3},
}
SEVERAL = ("brio", "brio-plus", "gcn", "log-ridge")
"""Methods whose models have two members here."""


@pytest.fixture(scope="session")
def cohort() -> Cohort:
    """Six sites, sixteen named ROIs, repetition times and head motion."""
    return simulate_named(SIMULATION)


@pytest.fixture(scope="session")
def fit(cohort):
    """Fit a small model to a cohort (by default to all of it); models are kept."""

    @functools.cache
    def fit_small(name, scans=cohort, validation_sites=(), **settings):
        values, seeds = SMALL.get(name, {}) | settings, 2 if name in SEVERAL else 1
        spec = JobSpec(scans, [name], settings=values, seeds=seeds, exclude=False, device="cpu")
        return fit_model(spec, validation_sites=validation_sites, holds_scans=True)

    return fit_small


@pytest.fixture(scope="session")
def new_scans(cohort) -> Cohort:
    """The same connectomes, in scans that no model has seen."""
    return replace(cohort, frames=cohort.frames * np.float32(2))


@pytest.fixture(scope="session")
def ridge(fit):
    return fit("ridge")
