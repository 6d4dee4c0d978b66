"""Triton kernels in tests: compiled on a GPU, else run by Triton's interpreter."""

import dataclasses
from contextlib import contextmanager

import pytest
import torch

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
TOLERANCE = 2e-5 if GPU else 4e-6
LONG_INTERPRETED = () if GPU else pytest.mark.soak
"""The mark of cases that a GPU computes in a moment and the interpreter in many seconds."""


@contextmanager
def kernels_here():
    """Run kernels in Triton's interpreter where there is no GPU, inside this context only.

    Triton reads the environment variable for that when it is first imported, which other tests may have done already.
    """
    pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")
    from triton import language
    from triton.runtime.interpreter import InterpretedFunction, interpreter_builder
    from triton.runtime.jit import JITFunction

    from brio.methods.brio.gpu import encoder_kernels
    from brio.methods.edges.gpu import scorer_kernels
    from brio.training.gpu import random_numbers_kernels
    from brio.transport import sinkhorn_kernel

    class Interpreted(InterpretedFunction):
        """A launch adapts Triton's language to the interpreter for its duration; calls inside it must not."""

        def __call__(self, *args, **kwargs):
            return self.rewrite()(*args, **kwargs)

    ours = (random_numbers_kernels, encoder_kernels, scorer_kernels, sinkhorn_kernel)
    with pytest.MonkeyPatch.context() as patch:
        # overflows of integers are looked for and, without debugging, not reported: a third of the time for nothing
        options = dataclasses.replace(interpreter_builder.options, sanitize_overflow=False)
        patch.setattr(interpreter_builder, "options", options)
        for module in () if GPU else (*ours, language):
            for name, f in list(vars(module).items()):
                if isinstance(f, JITFunction):
                    patch.setattr(module, name, Interpreted(f.fn))
        for module in ours:
            patch.setattr(module, "core", language.core, raising=False)  # so that a launch adapts this as well
        yield


def error(found, true):
    """Difference of two tensors, as a share of the true one."""
    found, true = found.detach().double(), true.detach().double()
    return float((found - true).norm() / true.norm().clamp_min(1e-30))


def choose_path(kernels, owner, finder, monkeypatch):
    """A function: ``path(True)`` lets ``owner`` use a module of kernels from here on, ``path(False)`` does not.

    It returns a list to which every kernel is added that the module launches. ``finder`` is the name of the function by
    which ``owner`` finds the module.
    """
    launch, launched = kernels.launch, []

    def record(kernel, *args, **sizes):
        launched.append(kernel)
        launch(kernel, *args, **sizes)

    def choose(wanted):
        monkeypatch.setattr(owner, finder, lambda *facts: kernels if wanted else None)
        return launched

    monkeypatch.setattr(kernels, "launch", record)
    return choose
