"""Cohorts made from others, folds of chosen sites, and methods with small settings."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from brio.cohort import Atlas, Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.methods import find_method, make_method
from brio.protocol import Fold
from brio.training import Method, Run

SMALL = {
    "epochs": 2,
    "patience": None,
    "cell_batch": 2,
    "T_w": 1,
    "K": 2,
    "M": 1,
    "sinkhorn_iterations": 8,
    "assignment_iterations": 10,
    "block_subjects": 8,
    "block_signals": 4,
    "block_products": 4,
    "bold_frames": 40,
    "bold_windows": 2,
}
"""Settings that make any method small; each takes those it has."""


def simulate_named(simulation: Simulation) -> Cohort:
    """Simulate a cohort with names of regions and classes, repetition times and head motion."""
    made = simulate(simulation)
    rng = np.random.default_rng(0)
    named = Atlas("mine", made.atlas.rois.assign(name=[f"region {u}" for u in range(len(made.atlas))]))
    table = made.participants.assign(tr=2.0, mean_fd=rng.uniform(0.05, 0.3, len(made)))
    return rebuild(made, table=table, atlas=named, classes=("control", "patient"))


def rebuild(
    cohort: Cohort,
    scans: Sequence[np.ndarray] | None = None,
    *,
    table: pd.DataFrame | None = None,
    index: Sequence[int] | None = None,
    **options: object,
) -> Cohort:
    """A new cohort of the same participants, or of those of an index, with what is given changed.

    ``table`` takes the place of the table of participants, options are those of ``Cohort.from_scans``.
    """
    index = range(len(cohort)) if index is None else index
    table = (cohort.participants if table is None else table).iloc[list(index)]
    own = {"site": table["site"], "label": table["label"], "participant_id": table["participant_id"]}
    covariates = table.drop(columns=[*own, "n_frames", "session", "brio_scan_id"], errors="ignore")
    own |= {"covariates": covariates, "atlas": cohort.atlas, "classes": cohort.classes}
    return Cohort.from_scans(scans or [cohort.scan(i) for i in index], **own | options)


def split(cohort: Cohort, source: Collection[int], validation: Collection[int], test: Collection[int]) -> Fold:
    """A fold from numbers of sites, in the order of their names (1 is the first)."""
    names, number = np.unique(cohort.sites, return_inverse=True)
    where = [np.flatnonzero(np.isin(number + 1, part)) for part in (source, validation, test)]
    sites = [tuple(name for k, name in enumerate(names, 1) if k in part) for part in (test, validation)]
    return Fold("".join(sites[0]), *where, *sites)


def uneven(cohort: Cohort) -> list[Run]:
    """Runs of two seeds with three, four and two source sites, so that a stack pads."""
    return [
        Run(split(cohort, [1, 2, 3], [4, 5], [6]), 0),
        Run(split(cohort, [2, 3, 4, 5], [6], [1]), 1),
        Run(split(cohort, [5, 6], [1, 2], [3]), 0),
    ]


def take_settings(name: str, values: Mapping[str, object]) -> dict[str, object]:
    """Those of some settings that a method has and does not fix."""
    entry = find_method(name)
    own = {field.name for field in dataclasses.fields(entry.method_class.Settings)} - set(entry.fixed)
    return {key: value for key, value in values.items() if key in own}


def make_small(name: str, values: Mapping[str, object]) -> Method:
    """A method with those of some settings that it has."""
    return make_method(name, take_settings(name, values))
