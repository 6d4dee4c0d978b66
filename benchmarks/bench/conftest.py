"""Data and options of the benchmarks. Each compares the work of brio with other code in one run on one machine.

Every contender has the same threads and scans of float32. FC, re-estimates and BRIO are computed in float32 unless a
name says otherwise, linear models and BRIO plus in float64 (its changes under re-estimation in float32).
"""

import os
import time
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

from brio.cohort import Cohort, audit
from brio.cohort.readers import import_cohort
from brio.connectome import Connectomes

N_SITES = 20


class Rates(NamedTuple):
    """What the machine does in a second with all its threads, measured: the floor under any code."""

    flops: float  # of products of large float32 matrices
    bytes: float  # read or written by a copy
    atanh: float  # entries of float32
    exp: float

    def bound(self, flops=0.0, moved=0.0, atanh=0.0, exp=0.0):
        """Seconds below which no code gets: its arithmetic or its traffic, whichever takes longer."""
        return max(flops / self.flops + atanh / self.atanh + exp / self.exp, moved / self.bytes)


def pytest_addoption(parser):
    group = parser.getgroup("brio")
    group.addoption("--device", default="cpu", help="where brio's own work is done: cpu or cuda")
    group.addoption("--threads", type=int, default=2, help="threads of every contender")
    group.addoption("--scans", type=int, default=1000, help="scans of the simulated cohort; fewer for a quick look")


@pytest.fixture(scope="session")
def device(request):
    return request.config.getoption("--device")


@pytest.fixture(scope="session", autouse=True)
def threads(request):
    """Threads of torch and of every BLAS."""
    from threadpoolctl import threadpool_limits

    count = request.config.getoption("--threads")
    torch.set_num_threads(count)
    with threadpool_limits(count):
        yield count


@pytest.fixture(scope="session")
def rates(device, threads):
    """Measure what the machine can do."""
    one = torch.rand(1024, 1024, device=device)
    product = _find_fastest(lambda: one @ one, device)
    if device == "cpu":  # numpy may have another BLAS
        product = min(product, _find_fastest(lambda: one.numpy() @ one.numpy().copy(), device))
    large, copy = torch.rand(1 << 24, device=device) * 0.9, torch.empty(1 << 24, device=device)
    return Rates(
        2 * 1024**3 / product,
        2 * large.nbytes / _find_fastest(lambda: copy.copy_(large), device),
        len(large) / _find_fastest(lambda: torch.atanh(large, out=copy), device),
        len(large) / _find_fastest(lambda: torch.exp(large, out=copy), device),
    )


def _find_fastest(work, device, repeats=7):
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def pytest_benchmark_update_json(config, benchmarks, output_json):
    """Store the conditions beside the times."""
    conditions = {name: config.getoption(f"--{name}") for name in ("device", "threads", "scans")}
    output_json["conditions"] = conditions | {"fits": getattr(config, "fitted_cohort", "none")}


@pytest.fixture(scope="session", params=[116, 200], ids=lambda n_rois: f"{n_rois} ROIs")
def cohort(request):
    """Correlated noise of the shape of ABIDE: 20 sites, 78 to 316 frames a scan."""
    return simulate_noise(request.config.getoption("--scans"), request.param)


@pytest.fixture(scope="session")
def connectomes(request, device, tmp_path_factory):
    """Connectomes of 116 ROIs for fits: ABIDE, if BRIO_ABIDE names its folder, else simulated of the same shape."""
    folder = os.environ.get("BRIO_ABIDE")
    if folder:
        place = tmp_path_factory.mktemp("abide") / "aal"
        imported = import_cohort("packed", folder, place, atlas="aal116")
        cohort, what = imported.select(audit(imported).keep), "scans of ABIDE I, AAL116"
    else:
        cohort, what = simulate_noise(request.config.getoption("--scans"), 116), "simulated scans of 116 ROIs"
    request.config.fitted_cohort = f"{len(cohort)} {what}, {len(set(cohort.sites))} sites"
    return Connectomes(cohort, device)


@pytest.fixture
def measure(benchmark, device):
    """Measure a function in rounds; what a GPU does is waited for.

    Parameters
    ----------
    work : callable
    rounds : int
        The least of their times counts.
    warm : bool
        Whether one more round goes before them.
    begin : callable, optional
        Makes the argument of ``work`` for each round, outside of the clock.
    times : int
        How many times the work would be done; what was measured is multiplied.
    **facts
        ``target``: how many times faster brio is meant to be than this contender; ``most_seconds``: what brio may take;
        ``floor``: seconds below which no code gets on this machine; ``part_of`` and ``most_seconds_together``: work
        that this is a part of, and what brio may take for all of it.
    """

    def run(work, rounds=5, warm=True, begin=None, times=1, **facts):
        benchmark.extra_info.update(facts, times=times)

        def wait(*arguments):
            result = work(*arguments)
            if device == "cuda":
                torch.cuda.synchronize()
            return result

        setup = None if begin is None else lambda: ((begin(),), {})
        return benchmark.pedantic(wait, setup=setup, rounds=rounds, warmup_rounds=int(warm))

    return run


def simulate_noise(n_scans, n_rois):
    """Scans of first-order autoregressive noise that few common courses connect, classes in turn."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(10, n_rois))
    scans = []
    for n_frames in rng.integers(78, 317, n_scans):
        courses = lfilter([1.0], [1.0, -0.5], rng.normal(size=(n_frames, 10)), axis=0)
        scans.append((courses @ loadings + 3.0 * rng.normal(size=(n_frames, n_rois))).astype(np.float32))
    order = np.arange(n_scans)
    return Cohort.from_scans(scans, site=[f"site{i // 2 % N_SITES:02d}" for i in order], label=order % 2)
