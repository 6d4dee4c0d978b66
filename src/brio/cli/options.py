"""Options that several commands share, and what they mean to the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist yet.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="A setting, key=value; repeatable.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, or cuda-tf32: faster, rounded products in networks.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Protocol = Annotated[str, typer.Option(help="loso or kfold.")]
Seeds = Annotated[int, typer.Option(help="Number of seeds.")]
Folds = Annotated[list[str] | None, typer.Option("--fold", help="Only this fold (test site); repeatable.")]
Companions = Annotated[
    list[Path] | None, typer.Option("--with", help="The same participants in another atlas; repeatable.")
]
KeepAll = Annotated[bool, typer.Option("--keep-all", help="Do not apply the audit's exclusions.")]
RunsPerStack = Annotated[int | None, typer.Option(help="Runs that train together.")]
RecordsOnly = Annotated[bool, typer.Option("--records-only", help="Keep scores and predictions, no weights.")]
Load = Annotated[list[Path] | None, typer.Option("--load", help="Python file with methods of your own; repeatable.")]


def load_own(files: list[Path] | None) -> list[str]:
    """Names of the methods in a user's own files."""
    if not files:
        return []
    from ..methods import load_methods

    return [name for file in files for name in load_methods(file)]


def words(
    protocol: str,
    seeds: int,
    setting: list[str] | None,
    fold: list[str] | None,
    companion: list[Path] | None,
    keep_all: bool,
    device: str,
    runs_per_stack: int | None,
    records_only: bool,
) -> dict[str, Any]:
    """What 'run' and 'tune' have in common, as the package calls it."""
    from ..cohort import Cohort
    from ..settings import parse_assignments

    return {
        "protocol": protocol,
        "seeds": seeds,
        "settings": dict(parse_assignments(setting or [])),
        "folds": fold,
        "companions": [Cohort.load(c) for c in companion or []],
        "exclude": not keep_all,
        "device": device,
        "runs_per_stack": runs_per_stack,
        "records_only": records_only,
    }
