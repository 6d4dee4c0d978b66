"""Fixtures that several families share."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from brio.training.trainer import BestValidationEpoch


@pytest.fixture
def last_epoch(monkeypatch) -> None:
    """Choose the last checkpoint always, so that whole trainings are compared, not their first epochs."""
    monkeypatch.setattr(BestValidationEpoch, "score", lambda self, logit: np.nextafter(self.best.clip(0), 2))


@pytest.fixture
def in_double() -> Iterator[None]:
    """Draw from seed 0, in double precision by default."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
