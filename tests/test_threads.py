"""Work on several cores: results in order, the same bits on any number of cores, settings restored after a failure."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.machine import map_on_cores
from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.training import Run


@pytest.fixture
def two_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def count_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_results_come_in_order_each_from_one_core(two_cores):
    before, announced = count_threads(), []
    results = map_on_cores(lambda i: (i, torch.get_num_threads(), count_threads()), range(9), report=announced.append)
    assert [i for i, _, _ in results] == announced == list(range(9))
    assert {threads for _, threads, _ in results} == {1}
    assert all(set(blas) == {1} for _, _, blas in results)
    assert torch.get_num_threads() == 2
    assert count_threads() == before


def test_a_failure_is_raised_and_threads_are_restored(two_cores):
    def fail(i):
        if i == 3:
            raise ValueError("the fourth")
        return i

    before = count_threads()
    with pytest.raises(ValueError, match="the fourth"):
        map_on_cores(fail, range(8))
    assert torch.get_num_threads() == 2
    assert count_threads() == before


def test_short_memory_leaves_one_at_a_time(two_cores):
    running, most = set(), []

    def watch(i):
        running.add(i)
        most.append(len(running))
        running.discard(i)

    map_on_cores(watch, range(5), bytes_each=1e18)
    assert most == [1] * 5


@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_folds_on_two_cores_are_those_on_one_bit_for_bit(name):
    graphs = Connectomes(simulate(Simulation(n_sites=4, per_class=5, n_rois=12, frames=60)))
    method = make_method(name, {"choose_by": "source-sites"})
    runs = [Run(fold, 0) for fold in leave_one_site_out(graphs.cohort, 0, validation_sites=0)]
    before, margins = torch.get_num_threads(), []
    try:
        for cores in (1, 2):
            torch.set_num_threads(cores)
            margins.append([fitted.test_logit for fitted in method.fit(graphs, runs)])
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*margins, strict=True):
        assert np.array_equal(one, two)
