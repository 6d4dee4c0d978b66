"""The reference of the command line, written from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from brio.cli import app
from brio.cli.config_file import find_kinds, show_option

KINDS = {bool: "", int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}


def format_commands() -> str:
    """Format all commands by their panels: summary, examples, and options with defaults and allowed values."""
    lines: list[str] = []
    for panel, words, command in walk_commands(get_command(app), "brio"):
        if f"## {panel}" not in lines:
            lines.append(f"## {panel}")
        lines.append(format_command(words, command))
    return "\n\n".join(lines) + "\n"


def walk_commands(group: Any, words: str, panel: str = "") -> Iterator[tuple[str, str, Any]]:
    """Walk through the commands of a group: panel, words as typed, command."""
    for name in group.list_commands(None):
        command, own = group.commands[name], f"{words} {name}"
        within = panel or str(command.rich_help_panel)
        if hasattr(command, "commands"):
            yield from walk_commands(command, own, within)
        else:
            yield within, own, command


def format_command(words: str, command: Any) -> str:
    """Format one command; options that several commands share are folded, panel by panel."""
    summary, *paragraphs = command.help.split("\n\n")
    examples = [text.removeprefix("Example: ") for text in paragraphs if text.startswith("Example: ")]
    notes = [format_help(" ".join(text.split())) for text in paragraphs if not text.startswith("Example: ")]
    shown = [param for param in command.params if not param.hidden]
    required = [show_option(param) for param in shown if param.required]
    usage = [f"{name} {name.strip('-').upper()}" if name.startswith("-") else name.upper() for name in required]
    lines = ["```", *(examples or [" ".join([words, *usage])]), "```"]
    parts = [f"### `{words}`", format_help(" ".join(summary.split())), *notes, "\n".join(lines)]
    kinds = find_kinds(command)
    for panel in dict.fromkeys(param.rich_help_panel for param in shown):
        params = [param for param in shown if param.rich_help_panel == panel]
        listed = "\n\n".join(format_option(param, kinds[param.name][0]) for param in params)
        parts.append(f":::{{dropdown}} {panel}\n{listed}\n:::" if panel else listed)
    return "\n\n".join(parts)


def format_option(param: Any, kind: type) -> str:
    """Format an option or argument as an entry of a definition list."""
    takes = param.metavar or KINDS[kind] if param.param_type_name == "option" else ""
    name = f"`{' '.join([', '.join([*param.opts, *param.secondary_opts]), takes]).strip()}`"
    if param.required:
        name += ", required"
    elif param.default is not None and param.default is not False:
        name += f", default `{param.default}`"
    return f"{name}\n: {format_help(param.help)}"


def format_help(text: str) -> str:
    """Format a help text as Markdown: options and quoted words are code, other marks are escaped."""

    def mark(found: re.Match[str]) -> str:
        return f"`{found['code'] or found['quoted']}`" if found["code"] or found["quoted"] else f"\\{found[0]}"

    return re.sub(r"(?P<code>--[a-z][a-z-]*)|(?<!\w)'(?P<quoted>[^']+)'(?!\w)|[\\<>*_$`\[\]]", mark, text)
