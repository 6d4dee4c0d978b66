"""Cohorts and settings for the suite that every method passes."""

import dataclasses
import os
from functools import cache

import numpy as np
import pytest

from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.methods import find_method, list_methods, load_methods, make_method
from brio.protocol import leave_one_site_out
from brio.training import Method, Run
from made_cohorts import SMALL, make_small, rebuild
from made_cohorts import split as split  # tests of methods import it from here
from made_cohorts import uneven as uneven

for file in filter(None, os.environ.get("BRIO_METHODS", "").split(os.pathsep)):
    load_methods(file)  # a method of your own under the same suite

METHODS = [e.name for e in list_methods() if not e.control]
CONTROLS = [e.name for e in list_methods() if e.control]


def soak_variants(names: list[str], also: tuple[str, ...] = (), but: tuple[str, ...] = ()) -> list:
    """The methods, of which those that only fix settings of another one, and further families, are long tests."""
    long = {name for name in names if find_method(name).fixed or find_method(name).family in also} - set(but)
    return [pytest.param(name, marks=pytest.mark.soak) if name in long else name for name in names]


EASY = Simulation(
    n_sites=6, per_class=12, n_rois=16, frames=120, stable=1.0, unstable=0, spurious=0, site_shift=0.1, dynamics=1.5
)
TINY = Simulation(n_sites=6, per_class=4, n_rois=12, frames=60, stable=1.0, dynamics=1.0, dead_share=0.2, seed=3)

NARROW = {
    "width": 16,
    "experts": 3,
    "expert_width": 8,
    "gate_width": 16,
    "feed_forward": 32,
    "centres": 8,
    "d_e": 8,
    "d_h": 16,
    "d_t": 8,
    "d_mlp": 8,
    "d_qk": 8,
    "edges": 40,
    "bootstraps": 20,
    "sketch": 32,
}
"""Widths of layers and numbers of draws for what holds at every width."""


@cache
def easy() -> Connectomes:
    return Connectomes(simulate(EASY))


@cache
def tiny() -> Cohort:
    return simulate(TINY)


def small(name: str, **values: object) -> Method:
    """A method with small settings."""
    return make_small(name, SMALL | values)


def narrow(name: str, **values: object) -> Method:
    """A method with small settings and narrow layers."""
    return small(name, **NARROW | values)


def neural(name: str) -> bool:
    return hasattr(make_method(name).settings, "epochs")


def loso(graphs: Connectomes, *sites: str) -> list[Run]:
    """Leave-one-site-out runs of seed 0, of all sites or of some."""
    return [Run(f, 0) for f in leave_one_site_out(graphs.cohort, 0) if not sites or f.name in sites]


def replaced(cohort: Cohort, site: str, seed: int = 1) -> Cohort:
    """The cohort with every scan, label and covariate of a site replaced by noise."""
    rng = np.random.default_rng(seed)
    here = cohort.sites == site
    scans = [
        50 * rng.normal(size=cohort.scan(i).shape) + rng.normal(0, 200, cohort.n_rois) if here[i] else cohort.scan(i)
        for i in range(len(cohort))
    ]
    table = cohort.participants.copy()
    table.loc[here, "label"] = rng.permutation(table.loc[here, "label"].to_numpy())
    table.loc[here, "age"] = rng.uniform(5, 90, here.sum())
    table.loc[here, "sex"] = rng.choice(["F", "M"], here.sum())
    return rebuild(cohort, scans, table=table)


def without(cohort: Cohort, *columns: str) -> Cohort:
    """The cohort without some columns of its participants or its atlas."""
    atlas = dataclasses.replace(cohort.atlas, rois=cohort.atlas.rois.drop(columns=list(columns), errors="ignore"))
    table = cohort.participants.drop(columns=list(columns), errors="ignore")
    return dataclasses.replace(cohort, participants=table, atlas=atlas)
