"""Commands that list what there is: methods and studies."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..console import console, say
from .app import app
from .options import Load, load_own_methods


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this method.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, settings included.")] = False,
    load: Load = None,
) -> None:
    """List the methods, or the settings of one."""
    import dataclasses

    from ..methods import find_method, list_methods

    load_own_methods(load)
    if as_json:
        listed = [_in_words(e) for e in list_methods() if name is None or e is find_method(name)]
        print(json.dumps(listed, indent=1))
        return
    if name is None:
        for family in dict.fromkeys(e.family for e in list_methods()):
            table = Table.grid(padding=(0, 2))
            table.add_column(min_width=18)
            table.add_column()
            for e in (e for e in list_methods() if e.family == family):
                needs = [*e.needs, *(["unlabelled test scans"] if e.transductive else [])]
                facts = [f"needs {', '.join(needs)}"] if needs else []
                facts += [] if e.fixed else [str(e.provenance), e.reference]
                table.add_row(Text(f"  {e.name}"), Text(e.summary))
                if facts:
                    table.add_row("", Text("; ".join(facts), style="dim"))
            console.print(Text(family, style="bold"))
            console.print(table)
        console.print("'brio methods NAME' lists the settings of a method; set one with --set key=value.")
        return
    found = find_method(name)
    listing = Table("setting", "value", "tuned over", box=None, pad_edge=False)
    for f in dataclasses.fields(found.method_class.Settings):
        value, space = found.fixed.get(f.name, getattr(found.method_class.Settings(), f.name)), f.metadata.get("space")
        fixed = f.name in found.fixed
        listing.add_row(f.name, f"{value} (fixed)" if fixed else str(value), "" if fixed or not space else str(space))
    wanted = ", ".join(found.needs) or "connectomes and labels alone"
    for line in (f"{found.name}: {found.summary}", f"needs: {wanted}", f"provenance: {found.provenance}"):
        say(line)
    say(f"reference: {found.reference}")
    console.print(listing)
    settings = found.method_class.Settings
    say(f"What each means: help({settings.__module__}.{settings.__name__})")


def _in_words(e: Any) -> dict[str, Any]:
    """A method as 'brio methods --json' tells it."""
    import dataclasses

    fields = dataclasses.fields(e.method_class.Settings)
    return {
        "name": e.name,
        "family": e.family,
        "summary": e.summary,
        "needs": list(e.needs),
        "transductive": e.transductive,
        "control": e.control,
        "provenance": str(e.provenance),
        "reference": e.reference,
        "settings": {**dataclasses.asdict(e.method_class.Settings()), **e.fixed},
        "tuned_over": {
            f.name: str(f.metadata["space"]) for f in fields if f.metadata.get("space") and f.name not in e.fixed
        },
    }


@app.command()
def studies(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List the paper's experiments, and what goes beyond it, each a command."""
    from ..studies import list_studies
    from ..studies.study import BEYOND

    if as_json:
        told = [{"name": s.name, "title": s.title, "summary": s.summary, "paper": s.paper} for s in list_studies()]
        print(json.dumps(told, indent=1))
        return
    table = Table.grid(padding=(0, 2))
    for s in list_studies():
        table.add_row(Text(f"  {s.name}", style="bold"), Text(s.title))
        table.add_row("", Text(s.summary, style="dim"))
    console.print(table)
    console.print(
        "'brio study NAME COHORT --out DIR' makes one, 'brio study paper COHORT --out DIR' all of the paper's: "
        f"all but {', '.join(BEYOND)}."
    )
