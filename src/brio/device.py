"""Which device a job runs on."""

from __future__ import annotations

import torch

from .errors import BrioError

__all__ = ["describe_device", "resolve_device"]


def resolve_device(name: str) -> torch.device:
    """``auto`` takes the GPU where there is one; ``cuda`` insists on it; ``cpu`` never uses it."""
    if name not in ("auto", "cpu", "cuda"):
        raise BrioError(f"device '{name}' is unknown; known: auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise BrioError("device 'cuda' was asked for, but this machine has no usable GPU; use 'cpu' or 'auto'")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def describe_device(device: torch.device) -> str:
    """The device in words, for the results."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu"


def memory_budget(device: torch.device) -> int:
    """Bytes that the runs of one stack may take together.

    On a GPU a good half of what is free. On a CPU four gigabytes: more runs in a stack make nothing faster there,
    and a stack that is killed is computed again as a whole.
    """
    if device.type == "cuda":
        return int(0.6 * torch.cuda.mem_get_info(device)[0])
    return 4 << 30
