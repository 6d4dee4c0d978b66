"""Options of a command in a TOML file: what ``--config`` does."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ..configuration import flatten_settings, format_value, read_configuration
from ..errors import BrioError, nearest
from ..settings import parse_assignments

SETTINGS = "set"
"""The option that is a table of the file."""

CONFIG_FILE, FILED = "brio config file", "brio filed"
"""Keys of what a context remembers: the file, and how an error would name each option and setting of it."""

KINDS = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path in quotes", str: "text"}
"""Kinds of options in words."""


def option_name(param: Any) -> str:
    """Return the name of an option without dashes, or that of an argument."""
    return param.opts[-1].lstrip("-") if param.param_type_name == "option" else param.name


def show_option(param: Any) -> str:
    """Return the name of an option or an argument as a user writes it."""
    return param.opts[-1] if param.param_type_name == "option" else param.name


def find_kinds(command: Any) -> dict[str, tuple[type, bool]]:
    """Find of what kind the parameters of a command are, by their Python names, and whether they take several values.

    The annotations of the function are read, which stay the same in all versions of typer.
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
    return {name: param for name, param in params.items() if name not in ("config", "help")}


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options that a file holds as defaults of a command; those on the command line win.

    Parameters
    ----------
    context : typer.Context
        Of the command.
    path : Path or None

    Returns
    -------
    Path or None
        As given.

    Raises
    ------
    BrioError
        If the file cannot be read, or a key or value in it is not valid.
    """
    if path is None or context.resilient_parsing:
        return path
    options, kinds, defaults = list_options(context.command), find_kinds(context.command), {}
    context.meta[CONFIG_FILE], context.meta[FILED] = path, {}
    for key, value in read_configuration(path).items():
        if key not in options:
            raise BrioError(f"{path}: 'brio {context.info_name}' has no option '{key}'; {nearest(key, options)}")
        if key == SETTINGS:
            if not isinstance(value, Mapping):
                raise BrioError(f"{path}: '{key}' is a table: write [{key}], and below it lines such as epochs = 50")
            context.meta[SETTINGS] = flatten_settings(value)
        else:
            name = options[key].name
            defaults[name] = _check_value(value, *kinds[name], f"{path}: '{key}'", path.parent)
            texts = defaults[name] if isinstance(defaults[name], list) else [defaults[name]]
            names = [f"--{key} ", f"--{key}:", f"setting '{key}'", *(f"'{text}'" for text in texts)]
            context.meta[FILED][f"--{key}"] = names + [f"{text}: " for text in texts if kinds[name][0] is Path]
    context.default_map = defaults
    return path


def _check_value(value: Any, kind: type, several: bool, where: str, folder: Path) -> Any:
    """Check a value of a file and write it as on the command line; relative paths are relative to the file."""
    if isinstance(value, Mapping):
        raise BrioError(f"{where} is a table, which only [{SETTINGS}] is; write a value, above all tables")
    if isinstance(value, list) and not several:
        raise BrioError(f"{where} holds a list, but takes one value")
    values = value if isinstance(value, list) else [value]
    # a number where text is wanted is that text, as on the command line: fold = [1]
    wanted = {bool: bool, int: int, float: int | float, Path: str, str: str | int | float}[kind]
    for one in values:
        if not isinstance(one, wanted) or (isinstance(one, bool) and kind is not bool):
            raise BrioError(f"{where}: {format_value(one)} is not {KINDS[kind]}")
        if isinstance(one, str) and "\0" in one:
            raise BrioError(f"{where}: {format_value(one)} holds a null character, which no name does")
    written = [str(folder / one) if kind is Path else one if kind is bool else str(one) for one in values]
    return written if several else written[0]


def merge_settings(context: typer.Context, given: list[str] | None) -> list[str] | None:
    """Add the settings of a file to those given by ``--set``, which win.

    Parameters
    ----------
    context : typer.Context
        Of the command; :func:`read_config` has left the settings of the file there.
    given : list of str or None
        As ``key=value``.

    Returns
    -------
    list of str or None
    """
    filed = context.meta.get(SETTINGS)
    if not filed or context.resilient_parsing:
        return given
    on_line = parse_assignments(given or [])
    used = [key for key in filed if key not in on_line]
    context.meta[FILED] |= {f"--set {key}": [f"setting '{key}'", f"--set {key}:"] for key in used}
    return [*(f"{key}={value}" for key, value in filed.items() if key not in on_line), *(given or [])]


def name_config_file(error: BrioError, remembered: Mapping[str, Any], words: Sequence[str]) -> BrioError:
    """Let an error about an option or a setting name the file that it stands in.

    Parameters
    ----------
    error : BrioError
    remembered : dict
        The ``meta`` of a context; :func:`read_config` has left there what the file holds.
    words : sequence of str
        Of the command line, whose options win over those of the file.

    Returns
    -------
    BrioError
        The same where it is about something else, or names the file already.
    """
    file, message = remembered.get(CONFIG_FILE), str(error)
    if file is None or message.startswith(f"{file}: "):
        return error
    filed = {flag: names for flag, names in remembered[FILED].items() if not _is_given(flag, words)}
    if any(name in message for names in filed.values() for name in names):
        return BrioError(f"{file}: {message}")
    return error


def _is_given(flag: str, words: Sequence[str]) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)
