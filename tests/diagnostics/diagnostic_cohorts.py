"""A small simulated cohort, folds with different numbers of source sites, small methods, and their outputs."""

from brio.cohort import Cohort
from brio.cohort.simulate import Simulation
from brio.connectome import Connectomes
from brio.diagnostics import Fields, FrozenRuns, map_source_outputs
from brio.training import FittedRun, Method, Run
from made_cohorts import make_small, split
from made_cohorts import uneven as three_uneven

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
    return make_small(name, SMALL | values)


def uneven(cohort: Cohort) -> list[Run]:
    """Runs of two seeds with three, four, two and three source sites."""
    return [*three_uneven(cohort), Run(split(cohort, [1, 3, 6], [4, 5], [2]), 0)]


def collect_outputs(
    method: Method, fitted_runs: list[FittedRun], graphs: Connectomes, lengths: list[float], K: int
) -> list[tuple[Fields, Fields]]:
    """Logits and representations of every run, and logits of its re-estimates, in the order of the runs."""
    frozen, fields = FrozenRuns(method, fitted_runs, graphs, lengths, K), (("logit", "representation"), ("logit",))
    return map_source_outputs(frozen, fields, lambda fitted, *outputs: outputs)
