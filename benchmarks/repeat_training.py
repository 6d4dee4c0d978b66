"""Is a network trained again the same? Every weight of every run, bit for bit.

    python benchmarks/again.py COHORT [--device cuda-tf32] [--method gsat ...] [--runs 8] [--epochs 8] [--times 3]

The first training compiles kernels; the last one is timed. What differs is the largest difference of any weight.
"""

import argparse
import dataclasses
import time

import torch

from brio.cohort import Cohort
from brio.connectome import Connectomes
from brio.device import describe_device, resolve_device
from brio.methods import find_method, list_methods, make_method
from brio.protocol import leave_one_site_out
from brio.training import NeuralMethod, Run

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("cohort")
parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda-tf32")
parser.add_argument("--method", nargs="+", help="all networks if not given")
parser.add_argument("--runs", type=int, default=8, help="trained together")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--times", type=int, default=3)
args = parser.parse_args()
device = resolve_device(args.device)
graphs = Connectomes(Cohort.load(args.cohort), device)
runs = [Run(fold, seed) for seed in range(3) for fold in leave_one_site_out(graphs.cohort, seed)][: args.runs]
names = args.method or [e.name for e in list_methods() if issubclass(e.make, NeuralMethod)]
print(f"{describe_device(device)}: {len(runs)} runs, {args.epochs} epochs, {args.times} times")
print("method           weights        seconds")
for name in names:
    known = {f.name for f in dataclasses.fields(find_method(name).make.Settings)}
    short = {"epochs": args.epochs, "patience": None, "T_w": 2, "M": 6}
    method = make_method(name, {key: value for key, value in short.items() if key in known})
    first, worst, seconds = None, 0.0, 0.0
    for _ in range(args.times):
        begin = time.perf_counter()
        found = [{key: w.double().cpu() for key, w in o.tensors.items()} for o in method.fit(graphs, runs)]
        seconds = time.perf_counter() - begin
        first = first or found
        for one, other in zip(first, found, strict=True):
            for key, w in one.items():
                if not torch.equal(w, other[key]):
                    worst = max(worst, float((w - other[key]).abs().max()))
    print(f"{name:15s}  {'the same' if worst == 0 else f'differ {worst:.2g}':13s}  {seconds:7.2f}", flush=True)
