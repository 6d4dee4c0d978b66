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
from .markdown import fixed, in_words, keep_together, state, write_commands, write_frame, write_page, write_table
from .study_times import parse_study_times

FILE = "benchmarks.md"
TITLE = "How fast is it against other code?"
FOLDER = "bench"
TRAINING_FILE = "brio-training-speed.txt"
WORKERS_FILE = "dask-scaling.txt"
STUDIES_FILE = "paper-studies.txt"
OLD_STEPS = 6  # of an epoch in version 0.1.0, for whose settings the targets were set
PEAK = {"full precision": 67.0, "TF32": 494.0}  # TFLOP/s of products on an H200, dense, by its data sheet
GPU_TARGETS = [  # 100 epochs of BRIO on an H200: work, its runs, whether in TF32, seconds it may take
    ("BRIO, 20 runs x 100 epochs in one stack, full precision", 20, False, 6.0),
    ("BRIO, 20 runs x 100 epochs in one stack, TF32", 20, True, 6.0),
    ("BRIO, 100 runs x 100 epochs in one stack, full precision (2 ms per epoch and run)", 100, False, 20.0),
    ("BRIO, 100 runs x 100 epochs in one stack, TF32 (1 ms per epoch and run)", 100, True, 10.0),
]
COMPARISONS = ("comparison", "in-distribution")  # of all methods
MOST_STUDY_SECONDS = 420.0  # that the paper's studies may take on an H200


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
        """Time of the contender over that of brio."""
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
    def target_cell(self) -> str:
        """The target and its outcome, for a table."""
        return f"{self.goal}: {self.outcome}" if self.outcome else ""

    @property
    def own_time(self) -> str:
        """The time of brio; empty where it was not measured."""
        return "" if self.own is None else format_seconds(self.own)

    @property
    def own_cell(self) -> str:
        """The time of brio, and how many times its floor that is, for a table."""
        over_floor = "" if self.floor is None or self.own is None else f" ({fixed(self.own / self.floor)}x)"
        return keep_together(self.own_time) + over_floor


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
    gpu_rows = list_gpu_rows()
    return write_page(
        TITLE,
        f"**{len(with_target) - len(missed)} of {len(with_target)} targets are met on a CPU, "
        f"{sum(row.outcome == 'met' for row in gpu_rows)} of {len(gpu_rows)} on a GPU.** {_name_missed(missed)} "
        "Those for a GPU have a table below.",
        "A ratio is the time of other code over that of brio for the same work, measured in one run on one machine "
        "with the same number of threads: the least of several repeats, but one measurement where the work is long "
        "(linear models, a fold of BRIO plus, nilearn, the plain loop). Scans are float32. FC, re-estimates and BRIO "
        "are computed in float32 unless a name says otherwise, linear models in float64, and the changes of BRIO "
        "plus in float32; floors are of float32.",
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
                ["BRIO plus", "products of the re-estimates, and of scans and changes with each other"],
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
        _join_comments(WORKERS_FILE),
        write_frame(read_measured_table(WORKERS_FILE)),
        "The wall time includes the start of the workers. The stacks of this job are small, so that it weighs more "
        "than in a real one.",
        "## Commands",
        "The other rows of the training of BRIO: with `--seeds 5`, with `--device cuda`, and without `--setting`. The "
        "first process for the studies was stopped in `comparison`.",
        write_commands(
            "make bench KEEP=evidence/bench/cpu.json",
            "python benchmarks/training_speed.py abide-aal --device cuda-tf32 --setting cell_batch=4",
            "python benchmarks/paper_studies.py abide-aal studies --device cuda-tf32",
            "python benchmarks/paper_studies.py abide-aal more --device cuda-tf32 --study comparison in-distribution",
            "python benchmarks/dask_scaling.py --threads 2 --sites 6 --per-class 15",
            "make results",
        ),
        name_source(FOLDER, *(f"measurements/{name}" for name in (TRAINING_FILE, STUDIES_FILE, WORKERS_FILE)))
        if folder == EVIDENCE / FOLDER
        else "",
    )


def write_gpu_section() -> list[str]:
    """Return the section on what was measured on a GPU."""
    studies = read_studies()
    return [
        "## On a GPU",
        f"BRIO, 100 epochs of every run, AAL116. {_join_comments(TRAINING_FILE)}",
        write_gpu_table(),
        f"The targets were set for the batches of version 0.1.0 ({OLD_STEPS} steps an epoch):",
        write_table(
            ["work", "measured (over floor)", "target"],
            [[row.work, row.own_cell, row.target_cell] for row in list_gpu_rows()],
        ),
        "Here the floor is the arithmetic of the dense products at the peak of the data sheet of an H200, "
        f"{PEAK['full precision']:g} TFLOP/s in full precision and {PEAK['TF32']:g} in TF32. At that peak the "
        f"products of BRIO's training would take {in_words(_list_shares())} % of the time in TF32; what they really "
        "take was not measured. The floor of the studies counts only the training of the full method (`brio`, "
        "with any K, J and block length), not its ablations, other methods or diagnostics: it is too low.",
        "### The paper's studies",
        f"With BRIO's settings of version 0.1.0, three seeds, TF32. {_join_comments(STUDIES_FILE)} Arms that an "
        "earlier study trained are not trained again; those that the second process had to repeat are taken out of the "
        "table. The rest of a study's time goes into diagnostics, tables and figures, and in `efficiency` into short "
        "trainings that are timed.",
        _write_study_times(studies),
        _describe_reuse(studies),
    ]


def _list_shares() -> list[str]:
    """Shares of the floor in the time of the trainings in TF32, in percent."""
    rows = _list_training_rows(read_measured_table(TRAINING_FILE))
    return [fixed(100 * row.floor / row.own, 0) for row in rows if "TF32" in row.work and row.own and row.floor]


def write_gpu_table() -> str:
    """Return the table of what was measured on a GPU."""
    measured = read_measured_table(TRAINING_FILE)
    header = {
        "runs": "runs",
        "steps": "steps per epoch",
        "training s": "seconds",
        "ms per epoch and run": "ms per epoch and run",
    }
    chosen = measured[[*header, "peak memory"]].rename(columns=header)
    chosen.insert(2, "precision", ["TF32" if "TF32" in device else "full" for device in measured["device"]])
    return write_frame(chosen)


def _name_missed(missed: list[Row]) -> str:
    """Name every miss with its figures."""
    if not missed:
        return "None is missed."
    figures = []
    for row in missed:
        reached = row.own_time if row.ratio is None else f"{fixed(row.ratio)}x against {row.contender}"
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
                    row.own_cell,
                    row.contender,
                    "" if row.other is None else keep_together(format_seconds(row.other)),
                    "" if row.ratio is None else fixed(row.ratio),
                    row.target_cell,
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


def list_gpu_rows() -> list[Row]:
    """List the targets on a GPU, with what was measured."""
    return [*_list_training_rows(read_measured_table(TRAINING_FILE)), _sum_studies(read_studies())]


def _describe_reuse(studies: pd.DataFrame) -> str:
    """Say how long the studies take where finished jobs are reused for the comparisons of all methods."""
    compared = studies[studies["study"].isin(COMPARISONS)]
    seconds = float(studies["whole s"].sum() - compared["training s"].sum())
    names = in_words([f"`{name}`" for name in COMPARISONS])
    return state(
        f"The target, {format_seconds(MOST_STUDY_SECONDS)}, is half of the 14 minutes that version 0.1.0 took (noted "
        "then, not stored: its command was killed after 8 minutes, given again, and took 6 more). It reused finished "
        f"jobs for {names} (now `--reuse`). Without the training for these two, the studies above take "
        f"{format_seconds(seconds)}: as long as then.",
        abs(seconds - 14 * 60) < 60,
    )


def _write_study_times(studies: pd.DataFrame) -> str:
    """Return the table of the times of the paper's studies."""
    seconds = {name: [fixed(value) for value in studies[name]] for name in ("training s", "whole s")}
    return write_frame(studies[["study", "arms", "runs"]].assign(**seconds))


def read_studies() -> pd.DataFrame:
    """Read the times of the paper's studies."""
    return parse_study_times(read_measurement(STUDIES_FILE))


def _list_training_rows(measured: pd.DataFrame) -> Iterator[Row]:
    """List the targets for the training of BRIO, from the table of ``benchmarks/training_speed.py``."""
    by_target = {
        (row["runs"], "TF32" in row["device"]): row
        for _, row in measured.iterrows()
        if (row["method"], row["epochs"], row["steps"]) == ("brio", "100", str(OLD_STEPS))
    }
    for work, n_runs, tf32, most in GPU_TARGETS:
        row = by_target.get((str(n_runs), tf32))
        if row is None:
            yield Row(work, None, None, most)
        else:
            floor = float(row["products, TFLOP"]) / PEAK["TF32" if tf32 else "full precision"]
            yield Row(work, float(row["training s"]), floor, most)


def _sum_studies(measured: pd.DataFrame) -> Row:
    """Sum up the times of the paper's studies, and name those that are missing."""
    seconds, products = (measured[name].sum() for name in ("whole s", "products, TFLOP"))
    missing = [f"`{name}`" for name in PAPER if name not in set(measured["study"])]
    count = f"{len(measured)} of the paper's {len(PAPER)}" if missing else f"the paper's {len(PAPER)}"
    work = f"{count} studies on AAL116 with BRIO's settings of version 0.1.0, TF32 (sum of two processes)"
    work += f", without {in_words(missing)} (target: all {len(PAPER)})" if missing else ""
    return Row(work, float(seconds), float(products) / PEAK["TF32"], MOST_STUDY_SECONDS, is_whole=not missing)
