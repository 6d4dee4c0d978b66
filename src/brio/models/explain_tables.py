"""Tables of an explanation: edges, regions and factors, with their stability where it was computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..cohort import Atlas
from ..training import Explanation
from .model import Model
from .patterns import CohortReading, Patterns, compute_shares
from .roi_groups import RoiGroups
from .site_stability import SitePatterns

_TOP_ROIS = 5


class EdgeWeights(NamedTuple):
    """Coefficients and patterns of edges, averaged over the members of a model."""

    coefficients: np.ndarray  # [edges]
    pattern: np.ndarray  # [edges]


class Stability(NamedTuple):
    """Patterns to compare with those of the model; None where they were not computed."""

    cohort: np.ndarray | None  # [edges] over the scans that were given
    reestimates: np.ndarray | None  # [K, edges] over their re-estimates
    sites: SitePatterns | None

    @classmethod
    def gather(cls, reading: CohortReading | None, sites: SitePatterns | None) -> Stability:
        """Average the patterns of a reading over members."""
        if reading is None:
            return cls(None, None, sites)
        cohort = _average([p.pattern for p in reading.patterns])
        return cls(cohort, _average([r.pattern for r in reading.reestimated]), sites)


def _average(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    present = [a for a in arrays if a is not None]
    return np.mean(present, axis=0) if present else None


def average_weights(members: Sequence[Explanation], patterns: Sequence[Patterns]) -> EdgeWeights | None:
    """Average coefficients and patterns over members; None where edges have no coefficients."""
    coefficients, pattern = _average([m.coefficients for m in members]), _average([p.pattern for p in patterns])
    return None if coefficients is None or pattern is None else EdgeWeights(coefficients, pattern)


def average_emphasis(members: Sequence[Explanation], patterns: Sequence[Patterns]) -> np.ndarray | None:
    """Compute the share of each ROI in the margin, by its factors, averaged over members.

    Shapes: returns [P].

    Returns times P, so that 1 is an ROI without emphasis. None where there are no factors.
    """
    return _average(
        [
            None if m.assignment is None or p.factor_share is None else _spread_shares(m.assignment, p.factor_share)
            for m, p in zip(members, patterns, strict=True)
        ]
    )


def _spread_shares(assignment: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Spread the shares of factors [J] over their ROIs, times P. Shape [P]."""
    total = assignment.sum(1, keepdims=True)
    within = assignment / np.where(total > 0, total, 1.0)  # parts of the ROIs in a factor, which sum to one
    return assignment.shape[1] * share @ within


def sum_over_edges(values: np.ndarray, n_rois: int) -> np.ndarray:
    """Sum values of edges over the edges of each ROI.

    Shapes: values [..., edges]; returns [..., P].
    """
    u, v = np.triu_indices(n_rois, 1)
    matrix = np.zeros((*values.shape[:-1], n_rois, n_rois))
    matrix[..., u, v] = values
    return matrix.sum(-1) + matrix.sum(-2)


def tabulate_edges(atlas: Atlas, weights: EdgeWeights, stability: Stability) -> pd.DataFrame:
    """Tabulate the edges of a model.

    Returns ``roi_a``, ``roi_b``, ``coefficient`` and ``pattern``. With scans: ``pattern_cohort``; with re-estimates of
    them ``pattern_sd_reestimates`` and ``same_sign_reestimates``, the share of re-estimated patterns with the sign of
    ``pattern``; with left-out sites ``same_sign_sites``, the share of fits without a site whose pattern has that sign.
    These fits share most of their scans: what holds at a site that took no part is in
    :meth:`~brio.models.site_stability.SitePatterns.score_new_sites`.
    """
    name = atlas.rois["name"].astype(str).to_numpy()
    u, v = np.triu_indices(len(name), 1)
    table = {"roi_a": name[u], "roi_b": name[v], "coefficient": weights.coefficients, "pattern": weights.pattern}
    sign = np.sign(weights.pattern)
    if stability.cohort is not None:
        table["pattern_cohort"] = stability.cohort
    if stability.reestimates is not None:
        table["pattern_sd_reestimates"] = stability.reestimates.std(0, ddof=1)
        table["same_sign_reestimates"] = (np.sign(stability.reestimates) == sign).mean(0)
    if stability.sites is not None:
        table["same_sign_sites"] = (np.sign(stability.sites.pattern) == sign).mean(0)
    return pd.DataFrame(table)


def tabulate_rois(
    atlas: Atlas, groups: RoiGroups, weights: EdgeWeights | None, emphasis: np.ndarray | None, stability: Stability
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
        for name, values in (("pattern", weights.pattern), ("coefficient", weights.coefficients)):
            table[f"absolute_{name}"] = sum_over_edges(np.abs(values), n_rois)
            table[f"signed_{name}"] = sum_over_edges(values, n_rois)
    if emphasis is not None:
        table["emphasis"] = emphasis
    table["rank"] = _rank(table["emphasis" if weights is None else "absolute_pattern"].to_numpy())
    for name, patterns in (
        ("reestimates", stability.reestimates),
        ("sites", None if stability.sites is None else stability.sites.pattern),
    ):
        if patterns is not None:
            table[f"lowest_rank_{name}"] = _rank(sum_over_edges(np.abs(patterns), n_rois)).max(0)
    return table


def _rank(values: np.ndarray) -> np.ndarray:
    """Ranks along the last axis, 1 for the largest value; of equal values the first has the lower number."""
    order = np.argsort(-values, axis=-1, kind="stable")
    return np.argsort(order, axis=-1, kind="stable") + 1


def tabulate_factors(
    model: Model, members: Sequence[Explanation], reading: CohortReading | None
) -> pd.DataFrame | None:
    """Tabulate the factors of every member.

    Returns ``seed``, ``factor``; ``share``, its share in the variance of the margin; ``mean_`` of either class and
    ``sd``, of its contribution over the scans that the model was fitted to; ``rois``, those with the largest
    assignment. With scans the first four again under ``_cohort``; with re-estimates of them ``share_sd_reestimates``,
    and ``reliability``: the part of the variance of a contribution that lies between scans, the rest within them; not a
    number where it does not vary.
    """
    rows = []
    for k, (member, patterns) in enumerate(zip(members, model.patterns, strict=True)):
        if member.assignment is None or patterns.factor_share is None:
            return None
        table = pd.DataFrame(
            {"seed": model.members[k].fitted.run.seed, "factor": np.arange(len(member.assignment)) + 1}
        )
        table = _add_contributions(table, patterns, model.classes, "")
        names = model.atlas.rois["name"].astype(str).to_numpy()
        table["rois"] = [", ".join(names[np.argsort(-row, kind="stable")[:_TOP_ROIS]]) for row in member.assignment]
        if reading is not None:
            table = _add_contributions(table, reading.patterns[k], model.classes, "_cohort")
        if reading is not None and reading.reestimated:
            margin, a = reading.reestimated[k][:2]
            assert a is not None
            shares = np.stack([compute_shares(a[:, i], margin[:, i]) for i in range(a.shape[1])])
            table["share_sd_reestimates"] = shares.std(0, ddof=1)
            within = a.var(1, ddof=1).mean(0)
            between = np.maximum(a.mean(1).var(0, ddof=1) - within / a.shape[1], 0.0)
            total = between + within
            table["reliability"] = np.where(total > 0, between / np.where(total > 0, total, 1.0), np.nan)
        rows.append(table)
    return pd.concat(rows, ignore_index=True)


def _add_contributions(table: pd.DataFrame, patterns: Patterns, classes: Sequence[str], end: str) -> pd.DataFrame:
    assert patterns.factor_mean is not None
    columns = {f"share{end}": patterns.factor_share}
    columns |= {f"mean_{name}{end}": mean for name, mean in zip(classes, patterns.factor_mean, strict=True)}
    return table.assign(**columns, **{f"sd{end}": patterns.factor_sd})


def tabulate_profiles(model: Model, members: Sequence[Explanation]) -> pd.DataFrame | None:
    """Tabulate which ROIs make up each factor.

    Returns ``seed``, ``factor``, ``roi`` and ``assignment``: the share of the ROI that belongs to the factor. The
    shares of an ROI sum to one.
    """
    names = model.atlas.rois["name"].astype(str).to_numpy()
    rows = []
    for fitted, member in zip(model.members, members, strict=True):
        if member.assignment is None:
            return None
        J, P = member.assignment.shape
        rows.append(
            pd.DataFrame(
                {
                    "seed": fitted.fitted.run.seed,
                    "factor": np.repeat(np.arange(J) + 1, P),
                    "roi": np.tile(names, J),
                    "assignment": (P * member.assignment).reshape(-1),
                }
            )
        )
    return pd.concat(rows, ignore_index=True)
