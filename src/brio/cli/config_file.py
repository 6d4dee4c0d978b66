"""Read the options of a command from a TOML file, for ``--config``."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from ..configuration import flatten_settings, format_value, read_configuration
from ..errors import BrioError, nearest
from ..settings import parse_assignments

SETTINGS = "set"
"""The option that is stored as a table in the file."""

CONFIG_FILE, COMMAND = "brio config file", "brio command"
"""Keys in the metadata of a context: the file, and the context of the command that reads it."""

COMMAND_LINE_ONLY = {
    "load": "executes Python code",
    "slurm": "names shell commands that are executed",
    "scheduler": "exchanges code with another program",
}
"""Options that a file must not contain, with the reason: reading a file never executes anything."""

KINDS = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path in quotes", str: "text"}
"""Descriptions of the kinds of options."""


def option_name(param: Any) -> str:
    """Return the name of an option without dashes, or that of an argument."""
    return param.opts[-1].lstrip("-") if param.param_type_name == "option" else param.name


def show_option(param: Any) -> str:
    """Return the name of an option or an argument as a user writes it."""
    return param.opts[-1] if param.param_type_name == "option" else param.name


def find_kinds(command: Any) -> dict[str, tuple[type, bool]]:
    """Find the kind of each parameter of a command, by Python name, and whether it takes several values.

    This reads the annotations of the function, which do not depend on the version of typer.
    """
    kinds = {}
    for name, hint in typing.get_type_hints(inspect.unwrap(command.callback)).items():
        options = [one for one in typing.get_args(hint) if one is not type(None)] or [hint]
        several = typing.get_origin(options[0]) is list
        kinds[name] = (typing.get_args(options[0])[0] if several else options[0], several)
    return kinds


def list_options(command: Any) -> dict[str, Any]:
    """List the parameters of a command that a file may hold, by name."""
    params = {option_name(p): p for p in command.params if not getattr(p, "hidden", False)}
    return {name: param for name, param in params.items() if name not in ("config", "help", *COMMAND_LINE_ONLY)}


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use the options in a file as defaults of a command; options on the command line take precedence."""
    if path is None or context.resilient_parsing:
        return path
    options, kinds, defaults = list_options(context.command), find_kinds(context.command), {}
    context.meta[CONFIG_FILE], context.meta[COMMAND] = path, context
    for key, value in read_configuration(path).items():
        if key in COMMAND_LINE_ONLY:
            reason = f"'{key}' is not allowed in a file, because it {COMMAND_LINE_ONLY[key]}"
            raise BrioError(f"{path}: {reason}; give --{key} on the command line instead")
        if key not in options:
            raise BrioError(f"{path}: 'brio {context.info_name}' has no option '{key}'; {nearest(key, options)}")
        if key == SETTINGS:
            if not isinstance(value, Mapping):
                raise BrioError(
                    f"{path}: '{key}' must be a table: write [{key}], and below it lines such as epochs = 50"
                )
            context.meta[SETTINGS] = flatten_settings(value)
        else:
            name = options[key].name
            defaults[name] = _check_value(value, *kinds[name], f"{path}: '{key}'", path.parent)
    context.default_map = defaults
    return path


def _check_value(value: Any, kind: type, several: bool, where: str, folder: Path) -> Any:
    """Check a value of a file and write it as on the command line; relative paths are relative to the file."""
    if isinstance(value, Mapping):
        raise BrioError(
            f"{where} is a table, but only [{SETTINGS}] may be a table; give a value instead, above the first table"
        )
    if isinstance(value, list) and not several:
        raise BrioError(f"{where} is a list, but must be a single value")
    values = value if isinstance(value, list) else [value]
    # a number where text is wanted is that text, as on the command line: fold = [1]
    wanted = {bool: bool, int: int, float: int | float, Path: str, str: str | int | float}[kind]
    for one in values:
        if not isinstance(one, wanted) or (isinstance(one, bool) and kind is not bool):
            raise BrioError(f"{where} must be {KINDS[kind]}, not {format_value(one)}")
        if isinstance(one, str) and "\0" in one:
            raise BrioError(f"{where}: {format_value(one)} contains a null character; remove it")
    written = [str(folder / one) if kind is Path else one if kind is bool else str(one) for one in values]
    return written if several else written[0]


def merge_settings(context: typer.Context, given: list[str] | None) -> list[str] | None:
    """Add the settings of a file to those given by ``--set``, which take precedence."""
    filed = context.meta.get(SETTINGS)
    if not filed or context.resilient_parsing:
        return given
    on_line = parse_assignments(given or [])
    context.meta[SETTINGS] = {key: value for key, value in filed.items() if key not in on_line}
    return [*(f"{key}={value}" for key, value in context.meta[SETTINGS].items()), *(given or [])]


def name_config_file(error: BrioError, remembered: Mapping[str, Any]) -> BrioError:
    """Name the file in an error about an option or a setting that comes from the file.

    The error is taken to be about the first option or setting that its message mentions.
    """
    file, message = remembered.get(CONFIG_FILE), str(error)
    if file is None or message.startswith(f"{file}: "):
        return error
    mentions = [
        (match.start(), -len(match[0]), in_file)
        for text, pattern, in_file in _list_mentions(remembered[COMMAND], remembered.get(SETTINGS) or {})
        if text in message and (match := re.search(pattern, message))  # a pattern takes long to compile
    ]
    return BrioError(f"{file}: {message}") if mentions and min(mentions)[-1] else error


def _list_mentions(context: typer.Context, filed: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """List how an error would mention what was given (a text, and its pattern), and whether it stands in the file."""
    kinds = find_kinds(context.command)
    for param in context.command.params:
        name, value = option_name(param), context.params.get(param.name)
        if name == SETTINGS:
            keys = dict.fromkeys([*filed, *(text.partition("=")[0].strip() for text in value or ())])
            yield from ((key, rf"(?<![\w.-]){re.escape(key)}(?![\w-])", key in filed) for key in keys)
            continue
        source = context.get_parameter_source(param.name)
        in_file = source is not None and source.name == "DEFAULT_MAP"
        if not in_file and (source is None or source.name != "COMMANDLINE"):
            continue
        values = (context.default_map or {})[param.name] if in_file else value
        yield name, rf"(--|setting '){re.escape(name)}(?![\w-])", in_file
        kind = kinds[param.name][0]
        for value in map(str, filter(None, values if isinstance(values, list | tuple) else [values])):
            if kind in (str, Path):
                yield value, rf"'{re.escape(value)}'", in_file
            if kind is Path:
                yield value, rf"(?<![\w/.-]){re.escape(value)}[:/]", in_file
