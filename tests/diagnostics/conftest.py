"""Fitted runs that the tests of the diagnostics share."""

import pytest
import torch
from diagnostic_cohorts import TINY, small, uneven

from brio.cohort import Cohort
from brio.cohort.simulate import simulate
from brio.connectome import Connectomes
from brio.diagnostics import FactorEvidence, FrozenRuns, gather_factor_evidence
from brio.training import FittedRun, Method, Run


@pytest.fixture(scope="session")
def cohort() -> Cohort:
    return simulate(TINY)


@pytest.fixture(scope="session")
def graphs(cohort) -> Connectomes:
    return Connectomes(cohort, dtype=torch.float64)


@pytest.fixture(scope="session")
def runs(cohort) -> list[Run]:
    return uneven(cohort)


@pytest.fixture(scope="session")
def fitted(graphs, runs) -> tuple[Method, list[FittedRun]]:
    """BRIO and four fitted runs of it."""
    method = small("brio")
    return method, method.fit(graphs, runs)


@pytest.fixture(scope="session")
def evidence(graphs, fitted) -> list[FactorEvidence]:
    method, fitted_runs = fitted
    return gather_factor_evidence(FrozenRuns(method, fitted_runs, graphs, [4.0] * len(fitted_runs), 5))
