"""Four small hospitals, and projects of them."""

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from brio import Cohort, federation
from brio.cohort import audit
from brio.cohort.simulate import Simulation
from brio.federation import Answer, Request, Terms
from brio.federation.folders import find_answered
from brio.models import Model
from made_cohorts import simulate_named

LEAST = 5
"""Fewest participants in a class: with ten, pairs of regions that some scans lack would be left out at these sites."""
SIMULATION = Simulation(n_sites=4, per_class=14, n_rois=8, frames=70, stable=0.5, dead_share=0.06, seed=3)


@pytest.fixture(scope="session", autouse=True)
def audit_once():
    """Audit each cohort once, which takes most of the time of an answer of so few scans."""
    audits = {}

    def audit_kept(cohort):
        key = cohort.fingerprint
        return audits[key] if key in audits else audits.setdefault(key, audit(cohort))

    with mock.patch("brio.federation.site.audit", audit_kept):
        yield


@pytest.fixture(autouse=True)
def answered(tmp_path) -> Iterator[Path]:
    """The folder that records answered questions, new for each test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield find_answered()


class Project(NamedTuple):
    """All requests of a project with the answers to each, and its model."""

    requests: list[Request]
    answers: list[dict[str, Answer]]
    model: Model


@pytest.fixture(scope="session")
def pool() -> Cohort:
    """Scans of four sites, of which some regions of some scans have no signal."""
    return simulate_named(SIMULATION)


@pytest.fixture(scope="session")
def sites(pool) -> dict[str, Cohort]:
    """The same, one cohort per site."""
    return {str(e): pool.select(pool.sites == e) for e in np.unique(pool.sites)}


@pytest.fixture(scope="session")
def terms(pool) -> Terms:
    rois = {"name": pool.atlas.rois["name"].tolist()}
    return Terms("trial", "log-ridge", pool.atlas.name, rois, pool.classes)


def run_project(terms: Terms, sites: dict[str, Cohort]) -> Project:
    """Run a project to its end, in memory."""
    requests, answers, result = [], [], federation.start(terms)
    while isinstance(result, Request):
        requests.append(result)
        answers.append({name: federation.answer(result, one, LEAST) for name, one in sites.items()})
        result = federation.combine(result, list(answers[-1].values()))
    return Project(requests, answers, result)


@pytest.fixture(scope="session")
def project(terms, sites):
    """Run a project under changed terms, and with other scans of a site; by default each is run once."""

    @functools.cache
    def run_known(**changes) -> Project:
        return run_project(replace(terms, **changes), sites)

    def run(others: dict[str, Cohort] | None = None, **changes) -> Project:
        return run_known(**changes) if others is None else run_project(replace(terms, **changes), sites | others)

    return run
