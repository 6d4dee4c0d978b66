"""How fast is it against other code?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from brio.studies.study import PAPER

from .evidence import EVIDENCE, name_source, read_measured_table, read_measurement
from .markdown import fixed, in_words, keep_together, write_commands, write_frame, write_page, write_table

FILE = "benchmarks.md"
TITLE = "How fast is it against other code?"
FOLDER = "bench"
ON_GPU = "brio-training-speed.txt"
WORKERS = "dask-scaling.txt"
STUDIES = "paper-studies.txt"
OLD_STEPS = 6  # of an epoch in version 0.1.0, for whose settings the targets were set
PEAK = {"full precision": 67.0, "TF32": 494.0}  # TFLOP/s of products on an H200, dense, by its data sheet
GPU_TARGETS = [  # 100 epochs of BRIO on an H200: work, its runs, whether in TF32, seconds it may take
    ("BRIO, 20 runs x 100 epochs in one stack, full precision", 20, False, 6.0),
    ("BRIO, 20 runs x 100 epochs in one stack, TF32", 20, True, 6.0),
    ("BRIO, 100 runs x 100 epochs in one stack, full precision (2 ms an epoch of a run)", 100, False, 20.0),
    ("BRIO, 100 runs x 100 epochs in one stack, TF32 (1 ms an epoch of a run)", 100, True, 10.0),
]
MOST_STUDY_SECONDS = 420.0  # that the paper's studies may take on an H200


class Row(NamedTuple):
    """One piece of work, against one contender if there is any; times in seconds."""

    work: str
    own: float
    floor: float | None
    most_seconds: float | None
    contender: str = ""
    other: float | None = None
    target: float | None = None

    @property
    def ratio(self) -> float | None:
        """Time of the contender over that of brio."""
        return None if self.other is None else self.other / self.own

    @property
    def outcome(self) -> str:
        """Whether the target is met; empty where there is none."""
        if self.target is not None and self.ratio is not None:
            return "met" if self.ratio >= self.target else "missed"
        if self.most_seconds is not None:
            return "met" if self.own <= self.most_seconds else "missed"
        return ""

    @property
    def goal(self) -> str:
        """The target in words."""
        if self.target is not None:
            return f"{self.target:g}x"
        return "" if self.most_seconds is None else f"at most {format_seconds(self.most_seconds)}"


def read_rows(kept: dict[str, Any]) -> Iterator[Row]:
    """Read the rows of a kept benchmark; a target in seconds stands in the first row of its work."""
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


def page(folder: Path = EVIDENCE / FOLDER) -> str:
    """Return the page."""
    kept = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    if not kept:
        raise FileNotFoundError(f"no benchmark in {folder}")
    on_cpu = [one for one in kept if one["conditions"]["device"] == "cpu"]
    with_target = [row for one in on_cpu for row in read_rows(one) if row.outcome]
    missed = [row for row in with_target if row.outcome == "missed"]
    on_gpu = [row[-1] for row in list_gpu_rows() if row[-1].endswith(("met", "missed"))]
    return write_page(
        TITLE,
        f"**{len(with_target) - len(missed)} of {len(with_target)} targets are met on a CPU, "
        f"{sum(target.endswith('met') for target in on_gpu)} of {len(on_gpu)} on a GPU.** {_name_missed(missed)} "
        "Those for a GPU have a table below.",
        "A ratio is the time of other code over that of brio for the same work, measured in one run on one machine "
        "with the same number of threads: the least of several repeats, but one measurement where the work is long "
        "(linear models, a fold of BRIO plus, nilearn, the plain loop). Scans are float32. FC, re-estimates and BRIO "
        "are computed in float32 unless a name says otherwise, linear models and BRIO plus in float64; floors are of "
        "float32.",
        *(block for one in kept for block in _write_machine(one)),
        "## What is counted",
        "The floor is the arithmetic that the work cannot do without, or its traffic to memory, at the rates of large "
        "products, of elementwise functions and of a copy that were measured in the same run on all threads. Code that "
        "uses these libraries does not get below it; code that needs decompositions, iterations or many small products "
        "stays far above.",
        write_table(
            ["work", "what the floor counts"],
            [
                ["FC, re-estimates", "one triangle of each product (of the distinct frames, 63 %) and its Fisher z"],
                ["divergences", "exponentials of all updates"],
                ["linear models", "one Gram matrix for all folds; tangent space: one per fold, and the whitening"],
                ["BRIO plus", "products of the re-estimates, and a Gram matrix of each of four views"],
                [
                    "an epoch of BRIO",
                    "products of the network, with dense graphs, and of the re-estimates (63 % of the frames)",
                ],
            ],
        ),
        "The plain loop of BRIO is `benchmarks/bench/plain_brio.py`: one run, an ordinary module, autograd through the "
        "Sinkhorn iterations, re-estimates scan by scan. scikit-learn is given the features; the time of brio includes "
        "them. It is measured in one fold, and its time multiplied by the number of folds.",
        *write_gpu_section(),
        "## More workers",
        _join_comments(WORKERS),
        write_frame(read_measured_table(WORKERS)),
        "The wall time includes the start of the workers. The stacks of this job are small, so that it weighs more "
        "than in a real one.",
        write_commands(
            "make bench KEEP=evidence/bench/cpu.json",
            "python benchmarks/training_speed.py abide-aal --device cuda-tf32 --setting cell_batch=4",
            "python benchmarks/paper_studies.py abide-aal studies --device cuda-tf32",
            "python benchmarks/dask_scaling.py --threads 2 --sites 6 --per-class 15",
            "make results",
        ),
        name_source(FOLDER, *(f"measurements/{name}" for name in (ON_GPU, STUDIES, WORKERS)))
        if folder == EVIDENCE / FOLDER
        else "",
    )


def write_gpu_section() -> list[str]:
    """Return the section on what was measured on a GPU."""
    return [
        "## On a GPU",
        f"BRIO, 100 epochs of every run, AAL116. {_join_comments(ON_GPU)}",
        write_gpu_table(),
        f"The targets were set for the batches of version 0.1.0 ({OLD_STEPS} steps an epoch):",
        write_table(["work", "measured (over floor)", "target"], list_gpu_rows()),
        "Here the floor is the arithmetic of the dense products at the peak of the data sheet of an H200, "
        f"{PEAK['full precision']:g} TFLOP/s in full precision and {PEAK['TF32']:g} in TF32. In TF32 it is not the "
        "products that take the time. The floor of the studies counts only the training of the full method (`brio`, "
        "with any K, J and block length), not its ablations, other methods or diagnostics: it is too low.",
        "### The paper's studies",
        f"With BRIO's settings of version 0.1.0, three seeds, TF32. {_join_comments(STUDIES)} Arms that an earlier "
        "study trained are not trained again. The rest of a study's time goes into diagnostics, tables and figures, "
        "and in `efficiency` into short trainings that are timed.",
        write_frame(read_studies()[["study", "arms", "runs", "training s", "whole s"]]),
    ]


def write_gpu_table() -> str:
    """Return the table of what was measured on a GPU."""
    measured = read_measured_table(ON_GPU)
    header = {
        "runs": "runs",
        "steps": "steps an epoch",
        "training s": "seconds",
        "ms per epoch and fold": "ms an epoch",
    }
    chosen = measured[[*header, "peak memory"]].rename(columns=header)
    chosen.insert(2, "precision", ["TF32" if "TF32" in device else "full" for device in measured["device"]])
    return write_frame(chosen)


def _compare_with_floor(seconds: float, floor: float | None) -> str:
    return "" if floor is None else f" ({fixed(seconds / floor)}x)"


def _name_missed(missed: list[Row]) -> str:
    """Name every miss with its figures."""
    if not missed:
        return "None is missed."
    figures = []
    for row in missed:
        reached = format_seconds(row.own) if row.ratio is None else f"{fixed(row.ratio)}x against {row.contender}"
        figures.append(f"{row.work}: {reached} instead of {row.goal.removeprefix('at most ')}")
    return f"Missed are {'; '.join(figures)}."


def _write_machine(kept: dict[str, Any]) -> list[str]:
    """Table of ratios and floors of one machine, and its conditions."""
    machine, conditions = kept["machine"], kept["conditions"]
    runs = sorted({entry["measured"] for entry in kept["work"].values()})
    versions = [f"{name} {version}" for name, version in machine.items() if name != "processor"]
    return [
        f"## {conditions['device'].upper()}, {conditions['threads']} threads",
        write_table(
            ["work", "brio (over floor)", "against", "its time", "ratio", "target"],
            [
                [
                    row.work,
                    keep_together(format_seconds(row.own)) + _compare_with_floor(row.own, row.floor),
                    row.contender,
                    "" if row.other is None else keep_together(format_seconds(row.other)),
                    "" if row.ratio is None else fixed(row.ratio),
                    f"{row.goal}: {row.outcome}" if row.outcome else "",
                ]
                for row in read_rows(kept)
            ],
        ),
        f"FC and re-estimates: {conditions['scans']} simulated scans of 78 to 316 frames. Fits: {conditions['fits']}. "
        f"Machine: {machine['processor']}. Versions: {in_words(versions)}. Runs that ended at (UTC) {in_words(runs)}; "
        f"the file says which work is of which. {kept['note']}",
    ]


def _join_comments(name: str) -> str:
    """The lines before the table of a stored measurement, which say its conditions, as a paragraph."""
    lines = takewhile(lambda line: not line.startswith("|"), read_measurement(name).splitlines())
    return " ".join(line.removeprefix("# ") for line in lines).strip()


def list_gpu_rows() -> list[list[str]]:
    """Rows of all targets on a GPU: the work, its time over the floor, the target and its outcome."""
    return [*_list_training_rows(read_measured_table(ON_GPU)), _describe_studies(read_studies())]


def read_studies() -> pd.DataFrame:
    """Read the times of the paper's studies, without the row of their sum. Cells are strings."""
    measured = read_measured_table(STUDIES)
    return measured[measured["study"] != "all"]


def _list_training_rows(measured: pd.DataFrame) -> list[list[str]]:
    """Rows of the targets on a GPU, from the table of ``benchmarks/training_speed.py``. Cells are strings."""
    by_target = {
        (row["runs"], "TF32" in row["device"]): row
        for _, row in measured.iterrows()
        if (row["method"], row["epochs"], row["steps"]) == ("brio", "100", str(OLD_STEPS))
    }
    rows = []
    for work, n_runs, tf32, most in GPU_TARGETS:
        row = by_target.get((str(n_runs), tf32))
        if row is None:
            rows.append([work, "not measured", f"at most {format_seconds(most)}"])
            continue
        floor = float(row["products, TFLOP"]) / PEAK["TF32" if tf32 else "full precision"]
        rows.append([work, *_compare_with_target(float(row["training s"]), floor, most)])
    return rows


def _describe_studies(measured: pd.DataFrame) -> list[str]:
    """Row of the target for the paper's studies, from the table of ``benchmarks/paper_studies.py``.

    Where studies are missing the row names them, and the target is missed or open, never met.
    """
    taken = float(measured["whole s"].astype(float).sum())
    floor = float(measured["products, TFLOP"].astype(float).sum()) / PEAK["TF32"]
    missing = [f"`{name}`" for name in PAPER if name not in set(measured["study"])]
    without = f", without {in_words(missing)} (target: all {len(PAPER)})" if missing else ""
    work = f"{len(measured)} of the paper's {len(PAPER)} studies on AAL116 with BRIO's settings of version 0.1.0, TF32"
    return [work + without, *_compare_with_target(taken, floor, MOST_STUDY_SECONDS, is_whole=not missing)]


def _compare_with_target(taken: float, floor: float, most: float, is_whole: bool = True) -> list[str]:
    """Cells of a time in seconds: the time over its floor, and the target with its outcome.

    Where not the whole work was timed, the target may be missed already, but cannot be met.
    """
    outcome = "missed" if taken > most else "met" if is_whole else "open"
    return [format_seconds(taken) + _compare_with_floor(taken, floor), f"at most {format_seconds(most)}: {outcome}"]
