"""Describe what a model uses in tables, and test whether it uses the same in other scans and without one site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..cohort import Atlas, Cohort
from ..connectome import Connectomes, harmonise_connectomes
from ..console import Progress, silent
from ..device import resolve_device
from ..errors import BrioError
from ..machine import require_memory
from ..methods import list_methods, make_method
from ..protocol import Fold, make_training_fold
from ..settings import ReestimatesOrNone, require, require_number
from ..training import Explanation, Run
from .model import Model, check_atlas
from .patterns import CohortPatterns, compute_shares, explain_scans, find_varying, summarise_run
from .roi_groups import RoiGroups, group_rois

LEAST_SITES = 3
STRONGEST = 15
"""Edges of a pattern that are compared with the classes at a left-out site."""
SELECTIONS = (1, 5, STRONGEST, 50, 150, 500)
"""Numbers of strongest edges for which this is done over all left-out sites."""


def _correlate(x: np.ndarray, y: np.ndarray) -> float:
    """Correlate two vectors; NaN if one of them is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _compare_strongest(pattern: np.ndarray, difference: np.ndarray, n: int) -> float:
    """Share of the n strongest edges with the same sign in both, among those with a sign; NaN if there are none."""
    strongest = np.argsort(-np.abs(pattern), kind="stable")[:n]
    agreement = np.sign(pattern[strongest]) * np.sign(difference[strongest])
    return float((agreement[agreement != 0] > 0).mean()) if agreement.any() else float("nan")


def find_reason_against_refits(model: Model) -> str:
    """State why a model cannot be fitted again without each site; empty if it can."""
    method, explanation = model.method, model.method.explain(model.members[0].fitted)
    if explanation is None or explanation.coefficients is None:
        return f"'{method.name}' has no coefficients of edges, and factors of two fits cannot be matched"
    if method.facts.epochs is not None:
        return f"'{method.name}' is a neural network; only closed-form methods can be fitted again"
    if method.needs_validation:
        return f"'{method.name}' needs validation scans, which fits without a site do not have"
    return ""


Weights = tuple[np.ndarray, np.ndarray]
"""Coefficients and patterns of edges, averaged over the members of a model; shapes [edges]."""


class SitePatterns(NamedTuple):
    """What models use if each is fitted without one of E sites."""

    pattern: np.ndarray  # [E, edges], over the scans that each was fitted to
    # each fit beside the whole model (correlations over edges), and beside the difference between the classes at the
    # site itself: a correlation is 0 by chance, the share of the strongest edges with the same sign one half
    sites: pd.DataFrame
    # the strongest edges of each fit, by numbers of them, beside the classes at the site that took no part in choosing
    # them. There is no such number for an edge of the whole model: that was chosen with all sites, so the classes
    # differ in its direction at most of them even where labels are drawn by chance
    new_sites: pd.DataFrame


def refit_without_each_site(
    model: Model, plain: Connectomes, weights: Weights, progress: Progress = silent
) -> SitePatterns:
    """Fit the method of a model again without each site in turn, with the settings and the first seed of the model.

    Each fit is harmonised on its own sites where the model is. ``weights`` are those of the whole model.
    """
    cohort, method, (member, *_) = plain.cohort, model.method, model.members
    whole = make_training_fold(cohort, member.fitted.run.seed, 0)
    sites = sorted(set(cohort.sites[whole.source].tolist()))
    if len(sites) < LEAST_SITES:
        raise BrioError(
            f"{len(sites)} sites have both classes, but leaving one out needs at least {LEAST_SITES}; leave out --sites"
        )
    runs = []
    for site in sites:
        own = cohort.sites[whole.source] == site
        fold = Fold(site, whole.source[~own], whole.validation, whole.source[own], (site,), ())
        runs.append(Run(fold, member.fitted.run.seed))
    together = method.fit(plain, runs, progress) if member.harmoniser is None else None
    n_edges = len(weights[0])
    sizes = (*(n for n in SELECTIONS if n < n_edges), n_edges)
    patterns, rows, shares = [], [], []
    for k, run in enumerate(runs):
        progress(f"fit without {run.fold.name}", k / len(runs))
        connectomes = harmonise_connectomes(plain, run.fold.source, model.harmonisation)
        (fitted,) = method.fit(connectomes, [run]) if together is None else [together[k]]
        inputs = method.gather_inputs(connectomes)
        left_out = run.fold.test
        explanation, explained = method.explain(fitted), explain_scans(method, fitted, inputs, run.fold.source)
        there = explain_scans(method, fitted, inputs, left_out, label=cohort.labels[left_out])
        assert explanation is not None
        assert explanation.coefficients is not None
        assert explained.pattern is not None
        assert there.difference is not None
        pattern, difference = explained.pattern[0], there.difference[0]
        patterns.append(pattern)
        shares.append([_compare_strongest(pattern, difference, n) for n in sizes])
        rows.append(
            {
                "site": run.fold.name,
                "n_scans": len(left_out),
                "coefficient_correlation": _correlate(explanation.coefficients, weights[0]),
                "pattern_correlation": _correlate(pattern, weights[1]),
                "difference_correlation": _correlate(pattern, difference),
                "strongest_same_sign": _compare_strongest(pattern, difference, STRONGEST),
                "edge_values": explanation.edge_values,
            }
        )
    new_sites = []
    for n, column in zip(sizes, zip(*shares, strict=True), strict=True):
        known = np.array(column)[np.isfinite(column)]
        mean, sd = (known.mean() if len(known) else np.nan), (known.std(ddof=1) if len(known) > 1 else np.nan)
        new_sites.append((n, mean, sd, len(known)))
    columns = ["strongest_edges", "same_sign_new_sites", "sd_over_sites", "n_sites"]
    return SitePatterns(np.stack(patterns), pd.DataFrame(rows), pd.DataFrame(new_sites, columns=columns))


_TOP_ROIS = 5


def _average(arrays: Iterable[np.ndarray | None]) -> np.ndarray | None:
    present = [a for a in arrays if a is not None]
    return np.mean(present, axis=0) if present else None


def sum_over_edges(values: np.ndarray, n_rois: int) -> np.ndarray:
    """Sum values of edges over the edges of each ROI.

    Shapes: values [..., edges]; returns [..., P].
    """
    u, v = np.triu_indices(n_rois, 1)
    matrix = np.zeros((*values.shape[:-1], n_rois, n_rois))
    matrix[..., u, v] = values
    return matrix.sum(-1) + matrix.sum(-2)


def tabulate_edges(atlas: Atlas, weights: Weights, stability: Mapping[str, np.ndarray | None]) -> pd.DataFrame:
    """Tabulate the edges of a model.

    Returns ``roi_a``, ``roi_b``, ``coefficient`` and ``pattern``. With scans: ``pattern_cohort``; with re-estimates of
    them ``pattern_sd_reestimates`` and ``same_sign_reestimates``, the share of re-estimated patterns with the sign of
    ``pattern``; with left-out sites ``same_sign_sites``, the share of fits without a site whose pattern has that sign.
    All their scans are also scans of the model; :class:`SitePatterns` has the results at sites that were not used.
    """
    name, (coefficients, pattern) = atlas.rois["name"].astype(str).to_numpy(), weights
    u, v = np.triu_indices(len(name), 1)
    table = {"roi_a": name[u], "roi_b": name[v], "coefficient": coefficients, "pattern": pattern}
    cohort, reestimates, sites = (stability[key] for key in ("cohort", "reestimates", "sites"))
    if cohort is not None:
        table["pattern_cohort"] = cohort
    if reestimates is not None:
        table["pattern_sd_reestimates"] = reestimates.std(0, ddof=1)
        table["same_sign_reestimates"] = (np.sign(reestimates) == np.sign(pattern)).mean(0)
    if sites is not None:
        table["same_sign_sites"] = (np.sign(sites) == np.sign(pattern)).mean(0)
    return pd.DataFrame(table)


def tabulate_rois(
    atlas: Atlas,
    groups: RoiGroups,
    weights: Weights | None,
    emphasis: np.ndarray | None,
    stability: Mapping[str, np.ndarray | None],
) -> pd.DataFrame:
    """Tabulate the ROIs of a model.

    Shapes: emphasis [P].

    Returns ``roi``, ``x``, ``y``, ``z`` where known, ``group``; sums over its edges: ``absolute_pattern``,
    ``signed_pattern``, ``absolute_coefficient``, ``signed_coefficient``; ``emphasis`` where there are factors. ``rank``
    is 1 for the largest absolute pattern, or for the largest emphasis where edges have none.
    ``lowest_rank_reestimates`` and ``lowest_rank_sites`` are the worst ranks that it has in re-estimated patterns and
    in patterns without one site.
    """
    n_rois = len(atlas)
    table = pd.DataFrame({"roi": atlas.rois["name"].astype(str).to_numpy()})
    if atlas.has_coordinates:
        table[["x", "y", "z"]] = atlas.rois[["x", "y", "z"]].to_numpy()
    table["group"] = groups.name
    if weights is not None:
        for name, values in zip(("pattern", "coefficient"), weights[::-1], strict=True):
            table[f"absolute_{name}"] = sum_over_edges(np.abs(values), n_rois)
            table[f"signed_{name}"] = sum_over_edges(values, n_rois)
    if emphasis is not None:
        table["emphasis"] = emphasis
    table["rank"] = _rank(table["emphasis" if weights is None else "absolute_pattern"].to_numpy())
    for name in ("reestimates", "sites"):
        if (patterns := stability[name]) is not None:
            table[f"lowest_rank_{name}"] = _rank(sum_over_edges(np.abs(patterns), n_rois)).max(0)
    return table


def _rank(values: np.ndarray) -> np.ndarray:
    """Ranks along the last axis, 1 for the largest value; of equal values the first has the lower number."""
    order = np.argsort(-values, axis=-1, kind="stable")
    return np.argsort(order, axis=-1, kind="stable") + 1


def tabulate_factors(
    model: Model, members: Sequence[Explanation], cohort_patterns: CohortPatterns | None
) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Tabulate the factors of every member, and which ROIs make up each; None where a method has no factors.

    Returns ``seed``, ``factor``; ``share``, its share in the variance of the margin; ``mean_`` of either class and
    ``sd``, of its contribution over the scans that the model was fitted to; ``rois``, those with the largest
    assignment. With scans the first four again under ``_cohort``; with re-estimates of them ``share_sd_reestimates``,
    and ``reliability``: the part of the variance of a contribution that lies between scans, the rest within them; not a
    number where it does not vary. Then ``seed``, ``factor``, ``roi`` and ``assignment``: the share of the ROI that
    belongs to the factor. The shares of an ROI sum to one.
    """
    names, factors, profiles = model.atlas.rois["name"].astype(str).to_numpy(), [], []

    for k, (member, patterns) in enumerate(zip(members, model.patterns, strict=True)):
        if member.assignment is None or patterns.factor_share is None:
            return None, None
        J, P = member.assignment.shape
        seed, numbers = model.members[k].fitted.run.seed, np.arange(J) + 1
        table = pd.DataFrame({"seed": seed, "factor": numbers} | patterns.list_factors(model.classes))
        table["rois"] = [", ".join(names[np.argsort(-row, kind="stable")[:_TOP_ROIS]]) for row in member.assignment]
        if cohort_patterns is not None:
            table = table.assign(**cohort_patterns.patterns[k].list_factors(model.classes, "_cohort"))
        if cohort_patterns is not None and cohort_patterns.reestimated:
            margin, a = cohort_patterns.reestimated[k][:2]
            assert a is not None
            shares = np.stack([compute_shares(a[:, i], margin[:, i]) for i in range(a.shape[1])])
            table["share_sd_reestimates"] = shares.std(0, ddof=1)
            within = a.var(1, ddof=1).mean(0)
            between = np.maximum(a.mean(1).var(0, ddof=1) - within / a.shape[1], 0.0)
            total = between + within
            table["reliability"] = np.where(total > 0, between / np.where(total > 0, total, 1.0), np.nan)
        factors.append(table)
        profile = pd.DataFrame({"seed": seed, "factor": np.repeat(numbers, P), "roi": np.tile(names, J)})
        profiles.append(profile.assign(assignment=(P * member.assignment).reshape(-1)))
    return pd.concat(factors, ignore_index=True), pd.concat(profiles, ignore_index=True)


EXPLAINED_REESTIMATES = 8
LEAST_SCANS = 10
"""With fewer scans, patterns are too noisy to be useful."""


@dataclass(frozen=True, eq=False)
class ModelExplanation:
    """Tables of what a model uses. Values of several members are averaged, except those of factors."""

    model: Model
    members: tuple[Explanation, ...]  # one for each member of the model
    groups: RoiGroups  # groups of ROIs, by which figures are ordered
    edges: pd.DataFrame | None
    rois: pd.DataFrame  # one row per ROI, see brio.models.explain.tabulate_rois
    factors: pd.DataFrame | None  # one row per factor, and one per factor and ROI; None where a method has no factors
    profiles: pd.DataFrame | None
    sites: pd.DataFrame | None
    new_sites: pd.DataFrame | None
    cohort_patterns: CohortPatterns | None  # patterns in the scans that were given


def explain_model(
    model: Model,
    cohort: Cohort | None = None,
    *,
    reestimates: int = EXPLAINED_REESTIMATES,
    sites: bool = False,
    device: str = "auto",
    progress: Progress = silent,
) -> ModelExplanation:
    """Explain what a model uses.

    A model stores its coefficients, its factors, and their patterns over the scans it was fitted to. Scans are needed
    only for patterns in other scans and for stability.
    """
    explanations = [model.method.explain(member.fitted) for member in model.members]
    members = tuple(e for e in explanations if e is not None)
    if not members:
        able = ", ".join(entry.name for entry in list_methods() if make_method(entry.name).facts.explains)
        why = f"'{model.method.name}' has neither coefficients of edges nor factors, so there is nothing to explain"
        raise BrioError(f"{why}; these methods can be explained: {able}")
    if not any(np.any(p.factor_share if p.pattern is None else p.pattern) for p in model.patterns):
        raise BrioError(
            f"'{model.method.name}' predicts the same margin for every scan, so there is nothing to explain"
        )
    coefficients, pattern = _average(m.coefficients for m in members), _average(p.pattern for p in model.patterns)
    weights = None if coefficients is None or pattern is None else (coefficients, pattern)
    cohort_patterns: CohortPatterns | None = None
    by_site: SitePatterns | None = None
    if sites and cohort is None:
        raise BrioError("leaving out sites requires the cohort that the model was fitted to; give it with --cohort")
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
            raise BrioError(
                f"{cohort.name}: has too few scans for a pattern ({len(cohort)}); give at least {LEAST_SCANS}"
            )
        if sites:
            model.require_own(
                cohort, "give that cohort, with --with and --keep-all as for 'brio fit', or leave out --sites"
            )
        compute = resolve_device(device)
        plain = Connectomes(cohort, compute.torch_device)
        with compute.network_precision():
            cohort_patterns = _explain_cohort(model, plain, reestimates, progress)
            if sites and weights is not None:
                by_site = refit_without_each_site(model, plain, weights, progress)
    groups = group_rois(model.atlas, model.mean)
    emphases = []  # share of each ROI in the margin, by its factors, times P: 1 is an ROI without emphasis
    for member, own in zip(members, model.patterns, strict=True):
        if member.assignment is not None and own.factor_share is not None:
            total = member.assignment.sum(1, keepdims=True)
            within = member.assignment / np.where(total > 0, total, 1.0)  # parts of the ROIs, which sum to one
            emphases.append(member.assignment.shape[1] * own.factor_share @ within)
    stability = {
        "cohort": _average(p.pattern for p in cohort_patterns.patterns) if cohort_patterns else None,
        "reestimates": _average(r.pattern for r in cohort_patterns.reestimated) if cohort_patterns else None,
        "sites": None if by_site is None else by_site.pattern,
    }
    factors, profiles = tabulate_factors(model, members, cohort_patterns)
    return ModelExplanation(
        model=model,
        members=members,
        groups=groups,
        edges=None if weights is None else tabulate_edges(model.atlas, weights, stability),
        rois=tabulate_rois(model.atlas, groups, weights, _average(emphases), stability),
        factors=factors,
        profiles=profiles,
        sites=None if by_site is None else by_site.sites,
        new_sites=None if by_site is None else by_site.new_sites,
        cohort_patterns=cohort_patterns,
    )


def _explain_cohort(model: Model, plain: Connectomes, K: int, progress: Progress) -> CohortPatterns:
    """Explain the scans, and K re-estimates of each, with every member."""
    cohort, scans = plain.cohort, np.arange(len(plain))
    label = np.full(len(plain), -1)
    if cohort.labelled.any():
        label[cohort.labelled] = cohort.select(cohort.labelled).labels
    request = model.request_reestimates(plain, K)
    patterns, reestimated = [], []
    for k, member in enumerate(model.members):
        progress(f"patterns of {len(plain)} scans", k / len(model.members))
        inputs = model.gather_inputs(plain, member)
        explained = explain_scans(model.method, member.fitted, inputs, scans)
        if not find_varying(explained.margin).all():
            raise BrioError(f"{cohort.name}: the model has the same margin for every scan, so there is no pattern")
        patterns.append(summarise_run(explained, label))
        if K:
            reestimated.append(explain_scans(model.method, member.fitted, inputs, scans, request))
    learned = model.find_learned_scans(cohort)
    is_training = model.was_fitted_to(cohort) and bool(learned.all())
    return CohortPatterns(cohort.name, int(learned.sum()), is_training, tuple(patterns), tuple(reestimated))
