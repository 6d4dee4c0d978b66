"""How much faster is one job on more workers, and are its predictions the same?

    python benchmarks/dask_scaling.py [--workers 1 2 4] [--threads 2] [--epochs 24] [--sites 8]

Runs one job of several networks on a simulated cohort: in this process, then with the Dask engine and 1, 2 and 4
workers on this machine. Each worker computes with the number of threads of the plan, so the machine should have as
many cores as the largest number of workers times `--threads`. Prints a table in Markdown, each row as soon as it is
measured: the wall time, start of the workers included, and whether ``predictions.csv`` has the same bytes. Ends with
status 1 where it has not.

The command line of brio is not needed. On a machine without network, carry these wheels there. For Python 3.12 on
x86-64 those marked with * are compiled (manylinux, cp312 or abi3), the others are pure Python:

    click cloudpickle dask distributed fsspec locket msgpack* packaging partd psutil* sortedcontainers tblib
    threadpoolctl toolz tornado* zict

They need numpy, pandas, PyYAML and jinja2 besides. Install them from their folder, or unpack them into one that stands
in PYTHONPATH, from which workers get it too:

    python -m pip install --no-index --find-links wheels distributed threadpoolctl
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from brio.cohort.simulate import Simulation, simulate
from brio.jobs import JobSpec, run_job
from brio.jobs.dask import ClusterOptions, DaskEngine
from brio.jobs.spec import Engine

METHODS = ("gcn", "brainnettf", "brio")


def time_job(spec: JobSpec, out: Path) -> float:
    """Run a job and return its seconds."""
    start = time.perf_counter()
    run_job(spec, out)
    return time.perf_counter() - start


def print_row(*cells: str) -> None:
    """Print one row of the table at once, so that a run that is stopped has shown what it measured."""
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Run the job with each engine and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--threads", type=int, default=2, help="of this process and of each worker")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--per-class", type=int, default=20, help="participants of each class at a site")
    parser.add_argument("--rois", type=int, default=32)
    parser.add_argument("--runs-per-stack", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory(prefix="brio-scaling-") as name:
        place = Path(name)
        simulate(Simulation(n_sites=args.sites, per_class=args.per_class, n_rois=args.rois)).save(place / "cohort")

        def describe(engine: Engine | None) -> JobSpec:
            return JobSpec(
                place / "cohort",
                args.methods,
                settings={"epochs": args.epochs},
                device="cpu",
                runs_per_stack=args.runs_per_stack,
                records_only=True,
                engine=engine,
            )

        n_stacks = -(-args.sites // args.runs_per_stack) * len(args.methods)
        print(f"{', '.join(args.methods)}: {n_stacks} stacks of {args.runs_per_stack}, {args.epochs} epochs, ", end="")
        print(f"{2 * args.sites * args.per_class} scans of {args.rois} ROIs, {args.threads} threads each\n")
        print_row("workers", "wall time, s", "speed-up over one worker", "speed-up over no Dask", "same predictions")
        print_row("---", "---", "---", "---", "---")
        with threadpool_limits(args.threads):  # numpy's products too, as in a worker
            local = time_job(describe(None), place / "local")
        print_row("without Dask", f"{local:.0f}", "", "1.00", "")
        expected = (place / "local" / "predictions.csv").read_bytes()
        first, same = None, True
        for n in args.workers:
            out = place / f"workers-{n}"
            with DaskEngine(ClusterOptions(workers=n)) as engine:
                seconds = time_job(describe(engine), out)
            first = first or seconds
            equal = (out / "predictions.csv").read_bytes() == expected
            same &= equal
            ratios = f"{first / seconds:.2f}", f"{local / seconds:.2f}"
            print_row(f"Dask, {n}", f"{seconds:.0f}", *ratios, "yes" if equal else "NO")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
