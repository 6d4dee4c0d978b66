"""Does a method trust evidence where it holds, and only there? Two simulated regimes with known truth.

    python benchmarks/simulated_regimes.py [--cohorts 10] [--method ridge --method brio-plus ...]

stable      a class effect that is present in every minute and at every site, and nothing else
misleading  in addition a burst of activity: in patients at all source sites, in controls at the test site

Cohorts of eight sites with 20 participants of each class and 400 frames on average; the last site is the test site.
Prints a Markdown table: mean AUC over cohorts, the difference to the first method, paired over cohorts, with a 95 %
bootstrap interval, and, of methods with factors, relevance and support of the factors that hold the two effects.
"""

import argparse

import numpy as np

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.methods import make_method
from brio.protocol import auc, bootstrap_interval, leave_one_site_out
from brio.training import FittedRun, Run

METHODS = ["ridge", "fc-tangent-ridge", "log-ridge", "brio-plus-factors", "brio-plus"]
COHORT = Simulation(n_sites=8, per_class=20, frames=400, stable=0.25, spurious=0.0)
REGIMES = {"stable": {"unstable": 0.0}, "misleading": {"unstable": 3.0, "reversed_sites": 1}}


def describe_factors(fitted: FittedRun, truth: dict[str, list[int]]) -> list[float]:
    """Return relevance of the unstable effect's factor, support of the stable one's and of the unstable one's."""
    factor = {
        effect: int(fitted.state.inference["Pi_bar"][:, truth[effect]].sum(1).argmax())
        for effect in ("stable", "unstable")
    }
    support = fitted.details["support"]
    return [fitted.details["relevance"][factor["unstable"]], support[factor["stable"]], support[factor["unstable"]]]


def main() -> None:
    """Train on every simulated cohort and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=10)
    parser.add_argument("--method", action="append", help="repeatable; the first is the one to compare with")
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda or cuda-tf32")
    args = parser.parse_args()

    methods = args.method or METHODS
    header = ["regime", "method", "AUC", f"minus {methods[0]}", "95 % interval"]
    header += ["relevance, unstable", "support, stable", "support, unstable"]
    print("| " + " | ".join(header) + " |\n" + "| --- " * len(header) + "|")
    for regime, effects in REGIMES.items():
        scores: dict[str, list[float]] = {name: [] for name in methods}
        factors: dict[str, list[list[float]]] = {name: [] for name in methods}
        for seed in range(args.cohorts):
            cohort = simulate(Simulation(**{**vars(COHORT), **effects, "seed": seed}))
            graphs = Connectomes(cohort, args.device)
            (fold,) = (fold for fold in leave_one_site_out(cohort, 0) if fold.name == max(cohort.sites))
            for name in methods:
                (fitted,) = make_method(name).fit(graphs, [Run(fold, 0)])
                scores[name].append(100 * auc(cohort.labels[fold.test], fitted.test_logit))
                if "support" in fitted.details:
                    factors[name].append(describe_factors(fitted, cohort.provenance["truth"]))
        for name in methods:
            gains = np.array(scores[name]) - np.array(scores[methods[0]])
            low, high = bootstrap_interval(gains)
            gain = f"{round(gains.mean(), 1) + 0.0:+.1f}"  # adding zero turns -0.0 into 0.0
            cells = [regime, name, f"{np.mean(scores[name]):.1f}", gain, f"{low:+.1f} to {high:+.1f}"]
            cells += [f"{value:.2f}" for value in np.mean(factors[name], axis=0)] if factors[name] else ["-"] * 3
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
