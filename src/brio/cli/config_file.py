"""Options of a command in a TOML file: what ``--config`` does."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from ..configuration import flatten_settings, format_value, read_configuration
from ..errors import BrioError, nearest
from ..settings import parse_assignments

SETTINGS = "set"
"""The option that is a table of the file."""

KINDS = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path in quotes", str: "text"}
"""Kinds of options in words."""


def option_name(param: Any) -> str:
    """Return the name of an option without dashes, or that of an argument."""
    return param.opts[-1].lstrip("-") if param.param_type_name == "option" else param.name


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
    return [*(f"{key}={value}" for key, value in filed.items() if key not in on_line), *(given or [])]
