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
from .discrepancy import DEFAULT_REESTIMATES, iterate_source_outputs

Ranking = Literal["qualification", "relevance", "support", "random"]
RANKINGS: tuple[Ranking, ...] = get_args(Ranking)
"""Scores by which :func:`rank_factors` orders factors."""


@dataclass(frozen=True, eq=False)
class FactorEvidence:
    """Contributions and qualification of the factors of one frozen run on its source scans.

    Tensors are float64 on the host.

    Shapes: sites [E], a [n, J], a_reestimated [n, K, J], cell_average [E, 2, n], Pi_bar [J, P].
    """

    sites: np.ndarray  # source sites, sorted. Every axis E has this order, and pairs of sites that of triu_indices
    a: Tensor  # contributions of full scans, in the order of run.fold.source
    a_reestimated: Tensor  # contributions of the re-estimates
    cell_average: Tensor  # 1 / N_ec for the scans of site e and class c, else 0
    qualification: Qualification
    Pi_bar: Tensor  # the assignment, fixed after the warm-up
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
    """Compute contributions and qualifications of fitted BRIO runs on the re-estimates that all diagnostics share."""
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

    Shapes: alpha_bar [pairs, 2, J]; returns [J].
    """
    return alpha_bar.mean((0, 1))


def roi_profile(alpha_global: Tensor, Pi_bar: Tensor) -> Tensor:
    """Compute the ROI profile S_hat: global qualifications assigned to ROIs (appendix, interpretability).

    Shapes: alpha_global [J], Pi_bar [J, P]; returns [P].
    """
    S = alpha_global @ Pi_bar
    return S / S.sum()


def rank_factors(evidence: FactorEvidence, by: Ranking, seed: int = 0) -> np.ndarray:
    """Order the factors from best to worst; factors with equal scores keep their order.

    Shapes: returns [J].
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

    Shapes: returns [n, J].
    """
    return Stack.restore(_require_brio(method), scans, [fitted]).forward(scans, shared=True).contributions[0]


def retained_margin(a: Tensor, fitted: FittedRun, retained: Sequence[int] | np.ndarray) -> np.ndarray:
    """Compute the logit from some of the factors: Eq. (10) without the others, with the same classifier.

    With all factors retained, these are the margins of the run.

    Shapes: a [n, J]; returns [n].
    """
    mask = torch.zeros(a.shape[-1], dtype=a.dtype, device=a.device)
    mask[torch.as_tensor(np.asarray(retained, dtype=np.int64), device=a.device)] = 1.0
    logit = (a * mask).sum(-1) / math.sqrt(a.shape[-1]) + fitted.parameters["b"].to(a)
    return logit.double().cpu().numpy()


def _require_brio(method: Method) -> Brio:
    if not isinstance(method, Brio):
        raise BrioError(f"method '{method.name}' has no factors; use runs of brio or of one of its variants")
    return method
