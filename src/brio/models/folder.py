"""The folder of a model: safetensors, JSON and text, with a hash of every file.

=============================  ========================================================================
file                           what
=============================  ========================================================================
``model.json``                 method, settings, training, ranges, evidence and adaptation
``rois.tsv``                   ROIs in the order required of all scans
``mean.safetensors``           mean connectome of the source sites
``patterns.safetensors``       what the model uses, over all source scans, if its method can explain this
``weights-SEED.safetensors``   one member of the model
``harmonisation-SEED...``      its site effects, if sites were harmonised
``MODEL_CARD.md``              all of this for human readers
``SHA256SUMS``                 hashes, which ``sha256sum --check SHA256SUMS`` can check
=============================  ========================================================================
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..cohort import Atlas
from ..cohort.cohort import RoiRow, format_table, read_table
from ..cohort.values import refuse_unsafe_names
from ..connectome import HarmonisationRule, Harmoniser
from ..connectome.harmonisation import Combat, Residualiser
from ..errors import BrioError, file_error
from ..formatting import format_percent
from ..methods import find_method
from ..methods.registry import restore_method
from ..protocol import Fold
from ..results.files import read_json
from ..results.records import RunDetails
from ..schemas import NOT_EMPTY, Setting, StoredCount, StoredShare, from_json, show_value, to_json
from ..settings import format_setting
from ..storage import SUMS, create_whole_folder, write_new, write_sums
from ..training import FittedRun, Method, Run, TensorSpec, group_tensors, name_tensors
from ..version import __version__
from . import evidence, ranges
from .adaptation import Adaptation
from .attacks import MeasuredAttacks, read_measured_attacks
from .evidence import Evidence, choose_rule
from .known_scans import KnownScans
from .model import Member, Model, TrainingFacts
from .patterns import Patterns
from .predict import DEFAULT_ACCURACY
from .ranges import ScanRanges
from .sums import CARD, GET_AGAIN, MEAN, MODEL, ROIS, check_sums
from .text import fill_text

FORMAT = 2
"""Version of the format of a model folder."""

PATTERNS = "patterns.safetensors"
StoredSize = Annotated[float, Meta(gt=0, le=1e9)]


@dataclass(frozen=True)
class MemberRecord:
    """What ``model.json`` contains for one member; its tensors are in separate files."""

    seed: StoredCount
    validation_sites: tuple[str, ...]
    validation_auc: StoredShare
    selected_epoch: StoredCount | None
    trained_epochs: StoredCount | None
    block_length: StoredSize | None
    details: dict[str, Any]
    harmonised_sites: tuple[str, ...] | None  # whose effects it has; empty where covariates are removed


@dataclass(frozen=True)
class ModelRecord:
    """The content of ``model.json``."""

    format: int
    brio: str
    method: str
    version: int
    settings: dict[str, Setting]
    classes: tuple[str, str]
    atlas: str
    block_length: StoredSize
    interval_factor: StoredSize
    harmonise: HarmonisationRule | None
    members: Annotated[tuple[MemberRecord, ...], NOT_EMPTY]
    training: TrainingFacts
    ranges: ScanRanges
    known_scans: KnownScans
    evidence: Evidence | None = None
    estimator: dict[str, Any] = field(default_factory=dict)
    adaptation: Adaptation | None = None
    attacks: MeasuredAttacks | None = None


_OF_RUN = ("validation_auc", "selected_epoch", "trained_epochs", "block_length", "details")
"""Fields that the record of a member takes unchanged from its fitted run."""
_OF_MODEL = (
    *("classes", "block_length", "interval_factor", "training", "ranges", "known_scans", "evidence", "estimator"),
    *("adaptation", "attacks"),
)
"""Fields that ``model.json`` takes unchanged from the model."""


def write_model(model: Model, out: str | Path) -> None:
    """Write a model to a new folder atomically."""
    with create_whole_folder(Path(out)) as folder:
        files: dict[str, str | dict[str, Tensor]] = {MODEL: _write_record(model), ROIS: format_table(model.atlas.rois)}
        files |= {MEAN: {"mean": model.mean}, CARD: write_card(model)}
        if model.patterns:
            named = zip(model.members, model.patterns, strict=True)
            arrays = {f"{m.fitted.run.seed}.{name}": array for m, p in named for name, array in vars(p).items()}
            files[PATTERNS] = {name: torch.as_tensor(array) for name, array in arrays.items() if array is not None}
        for member in model.members:
            fitted, harmoniser = member.fitted, member.harmoniser
            tensors = name_tensors(fitted.parameters, fitted.state._replace(training={}))
            files[f"weights-{fitted.run.seed}.safetensors"] = tensors
            if harmoniser is not None:
                effects = vars(harmoniser.effects) | {
                    name: getattr(harmoniser, name) for name in ("covariate_mean", "covariate_sd")
                }
                tensors = {name: torch.from_numpy(np.asarray(a)) for name, a in effects.items() if name != "sites"}
                files[f"harmonisation-{fitted.run.seed}.safetensors"] = tensors | {"fill": harmoniser.dead_roi_fill}
        for name, content in files.items():
            if isinstance(content, dict):
                own = save({key: tensor.detach().cpu().clone().contiguous() for key, tensor in content.items()})
            write_new(folder / name, content if isinstance(content, str) else own)
        write_sums(folder, list(files))


def _write_record(model: Model) -> str:
    record = ModelRecord(
        format=FORMAT,
        brio=__version__,
        method=model.method.name,
        version=model.method.version,
        settings=asdict(model.method.settings),
        atlas=model.atlas.name,
        harmonise=None if model.harmonisation.kind == "none" else model.harmonisation,
        members=tuple(
            MemberRecord(
                seed=fitted.run.seed,
                validation_sites=fitted.run.fold.validation_sites,
                harmonised_sites=None if h is None else h.effects.sites,
                **{name: getattr(fitted, name) for name in _OF_RUN},
            )
            for fitted, h in ((member.fitted, member.harmoniser) for member in model.members)
        ),
        **{name: getattr(model, name) for name in _OF_MODEL},
    )
    return json.dumps(to_json(record), indent=1, allow_nan=False) + "\n"


def write_card(model: Model) -> str:
    """Write the card of a model as Markdown."""
    measured = read_measured_attacks(model.method.name)  # on ABIDE
    context = vars(model) | {"attacks": model.attacks or measured}
    return fill_text(
        "card.md.j2",
        **context,
        model=model,
        facts=model.method.facts,
        settings={name: format_setting(value) for name, value in vars(model.method.settings).items()},
        rule=None if model.evidence is None else choose_rule(model.evidence.rules, DEFAULT_ACCURACY),
        wanted_accuracy=DEFAULT_ACCURACY,
        measured=measured,
        n_sessions=len(model.known_scans.digests) - model.training.n_scans,
        flags=evidence,
        usual=ranges,
        percent=format_percent,
        describe_range=_describe_range,
    )


def _describe_range(limits: tuple[float, ...] | None, unit: str) -> str:
    if limits is None:
        return "unknown"
    return f"{limits[0]:.3g} {unit}" if limits[0] == limits[1] else f"{limits[0]:.3g} to {limits[1]:.3g} {unit}"


def read_model(path: str | Path) -> Model:
    """Read a model that :func:`write_model` wrote; the folder is not trusted, and each file is checked before use."""
    folder = Path(path)
    listed = check_sums(folder)
    document = read_json(folder / MODEL, GET_AGAIN)
    if document.get("format") != FORMAT:
        stored, remedy = show_value(document.get("format")), "use the version of brio that wrote the model"
        raise file_error(folder / MODEL, f"has format {stored}, but this version of brio reads format {FORMAT}", remedy)
    record = from_json(ModelRecord, document, folder / MODEL, GET_AGAIN)
    for k, one in enumerate(record.members):
        from_json(RunDetails, one.details, folder / MODEL, GET_AGAIN, f"members[{k}].details")
    _check_record(record, folder / MODEL)
    named = [record.training.cohort, record.atlas, *record.classes]
    refuse_unsafe_names(named, f"{folder / MODEL}, the name of the cohort, its atlas or a class")
    method = _make_method(record, folder)
    rois = read_table(folder / ROIS, RoiRow, GET_AGAIN)
    P, rule, nothing = len(rois), record.harmonise, np.empty(0, dtype=np.int64)
    if P < 2:
        raise file_error(folder / ROIS, "has fewer than two ROIs", GET_AGAIN)

    def load(name: str, declared: dict[str, TensorSpec]) -> dict[str, Tensor]:
        if name not in listed:
            raise file_error(folder / SUMS, f"has no line for {name}, which {MODEL} requires", GET_AGAIN)
        return _load_tensors(folder / name, declared)

    mean = load(MEAN, {"mean": TensorSpec((P, P))})["mean"]
    declared, members = method.declare_tensors(P), []
    for one in record.members:
        parameters, state = group_tensors(load(f"weights-{one.seed}.safetensors", declared))
        fold = Fold("all", nothing, nothing, nothing, (), one.validation_sites, record.training.one_class_sites)
        values = {name: getattr(one, name) for name in _OF_RUN}
        fitted = FittedRun(Run(fold, one.seed), np.empty(0), parameters=parameters, state=state, **values)
        harmoniser = None
        if rule is not None and one.harmonised_sites is not None:
            effects = _declare_effects(rule, len(one.harmonised_sites), P)
            tensors = load(f"harmonisation-{one.seed}.safetensors", effects)
            harmoniser = _make_harmoniser(rule, one.harmonised_sites, tensors)
        members.append(Member(fitted, harmoniser))
    patterns: list[Patterns] = []
    if (explanation := method.explain(members[0].fitted)) is not None:
        own = {"n_scans": TensorSpec((), 1, whole=True)}
        if explanation.coefficients is not None:
            own["pattern"] = TensorSpec((P * (P - 1) // 2,))
        if explanation.assignment is not None:
            J = len(explanation.assignment)
            own |= {"factor_share": TensorSpec((J,)), "factor_mean": TensorSpec((2, J))}
            own["factor_sd"] = TensorSpec((J,), 0)
        seeds = [one.seed for one in record.members]
        tensors = load(PATTERNS, {f"{seed}.{name}": spec for seed in seeds for name, spec in own.items()})
        for seed in seeds:
            arrays = {name: tensors[f"{seed}.{name}"].numpy() for name in own}
            patterns.append(Patterns(int(arrays.pop("n_scans")), **arrays))
    return Model(
        method=method,
        members=tuple(members),
        atlas=Atlas(record.atlas, rois),
        mean=mean,
        patterns=tuple(patterns),
        **{name: getattr(record, name) for name in _OF_MODEL},
    )


def _check_record(record: ModelRecord, path: Path) -> None:
    """Refuse values that are valid on their own but contradict each other."""
    seeds, training = [one.seed for one in record.members], record.training
    n_scans = sum(sum(counts) for counts in training.sites.values())
    kind = "none" if record.harmonise is None else record.harmonise.kind
    expected = {"none": "none", "combat": "some", "residualise": "no"}[kind]
    problems = {
        "has two members with the same seed": len(set(seeds)) < len(seeds),
        f"has two classes with the same name, {show_value(record.classes[0])}": record.classes[0] == record.classes[1],
        f"states {training.n_scans} training scans, but its sites have {n_scans}": (
            training.n_scans != n_scans or not n_scans
        ),
        "does not state which version of brio fitted it (training.versions.brio)": "brio" not in training.versions,
        "has harmonisation of the kind 'none'": record.harmonise is not None and kind == "none",
    }
    problem = next((words for words, holds in problems.items() if holds), "")
    for one in record.members:
        sites = one.harmonised_sites
        found = "none" if sites is None else "some" if sites else "no"
        if found != expected or (sites and len(set(sites)) < len(sites)):
            problem = problem or f"has harmonised_sites for seed {one.seed} that do not match harmonise.kind={kind}"
    if problem:
        raise file_error(path, problem, GET_AGAIN)


def _make_method(record: ModelRecord, folder: Path) -> Method:
    remedy = "load the file of the method (--load), use the version of brio that wrote the model, or refit the model"
    try:
        find_method(record.method, list_all=False)
        remedy = GET_AGAIN
        method = restore_method(record.method, record.settings)
    except BrioError as error:
        raise file_error(folder / MODEL, str(error), remedy) from error
    if method.version != record.version:
        raise BrioError(
            f"{folder / MODEL}: was fitted by version {record.version} of '{record.method}' (brio {record.brio}), but "
            f"version {method.version} is installed. Use brio {record.brio}, or fit the model again"
        )
    return method


def _declare_effects(rule: HarmonisationRule, n_sites: int, n_rois: int) -> dict[str, TensorSpec]:
    edges, C, above = n_rois * (n_rois - 1) // 2, len(rule.covariate_names), float(np.finfo(float).tiny)
    declared = {"covariate_mean": TensorSpec((C,)), "covariate_sd": TensorSpec((C,), above)}
    declared["fill"] = TensorSpec((n_rois, n_rois))
    if rule.kind == "residualise":
        return declared | {"slope": TensorSpec((C, edges))}
    each, by_site = TensorSpec((edges,)), TensorSpec((n_sites, edges))
    declared |= {"alpha": each, "sigma": each._replace(low=above), "beta": TensorSpec((C, edges))}
    return declared | {"gamma": by_site, "delta": by_site._replace(low=above), "prior": TensorSpec((4,))}


def _make_harmoniser(rule: HarmonisationRule, sites: tuple[str, ...], tensors: dict[str, Tensor]) -> Harmoniser:
    arrays = {name: tensor.numpy() for name, tensor in tensors.items() if name != "fill"}
    scale = arrays.pop("covariate_mean"), arrays.pop("covariate_sd")
    effects = Residualiser(arrays["slope"]) if rule.kind == "residualise" else Combat(sites, **arrays)
    return Harmoniser(rule, effects, tensors["fill"], *scale)


def _load_tensors(path: Path, declared: dict[str, TensorSpec]) -> dict[str, Tensor]:
    """Load the tensors of a file; names, types and shapes are checked before any of them takes memory."""
    sizes: dict[str, int] = {}  # of axes with a name: those that the first tensor with it has
    specs: dict[str, TensorSpec] = {}
    groups = {key[:-1]: spec for key, spec in declared.items() if key.endswith("*")}
    try:
        with safe_open(path, "pt") as file:
            for name in sorted(file.keys()):
                spec = declared.get(name) or next((s for start, s in groups.items() if name.startswith(start)), None)
                part = file.get_slice(name)
                shape, dtype = part.get_shape(), part.get_dtype()
                if spec is None:
                    raise file_error(path, f"has a tensor {show_value(name)}, which this model does not use", GET_AGAIN)
                if spec.shape is not None and dtype not in (("I64",) if spec.whole else ("F32", "F64")):
                    raise file_error(path, f"{show_value(name)} has the unexpected type {dtype}", GET_AGAIN)
                axes = shape if spec.shape is None else spec.shape
                pairs = zip(shape, axes, strict=False)
                sides = [sizes.setdefault(axis, max(n, 1)) if isinstance(axis, str) else axis for n, axis in pairs]
                if len(axes) != len(shape) or sides != shape:
                    problem = f"{show_value(name)} has the shape {shape}, which does not match {ROIS} and {MODEL}"
                    raise file_error(path, problem, GET_AGAIN)
                specs[name] = spec
            missing = [name for name, spec in declared.items() if spec.shape is not None and name not in specs]
            if missing:
                raise file_error(path, f"lacks the tensor {show_value(missing[0])}", GET_AGAIN)
            tensors = {name: file.get_tensor(name) for name in specs}
    except (OSError, SafetensorError) as error:
        raise file_error(path, f"cannot be read ({error})", GET_AGAIN) from error
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise file_error(path, f"{show_value(name)} has values that are not finite", GET_AGAIN)
        if tensor.numel() and not specs[name].low <= float(tensor.min()) <= float(tensor.max()) <= specs[name].high:
            raise file_error(path, f"{show_value(name)} has values out of range", GET_AGAIN)
    return tensors
