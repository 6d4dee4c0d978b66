"""Are the GPU kernels of BRIO's signed encoder faster than tensor operations, and as exact?

    python benchmarks/encoder_kernels.py [--device cuda] [--rois 116] [--width 64] [--scale 1.0]

Two kinds of work on simulated connectomes, every ROI with signal:

step     60 runs, forward and backward on 136 scans of their own each
refresh  20 runs, forward on 1200 scans that they share

Prints one line per work and path (plain tensor operations, kernels): milliseconds, peak memory, and the relative error
against float64 of the representations (refresh) or of a gradient (step), for two runs on two scans. The first call,
which compiles kernels, is not timed.
"""

import argparse
import time

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from brio.device import resolve_device
from brio.methods.brio import encoder

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda", help="cuda or cuda-tf32")
parser.add_argument("--rois", type=int, default=116)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--scale", type=float, default=1.0, help="share of the scans, for smaller GPUs")
parser.add_argument("--repeats", type=int, default=10)
args = parser.parse_args()
compute, P = resolve_device(args.device), args.rois
device = compute.torch_device
network = encoder.SignedEncoder(P, 16, args.width, 2).to(device)


def make_inputs(runs: int, scans: int, shared: bool) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return parameters, connectomes A and supports S."""
    torch.manual_seed(0)
    params, _ = stack_module_state([encoder.SignedEncoder(P, 16, args.width, 2) for _ in range(runs)])
    x = torch.randn(*(() if shared else (runs,)), scans, P, P, device=device)
    off_diagonal = 1 - torch.eye(P, device=device)
    S = (torch.rand(runs, P, P, device=device) > 0.8) | torch.eye(P, device=device).roll(1, 0).bool()
    params = {n: p.detach().to(device) for n, p in params.items()}
    return params, torch.tanh(0.3 * (x + x.mT)) * off_diagonal, (S | S.mT) * off_diagonal


@compute.network_precision()
def encode(params: dict[str, Tensor], A: Tensor, S: Tensor, shared: bool) -> Tensor:
    """Return representations; where runs have scans of their own, the gradient of a map in the first layer."""
    encode_run = torch.vmap(lambda p, A, S: functional_call(network, p, (A, S)), in_dims=(0, None if shared else 0, 0))
    with torch.set_grad_enabled(not shared):
        params = {n: p.detach().requires_grad_(not shared) for n, p in params.items()}
        H = encode_run(params, A, S)
        if not shared:
            (H * torch.linspace(-1, 1, args.width, device=device)).square().sum().backward()
    return H if shared else params["layers.0.positive.weight"].grad


def read_clock() -> float:
    """Return the time in seconds once the GPU has nothing left to do."""
    torch.cuda.synchronize()
    return time.perf_counter()


find_gpu_twin = encoder.find_gpu_twin
print("work     path     ms  peak GiB    error  device")
for name, runs, scans, shared in (("step", 60, 136, False), ("refresh", 20, 1200, True)):
    few, many = make_inputs(2, 2, shared), make_inputs(runs, max(1, round(args.scale * scans)), shared)
    if find_gpu_twin(many[1], args.width) is None:
        print("kernels cannot be used here (see find_gpu_twin in methods/brio/encoder.py): both paths are plain")
    encoder.find_gpu_twin = lambda A, width: None
    exact = encode({n: p.double() for n, p in few[0].items()}, few[1].double(), few[2].double(), shared)
    for path in ("plain", "kernels"):
        encoder.find_gpu_twin = find_gpu_twin if path == "kernels" else lambda A, width: None
        error = float((encode(*few, shared).double() - exact).norm() / exact.norm())
        encode(*many, shared)
        torch.cuda.reset_peak_memory_stats()
        start = read_clock()
        for _ in range(args.repeats):
            encode(*many, shared)
        ms = 1e3 * (read_clock() - start) / args.repeats
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"{name:8s} {path:7s} {ms:6.1f}  {peak:8.1f}  {error:.1e}  {compute.describe()}")
