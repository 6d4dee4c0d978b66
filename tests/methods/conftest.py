"""Fixtures that several families share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def in_double() -> Iterator[None]:
    """Draw from seed 0, in double precision by default."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
