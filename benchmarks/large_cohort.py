"""Does a cohort of 12,000 scans fit: how long does it take to open, and what do connectomes and an epoch cost?

    python benchmarks/large_cohort.py FOLDER [--scans 12000] [--frames 400] [--rois 400] [--sites 21] [--K 2]

Writes simulated scans (7.7 GB by default, about the size of the whole ABCD study) to FOLDER unless it exists, opens
them, computes their connectomes, and trains BRIO on one fold for one warm-up epoch and one guided epoch, with a
qualification refresh over all source scans. Prints seconds and peak memory after each step.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from brio.cohort import Atlas, Cohort, CohortWriter
from brio.connectome import Connectomes
from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.training import Run


def peak_memory() -> str:
    """Return the largest resident memory of the process so far; it includes the mapped pages of the scans."""
    return f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"


def write_cohort(folder: Path, scans: int, frames: int, rois: int, sites: int) -> None:
    """Write white noise with a shared signal in a quarter of the ROIs that is stronger in patients."""
    rng = np.random.default_rng(0)
    with CohortWriter(folder, "large", Atlas.unnamed(rois, "simulated")) as writer:
        for i in range(scans):
            series = rng.standard_normal((frames, rois), dtype=np.float32)
            series[:, : rois // 4] += (0.5 + 0.4 * (i % 2)) * rng.standard_normal((frames, 1), dtype=np.float32)
            writer.add(series, {"participant_id": f"p{i:05d}", "site": f"s{i // 2 % sites:02d}", "label": i % 2})


def main() -> None:
    """Write, open and train, and print what each step costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scans", type=int, default=12_000)
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--rois", type=int, default=400)
    parser.add_argument("--sites", type=int, default=21)
    parser.add_argument("--K", type=int, default=2, help="re-estimates of each scan")
    args = parser.parse_args()

    if not args.folder.exists():
        write_cohort(args.folder, args.scans, args.frames, args.rois, args.sites)
        print(f"written, {peak_memory()}", flush=True)

    start = time.perf_counter()
    cohort = Cohort.load(args.folder)
    print(f"{cohort!r}\nopened in {time.perf_counter() - start:.2f} s, {peak_memory()}", flush=True)

    start = time.perf_counter()
    graphs = Connectomes(cohort)
    print(f"connectomes in {time.perf_counter() - start:.0f} s, {peak_memory()}", flush=True)

    fold = leave_one_site_out(cohort, 0)[0]
    settings = {"epochs": 2, "T_w": 1, "M": 10**6, "K": args.K, "patience": None}
    start = time.perf_counter()
    make_method("brio", settings).fit(graphs, [Run(fold, 0)])
    print(
        f"one warm-up epoch, one refresh over {len(fold.source)} source scans with K = {args.K} and one guided epoch "
        f"in {time.perf_counter() - start:.0f} s, {peak_memory()}",
        flush=True,
    )


if __name__ == "__main__":
    main()
