"""What do smaller portions of re-estimates cost in time, and save in memory?

    python benchmarks/reestimate_portions.py COHORT [--device cuda-tf32] [--parts 1 0.5 0.25]

BRIO makes re-estimates in portions as large as a training step. This trains one run alone with portions of a part of
that size, at K = 2, 8 and 16 and with every second source scan at K = 8, each twice. Prints one line per case: peak
memory, and milliseconds per epoch over epochs that hold their share of refreshes.
"""

import argparse
import dataclasses
import time

import numpy as np
import torch

from brio.cohort import Cohort
from brio.connectome import Connectomes
from brio.device import ComputeDevice, resolve_device
from brio.methods import make_method
from brio.protocol import Fold, leave_one_site_out
from brio.training import Run
from brio.training.stack import Stack

WARM_UP_EPOCHS = 5
FULL_STEP_BYTES = Stack.step_bytes


class PartOfStep:
    """Replaces ``Stack.step_bytes`` by a part of it."""

    share = 1.0

    def __get__(self, stack: Stack, owner: type | None = None) -> int:
        return int(self.share * FULL_STEP_BYTES.func(stack))


def measure_training(graphs: Connectomes, compute: ComputeDevice, fold: Fold, K: int) -> tuple[float, float]:
    """Train one run; return its peak memory in MiB and milliseconds per epoch."""
    on_gpu = graphs.device.type == "cuda"
    M = make_method("brio").settings.M
    method = make_method("brio", {"K": K, "epochs": WARM_UP_EPOCHS + M + 1, "patience": None, "T_w": 2})
    epoch_starts: list[float] = []

    def note_epoch(message: str, share: float) -> None:
        if on_gpu:
            torch.cuda.synchronize()
        epoch_starts.append(time.perf_counter())

    before = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with compute.network_precision():
        method.fit(graphs, [Run(fold, 0)], note_epoch)
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20 if on_gpu else np.nan
    return peak, 1e3 * float(np.diff(epoch_starts)[WARM_UP_EPOCHS : WARM_UP_EPOCHS + M].mean())


def main() -> None:
    """Measure every case and print its line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda-tf32")
    parser.add_argument("--parts", type=float, nargs="+", default=[1.0, 0.5, 0.25, 0.17], help="of a training step")
    args = parser.parse_args()

    compute = resolve_device(args.device)
    graphs = Connectomes(Cohort.load(args.cohort), compute.torch_device)
    fold = leave_one_site_out(graphs.cohort, 0)[0]
    half = dataclasses.replace(fold, source=fold.source[::2])
    cases = [("K = 2", fold, 2), ("K = 8", fold, 8), ("K = 16", fold, 16), ("half of the scans", half, 8)]
    part = Stack.step_bytes = PartOfStep()
    print(f"{compute.describe()}: {len(fold.source)} source scans, {len(half.source)} of them half")
    measure_training(graphs, compute, fold, 8)  # compiles kernels and makes what runs share
    for share in args.parts:
        part.share = share
        for name, source, K in cases:
            (peak, first), (_, second) = (measure_training(graphs, compute, source, K) for _ in range(2))
            print(f"{share:5.2f} of a step  {name:18s} {peak:6.0f} MiB  {first:6.1f} and {second:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
