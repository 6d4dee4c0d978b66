"""Data and options of the benchmarks. Each compares the work of brio with other code in one run on one machine."""

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

from brio.cohort import Cohort
from brio.connectome import Connectomes

N_SITES = 20


def pytest_addoption(parser):
    group = parser.getgroup("brio")
    group.addoption("--device", default="cpu", help="where brio's own work is done: cpu or cuda")
    group.addoption("--scans", type=int, default=1000, help="scans of the simulated cohort; fewer for a quick look")


@pytest.fixture(scope="session")
def device(request):
    return request.config.getoption("--device")


@pytest.fixture(scope="session", params=[116, 200], ids=lambda n_rois: f"{n_rois} ROIs")
def cohort(request):
    """Correlated noise of the shape of ABIDE: 20 sites, 78 to 316 frames a scan."""
    return simulate_noise(request.config.getoption("--scans"), request.param)


@pytest.fixture(scope="session")
def connectomes(request, device):
    """Connectomes of 116 ROIs."""
    return Connectomes(simulate_noise(request.config.getoption("--scans"), 116), device)


@pytest.fixture
def measure(benchmark, device):
    """Measure a function in rounds after one that warms up; what a GPU does is waited for."""

    def run(work, rounds=3):
        def wait():
            result = work()
            if device == "cuda":
                torch.cuda.synchronize()
            return result

        return benchmark.pedantic(wait, rounds=rounds, warmup_rounds=1)

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
