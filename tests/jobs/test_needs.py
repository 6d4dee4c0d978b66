"""A job says what it needs, and what cannot fit is refused before anything is written."""

import re
import tracemalloc

import numpy as np
import pytest
import torch

import brio
from brio import machine
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.device import ComputeDevice
from brio.errors import BrioError
from brio.jobs import JobSpec
from brio.jobs.job import check_memory, describe_rest, estimate_memory
from brio.methods import list_methods, make_method
from brio.models import explain_model, fit_model
from brio.protocol import leave_one_site_out
from brio.results import RunStore
from brio.training import Run
from commands import refuse

GPU = ComputeDevice(torch.device("cuda"))
"""Need not be there, as long as nothing is computed on it."""


@pytest.fixture(scope="module")
def cohort():
    return simulate(Simulation(n_sites=5, per_class=3, n_rois=8, frames=60))


@pytest.fixture
def scarce(monkeypatch):
    """A machine with ten megabytes of memory."""
    monkeypatch.setattr(machine, "find_free_memory", lambda: 10_000_000)


def test_every_method_has_an_estimate_that_grows_with_its_widths(cohort):
    for entry in list_methods():
        usual = estimate_memory(make_method(entry.name), cohort)
        assert np.isfinite(usual)
        assert usual > 0
    wide = estimate_memory(make_method("gcn", {"width": 4096}), cohort)
    assert wide > 20 * estimate_memory(make_method("gcn"), cohort)
    bold = estimate_memory(make_method("deci", {"bold_windows": 1000, "bold_frames": 10_000}), cohort)
    assert bold > 30 * 1000 * 10_000 * 8 * 4
    many = estimate_memory(make_method("brio-plus", {"K": 10_000}), cohort)
    assert many > 100 * estimate_memory(make_method("brio-plus"), cohort)


def test_a_linear_model_is_checked_against_the_memory_of_the_machine(cohort, monkeypatch):
    """It is fitted on the CPU; a network on the GPU. Connectomes are there in any case."""
    room = {"free": 2 * len(cohort) * cohort.n_rois**2 * 4}
    monkeypatch.setattr("brio.device._gpu_memory", lambda device: (room["free"], room["free"]))
    linear = [entry.name for entry in list_methods() if entry.family in ("linear", "control")]
    check_memory([make_method(name) for name in linear], cohort, GPU)
    refuse(r"method 'mlp' .* needs about .* of memory", check_memory, [make_method("mlp")], cohort, GPU)
    room["free"] -= 1
    refuse(r"method 'ridge' .* needs about .* of memory", check_memory, [make_method("ridge")], cohort, GPU)
    room["free"] += 1
    monkeypatch.setattr(machine, "find_free_memory", lambda: 1000)
    refuse(r"method 'ridge' .* needs about .* of memory", check_memory, [make_method("ridge")], cohort, GPU)


@pytest.mark.parametrize("K", [300, 1000])
def test_the_estimate_of_brio_plus_is_near_what_it_takes(cohort, K):
    method = make_method("brio-plus", {"K": K})
    run = Run(leave_one_site_out(cohort, seed=0, validation_sites=0)[0], seed=0)
    connectomes = Connectomes(cohort)
    method.fit(connectomes, [run])
    tracemalloc.start()
    method.fit(connectomes, [run])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most > 1e6
    assert most / 1.5 < estimate_memory(method, cohort) < 4 * most


def test_a_job_that_does_not_fit_into_memory_is_refused_before_it_writes(cohort, scarce, tmp_path):
    with pytest.raises(BrioError, match=r"method 'gcn' with these settings.* needs about .* 10 MB is free") as told:
        brio.run(cohort, ["gcn"], settings={"width": 4096}, out=tmp_path / "new", device="cpu")
    assert "choose settings that need less memory" in str(told.value)
    assert list(tmp_path.iterdir()) == []
    assert len(brio.run(cohort, ["ridge"], out=tmp_path / "new", device="cpu").rows) == 5


def test_connectomes_and_simulations_that_do_not_fit_are_refused(cohort, monkeypatch):
    monkeypatch.setattr(machine, "find_free_memory", lambda: 1000)
    refuse(r"30 connectomes of 8 ROIs need about 7\.7 kB of memory, but only 1 kB is free", Connectomes, cohort)
    with pytest.raises(BrioError, match="scans of this size needs about"):
        simulate(Simulation(n_sites=10_000, per_class=100_000, n_rois=10_000, frames=1_000_000))


def test_re_estimates_that_do_not_fit_are_refused(cohort, scarce):
    model = fit_model(JobSpec(cohort, ["ridge"], device="cpu"))
    refuse("10000 re-estimates of 8 ROIs need", explain_model, model, cohort, reestimates=10_000, device="cpu")


def test_a_full_disk_is_noticed_in_advance(cohort, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "find_free_disk", lambda path: 1000)
    with pytest.raises(BrioError, match=r"5 runs need about .* on disk, but only 1 kB is free"):
        brio.run(cohort, ["ridge"], out=tmp_path / "new", device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_a_job_has_a_largest_number_of_runs(cohort, monkeypatch, tmp_path):
    monkeypatch.setattr("brio.jobs.plan.MOST_RUNS", 10)
    too_many = r"would have 15 runs \(1 method, 5 folds, 3 seeds\), but at most 10"
    refuse(too_many, brio.run, cohort, ["ridge"], seeds=3, out=tmp_path / "new", device="cpu")
    refuse("would have 20 runs", brio.tune, cohort, ["gcn"], budget=4, out=tmp_path / "new", device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_a_job_says_what_it_needs_and_what_is_left(cohort, tmp_path):
    said = []
    result = brio.run(cohort, ["ridge"], out=tmp_path / "job", device="cpu", say=said.append)
    (needs,) = [line for line in said if line.startswith("5 runs: ")]
    assert re.fullmatch("5 runs: at least .* of memory for scans and models, about .* on disk", needs)
    store = RunStore(result.folder / "runs")
    keys = [path.name for path in store.folder.iterdir()]
    ridge = make_method("ridge")
    assert describe_rest(dict.fromkeys(keys, ridge), store) == ""
    assert describe_rest({"unfinished": ridge}, store) == ""
    rest = describe_rest({keys[0]: ridge, "unfinished": ridge}, store)
    assert rest.startswith("the remaining runs will take about ")


def test_free_memory_is_the_least_of_what_the_machine_a_container_and_a_limit_leave(tmp_path, monkeypatch):
    """The page cache of a container is free; of a limit of the process, less what it has reserved."""
    resource = pytest.importorskip("resource")
    page, limit = resource.getpagesize(), [resource.RLIM_INFINITY]
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_PROCESS", tmp_path)
    monkeypatch.setattr(machine, "_read_meminfo", lambda: None)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit[0], limit[0]))
    assert machine.find_free_memory() is None
    machine.require_memory(1e30, "anything needs", "nothing")  # unknown memory refuses nothing
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 400\nfile 500\ninactive_file 300\nactive_file 200\n")
    for written, free in (("max", None), ("1000", 1000 - (900 - 300)), ("500", 0)):
        (tmp_path / "memory.max").write_text(f"{written}\n")
        assert machine.find_free_memory() == free
    (tmp_path / "memory.max").write_text("1000000000\n")
    (tmp_path / "statm").write_text("7 5 3 1 0 2 0\n")
    limit[0] = 10 * page
    assert machine.find_free_memory() == 3 * page
    monkeypatch.setattr(machine, "_read_meminfo", lambda: 200)
    assert machine.find_free_memory() == 200


def test_bytes_are_printed_in_their_unit():
    printed = [machine.format_bytes(n) for n in (12, 3_400, 120_000_000, 2.5e9)]
    assert printed == ["12 B", "3.4 kB", "120 MB", "2.5 GB"]
