"""How much does it appear to gain to choose the checkpoint on the test site?

    python benchmarks/checkpoint_on_test_site.py COHORT METHOD [--seeds 3] [--device cuda]

Some published code chooses the training epoch on the scans that it reports. This trains every fold of leave one site
out twice, with the method's own settings: the checkpoint is chosen by the AUC on the validation sites, as everywhere in
brio, then by the AUC on the test site itself. Source sites and random draws are the same. The second row is never a
result. Prints a Markdown table: mean AUC over test sites, its 95% interval, and the AUC by which epochs were chosen.
"""

import argparse
from dataclasses import replace

import numpy as np

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.methods import make_method
from brio.protocol import auc, leave_one_site_out, t_interval
from brio.training import Run


def main() -> None:
    """Train with both choices of the checkpoint and print their scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("method")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda-tf32")
    args = parser.parse_args()

    cohort = Cohort.load(args.cohort)
    cohort = cohort.select(audit(cohort).keep)
    compute = resolve_device(args.device)
    graphs = Connectomes(cohort, compute.torch_device)
    method = make_method(args.method)
    by_validation = [Run(fold, seed) for seed in range(args.seeds) for fold in leave_one_site_out(cohort, seed)]
    by_test = [Run(replace(run.fold, validation=run.fold.test), run.seed) for run in by_validation]

    print(f"{args.method}, {len(cohort)} scans, {args.seeds} seeds\n")
    print("| checkpoint chosen on | AUC | 95% interval | its own score |\n| --- | --- | --- | --- |")
    for chosen_on, runs in (("validation sites", by_validation), ("test site", by_test)):
        with compute.network_precision():
            fitted_runs = method.fit(graphs, runs)
        scores: dict[str, list[float]] = {}
        for fitted in fitted_runs:
            test = fitted.run.fold.test
            scores.setdefault(fitted.run.fold.name, []).append(100 * auc(cohort.labels[test], fitted.test_logit))
        site_means = [float(np.mean(seeds)) for seeds in scores.values()]
        low, high = t_interval(site_means)
        selection = 100 * np.mean([fitted.validation_auc for fitted in fitted_runs])
        print(f"| {chosen_on} | {np.nanmean(site_means):.1f} | {low:.1f} to {high:.1f} | {selection:.1f} |", flush=True)


if __name__ == "__main__":
    main()
