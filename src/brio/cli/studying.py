"""Commands for the paper's experiments."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ..console import say, show_progress
from .app import app
from .engines import EngineOption, Scheduler, Slurm, Workers, open_engine
from .options import (
    CheckpointEvery,
    Companions,
    Config,
    Device,
    Folds,
    KeepAll,
    Load,
    Protocol,
    Quiet,
    RunsPerStack,
    Seeds,
    Sets,
    ShardOption,
    job_options,
    load_own_methods,
    say_shard_ended,
)


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="A study, see 'brio studies', or 'paper' for all of the paper's.")],
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for results; studies there share their runs and are resumed.")
    ],
    method: Annotated[
        list[str] | None, typer.Option(help="Compare this method instead of the paper's; repeatable.")
    ] = None,
    reuse: Annotated[
        list[Path] | None,
        typer.Option(
            "--reuse",
            help="Folder of 'brio run', or of 'brio tune' for studies that compare methods: reuse its finished "
            "results instead of training again; repeatable.",
        ),
    ] = None,
    finished: Annotated[list[Path] | None, typer.Option("--finished", hidden=True)] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            help="Ask another question of the same scans, see 'brio run --help'; repeatable for the study 'labels', "
            "which compares methods over them.",
        ),
    ] = None,
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
    shard: ShardOption = None,
    engine: EngineOption = "local",
    workers: Workers = None,
    scheduler: Scheduler = None,
    slurm: Slurm = None,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Make a table and figure of the paper: train what is missing, write what was found."""
    from ..jobs.run import LocalEngine, Shard
    from ..results import StoredStudy
    from ..studies import StudyContext, run_study
    from ..studies.study import PAPER, choose_label, find_study, run_study_shard

    load_own_methods(load)
    if name != "paper":
        find_study(name)  # an unknown name is reported before anything is read
    if finished:
        say("--finished is now called --reuse; the old name will go in a later version")
    spec = job_options(
        cohort,
        method or [],
        label=choose_label(name, label or []),
        protocol=protocol,
        seeds=seeds,
        setting=setting,
        fold=fold,
        companion=companion,
        keep_all=keep_all,
        device=device,
        runs_per_stack=runs_per_stack,
        checkpoint_every=checkpoint_every,
    )
    cluster = open_engine(engine, workers=workers, scheduler=scheduler, slurm=slurm, load=load, shard=shard)
    with cluster as opened, show_progress(quiet) as progress:
        chosen = opened if shard is None else LocalEngine(Shard.parse(shard))
        spec = dataclasses.replace(spec, engine=chosen)
        folders = [*(reuse or ()), *(finished or ())]
        context = StudyContext(spec, out, questions=label or (), reuse=folders, progress=progress, say=say)
        if shard is not None:
            return say_shard_ended(run_study_shard(name, context), shard, out)
        place = run_study(name, context)
    for folder in [place / one for one in sorted(PAPER)] if name == "paper" else [place]:
        say("")
        say(StoredStudy.read(folder).finding.rsplit("\n![", 1)[0].strip())
    say(f"\nresults: {place}")
