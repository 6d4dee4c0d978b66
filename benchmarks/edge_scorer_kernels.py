"""Are the GPU kernels of the MLP that scores edges faster than tensor operations, and as exact?

    python benchmarks/edge_scorer_kernels.py [--runs 60] [--graphs 136] [--rois 200] [--share 0.2] [--norm instance]
        [--one-seed]

A step computes the scores of every edge of 136 graphs in each of 60 runs, and their gradients, as the trainer does: all
runs mapped by torch.vmap, one backward pass. Both paths draw the same numbers for dropout. Prints one line per path
(plain tensor operations, kernels): milliseconds, peak memory, and the largest relative difference of scores and
gradients between float32 and tensor operations in float64, for two runs of four graphs. The first call, which compiles
kernels, is not timed.
"""

import argparse
import time

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from brio.device import resolve_device
from brio.methods.edges import scorer
from brio.methods.edges.scorer import EdgeBatchNorm, EdgeInstanceNorm, EdgeMLP, Edges, list_edges
from brio.training import StepContext, random_numbers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda", help="cuda or cuda-tf32")
parser.add_argument("--runs", type=int, default=60)
parser.add_argument("--graphs", type=int, default=136)
parser.add_argument("--rois", type=int, default=200)
parser.add_argument("--share", type=float, default=0.2, help="share of all pairs that are edges")
parser.add_argument("--width", type=int, default=64, help="width of the states of ROIs")
parser.add_argument("--widths", type=int, nargs="+", default=[32, 8], help="widths of the hidden layers")
parser.add_argument("--norm", choices=["instance", "batch"], default="instance")
parser.add_argument("--dropout", type=float, default=0.5)
parser.add_argument("--one-seed", action="store_true", help="all runs draw the same numbers")
parser.add_argument("--repeats", type=int, default=10)
parser.add_argument("--only", choices=["plain", "kernels"], help="the other one may not fit into memory")
args = parser.parse_args()
if not torch.cuda.is_available():
    raise SystemExit("no GPU found: the kernels need one")
compute = resolve_device(args.device)
device = compute.torch_device
norm = {"instance": EdgeInstanceNorm, "batch": EdgeBatchNorm}[args.norm]
network = EdgeMLP(args.width, args.widths, args.dropout, norm).to("meta")


def make_inputs(
    runs: int, graphs: int, dtype: torch.dtype
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor, Edges]:
    """Return parameters, running statistics, states of ROIs and edges."""
    torch.manual_seed(0)
    networks = [EdgeMLP(args.width, args.widths, args.dropout, norm) for _ in range(runs)]
    params, buffers = (
        {n: t.detach().to(device, dtype) for n, t in part.items()} for part in stack_module_state(networks)
    )
    H = torch.randn(runs, graphs, args.rois, args.width, device=device)
    lists = []
    for _ in range(runs):  # one after the other: many random matrices take memory
        weight = torch.rand(graphs, args.rois, args.rois, device=device).triu(1)
        threshold = weight.flatten(1).quantile(1 - args.share * (args.rois - 1) / (2 * args.rois), dim=1)
        A = (weight > threshold[:, None, None]).to(dtype)
        lists.append(list_edges(A + A.mT, args.share))
    edges = Edges(*(torch.stack(t) for t in zip(*lists, strict=True)))
    return params, buffers, H.to(dtype), edges


@compute.network_precision()
def score_edges(params: dict[str, Tensor], buffers: dict[str, Tensor], H: Tensor, edges: Edges) -> dict[str, Tensor]:
    """Return scores and gradients."""
    inputs = {n: t.detach().requires_grad_() for n, t in (params | {"H": H}).items()}
    keys, real = torch.arange(len(H), device=device) + 17, torch.ones(H.shape[1], device=device, dtype=H.dtype)
    site = torch.zeros(H.shape[1], device=device, dtype=torch.long)

    def score_run(inputs: dict[str, Tensor], buffers: dict[str, Tensor], edges: Edges, key: Tensor) -> Tensor:
        own = {n: t for n, t in inputs.items() if n != "H"}
        return functional_call(network, own | buffers, (inputs["H"], edges, StepContext(key, real, site)))

    dims = (0, 0, 0, None if args.one_seed else 0)
    scores = torch.vmap(score_run, in_dims=dims)(inputs, buffers, edges, keys[0] if args.one_seed else keys)
    (scores.sin() * edges.real).sum().backward()
    return {n: t.grad for n, t in inputs.items()} | {"scores": (scores * edges.real).detach()}


def select_path(path: str) -> None:
    """Draw and score by kernels or by tensor operations from here on."""
    plain = path == "plain"
    scorer.find_gpu_twin = (lambda H, widths: None) if plain else find_scorer
    random_numbers._gpu_twin = (lambda like: None) if plain else find_random_numbers


def largest_difference(computed: dict[str, Tensor], exact: dict[str, Tensor]) -> tuple[float, str]:
    """Return the largest relative difference and the tensor it is of.

    Gradients of almost zero are compared with the largest gradient instead of their own size.
    """
    largest = max(float(t.norm()) for n, t in exact.items() if n != "scores")
    errors = {
        name: float((computed[name].double() - t).norm()) / max(float(t.norm()), 1e-3 * largest)
        for name, t in exact.items()
    }
    worst = max(errors, key=errors.__getitem__)
    return errors[worst], worst


def read_clock() -> float:
    """Return the time in seconds once the GPU has nothing left to do."""
    torch.cuda.synchronize()
    return time.perf_counter()


find_scorer, find_random_numbers = scorer.find_gpu_twin, random_numbers._gpu_twin
select_path("plain")
exact = score_edges(*make_inputs(2, 4, torch.float64))
many = make_inputs(args.runs, args.graphs, torch.float32)
if find_scorer(many[2], args.widths) is None:
    print("kernels cannot be used here (see find_gpu_twin in methods/edges/scorer.py): both paths are plain")
print(f"{compute.describe()}: {many[3].receiver.numel():,} edges")
print("path        ms  peak GiB  difference")
for path in ("plain", "kernels"):
    if args.only in (path, None):
        select_path(path)
        error, worst = largest_difference(score_edges(*make_inputs(2, 4, torch.float32)), exact)
        score_edges(*many)
        torch.cuda.reset_peak_memory_stats()
        start = read_clock()
        for _ in range(args.repeats):
            score_edges(*many)
        ms = 1e3 * (read_clock() - start) / args.repeats
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"{path:7s} {ms:6.1f}  {peak:8.1f}  {error:.1e} ({worst})")
