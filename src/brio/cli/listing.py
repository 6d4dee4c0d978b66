"""Commands that list methods, settings and studies."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..console import console, say
from .app import app
from .options import Load, load_own_methods

if TYPE_CHECKING:
    from ..methods.registry import MethodEntry


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this method.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON, with settings.")] = False,
    load: Load = None,
) -> None:
    """List the methods, or the settings of one."""
    from ..methods import find_method, list_methods

    load_own_methods(load)
    if as_json:
        entries = list_methods() if name is None else [find_method(name)]
        print(json.dumps([_describe_entry(entry) for entry in entries], indent=1))
    elif name is None:
        _print_methods(list_methods())
        console.print("'brio methods NAME' lists the settings of a method; set one with --set key=value.")
    else:
        _print_settings(find_method(name))


def _print_methods(entries: list[MethodEntry]) -> None:
    """Print all methods under the headings of their families, those of a family by where they come from."""
    from ..methods import find_method

    for family, block in dict.fromkeys((entry.family, entry.block) for entry in entries):
        table = Table.grid(padding=(0, 2))
        table.add_column(min_width=18)
        table.add_column()
        for entry in entries:
            if (entry.family, entry.block) == (family, block):
                needs = [*entry.needs, *(["unlabelled test scans"] if entry.transductive else [])]
                facts = [f"needs {', '.join(needs)}"] if needs else []
                own_origin = entry.provenance != find_method(entry.base).provenance
                facts += [str(entry.provenance)] if own_origin or not entry.fixed else []
                facts += [] if entry.fixed else [entry.reference]
                table.add_row(Text(f"  {entry.name}"), Text(entry.summary))
                if facts:
                    table.add_row("", Text("; ".join(facts), style="dim"))
        heading = family if block in (family, "controls") else f"{family}: {block}"
        console.print(Text(heading, style="bold"))
        console.print(table)


def _print_settings(entry: MethodEntry) -> None:
    """Print what a method needs and its settings."""
    table = Table("setting", "value", "tuned over", box=None, pad_edge=False)
    for name, value in entry.settings.items():
        table.add_row(name, f"{value} (fixed)" if name in entry.fixed else str(value), entry.tuned_over.get(name, ""))
    say(f"{entry.name}: {entry.summary}")
    say(f"needs: {', '.join(entry.needs) or 'connectomes and labels alone'}")
    say(f"provenance: {entry.provenance}")
    say(f"reference: {entry.reference}")
    console.print(table)
    say(f"What each setting means: brio settings {entry.name}")


def _describe_entry(entry: MethodEntry) -> dict[str, Any]:
    """Describe a method for 'brio methods --json'."""
    return {
        "name": entry.name,
        "family": entry.family,
        "block": entry.block,
        "summary": entry.summary,
        "needs": list(entry.needs),
        "transductive": entry.transductive,
        "control": entry.control,
        "provenance": str(entry.provenance),
        "reference": entry.reference,
        "settings": entry.settings,
        "tuned_over": entry.tuned_over,
    }


@app.command()
def settings(
    name: Annotated[str | None, typer.Argument(help="A method; by default the settings of all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    load: Load = None,
) -> None:
    """List the settings of a method, or of all, and those of protocol, audit and harmonisation: what --set takes."""
    from ..jobs.spec import list_settings

    load_own_methods(load)
    groups = list_settings(name)
    if as_json:
        print(json.dumps([dataclasses.asdict(one) for group in groups.values() for one in group], indent=1))
        return
    for heading, group in groups.items():
        console.print(Text(heading, style="bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column(min_width=26)
        table.add_column()
        for one in group:
            default = " (fixed)" if one.fixed else " by default" if one.default is not None else ""
            values = f"; tuned over {one.tuned_over}" if one.tuned_over else ""
            facts = f"{'by method' if one.default is None else one.default}{default}; {one.values}{values}"
            table.add_row(Text(f"  {one.key}"), Text(one.meaning or "-"))
            table.add_row("", Text(facts, style="dim"))
            if one.methods:
                table.add_row("", Text(", ".join(one.methods), style="dim"))
        console.print(table)
    console.print("Set one with --set key=value, or in the table [set] of a file for --config.")


@app.command()
def studies(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List the studies: the experiments of the paper, and those that go beyond it."""
    from ..studies import list_studies
    from ..studies.study import BEYOND

    if as_json:
        listed = [{"name": s.name, "title": s.title, "summary": s.summary, "paper": s.paper} for s in list_studies()]
        print(json.dumps(listed, indent=1))
        return
    table = Table.grid(padding=(0, 2))
    for s in list_studies():
        table.add_row(Text(f"  {s.name}", style="bold"), Text(s.title))
        table.add_row("", Text(s.summary, style="dim"))
    console.print(table)
    console.print(
        "'brio study NAME COHORT --out DIR' runs one, 'brio study paper COHORT --out DIR' all of the paper's "
        f"(all but {', '.join(BEYOND)})."
    )
