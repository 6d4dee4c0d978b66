"""How do time and memory grow with scans, ROIs, frames, K, J, sites and runs?

    python benchmarks/growth.py FOLDER [--work NAME ...] [--axis NAME ...] [--at-once 2]

Each point is one piece of work on a simulated cohort, in a process of its own with one thread: CPU seconds, and by how
much memory at its peak exceeded what the process held before. One quantity is varied at a time, the others stay at
``USUAL`` or, for methods that take longer, ``SMALLER``.
Writes FOLDER/growth.csv, a point at a time; points that it already has are not measured again.
"""

import argparse
import csv
import multiprocessing
import os
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # read when numpy is imported

USUAL = {"scans": 256, "ROIs": 100, "frames": 200, "K": 8, "J": 4, "sites": 8, "runs": 1}
SMALLER = {"brio-plus": {"scans": 128, "ROIs": 50}, "brio": {"scans": 64, "ROIs": 50, "K": 4}}
"""What methods that take longer have in place of the usual sizes."""
AXES = {
    "scans": (64, 256, 1024, 4096, 8192),
    "ROIs": (50, 100, 200, 400),
    "frames": (100, 200, 400, 800),
    "K": (4, 8, 16),
    "J": (2, 4, 8),
    "sites": (4, 8, 16),
    "runs": (1, 2, 4),
}
LARGEST = {
    "brio-plus": {"scans": 1024, "ROIs": 200},
    "brio": {"scans": 256, "ROIs": 200, "frames": 400},
}
"""Largest values of these methods, which would take minutes beyond."""
WORK = {  # what it is, and the quantities that could matter to it
    "audit": ("the whole audit of a cohort", ("scans", "ROIs", "frames", "sites")),
    "connectomes": ("FC matrices of a cohort", ("scans", "ROIs", "frames")),
    "ridge": ("one fold, penalty chosen by inner folds", ("scans", "ROIs", "sites")),
    "log-ridge": ("one fold, penalty chosen by inner folds", ("scans", "ROIs", "sites")),
    "brio-plus": ("one fold", ("scans", "ROIs", "frames", "K", "sites")),
    "brio": ("a warm-up epoch, a refresh and a guided epoch", ("scans", "ROIs", "frames", "K", "J", "sites", "runs")),
}
FIELDS = ("work", "axis", "value", "seconds", "mebibytes")


def simulate(scans: int, rois: int, frames: int, sites: int):
    """Make noise with a shared signal that is stronger in patients; class and site in turn."""
    import numpy as np

    from brio.cohort import Cohort

    rng = np.random.default_rng(0)
    series = []
    for i in range(scans):
        x = rng.standard_normal((frames, rois), dtype=np.float32)
        x[:, : rois // 4] += (0.5 + 0.4 * (i % 2)) * rng.standard_normal((frames, 1), dtype=np.float32)
        series.append(x)
    order = np.arange(scans)
    return Cohort.from_scans(series, site=[f"s{i // 2 % sites:02d}" for i in order], label=order % 2)


def do_work(work: str, size: dict[str, int]) -> tuple[float, float]:
    """Do one piece of work; return its CPU seconds and the mebibytes by which memory rose at its peak."""
    from brio.cohort import audit
    from brio.connectome import Connectomes
    from brio.methods import make_method
    from brio.protocol import leave_one_site_out
    from brio.training import Run

    settings = {
        "ridge": {"choose_by": "source-sites"},
        "brio-plus": {"K": size["K"]},
        "brio": {"K": size["K"], "J": size["J"], "epochs": 2, "T_w": 1, "M": 10**5, "patience": None},
    }

    def fit(connectomes: Connectomes) -> None:
        fold = leave_one_site_out(connectomes.cohort, 0, validation_sites=0)[0]
        runs = [Run(fold, seed) for seed in range(size["runs"])]
        make_method(work, settings.get(work, {})).fit(connectomes, runs)

    step = {"audit": audit, "connectomes": Connectomes}.get(work, fit)
    prepare = Connectomes if step is fit else lambda cohort: cohort
    prepared = prepare(simulate(size["scans"], size["ROIs"], size["frames"], size["sites"]))
    Path("/proc/self/clear_refs").write_text("5")  # the peak of the simulation is forgotten
    before, start = read_memory("VmRSS"), time.process_time()
    step(prepared)
    seconds = time.process_time() - start
    return seconds, read_memory("VmHWM") - before


def read_memory(name: str) -> float:
    """Read the memory of this process in mebibytes: resident now (``VmRSS``) or at its peak (``VmHWM``)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) / 1024


def measure_point(point: tuple[str, str, int]) -> tuple[str, str, int, float, float]:
    """Measure work, quantity and its value in this process, and return them with seconds and mebibytes."""
    work, axis, value = point
    return (*point, *do_work(work, USUAL | SMALLER.get(work, {}) | {axis: value}))


def list_points(works: list[str], axes: list[str]) -> list[tuple[str, str, int]]:
    """List work, quantity and its value, small ones first."""
    points = [
        (work, axis, value)
        for work in works
        for axis in WORK[work][1]
        for value in AXES[axis]
        if axis in axes and value <= LARGEST.get(work, {}).get(axis, value)
    ]
    return sorted(points, key=lambda point: AXES[point[1]].index(point[2]))


def main() -> None:
    """Measure every point that is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", action="append", choices=list(WORK), help="only this work; may be given again")
    parser.add_argument("--axis", action="append", choices=list(AXES), help="only this quantity; may be given again")
    parser.add_argument("--at-once", type=int, default=2, help="points that are measured at once, each on one core")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    table = args.folder / "growth.csv"
    if not table.exists():
        table.write_text(",".join(FIELDS) + "\n")
    with table.open() as file:
        done = {(row["work"], row["axis"], int(row["value"])) for row in csv.DictReader(file)}
    points = list_points(args.work or list(WORK), args.axis or list(AXES))
    import torch

    torch.set_num_threads(1)
    small = {"scans": 24, "ROIs": 20, "frames": 60, "sites": 6}
    for work in {work for work, _, _ in points}:
        do_work(work, USUAL | small)  # imports and first calls are not counted
    with multiprocessing.get_context("fork").Pool(args.at_once, maxtasksperchild=1) as pool:
        remaining = [point for point in points if point not in done]
        for work, axis, value, seconds, mebibytes in pool.imap(measure_point, remaining, chunksize=1):
            row = f"{work},{axis},{value},{seconds:.4f},{mebibytes:.1f}"
            with table.open("a") as file:
                file.write(row + "\n")
            print(row, flush=True)


if __name__ == "__main__":
    main()
