"""Does a network get the same weights when it is trained again?

    python benchmarks/repeat_training.py COHORT [--device cuda-tf32] [--method gsat ...] [--runs 8] [--epochs 8]
        [--times 3]

Trains each network several times with the same folds and seeds and compares every weight of every run bit for bit.
Prints one line per method: "the same" or the largest difference of any weight, and the seconds of the last training
(the first one compiles kernels).
"""

import argparse
import dataclasses
import time

import torch
from torch import Tensor

from brio.cohort import Cohort
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.methods import find_method, list_methods, make_method
from brio.protocol import leave_one_site_out
from brio.training import NeuralMethod, Run

SHORT_TRAINING = {"patience": None, "T_w": 2, "M": 6}


def largest_difference(first: list[dict[str, Tensor]], second: list[dict[str, Tensor]]) -> float:
    """Return the largest difference between the weights of two trainings, 0 where they are equal bit for bit."""
    return max(
        0.0 if torch.equal(weight, other[name]) else float((weight - other[name]).abs().max())
        for one, other in zip(first, second, strict=True)
        for name, weight in one.items()
    )


def main() -> None:
    """Train every method several times and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda-tf32")
    parser.add_argument("--method", nargs="+", help="all networks if not given")
    parser.add_argument("--runs", type=int, default=8, help="number of runs trained together")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--times", type=int, default=3, help="number of trainings")
    args = parser.parse_args()

    compute = resolve_device(args.device)
    graphs = Connectomes(Cohort.load(args.cohort), compute.torch_device)
    runs = [Run(fold, seed) for seed in range(3) for fold in leave_one_site_out(graphs.cohort, seed)][: args.runs]
    networks = [entry.name for entry in list_methods() if issubclass(entry.method_class, NeuralMethod)]
    print(f"{compute.describe()}: {len(runs)} runs, {args.epochs} epochs, {args.times} times")
    print("method           weights        seconds")
    for name in args.method or networks:
        fields = {field.name for field in dataclasses.fields(find_method(name).method_class.Settings)}
        settings = {"epochs": args.epochs} | {key: value for key, value in SHORT_TRAINING.items() if key in fields}
        method = make_method(name, settings)
        trainings = []
        for _ in range(args.times):
            start = time.perf_counter()
            with compute.network_precision():
                fitted_runs = method.fit(graphs, runs)
            seconds = time.perf_counter() - start
            trainings.append([{key: w.double().cpu() for key, w in fitted.tensors.items()} for fitted in fitted_runs])
        worst = max(largest_difference(trainings[0], other) for other in trainings)
        verdict = "the same" if worst == 0 else f"differ {worst:.2g}"
        print(f"{name:15s}  {verdict:13s}  {seconds:7.2f}", flush=True)


if __name__ == "__main__":
    main()
