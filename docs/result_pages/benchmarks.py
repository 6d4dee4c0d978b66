"""How fast is brio compared with other code?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NamedTuple

import pandas as pd

from brio.studies.study import PAPER

from .evidence import EVIDENCE, read_measured_table, read_measurement
from .markdown import code, fixed, in_words, keep_together

FOLDER = EVIDENCE / "bench"
TRAINING_FILE = "brio-training-speed.txt"
WORKERS_FILE = "dask-scaling.txt"
STUDIES_FILE = "paper-studies.txt"
PEAK = {"full precision": 67.0, "TF32": 494.0}  # TFLOP/s of products on an H200, dense, by its data sheet
GPU_TARGETS = [  # parts of the training of BRIO on an H200, TF32: work, its runs, its column, milliseconds it may take
    ("a training step of BRIO, 20 runs in one stack", 20, "ms per step", 5.0),
    ("a training step of BRIO, 100 runs in one stack", 100, "ms per step", 14.0),
    ("the transport of a step, with gradient, 20 runs", 20, "transport, ms", 1.5),
    ("a refresh of 20 runs", 20, "refresh, ms", 40.0),
]
MOST_STUDY_SECONDS = 900.0  # that the paper's studies may take on an H200


COLUMNS = ["study", "arms", "runs", "training s", "whole s", "products, TFLOP"]

_ARM = re.compile(r"# (?P<name>\w+ [^:]+): (?P<runs>\d+) runs, (?P<seconds>[\d.]+) s(, (?P<products>\d+) TFLOP)?")


class Row(NamedTuple):
    """One piece of work, against one contender if there is any; times in seconds."""

    work: str
    own: float | None  # None where it was not measured
    floor: float | None
    most_seconds: float | None
    contender: str = ""
    other: float | None = None
    target: float | None = None
    is_whole: bool = True  # whether all of the work was timed that the target is for

    @property
    def ratio(self) -> float | None:
        """Time taken by the contender divided by the time taken by brio."""
        return None if self.other is None or self.own is None else self.other / self.own

    @property
    def outcome(self) -> str:
        """Whether the target is met; empty where there is none.

        Part of the work may miss the target of the whole, but cannot meet it.
        """
        if self.target is not None and self.ratio is not None:
            return "met" if self.ratio >= self.target else "missed"
        if self.most_seconds is None:
            return ""
        if self.own is None:
            return "not measured"
        return "missed" if self.own > self.most_seconds else "met" if self.is_whole else "open"

    @property
    def goal(self) -> str:
        """The target in words."""
        if self.target is not None:
            return f"{self.target:g}x"
        return "" if self.most_seconds is None else f"at most {format_seconds(self.most_seconds)}"

    @property
    def aim(self) -> tuple[str, str, str]:
        """The target, which is the same on every machine."""
        return self.work, self.contender, self.goal

    @property
    def target_cell(self) -> str:
        """The target and its outcome, for a table."""
        return f"{self.goal}: {self.outcome}" if self.outcome else ""

    @property
    def own_time(self) -> str:
        """Table cell: the time taken by brio; empty if it was not measured."""
        return "" if self.own is None else format_seconds(self.own)

    @property
    def own_cell(self) -> str:
        """Table cell: the time taken by brio, as seconds and as a multiple of its floor."""
        over_floor = "" if self.floor is None or self.own is None else f" ({fixed(self.own / self.floor)}x)"
        return keep_together(self.own_time) + over_floor


def read_rows(kept: dict[str, Any]) -> Iterator[Row]:
    """Read the rows of a stored benchmark; a target in seconds is in the first row of its work."""
    for work, entry in kept["work"].items():
        others = {name: seconds for name, seconds in entry["seconds"].items() if name != "brio"}
        own, most = Row(work, entry["seconds"]["brio"], entry["floor"], None), entry["most_seconds"]
        if most is not None or not others:
            yield own._replace(most_seconds=most)
        for name, seconds in others.items():
            yield own._replace(contender=name, other=seconds, target=entry["targets"].get(name))


def format_seconds(seconds: float) -> str:
    """Format a time with three digits.

    Examples
    --------
    >>> format_seconds(0.00123), format_seconds(3.5), format_seconds(912.7)
    ('1.23 ms', '3.5 s', '913 s')
    """
    value, unit = (1e3 * seconds, "ms") if seconds < 1 else (seconds, "s")
    return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def read_kept() -> list[dict[str, Any]]:
    """Read the stored benchmarks, one entry per machine."""
    kept = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))]
    if not kept:
        raise FileNotFoundError(f"no benchmark in {FOLDER}")
    return kept


def list_targets() -> list[Row]:
    """List the rows with a target that were measured on a CPU."""
    on_cpu = [kept for kept in read_kept() if kept["conditions"]["device"] == "cpu"]
    return [row for kept in on_cpu for row in read_rows(kept) if row.outcome]


def count_met(rows: list[Row]) -> tuple[int, pd.Series]:
    """Count targets met on every machine; for those measured on several, return whether all machines missed them."""
    outcomes = pd.Series([row.outcome for row in rows], index=pd.MultiIndex.from_tuples([row.aim for row in rows]))
    by_aim = outcomes.groupby(level=[0, 1, 2])
    met, missed = (by_aim.agg(lambda own, word=word: (own == word).all()) for word in ("met", "missed"))
    return int(met.sum()), missed[by_aim.size() > 1]


def list_slower_fc() -> list[str]:
    """List the processors, once per number of regions, on which brio computes FC no faster than np.corrcoef."""
    rows = [(kept["machine"]["processor"], row) for kept in read_kept() for row in read_rows(kept)]
    fc = [(name, row) for name, row in rows if row.work.startswith("FC ") and row.contender == "np.corrcoef"]
    return [name for name, row in fc if row.ratio is not None and row.ratio <= 1]


def list_versions(machine: dict[str, str]) -> str:
    """List the versions of the libraries on a machine."""
    return in_words(f"{name} {version}" for name, version in machine.items() if name != "processor")


def count_reestimated(kept: dict[str, Any]) -> str:
    """Return the number of scans that re-estimates are timed on, as the name of that work has it; empty without one."""
    numbers = {match[1] for work in kept["work"] if (match := re.search(r"re-estimates of (\d+) scans", work))}
    return numbers.pop() if len(numbers) == 1 else ""


def separate_thousands(text: str) -> str:
    """Write the thousands of counts in a text with commas.

    Examples
    --------
    >>> separate_thousands("1030 scans of ABIDE I, AAL116, 20 sites")
    '1,030 scans of ABIDE I, AAL116, 20 sites'
    """
    return re.sub(r"\b\d{4,}\b", lambda number: f"{int(number[0]):,}", text)


def join_comments(name: str) -> str:
    """Return the conditions of a stored measurement (the lines before its table) as a paragraph."""
    lines = takewhile(lambda line: not line.startswith("|"), read_measurement(name).splitlines())
    return " ".join(line.removeprefix("# ") for line in lines).strip()


def read_studies() -> pd.DataFrame:
    """Read the times of the paper's studies."""
    return parse_study_times(read_measurement(STUDIES_FILE))


def parse_study_times(text: str) -> pd.DataFrame:
    """Read the times of each study, as one process would have taken them.

    Where the studies ran in several processes, one after the other in the text, a later process trains arms again
    that studies of an earlier one had trained. They are taken out of its rows. Rows of sums are left out, and so are
    arms of a study that was not finished. A study that occurs twice,
    or has more or fewer arms in its row than lines of arms, is an error.
    """
    rows: list[list[object]] = []
    trained: set[str] = set()
    arms: dict[str, re.Match[str]] = {}
    for line in text.splitlines():
        arm = _ARM.fullmatch(line)
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if arm is not None:
            arms[arm["name"]] = arm
        elif cells[0] == COLUMNS[0]:  # the header of another process
            arms = {}
        elif cells[0] in PAPER:
            if cells[0] in [row[0] for row in rows]:
                raise ValueError(f"{cells[0]}: occurs twice")
            if len(arms) != int(cells[1]):
                raise ValueError(f"{cells[0]}: its row has {cells[1]} arms, but {len(arms)} lines are of arms")
            repeated = [match for name, match in arms.items() if name in trained]
            rows.append([cells[0], *_subtract(cells[1:], repeated)])
            trained |= arms.keys()
            arms = {}
    return pd.DataFrame(rows, columns=COLUMNS)


def _subtract(cells: list[str], repeated: list[re.Match[str]]) -> list[float]:
    """Subtract repeated arms from the numbers in the row of a study."""
    n_arms, n_runs, training, whole, products = map(float, cells)
    runs_again, seconds_again, products_again = (
        sum(float(arm[what] or 0) for arm in repeated) for what in ("runs", "seconds", "products")
    )
    return [
        int(n_arms) - len(repeated),
        int(n_runs - runs_again),
        training - seconds_again,
        whole - seconds_again,
        products - products_again,
    ]


def list_gpu_rows() -> list[Row]:
    """List the targets on a GPU, with what was measured."""
    return [*list_training_rows(read_measured_table(TRAINING_FILE)), sum_studies(read_studies())]


def list_training_rows(measured: pd.DataFrame) -> Iterator[Row]:
    """List the targets for the training of BRIO, from the table of ``benchmarks/training_speed.py``.

    Only a step has a floor: the products of the whole training, over its steps.
    """
    tf32 = {row["runs"]: row for _, row in measured.iterrows() if "TF32" in row["device"]}
    for work, n_runs, column, most in GPU_TARGETS:
        row = tf32[str(n_runs)]
        steps = float(row["epochs"]) * float(row["steps"])
        floor = float(row["products, TFLOP"]) / PEAK["TF32"] / steps if column == "ms per step" else None
        yield Row(work, float(row[column]) / 1e3, floor, most / 1e3)


def sum_studies(measured: pd.DataFrame) -> Row:
    """Sum up the times of the paper's studies, and name those that are missing."""
    seconds, products = (measured[name].sum() for name in ("whole s", "products, TFLOP"))
    missing = [name for name in PAPER if name not in set(measured["study"])]
    count = f"{len(measured)} of the paper's {len(PAPER)}" if missing else f"the paper's {len(PAPER)}"
    work = f"{count} studies on AAL116, TF32 (sum of two processes)"
    work += f", without {code(missing)} (target: all {len(PAPER)})" if missing else ""
    return Row(work, float(seconds), float(products) / PEAK["TF32"], MOST_STUDY_SECONDS, is_whole=not missing)


def list_ratios(kept: dict[str, Any]) -> pd.DataFrame:
    """Return the ratio to each contender for the figure, grouped by work."""
    every = [(row.contender.split(",")[0], row.ratio, row.work) for row in read_rows(kept) if row.ratio is not None]
    names = [name + ")" * ("(" in name and ")" not in name) for name, *_ in every]
    return pd.DataFrame(every, index=names, columns=["contender", "mean", "group"])
