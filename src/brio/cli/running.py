"""Commands that train: run, tune, study and demo, and also verify, which may retrain runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from .. import settings
from ..console import console, say, show_progress
from ..errors import BrioError, escape_controls
from ..version import __version__
from . import options
from .app import EVALUATION, OTHERS, STUDIES

if TYPE_CHECKING:
    from ..results import StoredJob


def show_result(stored: StoredJob | None, report: bool) -> None:
    """Print the table of a job, unless it is a shard, and what a reader should know; write a report if asked."""
    from ..api import Result

    if stored is None:
        return
    result = Result(**vars(stored))
    header, rows = result.text_table()
    rows = [[escape_controls(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, width in zip(header, widths, strict=True):
        table.add_column(name, min_width=width)  # headings are broken into lines, names and numbers never
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table, width=max(console.width, sum(widths) + len(widths)), crop=False, soft_wrap=False)
    for line in [*result.notes, f"results: {result.folder}"]:
        say(line)
    if report:
        from ..report.cohort import draw_sites
        from ..report.comparisons import markdown_table
        from ..storage import write_atomically

        text, figure = result.folder / "table.md", result.folder / "sites.png"
        write_atomically(text, markdown_table([result.summary]))
        draw_sites(result.rows, result.summary, figure)
        for name, path in (("table", text), ("figure", figure), ("report", result.report())):
            say(f"{name}: {path}")


@options.add_command(EVALUATION)
def run(
    cohort: Annotated[Path, "Cohort folder."],
    out: options.JobOut,
    method: Annotated[
        list[str] | None,
        "Method (see 'brio methods'); repeatable; 'all' for all except variants. By default the methods of the --load "
        "files or, without --load, 'recommended': log-ridge, ridge and the confound baselines that suit the cohort.",
    ] = None,
    label: options.Label = None,
    seeds: Annotated[
        settings.Seeds | None,
        "Number of seeds; by default 3 for the recommended methods, otherwise 1.",
    ] = None,
    tuned: Annotated[
        Path | None, "Folder written by 'brio tune'; each fold uses the settings chosen for it there."
    ] = None,
    records_only: options.RecordsOnly = False,
    report: options.Report = False,
    *,
    evaluation: options.EvaluationOptions,
    job: options.JobOptions,
    engine: options.SharedEngineOptions,
) -> None:
    """Evaluate methods at sites they were not trained on.

    Example: brio run cohort --out results

    Example: brio run cohort --method ridge --method brio --seeds 3 --out results
    """
    from ..jobs.run import run_job
    from ..jobs.spec import RECOMMENDED, choose_seeds
    from ..results import TuningRecord

    own = options.load_own_methods(job.load)
    record = None if tuned is None else TuningRecord.read(tuned)
    methods = method or own or [RECOMMENDED]
    further = {"label": label, "seeds": choose_seeds(methods, seeds), "records_only": records_only, "tuned": record}
    spec = job.make_spec(cohort, methods, **further, **evaluation.to_keywords())
    with engine.open(job.load, engine.shard) as opened, show_progress(job.quiet) as progress:
        stored = run_job(dataclasses.replace(spec, engine=opened), out, progress, say)
    show_result(stored, report)


@options.add_command(EVALUATION)
def tune(
    cohort: Annotated[Path, "Cohort folder."],
    out: options.JobOut,
    method: Annotated[
        list[str] | None,
        "Method (see 'brio methods'); repeatable, or several separated by commas; 'all' for all except variants.",
    ] = None,
    budget: Annotated[settings.Budget, "Maximum number of configurations to try for each method and fold."] = 4,
    oracle: Annotated[bool, "Also record the best test AUC of any configuration, averaged over folds."] = False,
    label: options.Label = None,
    seeds: options.Seeds = 3,
    records_only: options.RecordsOnly = False,
    report: options.Report = False,
    *,
    evaluation: options.EvaluationOptions,
    job: options.JobOptions,
    engine: options.SharedEngineOptions,
) -> None:
    """Tune methods on the validation sites of each fold, with the same budget for each method, and evaluate them.

    Example: brio tune cohort --method gcn --method brio --budget 4 --out tuned
    """
    from ..jobs.run import tune_job

    own = options.load_own_methods(job.load)
    names = [name.strip() for one in method or own for name in one.split(",") if name.strip()]
    if not names:
        raise BrioError("no method was given; give one with --method NAME ('brio methods' lists the methods)")
    further = {"label": label, "seeds": seeds, "records_only": records_only}
    spec = job.make_spec(cohort, names, **further, **evaluation.to_keywords())
    with engine.open(job.load, engine.shard) as opened, show_progress(job.quiet) as progress:
        spec = dataclasses.replace(spec, engine=opened)
        stored = tune_job(spec, out, budget=budget, oracle=oracle, progress=progress, say=say)
    show_result(stored, report)


@options.add_command(EVALUATION)
def verify(
    folder: Annotated[Path, "Folder written by 'brio run', 'brio tune' or 'brio study'."],
    cohort: Annotated[
        Path | None,
        "--cohort",
        "Cohort folder of the job, with which participant ids, labels, sites and folds are also checked.",
    ] = None,
    again: Annotated[settings.Count | None, "With --cohort: retrain this many runs, drawn at random."] = None,
    seed: Annotated[settings.Seed, "Seed for drawing the runs to retrain."] = 0,
    device: Annotated[
        str | None, "Device for retraining; by default the device of the job (see 'brio run --help')."
    ] = None,
    predictions: Annotated[
        list[Path] | None,
        "Folder written by 'brio predict' that the report shows as external validation; repeatable; give all such "
        "folders.",
    ] = None,
    load: options.Load = None,
) -> None:
    """Recompute the numbers of finished jobs from their predictions; the exit status is 1 if any number differs."""
    from ..verification import verify_folder

    if again and cohort is None:
        raise BrioError("--again retrains runs, which requires their scans; give the cohort with --cohort")
    options.load_own_methods(load)
    found = verify_folder(folder, cohort, again or 0, seed, device, predictions or ())
    print(escape_controls(found.write()), end="")
    if found.differences:
        raise typer.Exit(1)


@options.add_command(STUDIES)
def study(
    name: Annotated[str, "A study (see 'brio studies'), or 'paper' for all studies of the paper."],
    cohort: Annotated[Path, "Cohort folder."],
    out: Annotated[
        Path, "--out", "Folder for results; studies in one folder share runs, and interrupted studies are resumed."
    ],
    method: Annotated[
        list[str] | None, "Use this method instead of the default methods of the study; repeatable."
    ] = None,
    reuse: Annotated[
        list[Path] | None,
        "Folder written by 'brio run' (or, for studies that compare methods, by 'brio tune') whose finished "
        "results are reused instead of training again; repeatable.",
    ] = None,
    label: Annotated[
        list[str] | None,
        "Use the answer to another question as labels (see 'brio run --help'); repeatable for the study 'labels', "
        "which compares methods across labels.",
    ] = None,
    seeds: options.Seeds = 3,
    *,
    evaluation: options.EvaluationOptions,
    job: options.JobOptions,
    engine: options.SharedEngineOptions,
) -> None:
    """Run a study: train missing runs, summarise the results, and make a table and a figure."""
    from ..jobs.run import describe_shard
    from ..results import StoredStudy
    from ..studies import StudyContext, run_study
    from ..studies.study import PAPER, choose_label, find_study, run_study_shard

    options.load_own_methods(job.load)
    if name != "paper":
        find_study(name)  # an unknown name is reported before anything is read
    question = choose_label(name, label or [])
    spec = job.make_spec(cohort, method or [], label=question, seeds=seeds, **evaluation.to_keywords())
    with engine.open(job.load, engine.shard) as opened, show_progress(job.quiet) as progress:
        spec = dataclasses.replace(spec, engine=opened)
        context = StudyContext(spec, out, questions=label or (), reuse=reuse or (), progress=progress, say=say)
        if opened is not None and opened.shard is not None:
            return say(describe_shard(opened.shard, run_study_shard(name, context), out, "study"))
        place = run_study(name, context)
    for folder in [place / one for one in sorted(PAPER)] if name == "paper" else [place]:
        say("")
        say(StoredStudy.read(folder).finding.rsplit("\n![", 1)[0].strip())
    say(f"\nresults: {place}")


@options.add_command(OTHERS)
def demo(
    out: Annotated[Path, "--out", "Folder for results."] = Path("demo"),
    seed: Annotated[settings.Seed, "Seed of the simulation."] = 0,
    device: options.Device = "cpu",
    quiet: options.Quiet = False,
) -> None:
    """Demonstrate brio: audit simulated hospitals, test methods at left-out hospitals, and predict new scans."""
    from ..demo import run_demo

    with show_progress(quiet) as progress:
        run_demo(out, seed, device, progress, say)


@options.add_command(OTHERS)
def version() -> None:
    """Print the version."""
    print(__version__)
