"""The command that prints the configuration of a command line or a job."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..configuration import format_settings, format_value, read_value
from ..errors import BrioError, nearest
from ..settings import parse_assignments
from ..version import __version__
from .app import OTHERS
from .config_file import COMMAND_LINE_ONLY, SETTINGS, list_options, option_name
from .options import Load, add_command, load_own_methods

CONFIGURABLE = ("run", "tune", "study", "fit")
"""Commands that take ``--config``."""


@add_command(OTHERS, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def config(
    context: typer.Context,
    target: Annotated[str, f"A command ({', '.join(CONFIGURABLE)}), or a folder written by 'brio run' or 'brio tune'."],
    words: Annotated[list[str] | None, typer.Argument(help="Arguments and options of the command.")] = None,
    load: Load = None,
) -> None:
    """Print the configuration of a command line or of a job as a file for --config.

    Example: brio config run cohort --method ridge --seeds 3 --out results > study.toml

    Example: brio config results > again.toml; brio run cohort --config again.toml --out again
    """
    load_own_methods(load)
    root = context.find_root()
    if target in CONFIGURABLE:
        command = _without_required(root.command.commands[target])  # type: ignore[attr-defined]
        with command.make_context(target, list(words or []), parent=root) as parsed:
            values = {name: parsed.params.get(param.name) for name, param in list_options(command).items()}
        if SETTINGS in values:
            settings = parse_assignments(values[SETTINGS] or [])
            values[SETTINGS] = {key: read_value(text) for key, text in settings.items()}
        print(_render(target, command, values), end="")
        return
    if words:
        raise BrioError(f"{target}: is not a command that takes --config; {nearest(target, CONFIGURABLE)}")
    name, values, facts = _read_job(Path(target))
    print(_render(name, root.command.commands[name], values, **facts), end="")  # type: ignore[attr-defined]


def _without_required(command: Any) -> Any:
    """Copy a command and make none of its parameters required, so that a template can be printed."""
    command = copy.copy(command)
    command.params = [copy.copy(param) for param in command.params]
    for param in command.params:
        param.required = False
    return command


def _read_job(folder: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Read the command of a job, its options, and facts for remarks on what its folder does not record."""
    from ..jobs.resume import recover_options
    from ..methods import find_method
    from ..results import Plan, TuningRecord
    from ..results.cohort import read_audit
    from ..results.files import PLAN, PLAN_AGAIN, TUNING, is_kept

    if not is_kept(folder / PLAN, PLAN_AGAIN):
        hint = f"give a command ({', '.join(CONFIGURABLE)}), or a folder written by 'brio run' or 'brio tune'"
        raise BrioError(f"{folder}: is not the folder of a job ({PLAN} is missing); {hint}")
    plan = Plan.read(folder, PLAN_AGAIN)
    for name, planned in plan.methods.items():
        try:
            find_method(name)
        except BrioError as error:
            problem = f"{error}; see 'brio methods'"
            if planned.code:
                problem = f"'{name}' is your own method; give its file: brio config --load FILE.py {folder}"
            raise BrioError(f"{folder}: {problem}") from error
    tuning = TuningRecord.read(folder) if is_kept(folder / TUNING) else None
    companions = list((read_audit(folder) or {}).get("atlases", {}))[1:]
    facts = {"plan": plan, "folder": folder, "companions": companions}
    return "run" if tuning is None else "tune", recover_options(plan, tuning), facts


def _render(name: str, command: Any, values: Mapping[str, Any], **facts: Any) -> str:
    """Write options as TOML, each under a comment that says what it is; those without a value are comments too."""
    from jinja2 import Environment, PackageLoader

    options, known = [], list_options(command)
    for key, param in known.items():
        default = param.default() if callable(param.default) else param.default
        value = values.get(key, None if param.required else default)
        value = list(value) if isinstance(value, tuple) else value
        options.append((key, " ".join((param.help or "").split()), value, getattr(param, "multiple", False)))
    environment = Environment(loader=PackageLoader("brio.cli", "."), trim_blocks=True, keep_trailing_newline=True)
    environment.filters["toml"] = format_value
    return environment.get_template("config.toml.j2").render(
        name=name,
        version=__version__,
        not_stored=COMMAND_LINE_ONLY
        if any(option_name(param) in COMMAND_LINE_ONLY for param in command.params)
        else (),
        options=[option for option in options if option[0] != SETTINGS],
        settings=format_settings(values.get(SETTINGS) or {}, SETTINGS) if SETTINGS in known else None,
        **facts,
    )
