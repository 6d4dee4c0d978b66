"""Read the stored results under ``evidence/``, and say what they are.

The files of jobs and studies are read by :mod:`brio.results`; the paper's figures and the printed output of benchmarks
are read here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from brio.formatting import join_names
from brio.results import MethodSummary, StoredJob, StoredStudy, StudyOptions, StudyRecord
from brio.results.files import RESULTS

from .markdown import write_commands

EVIDENCE = Path(__file__).resolve().parents[2] / "evidence"
ATLASES = ("aal116", "cc200")
_COHORTS = {"aal116": "abide-aal", "cc200": "abide-cc"}
OWN_STUDIES = ("permutation", "learning-curve", "subgroups", "calibration", "decision-curve", "adaptation")
"""Studies of ours that have a page each. Their arms have no validation sites."""
_TODAY = {
    "On ABIDE CC200 w/o": "On ABIDE CC200, w/o",
    "have the highest ACC there": "have the highest ACC on ABIDE",
    "time points": "frames",
    "at half of the scan.": "with half of the frames.",
    "within a subject": "within a participant",
    "source subjects": "source scans",
}
"""Words of stored texts, and what the pages say instead."""
STUDIED_RUNS = "brio-versions/aal116/version-3"
"""Runs of BRIO and its ablations that the studies of AAL116 use."""

_read_job = cache(StoredJob.read)  # some folders lie in others


def atlas_label(atlas: str) -> str:
    """Return the display name of an atlas."""
    return atlas.upper()


def by_atlas(function: Callable[..., Any], *args: Any, row: str | None = None) -> pd.DataFrame:
    """Call a function for each atlas and return one row per atlas (a Series, or the given row of a table)."""
    parts = {atlas: function(atlas, *args) for atlas in ATLASES}
    return pd.DataFrame({atlas: part if row is None else part.loc[row] for atlas, part in parts.items()}).T


def stack_atlases(function: Callable[..., pd.DataFrame], *args: Any) -> pd.DataFrame:
    """Call a function for each atlas and stack its tables, with the atlas as a column."""
    return pd.concat([function(atlas, *args).assign(atlas=atlas) for atlas in ATLASES])


@cache
def read_jobs(folder: str) -> tuple[StoredJob, ...]:
    """Read every job in a folder of ``evidence/``, in the order of their paths; reject smoke runs."""
    jobs = tuple(_read_job(file.parent) for file in sorted((EVIDENCE / folder).rglob(RESULTS)))
    if not jobs:
        raise FileNotFoundError(f"no {RESULTS} in {EVIDENCE / folder}")
    for job in jobs:
        if job.summary.smoke_run:
            raise ValueError(f"{job.folder} is a smoke run: it has no place in the result pages")
    return jobs


@cache
def read_runs(folder: str) -> pd.DataFrame:
    """Read the runs of every job in a folder: one row per run, with the columns of ``results.csv``."""
    return pd.concat([job.rows for job in read_jobs(folder)], ignore_index=True)


def read_methods(folder: str) -> dict[str, MethodSummary]:
    """Read what the jobs in a folder say about each method."""
    return {name: m for job in read_jobs(folder) for name, m in job.summary.methods.items()}


@cache
def read_stored_study(folder: str) -> StoredStudy:
    """Read the folder of a study."""
    return StoredStudy.read(EVIDENCE / folder)


def read_study(folder: str) -> pd.DataFrame:
    """Read the table of a study: one row per observation."""
    table = read_stored_study(folder).table
    if table is None:
        raise FileNotFoundError(f"the table of {EVIDENCE / folder} is not stored")
    return table


def read_study_summary(folder: str) -> pd.DataFrame:
    """Read the small table in the text of a study, for studies whose full table is not stored. Cells are strings."""
    return _parse_table(read_stored_study(folder).finding)


def read_sentence(folder: str, start: str) -> str:
    """Read the sentence in the text of a study that starts with the given words; "The paper:" becomes a label."""
    (sentence,) = (line for line in read_stored_study(folder).finding.splitlines() if line.startswith(start))
    for stored, shown in _TODAY.items():
        sentence = sentence.replace(stored, shown)
    return sentence.replace("The paper: ", "**The paper's findings.** ", 1)


@cache
def read_paper() -> dict[str, Any]:
    """Read the figures of the paper that are not in its main table."""
    return json.loads((EVIDENCE / "paper.json").read_text())


def read_measurement(name: str) -> str:
    """Read the stored output of a benchmark."""
    return (EVIDENCE / "measurements" / name).read_text().strip()


def read_measured_table(name: str, numbers: Iterable[str] = ()) -> pd.DataFrame:
    """Read the one Markdown table in the stored output of a benchmark. Cells are strings, except in numeric columns."""
    table = _parse_table(read_measurement(name))
    return table.assign(**{column: pd.to_numeric(table[column]) for column in numbers})


def _parse_table(text: str) -> pd.DataFrame:
    """Parse the one Markdown table in a text. Cells are strings."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return pd.DataFrame(rows, columns=header)


def read_measured_tables(name: str) -> list[pd.DataFrame]:
    """Read all Markdown tables in the stored output of a benchmark. Cells are strings."""
    return [table for _, table in read_titled_tables(name)]


def read_titled_tables(name: str) -> list[tuple[str, pd.DataFrame]]:
    """Read all Markdown tables in the stored output of a benchmark, each with the line above it."""
    blocks = ["", *read_measurement(name).split("\n\n")]
    return [(title, _parse_table(block)) for title, block in pairwise(blocks) if block.startswith("|")]


def link_figure(path: str, caption: str) -> str:
    """Return the Markdown of a stored figure, as pages in ``docs/results/`` refer to it."""
    if not (EVIDENCE / path).is_file():
        raise FileNotFoundError(EVIDENCE / path)
    return f"![{caption}](../../evidence/{path})"


def name_source(*folders: str) -> str:
    """Return the line that names the stored files of a section."""
    for folder in folders:
        if not (EVIDENCE / folder).exists():
            raise FileNotFoundError(EVIDENCE / folder)
    return f"Source: {join_names([f'`evidence/{folder}`' for folder in folders], most=9)}."


def describe_protocol(runs: pd.DataFrame) -> str:
    """Describe the folds of leave-one-site-out jobs from their runs."""
    sites, seeds = runs["fold"].nunique(), runs["seed"].nunique()
    (validation,) = {len(str(names).split(";")) if pd.notna(names) else 0 for names in runs["validation_sites"]}
    held = f", {validation} validation sites and" if validation else " and"
    return f"{sites} folds, each with one test site{held} {sites - 1 - validation} source sites; {seeds} seeds"


def describe_studied_runs() -> str:
    """Describe the runs behind the studies of AAL116: protocol and precision."""
    return f"{describe_protocol(read_runs(STUDIED_RUNS))}; TF32."


def read_record(name: str, atlas: str) -> StudyRecord:
    """Read the `study.json` of one of our studies; reject smoke runs."""
    record = read_stored_study(f"studies/{atlas}/{name}").record
    if record.smoke:
        raise ValueError(f"study '{name}' on {atlas} is a smoke run: it has no place in the result pages")
    return record


@cache
def read_arms(name: str, atlas: str) -> dict[str, pd.DataFrame]:
    """Read the table of a study of ours by method, in the order of its arms."""
    read_record(name, atlas)
    table = read_study(f"studies/{atlas}/{name}")
    return {str(arm).split(",")[0]: rows for arm, rows in table.groupby("arm", sort=False)}


def write_study_commands(name: str) -> str:
    """Return the commands that produced one of our studies on both atlases, from its stored options."""
    return write_commands(_compose_command(name, atlas) for atlas in ATLASES)


def _compose_command(name: str, atlas: str) -> str:
    options = read_record(name, atlas).options or StudyOptions()
    words = ["brio study", name, _COHORTS[atlas]]
    words += [f"--with {_COHORTS[other]}" for other in options.companions]
    words += [f"--method {method}" for method in options.methods or ()]
    words += [f"--seeds {options.seeds}"] if options.seeds != StudyOptions().seeds else []
    words += [f"--set {key}={value}" for key, value in options.settings.items()]
    words += [f"--device {options.device}"] if options.device else []
    return " ".join([*words, f"--out studies/{atlas}"])


def describe_study(name: str) -> str:
    """Describe the scans, folds and seeds of one of our studies."""
    ((scans, folds, seeds),) = {(r.n_scans, r.folds, r.seeds) for r in (read_record(name, a) for a in ATLASES)}
    return (
        f"The study uses {scans:,} scans of ABIDE I, with {folds} folds and {seeds} seeds. Each fold has one test "
        f"site; all {folds - 1} other sites are source sites."
    )
