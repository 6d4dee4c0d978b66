import pytest
import torch

from brio.connectome import fc
from brio.device import (
    DEVICES,
    chunk_budget,
    describe_device,
    exact_products,
    memory_budget,
    pass_budget,
    resident_budget,
    resolve_device,
)
from brio.errors import BrioError


def test_a_device_that_is_not_there_is_not_replaced_by_another(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("cuda", "cuda-tf32"):
        with pytest.raises(BrioError, match=f"device '{name}' was asked for, but this machine has no usable GPU"):
            resolve_device(name)
    assert {resolve_device(name).type for name in DEVICES if not name.startswith("cuda")} == {"cpu"}


@pytest.mark.parametrize(("name", "precision"), [("cuda", "highest"), ("auto", "highest"), ("cuda-tf32", "high")])
def test_only_tf32_rounds_products_and_the_results_say_so(monkeypatch, name, precision):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    before = torch.get_float32_matmul_precision()
    try:
        found = resolve_device(name)
        assert found.type == "cuda"
        assert torch.get_float32_matmul_precision() == precision
        assert describe_device(found) == ("cuda (a GPU, TF32)" if precision == "high" else "cuda (a GPU)")
    finally:
        torch.set_float32_matmul_precision(before)


def test_memory_is_a_share_of_a_gpu_and_less_of_it_where_others_fill_it(monkeypatch):
    gpu, cpu, free = torch.device("cuda"), torch.device("cpu"), [70]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0] << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)

    def gigabytes(*budgets):
        return [budget(gpu) / 2**30 for budget in budgets]

    assert gigabytes(pass_budget, memory_budget, chunk_budget) == [10, 42, 2]
    assert gigabytes(resident_budget)[0] == pytest.approx(80 / 6)
    free[0] = 2
    assert gigabytes(pass_budget, memory_budget) == pytest.approx([0.5, 1.2])
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 30 << 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 << 30)
    assert gigabytes(pass_budget, memory_budget) == pytest.approx([7.5, 18]), "what torch keeps for later is free to us"
    assert pass_budget(cpu) < chunk_budget(cpu) * 4 < resident_budget(cpu)


def test_connectomes_are_estimated_in_full_precision(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: seen.append(_precision()) or torch.matmul(a, b))
    before = _precision()
    torch.set_float32_matmul_precision("high")
    try:
        fc.psi(torch.randn(20, 3), torch.tensor(20))
        assert seen == ["highest"]
        assert _precision() == "high"
        with pytest.raises(ValueError, match="inside"), exact_products():
            raise ValueError("inside")
        assert _precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def _precision():
    return torch.get_float32_matmul_precision()
