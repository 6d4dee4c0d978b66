"""How much more two halves of a scan differ than its re-estimates say.

Blocks of a few frames keep the fast dynamics of a scan, but not what changes from minute to minute: wakefulness,
motion, drift. So the spread of re-estimates is too small for an interval about other minutes. The halves of source
scans say by how much.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..cohort import Cohort
from ..cohort.cohort import locate_scans
from ..cohort.scans import SESSION_FRAMES, find_live_rois, find_valid_frames, read_session_frames, require_frames
from ..connectome import BlockRule, Connectomes, HarmonisationRule, fit_harmoniser
from ..connectome.connectomes import LEAST_FRAMES
from ..connectome.resampling import choose_balanced_subset
from ..console import Progress, silent
from ..device import resolve_device
from ..errors import BrioError
from ..jobs import JobSpec, run_job
from ..jobs.job import Job, Say, check_choice, check_harmonise, check_method, ignore, prepare_job
from ..jobs.run import train_final_runs
from ..jobs.spec import settle_without_validation
from ..methods import find_method, make_method
from ..protocol import LEAST_SITES, Fold, average_margins, find_two_class_sites, make_training_fold
from ..results.files import EVALUATION, MEMBERS, PLAN
from ..storage import open_scratch_folder, remove_empty_folder, remove_quietly
from ..training import Method, Run
from ..version import __version__
from .adaptation import choose_widths, expect_gain, fit_adaptation
from .attacks import MeasuredAttacks, fit_halves, measure_attacks
from .evidence import Evidence, gather_evidence
from .known_scans import list_known_scans
from .model import Member, Model, TrainingFacts, check_atlas, check_classes
from .patterns import Patterns, read_scans, summarise_reading
from .predict import DEFAULT_REESTIMATES
from .ranges import LEAST_SITES_OF_MODEL, ONE_SITE, check_left_out_sites, learn_ranges

SCANS = 256


def halve_scans(cohort: Cohort) -> tuple[Cohort, Cohort]:
    """Return the cohort of the first halves of all scans, and that of their second halves.

    Halves of a scan hold equally many valid frames; the last of an odd number is left out. Of a scan that is averaged
    over sessions, they are the halves of all its sessions.
    """
    sessions = read_session_frames(cohort.participants) or [np.empty(0, dtype=np.int64)] * len(cohort)
    parts = [_split_valid_frames(cohort.scan(i), own) for i, own in enumerate(sessions)]
    lengths = np.array([sum(len(part) // 2 for part in own) for own in parts], dtype=np.int64)
    table = cohort.participants.assign(n_frames=lengths)
    if SESSION_FRAMES in table:
        halved = ["+".join(str(len(part) // 2) for part in own) if len(own) > 1 else None for own in parts]
        table[SESSION_FRAMES] = halved
    halves = []
    for second in (False, True):
        frames = np.concatenate([_take_half(part, second) for own in parts for part in own])
        halves.append(
            replace(
                cohort, frames=frames, starts=locate_scans(lengths), n_frames=lengths, participants=table, path=None
            )
        )
    return halves[0], halves[1]


def _split_valid_frames(scan: np.ndarray, sessions: np.ndarray) -> list[np.ndarray]:
    """Valid frames of each session of a scan."""
    valid, ends = find_valid_frames(scan, find_live_rois(scan)), np.cumsum(sessions)[:-1]
    return [part[own] for part, own in zip(np.split(scan, ends), np.split(valid, ends), strict=True)]


def _take_half(frames: np.ndarray, second: bool) -> np.ndarray:
    n = len(frames) // 2
    return frames[n : 2 * n] if second else frames[:n]


def learn_interval_factor(model: Model, connectomes: Connectomes, scans: np.ndarray) -> float:
    """Learn the factor on the spread of re-estimates that makes intervals fit the halves of source scans.

    It is the root mean squared difference of the logits of two halves, each in units of what the re-estimates of the
    first half suggest; at least 1. So it also allows for what a short scan does not tell about its own spread. Scans
    with a half that is too short for a connectome or has no signal are left out; if none remains, the factor is 1, with
    a warning.
    """
    cohort = connectomes.cohort
    chosen = scans[choose_balanced_subset(connectomes.ids[scans], cohort.sites[scans], cohort.labels[scans], SCANS, 0)]
    halves = halve_scans(cohort.select(np.sort(chosen)))
    usable = np.all([[_is_usable(half.scan(i)) for i in range(len(half))] for half in halves], axis=0)
    if not usable.any():
        warnings.warn(
            f"no source scan has two halves of at least {LEAST_FRAMES} usable frames: intervals do not allow for what "
            "changes from minute to minute, and may be too narrow",
            stacklevel=2,
        )
        return 1.0
    first, second = (Connectomes(half.select(usable), connectomes.device) for half in halves)
    logit, resampled = model.compute_logits(first, DEFAULT_REESTIMATES // 2)  # blocks as far apart as of whole scans
    other, _ = model.compute_logits(second)
    expected = 2 * resampled.var(axis=1, ddof=1)
    varied = expected > 0
    if not varied.any():
        return 1.0
    return max(1.0, float(np.sqrt((np.square(other - logit)[varied] / expected[varied]).mean())))


def _is_usable(half: np.ndarray) -> bool:
    return len(half) >= LEAST_FRAMES and bool(find_live_rois(half).any())


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

    A closed-form model chooses its penalty by inner folds over all sites. A network chooses its epoch on two
    validation sites, and is then trained again on all sites to that epoch; where scans are harmonised it is not
    trained again, because harmonisation is fitted without the validation sites. With fewer than four sites with both
    classes, inner folds choose its epoch: each of three sites in turn, or fifths of the participants of two sites.
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
        raise BrioError(
            f"'{method.name}' is fitted to all sites and chooses nothing by validation sites; leave out "
            "--validation-site (validation_sites)"
        )
    job = prepare_job(spec, progress, say, [method]) if prepared is None else prepared
    require_frames(job.cohort.participants, job.cohort.name, "a model, whose intervals come from re-estimates,")
    _check_number_of_sites(job.cohort, to_evaluate)
    wanted = validation_sites or spec.protocol_settings.validation_sites
    method, runs = define_final_model(method.name, values, job.cohort, job.seeds, wanted, rule)
    fold = runs[0].fold
    gathered = None if evidence is None else _gather_first(evidence, job, method, say)
    job.announce_exclusions()
    if harmonised and fold.validation_sites:
        say(f"not learned from, since harmonisation is fitted without them: {', '.join(fold.validation_sites)}")
    if fold.one_class_sites:
        say(f"not learned from, one class only: {', '.join(fold.one_class_sites)}")
    if wanted == "auto" and method.needs_validation and not len(fold.validation):
        say("too few sites for validation sites: the number of epochs is chosen by inner folds")
    members = _fit_members(job, method, runs, folder)
    with job.device.network_precision():
        model = complete_model(method, members, job.connectomes, job.cohort_before_exclusions)
    if to_evaluate:
        return evaluate_model(model, job, progress, folder=folder)
    return model if gathered is None else model.with_evidence(gathered)


def require_consent_to_scans(method: Method, holds_scans: bool) -> None:
    """Refuse to write numbers of single source scans, unless the user has said that the model may hold them."""
    if method.facts.keeps_scans and not holds_scans:
        raise BrioError(
            f"a model of '{method.name}' holds numbers of single source scans: {method.facts.keeps_scans}. Whoever has "
            "it can recognise participants and read their labels. Choose another method, such as log-ridge, or give "
            "--holds-scans (holds_scans=True) and treat the model as participants' data"
        )


def _gather_first(folder: str | Path, job: Job, method: Method, say: Say) -> Evidence:
    """Gather the evidence before anything is fitted, so that a folder that does not fit costs no training."""
    rule = job.spec.harmonisation_rule
    gathered = gather_evidence(
        folder,
        method.name,
        job.cohort.fingerprint,
        asdict(method.settings),
        rule if rule.kind != "none" else HarmonisationRule(),
        job.cohort,
        partial(_check_left_out_sites, job.connectomes),
    )
    for words in gathered.differences:
        say(f"warning: the evidence differs from the model: {words}")
    return gathered


def _check_number_of_sites(cohort: Cohort, to_evaluate: bool) -> None:
    n_sites = len(find_two_class_sites(cohort))
    if n_sites < LEAST_SITES_OF_MODEL:
        raise BrioError(ONE_SITE)
    if to_evaluate and n_sites < LEAST_SITES:
        raise BrioError(
            f"evaluating a model at each site in turn needs at least {LEAST_SITES} sites with both classes, but there "
            f"are {n_sites}; add sites, or leave out --evaluate"
        )


def _check_left_out_sites(connectomes: Connectomes) -> pd.DataFrame:
    """Check the scans of each site against the ranges of the others, in so far as a model would learn from them."""
    two_class = find_two_class_sites(connectomes.cohort)
    return check_left_out_sites(connectomes, np.flatnonzero(np.isin(connectomes.cohort.sites, two_class)))


def complete_model(method: Method, members: Sequence[Member], connectomes: Connectomes, whole: Cohort) -> Model:
    """Add to fitted runs what a new hospital needs: ranges of source scans, intervals, what was learned from."""
    cohort, folds = connectomes.cohort, [member.fitted.run.fold for member in members]
    learned = np.unique(np.concatenate([method.training_scans(cohort, fold) for fold in folds]))
    ranges, mean = learn_ranges(connectomes, learned)
    model = Model(
        method=method,
        members=tuple(members),
        atlas=cohort.atlas,
        classes=cohort.classes,
        block_length=members[0].fitted.block_length or _estimate_block_length(connectomes, learned),
        interval_factor=1.0,
        ranges=ranges,
        mean=mean,
        training=_describe_training(cohort, whole, learned, folds[0]),
        known_scans=list_known_scans(cohort.select(learned)),
    )
    factor = learn_interval_factor(model, connectomes, learned)
    return replace(model, interval_factor=factor, patterns=_learn_patterns(model, connectomes, learned))


def settle_final_settings(name: str, values: Mapping[str, Any], harmonised: bool = False) -> Method:
    """Make a method with the settings that a final model needs, unless the user has set them otherwise.

    Closed-form models choose by inner folds, networks are trained again on all sites unless scans are harmonised.
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

    A method that needs no validation scans learns from all sites, whatever ``validation_sites`` says.
    """
    rule = rule or HarmonisationRule()
    method = settle_final_settings(name, values, rule.kind != "none")
    wanted = validation_sites if method.needs_validation else 0
    runs = [Run(make_training_fold(cohort, seed, wanted), seed) for seed in seeds]
    folds = [run.fold for run in runs]
    check_choice(method, cohort, folds, too_few_sites=wanted == "auto", final=True)
    check_method(method, cohort, folds, rule)
    check_harmonise(cohort, rule, [])
    return method, runs


def evaluate_model(
    model: Model, spec: JobSpec | Job, progress: Progress = silent, say: Say = ignore, folder: Path | None = None
) -> Model:
    """Evaluate the method of a model at every site in turn, with the settings of the model, and add the evidence.

    Closed-form methods are also fitted to each half of the participants, to measure what the model gives away of them.
    """
    job = spec if isinstance(spec, Job) else prepare_job(spec, progress, say, [model.method])
    spec, name = job.spec, model.method.name
    own = {k: v for k, v in asdict(model.method.settings).items() if k not in find_method(name).fixed}
    others = {k: v for k, v in spec.settings.items() if "." in k}
    if not model.method.needs_validation:
        others["protocol.validation_sites"] = 0
    with _open_place(spec, folder, EVALUATION) as (evaluation, place):
        evaluation = replace(evaluation, settings={**own, **others}, protocol="loso", folds=None, records_only=True)
        run_job(evaluation, place, progress, say)
        model = add_evidence(model, place, job.connectomes)
    return replace(model, attacks=_measure_attacks(model, job))


def add_evidence(model: Model, folder: str | Path, connectomes: Connectomes | None = None) -> Model:
    """Return a model with the evidence that a finished job has on its method, see :func:`gather_evidence`."""
    cohort = None if connectomes is None else connectomes.cohort
    if cohort is not None and not model.was_fitted_to(cohort):
        raise BrioError(
            f"{cohort.name}: is not the cohort that the model was fitted to ({model.training.cohort}, "
            f"{model.training.n_scans} scans); give that one, after exclusions"
        )
    settings = asdict(model.method.settings)
    check = None if connectomes is None else partial(_check_left_out_sites, connectomes)
    fingerprint, rule = model.training.fingerprint, model.harmonisation
    evidence = gather_evidence(folder, model.method.name, fingerprint, settings, rule, cohort, check)
    return model.with_evidence(evidence)


def _measure_attacks(model: Model, job: Job) -> MeasuredAttacks | None:
    """Measure what the method gives away, where it is fitted in closed form and the halves of enough sites allow it."""
    if model.method.facts.epochs is not None or model.harmonisation.kind != "none":
        return None
    try:
        fitted = fit_halves(model.method, job.connectomes)
    except BrioError:  # too few participants of a class for halves
        return None
    return measure_attacks(model.method, job.connectomes, fitted, "this cohort")


def _fit_members(job: Job, method: Method, runs: list[Run], folder: Path | None) -> tuple[Member, ...]:
    """Fit one run for each seed, with the engine of the job."""
    rule = job.spec.harmonisation_rule
    with _open_place(job.spec, folder, MEMBERS) as (spec, place):
        fitted_runs = train_final_runs(replace(job, spec=spec), method, runs, place)
    if rule.kind == "none":
        return tuple(Member(fitted) for fitted in fitted_runs)
    return tuple(Member(f, fit_harmoniser(job.connectomes, f.run.fold.source, rule)) for f in fitted_runs)


def remove_fit_job(folder: Path) -> None:
    """Remove what :func:`fit_model` and :func:`evaluate_model` stored in a folder, once the model is written."""
    for place in (folder / MEMBERS, folder / EVALUATION):
        if (place / PLAN).is_file():  # else it is not a job of brio
            remove_quietly(place)
    remove_empty_folder(folder)


@contextmanager
def _open_place(spec: JobSpec, folder: Path | None, name: str) -> Iterator[tuple[JobSpec, Path]]:
    """Yield a place for a job in a folder, or in a temporary one, where nobody could resume it."""
    if folder is not None:
        yield spec, folder / name
    elif spec.engine is not None and spec.engine.shares_folder:
        raise BrioError("workers need a folder that all of them can write to; give one")
    else:
        with open_scratch_folder() as scratch:
            yield replace(spec, checkpoint_every=0), scratch / name


def _learn_patterns(model: Model, connectomes: Connectomes, learned: np.ndarray) -> tuple[Patterns, ...]:
    """What each member reads, over the scans that the model learned from; empty where its method explains nothing."""
    method, labels = model.method, connectomes.cohort.labels[learned]
    if method.explain(model.members[0].fitted) is None:
        return ()
    readings = (read_scans(method, m.fitted, model.gather_inputs(connectomes, m), learned) for m in model.members)
    return tuple(summarise_reading(reading, labels) for reading in readings)


def _estimate_block_length(connectomes: Connectomes, scans: np.ndarray) -> float:
    cohort = connectomes.cohort
    return connectomes.estimate_block_length(scans, cohort.sites[scans], cohort.labels[scans], BlockRule(), 0)


def _describe_training(cohort: Cohort, whole: Cohort, learned: np.ndarray, fold: Fold) -> TrainingFacts:
    sites, labels = cohort.sites[learned], cohort.labels[learned]
    counts = {str(e): np.bincount(labels[sites == e], minlength=2).tolist() for e in np.unique(sites)}
    return TrainingFacts(
        cohort=cohort.name,
        fingerprint=cohort.fingerprint,
        n_scans=len(learned),
        n_excluded=len(whole) - len(cohort),
        sites={site: (n_controls, n_patients) for site, (n_controls, n_patients) in counts.items()},
        one_class_sites=fold.one_class_sites,
        versions={"brio": __version__, "torch": torch.__version__, "numpy": np.__version__},
        header=tuple(cohort.provenance.get("header", ())),
    )


def adapt_model(
    model: Model,
    cohort: Cohort,
    *,
    prevalence: float | None = None,
    slope_width: float | None = None,
    intercept_width: float | None = None,
    device: str = "auto",
) -> Model:
    """Adapt a model to a hospital: slope and intercept of its logits change, its weights never do.

    Both are fitted to the labelled scans of the hospital and shrunk towards no change, so that few scans do little.
    Scans that are no connectomes of its regions (the flag ``foreign``) are left out. An adapted model is adapted anew
    from the original.
    """
    widths = choose_widths(model.evidence, slope_width, intercept_width)
    check_atlas(model.atlas, cohort)
    check_classes(model.classes, cohort)
    labelled = _select_labelled(model, cohort)
    compute = resolve_device(device)
    local = _drop_foreign_scans(model, Connectomes(labelled, compute.torch_device))
    original = replace(model, adaptation=None)
    with compute.network_precision():
        logits, _ = original.compute_logits(Connectomes(local, compute.torch_device))
    source_share = find_implied_share(model)
    people, logits = average_margins(local, np.arange(len(local)), logits)
    labels = local.labels[people]
    adaptation = fit_adaptation(labels, logits, widths, prevalence, source_share)
    adaptation = expect_gain(adaptation, labels, logits, source_share)
    adaptation = replace(
        adaptation,
        n_foreign=len(labelled) - len(local),
        known_scans=list_known_scans(local),
    )
    return replace(original, adaptation=adaptation)


def find_implied_share(model: Model) -> float:
    """Return the share of patients that the logits of a model stand for: one half where its loss balances classes."""
    if model.method.facts.balances_classes:
        return 0.5
    n_controls, n_patients = np.array(list(model.training.sites.values())).sum(0)
    return float(n_patients / (n_patients + n_controls))


def _select_labelled(model: Model, cohort: Cohort) -> Cohort:
    """Select the scans with a label; an error where there are none, or the model learned from one of them."""
    if not cohort.labelled.any():
        raise BrioError(
            f"{cohort.name}: no scan has a label; a model is adapted to labelled scans: name their column and values "
            "with --label-column, --patient and --control"
        )
    labelled = cohort.select(cohort.labelled)
    learned = int(model.find_learned_scans(labelled).sum())
    if learned:
        which = "these very scans" if learned == len(labelled) else f"{learned} of the {len(labelled)} labelled scans"
        raise BrioError(f"{cohort.name}: the model was fitted to {which}; give scans that it has not seen")
    return labelled


def _drop_foreign_scans(model: Model, connectomes: Connectomes) -> Cohort:
    """Select the scans that are connectomes of the regions of the model; an error where none is."""
    cohort, checked = connectomes.cohort, model.check_scans(connectomes)
    meant = ~checked["flag"].str.split().map(lambda codes: "foreign" in codes).to_numpy(dtype=bool)
    if not meant.any():
        raise BrioError(
            f"{cohort.name}: none of the {len(cohort)} labelled scans is like those of the model, the first because: "
            f"{checked['reasons'].iloc[0]}; check that the columns are the regions of its rois.tsv in that order, and "
            "name them (--atlas-table), which lets brio put them in order"
        )
    return cohort.select(meant)
