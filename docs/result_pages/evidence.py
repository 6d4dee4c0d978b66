"""Read the stored results under ``evidence/``.

The files of jobs and studies are read by :mod:`brio.results`; the paper's figures and the printed output of benchmarks
are read here.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from brio.methods import present_name
from brio.protocol import FOLD_RULE
from brio.results import MethodSummary, StoredJob, StoredStudy, Summary, TuningRecord
from brio.results.files import RESULTS

REPOSITORY = Path(__file__).resolve().parents[2]
EVIDENCE = REPOSITORY / "evidence"


@cache
def read_jobs(folder: str) -> tuple[StoredJob, ...]:
    """Read every job in a folder of ``evidence/``, in the order of their paths; smoke runs are refused."""
    jobs = tuple(_read_job(file.parent) for file in sorted((EVIDENCE / folder).rglob(RESULTS)))
    if not jobs:
        raise FileNotFoundError(f"no {RESULTS} in {EVIDENCE / folder}")
    for job in jobs:
        if job.summary.smoke_run:
            raise ValueError(f"{job.folder} is a smoke run: it has no place in the result pages")
    return jobs


@cache  # some folders lie in others
def _read_job(folder: Path) -> StoredJob:
    return StoredJob.read(folder)


@cache
def read_runs(folder: str) -> pd.DataFrame:
    """Read the runs of every job in a folder.

    Returns
    -------
    DataFrame
        One row per run: ``method``, ``fold``, ``seed``, ``auc``, ``acc``, ``device``, ... as ``results.csv`` has them.
    """
    runs = pd.concat([job.rows for job in read_jobs(folder)], ignore_index=True)
    return runs.assign(method=runs["method"].map(present_name))


def describe_protocol(runs: pd.DataFrame) -> str:
    """Say how the folds of leave-one-site-out jobs are made up, from their runs."""
    sites, seeds = runs["fold"].nunique(), runs["seed"].nunique()
    (validation,) = {len(str(names).split(";")) if pd.notna(names) else 0 for names in runs["validation_sites"]}
    held = f"{validation} validation sites and {sites - 1 - validation} source sites"
    other = held if validation else f"all {sites - 1} other sites as source sites"
    return f"{sites} folds with one test site each, {other}, {seeds} seeds"


def describe_fold_rule(*folders: str) -> str:
    """Say that k-fold jobs in some folders have folds of an earlier rule; empty where all have those of today."""
    summaries = [job.summary for folder in folders for job in read_jobs(folder) if job.summary.protocol == "kfold"]
    stale = [summary for summary in summaries if summary.fold_rule != FOLD_RULE]
    if not stale:
        return ""
    which = "These results" if len(stale) == len(summaries) else f"{len(stale)} of these {len(summaries)} jobs"
    return (
        f"{which} have folds of an earlier rule, which did not balance the classes; they have not been computed again "
        "with the folds that brio makes now."
    )


def read_summaries(folder: str) -> dict[str, Summary]:
    """Read the summary of the job of each method in a folder."""
    return {present_name(method): job.summary for job in read_jobs(folder) for method in job.summary.methods}


def read_methods(folder: str) -> dict[str, MethodSummary]:
    """Read what the jobs in a folder say about each method."""
    jobs = read_jobs(folder)
    return {present_name(name): m for job in jobs for name, m in job.summary.methods.items()}


def count_fingerprints() -> Counter[tuple[str, str]]:
    """Count the stored jobs by atlas and cohort fingerprint."""
    return Counter((job.summary.atlas, job.summary.fingerprint) for job in read_jobs("."))


def read_tuning(folder: str) -> dict[str, TuningRecord]:
    """Read the search of each tuned method in a folder."""
    return {method: job.tuning for job in read_jobs(folder) if job.tuning for method in job.tuning.choices}


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
    """Read the sentence in the text of a study that starts with the given words."""
    (sentence,) = (line for line in read_stored_study(folder).finding.splitlines() if line.startswith(start))
    return sentence


def read_paper_claim(folder: str) -> str:
    """Read what a study says the paper claims."""
    return read_sentence(folder, "The paper: ").removeprefix("The paper: ")


@cache
def read_paper() -> dict[str, Any]:
    """Read the figures of the paper that are not in its main table."""
    return json.loads((EVIDENCE / "paper.json").read_text())


def read_measurement(name: str) -> str:
    """Read the stored output of a benchmark."""
    return (EVIDENCE / "measurements" / name).read_text().strip()


def read_measured_table(name: str) -> pd.DataFrame:
    """Read the Markdown table in the stored output of a benchmark. Cells are strings."""
    return _parse_table(read_measurement(name))


def read_measured_tables(name: str) -> list[pd.DataFrame]:
    """Read all Markdown tables in the stored output of a benchmark. Cells are strings."""
    blocks = read_measurement(name).split("\n\n")
    return [_parse_table(block) for block in blocks if block.startswith("|")]


def _parse_table(text: str) -> pd.DataFrame:
    """Parse the one Markdown table in a text."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return pd.DataFrame(rows, columns=header)


def link_figure(path: str, caption: str) -> str:
    """Return the Markdown of a stored figure, as pages in ``docs/results/`` refer to it."""
    if not (EVIDENCE / path).is_file():
        raise FileNotFoundError(EVIDENCE / path)
    return f"![{caption}](../../evidence/{path})"


def describe_version(folder: str) -> str:
    """Say that a stored study or job is of version 0.1.0, whose BRIO had other settings.

    Raises
    ------
    ValueError
        If it is of a later version: the sentence would be wrong.
    """
    if any((EVIDENCE / folder / name).is_file() for name in ("study.json", "sites.csv")):
        raise ValueError(f"{folder} is not of version 0.1.0")
    return (
        "Computed with version 0.1.0 and the settings that BRIO had then: four scans of each site and class in a "
        "batch, raw descriptors, at most 220 epochs."
    )


TODAY_RUNS = "brio-versions/aal116/version-2-ablations"
"""Runs of version 2 of BRIO and its ablations; those behind the studies of that version have the same AUCs."""


def describe_runs_of_today() -> str:
    """Describe the runs behind the studies of AAL116 with version 2 of BRIO: protocol and precision."""
    clouds = "BRIO is of its version 2, whose clouds have one scan; these studies are not computed again yet."
    return f"{describe_protocol(read_runs(TODAY_RUNS))}; TF32. {clouds}"


def describe_old_runs(folder: str) -> str:
    """Describe runs of version 0.1.0: protocol, precision and version."""
    return f"{describe_protocol(read_runs(folder))}; TF32. {describe_version(folder)}"


def name_source(*folders: str) -> str:
    """Return the line that says which stored files a section was computed from."""
    for folder in folders:
        if not (EVIDENCE / folder).exists():
            raise FileNotFoundError(EVIDENCE / folder)
    return "Computed from " + ", ".join(f"`evidence/{folder}`" for folder in folders) + "."
