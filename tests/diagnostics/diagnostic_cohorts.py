"""A small simulated cohort, folds with different numbers of source sites, small methods, and their outputs."""

import dataclasses

import numpy as np

from brio.cohort import Cohort
from brio.cohort.simulate import Simulation
from brio.connectome import Connectomes
from brio.diagnostics import Fields, FrozenRuns, map_source_outputs
from brio.methods import find_method, make_method
from brio.protocol import Fold
from brio.training import FittedRun, Method, Run

TINY = Simulation(n_sites=6, per_class=5, n_rois=12, frames=60, dead_share=0.2, seed=3)

SMALL = {
    "epochs": 5,
    "patience": None,
    "cell_batch": 2,
    "learning_rate": 3e-3,
    "T_w": 2,
    "J": 3,
    "K": 2,
    "M": 3,
    "d_h": 8,
    "sinkhorn_iterations": 8,
    "assignment_iterations": 20,
    "block_signals": 4,
    "block_products": 4,
    "bold_frames": 40,
}
"""Settings that make any method small; each takes those it has."""


def small(name: str, **values: object) -> Method:
    own = {f.name for f in dataclasses.fields(find_method(name).method_class.Settings)} - set(find_method(name).fixed)
    return make_method(name, {k: v for k, v in {**SMALL, **values}.items() if k in own})


def fold(cohort: Cohort, source: list[int], validation: list[int], test: list[int]) -> Fold:
    """A fold from numbers of sites (1 is site01)."""
    number = np.array([int(s.removeprefix("site")) for s in cohort.sites])
    where = [np.flatnonzero(np.isin(number, part)) for part in (source, validation, test)]
    names = [tuple(f"site{i:02d}" for i in part) for part in (test, validation)]
    return Fold(names[0][0], *where, *names)


def uneven(cohort: Cohort) -> list[Run]:
    """Runs of two seeds with three, four, two and three source sites."""
    return [
        Run(fold(cohort, [1, 2, 3], [4, 5], [6]), 0),
        Run(fold(cohort, [2, 3, 4, 5], [6], [1]), 1),
        Run(fold(cohort, [5, 6], [1, 2], [3]), 0),
        Run(fold(cohort, [1, 3, 6], [4, 5], [2]), 0),
    ]


def collect_outputs(
    method: Method, fitted_runs: list[FittedRun], graphs: Connectomes, lengths: list[float], K: int
) -> list[tuple[Fields, Fields]]:
    """Logits and representations of every run, and logits of its re-estimates, in the order of the runs."""
    frozen, fields = FrozenRuns(method, fitted_runs, graphs, lengths, K), (("logit", "representation"), ("logit",))
    return map_source_outputs(frozen, fields, lambda fitted, *outputs: outputs)
