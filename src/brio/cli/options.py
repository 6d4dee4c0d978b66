"""Options that several commands share, and the specification of a job that they make."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import settings
from ..console import say
from ..errors import escape_controls
from ..settings import read_number
from .config_file import merge_settings, read_config

if TYPE_CHECKING:
    from ..cohort import Cohort
    from ..jobs import JobSpec


def number(kind: Any, text: str, *names: str, **further: Any) -> Any:
    """Declare an option that holds a number: its domain is shown in the help and checked before the command begins."""
    accepted = read_number(kind)
    assert accepted is not None, kind

    def check(param: typer.CallbackParam, value: Any) -> Any:
        if value is not None:
            accepted.check(value, f"{param.opts[-1]} ")
        return value

    return typer.Option(*names, callback=check, help=f"{text.rstrip('.')}; {accepted.domain}.", **further)


Out = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist yet.")]
JobOut = Annotated[Path, typer.Option("--out", help="Folder for results; an interrupted job is resumed there.")]
AtlasTable = Annotated[
    str | None,
    typer.Option(
        help="Table of the ROIs: a tsv or csv file with the columns name, x, y, z and network, or a known atlas such "
        "as power264 (see 'brio atlas --help')."
    ),
]
DropRoi = Annotated[list[str] | None, typer.Option(help="ROI to leave out, for example a global signal; repeatable.")]
IdColumn = Annotated[
    str | None,
    typer.Option(help="bids, table, fc, dpabi: column of the participant's identifier; 'participant_id' by default."),
]
SiteColumn = Annotated[str | None, typer.Option(help="bids, table, fc: column of the site; 'site' by default.")]
LabelColumn = Annotated[str | None, typer.Option(help="bids, table, fc: column of the diagnosis; 'label' by default.")]
Patient = Annotated[
    list[str] | None, typer.Option(help="bids, table, fc: value of that column for patients; repeatable.")
]
Control = Annotated[
    list[str] | None, typer.Option(help="bids, table, fc: value of that column for controls; repeatable.")
]
Task = Annotated[str | None, typer.Option(help="bids: task to read, for example rest.")]
Match = Annotated[
    str | None, typer.Option(help="bids: read only files whose path contains this text; * and ? are wildcards.")
]
ScanRuns = Annotated[
    str | None,
    typer.Option(
        "--runs", help="bids: 'first' (default) reads the first run of a participant, 'concatenate' joins all."
    ),
]
SessionColumn = Annotated[
    str | None,
    typer.Option(help="table, fc: column that tells apart the scans of a participant; 'session' by default."),
]
Sessions = Annotated[
    str | None,
    typer.Option(
        help="bids, table, packed, fc: for participants with several scans, 'first' reads the first, 'join' makes one "
        "long scan, 'average' averages their connectomes, 'all' keeps each scan; splits and statistics are then by "
        "participant. Connectomes take 'first' or 'all'."
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", callback=merge_settings, help="A setting, key=value; repeatable; see 'brio settings'."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,  # before the other options, whose defaults it changes
        callback=read_config,
        help="TOML file with any of these options, see 'brio config'; those on the command line win.",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        help="Ask another question of the same scans in place of the cohort's labels: COLUMN of two values, "
        "COLUMN=VALUE, COLUMN>NUMBER or COLUMN>site-median, for example sex or 'age>14.5'.",
    ),
]
Device = Annotated[
    str, typer.Option(help="auto, cpu, cuda, or cuda-tf32: faster, with rounded matrix products in networks.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Protocol = Annotated[str, typer.Option(help="loso (leave one site out) or kfold.")]
Seeds = Annotated[int, number(settings.Seeds, "Number of seeds.")]
Folds = Annotated[list[str] | None, typer.Option("--fold", help="Only this fold (test site); repeatable.")]
Companions = Annotated[
    list[Path] | None, typer.Option("--with", help="Cohort of the same participants in another atlas; repeatable.")
]
KeepAll = Annotated[bool, typer.Option("--keep-all", help="Do not apply the audit's exclusions.")]
RunsPerStack = Annotated[
    int | None, number(settings.RunsPerStack, "Runs that train together; by default what memory allows.")
]
CheckpointEvery = Annotated[
    float,
    number(
        settings.Seconds,
        "Time between checkpoints of networks in training, to resume from; 0 for none.",
        metavar="SECONDS",
    ),
]
RecordsOnly = Annotated[bool, typer.Option("--records-only", help="Store scores and predictions, no weights.")]
ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Train every N-th stack from the I-th on and write no tables, for job arrays; the same command without it "
        "writes them when all shards are through.",
    ),
]
Report = Annotated[
    bool, typer.Option("--report", help="Also write table.md, sites.png and report.html to the folder for results.")
]
Load = Annotated[
    list[Path] | None,
    typer.Option(
        "--load",
        help="Python file with methods of your own; repeatable. It is executed with all your rights: load only files "
        "that you would run yourself.",
    ),
]


def say_warnings(cohort: Cohort) -> None:
    """Print what a reader found odd about the scans."""
    for warning in cohort.provenance.get("warnings", []):
        say(f"warning: {warning}")


def say_shard_ended(finished: bool, shard: str, out: Path) -> None:
    """Say what is left to do after a shard."""
    rest = "all runs are finished" if finished else f"other runs are not; 'brio status {out}' shows how far they are"
    say(f"shard {shard} is finished, {rest}. Tables: the same command without --shard")


def load_own_methods(files: list[Path] | None) -> list[str]:
    """Load a user's own methods, and say that their files are executed; returns their names."""
    if not files:
        return []
    from ..methods import load_methods

    for file in filter(Path.is_file, files):
        # not among what a command prints for programs
        print(f"brio: --load executes {escape_controls(str(file))}", file=sys.stderr)
    return [name for file in files for name in load_methods(file)]


def job_options(
    cohort: Path,
    methods: list[str],
    *,
    label: str | None = None,
    protocol: str = "loso",
    seeds: int,
    setting: list[str] | None,
    fold: list[str] | None,
    companion: list[Path] | None,
    keep_all: bool,
    device: str,
    runs_per_stack: int | None,
    records_only: bool = False,
    tuned: Path | None = None,
    checkpoint_every: float = 120.0,
) -> JobSpec:
    """Make the specification of a job from the options of a command."""
    from ..cohort import Cohort
    from ..jobs import JobSpec
    from ..results import TuningRecord
    from ..settings import parse_assignments

    return JobSpec(
        cohort=cohort,
        methods=methods,
        label=label,
        protocol=protocol,
        seeds=seeds,
        settings=parse_assignments(setting or []),
        folds=fold,
        companions=[Cohort.load(folder) for folder in companion or []],
        exclude=not keep_all,
        device=device,
        runs_per_stack=runs_per_stack,
        records_only=records_only,
        tuned=None if tuned is None else TuningRecord.read(tuned),
        checkpoint_every=checkpoint_every,
    )
