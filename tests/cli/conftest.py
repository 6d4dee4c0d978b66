"""The command line inside this process."""

import pytest

from commands import command


@pytest.fixture
def brio():
    """Run a command."""
    return command
