"""What choosing the checkpoint on the test site would seem to gain: never a result, but what some published code does.

    python benchmarks/chosen_on_test.py COHORT METHOD [--seeds 3] [--device cuda]

Trains every fold of leave one site out twice with the method's own settings: the checkpoint is chosen by the AUC on the
validation sites, as everywhere in brio, then by the AUC on the test site itself. Source sites and draws are the same.
"""

import argparse
from dataclasses import replace

import numpy as np

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.methods import make_method
from brio.protocol import auc, bootstrap_interval, leave_one_site_out
from brio.training import Run

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("cohort")
parser.add_argument("method")
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--device", default="auto")
args = parser.parse_args()
cohort = Cohort.load(args.cohort)
cohort = cohort.select(audit(cohort).keep)
graphs = Connectomes(cohort, resolve_device(args.device))
folds = [(fold, seed) for seed in range(args.seeds) for fold in leave_one_site_out(cohort, seed)]
method = make_method(args.method)

print(f"{args.method}, {len(cohort)} scans, {args.seeds} seeds\n")
print("| checkpoint chosen on | AUC | 95 % interval | its own score |\n| --- | --- | --- | --- |")
for by in ("validation sites", "test site"):
    runs = [Run(replace(f, validation=f.test) if by == "test site" else f, seed) for f, seed in folds]
    fitted_runs = method.fit(graphs, runs)
    sites: dict[str, list[float]] = {}
    for o in fitted_runs:
        sites.setdefault(o.run.fold.name, []).append(100 * auc(cohort.labels[o.run.fold.test], o.test_logit))
    mean = [float(np.mean(s)) for s in sites.values()]
    low, high = bootstrap_interval(mean)
    chosen = 100 * np.mean([o.validation_auc for o in fitted_runs])
    print(f"| {by} | {np.nanmean(mean):.1f} | {low:.1f} to {high:.1f} | {chosen:.1f} |", flush=True)
