"""Memory and time of BRIO where re-estimates are made and looked at in smaller portions than a step takes.

    python benchmarks/portions.py COHORT [--device cuda-tf32] [--parts 1 0.5 0.25]

One run alone, at K = 2, 8 and 16 and with every second source scan at K = 8, each twice: peak memory, and milliseconds
an epoch over M epochs, which hold as many refreshes as an epoch has steps.
"""

import argparse
import dataclasses
import time

import numpy as np
import torch

from brio.cohort import Cohort
from brio.connectome import Connectomes
from brio.device import describe_device, resolve_device
from brio.methods import make_method
from brio.protocol import Fold, leave_one_site_out
from brio.training import Run
from brio.training.stack import Stack

WARM = 5

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("cohort")
parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda-tf32")
parser.add_argument("--parts", type=float, nargs="+", default=[1.0, 0.5, 0.25, 0.17], help="of a step")
args = parser.parse_args()
device = resolve_device(args.device)
graphs = Connectomes(Cohort.load(args.cohort), device)
fold = leave_one_site_out(graphs.cohort, 0)[0]
half = dataclasses.replace(fold, source=fold.source[::2])
usual = Stack.step_bytes


class Part:
    """What stands for ``Stack.step_bytes``: a part of it."""

    share = 1.0

    def __get__(self, stack: Stack, owner: type | None = None) -> int:
        return int(self.share * usual.func(stack))


def trained(fold: Fold, K: int) -> tuple[float, float]:
    """Peak memory in MiB and milliseconds an epoch."""
    M = make_method("brio").settings.M
    method = make_method("brio", {"K": K, "epochs": WARM + M + 1, "patience": None, "T_w": 2})
    starts: list[float] = []

    def watch(message: str, share: float) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()
        starts.append(time.perf_counter())

    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    method.fit(graphs, [Run(fold, 0)], watch)
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20 if device.type == "cuda" else np.nan
    return peak, 1e3 * float(np.diff(starts)[WARM : WARM + M].mean())


part = Stack.step_bytes = Part()
print(f"{describe_device(device)}: {len(fold.source)} source scans, {len(half.source)} of them half")
trained(fold, 8)  # kernels are compiled, and what runs share is made
CASES = [("K = 2", fold, 2), ("K = 8", fold, 8), ("K = 16", fold, 16), ("half of the scans", half, 8)]
for share in args.parts:
    part.share = share
    for name, where, K in CASES:
        (peak, once), (_, again) = trained(where, K), trained(where, K)
        print(f"{share:5.2f} of a step  {name:18s} {peak:6.0f} MiB  {once:6.1f} and {again:.1f} ms", flush=True)
