"""Two numbers of a fitted run: how far its sites lie apart, and how much its predictions move under re-estimation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..connectome import Connectomes
from ..errors import BrioError
from ..methods.brio import BrioSettings
from ..methods.brio.qualification import contribution_statistics, reestimation_variation, reference_scale
from ..training import FittedRun, Method
from ..transport import entropic_cost
from .cells import cell_members, membership
from .outputs import RESAMPLES, source_outputs

__all__ = ["pair_divergences", "predictive_variation", "run_discrepancies", "site_discrepancy"]

_PAPER = BrioSettings()
_PASS = 1 << 24  # entries of the costs of one batch


def site_discrepancy(
    representation: np.ndarray | Tensor,
    site: np.ndarray,
    label: np.ndarray,
    epsilon: float = _PAPER.epsilon,
    iterations: int = _PAPER.sinkhorn_iterations,
    device: torch.device | str = "cpu",
) -> float:
    """Class-conditional site discrepancy D_site of the appendix: lower means that source sites look more alike.

    The mean over pairs of source sites and both classes of the debiased Sinkhorn divergence between the unit-normalised
    full-scan representations, all scans of a site with equal weight, no qualification.

    Parameters
    ----------
    representation : ndarray or Tensor, shape [n, d]
    site, label : ndarray, shape [n]
    epsilon, iterations : float, int
        Of every transport problem, the same for all methods.
    device : torch.device or str
        Where to compute.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(6, 3))
    >>> twice, label = np.concatenate([x, 5 * x]), np.tile([0, 1], 6)
    >>> abs(site_discrepancy(twice, np.repeat(["here", "there"], 6), label)) < 1e-12
    True
    """
    return float(pair_divergences(representation, site, label, epsilon, iterations, device).mean())


def pair_divergences(
    representation: np.ndarray | Tensor,
    site: np.ndarray,
    label: np.ndarray,
    epsilon: float = _PAPER.epsilon,
    iterations: int = _PAPER.sinkhorn_iterations,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Debiased divergence of every pair of sites, pairs as ``triu_indices`` has them, and class. Shape [pairs, 2]."""
    names, members = cell_members(site, label)
    if len(names) < 2:
        raise BrioError("a discrepancy between sites needs two source sites at least")
    cost = _squared_distances(torch.as_tensor(representation).to(device, torch.float64))
    first, second = np.triu_indices(len(names), 1)
    flat = [scans for both in members for scans in both]  # cell 2 e + c
    cells = np.arange(len(flat))
    own = _transport(cost, flat, cells, cells, epsilon, iterations).view(-1, 2)  # once a cell, not once a pair
    left, right = ((2 * e[:, None] + np.arange(2)).reshape(-1) for e in (first, second))
    across = _transport(cost, flat, left, right, epsilon, iterations).view(-1, 2)
    return (across - 0.5 * own[first] - 0.5 * own[second]).cpu()


def _squared_distances(x: Tensor) -> Tensor:
    """Squared distances of unit-normalised rows. Shape [n, d] -> [n, n]."""
    unit = torch.nn.functional.normalize(x, dim=-1)
    square = unit.square().sum(-1)
    distance = square[:, None] + square - 2.0 * unit @ unit.T
    return distance.clamp_min(0.0).fill_diagonal_(0.0)


def _transport(
    cost: Tensor, cells: list[np.ndarray], left: np.ndarray, right: np.ndarray, epsilon: float, iterations: int
) -> Tensor:
    """Entropic costs between cells, problem by problem as ``left`` and ``right`` name them. Shape [problems].

    Problems whose sides round up to the same powers of two are solved in one batch; points that only fill it up have no
    mass.
    """
    room = np.array([1 << (len(scans) - 1).bit_length() for scans in cells])
    out = cost.new_empty(len(left))
    shapes = np.stack([room[left], room[right]], 1)
    for n, m in np.unique(shapes, axis=0):
        problems = np.flatnonzero((shapes == [n, m]).all(1))
        size = max(1, _PASS // int(n * m))
        for part in (problems[start : start + size] for start in range(0, len(problems), size)):
            rows, log_eta = _padded(cells, left[part], n, cost)
            columns, log_zeta = _padded(cells, right[part], m, cost)
            C = cost[rows[:, :, None], columns[:, None, :]]
            out[torch.from_numpy(part).to(cost.device)] = entropic_cost(C, epsilon, iterations, log_eta, log_zeta)
    return out


def _padded(cells: list[np.ndarray], which: np.ndarray, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Scans of cells filled up to one width, and log weights of the points, -inf for filling. Shapes [b, width]."""
    index, weight = np.zeros((len(which), width), dtype=np.int64), np.zeros((len(which), width))
    for row, cell in enumerate(which):
        scans = cells[cell]
        index[row], index[row, : len(scans)] = scans[0], scans
        weight[row, : len(scans)] = 1.0 / len(scans)
    return torch.from_numpy(index).to(like.device), torch.from_numpy(weight).to(like).log()


def predictive_variation(
    margin: np.ndarray, again: np.ndarray, site: np.ndarray, label: np.ndarray, epsilon: float = 1e-12
) -> float:
    """Normalised predictive re-estimation variation of the appendix: how much logits move, relative to their spread.

    The mean over source sites and classes of D_re / (T + epsilon), Eqs. (14) and (15) with the logit margin in place of
    a contribution; multiplying all logits by one number changes nothing.

    Parameters
    ----------
    margin : ndarray, shape [n]
        Of full scans.
    again : ndarray, shape [n, K]
        Of re-estimates.
    site, label : ndarray, shape [n]
    """
    cells = membership(site, label)
    full, other = torch.from_numpy(margin).double()[:, None], torch.from_numpy(again).double()
    _, V, Delta = contribution_statistics(full, cells)
    D_re = reestimation_variation((other - full).square().mean(1, keepdim=True), cells)
    return float((D_re / (reference_scale(V, Delta) + epsilon)).mean())


def run_discrepancies(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_length: Sequence[float],
    n_resamples: int = RESAMPLES,
    epsilon: float = _PAPER.epsilon,
    iterations: int = _PAPER.sinkhorn_iterations,
) -> pd.DataFrame:
    """D_site and the predictive variation of each run, representations let go one by one.

    Returns
    -------
    DataFrame
        One row a run, in the order of ``fitted_runs``: ``method``, ``fold``, ``seed``, ``validation_auc``, ``D_site``,
        ``D_re_pred``; what :mod:`brio.diagnostics.mismatch` reads.
    """
    cohort = connectomes.cohort
    rows: dict[int, dict[str, object]] = {}
    walk = source_outputs(
        method, fitted_runs, connectomes, block_length, n_resamples, ("logit", "representation"), ("logit",)
    )
    for position, (margin, representation), (again,) in walk:
        fitted = fitted_runs[position]
        source = fitted.run.fold.source
        site, label = cohort.sites[source], cohort.labels[source]
        rows[position] = {
            "method": method.name,
            "fold": fitted.run.fold.name,
            "seed": fitted.run.seed,
            "validation_auc": fitted.validation_auc,
            "D_site": site_discrepancy(representation, site, label, epsilon, iterations, connectomes.device),
            "D_re_pred": predictive_variation(margin, again, site, label),
        }
    columns = ["method", "fold", "seed", "validation_auc", "D_site", "D_re_pred"]
    return pd.DataFrame([rows[i] for i in range(len(fitted_runs))], columns=columns)
