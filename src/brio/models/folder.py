"""The folder of a model: safetensors, JSON and text, with a hash of every file.

=============================  ========================================================================
file                           what
=============================  ========================================================================
``model.json``                 method, settings, training, ranges, evidence and adaptation
``rois.tsv``                   ROIs in the order that scans must have
``mean.safetensors``           mean connectome of the source sites
``patterns.safetensors``       what it reads, over all source scans, where its method explains that
``weights-SEED.safetensors``   one member of the model
``harmonisation-SEED...``      its site effects, where sites were harmonised
``MODEL_CARD.md``              all of this for people
``SHA256SUMS``                 hashes; ``sha256sum --check SHA256SUMS`` reads it too
=============================  ========================================================================
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..cohort import Atlas
from ..cohort.cohort import RoiRow, format_table, read_table
from ..cohort.values import refuse_unsafe_names
from ..connectome import HarmonisationRule, Harmoniser
from ..connectome.harmonisation import Combat, Residualiser
from ..errors import BrioError, file_error
from ..methods import find_method, make_method
from ..protocol import Fold
from ..results.files import read_json, write_atomically
from ..results.records import Details
from ..schemas import NOT_EMPTY, Setting, StoredCount, StoredShare, from_json, to_json
from ..schemas.records import show_value
from ..schemas.stored_values import Range
from ..storage import create_whole_folder, write_sums
from ..training import FittedRun, Method, Run, TensorSpec, group_tensors, name_tensors
from ..version import __version__
from .adaptation import Adaptation
from .attacks import MeasuredAttacks
from .card import write_card
from .evidence import Evidence
from .known_scans import KnownScans
from .model import Member, Model, TrainingFacts
from .patterns import Patterns
from .ranges import ScanRanges
from .sums import CARD, GET_AGAIN, MEAN, MODEL, ROIS, check_sums, require_listed

FORMAT = 2
"""Version of the format of a model folder."""

PATTERNS = "patterns.safetensors"
StoredSize = Annotated[float, Range("a number above 0 and at most 1e9", 0, 1e9, open_below=True)]
FIND_METHOD = "load the file that declares it (--load), use the version of brio that wrote the model, or fit it again"


@dataclass(frozen=True)
class MemberRecord:
    """What ``model.json`` says of one member; its tensors lie in files of their own."""

    seed: StoredCount
    validation_sites: tuple[str, ...]
    validation_auc: StoredShare
    selected_epoch: StoredCount | None
    trained_epochs: StoredCount | None
    block_length: StoredSize | None
    details: Details
    harmonised_sites: tuple[str, ...] | None


@dataclass(frozen=True)
class ModelRecord:
    """What ``model.json`` holds."""

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


def write_model(model: Model, out: str | Path) -> None:
    """Write a model to a new folder, which is there whole or not at all."""
    with create_whole_folder(Path(out)) as folder:
        _write_files(model, folder)


def _write_files(model: Model, folder: Path) -> None:
    names = [MODEL, ROIS, MEAN, CARD]
    document = to_json(_make_record(model))
    text = json.dumps(document, indent=1, allow_nan=False, default=lambda value: value.tolist())
    write_atomically(folder / MODEL, text + "\n")
    write_atomically(folder / ROIS, format_table(model.atlas.rois))
    write_atomically(folder / CARD, write_card(model))
    _save_tensors({"mean": model.mean}, folder / MEAN)
    if model.patterns:
        named = zip(model.members, model.patterns, strict=True)
        tensors = {f"{m.fitted.run.seed}.{key}": t for m, p in named for key, t in p.to_tensors().items()}
        _save_tensors(tensors, folder / PATTERNS)
        names.append(PATTERNS)
    for member in model.members:
        seed, fitted = member.fitted.run.seed, member.fitted
        state = fitted.state._replace(training={})
        _save_tensors(name_tensors(fitted.parameters, state), folder / _name_weights(seed))
        names.append(_name_weights(seed))
        if member.harmoniser is not None:
            _save_tensors(_harmoniser_tensors(member.harmoniser), folder / _name_harmonisation(seed))
            names.append(_name_harmonisation(seed))
    write_sums(folder, names)


def _make_record(model: Model) -> ModelRecord:
    rule = model.harmonisation
    return ModelRecord(
        format=FORMAT,
        brio=__version__,
        method=model.method.name,
        version=model.method.version,
        settings=asdict(model.method.settings),
        classes=model.classes,
        atlas=model.atlas.name,
        block_length=model.block_length,
        interval_factor=model.interval_factor,
        harmonise=None if rule.kind == "none" else rule,
        members=tuple(_make_member_record(member) for member in model.members),
        training=model.training,
        ranges=model.ranges,
        evidence=model.evidence,
        estimator=model.estimator,
        adaptation=model.adaptation,
        known_scans=model.known_scans,
        attacks=model.attacks,
    )


def _make_member_record(member: Member) -> MemberRecord:
    fitted = member.fitted
    return MemberRecord(
        seed=fitted.run.seed,
        validation_sites=fitted.run.fold.validation_sites,
        validation_auc=fitted.validation_auc,
        selected_epoch=fitted.selected_epoch,
        trained_epochs=fitted.trained_epochs,
        block_length=fitted.block_length,
        details=fitted.details,
        harmonised_sites=_list_harmonised_sites(member.harmoniser),
    )


def _list_harmonised_sites(harmoniser: Harmoniser | None) -> tuple[str, ...] | None:
    """List the sites whose effects a harmoniser has; empty where it removes covariates, None without one."""
    if harmoniser is None:
        return None
    return () if harmoniser.combat is None else harmoniser.combat.sites


def read_model(path: str | Path) -> Model:
    """Read a model that :func:`write_model` wrote, and check every file of it.

    A folder may come from anywhere: what a file holds is checked against what the method declares before it is used,
    and before it takes memory.
    """
    folder = Path(path)
    names = check_sums(folder)
    document = _read_document(folder)
    record = from_json(ModelRecord, document, folder / MODEL, GET_AGAIN)
    _check_record(record, folder / MODEL)
    named = [record.training.cohort, record.atlas, *record.classes]
    refuse_unsafe_names(named, f"{folder / MODEL}, name of the cohort, its atlas or a class")
    method = _make_method(record, folder)
    rois = read_table(folder / ROIS, RoiRow, GET_AGAIN)
    P, rule = len(rois), record.harmonise
    if P < 2:
        raise file_error(folder / ROIS, f"has {P} ROIs, at least two are expected", GET_AGAIN)
    mean = _load_tensors(folder / MEAN, {"mean": TensorSpec((P, P))})["mean"]
    declared, members = method.declare_tensors(P), []
    for one in record.members:
        require_listed(folder, names, _name_weights(one.seed))
        tensors = _load_tensors(folder / _name_weights(one.seed), declared)
        fitted = _make_fitted_run(one, record.training, tensors)
        harmoniser = None
        if rule is not None and one.harmonised_sites is not None:
            require_listed(folder, names, _name_harmonisation(one.seed))
            expected = _declare_harmoniser(rule, len(one.harmonised_sites), P)
            tensors = _load_tensors(folder / _name_harmonisation(one.seed), expected)
            harmoniser = _make_harmoniser(rule, one.harmonised_sites, tensors)
        members.append(Member(fitted, harmoniser))
    return Model(
        method=method,
        members=tuple(members),
        atlas=Atlas(record.atlas, rois),
        classes=record.classes,
        block_length=record.block_length,
        interval_factor=record.interval_factor,
        ranges=record.ranges,
        mean=mean,
        training=record.training,
        evidence=record.evidence,
        estimator=record.estimator,
        adaptation=record.adaptation,
        patterns=_read_patterns(folder, names, method, members, P),
        known_scans=record.known_scans,
        attacks=record.attacks,
    )


def _check_record(record: ModelRecord, path: Path) -> None:
    """Refuse what each value allows for, but all of them together do not."""
    seeds, training = [one.seed for one in record.members], record.training
    n_scans = sum(sum(counts) for counts in training.sites.values())
    kind = "none" if record.harmonise is None else record.harmonise.kind
    expected = {"none": "none", "combat": "some", "residualise": "no"}[kind]
    problem = ""
    if len(set(seeds)) < len(seeds):
        problem = "has two members of one seed"
    elif record.classes[0] == record.classes[1]:
        problem = f"has two classes of one name, {show_value(record.classes[0])}"
    elif training.n_scans != n_scans or not n_scans:
        problem = f"says that {training.n_scans} scans were learned from, but those of its sites are {n_scans}"
    elif "brio" not in training.versions:
        problem = "does not say which version of brio fitted it (training.versions.brio)"
    elif record.harmonise is not None and kind == "none":
        problem = "has harmonisation of the kind 'none'"
    for one in record.members:
        sites = one.harmonised_sites
        found = "none" if sites is None else "some" if sites else "no"
        if found != expected or (sites and len(set(sites)) < len(sites)):
            problem = problem or f"has other harmonised sites in seed {one.seed} than its harmonisation ({kind}) needs"
    if problem:
        raise file_error(path, problem, GET_AGAIN)


def _read_patterns(
    folder: Path, names: list[str], method: Method, members: list[Member], n_rois: int
) -> tuple[Patterns, ...]:
    explanation = method.explain(members[0].fitted)
    if explanation is None:
        return ()
    require_listed(folder, names, PATTERNS)
    own = {"n_scans": TensorSpec((), 1, whole=True)}
    if explanation.coefficients is not None:
        own["pattern"] = TensorSpec((n_rois * (n_rois - 1) // 2,))
    if explanation.assignment is not None:
        J = len(explanation.assignment)
        own |= {"factor_share": TensorSpec((J,)), "factor_mean": TensorSpec((2, J)), "factor_sd": TensorSpec((J,), 0)}
    seeds = [member.fitted.run.seed for member in members]
    declared = {f"{seed}.{name}": spec for seed in seeds for name, spec in own.items()}
    tensors = _load_tensors(folder / PATTERNS, declared)
    return tuple(Patterns.from_tensors({name: tensors[f"{seed}.{name}"] for name in own}) for seed in seeds)


def _read_document(folder: Path) -> dict[str, Any]:
    document = read_json(folder / MODEL, GET_AGAIN)
    if document.get("format") != FORMAT:
        stored, remedy = show_value(document.get("format")), "use the version of brio that wrote it, or a later one"
        raise file_error(folder / MODEL, f"is in format {stored}, this brio reads format {FORMAT}", remedy)
    return document


def _make_method(record: ModelRecord, folder: Path) -> Method:
    try:
        fixed = find_method(record.method, list_all=False).fixed
    except BrioError as error:
        raise file_error(folder / MODEL, str(error), FIND_METHOD) from error
    try:
        method = make_method(record.method, {k: v for k, v in record.settings.items() if k not in fixed})
    except BrioError as error:
        raise file_error(folder / MODEL, str(error), GET_AGAIN) from error
    if method.version != record.version:
        raise BrioError(
            f"{folder / MODEL}: was fitted by version {record.version} of '{record.method}' (brio {record.brio}); this "
            f"brio has version {method.version}, whose margins differ. Use brio {record.brio}, or fit the model again"
        )
    return method


def _make_fitted_run(one: MemberRecord, training: TrainingFacts, tensors: dict[str, Tensor]) -> FittedRun:
    parameters, state = group_tensors(tensors)
    none = np.empty(0, dtype=np.int64)
    fold = Fold("all", none, none, none, (), one.validation_sites, training.one_class_sites)
    return FittedRun(
        run=Run(fold, one.seed),
        test_logit=np.empty(0),
        validation_auc=one.validation_auc,
        selected_epoch=one.selected_epoch,
        trained_epochs=one.trained_epochs,
        block_length=one.block_length,
        parameters=parameters,
        state=state,
        details=one.details,
    )


_COMBAT_ARRAYS = ("alpha", "sigma", "beta", "gamma", "delta", "prior")


def _harmoniser_tensors(harmoniser: Harmoniser) -> dict[str, Tensor]:
    if harmoniser.residualiser is not None:
        arrays = {"slope": harmoniser.residualiser.slope}
    else:
        arrays = {name: getattr(harmoniser.combat, name) for name in _COMBAT_ARRAYS}
    arrays |= {"covariate_mean": harmoniser.covariate_mean, "covariate_sd": harmoniser.covariate_sd}
    return {name: torch.from_numpy(np.asarray(a)) for name, a in arrays.items()} | {"fill": harmoniser.dead_roi_fill}


def _declare_harmoniser(rule: HarmonisationRule, n_sites: int, n_rois: int) -> dict[str, TensorSpec]:
    edges, C, above = n_rois * (n_rois - 1) // 2, len(rule.covariate_names), float(np.finfo(float).tiny)
    declared = {"covariate_mean": TensorSpec((C,)), "covariate_sd": TensorSpec((C,), above)}
    declared["fill"] = TensorSpec((n_rois, n_rois))
    if rule.kind == "residualise":
        return declared | {"slope": TensorSpec((C, edges))}
    each, by_site = TensorSpec((edges,)), TensorSpec((n_sites, edges))
    declared |= {"alpha": each, "sigma": each._replace(low=above), "beta": TensorSpec((C, edges))}
    return declared | {"gamma": by_site, "delta": by_site._replace(low=above), "prior": TensorSpec((4,))}


def _make_harmoniser(rule: HarmonisationRule, sites: tuple[str, ...], tensors: dict[str, Tensor]) -> Harmoniser:
    arrays = {name: t.numpy() for name, t in tensors.items() if name != "fill"}
    scale = arrays["covariate_mean"], arrays["covariate_sd"]
    if rule.kind == "residualise":
        return Harmoniser(rule, None, tensors["fill"], *scale, Residualiser(arrays["slope"]))
    combat = Combat(sites, **{name: arrays[name] for name in _COMBAT_ARRAYS})
    return Harmoniser(rule, combat, tensors["fill"], *scale)


def _name_weights(seed: int) -> str:
    return f"weights-{seed}.safetensors"


def _name_harmonisation(seed: int) -> str:
    return f"harmonisation-{seed}.safetensors"


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    write_atomically(path, save({name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}))


_DTYPES = {False: ("F32", "F64"), True: ("I64",)}


def _load_tensors(path: Path, declared: dict[str, TensorSpec]) -> dict[str, Tensor]:
    """Load the tensors of a file; names, types and shapes are checked before any of them takes memory."""
    sizes: dict[str, int] = {}
    specs: dict[str, TensorSpec] = {}
    try:
        with safe_open(path, "pt") as file:
            for name in sorted(file.keys()):
                spec = _find_spec(name, declared)
                part = file.get_slice(name)
                shape, dtype = part.get_shape(), part.get_dtype()
                if spec is None:
                    raise file_error(path, f"has a tensor {show_value(name)}, which is not of this model", GET_AGAIN)
                if spec.shape is not None and dtype not in _DTYPES[spec.whole]:
                    raise file_error(path, f"{show_value(name)} is of type {dtype}", GET_AGAIN)
                if spec.shape is not None and not _fits(shape, spec.shape, sizes):
                    problem = f"{show_value(name)} has the shape {shape}, which does not go with {ROIS} and {MODEL}"
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


def _find_spec(name: str, declared: dict[str, TensorSpec]) -> TensorSpec | None:
    if name in declared:
        return declared[name]
    return next((spec for key, spec in declared.items() if key.endswith("*") and name.startswith(key[:-1])), None)


def _fits(shape: list[int], axes: tuple[int | str, ...], sizes: dict[str, int]) -> bool:
    """Whether a shape has the declared axes; sizes with a name are those that the first tensor with it had."""
    if len(shape) != len(axes):
        return False
    known = [
        sizes.setdefault(axis, max(n, 1)) if isinstance(axis, str) else axis
        for n, axis in zip(shape, axes, strict=True)
    ]
    return known == shape
