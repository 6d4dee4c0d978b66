"""The catalogue of methods: what their classes declare, stored so that it can be read without importing them.

``python -m brio.methods.catalogue`` writes ``catalogue.json``. Run it after adding or changing a method or one of its
settings; a test fails if the catalogue is out of date.
"""

import dataclasses
import importlib
import json
from typing import Any

from ..storage import write_atomically
from .registry import CATALOGUE, list_declared

FAMILIES = ("linear", "mlp", "gnn", "ood", "graph_ood", "brain", "brio", "plus")
"""Folders and modules of methods, in the order in which tables list them."""


def describe_classes() -> list[dict[str, Any]]:
    """Describe the methods of brio as their classes declare them, ready for ``json.dumps``."""
    described = []
    for family in FAMILIES:
        package = importlib.import_module(f".{family}", __package__).__name__
        entries = [e for e in list_declared() if f"{e.module}.".startswith(f"{package}.")]
        described += [dataclasses.asdict(e) for e in entries]
    for facts in described:  # which only methods of a user's file have
        del facts["file"], facts["code"]
    return json.loads(json.dumps(described))


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(entry) for entry in describe_classes())
    write_atomically(CATALOGUE, f"[\n{lines}\n]\n")  # a line for each method
    print(f"wrote {CATALOGUE}")
