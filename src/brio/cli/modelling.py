"""Commands that fit and use models: fit, predict, adapt and explain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .. import settings
from ..console import say, show_progress
from ..errors import BrioError
from ..storage import name_beside, open_scratch_folder, refuse_existing, require_creatable
from . import options
from .app import MODELS

if TYPE_CHECKING:
    from ..cohort import Cohort
    from ..models import Model

ModelFolder = Annotated[Path, "Model folder, for example from 'brio fit'."]


@contextmanager
def _open_scans(
    model: Path, scans: Path, load: list[Path] | None, reading: options.ScanOptions, images: options.ImageOptions
) -> Iterator[tuple[Model, Cohort]]:
    """Read a model and the scans that it is given, into a folder that is removed at the end; say what was read."""
    from ..cohort.readers import read_scans_to_predict, summarise_scans_to_predict
    from ..models.sums import check_sums, read_known_files

    check_sums(model, scans_follow=True)
    options.load_own_methods(load)
    given = read_known_files(model) | reading.to_keywords() | images.to_keywords()
    with open_scratch_folder() as place:
        with show_progress(images.quiet) as progress:
            cohort = read_scans_to_predict(scans, place / "scans", progress=progress, **given)
        from ..models import read_model  # torch, after all that can be refused

        fitted = read_model(model)
        options.say_warnings(cohort.provenance.get("warnings", []))
        say(summarise_scans_to_predict(cohort))
        yield fitted, cohort


@options.add_command(MODELS)
def fit(
    cohort: Annotated[Path, "Cohort folder."],
    out: options.Out,
    method: Annotated[str, "Method (see 'brio methods')."] = "log-ridge",
    label: options.Label = None,
    leave_out: Annotated[list[str] | None, "--leave-out", "SITE", "Site to leave out of the fit; repeatable."] = None,
    seeds: options.Seeds = 1,
    evidence: Annotated[
        Path | None, "Folder written by a 'brio run' that evaluated this method at left-out sites."
    ] = None,
    evaluate: Annotated[
        bool, "Evaluate the method with each site left out in turn, and store the evidence with the model."
    ] = False,
    validation_site: Annotated[
        list[str] | None,
        "Neural networks: a site used to choose the epoch; repeatable; by default two sites drawn at random, if at "
        "least four sites have both classes.",
    ] = None,
    holds_scans: Annotated[bool, "Allow a model that stores values of individual scans (fc-hgnn)."] = False,
    checkpoint_every: Annotated[
        settings.Seconds | None,
        "SECONDS",
        "Neural networks: time between checkpoints, from which interrupted training resumes; 0 for none. By "
        "default 120 with --engine dask, otherwise 0.",
    ] = None,
    *,
    job: options.JobOptions,
    engine: options.EngineOptions,
) -> None:
    """Fit a method to a cohort and write a model that other hospitals can use.

    Example: brio fit cohort --method log-ridge --evaluate --out model
    """
    from ..jobs.job import open_cohort
    from ..jobs.spec import check_settings
    from ..models.evidence import read_evidence_job
    from ..models.sums import CARD

    require_creatable(out)
    if evidence is not None and evaluate:
        raise BrioError("--evidence and --evaluate cannot be combined; give one of them")
    options.load_own_methods(job.load)
    further = {"seeds": seeds, "checkpoint_every": 120.0 if checkpoint_every is None else checkpoint_every}
    spec = job.make_spec(cohort, [method], label=label, leave_out=tuple(leave_out or ()), **further)
    check_settings(spec.methods, spec.method_settings)
    spec, opened = open_cohort(spec)
    if evidence is not None:
        read_evidence_job(evidence, method, opened)
    from ..models import fit_model, remove_fit_job, write_model  # torch, after all that can be refused

    with engine.open(job.load) as started, show_progress(job.quiet) as progress:
        spec = dataclasses.replace(spec, engine=started)
        # workers and checkpoints need a place to write to, from which the same command goes on
        folder = None if started is None and not checkpoint_every else name_beside(out, ".job")
        model = fit_model(
            spec,
            validation_sites=validation_site or (),
            holds_scans=holds_scans,
            to_evaluate=evaluate,
            evidence=evidence,
            folder=folder,
            progress=progress,
            say=say,
        )
    write_model(model, out)
    if folder is not None:
        remove_fit_job(folder)
    if model.evidence is not None:
        say(f"{model.evidence.describe()}; accuracy and calibration are in {out / CARD}")
        if model.evidence.no_claim:
            say(f"warning: {model.evidence.no_claim}")
    say(f"wrote {model!r} to {out}")


@options.add_command(MODELS)
def predict(
    model: ModelFolder,
    scans: Annotated[
        Path, "Scans: a cohort folder, one file, or a folder in a layout of 'brio import' other than 'fc'."
    ],
    out: options.Out,
    reestimates: Annotated[
        settings.Reestimates, "Minimum number of re-estimates of each scan, from which its interval is computed."
    ] = 47,
    accuracy: Annotated[
        settings.Accuracy,
        "Required accuracy of predicted classes, according to the evidence; less certain scans get 'no call'.",
    ] = 0.8,
    load: options.Load = None,
    device: options.Device = "auto",
    *,
    reading: options.ScanOptions,
    images: options.ImageOptions,
) -> None:
    """Predict scans with a model: probability, interval, and similarity to the scans the model was fitted to."""
    refuse_existing(out)
    with _open_scans(model, scans, load, reading, images) as (fitted, cohort):
        from ..models import predict_scans
        from ..models.external import write_predictions
        from ..models.predict import suggest_label_column
        from ..report.predictions import render_prediction_page

        for line in suggest_label_column(cohort):
            say(line)
        predictions = predict_scans(fitted, cohort, reestimates=reestimates, wanted_accuracy=accuracy, device=device)
        page = render_prediction_page(fitted, cohort, predictions)
        for line in write_predictions(fitted, cohort, predictions, out, page):
            say(line)


@options.add_command(MODELS)
def adapt(
    model: ModelFolder,
    cohort: Annotated[
        Path,
        "Labelled scans from the hospital: a cohort folder, or files in a layout of 'brio import' other than 'fc'.",
    ],
    out: options.Out,
    prevalence: Annotated[
        settings.InnerShare | None, "Share of patients at the hospital; by default the share among the labelled scans."
    ] = None,
    slope_width: Annotated[
        settings.PositiveSpread | None,
        "Standard deviation of the logarithm of the slope across hospitals; by default taken from the model's "
        "evidence, or 0.25 without it.",
    ] = None,
    intercept_width: Annotated[
        settings.PositiveSpread | None,
        "Standard deviation of the intercept across hospitals; by default taken from the model's evidence, or 0.5 "
        "without it.",
    ] = None,
    load: options.Load = None,
    device: options.Device = "auto",
    *,
    reading: options.ScanOptions,
    images: options.ImageOptions,
) -> None:
    """Adapt the probabilities of a model to a hospital with labelled scans from this hospital.

    The weights do not change. A slope and an intercept are fitted to the logits and shrunk towards no change, so few
    scans have little effect. The intercept depends on the share of patients among the scans; if you know that the share
    at the hospital differs, give it with --prevalence.

    Example: brio adapt model cohort --out model-here
    """
    refuse_existing(out)
    with _open_scans(model, cohort, load, reading, images) as (fitted, local):
        from ..models import adapt_model, write_model
        from ..models.predict import remark_on_local_scans

        if fitted.adaptation is not None:
            n_before = fitted.adaptation.n_participants
            say(
                f"{model}: was already adapted to {n_before} participants; this adaptation starts again from the "
                "original model"
            )
        for line in remark_on_local_scans(fitted, local):
            say(line)
        widths = {"slope_width": slope_width, "intercept_width": intercept_width}
        adapted = adapt_model(fitted, local, prevalence=prevalence, device=device, say=say, **widths)
    write_model(adapted, out)
    assert adapted.adaptation is not None
    for sentence in adapted.adaptation.describe(adapted.classes):
        say(sentence)
    say(f"wrote {adapted!r} to {out}")


@options.add_command(MODELS)
def explain(
    model: ModelFolder,
    out: options.Out,
    cohort: Annotated[Path | None, "Cohort of the model, or another cohort; needed only to measure stability."] = None,
    reestimates: Annotated[
        settings.ReestimatesOrNone, "Number of re-estimates of each scan of the cohort; 0 for none."
    ] = 8,
    sites: Annotated[
        bool,
        "Refit the model without each site in turn; requires a closed-form method, and the model's cohort in --cohort.",
    ] = False,
    companion: options.Companions = None,
    keep_all: options.KeepAll = False,
    load: options.Load = None,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
) -> None:
    """Explain what a model uses: coefficients and patterns of edges, regions and factors, with their stability.

    Coefficients describe how a model weights edges. Patterns describe which edges vary with its margin. Neither
    coefficients nor patterns are causes.

    Example: brio explain model --cohort cohort --sites --out explanation
    """
    from ..cohort import Cohort
    from ..jobs.job import prepare_job
    from ..models.sums import check_sums

    refuse_existing(out)
    check_sums(model)
    options.load_own_methods(load)
    from ..models import explain_model, read_model  # torch, after all that can be refused
    from ..models.explain_output import write_explanation
    from ..report.explanation import render_explanation_page

    fitted = read_model(model)
    scans = None
    with show_progress(quiet) as progress:
        if cohort is not None:
            job = options.JobOptions(companion=companion, keep_all=keep_all, device=device)
            here, left_out = set(Cohort.load(cohort).sites), set(fitted.training.left_out_sites)
            leave_out = sorted(here & left_out) if here - left_out else []  # all of them are another hospital's
            spec = job.make_spec(cohort, [fitted.method.name], leave_out=tuple(leave_out))
            scans = prepare_job(spec, progress, say).cohort
        explanation = explain_model(
            fitted, scans, reestimates=reestimates, sites=sites, device=device, progress=progress
        )
    for line in write_explanation(explanation, out, render_explanation_page):
        say(line)
