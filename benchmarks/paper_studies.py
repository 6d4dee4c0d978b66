"""How long do the paper's studies take?

    python benchmarks/paper_studies.py COHORT OUT [--study NAME ...] [--seeds 3] [--device cuda-tf32] [--quick]

Makes the studies of ``brio study paper`` one after the other in one process, every method with its own settings.
Prints a table with a row for each study, and a line with # for each arm that it trains; arms of earlier studies are
shared. The columns: arms and runs that were trained, seconds of their training, seconds of the whole study with its
diagnostics, tables and figures, and the operations of the matrix products in training the full method ``brio``, as
``benchmarks/training_speed.py`` counts them. The two comparisons of all methods come last. OUT must not exist, because
what is finished there would not be trained again. Outputs of several processes, with different studies, may be stored
one after the other: the page of benchmarks takes out the arms that a later one trained again. ``--quick`` trains three
epochs, to try the script.
"""

import argparse
import time
from pathlib import Path
from typing import Any

from bench.brio_flops import count_training_flops

from brio.console import Progress
from brio.jobs import JobSpec
from brio.studies import StudyContext, run_study
from brio.studies.context import Arm, ArmResults
from brio.studies.study import PAPER

COLUMNS = ["study", "arms", "runs", "training s", "whole s", "products, TFLOP"]
COMPARISONS = ("comparison", "in-distribution")
STUDIES = [*(name for name in PAPER if name not in COMPARISONS), *COMPARISONS]


class TimedContext(StudyContext):
    """A study context that times the training of every arm."""

    def __init__(self, spec: JobSpec, out: Path) -> None:
        super().__init__(spec, out)
        self.timings: list[dict[str, Any]] = []

    def _execute(self, arm: Arm, progress: Progress) -> ArmResults:
        start = time.perf_counter()
        results = super()._execute(arm, progress)
        seconds, flops = time.perf_counter() - start, self._count_flops(results)
        self.timings.append({"runs": len(results.rows), "seconds": seconds, "flops": flops})
        products = f", {flops / 1e12:.0f} TFLOP" if flops else ""
        print(f"# {self.protocol_of(arm)} {arm.name}: {len(results.rows)} runs, {seconds:.1f} s{products}", flush=True)
        return results

    def _count_flops(self, results: ArmResults) -> float:
        """Count the operations of the products in the training of BRIO; 0 for other methods."""
        if results.arm.method != "brio":
            return 0.0
        epochs = results.rows.set_index(["fold", "seed"])["trained_epochs"]
        total = 0.0
        for planned_run in self.plan_arm(results.arm).runs.values():
            run = planned_run.run
            n_epochs = int(epochs[run.fold.name, run.seed])
            total += count_training_flops(planned_run.method.settings, self.connectomes, run, n_epochs)
        return total


def print_row(study: str, timings: list[dict[str, Any]], seconds: float) -> None:
    """Print a row of the table."""
    totals = {key: sum(timing[key] for timing in timings) for key in ("runs", "seconds", "flops")}
    cells = [study, len(timings), totals["runs"], f"{totals['seconds']:.1f}", f"{seconds:.1f}"]
    print(f"| {' | '.join(map(str, cells))} | {totals['flops'] / 1e12:.0f} |", flush=True)


def main() -> None:
    """Make the studies and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("out", type=Path)
    parser.add_argument("--study", nargs="+", default=STUDIES, help="all of the paper's if not given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda-tf32")
    parser.add_argument("--quick", action="store_true", help="three epochs, to try it")
    args = parser.parse_args()
    if args.out.exists():
        parser.error(f"{args.out} exists")

    start = time.perf_counter()
    settings = {"epochs": 3, "T_w": 1} if args.quick else {}
    spec = JobSpec(args.cohort, seeds=args.seeds, device=args.device, settings=settings)
    context = TimedContext(spec, args.out)
    print(f"# {context.job.device.describe()}, {len(context.cohort)} scans, start {time.perf_counter() - start:.1f} s")
    print(f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|")
    started = time.perf_counter()
    for name in args.study:
        n_before, study_start = len(context.timings), time.perf_counter()
        run_study(name, context)
        print_row(name, context.timings[n_before:], time.perf_counter() - study_start)
    print_row("all", context.timings, time.perf_counter() - started)


if __name__ == "__main__":
    main()
