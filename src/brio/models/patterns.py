"""What a fitted run uses of a connectome: patterns of edges and shares of factors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from ..connectome import ReestimateRequest
from ..connectome.connectomes import SCANS_AT_A_TIME
from ..training import FittedRun, Inputs, Method, Scans

_TINY = np.finfo(float).tiny


class ExplainedRun(NamedTuple):
    """The margins, factor contributions and patterns of one fitted run for n full scans (K = 1) or K re-estimates each.

    Shapes: margin [n, K], contributions [n, K, J], pattern [K, edges], difference [K, edges].
    """

    margin: np.ndarray
    contributions: np.ndarray | None  # what each factor adds to the margin
    pattern: np.ndarray | None  # change of each edge when the margin increases by one
    difference: np.ndarray | None = None  # difference of each edge between the classes; None without labels


@dataclass(frozen=True, eq=False)
class Patterns:
    """The pattern and factor shares of one member of a model, computed over full scans; no value is from a single scan.

    Shapes: pattern [edges], factor_share [J], factor_mean [2, J], factor_sd [J].
    """

    n_scans: int
    pattern: np.ndarray | None = None
    factor_share: np.ndarray | None = None  # share of each factor in the variance of the margin; sums to one
    factor_mean: np.ndarray | None = None  # mean contribution of each factor in each class
    factor_sd: np.ndarray | None = None  # standard deviation of its contribution over scans

    def list_factors(self, classes: tuple[str, str], suffix: str = "") -> dict[str, np.ndarray | None]:
        """List what is known about the factors, by the columns of a table; ``suffix`` ends their names."""
        means = {} if self.factor_mean is None else dict(zip(classes, self.factor_mean, strict=True))
        columns = {"share": self.factor_share} | {f"mean_{name}": mean for name, mean in means.items()}
        return {f"{name}{suffix}": values for name, values in (columns | {"sd": self.factor_sd}).items()}


@dataclass(frozen=True, eq=False)
class CohortPatterns:
    """The patterns of every member of a model in the scans of a cohort and in their re-estimates."""

    cohort: str
    n_training_scans: int  # scans of this cohort to which the model was fitted, all at sites with both classes
    is_training: bool  # whether these are the very scans that the model was fitted to
    patterns: tuple[Patterns, ...]  # one for each member
    reestimated: tuple[ExplainedRun, ...]


def find_varying(score: np.ndarray) -> np.ndarray:
    """Find which values [n, ...] vary over scans by more than rounding errors. Shape [...]."""
    return np.ptp(score, axis=0) > 1e-12 * np.abs(score).max(0)


def explain_scans(
    method: Method,
    fitted: FittedRun,
    inputs: Inputs,
    scans: np.ndarray,
    reestimates: ReestimateRequest | None = None,
    label: np.ndarray | None = None,
) -> ExplainedRun:
    """Compute the margins, factor contributions and patterns of a fitted run for scans [n] with labels [n]."""
    index, parts = torch.from_numpy(scans).to(inputs.connectomes.device), -(-len(scans) // SCANS_AT_A_TIME)
    versions: Iterator[tuple[np.ndarray, Scans]] = (
        ((chunk, inputs.take(index[chunk])) for chunk in np.array_split(np.arange(len(scans)), parts))
        if reestimates is None
        else inputs.iterate_reestimates(reestimates)
    )
    K = 1 if reestimates is None else reestimates.K
    scores = [np.empty((len(scans), K))]  # the margin, and the class where labels are given
    if label is not None:
        scores.append(np.repeat(label[:, None].astype(float), K, axis=1))
    contributions: np.ndarray | None = None
    sums: list[np.ndarray] = []  # of edges, and of edges times each score, so that edges need not be kept
    for chunk, own in versions:
        read = method.read_explained(fitted, own)
        scores[0][chunk] = read.margin.reshape(len(chunk), K)
        if read.contributions is not None:
            if contributions is None:
                contributions = np.empty((len(scans), K, read.contributions.shape[1]))
            contributions[chunk] = read.contributions.reshape(len(chunk), K, -1)
        if read.edges is not None:
            edges = read.edges.reshape(len(chunk), K, -1)
            added = [edges.sum(0), *(np.einsum("bke,bk->ke", edges, score[chunk]) for score in scores)]
            sums = sums or [np.zeros(edges.shape[1:])] * len(added)
            sums = [total + more for total, more in zip(sums, added, strict=True)]
    if not sums:
        return ExplainedRun(scores[0], contributions, None)
    slopes = (_compute_slopes(sums[0], products, score) for products, score in zip(sums[1:], scores, strict=True))
    return ExplainedRun(scores[0], contributions, *slopes)


def _compute_slopes(edges: np.ndarray, products: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Compute covariance over variance of a score from sums [K, edges] over scans and the scores [n, K] of all scans.

    The slopes of a score that does not vary are 0.
    """
    covariance = products / len(score) - edges / len(score) * score.mean(0)[:, None]
    return np.where(find_varying(score)[:, None], covariance / np.maximum(score.var(0), _TINY)[:, None], 0.0)


def compute_shares(contributions: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """Compute the share of each factor in the variance of the margin.

    The share is the covariance of a contribution with the margin, divided by the variance of the margin. Shares sum to
    one, because contributions add up to the margin; a factor that works against the others has a negative share. All
    shares are 0 if the margin does not vary.

    Shapes: contributions [n, J], margin [n]; returns [J].
    """
    centred = margin - margin.mean()
    if not find_varying(margin):
        return np.zeros(contributions.shape[1])
    return centred @ (contributions - contributions.mean(0)) / (centred @ centred)


def summarise_run(explained: ExplainedRun, label: np.ndarray) -> Patterns:
    """Summarise what a fitted run uses of full scans with labels [n]."""
    n = len(explained.margin)
    pattern = None if explained.pattern is None else explained.pattern[0]
    if explained.contributions is None:
        return Patterns(n, pattern)
    a = explained.contributions[:, 0]
    means = [a[label == c].mean(0) if (label == c).any() else np.full(a.shape[1], np.nan) for c in (0, 1)]
    return Patterns(n, pattern, compute_shares(a, explained.margin[:, 0]), np.stack(means), a.std(0, ddof=1))
