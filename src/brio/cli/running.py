"""Commands that train: run, tune, the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..console import print_result, say, show_progress
from ..errors import BrioError
from ..version import __version__
from .app import app
from .options import (
    Companions,
    Device,
    Folds,
    KeepAll,
    Load,
    Protocol,
    Quiet,
    RecordsOnly,
    RunsPerStack,
    Seeds,
    Sets,
    load_own,
    words,
)


@app.command()
def run(
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for results; an interrupted run goes on there.")],
    method: Annotated[
        list[str] | None, typer.Option(help="Method, see 'brio methods'; repeatable; 'all' for all.")
    ] = None,
    protocol: Protocol = "loso",
    seeds: Seeds = 1,
    setting: Sets = None,
    tuned: Annotated[
        Path | None, typer.Option(help="Folder of 'brio tune': carry its choices over, fold by fold.")
    ] = None,
    fold: Folds = None,
    companion: Companions = None,
    keep_all: KeepAll = False,
    load: Load = None,
    device: Device = "auto",
    runs_per_stack: RunsPerStack = None,
    records_only: RecordsOnly = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate methods at sites they have not seen."""
    from ..jobs import run as execute

    own = load_own(load)
    with show_progress(quiet) as progress:
        result = execute(
            cohort,
            method or own or ["brio"],
            out=out,
            tuned=tuned,
            **words(protocol, seeds, setting, fold, companion, keep_all, device, runs_per_stack, records_only),
            progress=progress,
            say=say,
        )
    print_result(result)


@app.command()
def tune(
    method: Annotated[str, typer.Argument(help="Method, or several with commas between them; 'all' for all.")],
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for results; an interrupted run goes on there.")],
    budget: Annotated[int, typer.Option(help="Configurations tried for each method and fold.")] = 4,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Also record what choosing by the test scans would reach.")
    ] = False,
    protocol: Protocol = "loso",
    seeds: Seeds = 3,
    setting: Sets = None,
    fold: Folds = None,
    companion: Companions = None,
    keep_all: KeepAll = False,
    load: Load = None,
    device: Device = "auto",
    runs_per_stack: RunsPerStack = None,
    records_only: RecordsOnly = False,
    quiet: Quiet = False,
) -> None:
    """Choose settings on the validation sites of each fold, the same number of tries for every method, and evaluate."""
    from ..jobs import tune as search

    load_own(load)
    names = [m.strip() for m in method.split(",") if m.strip()]
    if not names:
        raise BrioError("name a method to tune; 'brio methods' lists them")
    with show_progress(quiet) as progress:
        result = search(
            cohort,
            names,
            out=out,
            budget=budget,
            oracle=oracle,
            **words(protocol, seeds, setting, fold, companion, keep_all, device, runs_per_stack, records_only),
            progress=progress,
            say=say,
        )
    print_result(result)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Simulate a cohort, audit it, and test BRIO, its backbone and ridge at every site."""
    from ..demo import run_demo

    with show_progress(quiet) as progress:
        result = run_demo(out, seed, device, progress, say)
    print_result(result)
    say(f"figure: {out / 'sites.png'}")


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)
