"""Commands that show what finished runs found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..console import say
from ..errors import BrioError
from .app import app


@app.command()
def table(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    figure: Annotated[Path | None, typer.Option(help="Also draw the AUC at every site (png, svg or pdf).")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's figures beside ours.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Also write every run of all folders as one csv file.")] = None,
    versus: Annotated[
        str | None, typer.Option("--compare", help="Compare all methods with this one, site by site, instead.")
    ] = None,
) -> None:
    """Print the results of runs as a Markdown table."""
    import pandas as pd

    from ..report import comparison_table, draw_sites, markdown_table, together

    if figure is not None and len(folders) != 1:
        raise BrioError("--figure draws one folder at a time")
    if figure is not None and figure.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise BrioError(f"--figure {figure}: must end in .png, .svg or .pdf")
    summaries = []
    for folder in folders:
        if not (folder / "summary.json").is_file():
            raise BrioError(f"{folder}: has no summary.json; 'brio run' writes it when a run is finished")
        try:
            summaries.append(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
            text = markdown_table(summaries, paper)
        except (ValueError, KeyError, TypeError) as error:
            raise BrioError(f"{folder / 'summary.json'}: cannot be read ({error}); run 'brio run' again") from error
    read = {"dtype": {"fold": str}, "na_values": [""], "keep_default_na": False}
    if figure is not None:
        draw_sites(pd.read_csv(folders[0] / "results.csv", **read), summaries[0], figure)
    if csv is not None or versus is not None:
        jobs = {folder.name: pd.read_csv(folder / "results.csv", **read) for folder in folders}
        if csv is not None:
            pd.concat(jobs.values(), ignore_index=True).to_csv(csv, index=False, lineterminator="\n")
        if versus is not None:
            text = comparison_table(together(jobs), versus)
    print(text, end="")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of 'brio run', 'brio tune' or 'brio study'.")],
    out: Annotated[Path | None, typer.Option("--out", help="File to write; FOLDER/report.html if left out.")] = None,
) -> None:
    """Make one self-contained HTML file of what was found, and a model card beside it."""
    from ..report import write_report

    say(f"report: {write_report(folder, out)}")
