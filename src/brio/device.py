"""Which device a job runs on, and how exactly it multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .errors import BrioError

__all__ = [
    "DEVICES",
    "chunk_budget",
    "describe_device",
    "device_word",
    "exact_products",
    "memory_budget",
    "pass_budget",
    "resident_budget",
    "resolve_device",
]

DEVICES = ("auto", "cpu", "cuda", "cuda-tf32")


def resolve_device(name: str) -> torch.device:
    """``auto`` takes the GPU where there is one; ``cuda`` insists on it; ``cpu`` never uses it.

    ``cuda-tf32`` is a GPU whose networks multiply with ten bits of mantissa instead of 23 and add up in float32:
    faster, and not the same to the last digits. Connectomes are estimated in full precision under any of them.
    """
    if name not in DEVICES:
        raise BrioError(f"device '{name}' is unknown; known: {', '.join(DEVICES)}")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise BrioError(f"device '{name}' was asked for, but this machine has no usable GPU; use 'cpu' or 'auto'")
    torch.set_float32_matmul_precision("high" if name == "cuda-tf32" else "highest")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def describe_device(device: torch.device) -> str:
    """The device in words, for the results."""
    if device.type != "cuda":
        return "cpu"
    reduced = torch.get_float32_matmul_precision() == "high"
    return f"cuda ({torch.cuda.get_device_name(device)}{', TF32' if reduced else ''})"


def device_word(device: torch.device) -> str:
    """The device as ``--device`` takes it; TF32 is one of its own, so that no job goes on in other precision."""
    reduced = device.type == "cuda" and torch.get_float32_matmul_precision() == "high"
    return "cuda-tf32" if reduced else device.type


@contextmanager
def exact_products() -> Iterator[None]:
    """Matrix products in here have the full precision of their type on every device."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def memory_budget(device: torch.device) -> int:
    """Bytes that the runs of one stack may take together.

    On a GPU a good half of what is free. On a CPU four gigabytes: more runs in a stack make nothing faster there,
    and a stack that is killed is computed again as a whole.
    """
    return int(0.6 * _memory(device)[0]) if device.type == "cuda" else 4 << 30


def pass_budget(device: torch.device) -> int:
    """Bytes that one pass of networks over scans, without gradients, may take: an eighth of a GPU, little of a CPU.

    A quarter of what is free where that is less, as on a GPU that several jobs share.
    """
    if device.type != "cuda":
        return 128 << 20
    free, total = _memory(device)
    return min(total // 8, free // 4)


def chunk_budget(device: torch.device) -> int:
    """Bytes that re-estimates made together may take, resampled frames included."""
    return min(2 << 30, _memory(device)[1] // 16) if device.type == "cuda" else 64 << 20


def resident_budget(device: torch.device) -> int:
    """Bytes of frames that stay on a device; those of a larger cohort are read again when they are needed."""
    return _memory(device)[1] // 6 if device.type == "cuda" else 2 << 30


def _memory(device: torch.device) -> tuple[int, int]:
    """Bytes of a GPU that are free, those that torch keeps for later among them, and all it has."""
    free, total = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total
