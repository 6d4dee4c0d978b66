"""Read the stored results under ``evidence/``.

This is the only module that knows the names of their files and columns.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

REPOSITORY = Path(__file__).resolve().parents[2]
EVIDENCE = REPOSITORY / "evidence"


@cache
def read_runs(folder: str) -> pd.DataFrame:
    """Read the runs of every job in a folder of ``evidence/``.

    Returns
    -------
    DataFrame
        One row per run: ``method``, ``fold``, ``seed``, ``auc``, ``acc``, ``device``, ... as ``results.csv`` has them.
    """
    files = sorted((EVIDENCE / folder).rglob("results.csv"))
    if not files:
        raise FileNotFoundError(f"no results.csv in {EVIDENCE / folder}")
    return pd.concat([pd.read_csv(file) for file in files], ignore_index=True)


def describe_protocol(runs: pd.DataFrame) -> str:
    """Say how the folds of leave-one-site-out jobs are made up, from their runs."""
    sites, seeds = runs["fold"].nunique(), runs["seed"].nunique()
    (validation,) = {len(str(names).split(";")) if pd.notna(names) else 0 for names in runs["validation_sites"]}
    held = f"{validation} validation sites and {sites - 1 - validation} source sites"
    other = held if validation else f"all {sites - 1} other sites as source sites"
    return f"{sites} folds with one test site each, {other}, {seeds} seeds"


@cache
def read_methods(folder: str) -> dict[str, dict[str, Any]]:
    """Read what the summaries of the jobs in a folder say of each method, with the cohort's fingerprint.

    Returns
    -------
    dict
        By method: ``family``, ``provenance``, ``control``, ``auc_of_averaged_logits``, ``fingerprint``, ...
    """
    methods: dict[str, dict[str, Any]] = {}
    for file in sorted((EVIDENCE / folder).rglob("summary.json")):
        summary = json.loads(file.read_text())
        if summary["smoke_run"]:
            raise ValueError(f"{file} is a smoke run: it has no place in the result pages")
        shared = {key: summary[key] for key in ("cohort", "fingerprint", "n_scans", "n_excluded")}
        methods |= {name: shared | found for name, found in summary["methods"].items()}
    return methods


def count_fingerprints() -> Counter[tuple[str, str]]:
    """Count the stored jobs by atlas and cohort fingerprint."""
    summaries = [json.loads(file.read_text()) for file in sorted(EVIDENCE.rglob("summary.json"))]
    return Counter((summary["atlas"], summary["fingerprint"]) for summary in summaries)


@cache
def read_tuned_settings(folder: str) -> dict[str, dict[str, Any]]:
    """Read the settings that tuning chose: by method, then by test site."""
    choices: dict[str, dict[str, Any]] = {}
    for file in sorted((EVIDENCE / folder).rglob("tuning.json")):
        choices |= json.loads(file.read_text())["choices"]
    return choices


@cache
def read_study(folder: str) -> pd.DataFrame:
    """Read the table of a study: one row per observation."""
    return pd.read_csv(EVIDENCE / folder / "table.csv")


@cache
def read_study_summary(folder: str) -> pd.DataFrame:
    """Read the small table in the text of a study, for studies whose full table is not stored. Cells are strings."""
    lines = (EVIDENCE / folder / "found.md").read_text().splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return pd.DataFrame(rows, columns=header)


def read_sentence(folder: str, start: str) -> str:
    """Read the sentence in the text of a study that starts with the given words."""
    lines = (EVIDENCE / folder / "found.md").read_text().splitlines()
    (sentence,) = (line for line in lines if line.startswith(start))
    return sentence


@cache
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
    lines = [line for line in read_measurement(name).splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return pd.DataFrame(rows, columns=header)


def link_figure(path: str, caption: str) -> str:
    """Return the Markdown of a stored figure, as pages in ``docs/results/`` refer to it."""
    if not (EVIDENCE / path).is_file():
        raise FileNotFoundError(EVIDENCE / path)
    return f"![{caption}](../../evidence/{path})"


def name_source(*folders: str) -> str:
    """Return the line that says which stored files a section was computed from."""
    for folder in folders:
        if not (EVIDENCE / folder).exists():
            raise FileNotFoundError(EVIDENCE / folder)
    return "Computed from " + ", ".join(f"`evidence/{folder}`" for folder in folders) + "."
