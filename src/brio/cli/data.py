"""Commands that make a cohort and look at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..console import say
from .app import app, fetch_app
from .options import Out, Sets


@app.command("import")
def import_(
    kind: Annotated[str, typer.Argument(help="pcp, dpabi, bids, table or packed.")],
    src: Annotated[Path, typer.Argument(help="Folder with the files.")],
    out: Out,
    atlas: Annotated[str | None, typer.Option(help="aal116, cc200, ...")] = None,
    participants: Annotated[
        Path | None, typer.Option(help="Table of participants, if not where it usually is.")
    ] = None,
    site_column: Annotated[str | None, typer.Option(help="Column with the site.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column with the diagnosis.")] = None,
    patient: Annotated[str | None, typer.Option(help="Value of that column for patients.")] = None,
    control: Annotated[str | None, typer.Option(help="Value of that column for controls.")] = None,
    task: Annotated[str | None, typer.Option(help="bids: the task entity, e.g. rest.")] = None,
    match: Annotated[str | None, typer.Option(help="bids: only files whose name holds this text.")] = None,
    runs: Annotated[str | None, typer.Option(help="bids: 'first' or 'concatenate'.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the cohort.")] = None,
) -> None:
    """Read scans in a real file layout and write them as a cohort."""
    from ..cohort.readers import import_cohort, summarise_import

    cohort = import_cohort(
        kind,
        src,
        out,
        atlas=atlas,
        participants=participants,
        site_column=site_column,
        label_column=label_column,
        patient=patient,
        control=control,
        task=task,
        match=match,
        runs=runs,
        name=name,
    )
    say(summarise_import(cohort))
    say(f"{cohort!r} -> {out}")


@fetch_app.command("abide")
def fetch_abide_(
    out: Out,
    atlas: Annotated[str, typer.Option(help="aal or cc200.")] = "aal",
    data_dir: Annotated[Path | None, typer.Option(help="Where the downloaded files are kept.")] = None,
    n_subjects: Annotated[int | None, typer.Option(help="Only so many, for a try.")] = None,
) -> None:
    """Download ABIDE I (Preprocessed Connectomes Project) with nilearn."""
    from ..cohort.readers import summarise_import
    from ..cohort.readers.fetch import fetch_abide

    cohort = fetch_abide(atlas, out, data_dir=data_dir, n_subjects=n_subjects)
    say(summarise_import(cohort))
    say(f"{cohort!r} -> {out}")


@app.command()
def simulate(
    out: Out,
    sites: Annotated[int, typer.Option(help="Sites.")] = 6,
    per_class: Annotated[int, typer.Option(help="Subjects of each class at a site, about.")] = 14,
    rois: Annotated[int, typer.Option(help="ROIs, a multiple of four.")] = 24,
    frames: Annotated[int, typer.Option(help="Frames of a scan, about.")] = 140,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Write a simulated multi-site cohort with known truth."""
    from ..cohort.simulate import Simulation
    from ..cohort.simulate import simulate as draw

    cohort = draw(Simulation(n_sites=sites, per_class=per_class, n_rois=rois, frames=frames, seed=seed)).save(out)
    say(f"{cohort!r} -> {out}")


@app.command()
def audit(
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    companion: Annotated[
        list[Path] | None, typer.Option("--with", help="The same participants in another atlas; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole audit as JSON.")] = False,
    setting: Sets = None,
) -> None:
    """Look for what is wrong with a cohort and propose exclusions, with reasons."""
    from ..cohort import Cohort, format_audit
    from ..cohort import audit as look
    from ..jobs.plan import rules_of
    from ..settings import parse_assignments

    rules = rules_of({k.removeprefix("audit."): v for k, v in parse_assignments(setting or []).items()})
    found = look(Cohort.load(cohort), rules, [Cohort.load(c) for c in companion or []])
    if as_json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        say(format_audit(found))
