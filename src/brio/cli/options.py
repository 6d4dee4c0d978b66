"""Options that several commands share, in groups: how scans are read, what a job is, where it is trained.

A group is a dataclass. :func:`share_options` gives a command the options of the groups among its parameters, so that
the command line, the file of ``--config`` and the help have them from one place.
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

    The fields of the dataclasses among its parameters are options as well, in a panel of the help each. A parameter is
    annotated with its help, before which may stand the name of its option, and in capitals what it takes. Without name
    and default it is an argument.
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
        metavar = next((one for one in names if isinstance(one, str) and one not in own), None)
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


Out = Annotated[Path, "--out", "Folder to write; must not exist yet."]
JobOut = Annotated[Path, "--out", "Folder for results; an interrupted job is resumed there."]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", callback=merge_settings, help="A setting, key=value; repeatable; see 'brio settings'."),
]
Label = Annotated[
    str | None,
    "Ask another question of the same scans in place of the cohort's labels: COLUMN of two values, COLUMN=VALUE, "
    "COLUMN>NUMBER or COLUMN>site-median, for example sex or 'age>14.5'.",
]
Device = Annotated[str, "auto, cpu, cuda, or cuda-tf32: faster, with rounded matrix products in networks."]
Quiet = Annotated[bool, "Show no progress."]
Seeds = Annotated[settings.Seeds, "Number of seeds."]
Companions = Annotated[list[Path] | None, "--with", "Cohort of the same participants in another atlas; repeatable."]
KeepAll = Annotated[bool, "Do not apply the audit's exclusions."]
Load = Annotated[
    list[Path] | None,
    "Python file with methods of your own; repeatable. It is executed with all your rights: load only files that you "
    "would run yourself.",
]
Predictions = Annotated[
    list[Path] | None,
    "Folder of 'brio predict' for new scans with labels, to be shown as external validation; repeatable.",
]
Report = Annotated[bool, "Also write table.md, sites.png and report.html to the folder for results."]
RecordsOnly = Annotated[bool, "Store scores and predictions, no weights."]


@dataclass(frozen=True)
class ReadingOptions:
    """How the files of scans are read."""

    panel: ClassVar[str] = "How the files are read"

    atlas_table: Annotated[
        str | None,
        "Table of the ROIs: a tsv or csv file with the columns name, x, y, z and network, or a known atlas "
        "such as power264 (see 'brio atlas --help').",
    ] = None
    drop_roi: Annotated[list[str] | None, "ROI to leave out, for example a global signal; repeatable."] = None
    id_column: Annotated[
        str | None, "bids, table, fc, dpabi: column of the participant's identifier; 'participant_id' by default."
    ] = None
    site_column: Annotated[str | None, "bids, table, fc: column of the site; 'site' by default."] = None
    label_column: Annotated[str | None, "bids, table, fc: column of the diagnosis; 'label' by default."] = None
    age_column: Annotated[str | None, "bids, table, fc, dpabi: column of the age; 'age' by default."] = None
    sex_column: Annotated[str | None, "bids, table, fc, dpabi: column of the sex; 'sex' by default."] = None
    male: Annotated[str | None, "bids, table, fc, dpabi: code of that column for males, where it holds numbers."] = None
    female: Annotated[str | None, "bids, table, fc, dpabi: code of that column for females."] = None
    patient: Annotated[list[str] | None, "bids, table, fc: value of that column for patients; repeatable."] = None
    control: Annotated[list[str] | None, "bids, table, fc: value of that column for controls; repeatable."] = None
    task: Annotated[str | None, "bids, fmriprep: task to read, for example rest."] = None
    match: Annotated[str | None, "Read only files whose path contains this text; * and ? are wildcards."] = None
    runs: Annotated[
        str | None, "--runs", "bids, fmriprep: 'first' (default) reads the first run, 'concatenate' joins all."
    ] = None
    session_column: Annotated[
        str | None, "bids, table, fc: column that tells apart the scans of a participant; 'session' by default."
    ] = None
    sessions: Annotated[
        str | None,
        "bids, table, packed, fc: for participants with several scans, 'first' reads the first, 'join' makes "
        "one long scan, 'average' averages their connectomes, 'all' keeps each scan; splits and statistics are "
        "then by participant. Connectomes take 'first' or 'all'.",
    ] = None

    def to_keywords(self) -> dict[str, Any]:
        """Return the options by their names in Python; None for those that were not given."""
        return {name: None if value == [] else value for name, value in vars(self).items()}


Where = Annotated[
    str | None,
    'Take the scans whose row fulfils this, for example \'age >= 18 and site in ["A", "B"]\'; a row without a value '
    "that is compared does not. Names with blanks stand in `backticks`.",
]
Exclude = Annotated[
    Path | None,
    "File of participants to leave out: one id per line, or a table with their ids, perhaps session and reason.",
]


@dataclass(frozen=True)
class TableOptions:
    """What is taken of the participants table."""

    panel: ClassVar[str] = "What is taken of the participants table"

    where: Where = None
    exclude: Exclude = None
    ignore_columns: Annotated[
        str | None, "Columns that are no covariates, with commas between them; * and ? are wildcards."
    ] = None
    class_names: Annotated[
        str | None, "Names of controls and patients, HC,MDD; by default the values of --control and --patient."
    ] = None


@dataclass(frozen=True)
class ImageOptions:
    """How the series of regions are extracted from images."""

    panel: ClassVar[str] = "Images (fmriprep)"

    denoise: Annotated[
        str | None,
        "What is removed: a strategy of nilearn (simple, scrubbing, compcor, ica_aroma; simple+gsr also removes "
        "the global signal), columns of the confounds with commas between them, or none; required, but for a model "
        "that was fitted to such images.",
    ] = None
    space: Annotated[str | None, "Template of the images, where there are several."] = None
    res: Annotated[str | None, "Resolution of the images, where there are several."] = None
    high_pass: Annotated[
        settings.Frequency | None, "Cut-off in Hz; strategies filter by cosines of fMRIPrep instead."
    ] = None
    low_pass: Annotated[settings.Frequency | None, "Cut-off in Hz; by default none."] = None
    jobs: Annotated[settings.Workers | None, "Scans that are extracted at once; 1 by default."] = None
    quiet: Quiet = False

    def to_keywords(self) -> dict[str, Any]:
        """Return the options by their names in Python, without ``quiet``."""
        return {name: value for name, value in vars(self).items() if name != "quiet"}


@dataclass(frozen=True)
class ScanOptions(ReadingOptions):
    """How scans are read that a model is given."""

    kind: Annotated[str | None, "Layout of the files, where it cannot be told."] = None
    atlas: Annotated[str | None, "Atlas to read, where the files hold several; fmriprep: as in 'brio import'."] = None
    participants: Annotated[Path | None, "Participants table, if there is one elsewhere."] = None
    tr: Annotated[settings.RepetitionTime | None, "Repetition time in seconds, where the files do not say."] = None


@dataclass(frozen=True)
class JobOptions:
    """What a job is, for every command that trains."""

    panel: ClassVar[str] = "Scans, methods and device"

    setting: Sets = None
    companion: Companions = None
    keep_all: KeepAll = False
    load: Load = None
    device: Device = "auto"
    runs_per_stack: Annotated[
        settings.RunsPerStack | None, "Runs that train together; by default what memory allows."
    ] = None
    quiet: Quiet = False
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            is_eager=True,  # before the other options, whose defaults it changes
            callback=read_config,
            help="TOML file with any of these options, see 'brio config'; those on the command line win.",
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
    fold: Annotated[list[str] | None, "--fold", "Only this fold (test site); repeatable."] = None
    checkpoint_every: Annotated[
        settings.Seconds,
        "SECONDS",
        "Time between checkpoints of networks in training, to resume from; 0 for none.",
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
    workers: Annotated[settings.Workers | None, "With --engine dask: worker processes to start on this machine"] = None
    scheduler: Annotated[
        str | None, "ADDRESS", "With --engine dask: a scheduler that runs, for example tcp://10.0.0.1:8786."
    ] = None
    slurm: Annotated[Path | None, "With --engine dask: TOML file that says how to start workers through SLURM."] = None

    @contextmanager
    def open(self, load: list[Path] | None, shard: str | None = None) -> Iterator[Engine | None]:
        """Open the engine that the options name; None for this process."""
        if self.engine not in ENGINES:
            raise BrioError(f"engine '{self.engine}' is unknown; {nearest(self.engine, ENGINES)}")
        if self.engine == "local":
            if (self.workers, self.scheduler, self.slurm) != (None, None, None):
                raise BrioError("--workers, --scheduler and --slurm are for --engine dask")
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
    """Where stacks are trained, and which of them."""

    shard: Annotated[
        str | None,
        "I/N",
        "Train every N-th stack from the I-th on and write no tables, for job arrays; the same command without it "
        "writes them when all shards are through. 'plan' trains none and prints the number of stacks.",
    ] = None


def say_warnings(warnings: Iterable[str]) -> None:
    """Print what a reader found odd about the scans."""
    for warning in warnings:
        say(f"warning: {warning}")


def load_own_methods(files: list[Path] | None) -> list[str]:
    """Load a user's own methods, and say that their files are executed; returns their names."""
    if not files:
        return []
    from ..methods import load_methods

    for file in filter(Path.is_file, files):
        # not among what a command prints for programs
        print(f"brio: --load executes {escape_controls(str(file))}", file=sys.stderr)
    return [name for file in files for name in load_methods(file)]
