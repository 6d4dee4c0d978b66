"""The command line. Thin: every command reads its words, calls the package and prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from .console import console, print_result, say, show_progress
from .errors import BrioError
from .version import __version__

app = typer.Typer(
    help="Patients from controls by their connectomes, at hospitals the model has not seen.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
fetch_app = typer.Typer(help="Download public data and turn it into a cohort.", no_args_is_help=True)
app.add_typer(fetch_app, name="fetch")
Out = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist yet.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="A setting, key=value; repeatable.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Protocol = Annotated[str, typer.Option(help="loso or kfold.")]
Seeds = Annotated[int, typer.Option(help="Number of seeds.")]
Folds = Annotated[list[str] | None, typer.Option("--fold", help="Only this fold (test site); repeatable.")]
Companions = Annotated[
    list[Path] | None, typer.Option("--with", help="The same participants in another atlas; repeatable.")
]
KeepAll = Annotated[bool, typer.Option("--keep-all", help="Do not apply the audit's exclusions.")]
RunsPerStack = Annotated[int | None, typer.Option(help="Runs that train together.")]
RecordsOnly = Annotated[bool, typer.Option("--records-only", help="Keep scores and predictions, no weights.")]
Load = Annotated[list[Path] | None, typer.Option("--load", help="Python file with methods of your own; repeatable.")]


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
    from .cohort.readers import import_cohort, import_summary

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
    say(import_summary(cohort))
    say(f"{cohort!r} -> {out}")


@fetch_app.command("abide")
def fetch_abide_(
    out: Out,
    atlas: Annotated[str, typer.Option(help="aal or cc200.")] = "aal",
    data_dir: Annotated[Path | None, typer.Option(help="Where the downloaded files are kept.")] = None,
    n_subjects: Annotated[int | None, typer.Option(help="Only so many, for a try.")] = None,
) -> None:
    """Download ABIDE I (Preprocessed Connectomes Project) with nilearn."""
    from .cohort.readers import import_summary
    from .cohort.readers.fetch import fetch_abide

    cohort = fetch_abide(atlas, out, data_dir=data_dir, n_subjects=n_subjects)
    say(import_summary(cohort))
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
    from .cohort.simulate import Simulation
    from .cohort.simulate import simulate as draw

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
    from .cohort import Cohort
    from .cohort import audit as look
    from .runs.plan import rules_of
    from .settings import parse_assignments

    rules = rules_of({k.removeprefix("audit."): v for k, v in parse_assignments(setting or []).items()})
    found = look(Cohort.load(cohort), rules, [Cohort.load(c) for c in companion or []])
    if as_json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        for line in found.lines():
            say(line)


@app.command()
def run(
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for results; an interrupted run goes on there.")],
    method: Annotated[list[str] | None, typer.Option(help="Method, see 'brio methods'; repeatable.")] = None,
    protocol: Protocol = "loso",
    seeds: Seeds = 1,
    setting: Sets = None,
    tuned: Annotated[
        Path | None, typer.Option(help="Folder of 'brio tune': carry its choices over, fold by fold.")
    ] = None,
    fold: Folds = None,
    companion: Companions = None,
    keep_all: KeepAll = False,
    load: Load = None,
    device: Device = "auto",
    runs_per_stack: RunsPerStack = None,
    records_only: RecordsOnly = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate methods at sites they have not seen."""
    from .runs import run as execute

    own = _load(load)
    with show_progress(quiet) as progress:
        result = execute(
            cohort,
            method or own or ["brio"],
            out=out,
            tuned=tuned,
            **_words(protocol, seeds, setting, fold, companion, keep_all, device, runs_per_stack, records_only),
            progress=progress,
            say=say,
        )
    print_result(result)


@app.command()
def tune(
    method: Annotated[str, typer.Argument(help="Method, or several with commas between them; 'all' for all.")],
    cohort: Annotated[Path, typer.Argument(help="Cohort folder.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for results; an interrupted run goes on there.")],
    budget: Annotated[int, typer.Option(help="Configurations tried for each method and fold.")] = 4,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Also record what choosing by the test scans would reach.")
    ] = False,
    protocol: Protocol = "loso",
    seeds: Seeds = 3,
    setting: Sets = None,
    fold: Folds = None,
    companion: Companions = None,
    keep_all: KeepAll = False,
    load: Load = None,
    device: Device = "auto",
    runs_per_stack: RunsPerStack = None,
    records_only: RecordsOnly = False,
    quiet: Quiet = False,
) -> None:
    """Choose settings on the validation sites of each fold, the same number of tries for every method, and evaluate."""
    from .methods import known_methods
    from .runs import tune as search

    _load(load)
    names = (
        [e.name for e in known_methods()] if method == "all" else [m.strip() for m in method.split(",") if m.strip()]
    )
    if not names:
        raise BrioError("name a method to tune; 'brio methods' lists them")
    with show_progress(quiet) as progress:
        result = search(
            cohort,
            names,
            out=out,
            budget=budget,
            oracle=oracle,
            **_words(protocol, seeds, setting, fold, companion, keep_all, device, runs_per_stack, records_only),
            progress=progress,
            say=say,
        )
    print_result(result)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this method.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, settings included.")] = False,
    load: Load = None,
) -> None:
    """List the methods, or the settings of one."""
    import dataclasses

    from .methods import entry, known_methods

    _load(load)
    if as_json:
        listed = [_in_words(e) for e in known_methods() if name is None or e is entry(name)]
        print(json.dumps(listed, indent=1))
        return
    if name is None:
        for family in dict.fromkeys(e.family for e in known_methods()):
            table = Table.grid(padding=(0, 2))
            table.add_column(min_width=18)
            table.add_column()
            for e in (e for e in known_methods() if e.family == family):
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
    found = entry(name)
    listing = Table("setting", "value", "tuned over", box=None, pad_edge=False)
    for f in dataclasses.fields(found.make.Settings):
        value, space = found.fixed.get(f.name, getattr(found.make.Settings(), f.name)), f.metadata.get("space")
        fixed = f.name in found.fixed
        listing.add_row(f.name, f"{value} (fixed)" if fixed else str(value), "" if fixed or not space else str(space))
    wanted = ", ".join(found.needs) or "connectomes and labels alone"
    for line in (f"{found.name}: {found.summary}", f"needs: {wanted}", f"provenance: {found.provenance}"):
        say(line)
    say(f"reference: {found.reference}")
    console.print(listing)
    settings = found.make.Settings
    say(f"What each means: help({settings.__module__}.{settings.__name__})")


@app.command()
def table(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    figure: Annotated[Path | None, typer.Option(help="Also draw the AUC at every site (png, svg or pdf).")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's figures beside ours.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Also write every run of all folders as one csv file.")] = None,
) -> None:
    """Print the results of runs as a Markdown table."""
    import pandas as pd

    from .report import draw_sites, markdown_table

    if figure is not None and len(folders) != 1:
        raise BrioError("--figure draws one folder at a time")
    if figure is not None and figure.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise BrioError(f"--figure {figure}: must end in .png, .svg or .pdf")
    summaries = []
    for folder in folders:
        if not (folder / "summary.json").is_file():
            raise BrioError(f"{folder}: has no summary.json; 'brio run' writes it when a run is finished")
        try:
            summaries.append(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
            text = markdown_table(summaries, paper)
        except (ValueError, KeyError, TypeError) as error:
            raise BrioError(f"{folder / 'summary.json'}: cannot be read ({error}); run 'brio run' again") from error
    read = {"dtype": {"fold": str}, "na_values": [""], "keep_default_na": False}
    if figure is not None:
        draw_sites(pd.read_csv(folders[0] / "results.csv", **read), summaries[0], figure)
    if csv is not None:
        rows = pd.concat([pd.read_csv(folder / "results.csv", **read) for folder in folders], ignore_index=True)
        rows.to_csv(csv, index=False, lineterminator="\n")
    print(text, end="")


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Simulate a cohort, audit it, and test BRIO, its backbone and ridge at every site."""
    from .demo import run_demo

    with show_progress(quiet) as progress:
        result = run_demo(out, seed, device, progress, say)
    print_result(result)
    say(f"figure: {out / 'sites.png'}")


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def _load(files: list[Path] | None) -> list[str]:
    """Names of the methods in a user's own files."""
    if not files:
        return []
    from .methods import load_methods

    return [name for file in files for name in load_methods(file)]


def _words(
    protocol: str,
    seeds: int,
    setting: list[str] | None,
    fold: list[str] | None,
    companion: list[Path] | None,
    keep_all: bool,
    device: str,
    runs_per_stack: int | None,
    records_only: bool,
) -> dict[str, Any]:
    """What 'run' and 'tune' have in common, as the package calls it."""
    from .cohort import Cohort
    from .settings import parse_assignments

    return {
        "protocol": protocol,
        "seeds": seeds,
        "settings": dict(parse_assignments(setting or [])),
        "folds": fold,
        "companions": [Cohort.load(c) for c in companion or []],
        "exclude": not keep_all,
        "device": device,
        "runs_per_stack": runs_per_stack,
        "records_only": records_only,
    }


def _in_words(e: Any) -> dict[str, Any]:
    """A method as 'brio methods --json' tells it."""
    import dataclasses

    fields = dataclasses.fields(e.make.Settings)
    return {
        "name": e.name,
        "family": e.family,
        "summary": e.summary,
        "needs": list(e.needs),
        "transductive": e.transductive,
        "control": e.control,
        "provenance": str(e.provenance),
        "reference": e.reference,
        "settings": {**dataclasses.asdict(e.make.Settings()), **e.fixed},
        "tuned_over": {
            f.name: str(f.metadata["space"]) for f in fields if f.metadata.get("space") and f.name not in e.fixed
        },
    }


def main() -> None:
    """Entry point: errors meant for people are one line on standard error and exit status 2."""
    try:
        app()
    except BrioError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    else:
        return
    print(f"brio: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
