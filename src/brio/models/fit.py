"""Fit a method to all sites of a cohort for use at new hospitals, add evidence, and adapt a model to a hospital."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..cohort import Cohort, find_extraction
from ..cohort.scans import require_frames
from ..connectome import BlockRule, Connectomes, HarmonisationRule, fit_harmoniser
from ..connectome.connectomes import LEAST_FRAMES
from ..connectome.resampling import choose_balanced_subset
from ..console import Progress, silent
from ..device import resolve_device
from ..errors import BrioError
from ..formatting import format_count, join_names
from ..jobs import JobSpec
from ..jobs.job import Job, Say, check_harmonise, check_method, ignore, prepare_job
from ..jobs.plan import build_plan
from ..jobs.run import execute_plan, train_final_runs
from ..jobs.spec import settle_without_validation
from ..methods import find_method, make_method
from ..protocol import LEAST_SITES, average_margins, find_two_class_sites, make_training_fold
from ..results.files import EVALUATION, MEMBERS, PLAN
from ..storage import open_scratch_folder, remove_empty_folder, remove_quietly
from ..training import Method, Run
from ..version import __version__
from .adaptation import choose_widths, expect_gain, fit_adaptation
from .attacks import fit_halves, measure_attacks
from .evidence import gather_evidence
from .known_scans import list_known_scans
from .model import Member, Model, TrainingFacts, check_atlas, check_classes
from .patterns import Patterns, explain_scans, summarise_run
from .predict import PREDICTION_REESTIMATES
from .ranges import LEAST_SITES_OF_MODEL, ONE_SITE, REASONS, find_code, halve_usable_scans, learn_ranges

SCANS = 256
"""Number of source scans whose halves are used to measure how much a scan changes from minute to minute."""


def fit_model(
    spec: JobSpec | Job,
    *,
    validation_sites: Sequence[str] = (),
    holds_scans: bool = False,
    to_evaluate: bool = False,
    evidence: str | Path | None = None,
    folder: Path | None = None,
    progress: Progress = silent,
    say: Say = ignore,
) -> Model:
    """Fit a method to all sites of a cohort.

    A closed-form model chooses its penalty by inner folds over all sites. A neural network chooses its epoch on two
    validation sites, and is then trained again on all sites up to that epoch. If scans are harmonised, it is not
    trained again, because harmonisation is fitted without the validation sites. With fewer than four sites with both
    classes, inner folds choose the epoch. They withhold each of three sites in turn, or fifths of the participants of
    two sites.
    """
    prepared = spec if isinstance(spec, Job) else None
    spec = spec.spec if isinstance(spec, Job) else spec
    if len(spec.methods) != 1:
        raise BrioError(f"a model has one method, but {len(spec.methods)} were given")
    rule, harmonised = spec.harmonisation_rule, spec.harmonisation_rule.kind != "none"
    values = spec.settings_of(spec.methods[0])
    method = settle_final_settings(spec.methods[0], values, harmonised)
    require_consent_to_scans(method, holds_scans)
    if validation_sites and not method.needs_validation:
        raise BrioError(f"'{method.name}' needs no validation sites; leave out --validation-site")
    job = prepare_job(spec, progress, say, [method]) if prepared is None else prepared
    require_frames(
        job.cohort.participants, job.cohort.name, "a model with prediction intervals, which come from re-estimates,"
    )
    n_sites = len(find_two_class_sites(job.cohort))
    if n_sites < LEAST_SITES_OF_MODEL:
        raise BrioError(ONE_SITE)
    if to_evaluate and n_sites < LEAST_SITES:
        few = f"an evaluation needs at least {LEAST_SITES} sites with both classes, but there are {n_sites}"
        raise BrioError(f"{few}; add sites, or leave out --evaluate")
    wanted = validation_sites or spec.protocol_settings.validation_sites
    method, runs = define_final_model(method.name, values, job.cohort, range(job.spec.seeds), wanted, rule)
    fold, gathered = runs[0].fold, None
    if evidence is not None:  # before anything is fitted, so that a folder that does not fit costs no training
        own_rule = rule if harmonised else HarmonisationRule()
        gathered = gather_evidence(evidence, method, job.cohort.fingerprint, own_rule, job.connectomes)
        for words in gathered.differences:
            say(f"warning: the evidence differs from the model: {words}")
    job.announce_exclusions()
    why = "harmonisation is fitted without them" if harmonised else "they only choose the penalty or the epoch"
    unused: dict[tuple[str, ...], list[str]] = {}  # seeds by sites
    for run in [] if method.facts.refits else runs:
        unused.setdefault(run.fold.validation_sites, []).append(str(run.seed))
    for names, seeds in unused.items():
        which = f" with {'seeds' if len(seeds) > 1 else 'seed'} {join_names(seeds)}" if len(unused) > 1 else ""
        if names:
            say(f"sites not used for training{which} ({why}): {', '.join(names)}")
    if fold.one_class_sites:
        say(f"sites not used for training (only one class): {', '.join(fold.one_class_sites)}")
    if wanted == "auto" and method.needs_validation and not len(fold.validation):
        say("too few sites for validation sites: inner folds choose the number of epochs")
    with _open_place(spec, folder, MEMBERS) as (own, place):
        fitted = train_final_runs(replace(job, spec=own), method, runs, place)
    harmonisers = [fit_harmoniser(job.connectomes, f.run.fold.source, rule) if harmonised else None for f in fitted]
    with job.device.network_precision():
        members = [Member(*pair) for pair in zip(fitted, harmonisers, strict=True)]
        model = complete_model(method, members, job.connectomes, job.cohort_before_exclusions)
        model = replace(model, training=replace(model.training, left_out_sites=job.spec.leave_out))
    if to_evaluate:
        return evaluate_model(model, job, progress, folder=folder)
    return replace(model, evidence=gathered)


def require_consent_to_scans(method: Method, holds_scans: bool) -> None:
    """Refuse to write values from individual source scans, unless the user has allowed the model to hold them."""
    if method.facts.keeps_scans and not holds_scans:
        raise BrioError(
            f"a model of '{method.name}' stores values from individual source scans: {method.facts.keeps_scans}. "
            "Participants may be recognised from these values; choose log-ridge, or give --holds-scans and treat the "
            "model as participant data"
        )


def settle_final_settings(name: str, values: Mapping[str, Any], harmonised: bool = False) -> Method:
    """Make a method with the settings that a final model needs, unless the user has set them otherwise.

    Closed-form models choose by inner folds. Neural networks are trained again on all sites, unless scans are
    harmonised.
    """
    settled = settle_without_validation(name, values)
    method = make_method(name, settled)
    if method.needs_validation and hasattr(method.settings, "refit") and "refit" not in settled and not harmonised:
        method = make_method(name, {**settled, "refit": True})
    return method


def define_final_model(
    name: str,
    values: Mapping[str, Any],
    cohort: Cohort,
    seeds: Sequence[int],
    validation_sites: int | str | Sequence[str] = "auto",
    rule: HarmonisationRule | None = None,
) -> tuple[Method, list[Run]]:
    """Define the final model of a cohort, for ``brio fit`` and :class:`~brio.BrioClassifier` alike.

    A method that needs no validation scans is fitted to all sites, whatever ``validation_sites`` says.
    """
    rule = rule or HarmonisationRule()
    method = settle_final_settings(name, values, rule.kind != "none")
    wanted = validation_sites if method.needs_validation else 0
    runs = [Run(make_training_fold(cohort, seed, wanted), seed) for seed in seeds]
    folds = [run.fold for run in runs]
    check_method(method, cohort, folds, rule, too_few_sites=wanted == "auto", final=True)
    check_harmonise(cohort, rule, [])
    return method, runs


@contextmanager
def _open_place(spec: JobSpec, folder: Path | None, name: str) -> Iterator[tuple[JobSpec, Path]]:
    """Yield a place for a job in a folder, or in a temporary one, from which it cannot be resumed."""
    if folder is not None:
        yield spec, folder / name
    elif spec.engine is not None and spec.engine.shares_folder:
        raise BrioError("workers need a folder that all of them can write to; give one")
    else:
        with open_scratch_folder() as scratch:
            yield replace(spec, checkpoint_every=0), scratch / name


def remove_fit_job(folder: Path) -> None:
    """Remove what :func:`fit_model` and :func:`evaluate_model` stored in a folder, once the model is written."""
    for place in (folder / MEMBERS, folder / EVALUATION):
        if (place / PLAN).is_file():  # else it is not a job of brio
            remove_quietly(place)
    remove_empty_folder(folder)


def complete_model(method: Method, members: Sequence[Member], connectomes: Connectomes, whole: Cohort) -> Model:
    """Add to fitted runs what a new hospital needs: ranges of source scans, intervals and training data facts."""
    cohort, folds = connectomes.cohort, [member.fitted.run.fold for member in members]
    learned = np.unique(np.concatenate([method.training_scans(cohort, fold) for fold in folds]))
    sites, labels = cohort.sites[learned], cohort.labels[learned]
    ranges, mean = learn_ranges(connectomes, learned)
    training = TrainingFacts(
        cohort=cohort.name,
        fingerprint=cohort.fingerprint,
        n_scans=len(learned),
        n_excluded=len(whole) - len(cohort),
        sites={str(e): tuple(np.bincount(labels[sites == e], minlength=2).tolist()) for e in np.unique(sites)},
        one_class_sites=folds[0].one_class_sites,
        versions={"brio": __version__, "torch": torch.__version__, "numpy": np.__version__},
        extraction=find_extraction(cohort.provenance),
        header=tuple(cohort.provenance.get("header", ())),
    )
    block_length = members[0].fitted.block_length
    model = Model(
        method=method,
        members=tuple(members),
        atlas=cohort.atlas,
        classes=cohort.classes,
        block_length=block_length or connectomes.estimate_block_length(learned, sites, labels, BlockRule(), 0),
        interval_factor=1.0,
        ranges=ranges,
        mean=mean,
        training=training,
        known_scans=list_known_scans(cohort.select(learned)),
    )
    patterns: tuple[Patterns, ...] = ()
    if method.explain(members[0].fitted) is not None:
        explained = (explain_scans(method, m.fitted, model.gather_inputs(connectomes, m), learned) for m in members)
        patterns = tuple(summarise_run(run, labels) for run in explained)
    return replace(model, interval_factor=learn_interval_factor(model, connectomes, learned), patterns=patterns)


def learn_interval_factor(model: Model, connectomes: Connectomes, scans: np.ndarray) -> float:
    """Learn the factor by which the spread of re-estimates must be widened to match the halves of source scans.

    Blocks of a few frames preserve the fast dynamics of a scan, but not what changes from minute to minute, such as
    wakefulness, motion and drift. The spread of re-estimates is therefore too small for an interval about other
    minutes. The factor is the root mean square difference between the logits of two halves, each difference in units of
    the spread that the re-estimates of the first half suggest. It is at least 1. It therefore also allows for how
    poorly a short scan determines its own spread. Scans with a half that is too short for a connectome or has no signal
    are left out; if none remains, the factor is 1, with a warning.
    """
    cohort = connectomes.cohort
    chosen = scans[choose_balanced_subset(connectomes.ids[scans], cohort.sites[scans], cohort.labels[scans], SCANS, 0)]
    *halves, usable = halve_usable_scans(cohort.select(np.sort(chosen)))
    if not usable.any():
        lack = f"none of {len(chosen)} source scans has two halves with signal and {LEAST_FRAMES} valid frames or more"
        warnings.warn(f"{lack}, so intervals may be too narrow", stacklevel=2)
        return 1.0
    first, second = (Connectomes(half, connectomes.device) for half in halves)
    logit, resampled = model.compute_logits(first, PREDICTION_REESTIMATES // 2)  # blocks as far apart as of whole scans
    other, _ = model.compute_logits(second)
    expected = 2 * resampled.var(axis=1, ddof=1)
    varied = expected > 0
    if not varied.any():
        return 1.0
    return max(1.0, float(np.sqrt((np.square(other - logit)[varied] / expected[varied]).mean())))


def evaluate_model(
    model: Model, spec: JobSpec | Job, progress: Progress = silent, say: Say = ignore, folder: Path | None = None
) -> Model:
    """Evaluate the method of a model at every site in turn, with the settings of the model, and add the evidence.

    Closed-form methods are also fitted to each half of the participants, to measure what the model reveals about them.
    """
    job = spec if isinstance(spec, Job) else prepare_job(spec, progress, say, [model.method])
    spec, method = job.spec, model.method
    own = {k: v for k, v in asdict(method.settings).items() if k not in find_method(method.name).fixed}
    own |= {k: v for k, v in spec.settings.items() if "." in k}
    if not method.needs_validation:
        own["protocol.validation_sites"] = 0
    with _open_place(spec, folder, EVALUATION) as (evaluation, place):
        evaluation = replace(evaluation, settings=own, protocol="loso", folds=None, records_only=True)
        own_job = replace(job, spec=evaluation, progress=progress, say=say)
        execute_plan(own_job, build_plan(own_job, [method.name]), place)
        model = add_evidence(model, place, job.connectomes)
    if method.facts.epochs is not None or model.harmonisation.kind != "none":
        return replace(model, attacks=None)
    try:
        fitted = fit_halves(method, job.connectomes)
    except BrioError:  # too few participants of a class for halves
        return replace(model, attacks=None)
    return replace(model, attacks=measure_attacks(method, job.connectomes, fitted, "this cohort"))


def add_evidence(model: Model, folder: str | Path, connectomes: Connectomes | None = None) -> Model:
    """Return a model with the evidence from a finished job that evaluated its method, see :func:`gather_evidence`."""
    if connectomes is not None:
        model.require_own(connectomes.cohort, "give that cohort, after exclusions")
    fingerprint, rule = model.training.fingerprint, model.harmonisation
    return replace(model, evidence=gather_evidence(folder, model.method, fingerprint, rule, connectomes))


def adapt_model(
    model: Model,
    cohort: Cohort,
    *,
    prevalence: float | None = None,
    slope_width: float | None = None,
    intercept_width: float | None = None,
    device: str = "auto",
    say: Say = ignore,
) -> Model:
    """Adapt a model to a hospital: slope and intercept of its logits change, its weights never do.

    Both are fitted to the labelled scans of the hospital and shrunk towards no change, so that few scans have little
    effect. Scans that are not connectomes of the model's regions (the flag ``foreign``) are left out. If the model was
    already adapted, adaptation starts again from the original model.
    """
    widths = choose_widths(model.evidence, slope_width, intercept_width)
    check_atlas(model.atlas, cohort)
    check_classes(model.classes, cohort)
    if not cohort.labelled.any():
        raise BrioError(f"{cohort.name}: no scan has a label; give labels with --label-column, --patient and --control")
    labelled = cohort.select(cohort.labelled)
    learned = int(model.find_learned_scans(labelled).sum())
    if learned:
        which = f"{learned} of the {len(labelled)} labelled scans" if learned < len(labelled) else "all labelled scans"
        problem = f"the model was fitted to {which}; give scans that it has not seen"
        if model.training.federated:  # it has no digests
            problem = f"judging by site names, the model was fitted to {which}; if these scans are new, give "
            problem += "their site another name"
        raise BrioError(f"{cohort.name}: {problem}")
    compute = resolve_device(device)
    checked = model.check_scans(Connectomes(labelled, compute.torch_device))
    meant = ~find_code(checked["flag"], "foreign")
    if not meant.any():
        raise BrioError(
            f"{cohort.name}: none of the {len(labelled)} labelled scans resembles those of the model; first scan: "
            f"{checked['reasons'].iloc[0]}; put the columns in the order of the model's rois.tsv, "
            "or give their names with --atlas-table"
        )
    local, original, left_out = labelled.select(meant), replace(model, adaptation=None), ""
    if not meant.all():
        which = f"{(~meant).sum()} of {format_count(len(meant), 'labelled scan')} flagged 'foreign'"
        left_out = f"left out: {which} ({REASONS['foreign']}): {join_names(labelled.ids[~meant], most=10)}"
    with compute.network_precision():
        logits, _ = original.compute_logits(Connectomes(local, compute.torch_device))
    people, logits = average_margins(local, np.arange(len(local)), logits)
    labels, source_share = local.labels[people], find_implied_share(model)
    try:
        adaptation = fit_adaptation(labels, logits, widths, prevalence, source_share)
    except BrioError as error:
        raise BrioError("; ".join(filter(None, [f"{cohort.name}: {error}", left_out]))) from error
    if left_out:
        say(left_out)
    adaptation = expect_gain(adaptation, labels, logits, source_share)
    n_foreign = len(labelled) - len(local)
    adaptation = replace(adaptation, n_foreign=n_foreign, known_scans=list_known_scans(local))
    return replace(original, adaptation=adaptation)


def find_implied_share(model: Model) -> float:
    """Return the share of patients that the logits of a model assume: one half if its loss balances the classes."""
    if model.method.facts.balances_classes:
        return 0.5
    n_controls, n_patients = np.array(list(model.training.sites.values())).sum(0)
    return float(n_patients / (n_patients + n_controls))
