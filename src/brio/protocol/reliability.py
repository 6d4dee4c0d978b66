"""Reliability of margins over repeated scans: variance components, intraclass correlation, agreement of decisions.

The model is one-way random effects within cells (a site, or a class at a site): the margin of a scan is the mean of its
cell, plus a deviation of the participant, plus one of the session. Sessions are not matched between participants, so
the intraclass correlation is ICC(1) of Shrout & Fleiss (1979), by analysis of variance; unequal numbers of sessions
enter by their effective number (Donner 1986). A change that all participants make from the first to the second session
counts as disagreement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class SessionVariance(NamedTuple):
    """Variance components of margins over repeated scans.

    Shapes: participants [...], sessions [...], icc [...].
    """

    participants: np.ndarray
    sessions: np.ndarray  # variance between sessions of a participant
    icc: np.ndarray  # share of participants in the sum of both: ICC(1)


def estimate_session_variance(
    values: np.ndarray, member: np.ndarray, cell: np.ndarray, weight: np.ndarray | None = None
) -> SessionVariance:
    """Estimate variance components and ICC(1) by analysis of variance.

    Shapes: values [N, ...], member [N], cell [n], weight [n].

    Returns NaN where no cell has two participants.
    """
    values = np.asarray(values, dtype=float)
    k = np.bincount(member).astype(float)  # sessions of each participant
    w = np.ones(len(k)) if weight is None else np.asarray(weight, dtype=float)
    mean = _sum_by(values, member, len(k)) / _align(k, values)
    within = _sum_by((values - mean[member]) ** 2, member, len(k))  # [n, ...]
    n_cells = int(cell.max()) + 1
    size, n = np.bincount(cell, w * k, n_cells), np.bincount(cell, w, n_cells)  # scans and participants of each cell
    filled = np.maximum(size, 1e-300)
    centre = _sum_by(_align(w * k, values) * mean, cell, n_cells) / _align(filled, values)
    between = (_align(w * k, values) * (mean - centre[cell]) ** 2).sum(axis=0)
    df_between, df_within = float(np.maximum(n - 1, 0).sum()), float((w * (k - 1)).sum())
    # a cell with one participant has nothing between participants: it adds 0 to both sums
    effective = float((size - np.bincount(cell, w * k**2, n_cells) / filled).sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        sessions = (_align(w, values) * within).sum(axis=0) / np.float64(df_within)
        n_sessions = np.float64(effective) / df_between
        participants = (between / np.float64(df_between) - sessions) / n_sessions
        return SessionVariance(participants, sessions, participants / (participants + sessions))


def _sum_by(values: np.ndarray, group: np.ndarray, n_groups: int) -> np.ndarray:
    total = np.zeros((n_groups, *values.shape[1:]))
    np.add.at(total, group, values)
    return total


def _align(factor: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Give a factor of the first axis as many axes as the values have."""
    return factor.reshape(-1, *[1] * (values.ndim - 1))


def count_agreeing_pairs(decision: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Compute the share of pairs of scans of each participant that get the same decision.

    Shapes: decision [N, ...], member [N]; returns [n, ...].
    """
    k = _align(np.bincount(member).astype(float), decision)
    yes = _sum_by(decision.astype(float), member, len(k))
    no = k - yes
    return (yes * (yes - 1) + no * (no - 1)) / (k * (k - 1))


def jackknife_participants(
    statistic: Callable[[np.ndarray], np.ndarray], cell: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute 95 % intervals of statistics by leaving out each participant once.

    A bootstrap would draw participants of a small cell twice, which makes variances between participants too small;
    the jackknife has no such bias. Cells are independent samples, so their variances add up (Efron & Stein 1981).

    Shapes: statistic [n], cell [n]; returns [m].
    """
    everyone = np.ones(len(cell))
    centre = statistic(everyone)
    without = np.empty((len(cell), *np.shape(centre)))
    for i in range(len(cell)):
        weight = everyone.copy()
        weight[i] = 0.0
        without[i] = statistic(weight)
    variance = np.zeros(np.shape(centre))
    for own in (without[cell == c] for c in np.unique(cell)):
        variance += (len(own) - 1) / len(own) * ((own - own.mean(axis=0)) ** 2).sum(axis=0)
    half = 1.959963984540054 * np.sqrt(variance)
    return centre - half, centre + half
