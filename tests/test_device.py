import pytest
import torch

import brio
from brio import device as devices
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes, fc
from brio.methods import Brio, Ridge
from brio.methods.mlp import MLP
from brio.protocol import leave_one_site_out
from brio.training import Run
from commands import refuse

matmul_precision = torch.get_float32_matmul_precision


@pytest.fixture
def before():
    """The precision that the process has before brio does anything: one that brio never sets."""
    usual = matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield "medium"
    torch.set_float32_matmul_precision(usual)


def test_a_device_that_is_not_there_is_not_replaced_by_another(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("cuda", "cuda-tf32"):
        refuse(f"device '{name}' was requested, but this machine has no usable GPU", devices.resolve_device, name)
    resolved = {devices.resolve_device(name) for name in devices.DEVICES if not name.startswith("cuda")}
    assert resolved == {devices.ComputeDevice(torch.device("cpu"))}


@pytest.mark.parametrize(("name", "precision"), [("cuda", "highest"), ("auto", "highest"), ("cuda-tf32", "high")])
def test_only_tf32_rounds_products_and_the_results_say_so(monkeypatch, before, name, precision):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    device = devices.resolve_device(name)
    assert matmul_precision() == before, "resolving a device sets nothing"
    assert device.torch_device.type == "cuda"
    assert device.name == ("cuda" if name == "auto" else name)
    assert device.describe() == ("cuda (a GPU, TF32)" if precision == "high" else "cuda (a GPU)")
    with device.network_precision():
        assert matmul_precision() == precision
    assert matmul_precision() == before
    with pytest.raises(ValueError, match="inside"), device.network_precision():
        raise ValueError("inside")
    assert matmul_precision() == before


def watch_precision(monkeypatch, cls, *names):
    """Record the precision in which some functions of a class are called."""
    seen = []
    for name in names:
        usual = getattr(cls, name)

        def watched(self, *args, name=name, usual=usual):
            seen.append((name, matmul_precision()))
            return usual(self, *args)

        monkeypatch.setattr(cls, name, watched)
    return seen


class PretendedGPU(devices.ComputeDevice):
    """A CPU that claims TF32 stands in for a GPU: torch takes the setting there too."""

    def describe(self):
        return "a GPU"


PRETENDED = PretendedGPU(torch.device("cpu"), tf32=True)

COHORT = Simulation(n_sites=5, per_class=3, n_rois=8, frames=60)


def test_a_job_trains_in_the_precision_of_its_device_and_restores_the_earlier_one(monkeypatch, before, tmp_path):
    monkeypatch.setattr("brio.jobs.job.resolve_device", lambda name: PRETENDED)
    seen = watch_precision(monkeypatch, MLP, "fit")
    results = brio.run(simulate(COHORT), ["mlp"], out=tmp_path, folds=["site01"], device="cuda-tf32")
    assert set(results.rows["device"]) == {"a GPU"}
    assert seen == [("fit", "high")]
    assert matmul_precision() == before
    assert '"device": "cuda-tf32"' in (tmp_path / "plan.json").read_text()


def test_a_linear_model_has_full_precision_and_names_the_cpu(monkeypatch, before, tmp_path):
    monkeypatch.setattr("brio.jobs.job.resolve_device", lambda name: PRETENDED)
    seen = watch_precision(monkeypatch, Ridge, "extract_features")
    cohort = simulate(COHORT)
    results = brio.run(cohort, ["ridge"], out=tmp_path, folds=["site01"], device="cuda-tf32")
    assert set(results.rows["device"]) == {"cpu"}
    method, graphs = Ridge(), Connectomes(cohort)
    run = Run(leave_one_site_out(cohort, seed=0, validation_sites=1)[0], seed=0)
    with PRETENDED.network_precision():
        (fitted,) = method.fit(graphs, [run])
        n_fits = len(seen)
        method.predict_margins(fitted, graphs, run.fold.test)
    assert len(seen) > n_fits
    assert set(seen) == {("extract_features", "highest")}
    assert matmul_precision() == before


def test_an_estimator_learns_and_predicts_in_the_precision_of_its_device(monkeypatch, before):
    monkeypatch.setattr("brio.estimator.resolve_device", lambda name: PRETENDED)
    seen = watch_precision(monkeypatch, Brio, "fit", "predict", "compute_contributions")
    cohort = simulate(COHORT)
    model = brio.BrioClassifier("brio", J=2, K=2, epochs=2, T_w=1, random_state=0).fit(cohort)
    model.predict_proba(cohort)
    model.contributions(cohort)
    assert set(seen) == {(name, "high") for name in ("fit", "predict", "compute_contributions")}
    assert matmul_precision() == before


def test_memory_is_a_share_of_a_gpu_and_less_of_it_where_others_fill_it(monkeypatch):
    gpu, cpu, free = torch.device("cuda"), torch.device("cpu"), [70]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0] << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)

    def gigabytes(*budgets):
        return [budget(gpu) / 2**30 for budget in budgets]

    assert gigabytes(devices.pass_budget, devices.memory_budget, devices.chunk_budget) == [10, 42, 2]
    assert gigabytes(devices.resident_budget)[0] == pytest.approx(80 / 6)
    free[0] = 2
    assert gigabytes(devices.pass_budget, devices.memory_budget) == pytest.approx([0.5, 1.2])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 30 << 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 << 30)
    assert gigabytes(devices.pass_budget, devices.memory_budget) == pytest.approx([7.5, 18]), (
        "memory that torch reserved is free to us"
    )
    assert devices.pass_budget(cpu) < devices.chunk_budget(cpu) * 4 < devices.resident_budget(cpu)


def test_connectomes_are_estimated_in_full_precision(monkeypatch, before):
    seen = []
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: seen.append(matmul_precision()) or torch.matmul(a, b))
    fc.psi(torch.randn(20, 3), torch.tensor(20))
    assert seen == ["highest"]
    assert matmul_precision() == before
    with pytest.raises(ValueError, match="inside"), devices.full_precision():
        raise ValueError("inside")
    assert matmul_precision() == before
