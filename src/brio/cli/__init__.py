"""The command line: every command reads its options, calls the package and prints."""

from . import configuring, data, federation, modelling, running, showing  # noqa: F401 - importing adds their commands
from .app import app, main

__all__ = ["app", "main"]
