"""The factors of a frozen BRIO run: contributions, qualification, rankings, retention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..connectome import Connectomes
from ..errors import BrioError
from ..methods.brio import Brio, BrioSettings
from ..methods.brio.qualification import Qualification, pair_support, qualify
from ..training import FittedRun, Method, Scans
from ..training.cells import cell_average_weights, group_by_cell
from ..training.stack import Stack
from .outputs import DEFAULT_REESTIMATES, iterate_source_outputs

__all__ = [
    "RANKINGS",
    "FactorEvidence",
    "Ranking",
    "compute_contributions",
    "gather_factor_evidence",
    "global_qualification",
    "rank_factors",
    "retained_margin",
    "roi_profile",
]

Ranking = Literal["qualification", "relevance", "support", "random"]
RANKINGS: tuple[Ranking, ...] = get_args(Ranking)
"""Scores by which :func:`rank_factors` orders factors."""


@dataclass(frozen=True, eq=False)
class FactorEvidence:
    """Contributions and qualification of the factors of one frozen run on its source scans.

    Tensors are float64 on the host.

    Attributes
    ----------
    sites : ndarray of str, shape [E]
        Source sites, sorted. Every axis E has this order, and pairs of sites that of ``triu_indices``.
    a : Tensor, shape [n, J]
        Contributions of full scans, in the order of ``run.fold.source``.
    a_reestimated : Tensor, shape [n, K, J]
        Contributions of the re-estimates.
    cell_average : Tensor, shape [E, 2, n]
        1 / N_ec for the scans of site e and class c, else 0.
    qualification : Qualification
        pi_task, q_re, alpha_bar and g of the frozen run, computed as in the full method, whatever variant was trained.
    Pi_bar : Tensor, shape [J, P]
        The assignment, fixed after the warm-up.
    settings : BrioSettings
    """

    sites: np.ndarray
    a: Tensor
    a_reestimated: Tensor
    cell_average: Tensor
    qualification: Qualification
    Pi_bar: Tensor
    settings: BrioSettings

    @property
    def squared_change(self) -> Tensor:
        """Mean over the re-estimates of (a^(k) - a^(0))^2. Shape [n, J]."""
        return (self.a_reestimated - self.a[:, None]).square().mean(1)


def gather_factor_evidence(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_lengths: Sequence[float],
    n_reestimates: int = DEFAULT_REESTIMATES,
) -> list[FactorEvidence]:
    """Compute contributions and qualifications of fitted BRIO runs on the re-estimates that all diagnostics share.

    Parameters
    ----------
    method : Method
        BRIO or a variant of it, with the settings the runs were fitted with.
    fitted_runs, connectomes, block_lengths, n_reestimates
        As for :func:`brio.diagnostics.outputs.iterate_source_outputs`.

    Returns
    -------
    list of FactorEvidence
        In the order of ``fitted_runs``.

    Raises
    ------
    BrioError
        If the method has no factors.
    """
    settings = _require_brio(method).settings
    cohort = connectomes.cohort
    evidence: dict[int, FactorEvidence] = {}
    fields = ("contributions",)
    for position, full, reestimated in iterate_source_outputs(
        method, fitted_runs, connectomes, block_lengths, n_reestimates, fields, fields
    ):
        fitted = fitted_runs[position]
        source = fitted.run.fold.source
        site, label = cohort.sites[source], cohort.labels[source]
        a = torch.from_numpy(full["contributions"]).double()
        a_reestimated = torch.from_numpy(reestimated["contributions"]).double()
        cells, w = cell_average_weights(site, label), fitted.parameters["w"].double().cpu()
        site_weight = torch.full((len(cells),), 1.0 / len(cells), dtype=torch.float64)
        change = (a_reestimated - a[:, None]).square().mean(1)
        qualification = qualify(a, change, w, cells, site_weight, replace(settings, variant="full"))
        Pi_bar = fitted.state.inference["Pi_bar"].double().cpu()
        names, _ = group_by_cell(site, label)
        evidence[position] = FactorEvidence(names, a, a_reestimated, cells, qualification, Pi_bar, settings)
    return [evidence[i] for i in range(len(fitted_runs))]


def global_qualification(alpha_bar: Tensor) -> Tensor:
    """Compute the global qualification of each factor: the mean over pairs and classes (appendix, interpretability).

    Parameters
    ----------
    alpha_bar : Tensor, shape [pairs, 2, J]

    Returns
    -------
    Tensor, shape [J]

    Examples
    --------
    >>> global_qualification(torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]))
    tensor([0.7500, 0.2500])
    """
    return alpha_bar.mean((0, 1))


def roi_profile(alpha_global: Tensor, Pi_bar: Tensor) -> Tensor:
    """Compute the ROI profile S_hat: global qualifications assigned to ROIs (appendix, interpretability).

    Parameters
    ----------
    alpha_global : Tensor, shape [J]
        See :func:`global_qualification`.
    Pi_bar : Tensor, shape [J, P]
        Rows sum to 1 / J only approximately, after a limited number of balancing iterations. The profile is therefore
        divided by its own sum.

    Returns
    -------
    Tensor, shape [P]
        Sums to one.
    """
    S = alpha_global @ Pi_bar
    return S / S.sum()


def rank_factors(evidence: FactorEvidence, by: Ranking, seed: int = 0) -> np.ndarray:
    """Order the factors from best to worst; factors with equal scores keep their order.

    Parameters
    ----------
    evidence : FactorEvidence
    by : {"qualification", "relevance", "support", "random"}
        alpha = pi_task q_pair averaged over pairs of source sites and classes; pi_task; q_pair averaged in the same
        way; or a random order.
    seed : int
        Of the random order.

    Returns
    -------
    ndarray of int64, shape [J]

    Raises
    ------
    BrioError
        If the ranking is unknown.
    """
    if by not in RANKINGS:
        raise BrioError(f"ranking '{by}' is unknown; known: {', '.join(RANKINGS)}")
    pi_task, support = evidence.qualification.pi_task, pair_support(evidence.qualification.q_re)
    J = len(pi_task)
    if by == "random":
        score = torch.from_numpy(draws.draw_uniform(seed, "random ranking of factors", np.arange(J)))
    else:
        score = {
            "qualification": (pi_task * support).mean((0, 1)),
            "relevance": pi_task,
            "support": support.mean((0, 1)),
        }[by]
    return score.sort(descending=True, stable=True).indices.numpy()


def compute_contributions(method: Method, fitted: FittedRun, scans: Scans) -> Tensor:
    """Compute the contributions a of any scans under a fitted BRIO run.

    Parameters
    ----------
    method : Method
        BRIO or a variant of it, with the settings the run was fitted with.
    fitted : FittedRun
        With its weights.
    scans : Scans
        n scans.

    Returns
    -------
    Tensor, shape [n, J]
        In the precision of the scans.

    Raises
    ------
    BrioError
        If the method has no factors.
    """
    return Stack.restore(_require_brio(method), scans, [fitted]).forward(scans, shared=True).contributions[0]


def retained_margin(a: Tensor, fitted: FittedRun, retained: Sequence[int] | np.ndarray) -> np.ndarray:
    """Compute the logit from some of the factors: Eq. (10) without the others, with the same classifier.

    With all factors retained, these are the margins of the run.

    Parameters
    ----------
    a : Tensor, shape [n, J]
        Contributions of the scans, see :func:`compute_contributions`.
    fitted : FittedRun
        With its weights.
    retained : sequence of int
        Indices of the factors to retain.

    Returns
    -------
    ndarray of float64, shape [n]
    """
    mask = torch.zeros(a.shape[-1], dtype=a.dtype, device=a.device)
    mask[torch.as_tensor(np.asarray(retained, dtype=np.int64), device=a.device)] = 1.0
    logit = (a * mask).sum(-1) / math.sqrt(a.shape[-1]) + fitted.parameters["b"].to(a)
    return logit.double().cpu().numpy()


def _require_brio(method: Method) -> Brio:
    if not isinstance(method, Brio):
        raise BrioError(f"method '{method.name}' has no factors; use runs of brio or of one of its variants")
    return method
