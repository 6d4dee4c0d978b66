"""Small cohorts with some signal, folds of unlike numbers of source sites, small settings."""

import numpy as np
import torch

import made_cohorts
from brio.cohort import Cohort
from brio.protocol import Fold
from brio.training import InputShape, Method, Scans, Stage
from brio.training.stack import Stack

P = 10
SITES = {"ant": 9, "bee": 11, "cat": 8, "dog": 12, "elk": 10, "fox": 8}
SMALL = made_cohorts.SMALL | {
    "J": 3,
    "d_e": 4,
    "d_h": 6,
    "d_t": 4,
    "d_mlp": 5,
    "d_qk": 5,
    "rho_g": 0.3,
    "M": 3,
    "T_w": 2,
    "learning_rate": 3e-3,
    "epochs": 4,
}

SOURCES = ["abc", "ab"]
"""Where no site validates, each of three sites does in turn; of two, fifths of the participants do."""


Row = tuple[str, int, str, np.ndarray]
"""Site, label, participant and scan."""


def small_scan(rng: np.random.Generator, label: int, n: int) -> np.ndarray:
    """Series with memory in which patients have two ROIs in step."""
    x = rng.normal(size=(n, P))
    x[:, 1] += 0.8 * label * x[:, 0]
    x[:, 3] -= 0.6 * x[:, 2]
    for t in range(1, n):
        x[t] += 0.5 * x[t - 1]
    return x


def small_rows() -> list[Row]:
    """Everyone of the cohort, sites mixed as in a real table."""
    rng = np.random.default_rng(0)
    out = []
    for site, n in SITES.items():
        for k in range(n):
            label = k % 2
            scan = small_scan(rng, label, int(rng.integers(50, 64)))
            if k == 3:
                scan[:, 4 + len(out) % 3] = 0.0  # a parcel outside the field of view
            out.append((site, label, f"{site}-{k:02d}", scan))
    return [out[i] for i in rng.permutation(len(out))]


def cohort_of(rows: list[Row]) -> Cohort:
    """A cohort in memory."""
    site, label, who, scans = zip(*rows, strict=True)
    return Cohort.from_scans(scans, site=site, label=label, participant_id=who)


def split(cohort: Cohort, source: str, validation: str, test: str) -> Fold:
    """A fold from first letters of sites: ``split(cohort, "abc", "de", "f")``."""
    return made_cohorts.split(cohort, *([ord(letter) - 96 for letter in part] for part in (source, validation, test)))


def small(name: str = "brio", **values: object) -> Method:
    """A method with small settings."""
    return made_cohorts.make_small(name, SMALL | values)


def call_run(stack: Stack, r: int, A: torch.Tensor, alive: torch.Tensor):
    """What the network of one run of a stack returns for connectomes."""
    network = stack.method.network(InputShape(P, 1, 0)).double()
    network.load_state_dict({n: p[r].detach() for n, p in stack.params.items()})
    return network(Scans.of(A, alive)._replace(state=stack.state.select(torch.tensor(r))))


def losses(stack: Stack, scans: np.ndarray, stage: Stage) -> torch.Tensor:
    """Losses of a stack on a batch, at the first step of the first epoch."""
    return stack.compute_losses(
        torch.from_numpy(scans), torch.zeros(len(stack), dtype=torch.int64), torch.tensor(1.0), stage
    )
