"""Fitted runs that the tests of the diagnostics share."""

import pytest
import torch
from fitted_runs import TINY, small, uneven

from brio.cohort import Cohort
from brio.cohort.simulate import simulate
from brio.connectome import Connectomes
from brio.diagnostics import FactorEvidence, factor_evidence
from brio.training import Method, Outcome, Run


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
def fitted(graphs, runs) -> tuple[Method, list[Outcome]]:
    """BRIO and four fitted runs of it."""
    method = small("brio")
    return method, method.fit(graphs, runs)


@pytest.fixture(scope="session")
def evidence(graphs, fitted) -> list[FactorEvidence]:
    method, outcomes = fitted
    return factor_evidence(method, outcomes, graphs, [4.0] * len(outcomes), 5)
