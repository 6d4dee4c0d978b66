"""Work on several cores: results in order, the same bits on any number of cores, settings restored after a failure."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.jobs import JobSpec
from brio.jobs.job import prepare_job
from brio.jobs.plan import build_plan
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


LINEAR = ["ridge", "log-ridge", "logistic", "svm", "tangent-ridge", "fc-tangent-ridge", "core-scaffold", "brio-plus"]
LINEAR += ["covariates-only", "dead-rois-only"]


@pytest.mark.parametrize("name", LINEAR)
def test_folds_on_two_cores_are_those_on_one_bit_for_bit(name):
    cohort = simulate(Simulation(n_sites=6, per_class=15, n_rois=60, frames=60))
    method = make_method(name)
    runs = [Run(fold, 0) for fold in leave_one_site_out(cohort, 0, validation_sites=1)]
    before, margins = torch.get_num_threads(), []
    try:
        for cores in (1, 2, 3):
            torch.set_num_threads(cores)
            with threadpool_limits(limits=cores):
                margins.append([fitted.test_logit for fitted in method.fit(Connectomes(cohort), runs)])
    finally:
        torch.set_num_threads(before)
    for one, *others in zip(*margins, strict=True):
        assert all(np.array_equal(one, other) for other in others)


def test_a_plan_states_the_threads_only_if_a_number_depends_on_them():
    job = prepare_job(JobSpec(simulate(Simulation(n_sites=4, per_class=4, n_rois=8, frames=60)), device="cpu"))
    assert build_plan(job, ["ridge", "brio-plus", "length-only"]).document.threads is None
    assert build_plan(job, ["ridge", "gcn"]).document.threads == torch.get_num_threads()
