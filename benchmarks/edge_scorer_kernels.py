"""The MLP that scores edges on a GPU, by kernels and by tensor operations: time, memory, difference.

    python benchmarks/edges.py [--runs 60] [--graphs 136] [--rois 200] [--share 0.2] [--norm instance] [--one-seed]

A step is the scores of every edge of 136 graphs in each of 60 runs, and their gradients, as the trainer takes them: all
runs mapped by torch.vmap, one backward pass. Both paths draw the same numbers for dropout. The first call, which
compiles kernels, is not timed. Differences are relative, the largest of scores and gradients, of float32 by either path
from tensor operations in float64, for two runs of four graphs.
"""

import argparse
import time

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from brio.device import describe_device, resolve_device
from brio.methods import layers
from brio.methods.graph_ood import scorer
from brio.methods.graph_ood.edges import Edges, list_edges
from brio.training import ambient

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda", help="cuda or cuda-tf32")
parser.add_argument("--runs", type=int, default=60)
parser.add_argument("--graphs", type=int, default=136)
parser.add_argument("--rois", type=int, default=200)
parser.add_argument("--share", type=float, default=0.2, help="of all pairs that are edges")
parser.add_argument("--width", type=int, default=64, help="of the states of ROIs")
parser.add_argument("--widths", type=int, nargs="+", default=[32, 8], help="of the hidden layers")
parser.add_argument("--norm", choices=["instance", "batch"], default="instance")
parser.add_argument("--dropout", type=float, default=0.5)
parser.add_argument("--one-seed", action="store_true", help="all runs draw the same numbers")
parser.add_argument("--repeats", type=int, default=10)
parser.add_argument("--only", choices=["plain", "kernels"], help="the other one may not fit into memory")
args = parser.parse_args()
if not torch.cuda.is_available():
    raise SystemExit("there is no GPU here, and kernels run on nothing else")
device = resolve_device(args.device)
norm = {"instance": scorer.EdgeInstanceNorm, "batch": scorer.EdgeBatchNorm}[args.norm]
network = scorer.EdgeMLP(args.width, args.widths, args.dropout, norm).to("meta").train()


def problem(runs: int, graphs: int, dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor, Edges]:
    """Parameters, running statistics, states of ROIs and edges."""
    torch.manual_seed(0)
    made = [scorer.EdgeMLP(args.width, args.widths, args.dropout, norm) for _ in range(runs)]
    params, buffers = ({n: t.detach().to(device, dtype) for n, t in part.items()} for part in stack_module_state(made))
    H = torch.randn(runs, graphs, args.rois, args.width, device=device)
    lists = []
    for _ in range(runs):  # one after the other: many random matrices take memory
        x = torch.rand(graphs, args.rois, args.rois, device=device).triu(1)
        cut = x.flatten(1).quantile(1 - args.share * (args.rois - 1) / (2 * args.rois), dim=1)
        A = (x > cut[:, None, None]).to(dtype)
        lists.append(list_edges(A + A.mT, args.share))
    edges = Edges(*(torch.stack(t) for t in zip(*lists, strict=True)))
    return params, buffers, H.to(dtype), edges


def step(params: dict[str, Tensor], buffers: dict[str, Tensor], H: Tensor, edges: Edges) -> dict[str, Tensor]:
    """Scores and gradients."""
    inputs = {n: t.detach().requires_grad_() for n, t in (params | {"H": H}).items()}
    keys, real = torch.arange(len(H), device=device) + 17, torch.ones(H.shape[1], device=device, dtype=H.dtype)

    def one(inputs: dict[str, Tensor], buffers: dict[str, Tensor], edges: Edges, key: Tensor) -> Tensor:
        own = {n: t for n, t in inputs.items() if n != "H"}
        with ambient.during_step(key, real):
            return functional_call(network, own | buffers, (inputs["H"], edges))

    dims = (0, 0, 0, None if args.one_seed else 0)
    found = torch.vmap(one, in_dims=dims)(inputs, buffers, edges, keys[0] if args.one_seed else keys)
    (found.sin() * edges.real).sum().backward()
    return {n: t.grad for n, t in inputs.items()} | {"scores": (found * edges.real).detach()}


def use(path: str) -> None:
    """Draw and score by kernels or by tensor operations from here on."""
    plain = path == "plain"
    scorer.kernels_for = (lambda H, widths: None) if plain else kernels_for
    for module in (ambient, layers):
        module.draw_kernels = (lambda like: None) if plain else draw_kernels


def difference(found: dict[str, Tensor], true: dict[str, Tensor]) -> tuple[float, str]:
    """The largest one, against the largest gradient where there is almost none, and of what."""
    largest = max(float(t.norm()) for n, t in true.items() if n != "scores")
    off = {n: float((found[n].double() - t).norm()) / max(float(t.norm()), 1e-3 * largest) for n, t in true.items()}
    worst = max(off, key=off.__getitem__)
    return off[worst], worst


def synchronised() -> float:
    """Seconds on the clock when the GPU has nothing left to do."""
    torch.cuda.synchronize()
    return time.perf_counter()


kernels_for, draw_kernels = scorer.kernels_for, ambient.draw_kernels
use("plain")
true = step(*problem(2, 4, torch.float64))
many = problem(args.runs, args.graphs, torch.float32)
if kernels_for(many[2], args.widths) is None:
    print("kernels cannot be used here (kernels_for in methods/graph_ood/scorer.py says when): both paths are plain")
print(f"{describe_device(device)}: {many[3].to.numel():,} edges")
print("path        ms  peak GiB  difference")
for path in ("plain", "kernels"):
    if args.only in (path, None):
        use(path)
        off, worst = difference(step(*problem(2, 4, torch.float32)), true)
        step(*many)
        torch.cuda.reset_peak_memory_stats()
        begin = synchronised()
        for _ in range(args.repeats):
            step(*many)
        ms = 1e3 * (synchronised() - begin) / args.repeats
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"{path:7s} {ms:6.1f}  {peak:8.1f}  {off:.1e} ({worst})")
