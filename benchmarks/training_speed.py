"""How long does a whole leave-one-site-out training take, and how much GPU memory does it need?

    python benchmarks/training_speed.py COHORT [--device cuda] [--epochs 100] [--seeds 1] [--method brio]
        [--setting cell_batch=4]

Trains all folds of all seeds together, every run for all its epochs (no early stopping). Prints a table of one
row: the most steps that a run takes in an epoch, seconds from the first weight to the last test score, seconds with the
connectomes included, milliseconds per step of the stack (refreshes and validation included) and per epoch and run, the
arithmetic of BRIO's products, and peak memory; then two parts of BRIO's training alone, the least of five times: the
transport of one step with its gradient, and one refresh of all runs.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from bench.brio_flops import count_training_flops

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.methods import make_method
from brio.methods.brio.method import Brio
from brio.protocol import leave_one_site_out
from brio.training import Run
from brio.training.stack import SourceCells, Stack
from brio.transport import entropic_cost


def find_least_ms(work: Callable[[], object], device: torch.device) -> float:
    """Time a piece of work six times; return the least time after the first, in milliseconds."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times[1:])


def time_parts(method: Brio, graphs: Connectomes, runs: list[Run]) -> dict[str, str]:
    """Time the transport of one step, and a refresh, of all runs."""
    settings, stack = method.settings, Stack.build(method, graphs, runs)
    for stage in method.stages():
        method.begin_stage(stack, stage)
    everyone = np.ones(len(runs), dtype=bool)
    sites = stack.sources.size.shape[1]
    shape = (len(runs), 2, sites, sites, 2, settings.cloud, settings.cloud)  # costs between and within, as in training
    costs = torch.rand(shape, device=graphs.device).requires_grad_()

    def transport() -> None:
        costs.grad = None
        entropic_cost(costs, settings.epsilon, settings.sinkhorn_iterations, largest_cost=2.0).sum().backward()

    return {
        "transport, ms": f"{find_least_ms(transport, graphs.device):.2f}",
        "refresh, ms": f"{find_least_ms(lambda: method.refresh(stack, everyone, 0), graphs.device):.1f}",
    }


def main() -> None:
    """Train and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda-tf32")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--method", default="brio")
    parser.add_argument("--setting", action="append", default=[], help="NAME=NUMBER of the method; repeatable")
    args = parser.parse_args()

    settings = {name: json.loads(number) for name, number in (one.split("=", 1) for one in args.setting)}
    method = make_method(args.method, settings | {"epochs": args.epochs, "patience": None})
    compute = resolve_device(args.device)
    device = compute.torch_device
    imported = Cohort.load(args.cohort)
    cohort = imported.select(audit(imported).keep)
    torch.zeros(1, device=device)  # start the driver before the clock
    start = time.perf_counter()
    graphs = Connectomes(cohort, device)
    runs = [Run(fold, seed) for seed in range(args.seeds) for fold in leave_one_site_out(cohort, seed)]
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    training_start = time.perf_counter()
    with compute.network_precision():
        method.fit(graphs, runs)
    end = time.perf_counter()
    peak = f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB" if device.type == "cuda" else "not measured"
    cells = SourceCells(cohort, runs)
    steps = cells.steps(method.settings.cell_batch).max()
    flops, parts = "", {}
    if isinstance(method, Brio):
        tera = sum(count_training_flops(method.settings, graphs, run, args.epochs) for run in runs) / 1e12
        flops = f"{tera:.0f}"
        with compute.network_precision():
            parts = time_parts(method, graphs, runs)
    per_epoch = 1e3 * (end - training_start) / args.epochs
    measured = {
        "method": args.method,
        "runs": len(runs),
        "epochs": args.epochs,
        "steps": steps,
        "scans": len(cohort),
        "ROIs": cohort.n_rois,
        "training s": f"{end - training_start:.1f}",
        "with connectomes s": f"{end - start:.1f}",
        "ms per step": f"{per_epoch / steps:.2f}",
        "ms per epoch and run": f"{per_epoch / len(runs):.1f}",
        "products, TFLOP": flops,
        "peak memory": peak,
        **parts,
        "device": compute.describe(),
    }
    for row in (measured, ["---"] * len(measured), measured.values()):
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
