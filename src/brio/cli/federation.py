"""Commands for hospitals that may not share scans: federate start, answer, combine and show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import settings
from ..console import say
from . import options
from .app import MODELS, app

federate_app = typer.Typer(
    help="Fit one model to scans from several sites, which exchange files of sums but no scans.", no_args_is_help=True
)
app.add_typer(federate_app, name="federate", rich_help_panel=MODELS)


@options.add_command(None, group=federate_app)
def start(
    out: options.Out,
    rois: Annotated[
        str, "--rois", "Regions, in the order that all scans must have: a cohort folder, a table or a known atlas."
    ],
    classes: Annotated[str, "--classes", "CONTROL,PATIENT", "Names of the labels 0 and 1, as in the cohorts."],
    n_sites: Annotated[
        settings.FederatedSites,
        "--sites",
        "Number of participating sites; the first round waits for all of these sites.",
    ],
    method: Annotated[str, "log-ridge or ridge."] = "log-ridge",
    penalty: Annotated[
        settings.Positive, "Penalty, relative to the mean squared norm of the centred features of a scan."
    ] = 3.0,
    iterations: Annotated[
        settings.FederatedIterations, "Number of iterations; each one after the first adds two rounds."
    ] = 2,
    evaluation: Annotated[
        str,
        "site-models (each site scores the mean of the other sites' models) or leave-one-site-out (all sites must "
        "agree).",
    ] = "site-models",
    label: options.Label = None,
) -> None:
    """Start a project and write its first request.

    Example: brio federate start --out project --rois cohort --classes HC,MDD --sites 4
    """
    from ..cohort import Cohort
    from ..cohort.cohort import HEADER
    from ..cohort.readers.rois import load_atlas
    from ..federation import Terms, describe_message, read_message
    from ..federation.folders import name_project, start_project
    from ..storage import refuse_existing

    refuse_existing(out)
    names = tuple(part.strip() for part in classes.split(","))
    atlas = Cohort.load(rois).atlas if (Path(rois) / HEADER).is_file() else load_atlas(rois)[0]
    table = atlas.rois.astype(object)
    terms: dict[str, Any] = {"project": name_project(out), "method": method, "atlas": atlas.name, "classes": names}
    terms["rois"] = {str(name): column.tolist() for name, column in table.where(table.notna(), None).items()}
    terms |= {
        "penalty": penalty,
        "iterations": iterations,
        "evaluation": evaluation,
        "label": label,
        "n_sites": n_sites,
    }
    path = start_project(out, Terms(**terms))
    say(describe_message(read_message(path)))
    say(f"send {path} to every site; each answers it with 'brio federate answer {path.name} COHORT'")


@options.add_command(None, group=federate_app)
def answer(
    request: Annotated[Path, "Request file, or a project folder to answer its newest request."],
    cohort: Annotated[Path, "Cohort folder of this site."],
    out: Annotated[
        Path | None,
        "Answer file to write; by default answer-ROUND-SITE.brio in the folder of the request file, or in the folder "
        "'answers' of a project folder.",
    ] = None,
    vectors: Annotated[
        settings.Count | None,
        "First answer only: maximum number of requests with a vector, over all projects of the cohort folder; 4 by "
        "default. Each model needs one in each round except the first and the last.",
    ] = None,
    agree_leave_out: Annotated[bool, "First answer only: agree to the evaluation leave-one-site-out."] = False,
    least_per_class: Annotated[
        settings.Count | None,
        "First answer only: minimum number of this site's participants in each class; 10 by default.",
    ] = None,
    agree_further_question: Annotated[
        bool,
        "First answer only: agree to answers that, together with earlier ones about these scans, give away sums over "
        "fewer than ten participants.",
    ] = False,
    answered: Annotated[
        Path | None,
        "Folder that records which scans have answered which questions, for all projects; by default one of this user.",
    ] = None,
) -> None:
    """Answer a request with sums over the scans of this site, and describe what the answer contains.

    Example: brio federate answer request-1.brio cohort
    """
    from ..cohort import Cohort
    from ..federation import Agreement, Request, answer_and_record, describe_message, read_message, write_message
    from ..federation.folders import ANSWERS, LOG, RECORDS, find_request, name_answer

    path = find_request(request) if request.is_dir() else request
    asked = read_message(path, Request)
    given: dict[str, Any] = {
        "vectors": vectors,
        "leave_out": agree_leave_out or None,
        "least_per_class": least_per_class,
        "further_question": agree_further_question or None,
    }
    agreed = {name: value for name, value in given.items() if value is not None}
    record = cohort / RECORDS / asked.terms.project
    agreement = Agreement(**agreed) if agreed else None
    made = answer_and_record(path, Cohort.load(cohort), record, agreement, answered, say)
    out = out or (request / ANSWERS if request.is_dir() else path.parent) / name_answer(made)
    write_message(out, made)
    say(describe_message(made))
    say(
        f"wrote {out} ({out.stat().st_size / 1e3:,.0f} kB); send this file to the coordinator. It is recorded in "
        f"{record / LOG}"
    )


@options.add_command(None, group=federate_app)
def combine(
    project: Annotated[Path, "Project folder."],
    answers: Annotated[
        list[Path] | None, typer.Argument(help="Answer files, in addition to those in the folder 'answers'.")
    ] = None,
) -> None:
    """Add up the answers of all sites, and write the next request or the model.

    Example: brio federate combine project answer-1-*.brio
    """
    from ..federation import describe_message, read_message
    from ..federation.folders import MODEL, combine_project

    path = combine_project(project, answers or ())
    if path.name != MODEL:
        say(describe_message(read_message(path)))
        say(f"send {path} to every site")
        return
    from ..models import read_model

    model = read_model(path)
    if model.evidence is not None:
        say(model.evidence.describe())
    say(f"wrote {model!r} to {path}")


@options.add_command(None, group=federate_app)
def show(file: Annotated[Path, "Request or answer file."]) -> None:
    """Describe the numbers in a request or an answer.

    Example: brio federate show answer-1-NYU.brio
    """
    from ..federation import describe_message, read_message

    say(describe_message(read_message(file)))
