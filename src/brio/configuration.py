"""Read a configuration from TOML, and write values and settings as TOML."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import BrioError

MAX_BYTES = 1 << 17
"""Maximum size of a configuration."""

_LONG_KEY = re.compile(r"""(?:^|[\[{,])[ \t]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){32}""", re.MULTILINE)
"""A key of more parts than any option has; tomllib takes time and memory in the square of their number."""


START = "'brio config COMMAND' prints a file to start from"


def read_configuration(path: Path, remedy: str = START) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        if path.exists() and (not path.is_file() or path.stat().st_size > MAX_BYTES):  # a pipe would wait for a writer
            raise BrioError(f"{path}: is not a TOML file of at most {MAX_BYTES >> 10} KiB; {remedy}")
        text = path.read_text(encoding="utf-8")
        if key := _LONG_KEY.search(text):
            line = text.count("\n", 0, key.end()) + 1
            raise BrioError(f"{path}: line {line} has a key of more than 32 parts; {remedy}")
        return tomllib.loads(text)
    except BrioError:
        raise
    except RecursionError as error:
        raise BrioError(f"{path}: cannot be read as TOML (it is nested too deeply); {remedy}") from error
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        hint = "" if isinstance(error, UnicodeError) else "; text needs quotes"
        raise BrioError(f"{path}: is not TOML ({error}{hint}); {remedy}") from error
    except OSError as error:
        raise BrioError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error


def flatten_settings(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Turn a nested table of settings into texts by dotted names, as ``--set`` takes them."""
    texts: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            texts |= flatten_settings(value, f"{prefix}{name}.")
        else:
            texts[f"{prefix}{name}"] = _write_text(value)
    return texts


def _write_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_write_text(one) for one in value)
    return value if isinstance(value, str) else repr(value)


def read_value(text: str) -> bool | int | float | str:
    """Convert the text of a setting to the corresponding TOML value."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def format_value(value: Any) -> str:
    """Format a value as TOML; a list is on one line, and None, which TOML lacks, is the text ``none``."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    # JSON escapes as TOML does, but leaves this one control character as it is
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def format_settings(settings: Mapping[str, Any], table: str) -> list[str]:
    """Format settings with dotted names as TOML tables."""
    parts: dict[str, list[str]] = {table: []}
    for name, value in settings.items():
        part, _, key = name.rpartition(".")
        parts.setdefault(f"{table}.{part}" if part else table, []).append(f"{key} = {format_value(value)}")
    return [line for part, lines in parts.items() for line in (f"[{part}]", *lines)]
