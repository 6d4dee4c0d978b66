"""Options of the commands that can train on many machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import settings
from ..errors import BrioError, nearest
from .options import number

if TYPE_CHECKING:
    from ..jobs.spec import Engine

ENGINES = ("local", "dask")
EngineOption = Annotated[str, typer.Option("--engine", help="local (this process) or dask (a cluster of workers).")]
Workers = Annotated[
    int | None, number(settings.Workers, "With --engine dask: worker processes to start on this machine")
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="With --engine dask: a scheduler that runs, for example tcp://10.0.0.1:8786."),
]
Slurm = Annotated[
    Path | None, typer.Option(help="With --engine dask: TOML file that says how to start workers through SLURM.")
]


@contextmanager
def open_engine(
    engine: str,
    *,
    workers: int | None,
    scheduler: str | None,
    slurm: Path | None,
    load: list[Path] | None,
    shard: str | None,
) -> Iterator[Engine | None]:
    """Open the engine that the options of a command name; None for this process."""
    if engine not in ENGINES:
        raise BrioError(f"engine '{engine}' is unknown; {nearest(engine, ENGINES)}")
    if engine == "local":
        if (workers, scheduler, slurm) != (None, None, None):
            raise BrioError("--workers, --scheduler and --slurm are for --engine dask")
        yield None
        return
    if shard is not None:
        raise BrioError("--shard is for processes without a cluster; leave it out with --engine dask")
    from ..jobs.dask import ClusterOptions, DaskEngine, SlurmOptions

    options = ClusterOptions(workers, scheduler, None if slurm is None else SlurmOptions.read(slurm))
    with DaskEngine(options, tuple(str(file.resolve()) for file in load or ())) as opened:
        yield opened
