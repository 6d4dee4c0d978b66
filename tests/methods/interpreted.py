"""Triton kernels in tests: compiled on a GPU, else run by Triton's interpreter."""

import dataclasses
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.func import stack_module_state

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.protocol import leave_one_site_out
from brio.training import Run, Stack

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


def between_nan(launch):
    """A launch on copies of the tensors that lie between NaN: whatever a kernel reads or writes beside them shows."""

    def checked(kernel, programs, *args, **sizes):
        copies = {}

        def inside(t):
            if not isinstance(t, torch.Tensor) or not t.is_floating_point() or not t.numel():
                return t
            extent = 1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True))
            if t.data_ptr() not in copies:
                pool = torch.full((extent + 192,), torch.nan, dtype=t.dtype, device=t.device)
                copies[t.data_ptr()] = t.data.as_strided((extent,), (1,)), pool
                pool[96:-96] = copies[t.data_ptr()][0]
            return copies[t.data_ptr()][1].as_strided(t.shape, t.stride(), 96)

        launch(kernel, programs, *map(inside, args), **sizes)
        for flat, pool in copies.values():
            assert pool[:96].isnan().all()
            assert pool[-96:].isnan().all()
            flat.copy_(pool[96:-96])

    return checked


def check_choice(find, twin, owner, monkeypatch):
    """Kernels are chosen for float32 on a GPU that runs them, and nowhere else."""
    usual = {"is_cuda": True, "dtype": torch.float32, "device": torch.device("cuda", 0)}
    monkeypatch.setattr(owner, "kernels_run_on", lambda device: device == usual["device"])
    assert find(SimpleNamespace(**usual)) is twin
    for other in ({"is_cuda": False}, {"dtype": torch.float64}, {"device": torch.device("cuda", 1)}):
        assert find(SimpleNamespace(**usual | other)) is None, other


def take_step(method, seeds, refresh=False):
    """Losses of a stack of two runs at a step, their gradients, and the stack; runs of one seed share their draws."""
    cohort = simulate(Simulation(n_sites=5, per_class=2, n_rois=8, frames=40, dead_share=0.5))
    runs = [Run(fold, seed) for fold, seed in zip(leave_one_site_out(cohort, 0)[:2], seeds, strict=True)]
    stack, stage = Stack.build(method, Connectomes(cohort, DEVICE, torch.float32), runs), method.stages()[-1]
    method.begin_stage(stack, stage)
    if refresh:
        method.refresh(stack, np.ones(2, bool), 0)
    batches, _ = stack.sources.batches(1, 1)
    inputs = (batches[0], 5 + np.array(seeds), np.array(1.0))
    losses = stack.compute_losses(*map(stack.to_tensor, inputs), stage)
    losses.sum().backward()
    return losses.detach(), {n: p.grad for n, p in stack.params.items() if p.grad is not None}, stack


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


def stack_networks(make, R, dtype):
    """A module without parameters, parameters and buffers of R runs; norms are away from their starting values."""
    networks = []
    for r in range(R):
        torch.manual_seed(r)
        networks.append(make())
        for name, t in (*networks[-1].named_parameters(), *networks[-1].named_buffers()):
            if "norm" in name:
                noise = 0.3 * torch.randn(t.shape)
                t.data.add_(noise.abs() if name.endswith("var") else noise)
    params, buffers = stack_module_state(networks)
    params = {n: t.detach().to(DEVICE, dtype).requires_grad_() for n, t in params.items()}
    return networks[0].to("meta"), params, {n: t.to(DEVICE, dtype) for n, t in buffers.items()}


def compare_steps(path, method, seeds, refresh=False):
    """A training step without and with kernels: the losses and the names of the gradients agree.

    It returns gradient and stack of both.
    """
    steps = []
    for kernels in (False, True):
        path(kernels)
        steps.append(take_step(method, seeds, refresh))
    (plain_loss, *plain), (loss, *found) = steps
    assert error(loss, plain_loss) < 1e-5
    assert found[0].keys() == plain[0].keys()
    return plain, found
