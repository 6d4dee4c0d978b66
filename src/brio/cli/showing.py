"""Commands that show the results of finished jobs, and list methods, settings and studies."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..console import console, say
from ..errors import BrioError, escape_controls
from .app import EVALUATION, OTHERS, STUDIES
from .options import Load, Predictions, add_command, load_own_methods

if TYPE_CHECKING:
    from ..methods.registry import MethodEntry
    from ..results import StoredJob

_FACTS = ["name", "family", "block", "summary", "needs", "transductive", "control", "provenance", "reference"]
_FACTS += ["settings", "tuned_over"]
"""What 'brio methods --json' prints for a method."""


@add_command(EVALUATION)
def table(
    folders: Annotated[list[Path], "Folders of finished jobs."],
    figure: Annotated[Path | None, "Also draw the AUC at every site (png, svg or pdf)."] = None,
    paper: Annotated[bool, "Also show the numbers reported in the paper."] = False,
    csv: Annotated[Path | None, "Also write the runs of all folders to one csv file."] = None,
    reference: Annotated[
        str | None,
        "--compare",
        "Instead of the table, print a comparison of the other methods with this method, paired by site or fold.",
    ] = None,
) -> None:
    """Print the results of jobs as a Markdown table."""
    from ..report.cohort import draw_sites
    from ..report.comparisons import markdown_table, write_differences
    from ..results import StoredJob
    from ..results.files import write_csv

    if figure is not None and len(folders) != 1:
        raise BrioError("--figure shows a single job; give only one folder")
    if figure is not None and figure.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise BrioError(f"--figure {figure}: must end in .png, .svg or .pdf")
    jobs = [StoredJob.read(folder, allow_unfinished=csv is None) for folder in folders]
    text = markdown_table([job.summary for job in jobs], paper)
    if figure is not None:
        draw_sites(jobs[0].rows, jobs[0].summary, figure)
    if csv is not None:
        import pandas as pd

        rows_by_folder = {job.folder.resolve(): job.rows for job in jobs}  # a folder may be given twice
        write_csv(csv, pd.concat(rows_by_folder.values(), ignore_index=True))
    if reference is not None:
        text = write_differences(jobs, reference)
    _print_results(jobs, text)


@add_command(EVALUATION)
def compare(
    folders: Annotated[list[Path], "Folders of finished jobs with the same cohort and protocol."],
    reference: Annotated[
        str | None, "Method to compare with; by default a linear method or, if there is none, the first."
    ] = None,
    out: Annotated[
        Path | None,
        "--out",
        "Also write sites.csv and covariances.csv, which do not name participants, to this folder.",
    ] = None,
) -> None:
    """Compare methods with each other and with chance, across sites and across participants."""
    from ..report.comparisons import compare_jobs, gather_jobs, write_joined_tables
    from ..results import StoredJob

    jobs = [StoredJob.read(folder, allow_unfinished=out is None) for folder in folders]
    joined = gather_jobs(jobs)
    text = compare_jobs(joined, reference)
    if out is not None:
        write_joined_tables(joined, out)
    _print_results(jobs, text)


def _print_results(jobs: Iterable[StoredJob], text: str) -> None:
    """Print results; what is preliminary is said in the first line."""
    notes = filter(None, dict.fromkeys(job.unfinished for job in jobs))
    print(escape_controls("\n\n".join([*notes, text])), end="")


@add_command(EVALUATION)
def report(
    folder: Annotated[Path, "Folder written by 'brio run', 'brio tune', 'brio study' or 'brio federate'."],
    out: Annotated[Path | None, "--out", "File to write; by default FOLDER/report.html."] = None,
    predictions: Predictions = None,
) -> None:
    """Write the results as a self-contained HTML report and, except for a federated project, a model card."""
    from ..report.write import write_report

    say(f"report: {write_report(folder, out, predictions or ())}")


@add_command(EVALUATION)
def status(
    folder: Annotated[Path, "Folder written by 'brio run', 'brio tune' or 'brio study'; the job need not be finished."],
) -> None:
    """Show the progress of a job: stacks that are done, running, waiting or failed, and the time left."""
    from ..jobs.status import describe_jobs

    for line in describe_jobs(folder):
        say(line)


@add_command(OTHERS)
def methods(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this method.")] = None,
    as_json: Annotated[bool, "--json", "Print as JSON, with settings."] = False,
    load: Load = None,
) -> None:
    """List the methods, or the settings of one method."""
    from ..methods import find_method, list_methods

    load_own_methods(load)
    if as_json:
        entries = list_methods() if name is None else [find_method(name)]
        facts = [{fact: getattr(entry, fact) for fact in _FACTS} for entry in entries]
        print(json.dumps(facts, indent=1, default=str))
    elif name is None:
        _print_methods(list_methods())
        console.print("'brio methods NAME' lists the settings of a method; set one with --set key=value.")
    else:
        _print_settings(find_method(name))


def _print_methods(entries: list[MethodEntry]) -> None:
    """Print all methods under the headings of their families, those of a family by where they come from."""
    from ..methods import find_method

    listed: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for entry in entries:
        needs = filter(None, [entry.needs_in_words, "unlabelled test scans" if entry.transductive else ""])
        facts = [f"needs {words}" for words in filter(None, [", ".join(needs)])]
        own_origin = entry.provenance != find_method(entry.base).provenance
        facts += [str(entry.provenance)] if own_origin or not entry.fixed else []
        facts += [] if entry.fixed else [entry.reference]
        listed.setdefault((entry.family, entry.block), []).append((entry.name, entry.summary, "; ".join(facts)))
    for (family, block), rows in listed.items():
        _print_list(rows, 18, heading=family if block in (family, "controls") else f"{family}: {block}")


def _print_list(rows: Iterable[tuple[str, ...]], width: int, style: str = "", heading: str = "") -> None:
    """Print names, what each is, and remarks below it, without those that are empty."""
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=width, style=style)
    for name, text, *remarks in rows:
        table.add_row(Text(f"  {name}"), Text(text))
        for remark in filter(None, remarks):
            table.add_row("", Text(remark, style="dim"))
    if heading:
        console.print(Text(heading, style="bold"))
    console.print(table)


def _print_settings(entry: MethodEntry) -> None:
    """Print what a method needs and its settings."""
    table = Table("setting", "value", "tuned over", box=None, pad_edge=False)
    for name, value in entry.settings.items():
        table.add_row(name, f"{value} (fixed)" if name in entry.fixed else str(value), entry.tuned_over.get(name, ""))
    say(f"{entry.name}: {entry.summary}")
    say(f"needs: {entry.needs_in_words or 'only connectomes and labels'}")
    say(f"provenance: {entry.provenance}")
    say(f"reference: {entry.reference}")
    console.print(table)
    say(f"'brio settings {entry.name}' explains each setting")


@add_command(OTHERS)
def settings(
    name: Annotated[str | None, typer.Argument(help="A method; by default all methods.")] = None,
    as_json: Annotated[bool, "--json", "Print as JSON."] = False,
    load: Load = None,
) -> None:
    """List the settings that --set accepts, for one method or all, and for the protocol, audit and harmonisation."""
    from ..jobs.spec import list_settings

    load_own_methods(load)
    groups = list_settings(name)
    if as_json:
        print(json.dumps([dataclasses.asdict(one) for group in groups.values() for one in group], indent=1))
        return
    for heading, group in groups.items():
        rows = []
        for one in group:
            default = " (fixed)" if one.fixed else " by default"
            values = f"; tuned over {one.tuned_over}" if one.tuned_over else ""
            facts = f"{'method-specific' if one.default is None else one.default}{default}; {one.values}{values}"
            rows.append((one.key, one.meaning or "-", facts, ", ".join(one.methods)))
        _print_list(rows, 26, heading=heading)
    console.print("Change a setting with --set key=value, or in the table [set] of a --config file.", markup=False)


@add_command(STUDIES)
def studies(as_json: Annotated[bool, "--json", "Print as JSON."] = False) -> None:
    """List the studies: the experiments of the paper and additional ones."""
    from ..studies import list_studies
    from ..studies.study import BEYOND

    if as_json:
        listed = [{"name": s.name, "title": s.title, "summary": s.summary, "paper": s.paper} for s in list_studies()]
        print(json.dumps(listed, indent=1))
        return
    _print_list([(s.name, s.title, s.summary) for s in list_studies()], 0, "bold")
    console.print(
        "'brio study NAME COHORT --out DIR' runs one study; 'brio study paper COHORT --out DIR' runs all "
        f"studies of the paper (all except {', '.join(BEYOND)})."
    )
