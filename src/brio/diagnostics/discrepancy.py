"""Two measures of a fitted run: how far its source sites lie apart, and how much its predictions vary."""

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
from ..training.cells import cell_average_weights, group_by_cell
from ..transport import entropic_cost
from .outputs import DEFAULT_REESTIMATES, iterate_source_outputs

_PAPER = BrioSettings()
_COSTS_AT_A_TIME = 1 << 24  # entries of the cost matrices of one batch of transport problems


def site_discrepancy(
    representation: np.ndarray | Tensor,
    site: np.ndarray,
    label: np.ndarray,
    epsilon: float = _PAPER.epsilon,
    iterations: int = _PAPER.sinkhorn_iterations,
    device: torch.device | str = "cpu",
) -> float:
    """Compute the class-conditional site discrepancy D_site (appendix); lower means that source sites are more alike.

    D_site is the mean of :func:`pair_divergences` over pairs of source sites and both classes.

    Shapes: representation [n, d], site, label [n].
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
    """Compute the debiased Sinkhorn divergence between every pair of sites, class by class.

    Representations are normalised to unit length. All scans of a cell have equal weight; nothing is qualified.

    Shapes: returns [pairs, 2].
    """
    names, members = group_by_cell(site, label)
    if len(names) < 2:
        raise BrioError("a discrepancy between sites needs at least two source sites")
    cost = _squared_distances(torch.as_tensor(representation).to(device, torch.float64))
    first, second = np.triu_indices(len(names), 1)
    cells = [scans for both in members for scans in both]  # cell 2 e + c
    every = np.arange(len(cells))
    within = _entropic_costs(cost, cells, every, every, epsilon, iterations).view(-1, 2)  # once per cell, not per pair
    left, right = ((2 * e[:, None] + np.arange(2)).reshape(-1) for e in (first, second))
    across = _entropic_costs(cost, cells, left, right, epsilon, iterations).view(-1, 2)
    return (across - 0.5 * within[first] - 0.5 * within[second]).cpu()


def _squared_distances(x: Tensor) -> Tensor:
    """Squared distances between unit-normalised rows. Shape [n, d] -> [n, n]."""
    unit = torch.nn.functional.normalize(x, dim=-1)
    square = unit.square().sum(-1)
    distance = square[:, None] + square - 2.0 * unit @ unit.T
    return distance.clamp_min(0.0).fill_diagonal_(0.0)


def _entropic_costs(
    cost: Tensor, cells: list[np.ndarray], left: np.ndarray, right: np.ndarray, epsilon: float, iterations: int
) -> Tensor:
    """Entropic costs between cells ``left[i]`` and ``right[i]``. Shape [problems].

    Sides are padded to powers of two with points without mass, and problems of the same padded shape are solved in one
    batch.
    """
    width = np.array([1 << (len(scans) - 1).bit_length() for scans in cells])
    out = cost.new_empty(len(left))
    shapes = np.stack([width[left], width[right]], 1)
    for n, m in np.unique(shapes, axis=0):
        problems = np.flatnonzero((shapes == [n, m]).all(1))
        size = max(1, _COSTS_AT_A_TIME // int(n * m))
        for part in (problems[start : start + size] for start in range(0, len(problems), size)):
            rows, log_eta = _pad_cells(cells, left[part], n, cost)
            columns, log_zeta = _pad_cells(cells, right[part], m, cost)
            C = cost[rows[:, :, None], columns[:, None, :]]
            out[torch.from_numpy(part).to(cost.device)] = entropic_cost(C, epsilon, iterations, log_eta, log_zeta)
    return out


def _pad_cells(cells: list[np.ndarray], chosen: np.ndarray, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Scans of the chosen cells, and their log weights, -inf for padding. Shapes [b, width]."""
    index, weight = np.zeros((len(chosen), width), dtype=np.int64), np.zeros((len(chosen), width))
    for row, cell in enumerate(chosen):
        scans = cells[cell]
        index[row], index[row, : len(scans)] = scans[0], scans
        weight[row, : len(scans)] = 1.0 / len(scans)
    return torch.from_numpy(index).to(like.device), torch.from_numpy(weight).to(like).log()


def predictive_variation(
    margin: np.ndarray, reestimated: np.ndarray, site: np.ndarray, label: np.ndarray, epsilon: float = 1e-12
) -> float:
    """Compute the normalised predictive re-estimation variation (appendix).

    It says how much logits vary under re-estimation, relative to their spread: the mean over source sites and classes
    of D_re / (T + epsilon), Eqs. (14) and (15) with the logit margin in place of a contribution. Scaling all logits
    does not change it.

    Shapes: margin [n], reestimated [n, K], site, label [n].
    """
    cells = cell_average_weights(site, label)
    full, other = torch.from_numpy(margin).double()[:, None], torch.from_numpy(reestimated).double()
    _, V, Delta = contribution_statistics(full, cells)
    D_re = reestimation_variation((other - full).square().mean(1, keepdim=True), cells)
    return float((D_re / (reference_scale(V, Delta) + epsilon)).mean())


def measure_discrepancies(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_lengths: Sequence[float],
    n_reestimates: int = DEFAULT_REESTIMATES,
    epsilon: float = _PAPER.epsilon,
    iterations: int = _PAPER.sinkhorn_iterations,
) -> pd.DataFrame:
    """Measure the site discrepancy and the predictive variation of each fitted run of a method.

    Returns one row per run, in the order of ``fitted_runs``: ``method``, ``fold``, ``seed``, ``validation_auc``,
    ``D_site``, ``D_re_pred``. The functions of :mod:`brio.diagnostics.mismatch` read it.
    """
    cohort = connectomes.cohort
    rows: dict[int, dict[str, object]] = {}
    fields = ("logit", "representation")
    for position, full, reestimated in iterate_source_outputs(
        method, fitted_runs, connectomes, block_lengths, n_reestimates, fields, ("logit",)
    ):
        fitted = fitted_runs[position]
        source = fitted.run.fold.source
        site, label = cohort.sites[source], cohort.labels[source]
        rows[position] = {
            "method": method.name,
            "fold": fitted.run.fold.name,
            "seed": fitted.run.seed,
            "validation_auc": fitted.validation_auc,
            "D_site": site_discrepancy(full["representation"], site, label, epsilon, iterations, connectomes.device),
            "D_re_pred": predictive_variation(full["logit"], reestimated["logit"], site, label),
        }
    columns = ["method", "fold", "seed", "validation_auc", "D_site", "D_re_pred"]
    return pd.DataFrame([rows[i] for i in range(len(fitted_runs))], columns=columns)
