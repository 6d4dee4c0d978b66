"""The signed encoder of BRIO on a GPU, by kernels and by tensor operations: time, memory, error to float64.

    python benchmarks/encoder.py [--device cuda] [--rois 116] [--width 64] [--scale 1.0]

step     60 runs, forward and backward on 136 scans of their own each
refresh  20 runs, forward on 1200 scans that they share

Simulated connectomes, every ROI with signal. The first call, which compiles kernels, is not timed; errors are those of
two runs on two scans, of the representations (refresh) or of a gradient (step).
"""

import argparse
import time

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from brio.device import describe_device, resolve_device
from brio.methods.brio import encoder

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda", help="cuda or cuda-tf32")
parser.add_argument("--rois", type=int, default=116)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--scale", type=float, default=1.0, help="share of the scans, for smaller GPUs")
parser.add_argument("--repeats", type=int, default=10)
args = parser.parse_args()
device, P = resolve_device(args.device), args.rois
network = encoder.SignedEncoder(P, 16, args.width, 2).to(device)


def problem(runs: int, scans: int, shared: bool) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Parameters, connectomes A and supports S."""
    torch.manual_seed(0)
    params, _ = stack_module_state([encoder.SignedEncoder(P, 16, args.width, 2) for _ in range(runs)])
    x = torch.randn(*(() if shared else (runs,)), scans, P, P, device=device)
    off = 1 - torch.eye(P, device=device)
    S = (torch.rand(runs, P, P, device=device) > 0.8) | torch.eye(P, device=device).roll(1, 0).bool()
    return {n: p.detach().to(device) for n, p in params.items()}, torch.tanh(0.3 * (x + x.mT)) * off, (S | S.mT) * off


def work(params: dict[str, Tensor], A: Tensor, S: Tensor, shared: bool) -> Tensor:
    """Representations; where runs have scans of their own, the gradient of a map in the first layer."""
    one = torch.vmap(lambda p, A, S: functional_call(network, p, (A, S)), in_dims=(0, None if shared else 0, 0))
    with torch.set_grad_enabled(not shared):
        params = {n: p.detach().requires_grad_(not shared) for n, p in params.items()}
        H = one(params, A, S)
        if not shared:
            (H * torch.linspace(-1, 1, args.width, device=device)).square().sum().backward()
    return H if shared else params["layers.0.positive.weight"].grad


def synchronised() -> float:
    """Seconds on the clock when the GPU has nothing left to do."""
    torch.cuda.synchronize()
    return time.perf_counter()


find_gpu_twin = encoder.find_gpu_twin
print("work     path     ms  peak GiB    error  device")
for name, runs, scans, shared in (("step", 60, 136, False), ("refresh", 20, 1200, True)):
    few, many = problem(2, 2, shared), problem(runs, max(1, round(args.scale * scans)), shared)
    if find_gpu_twin(many[1], args.width) is None:
        print("kernels cannot be used here (find_gpu_twin in methods/brio/encoder.py says when): both paths are plain")
    encoder.find_gpu_twin = lambda A, width: None
    true = work({n: p.double() for n, p in few[0].items()}, few[1].double(), few[2].double(), shared)
    for path in ("plain", "kernels"):
        encoder.find_gpu_twin = find_gpu_twin if path == "kernels" else lambda A, width: None
        error = float((work(*few, shared).double() - true).norm() / true.norm())
        work(*many, shared)
        torch.cuda.reset_peak_memory_stats()
        begin = synchronised()
        for _ in range(args.repeats):
            work(*many, shared)
        ms = 1e3 * (synchronised() - begin) / args.repeats
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"{name:8s} {path:7s} {ms:6.1f}  {peak:8.1f}  {error:.1e}  {describe_device(device)}")
