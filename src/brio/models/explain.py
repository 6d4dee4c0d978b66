"""Explain what a model reads: coefficients and patterns of edges, regions, factors, and how stable they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..connectome import Connectomes
from ..device import resolve_device
from ..domains import ReestimatesOrNone, require_number
from ..errors import BrioError
from ..memory import require_memory
from ..methods import list_methods, make_method
from ..progress import Progress, silent
from ..settings import require
from ..training import Explanation
from .explain_tables import (
    Stability,
    average_emphasis,
    average_weights,
    tabulate_edges,
    tabulate_factors,
    tabulate_profiles,
    tabulate_rois,
)
from .model import Model, check_atlas
from .patterns import CohortReading, Patterns, find_varying, read_scans, summarise_reading
from .roi_groups import RoiGroups, group_rois
from .site_stability import SitePatterns, find_reason_against_refits, refit_without_each_site

DEFAULT_REESTIMATES = 8
LEAST_SCANS = 10
"""Fewer scans give no pattern worth a look."""


@dataclass(frozen=True, eq=False)
class ModelExplanation:
    """What a model reads, as tables. Numbers of several members are averaged, those of factors are kept apart."""

    model: Model
    members: tuple[Explanation, ...]  # one for each member of the model
    groups: RoiGroups  # groups of ROIs, by which figures are ordered
    edges: pd.DataFrame | None
    rois: pd.DataFrame  # one row per ROI, see brio.models.explain_tables.tabulate_rois
    factors: pd.DataFrame | None  # one row per factor, and one per factor and ROI; None where a method has no factors
    profiles: pd.DataFrame | None
    sites: pd.DataFrame | None
    new_sites: pd.DataFrame | None
    reading: CohortReading | None  # what was read of the scans that were given


def explain_model(
    model: Model,
    cohort: Cohort | None = None,
    *,
    reestimates: int = DEFAULT_REESTIMATES,
    sites: bool = False,
    device: str = "auto",
    progress: Progress = silent,
) -> ModelExplanation:
    """Explain what a model reads.

    A model holds its coefficients, its factors, and their patterns over the scans it was fitted to. Scans are needed
    for patterns elsewhere and for stability only.
    """
    members = _explain_members(model)
    reading: CohortReading | None = None
    by_site: SitePatterns | None = None
    if sites and cohort is None:
        raise BrioError("sites are left out of a cohort: give the scans that the model was fitted to (--cohort)")
    if sites and (reason := find_reason_against_refits(model)):
        raise BrioError(f"cannot leave out sites: {reason}")
    if cohort is not None:
        require_number(reestimates, ReestimatesOrNone, "reestimates")
        require(reestimates != 1, "reestimates", reestimates, "0, or at least 2")
        # sums over all edges for each re-estimate, of scores and of values
        n_bytes = 32.0 * reestimates * cohort.n_rois**2 * len(model.members)
        require_memory(n_bytes, f"{reestimates} re-estimates of {cohort.n_rois} ROIs need", "choose fewer re-estimates")
        check_atlas(model.atlas, cohort)
        if len(cohort) < LEAST_SCANS:
            raise BrioError(f"{cohort.name}: has {len(cohort)} scans; a pattern needs at least {LEAST_SCANS}")
        if sites and not model.was_fitted_to(cohort):
            raise BrioError(
                f"{cohort.name}: is not the cohort that the model was fitted to ({model.training.cohort}, "
                f"{model.training.n_scans} scans), so fits without each of its sites say nothing about the model; give "
                "that one, with the same --with and --keep-all as for 'brio fit', or leave out --sites"
            )
        compute = resolve_device(device)
        plain = Connectomes(cohort, compute.torch_device)
        with compute.network_precision():
            reading = _read_cohort(model, plain, reestimates, progress)
            if sites:
                by_site = refit_without_each_site(model, plain, progress)
    groups = group_rois(model.atlas, model.mean)
    weights = average_weights(members, model.patterns)
    stability = Stability.gather(reading, by_site)
    return ModelExplanation(
        model=model,
        members=members,
        groups=groups,
        edges=None if weights is None else tabulate_edges(model.atlas, weights, stability),
        rois=tabulate_rois(model.atlas, groups, weights, average_emphasis(members, model.patterns), stability),
        factors=tabulate_factors(model, members, reading),
        profiles=tabulate_profiles(model, members),
        sites=None if by_site is None or weights is None else by_site.compare(*weights),
        new_sites=None if by_site is None else by_site.score_new_sites(),
        reading=reading,
    )


def _explain_members(model: Model) -> tuple[Explanation, ...]:
    """What the method says of each member; an error that names methods which can, where it says nothing."""
    explanations = [model.method.explain(member.fitted) for member in model.members]
    members = tuple(e for e in explanations if e is not None)
    if not members:
        able = ", ".join(entry.name for entry in list_methods() if make_method(entry.name).facts.explains)
        raise BrioError(
            f"'{model.method.name}' has neither coefficients of edges nor factors, so there is nothing to explain. "
            f"These methods have: {able}"
        )
    if not any(_has_pattern(patterns) for patterns in model.patterns):
        raise BrioError(
            f"the margins of this '{model.method.name}' do not vary over the scans that it was fitted to: it predicts "
            "the same for every scan, so there is nothing to explain"
        )
    return members


def _has_pattern(patterns: Patterns) -> bool:
    """Whether anything goes with the margin of a member."""
    values = patterns.factor_share if patterns.pattern is None else patterns.pattern
    return values is not None and bool(np.any(values))


def _read_cohort(model: Model, plain: Connectomes, K: int, progress: Progress) -> CohortReading:
    """Read the scans, and K re-estimates of each, with every member."""
    cohort, scans = plain.cohort, np.arange(len(plain))
    label = np.full(len(plain), -1)
    if cohort.labelled.any():
        label[cohort.labelled] = cohort.select(cohort.labelled).labels
    request = model.request_reestimates(plain, K)
    patterns, reestimated = [], []
    for k, member in enumerate(model.members):
        progress(f"reading {len(plain)} scans", k / len(model.members))
        inputs = model.gather_inputs(plain, member)
        read = read_scans(model.method, member.fitted, inputs, scans)
        if not find_varying(read.margin).all():
            raise BrioError(
                f"{cohort.name}: the model has the same margin for all of its scans, from which no pattern can be read"
            )
        patterns.append(summarise_reading(read, label))
        if K:
            reestimated.append(read_scans(model.method, member.fitted, inputs, scans, request))
    learned = model.find_learned_scans(cohort)
    is_training = model.was_fitted_to(cohort) and bool(learned.all())
    return CohortReading(cohort.name, int(learned.sum()), is_training, tuple(patterns), tuple(reestimated))
