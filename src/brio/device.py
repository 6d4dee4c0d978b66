"""The device on which a job runs, the precision of its matrix products, and how much of its memory to use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import machine
from .errors import BrioError

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda", "cuda-tf32")
"""Names that ``--device`` accepts."""


@dataclass(frozen=True)
class ComputeDevice:
    """A device, and whether neural networks use TF32 matrix products on it.

    TF32 rounds the factors of a product to ten bits of mantissa (float32 has 23) and adds products in float32. It is
    faster, but results differ in the last digits. Connectomes are estimated in full precision on every device.
    """

    torch_device: torch.device
    tf32: bool = False  # whether networks multiply in TF32; only on a GPU

    @property
    def name(self) -> str:
        """The name that ``--device`` accepts: ``cpu``, ``cuda`` or ``cuda-tf32``."""
        return "cuda-tf32" if self.tf32 else self.torch_device.type

    def describe(self) -> str:
        """Return the device with the model of its GPU, for result tables."""
        if self.torch_device.type != "cuda":
            return "cpu"
        import torch

        return f"cuda ({torch.cuda.get_device_name(self.torch_device)}{', TF32' if self.tf32 else ''})"

    def network_precision(self) -> AbstractContextManager[None]:
        """Let networks multiply in the precision of this device; the earlier precision is restored on exit.

        Enter it wherever networks are trained or applied: torch keeps this precision for the whole process.
        """
        return _matmul_precision("high" if self.tf32 else "highest")


def check_device_name(name: str) -> None:
    """Raise an error if no device has this name; whether the device is available is not checked."""
    if name not in DEVICES:
        raise BrioError(f"device '{name}' is unknown; known: {', '.join(DEVICES)}")


def resolve_device(name: str) -> ComputeDevice:
    """Find the device with a name, without changing any setting of torch."""
    import torch

    check_device_name(name)
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise BrioError(f"device '{name}' was requested, but this machine has no usable GPU; use 'cpu' or 'auto'")
    on_gpu = name != "cpu" and torch.cuda.is_available()
    return ComputeDevice(torch.device("cuda" if on_gpu else "cpu"), tf32=name == "cuda-tf32")


def full_precision() -> AbstractContextManager[None]:
    """Compute matrix products in the full precision of their type on every device, while the context is open."""
    return _matmul_precision("highest")


@contextmanager
def _matmul_precision(value: str) -> Iterator[None]:
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def find_free_memory(device: torch.device) -> int | None:
    """Find how many bytes are free on a device; None if the system does not report it."""
    return _gpu_memory(device)[0] if device.type == "cuda" else machine.find_free_memory()


def memory_budget(device: torch.device) -> int:
    """Return how many bytes the runs of one stack may take together.

    On a GPU, this is 60% of the free memory. On a CPU, it is four gigabytes: larger stacks are not faster there, and no
    run of a stack is finished before the others.
    """
    return int(0.6 * _gpu_memory(device)[0]) if device.type == "cuda" else 4 << 30


def pass_budget(device: torch.device) -> int:
    """Return how many bytes one pass of networks over scans may take, without gradients.

    On a GPU, this is an eighth of its memory, or a quarter of the free memory if that is less, as on a GPU shared by
    several jobs. On a CPU, it is 128 MiB.
    """
    if device.type != "cuda":
        return 128 << 20
    free, total = _gpu_memory(device)
    return min(total // 8, free // 4)


def chunk_budget(device: torch.device) -> int:
    """Return how many bytes one chunk of re-estimates may take, resampled frames included."""
    return min(2 << 30, _gpu_memory(device)[1] // 16) if device.type == "cuda" else 64 << 20


def resident_budget(device: torch.device) -> int:
    """Return how many bytes of frames may stay on the device; a larger cohort is read again when needed."""
    return _gpu_memory(device)[1] // 6 if device.type == "cuda" else 2 << 30


def _gpu_memory(device: torch.device) -> tuple[int, int]:
    """Free and total bytes of a GPU; memory that torch has reserved but not allocated counts as free."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total
