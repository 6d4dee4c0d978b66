"""Triton kernels with a runs axis: where they run, how they are launched, and how torch.vmap passes runs to them.

This module can be imported without Triton. Modules with kernels need Triton; they are imported only if
:func:`kernels_run_on` returns True.
"""

from __future__ import annotations

import functools
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class OverRuns(torch.autograd.Function):
    """A function of tensors whose first axis is the run; torch.vmap adds more runs."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        n = info.batch_size

        def runs(t: Any, dim: int | None) -> Any:
            if not isinstance(t, Tensor):
                return t
            t = t.expand(n, *t.shape) if dim is None else t.movedim(dim, 0)  # what the runs share is not copied
            return t.flatten(0, 1)

        out = cls.apply(*(runs(t, dim) for t, dim in zip(args, in_dims, strict=True)))
        if isinstance(out, Tensor):
            return out.unflatten(0, (n, -1)), 0
        return tuple(t.unflatten(0, (n, -1)) for t in out), (0,) * len(out)


def launch(kernel: Any, programs: int | tuple[int, ...], *args: Any, **sizes: Any) -> None:
    """Run a kernel on the GPU that holds its tensors, which need not be the current device."""
    with torch.cuda.device_of(args[0]):
        kernel[programs if isinstance(programs, tuple) else (programs,)](*args, **sizes)


def exact() -> bool:
    """Whether torch is set to multiply float32 in full precision."""
    return torch.get_float32_matmul_precision() == "highest"


@functools.cache
def kernels_run_on(device: torch.device) -> bool:
    """Whether Triton kernels run on this device; checked once per device.

    They need an NVIDIA GPU of compute capability 8.0 (Ampere) or later, and Triton, which PyTorch for CUDA on Linux
    includes. Triton must find a C compiler (``CC``, gcc or clang) and ``Python.h`` to build its launchers.
    """
    if device.type != "cuda" or torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        import triton.language  # noqa: F401
    except ImportError:
        return False
    return _launchers_can_be_built()


def _launchers_can_be_built() -> bool:
    """Whether Triton will find a C compiler, as it looks for one, and Python.h."""
    compilers = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    header = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")
    return any(map(shutil.which, compilers)) and header.is_file()
