"""The model of sites that share no scan, from the sums of their answers, and the evidence on it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..models.evidence import UNKNOWN, Estimate, Evidence
from ..models.known_scans import DIGITS, KnownScans
from ..models.model import Member, Model, TrainingFacts
from ..models.patterns import Patterns
from ..models.ranges import FENCE, ScanRanges
from ..protocol import Fold
from ..protocol.calibration import average_over_sites
from ..results.summarise import PAIR_WEIGHTED, assess_auc, summarise_scores
from ..schemas import StoredCount, StoredNonNegative, StoredShare
from ..training import FittedRun, Run, RunState
from ..version import __version__
from .equations import Spread
from .messages import ALL, Arrays, Request
from .progress import Progress

_QUARTILE = 0.6744897501960817
"""Of the normal distribution."""
SITE_MODELS = (
    "each site scored the mean of the models of all other sites, not this model, so the evidence is of its first step; "
    "no probability was checked"
)


@dataclass(frozen=True)
class SiteScore:
    """How well a model that has not seen a site does there. Participants count once, with the mean over their scans."""

    n_controls: StoredCount
    n_patients: StoredCount
    auc: StoredShare
    variance: StoredNonNegative  # of the AUC over participants (DeLong)
    quantiles: dict[str, float]  # of margins, those with ten participants beyond
    n_right: StoredCount | None = None
    brier: StoredNonNegative | None = None  # sum over participants
    calibration: dict[str, float | None] | None = None  # Recalibration
    spread: list[float] | None = None  # Spread


def build_model(request: Request, progress: Progress, calibration: tuple[float, float] | None = None) -> Model:
    """Build the model of all sites; what only the last answers tell is left open."""
    terms, totals, nothing = request.terms, progress.totals, np.empty(0, dtype=np.int64)
    atlas, method = terms.make_atlas(), terms.make_method()
    rounds, n_rois = request.shown[ALL], len(atlas)
    slope, intercept = calibration or progress.calibrate()
    if method.site_intercepts:
        coefficients, details, shift = slope * progress.point.w, {}, intercept
        learned = torch.from_numpy(totals.fill)
    else:  # as for one cohort, the margin has the mean label for an intercept, and is calibrated afterwards
        shift = 2 * totals.share - 1
        coefficients, details = progress.point.w, {"calibration": [float(slope), float(intercept - slope * shift)]}
        learned = fill_square(totals.fill, n_rois)
    fitted = FittedRun(
        run=Run(Fold("all", nothing, nothing, nothing, (), ()), 0),
        test_logit=np.empty(0),
        validation_auc=0.0,
        details={"penalty": float(totals.penalty)} | details,
        state=RunState.from_learned(mean=learned),
        parameters={
            "centre": torch.from_numpy(totals.centre),
            "coefficients": torch.from_numpy(np.ascontiguousarray(coefficients)),
            "intercept": torch.tensor(shift, dtype=torch.float64),
        },
    )
    length, n = rounds[0]["block_length"]
    fingerprint = hashlib.sha256("".join(sorted(request.answers.values())).encode()).hexdigest()[:16]
    return Model(
        method=method,
        members=(Member(fitted),),
        atlas=atlas,
        classes=terms.classes,
        block_length=float(length / n),
        interval_factor=1.0,
        ranges=ScanRanges(),
        mean=fill_square(totals.mean, n_rois).float(),
        training=TrainingFacts(
            cohort=terms.project,
            fingerprint=fingerprint,
            n_scans=request.n_all,
            n_excluded=0,
            sites={name: (int(a), int(b)) for name, (a, b) in request.sites.items()},
            one_class_sites=(),
            versions={"brio": __version__, "torch": torch.__version__, "numpy": np.__version__},
            federated=True,
        ),
        known_scans=KnownScans(fingerprint[: 2 * DIGITS], ()),
    )


def complete_model(
    request: Request, progress: Progress, last: Arrays, facts: Mapping[str, Any], scores: Mapping[str, SiteScore]
) -> Model:
    """Add to a model what the last answers tell: patterns, the factor of intervals, ranges and evidence.

    ``facts`` are those of the descriptions of all sites, by site.
    """
    spreads = [score.spread for score in scores.values() if score.spread is not None]
    held_out = Spread(*np.sum(spreads, axis=0)) if spreads else None  # of the very models that leave a site out
    model = build_model(request, progress, progress.calibrate(held_out))
    slope = 1.0 if model.members[0].fitted.details.get("calibration") else progress.calibrate(held_out)[0]
    pattern = last["covariance"] / max(float(last["variance"]), 1e-300) / slope
    squares, n = last["halves"]
    return replace(
        model,
        patterns=(Patterns(request.n_all, pattern),),
        interval_factor=max(1.0, float(np.sqrt(squares / n))),
        ranges=find_ranges(request.shown[ALL], facts),
        evidence=gather_evidence(request, scores, model.training.fingerprint),
    )


def find_ranges(rounds: Sequence[Arrays], facts: Mapping[str, Any]) -> ScanRanges:
    """Find what is usual among the scans of all sites, from sums and from limits that ten scans of a site reach.

    Logarithms are taken as normal: their quartiles follow from mean and standard deviation.
    """

    def find_fences(name: str, sums: Arrays) -> tuple[float, float] | None:
        n, total, squares = sums[name]
        if n < 2:
            return None
        mean = total / n
        half = _QUARTILE * np.sqrt(max(squares / n - mean**2, 0.0))
        return tuple(np.exp([mean - half * (1 + 2 * FENCE), mean + half * (1 + 2 * FENCE)]).tolist())

    def find_ends(name: str) -> tuple[float, float] | None:
        known = [own[name] for own in facts.values() if own.get(name)]
        return (min(low for low, _ in known), max(high for _, high in known)) if known else None

    frames, dead_rois, distance = find_ends("frames"), find_ends("dead_rois"), find_fences("distance", rounds[1])
    return ScanRanges(
        least_frames=None if frames is None or not frames[0] else frames[0],
        tr=find_ends("tr"),
        motion=find_fences("motion", rounds[0]),
        edge_sd=find_fences("edge_sd", rounds[0]),
        dead_rois=None if dead_rois is None else int(dead_rois[1]),
        distance=None if distance is None else distance[1],
    )


def list_site_rows(method: str, scores: Mapping[str, SiteScore]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """List the scores of all sites as the tables of ``brio run`` have them."""
    columns = {"method": method, "seed": pd.NA}
    rows = [
        columns
        | {"fold": name, "n_patients": one.n_patients, "n_controls": one.n_controls, "auc": one.auc}
        | {"ensemble_auc": one.auc, "auc_variance": one.variance}
        for name, one in scores.items()
    ]
    shared = [{"method": method, "other": method, "fold": r["fold"], "covariance": r["auc_variance"]} for r in rows]
    return pd.DataFrame(rows).astype({"seed": "Int64"}), pd.DataFrame(shared)


def gather_evidence(request: Request, scores: Mapping[str, SiteScore], fingerprint: str) -> Evidence:
    """Gather the evidence on the model from the scores of all sites."""
    tables, n = list_site_rows(request.terms.method, scores), sum(map(sum, request.sites.values()))
    people = assess_auc(*tables, request.terms.method)
    pairs = people[PAIR_WEIGHTED]
    over_sites = summarise_scores([one.auc for one in scores.values()], limits=(0.0, 1.0))
    n = sum(one.n_controls + one.n_patients for one in scores.values())
    checked = [one for one in scores.values() if one.calibration is not None]
    evidence = Evidence(
        n_participants=n,
        n_sites=len(scores),
        n_seeds=1,
        fingerprint=fingerprint,
        auc=Estimate(over_sites.mean, *(over_sites.interval or (None, None))),
        pair_weighted_auc=Estimate(pairs.mean, *_know(pairs.low, pairs.high)),
        accuracy=None,
        brier=None,
        slope=UNKNOWN,
        intercept=UNKNOWN,
        risk=(),
        rules=(),
        n_two_class_sites=len(scores),
        differences=() if checked else (SITE_MODELS,),
    )
    if not checked:
        return evidence
    means = [
        average_over_sites(
            *np.array([[one.calibration[key] for key in (name, f"{name}_se")] for one in checked], float).T
        )
        for name in ("slope", "in_the_large")
    ]
    slope, intercept = (Estimate(*_know(one.mean, one.low, one.high)) for one in means)
    return replace(
        evidence,
        accuracy=sum(one.n_right for one in checked) / n,
        accuracy_over_sites=float(np.mean([one.n_right / (one.n_controls + one.n_patients) for one in checked])),
        brier=sum(one.brier for one in checked) / n,
        slope=slope,
        intercept=intercept,
        slope_sd=_know(means[0].sd)[0],
        intercept_sd=_know(means[1].sd)[0],
    )


def _know(*values: float) -> list[float | None]:
    """Return values, None for those that are not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]


def fill_square(edges: np.ndarray, n_rois: int) -> torch.Tensor:
    """Return the symmetric matrix [P, P] of edges [d], with zeros on its diagonal."""
    matrix = torch.zeros(n_rois, n_rois, dtype=torch.float64)
    u, v = torch.triu_indices(n_rois, n_rois, 1)
    matrix[u, v] = matrix[v, u] = torch.from_numpy(edges)
    return matrix
