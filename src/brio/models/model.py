"""A fitted model for use at other sites: its parts, and the margins that it computes for scans."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .. import draws
from ..cohort import Atlas, Cohort
from ..cohort.covariates import ClassNames
from ..cohort.values import compare_classes
from ..connectome import BlockRule, Connectomes, HarmonisationRule, HarmonisedConnectomes, Harmoniser
from ..connectome.connectomes import SCANS_AT_A_TIME
from ..connectome.resampling import ReestimateRequest, clip_block_length, find_design_size
from ..errors import BrioError
from ..formatting import format_count
from ..protocol.metrics import calibrate_margins
from ..schemas import StoredCount
from ..training import FittedRun, Inputs, Method
from .adaptation import Adaptation
from .attacks import MeasuredAttacks
from .evidence import Evidence
from .known_scans import KnownScans
from .patterns import Patterns
from .ranges import ScanRanges, check_ranges
from .sums import GET_AGAIN

# Stands in for the index of a refresh. Training uses 0, 1, 2, ..., so these draws differ from all of its own.
_REFRESH = draws.address("predictions")
_SEED = 0
_MOST_NAMED = 3


@dataclass(frozen=True, eq=False)
class Member:
    """One fitted run of a model, and the harmonisation that its inputs need."""

    fitted: FittedRun
    harmoniser: Harmoniser | None = None


@dataclass(frozen=True)
class TrainingFacts:
    """What a model was fitted to."""

    cohort: str  # name and fingerprint of the scans that were used
    fingerprint: str
    n_scans: StoredCount
    n_excluded: StoredCount
    sites: dict[str, tuple[StoredCount, StoredCount]]  # controls and patients of each site that the model learned from
    one_class_sites: tuple[str, ...]  # sites that it did not learn from, because they hold one class
    versions: dict[str, str]  # of brio, torch and numpy
    extraction: dict[str, Any] | None = None  # options of 'brio import fmriprep' that decide what is removed
    left_out_sites: tuple[str, ...] = ()  # as the user asked, so that they are new to it
    federated: bool = False  # whether its sites shared sums and no scans
    header: tuple[str, ...] = ()  # column names of the files of the scans, where some appear more than once; else empty


def require_finite(values: np.ndarray) -> np.ndarray:
    """Return what a model computed for scans; raise an error if a value is not finite."""
    if np.isfinite(values).all():
        return values
    raise BrioError(f"the model returns margins that are not finite; {GET_AGAIN}")


class Margins(NamedTuple):
    """Margins of S members for n scans and K re-estimates of each, or logits that are averaged over members.

    Shapes: full [S, n], reestimated [S, n, K]; of logits full [n], reestimated [n, K].
    """

    full: np.ndarray
    reestimated: np.ndarray


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fitted runs of one method with averaged logits."""

    method: Method  # with its settings
    members: tuple[Member, ...]  # one for each seed

    def collect_margins(self, plain: Connectomes, request: ReestimateRequest | None = None) -> Margins:
        """Compute the margins of scans, and of re-estimates shared by all members."""
        index = torch.arange(len(plain), device=plain.device)
        full = np.empty((len(self.members), len(plain)))
        reestimated = np.empty((*full.shape, 0 if request is None else request.K))
        for k, member in enumerate(self.members):
            inputs = self.gather_inputs(plain, member)
            for part in index.split(SCANS_AT_A_TIME):
                full[k, part.cpu().numpy()] = self.method.predict(member.fitted, inputs.take(part)).margin
            if request is not None:
                for chunk, scans in inputs.iterate_reestimates(request):
                    margin = self.method.predict(member.fitted, scans).margin
                    reestimated[k, chunk] = np.reshape(margin, (len(chunk), request.K))
        return Margins(require_finite(full), require_finite(reestimated))

    def average_members(self, margins: Margins) -> Margins:
        """Turn margins into logits of probabilities, and average them over members; shapes [n] and [n, K]."""
        details = [member.fitted.details for member in self.members]
        logits = ([calibrate_margins(*pair) for pair in zip(part, details, strict=True)] for part in margins)
        return Margins(*(require_finite(np.mean(part, axis=0)) for part in logits))

    def compute_contributions(self, plain: Connectomes) -> np.ndarray | None:
        """Compute what each factor adds to the margin of each scan, for every member.

        Shapes: returns [S, n, J + 1].

        The last column is the intercept, and each row adds up to the margin. Returns None if the method has no factors.
        """
        if self.method.intercept(self.members[0].fitted) is None:
            return None
        parts = []
        for member in self.members:
            scans = self.gather_inputs(plain, member).take(torch.arange(len(plain), device=plain.device))
            a = self.method.compute_contributions(member.fitted, scans)
            intercept = np.full((len(a), 1), self.method.intercept(member.fitted))
            parts.append(np.hstack([a / a.shape[1] ** 0.5, intercept]))
        return np.stack(parts)

    def gather_inputs(self, plain: Connectomes, member: Member) -> Inputs:
        """Gather scans in the form that a member uses."""
        connectomes = plain if member.harmoniser is None else HarmonisedConnectomes(plain, member.harmoniser)
        return self.method.gather_inputs(connectomes)


@dataclass(frozen=True, eq=False)
class Model(Ensemble):
    """A method fitted to all sites of a cohort, with what a new hospital needs to use it.

    Shapes: mean [P, P].
    """

    atlas: Atlas  # ROIs in the order that scans must have
    classes: tuple[str, str]  # names of the labels 0 and 1; margins are positive for the second
    block_length: float  # of re-estimates, in frames, unrounded
    interval_factor: float
    ranges: ScanRanges  # of the scans it learned from
    mean: Tensor  # mean connectome of the source sites
    training: TrainingFacts
    known_scans: KnownScans  # by which it recognises scans that it learned from
    evidence: Evidence | None = None  # None where it was not evaluated
    estimator: dict[str, Any] = field(default_factory=dict)
    adaptation: Adaptation | None = None
    patterns: tuple[Patterns, ...] = ()
    attacks: MeasuredAttacks | None = None

    def __repr__(self) -> str:
        seeds, training = len(self.members), self.training
        evaluated = "" if self.evidence is not None else ", not evaluated"
        n_adapted = 0 if self.adaptation is None else self.adaptation.n_participants
        adapted = f", adapted to {format_count(n_adapted, 'participant')}" if n_adapted else ""
        return (
            f"Model({self.method.name!r}: {format_count(seeds, 'seed')}, {format_count(training.n_scans, 'scan')} of "
            f"{len(training.sites)} sites, {len(self.atlas)} ROIs ({self.atlas.name}){evaluated}{adapted})"
        )

    @property
    def harmonisation(self) -> HarmonisationRule:
        """How connectomes were harmonised."""
        harmoniser = self.members[0].harmoniser
        return HarmonisationRule() if harmoniser is None else harmoniser.rule

    def was_fitted_to(self, cohort: Cohort) -> bool:
        """Whether a cohort, after exclusions, is the one that the model was fitted to."""
        return bool(cohort.fingerprint) and cohort.fingerprint == self.training.fingerprint

    def require_own(self, cohort: Cohort, remedy: str) -> None:
        """Refuse any cohort other than the one that the model was fitted to."""
        if not self.was_fitted_to(cohort):
            own = f"{self.training.cohort}, {format_count(self.training.n_scans, 'scan')}"
            raise BrioError(f"{cohort.name}: is not the cohort that the model was fitted to ({own}); {remedy}")

    def find_learned_scans(self, cohort: Cohort) -> np.ndarray:
        """Find scans that the model was fitted to. A federated model holds no digests: all scans of its sites count."""
        learned = self.known_scans.recognise(cohort)
        if self.training.federated and "site" in cohort.participants:
            learned |= cohort.participants["site"].astype(str).isin(list(self.training.sites)).to_numpy()
        return learned

    def find_known_scans(self, cohort: Cohort) -> np.ndarray:
        """Find the scans that the model has seen, because it was fitted or adapted to them. Shape [n], bool."""
        adapted = None if self.adaptation is None else self.adaptation.known_scans
        learned = self.find_learned_scans(cohort)
        return learned if adapted is None else learned | adapted.recognise(cohort)

    def check_scans(self, plain: Connectomes) -> pd.DataFrame:
        """Describe how scans differ from those of the model, see :func:`~brio.models.ranges.check_ranges`."""
        flags = () if self.evidence is None else [one.code for one in self.evidence.reasons if one.is_flag]
        return check_ranges(self.ranges, self.mean, plain, self.find_known_scans(plain.cohort), flags)

    def compute_margins(self, plain: Connectomes, reestimates: int = 0) -> Margins:
        """Compute the margins of scans and of re-estimates of each, see :meth:`Ensemble.collect_margins`.

        Re-estimates follow a balanced design (:mod:`brio.connectome.resampling`), so they depend on the scan alone.
        """
        if not reestimates:
            return self.collect_margins(plain)
        request = self.request_reestimates(plain, find_design_size(reestimates))._replace(balanced=True)
        margins = self.collect_margins(plain, request)
        change = margins.reestimated - margins.reestimated.mean(axis=-1, keepdims=True)
        scale = np.sqrt(plain.find_design_scales(request))[:, None]
        return margins._replace(reestimated=margins.full[..., None] + scale * change)

    def compute_logits(self, plain: Connectomes, reestimates: int = 0) -> Margins:
        """Compute the logits of the probabilities of scans [n] and of their re-estimates [n, K]."""
        return self.average_members(self.compute_margins(plain, reestimates))

    def average_members(self, margins: Margins) -> Margins:
        """Average members as :meth:`Ensemble.average_members` does, then apply the adaptation, if there is one."""
        logits = super().average_members(margins)
        if self.adaptation is None:
            return logits
        return Margins(*(require_finite(self.adaptation.apply(part)) for part in logits))

    def request_reestimates(self, plain: Connectomes, reestimates: int) -> ReestimateRequest:
        """Request drawn re-estimates of all scans, the same for all members."""
        blocks = clip_block_length(self.block_length, plain.n_frames, BlockRule())
        return ReestimateRequest(np.arange(len(plain)), blocks, _SEED, _REFRESH, reestimates)


def check_atlas(atlas: Atlas, cohort: Cohort) -> None:
    """Refuse scans whose ROIs are not those of a model."""
    unnamed = atlas.is_unnamed or cohort.atlas.is_unnamed
    theirs, own = (one.rois["name"].astype(str).tolist() for one in (cohort.atlas, atlas))
    if len(theirs) != len(own):
        raise BrioError(
            f"the scans have {len(theirs)} ROIs, but the model was fitted to {len(own)} (atlas '{atlas.name}'); "
            f"{_advise_on_number(atlas, cohort, [] if unnamed else theirs, own)}"
        )
    u = next((u for u in range(len(own)) if theirs[u] != own[u]), None)
    if unnamed or u is None:
        return
    match = atlas.find_rows(theirs)  # a header may hold codes instead of names
    if match is None:
        raise BrioError(
            f"the scans have another atlas: column {u + 1} is {theirs[u]} ({cohort.atlas.name}), but the model has "
            f"{own[u]} ({atlas.name}); extract time series with the atlas of the model"
        )
    if not np.array_equal(match[0], np.arange(len(atlas))):
        is_folder = cohort.provenance.get("kind") == "cohort"
        files = " and the files from which the cohort was imported" if is_folder else ""
        raise BrioError(
            f"the scans have the ROIs of the model in another order: column {u + 1} is {theirs[u]}, but the model has "
            f"{own[u]} there; reorder the columns, or give the rois.tsv of the model with --atlas-table{files}"
        )


def _advise_on_number(atlas: Atlas, cohort: Cohort, theirs: list[str], own: list[str]) -> str:
    """Say what to do about scans with too many or too few ROIs: names tell which are surplus or missing."""
    elsewhere = "extract time series with that atlas"
    if (cohort.n_frames == len(atlas)).all():
        return f"the scans have {len(atlas)} rows; if the rows are the ROIs, transpose the scans"
    if not theirs:
        return elsewhere + (", or leave out additional columns with --drop-roi" if cohort.n_rois > len(atlas) else "")
    lacking = [name for name in own if name not in theirs]
    if not lacking:
        extra = [name for name in theirs if name not in own]
        options = " ".join(f"--drop-roi {shlex.quote(name)}" for name in extra[:_MOST_NAMED])
        options += f" and {len(extra) - _MOST_NAMED} more" if len(extra) > _MOST_NAMED else ""
        is_folder = cohort.provenance.get("kind") == "cohort"
        return f"give the files from which the cohort was imported, with {options}" if is_folder else f"add {options}"
    if len(lacking) < len(own):
        return f"they lack '{lacking[0]}'" + (f" and {len(lacking) - 1} more; " if lacking[1:] else "; ") + elsewhere
    return elsewhere


def check_classes(classes: tuple[str, str], cohort: Cohort) -> None:
    """Refuse labelled scans whose classes are swapped."""
    compared = compare_classes(cohort.classes, classes)
    controls = {ClassNames(*pair).controls for pair in (cohort.classes, classes)} - {None}
    if cohort.labelled.any() and (compared == "swapped" or (compared == "other" and len(controls) == 2)):
        zero, one = cohort.classes
        raise BrioError(
            f"{cohort.name}: its classes are swapped: 0 is {zero} and 1 is {one}, but the model has {classes[0]} for 0 "
            f"and {classes[1]} for 1; exchange the values of --patient and --control, or leave the labels out"
        )
