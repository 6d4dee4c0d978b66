"""Does a cohort of 12,000 scans fit: what do its audit, its connectomes and the methods cost?

    python benchmarks/large_cohort.py FOLDER [--scans 12000] [--frames 400] [--rois 400] [--sites 21]
        [--step NAME ...] [--folds METHOD=N ...]

Writes simulated scans (7.7 GB by default, about the size of the whole ABCD study) into FOLDER unless they are there. A
second process then does one step after the other; each adds a row to FOLDER/large-cohort.csv: wall time, and the peak
memory of that process, with and without the mapped pages of the scans, which the system can take back at any time.
Methods begin with the connectomes in memory: their time is not part of a method's, their memory is.

A method that cannot fit is refused by its own estimate, as a job would be. A step that fails has its reason in the row,
and another process goes on with the next one. Rows that are there are not measured again.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from brio.cohort import Atlas, Cohort, audit, write_cohort
from brio.connectome import Connectomes
from brio.machine import require_memory
from brio.methods import make_method
from brio.protocol import leave_one_site_out
from brio.training import Run

SIZE = ("scans", "frames", "rois", "sites")
STEPS = ("open", "audit", "connectomes", "ridge", "log-ridge", "brio-plus", "brio")
SETTINGS = {
    "ridge": {"choose_by": "source-sites"},
    "brio": {"epochs": 2, "T_w": 1, "M": 10**6, "K": 2, "patience": None},
}
CLOSED_FORM = ("ridge", "log-ridge")
"""Methods of which all folds are fitted by default; of the others one."""
FIELDS = (
    "step",
    "scans",
    "frames",
    "rois",
    "sites",
    "folds",
    "seconds",
    "peak_gib",
    "peak_own_gib",
    "needed_gib",
    "failed",
)


def write_noise(folder: Path, scans: int, frames: int, rois: int, sites: int) -> None:
    """Write white noise with a shared signal in a quarter of the ROIs that is stronger in patients."""
    rng = np.random.default_rng(0)
    with write_cohort(folder, "large", Atlas.unnamed(rois, "simulated")) as add:
        for i in range(scans):
            series = rng.standard_normal((frames, rois), dtype=np.float32)
            series[:, : rois // 4] += (0.5 + 0.4 * (i % 2)) * rng.standard_normal((frames, 1), dtype=np.float32)
            add(series, {"participant_id": f"p{i:05d}", "site": f"s{i // 2 % sites:02d}", "label": i % 2})


def do_steps(steps: list[str], folder: Path, most_folds: dict[str, int]) -> None:
    """Do steps on the cohort of a folder, and print a line of JSON as each begins and ends."""
    connectomes = None
    cohort = Cohort.load(folder)
    for step in steps:
        if step not in ("open", "audit", "connectomes") and connectomes is None:
            connectomes = Connectomes(cohort)
        facts: dict[str, object] = {}
        _print_event("begin", step)
        start = time.perf_counter()
        if step == "open":
            cohort = Cohort.load(folder)
        elif step == "audit":
            audit(cohort)
        elif step == "connectomes":
            connectomes = Connectomes(cohort)
        else:
            method, folds = make_method(step, SETTINGS.get(step, {})), leave_one_site_out(cohort, 0, validation_sites=0)
            folds = folds[: most_folds.get(step, len(folds) if step in CLOSED_FORM else 1)]
            needed = method.estimate_fit_bytes(len(cohort), cohort.n_rois)
            facts = {"folds": len(folds), "needed_gib": f"{needed / 2**30:.1f}"}
            _print_event("facts", step, **facts)
            require_memory(needed, f"besides connectomes, a run of '{step}' needs", "use a machine with more memory")
            method.fit(connectomes, [Run(fold, 0) for fold in folds])
        _print_event("end", step, seconds=f"{time.perf_counter() - start:.1f}")


def _print_event(event: str, step: str, **facts: object) -> None:
    print(json.dumps({"event": event, "step": step, **facts}), flush=True)


class PeakMemory(threading.Thread):
    """Watches the resident memory of a process, all of it and what does not belong to mapped files, in GiB."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.status, self.ended = Path(f"/proc/{pid}/status"), threading.Event()
        self.reset()

    def reset(self) -> None:
        """Forget the peaks."""
        self.peak = self.peak_own = 0.0

    def run(self) -> None:
        """Look at the memory twenty times a second."""
        while not self.ended.wait(0.05):
            try:
                lines = dict(line.split(":", 1) for line in self.status.read_text().splitlines())
                whole, own = (int(lines[name].split()[0]) / 2**20 for name in ("VmRSS", "RssAnon"))
            except (OSError, KeyError):  # the process has ended
                continue
            self.peak, self.peak_own = max(self.peak, whole), max(self.peak_own, own)


def measure_steps(steps: list[str], args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Do steps in a process of their own and yield a row for each; the last one may be one that failed."""
    size = {name: getattr(args, name) for name in SIZE}
    command = [sys.executable, __file__, str(args.folder), *(f"--{name}={value}" for name, value in size.items())]
    folds = [word for name, count in args.folds for word in ("--folds", f"{name}={count}")]
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, a pipe that nobody reads would stop the process when it is full
    process = subprocess.Popen(
        [*command, *folds, "--do", *steps], stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
    )
    assert process.stdout is not None
    memory = PeakMemory(process.pid)
    memory.start()
    row: dict[str, object] = {"step": steps[0], **size}
    for line in process.stdout:
        event = json.loads(line)
        if event.pop("event") == "begin":
            memory.reset()
            row = {"step": event["step"], **size}
            continue
        row |= event
        if "seconds" in row:
            yield row | {"peak_gib": f"{memory.peak:.2f}", "peak_own_gib": f"{memory.peak_own:.2f}"}
    memory.ended.set()
    if process.wait():
        errors.seek(0)
        lines = errors.read().strip().splitlines()
        yield row | {"failed": lines[-1] if lines else f"exit {process.returncode}"}


def _read_folds(text: str) -> tuple[str, int]:
    name, count = text.split("=")
    return name, int(count)


def main() -> None:
    """Write the cohort and measure the steps that are not in the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scans", type=int, default=12_000)
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--rois", type=int, default=400)
    parser.add_argument("--sites", type=int, default=21)
    parser.add_argument(
        "--folds",
        action="append",
        default=[],
        type=_read_folds,
        metavar="METHOD=N",
        help="most folds of a method, by default all of ridge and log-ridge and one of the others",
    )
    parser.add_argument("--step", action="append", choices=STEPS, help="only this step; may be given again")
    parser.add_argument("--do", nargs="+", choices=STEPS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    size = tuple(getattr(args, name) for name in SIZE)
    cohort, table = args.folder / "-".join(map(str, ("cohort", *size))), args.folder / "large-cohort.csv"
    if args.do:
        do_steps(args.do, cohort, dict(args.folds))
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    if not cohort.exists():
        write_noise(cohort, *size)
    if not table.exists():
        table.write_text(",".join(FIELDS) + "\n")
    with table.open() as file:
        done = {row["step"] for row in csv.DictReader(file) if tuple(int(row[name]) for name in SIZE) == size}
    remaining = [step for step in args.step or STEPS if step not in done]
    while remaining:
        for row in measure_steps(remaining, args):
            with table.open("a", newline="") as file:
                csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(row)
            print(row, flush=True)
            remaining.remove(str(row["step"]))


if __name__ == "__main__":
    main()
