"""Commands that train: run, tune, the demonstration."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from .. import settings
from ..console import console, say, show_progress
from ..errors import BrioError, escape_controls
from ..version import __version__
from .app import app
from .engines import EngineOption, Scheduler, Slurm, Workers, open_engine
from .options import (
    CheckpointEvery,
    Companions,
    Config,
    Device,
    Folds,
    JobOut,
    KeepAll,
    Label,
    Load,
    Protocol,
    Quiet,
    RecordsOnly,
    Report,
    RunsPerStack,
    Seeds,
    Sets,
    ShardOption,
    job_options,
    load_own_methods,
    number,
    say_shard_ended,
)

if TYPE_CHECKING:
    from ..api import Result


def write_outputs(result: Result) -> None:
    """Write the table, the figure and the report of a job to its folder, and say where they are."""
    from ..report import draw_sites, markdown_table
    from ..storage import write_atomically

    table, figure = result.folder / "table.md", result.folder / "sites.png"
    write_atomically(table, markdown_table([result.summary]))
    draw_sites(result.rows, result.summary, figure)
    for name, path in (("table", table), ("figure", figure), ("report", result.report())):
        say(f"{name}: {path}")


def print_result(result: Result) -> None:
    """Print the table of a job and what a reader should know about it."""
    header, rows = result.text_table()
    rows = [[escape_controls(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, width in zip(header, widths, strict=True):
        table.add_column(name, min_width=width)  # headings are broken into lines, names and numbers never
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table, width=max(console.width, sum(widths) + len(widths)), crop=False, soft_wrap=False)
    for line in [*result.notes, f"results: {result.folder}"]:
        say(line)


@app.command()
def run(
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    out: JobOut,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method, see 'brio methods'; repeatable; 'all' for all. By default those of --load, or else brio, the "
            "method of the paper; 'ridge' is the one to compare it with."
        ),
    ] = None,
    label: Label = None,
    protocol: Protocol = "loso",
    seeds: Seeds = 1,
    setting: Sets = None,
    tuned: Annotated[
        Path | None, typer.Option(help="Folder of 'brio tune': use the settings it chose for each fold.")
    ] = None,
    fold: Folds = None,
    companion: Companions = None,
    keep_all: KeepAll = False,
    load: Load = None,
    device: Device = "auto",
    runs_per_stack: RunsPerStack = None,
    checkpoint_every: CheckpointEvery = 120.0,
    records_only: RecordsOnly = False,
    shard: ShardOption = None,
    engine: EngineOption = "local",
    workers: Workers = None,
    scheduler: Scheduler = None,
    slurm: Slurm = None,
    report: Report = False,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Evaluate methods at sites they were not trained on.

    Example: brio run cohort --method ridge --method brio --seeds 3 --out results
    """
    from ..api import Result
    from ..jobs import run_job
    from ..jobs.run import Shard, run_shard

    own = load_own_methods(load)
    spec = job_options(
        cohort,
        method or own or ["brio"],
        label=label,
        protocol=protocol,
        seeds=seeds,
        setting=setting,
        fold=fold,
        companion=companion,
        keep_all=keep_all,
        device=device,
        runs_per_stack=runs_per_stack,
        records_only=records_only,
        tuned=tuned,
        checkpoint_every=checkpoint_every,
    )
    cluster = open_engine(engine, workers=workers, scheduler=scheduler, slurm=slurm, load=load, shard=shard)
    with cluster as opened, show_progress(quiet) as progress:
        spec = dataclasses.replace(spec, engine=opened)
        if shard is not None:
            return say_shard_ended(run_shard(spec, Shard.parse(shard), out, progress, say), shard, out)
        finished = run_job(spec, out, progress, say)
    result = Result.from_finished_job(finished)
    print_result(result)
    if not method and not own:
        say("brio, the method of the paper, was evaluated since no --method was given; compare it with --method ridge")
    if report:
        write_outputs(result)


@app.command(context_settings={"allow_extra_args": True})
def tune(
    context: typer.Context,
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    out: JobOut,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method, see 'brio methods'; repeatable, or several separated by commas; 'all' for all."),
    ] = None,
    budget: Annotated[int, number(settings.Budget, "Configurations tried for each method and fold.")] = 4,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Also record what choosing by the test scans would reach.")
    ] = False,
    label: Label = None,
    protocol: Protocol = "loso",
    seeds: Seeds = 3,
    setting: Sets = None,
    fold: Folds = None,
    companion: Companions = None,
    keep_all: KeepAll = False,
    load: Load = None,
    device: Device = "auto",
    runs_per_stack: RunsPerStack = None,
    checkpoint_every: CheckpointEvery = 120.0,
    records_only: RecordsOnly = False,
    shard: ShardOption = None,
    engine: EngineOption = "local",
    workers: Workers = None,
    scheduler: Scheduler = None,
    slurm: Slurm = None,
    report: Report = False,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Choose settings on the validation sites of each fold, with the same budget for every method, and evaluate.

    Example: brio tune cohort --method gcn --method brio --budget 4 --out tuned
    """
    from ..api import Result
    from ..jobs import tune_job
    from ..jobs.run import Shard, tune_shard

    own = load_own_methods(load)
    if context.args:
        cohort, method = _read_former_order(cohort, context.args, method)
    names = [name.strip() for one in method or own for name in one.split(",") if name.strip()]
    if not names:
        raise BrioError("name a method to tune, --method NAME; 'brio methods' lists them")
    spec = job_options(
        cohort,
        names,
        label=label,
        protocol=protocol,
        seeds=seeds,
        setting=setting,
        fold=fold,
        companion=companion,
        keep_all=keep_all,
        device=device,
        runs_per_stack=runs_per_stack,
        records_only=records_only,
        checkpoint_every=checkpoint_every,
    )
    cluster = open_engine(engine, workers=workers, scheduler=scheduler, slurm=slurm, load=load, shard=shard)
    with cluster as opened, show_progress(quiet) as progress:
        spec = dataclasses.replace(spec, engine=opened)
        if shard is not None:
            ended = tune_shard(spec, Shard.parse(shard), out, budget=budget, progress=progress, say=say)
            return say_shard_ended(ended, shard, out)
        finished = tune_job(spec, out, budget=budget, oracle=oracle, progress=progress, say=say)
    result = Result.from_finished_job(finished)
    print_result(result)
    if report:
        write_outputs(result)
    if context.args:
        say("brio tune METHOD COHORT is now brio tune COHORT --method METHOD; the old order will go in a later version")


def _read_former_order(first: Path, further: list[str], method: list[str] | None) -> tuple[Path, list[str]]:
    """Read ``brio tune METHOD COHORT``, as it was written up to version 0.1: cohort and methods."""
    if method or len(further) > 1:
        raise BrioError(f"unexpected argument '{further[-1]}'; write: brio tune COHORT --method NAME --out DIR")
    return Path(further[0]), [str(first)]


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path("demo"),
    seed: Annotated[int, number(settings.Seed, "Seed of the simulation.")] = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Show what brio is for: audit simulated hospitals, test methods at each, and predict a new one."""
    from ..demo import run_demo

    with show_progress(quiet) as progress:
        run_demo(out, seed, device, progress, say)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)
