"""Commands for the paper's experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..console import say, show_progress
from .app import app
from .options import Companions, Device, Folds, KeepAll, Load, Quiet, RunsPerStack, Seeds, Sets, load_own, words


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="A study, see 'brio studies', or 'paper' for all of them.")],
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for results; studies there share their runs and go on.")],
    method: Annotated[
        list[str] | None, typer.Option(help="What to compare, instead of what the paper does; repeatable.")
    ] = None,
    finished: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of 'brio run', or of 'brio tune' for studies that compare methods, whose rows stand for its "
            "methods; repeatable."
        ),
    ] = None,
    seeds: Seeds = 3,
    setting: Sets = None,
    fold: Folds = None,
    companion: Companions = None,
    keep_all: KeepAll = False,
    load: Load = None,
    device: Device = "auto",
    runs_per_stack: RunsPerStack = None,
    quiet: Quiet = False,
) -> None:
    """Make a table and figure of the paper: train what is missing, write what was found."""
    from ..studies import Bench, run_study
    from ..studies.study import find_study

    load_own(load)
    if name != "paper":
        find_study(name)  # an unknown name is told before anything is read
    shared = words("loso", seeds, setting, fold, companion, keep_all, device, runs_per_stack, False)
    del shared["protocol"]
    with show_progress(quiet) as progress:
        bench = Bench(cohort, out, methods=method, finished=finished or (), progress=progress, say=say, **shared)
        place = run_study(name, bench)
    for found in sorted(place.glob("*/found.md") if name == "paper" else [place / "found.md"]):
        say("")
        say(found.read_text(encoding="utf-8").rsplit("\n![", 1)[0].strip())
    say(f"\nresults: {place}")
