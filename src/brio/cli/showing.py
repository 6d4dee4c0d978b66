"""Commands that show what finished jobs found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..console import say
from ..errors import BrioError, escape_controls
from .app import app


@app.command()
def table(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished jobs.")],
    figure: Annotated[Path | None, typer.Option(help="Also draw the AUC at every site (png, svg or pdf).")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Show the paper's numbers beside ours.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Also write every run of all folders as one csv file.")] = None,
    reference: Annotated[
        str | None,
        typer.Option("--compare", help="Compare all methods with this one, site by site, instead."),
    ] = None,
) -> None:
    """Print the results of jobs as a Markdown table."""
    from ..report import (
        check_same_folds,
        comparison_table,
        draw_sites,
        join_jobs,
        label_folders,
        mark_smoke_runs,
        markdown_table,
    )
    from ..results import StoredJob
    from ..results.files import write_csv

    if figure is not None and len(folders) != 1:
        raise BrioError("--figure draws one folder at a time")
    if figure is not None and figure.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise BrioError(f"--figure {figure}: must end in .png, .svg or .pdf")
    jobs = [StoredJob.read(folder) for folder in folders]
    text = markdown_table([job.summary for job in jobs], paper)
    if figure is not None:
        draw_sites(jobs[0].rows, jobs[0].summary, figure)
    labelled = dict(zip(label_folders(folders), jobs, strict=True))
    rows = {label: job.rows for label, job in labelled.items()}
    if csv is not None:
        import pandas as pd

        write_csv(csv, pd.concat(rows.values(), ignore_index=True))
    if reference is not None:
        summaries = {label: job.summary for label, job in labelled.items()}
        check_same_folds(summaries)
        smoke_note = mark_smoke_runs(summaries)
        text = comparison_table(join_jobs(rows), reference, tested=not smoke_note)
        text = f"{smoke_note}\n\n{text}" if smoke_note else text
    print(escape_controls(text), end="")


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished jobs of one cohort and protocol.")],
    reference: Annotated[
        str | None, typer.Option(help="Method to compare with; by default a linear one, else the first.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Also write sites.csv and covariances.csv there; they name no participant."),
    ] = None,
) -> None:
    """Compare methods over sites and over participants, with each other and with chance."""
    from ..report import compare_jobs, gather_jobs, write_joined_tables
    from ..results import StoredJob

    joined = gather_jobs([StoredJob.read(folder) for folder in folders])
    text = compare_jobs(joined, reference)
    if out is not None:
        write_joined_tables(joined, out)
    print(escape_controls(text), end="")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of 'brio run', 'brio tune' or 'brio study'.")],
    out: Annotated[Path | None, typer.Option("--out", help="File to write; by default FOLDER/report.html.")] = None,
) -> None:
    """Write one self-contained HTML file with the results, and a model card beside it."""
    from ..report import write_report

    say(f"report: {write_report(folder, out)}")


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="Folder of 'brio run', 'brio tune' or 'brio study', finished or not.")],
) -> None:
    """Show how far a job is: stacks done, running and where, waiting, failed and why, and the time left."""
    from ..jobs.status import describe_status, read_statuses

    for one in read_statuses(folder):
        for line in describe_status(one, str(one.folder)):
            say(line)
