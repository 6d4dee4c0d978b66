"""Two simulated regimes with known truth: is evidence trusted where it holds, and only there?

    python benchmarks/regimes.py [--cohorts 10] [--method ridge --method brio-plus ...]

stable      a class effect that is there in every minute and at every site, and nothing else
misleading  beside it, a burst in patients that all source sites agree on, and in controls at the unseen site

Eight sites, 20 subjects of each class, 400 frames on average; the last site is held out. Differences are paired over
the cohorts, to the first method, with a 95 % interval by resampling them.
"""

import argparse

import numpy as np

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.methods import make_method
from brio.protocol import auc, bootstrap_interval, leave_one_site_out
from brio.training import Run

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--cohorts", type=int, default=10)
parser.add_argument("--method", action="append")
parser.add_argument("--device", default="cpu")
args = parser.parse_args()
methods = args.method or ["ridge", "fc-tangent-ridge", "brio-plus-linear", "brio-plus-factors", "brio-plus"]
base = Simulation(n_sites=8, per_class=20, frames=400, stable=0.25, spurious=0.0)
regimes = {"stable": {"unstable": 0.0}, "misleading": {"unstable": 3.0, "reversed_sites": 1}}

print(
    "| regime | method | AUC | to "
    + methods[0]
    + " | 95 % interval | relevance, unstable | support, stable | support, unstable |"
)
print("| --- | --- | --- | --- | --- | --- | --- | --- |")
for regime, effects in regimes.items():
    found: dict[str, list[float]] = {name: [] for name in methods}
    told: dict[str, list[list[float]]] = {name: [] for name in methods}
    for seed in range(args.cohorts):
        cohort = simulate(Simulation(**{**vars(base), **effects, "seed": seed}))
        graphs, truth = Connectomes(cohort, args.device), cohort.provenance["truth"]
        (fold,) = (f for f in leave_one_site_out(cohort, 0) if f.name == max(cohort.sites))
        for name in methods:
            (fitted,) = make_method(name).fit(graphs, [Run(fold, 0)])
            found[name].append(100 * auc(cohort.labels[fold.test], fitted.test_logit))
            if "support" in fitted.details:
                of = {k: int(fitted.parameters["Pi"][:, truth[k]].sum(1).argmax()) for k in ("stable", "unstable")}
                support = fitted.details["support"]
                row = [fitted.details["relevance"][of["unstable"]], support[of["stable"]], support[of["unstable"]]]
                told[name].append(row)
    for name in methods:
        gain = np.array(found[name]) - np.array(found[methods[0]])
        low, high = bootstrap_interval(gain)
        notes = [f"{v:.2f}" for v in np.mean(told[name], 0)] if told[name] else ["-"] * 3
        line = [
            regime,
            name,
            f"{np.mean(found[name]):.1f}",
            f"{round(gain.mean(), 1) + 0.0:+.1f}",
            f"{low:+.1f} to {high:+.1f}",
            *notes,
        ]
        print("| " + " | ".join(line) + " |", flush=True)
