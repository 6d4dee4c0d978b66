"""Folds without validation sites: all other sites are source, for methods that choose by source sites alone."""

import pytest

from brio import run
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError

COHORT = simulate(Simulation(n_sites=4, per_class=6, frames=60))
ALL = {"protocol.validation_sites": 0}


@pytest.mark.parametrize(
    ("name", "settings"),
    [("ridge", {"choose_by": "source-sites"}), ("tangent-ridge", {"choose_by": "source-sites"}), ("brio-plus", {})],
)
def test_every_other_site_is_source(name, settings):
    rows = run(COHORT, [name], settings=ALL | settings, device="cpu").rows
    assert len(rows) == 4
    assert (rows["n_validation"] == 0).all()
    assert (rows["n_source"] + rows["n_test"] == len(COHORT)).all()
    assert rows["validation_auc"].between(0, 1).all()  # that of inner folds of the source sites


@pytest.mark.parametrize(
    ("name", "message"),
    [("ridge", "choose_by=source-sites does without"), ("core-scaffold", "chooses its model by validation")],
)
def test_a_method_that_chooses_by_validation_scans_says_what_to_do(name, message):
    with pytest.raises(BrioError, match=message):
        run(COHORT, [name], settings=ALL, device="cpu")
