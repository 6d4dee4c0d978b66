"""Options that several commands share, in groups: how scans are read, what a job computes, where it is trained.

A group is a dataclass. :func:`share_options` gives a command the options of the groups among its parameters. The
command line, the file of ``--config`` and the help therefore share one definition.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import typer
from msgspec import Meta

from .. import settings
from ..console import say
from ..errors import BrioError, escape_controls, nearest
from .app import app
from .config_file import merge_settings, read_config

if TYPE_CHECKING:
    from ..jobs import JobSpec
    from ..jobs.spec import Engine

_EMPTY, _KEYWORD = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY

Command = TypeVar("Command", bound=Callable[..., None])


def add_command(
    panel: str | None, name: str | None = None, group: typer.Typer = app, **further: Any
) -> Callable[[Command], Command]:
    """Add a function to the command line, in a panel of the help.

    The fields of the dataclasses among its parameters are options too; each dataclass has its own panel in the help. A
    parameter is annotated with its help text, which the name of the option and a placeholder in capitals may precede. A
    parameter with neither a name nor a default is an argument.
    """

    def add(command: Command) -> Command:
        groups: dict[str, Any] = {}
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            kind: Any = parameter.annotation
            if dataclasses.is_dataclass(parameter.annotation):
                groups[parameter.name], hints = kind, settings.read_hints(kind)
                for one in dataclasses.fields(kind):
                    parameters.append(_make_parameter(one.name, hints[one.name], one.default, kind.panel))
            else:
                parameters.append(_make_parameter(parameter.name, kind, parameter.default))

        def call(**values: Any) -> None:
            for name, kind in groups.items():
                values[name] = kind(**{one.name: values.pop(one.name) for one in dataclasses.fields(kind)})
            command(**values)

        call.__name__, call.__doc__ = command.__name__, command.__doc__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        group.command(name, rich_help_panel=panel, **further)(call)
        return command

    return add


def _make_parameter(name: str, hint: Any, default: Any, panel: str | None = None) -> inspect.Parameter:
    """Make a parameter for typer. The domain of a number is shown in the help and checked before the command begins."""
    kind, *names, option = typing.get_args(hint) or (hint, None)
    if isinstance(option, str):
        own = [one for one in names if str(one).startswith("--")]
        # a flag takes no value, and a metavar of one space keeps typer from showing a type
        metavar = next((one for one in names if isinstance(one, str) and one not in own), " " if kind is bool else None)
        if default is _EMPTY and not own:
            option = typer.Argument(help=option)
        else:  # a flag without a name would have an opposite, --no-...
            option = typer.Option(*(own or [f"--{name.replace('_', '-')}"]), metavar=metavar, help=option)
    option = copy.copy(option)
    if panel is not None:
        option.rich_help_panel = panel
    for domain in (hint, *typing.get_args(kind)):
        if any(isinstance(fact, Meta) for fact in getattr(domain, "__metadata__", ())):
            kind = kind if domain is hint else domain.__origin__ | None
            option.help = f"{option.help.rstrip('.')}; {settings.describe_kind(domain)}."
            option.callback = _check(domain)
    return inspect.Parameter(name, _KEYWORD, default=default, annotation=Annotated[kind, option] if option else hint)


def _check(domain: Any) -> Callable[[typer.CallbackParam, Any], Any]:
    def check(param: typer.CallbackParam, value: Any) -> Any:
        return None if value is None else settings.fit_value(value, domain, f"{param.opts[-1]} ")

    return check


Out = Annotated[Path, "--out", "Folder to create; it must not exist yet."]
JobOut = Annotated[Path, "--out", "Folder for results; if it contains an interrupted job, that job is resumed."]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", callback=merge_settings, help=("A setting, written key=value; repeatable; see 'brio settings'.")
    ),
]
Label = Annotated[
    str | None,
    "Replace the labels of the cohort with the answer to another question about the same scans: COLUMN (if it has "
    "two values), COLUMN=VALUE, COLUMN>NUMBER or COLUMN>site-median, for example sex or 'age>14.5'.",
]
Device = Annotated[str, "auto, cpu, cuda, or cuda-tf32, which is faster but rounds matrix products in neural networks."]
Quiet = Annotated[bool, "Show no progress."]
Seeds = Annotated[settings.Seeds, "Number of seeds."]
Companions = Annotated[list[Path] | None, "--with", "Cohort of the same participants in another atlas; repeatable."]
KeepAll = Annotated[bool, "Do not apply the audit's exclusions."]
Load = Annotated[
    list[Path] | None,
    "Python file with your own methods; repeatable. The file is executed with all your permissions: load only "
    "files that you would run yourself.",
]
Predictions = Annotated[
    list[Path] | None,
    "Folder written by 'brio predict' for new labelled scans; the report shows it as external validation; repeatable.",
]
Report = Annotated[
    bool, "Also write table.md, sites.png and a report (report.html, model card, references) to the results folder."
]
RecordsOnly = Annotated[bool, "Store scores and predictions, but no weights."]


@dataclass(frozen=True)
class ReadingOptions:
    """How the files of scans are read."""

    panel: ClassVar[str] = "How the files are read"

    atlas_table: Annotated[
        str | None,
        "Table of ROIs: a tsv or csv file with the column 'name' and, optionally, x, y, z and network, or a known "
        "atlas such as power264 (see 'brio atlas --help').",
    ] = None
    drop_roi: Annotated[
        list[str] | None, "Column of the scan files to leave out, for example a global signal; repeatable."
    ] = None
    id_column: Annotated[
        str | None,
        "bids, fmriprep, table, fc, dpabi: name of the column of participant identifiers; 'participant_id' by default.",
    ] = None
    site_column: Annotated[str | None, "bids, fmriprep, table, fc: name of the site column; 'site' by default."] = None
    label_column: Annotated[str | None, "bids, fmriprep, table, fc: name of the label column; 'label' by default."] = (
        None
    )
    age_column: Annotated[str | None, "bids, fmriprep, table, fc, dpabi: name of the age column; 'age' by default."] = (
        None
    )
    sex_column: Annotated[str | None, "bids, fmriprep, table, fc, dpabi: name of the sex column; 'sex' by default."] = (
        None
    )
    male: Annotated[
        str | None, "bids, fmriprep, table, fc, dpabi: code for males in the sex column, if the codes are numbers."
    ] = None
    female: Annotated[
        str | None, "bids, fmriprep, table, fc, dpabi: code for females in the sex column, if the codes are numbers."
    ] = None
    patient: Annotated[
        list[str] | None, "bids, fmriprep, table, fc: value for patients in the label column; repeatable."
    ] = None
    control: Annotated[
        list[str] | None, "bids, fmriprep, table, fc: value for controls in the label column; repeatable."
    ] = None
    missing: Annotated[
        str | None, "Codes of missing values in the participants table, separated by commas, for example -99,999."
    ] = None
    task: Annotated[str | None, "bids, fmriprep: task to read, for example rest."] = None
    match: Annotated[str | None, "Read only files whose path contains this text; * and ? are wildcards."] = None
    pattern: Annotated[
        str | None,
        "table, fc: where file names have the participant and, optionally, the session, for example "
        "'*_{participant}_visit{session}*'; * and ? are wildcards.",
    ] = None
    runs: Annotated[
        str | None, "--runs", "bids, fmriprep: 'first' (default) reads the first run, 'concatenate' joins all runs."
    ] = None
    session_column: Annotated[
        str | None,
        "bids, fmriprep, table, fc: name of the column that distinguishes the scans of a participant; by default "
        "'session' (bids, fmriprep: or 'session_id').",
    ] = None
    sessions: Annotated[
        str | None,
        "bids, fmriprep, table, fc, packed: how to treat several scans of one participant. 'first' reads the first "
        "scan, 'join' makes one long scan, 'average' averages the connectomes, 'all' keeps every scan. For fc, only "
        "'first' and 'all' are possible.",
    ] = None

    def to_keywords(self) -> dict[str, Any]:
        """Return the options by their names in Python; None for those that were not given."""
        return {name: None if value == [] else value for name, value in vars(self).items()}


Where = Annotated[
    str | None,
    "Use only scans whose row in the participants table meets this condition, for example "
    '\'age >= 18 and site in ["A", "B"]\'; scans that lack a value in any compared column are left out. '
    "Put column names that are not a single word in `backticks`.",
]
Exclude = Annotated[
    Path | None,
    "File of participants to leave out: one id per line, or a table with a column of ids and, optionally, "
    "columns for session and reason.",
]


@dataclass(frozen=True)
class TableOptions:
    """What is read from the participants table."""

    panel: ClassVar[str] = "What is read from the participants table"

    where: Where = None
    exclude: Exclude = None
    ignore_columns: Annotated[
        str | None, "Columns that are not covariates, separated by commas; * and ? are wildcards."
    ] = None
    class_names: Annotated[
        str | None,
        "Names of controls and patients, for example HC,MDD; by default the values of --control and --patient.",
    ] = None


@dataclass(frozen=True)
class ImageOptions:
    """How regional time series are extracted from images."""

    panel: ClassVar[str] = "Images (fmriprep)"

    denoise: Annotated[
        str | None,
        "Confounds to remove: a strategy of nilearn (simple, scrubbing, compcor, ica_aroma; simple+gsr also removes "
        "the global signal), columns of the confounds table separated by commas, or none. Required, unless you "
        "use a model that was fitted to such images.",
    ] = None
    space: Annotated[str | None, "Template of the images to read, if there are several."] = None
    res: Annotated[str | None, "Resolution of the images to read, if there are several."] = None
    high_pass: Annotated[
        settings.Frequency | None,
        "Cut-off in Hz; none by default; not allowed with a strategy, which uses the cosine regressors of fMRIPrep.",
    ] = None
    low_pass: Annotated[settings.Frequency | None, "Cut-off in Hz; none by default."] = None
    jobs: Annotated[settings.Workers | None, "Number of scans to process at the same time; 1 by default."] = None
    quiet: Quiet = False

    def to_keywords(self) -> dict[str, Any]:
        """Return the options by their names in Python, without ``quiet``."""
        return {name: value for name, value in vars(self).items() if name != "quiet"}


@dataclass(frozen=True)
class ScanOptions(ReadingOptions):
    """How scans for a model are read."""

    kind: Annotated[str | None, "Layout of the files, if it is ambiguous."] = None
    atlas: Annotated[
        str | None,
        "Atlas to read; required for dpabi and fmriprep, and if there are several (see 'brio import --help').",
    ] = None
    participants: Annotated[Path | None, "Participants table; give it if brio does not find the table."] = None
    tr: Annotated[settings.RepetitionTime | None, "Repetition time in seconds, if the files do not state it."] = None


@dataclass(frozen=True)
class JobOptions:
    """What a job computes, for every command that trains."""

    panel: ClassVar[str] = "Scans, methods and device"

    setting: Sets = None
    companion: Companions = None
    keep_all: KeepAll = False
    load: Load = None
    device: Device = "auto"
    runs_per_stack: Annotated[
        settings.RunsPerStack | None, "Maximum number of runs trained together; by default as many as memory allows."
    ] = None
    quiet: Quiet = False
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            is_eager=True,  # before the other options, whose defaults it changes
            callback=read_config,
            help="TOML file with options of this command (see 'brio config'); options on the command line take "
            "precedence.",
        ),
    ] = None

    def make_spec(self, cohort: Path, methods: list[str], **further: Any) -> JobSpec:
        """Make the specification of a job; further options are fields of it."""
        from ..cohort import Cohort
        from ..jobs import JobSpec

        return JobSpec(
            cohort=cohort,
            methods=methods,
            settings=settings.parse_assignments(self.setting or []),
            companions=[Cohort.load(folder) for folder in self.companion or []],
            exclude=not self.keep_all,
            device=self.device,
            runs_per_stack=self.runs_per_stack,
            **further,
        )


@dataclass(frozen=True)
class EvaluationOptions:
    """How methods are evaluated."""

    panel: ClassVar[str] = "Evaluation"

    protocol: Annotated[str, "loso (leave one site out) or kfold."] = "loso"
    fold: Annotated[
        list[str] | None, "--fold", "Evaluate only this fold: a test site or, with kfold, a number; repeatable."
    ] = None
    checkpoint_every: Annotated[
        settings.Seconds,
        "SECONDS",
        "Neural networks: time between checkpoints, from which interrupted training resumes; 0 for none.",
    ] = 120.0

    def to_keywords(self) -> dict[str, Any]:
        """Return fields of a :class:`brio.jobs.JobSpec`."""
        return {"protocol": self.protocol, "folds": self.fold, "checkpoint_every": self.checkpoint_every}


ENGINES = ("local", "dask")


@dataclass(frozen=True)
class EngineOptions:
    """Where stacks are trained."""

    panel: ClassVar[str] = "Many machines"

    engine: Annotated[str, "local (this process) or dask (a cluster of workers)."] = "local"
    workers: Annotated[
        settings.Workers | None, "With --engine dask: number of worker processes to start on this machine."
    ] = None
    scheduler: Annotated[
        str | None, "ADDRESS", "With --engine dask: address of a running scheduler, for example tcp://10.0.0.1:8786."
    ] = None
    slurm: Annotated[Path | None, "With --engine dask: TOML file that describes how to start workers with SLURM."] = (
        None
    )

    @contextmanager
    def open(self, load: list[Path] | None, shard: str | None = None) -> Iterator[Engine | None]:
        """Open the engine that the options name; None for this process."""
        if self.engine not in ENGINES:
            raise BrioError(f"engine '{self.engine}' is unknown; {nearest(self.engine, ENGINES)}")
        if self.engine == "local":
            if (self.workers, self.scheduler, self.slurm) != (None, None, None):
                raise BrioError("--workers, --scheduler and --slurm require --engine dask")
            from ..jobs.run import LocalEngine

            yield None if shard is None else LocalEngine.parse(shard)
            return
        if shard is not None:
            raise BrioError("--shard cannot be used with --engine dask; leave out --shard")
        from ..jobs.dask import ClusterOptions, DaskEngine, SlurmOptions

        slurm = None if self.slurm is None else SlurmOptions.read(self.slurm)
        options = ClusterOptions(self.workers, self.scheduler, slurm)
        with DaskEngine(options, tuple(str(file.resolve()) for file in load or ())) as opened:
            yield opened


@dataclass(frozen=True)
class SharedEngineOptions(EngineOptions):
    """Which stacks are trained, and where."""

    shard: Annotated[
        str | None,
        "I/N",
        "For job arrays: train every N-th stack, beginning with the I-th, and write no tables. When all shards "
        "are finished, the same command without --shard writes the tables. 'plan' trains nothing; 'brio run' and "
        "'brio tune' then print the number of stacks.",
    ] = None


def say_warnings(warnings: Iterable[str]) -> None:
    """Print what a reader found unusual about the scans."""
    for warning in warnings:
        say(f"warning: {warning}")


def load_own_methods(files: list[Path] | None) -> list[str]:
    """Load a user's own methods, and say that their files are executed; returns their names."""
    if not files:
        return []
    from ..methods import load_methods

    for file in filter(Path.is_file, files):
        # not among what a command prints for programs
        print(f"brio: --load executes the file {escape_controls(str(file))}", file=sys.stderr)
    return [name for file in files for name in load_methods(file)]
