"""The scale of BRIO's block length: on the unrounded estimate, before it is rounded and clipped."""

import numpy as np
import pytest

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.errors import BrioError
from brio.methods import make_method
from brio.methods.brio import BrioSettings
from brio.protocol import leave_one_site_out
from brio.training import Run
from brio.training.contract import Inputs

SMALL = {"epochs": 2, "T_w": 1, "K": 2, "d_h": 8, "d_mlp": 8, "d_e": 4, "sinkhorn_iterations": 3}


@pytest.fixture(scope="module")
def graphs():
    return Connectomes(simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60)))


@pytest.fixture(scope="module")
def run(graphs):
    return Run(leave_one_site_out(graphs.cohort, 0)[0], 0)


@pytest.fixture
def blocks(monkeypatch):
    """Block lengths of the re-estimates that were computed."""
    lengths = []
    reestimates = Inputs.iterate_reestimates

    def record_and_reestimate(self, resamples, max_bytes=None):
        lengths.append(resamples.block_length)
        return reestimates(self, resamples, max_bytes)

    monkeypatch.setattr(Inputs, "iterate_reestimates", record_and_reestimate)
    return lengths


@pytest.mark.parametrize(
    ("scale", "block"),
    [(0.5, 3), (1.0, 5), (2.0, 11), (20.0, 30), (0.01, 2)],  # of 5.4375: 2.72, 5.44, 10.9; then the rule's bounds
)
def test_it_is_rounded_after_it_is_scaled_and_clipped_last(scale, block, graphs, run, blocks, monkeypatch):
    monkeypatch.setattr(Connectomes, "estimate_block_length", lambda *args: 5.4375)
    make_method("brio", {**SMALL, "block_scale": scale}).fit(graphs, [run])
    (lengths,) = blocks
    frames = graphs.n_frames[run.fold.source]
    assert lengths.tolist() == np.minimum(block, frames // 2).tolist()


def test_a_fixed_length_is_not_scaled(graphs, run, blocks):
    (fitted,) = make_method("brio", {**SMALL, "block_length": 7}).fit(graphs, [run])
    assert fitted.block_length == 7
    assert set(blocks[0]) == {7}


def test_what_re_estimates_nothing_has_no_block_length(graphs, run):
    for name in ("brio-wo-rs", "backbone"):
        (fitted,) = make_method(name, {**SMALL, "block_scale": 2.0}).fit(graphs, [run])
        assert fitted.block_length is None


def test_scales_that_make_no_sense_are_refused():
    assert BrioSettings(block_scale=0.5).block_scale == 0.5
    assert BrioSettings(block_length=4.0).block_scale == 1.0
    with pytest.raises(BrioError, match=r"'block_scale'=2\.0: must be 1 where block_length is given"):
        BrioSettings(block_scale=2.0, block_length=4.0)
