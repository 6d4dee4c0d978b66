"""How long does a whole leave-one-site-out training take, and how much GPU memory does it need?

    python benchmarks/training_speed.py COHORT [--device cuda] [--epochs 100] [--seeds 1] [--method brio]
        [--setting cell_batch=4]

Trains all folds of all seeds together, every run for all its epochs (no early stopping). Prints a table of one
row: the most steps that a run takes in an epoch, seconds from the first weight to the last test score, seconds with the
connectomes included, milliseconds per epoch and run, the arithmetic of BRIO's products, and peak memory.
"""

import argparse
import json
import time

import torch
from bench.brio_flops import count_training_flops

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.training import Run
from brio.training.cells import SourceCells


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
    cells = SourceCells(cohort, runs)
    flops = None
    if args.method == "brio":
        flops = sum(count_training_flops(method.settings, graphs, run, args.epochs) for run in runs)
    peak = f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB" if device.type == "cuda" else "not measured"
    per_epoch = 1e3 * (end - training_start) / (args.epochs * len(runs))
    measured = {
        "method": args.method,
        "runs": len(runs),
        "epochs": args.epochs,
        "steps": cells.steps(method.settings.cell_batch).max(),
        "scans": len(cohort),
        "ROIs": cohort.n_rois,
        "training s": f"{end - training_start:.1f}",
        "with connectomes s": f"{end - start:.1f}",
        "ms per epoch and run": f"{per_epoch:.1f}",
        "products, TFLOP": "" if flops is None else f"{flops / 1e12:.0f}",
        "peak memory": peak,
        "device": compute.describe(),
    }
    for row in (measured, ["---"] * len(measured), measured.values()):
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
