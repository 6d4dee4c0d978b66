"""A cohort of the size of the whole ABCD study on disk: time to open it, memory and time of one training epoch.

    python benchmarks/large_cohort.py FOLDER [--scans 12000] [--frames 400] [--rois 400] [--sites 21]

Writes simulated scans (7.7 GB by default) to FOLDER unless they are there, opens them, and trains BRIO on one fold for
one warm-up epoch and one guided epoch, a qualification refresh over all source scans included.
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


def peak() -> float:
    """Largest resident memory of the process so far, GiB (mapped pages of the scans included)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", type=Path)
parser.add_argument("--scans", type=int, default=12_000)
parser.add_argument("--frames", type=int, default=400)
parser.add_argument("--rois", type=int, default=400)
parser.add_argument("--sites", type=int, default=21)
parser.add_argument("--K", type=int, default=2)
args = parser.parse_args()

if not args.folder.exists():
    rng = np.random.default_rng(0)
    with CohortWriter(args.folder, "large", Atlas.unnamed(args.rois, "simulated")) as writer:
        for i in range(args.scans):
            x = rng.standard_normal((args.frames, args.rois), dtype=np.float32)
            x[:, : args.rois // 4] += (0.5 + 0.4 * (i % 2)) * rng.standard_normal((args.frames, 1), dtype=np.float32)
            row = {"participant_id": f"p{i:05d}", "site": f"s{i // 2 % args.sites:02d}", "label": i % 2}
            writer.add(x, row)
    print(f"written, peak memory {peak():.2f} GiB", flush=True)

start = time.perf_counter()
cohort = Cohort.load(args.folder)
print(f"{cohort!r}\nopened in {time.perf_counter() - start:.2f} s, peak memory {peak():.2f} GiB", flush=True)

start = time.perf_counter()
graphs = Connectomes(cohort)
print(f"connectomes in {time.perf_counter() - start:.0f} s, peak memory {peak():.2f} GiB", flush=True)

fold = leave_one_site_out(cohort, 0)[0]
settings = {"epochs": 2, "T_w": 1, "M": 10**6, "K": args.K, "patience": None}
start = time.perf_counter()
make_method("brio", settings).fit(graphs, [Run(fold, 0)])
print(
    f"one warm-up epoch, one refresh over {len(fold.source)} source scans with K = {args.K} and one guided epoch in "
    f"{time.perf_counter() - start:.0f} s, peak memory {peak():.2f} GiB",
    flush=True,
)
