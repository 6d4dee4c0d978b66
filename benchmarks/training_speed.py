"""Time and peak memory of a whole leave-one-site-out training of BRIO in one stack.

    python benchmarks/loso.py COHORT [--device cuda] [--epochs 100] [--seeds 1] [--method brio]

Every run trains all its epochs (no early stop); the time runs from the first weight to the last test score, with
connectomes in memory, and once more from the cohort folder on.
"""

import argparse
import time

import torch

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.device import describe_device, resolve_device
from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.training import Run

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("cohort")
parser.add_argument("--device", default="auto")
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--seeds", type=int, default=1)
parser.add_argument("--method", default="brio")
args = parser.parse_args()

device = resolve_device(args.device)
whole = Cohort.load(args.cohort)
cohort = whole.select(audit(whole).keep)
torch.zeros(1, device=device)  # start the driver before the clock
begin = time.perf_counter()
graphs = Connectomes(cohort, device)
runs = [Run(fold, seed) for seed in range(args.seeds) for fold in leave_one_site_out(cohort, seed)]
if device.type == "cuda":
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
start = time.perf_counter()
fitted_runs = make_method(args.method, {"epochs": args.epochs, "patience": None}).fit(graphs, runs)
end = time.perf_counter()
peak = f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB" if device.type == "cuda" else "not measured"
print("method  runs  epochs  scans  ROIs  training s  with connectomes s  ms per epoch and fold  peak memory  device")
per_epoch = 1e3 * (end - start) / (args.epochs * len(runs))
print(
    f"{args.method}  {len(runs)}  {args.epochs}  {len(cohort)}  {cohort.n_rois}  {end - start:.1f}  {end - begin:.1f}  "
    f"{per_epoch:.1f}  {peak}  {describe_device(device)}"
)
