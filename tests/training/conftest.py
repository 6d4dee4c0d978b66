"""Fixtures around the small cohorts."""

from collections.abc import Callable

import pytest
import torch
from small_cohorts import Row, cohort_of, small_rows

import made_cohorts
from brio.cohort import Cohort
from brio.connectome import Connectomes
from brio.training import Run
from brio.training.trainer import BestValidationEpoch


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    return small_rows()


@pytest.fixture(scope="session")
def cohort(rows) -> Cohort:
    return cohort_of(rows)


@pytest.fixture(scope="session")
def graphs(cohort) -> Connectomes:
    return Connectomes(cohort, dtype=torch.float64)


@pytest.fixture(scope="session")
def uneven(cohort) -> list[Run]:
    return made_cohorts.uneven(cohort)


@pytest.fixture
def every_epoch(monkeypatch) -> list[dict[str, torch.Tensor]]:
    """States offered for selection during a fit, in order: the whole trajectory of the trained weights."""
    seen: list[dict[str, torch.Tensor]] = []
    offer: Callable = BestValidationEpoch.consider

    def recorded(self, margins, state, epoch):
        seen.append({name: t.clone() for name, t in state.items()})
        offer(self, margins, state, epoch)

    monkeypatch.setattr(BestValidationEpoch, "consider", recorded)
    return seen
