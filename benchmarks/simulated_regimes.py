"""Does a method trust evidence where it holds, and only there? Simulated regimes with known truth.

    python benchmarks/simulated_regimes.py [--cohorts 10] [--regime misleading ...] [--arm ridge --arm brio-plus ...]

stable        a class effect that is present in every minute and at every site, and nothing else
misleading    in addition a burst of activity in another network: in patients at all source sites, in controls at the
              test site
same network  the same, but the burst is in half of the network that holds the stable effect
some scans    as misleading, but only half of the scans of that class have the burst

Cohorts of eight sites with 20 participants of each class and 400 frames on average; the last site is the test site.
Prints a Markdown table: mean AUC over cohorts, and the difference to the first arm, paired over cohorts, with its
95% t interval.
"""

import argparse

import numpy as np

from brio.cohort.simulate import Simulation, simulate
from brio.connectome import Connectomes
from brio.formatting import format_interval, format_signed
from brio.methods import make_method
from brio.protocol import auc, leave_one_site_out, t_interval
from brio.training import Run

ARMS = {
    "ridge": ("ridge", {}),
    "fc-tangent-ridge": ("fc-tangent-ridge", {}),
    "log-ridge": ("log-ridge", {}),
    "brio-plus": ("brio-plus", {}),
    "brio-plus, a tenth of the penalty": ("brio-plus", {"lambda_re": 0.1}),
    "brio-plus, ten times the penalty": ("brio-plus", {"lambda_re": 10.0}),
}
COHORT = Simulation(n_sites=8, per_class=20, frames=400, stable=0.25, spurious=0.0)
BURST = {"unstable": 3.0, "reversed_sites": 1}
REGIMES = {
    "stable": {"unstable": 0.0},
    "misleading": BURST,
    "same network": BURST | {"burst_in_stable": True},
    "some scans": BURST | {"burst_share": 0.5},
}


def score_arms(arms: list[str], effects: dict, seed: int, device: str) -> list[float]:
    """Return the AUC of each arm, in percent, at the test site of one simulated cohort."""
    cohort = simulate(Simulation(**{**vars(COHORT), **effects, "seed": seed}))
    graphs = Connectomes(cohort, device)
    (fold,) = (fold for fold in leave_one_site_out(cohort, 0) if fold.name == max(cohort.sites))
    scores = []
    for arm in arms:
        (fitted,) = make_method(*ARMS[arm]).fit(graphs, [Run(fold, 0)])
        scores.append(100 * auc(cohort.labels[fold.test], fitted.test_logit))
    return scores


def main() -> None:
    """Train on every simulated cohort and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=10)
    parser.add_argument("--arm", action="append", choices=ARMS, help="repeatable; the first is the one to compare with")
    parser.add_argument("--regime", action="append", choices=REGIMES, help="repeatable; all by default")
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda or cuda-tf32")
    args = parser.parse_args()

    arms = args.arm or list(ARMS)
    header = ["regime", "arm", "AUC", f"minus {arms[0]}", "95% interval"]
    print("| " + " | ".join(header) + " |\n" + "| --- " * len(header) + "|")
    for regime in args.regime or REGIMES:
        scores = np.array([score_arms(arms, REGIMES[regime], seed, args.device) for seed in range(args.cohorts)])
        for k, arm in enumerate(arms):
            gains = scores[:, k] - scores[:, 0]
            interval = format_interval(t_interval(gains, 0.0), format_signed, 100.0)  # cohorts are independent
            cells = [regime, arm, f"{scores[:, k].mean():.1f}", format_signed(gains.mean()), interval]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
