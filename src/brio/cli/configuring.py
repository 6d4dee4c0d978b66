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
    target: Annotated[str, f"A command ({', '.join(CONFIGURABLE)}), or the folder of 'brio run' or 'brio tune'."],
    words: Annotated[list[str] | None, typer.Argument(help="Arguments and options of the command.")] = None,
    load: Load = None,
) -> None:
    """Print the configuration of a command line, or of a job, as a file for --config.

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
        print(_render(target, command, values, {}), end="")
        return
    if words:
        raise BrioError(f"{target}: is no command with a configuration; {nearest(target, CONFIGURABLE)}")
    name, values, notes = _read_job(Path(target))
    print(_render(name, root.command.commands[name], values, notes), end="")  # type: ignore[attr-defined]


def _without_required(command: Any) -> Any:
    """Copy a command that is content without its required parameters, so that a template can be printed."""
    command = copy.copy(command)
    command.params = [copy.copy(param) for param in command.params]
    for param in command.params:
        param.required = False
    return command


def _read_job(folder: Path) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Read the command of a job, its options, and what its folder does not say."""
    from ..jobs.resume import recover_options
    from ..methods import find_method
    from ..results import Plan, TuningRecord
    from ..results.cohort import read_audit
    from ..results.files import PLAN, PLAN_AGAIN, TUNING, is_kept

    if not is_kept(folder / PLAN, PLAN_AGAIN):
        hint = f"name a command ({', '.join(CONFIGURABLE)}), or the folder of 'brio run' or 'brio tune'"
        raise BrioError(f"{folder}: is not the folder of a job ({PLAN} is missing); {hint}")
    plan = Plan.read(folder, PLAN_AGAIN)
    for name, planned in plan.methods.items():
        try:
            find_method(name)
        except BrioError as error:
            remedy = f"load its file: brio config --load FILE.py {folder}" if planned.code else "see 'brio methods'"
            raise BrioError(f"{folder}: {error}; {remedy}") from error
    tuning = TuningRecord.read(folder) if is_kept(folder / TUNING) else None
    values = recover_options(plan, tuning)
    notes = {
        "cohort": f"not stored with the job: the folder of cohort '{plan.cohort}' ({plan.atlas}), fingerprint "
        f"{plan.fingerprint_before_exclusions[:12]}",
        "out": f"not that of the job, {folder}, unless it is to be resumed",
    }
    companions = list((read_audit(folder) or {}).get("atlases", {}))[1:]
    if companions:
        notes["with"] = f"not stored with the job: cohorts of the same participants in {', '.join(companions)}"
    if any(planned.code for planned in plan.methods.values()):
        notes["method"] = "some are your own: give their file with --load on the command line"
    if tuning is None and any(planned.tuned for planned in plan.methods.values()):
        notes["tuned"] = "not stored with the job: the folder of 'brio tune' whose choices it used"
    if plan.threads is not None:
        notes["device"] = f"numbers repeat exactly with OMP_NUM_THREADS={plan.threads}"
    return "run" if tuning is None else "tune", values, notes


def _render(name: str, command: Any, values: Mapping[str, Any], notes: Mapping[str, str]) -> str:
    """Write options as TOML, each under a comment that says what it is; those without a value are comments too."""
    lines = [
        f"# Options of 'brio {name}', written by brio {__version__}.",
        f"# Use: brio {name} --config FILE. Options on the command line win; paths are relative to this file.",
    ]
    options = list_options(command)
    if any(option_name(param) in COMMAND_LINE_ONLY for param in command.params):
        lines.append(
            f"# It executes nothing: {', '.join(f'--{key}' for key in COMMAND_LINE_ONLY)} are not stored here."
        )
    settings = values.get(SETTINGS) or {}
    for key, param in options.items():
        if key == SETTINGS:
            continue
        default = param.default() if callable(param.default) else param.default
        value = values.get(key, None if param.required else default)
        lines += ["", f"# {' '.join((param.help or '').split())}", *([f"# {notes[key]}"] if key in notes else [])]
        if value is None or value == [] or value == ():
            lines.append(f"# {key} = {'[]' if getattr(param, 'multiple', False) else ''}".rstrip())
        else:
            lines.append(f"{key} = {format_value(value)}")
    if SETTINGS in options:
        lines += ["", "# Settings of methods, and in [set.protocol], [set.audit] and [set.harmonise] of the others;"]
        lines += ["# 'brio settings METHOD' lists all.", *format_settings(settings, SETTINGS)]
    return "\n".join(lines) + "\n"
