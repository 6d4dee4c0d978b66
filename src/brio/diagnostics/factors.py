"""The factors of a frozen BRIO run: what each contributes, how it qualifies, which ones to keep."""

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
from ..training.stack import Stack
from .cells import cell_members, membership
from .outputs import RESAMPLES, source_outputs

__all__ = [
    "RANKINGS",
    "FactorEvidence",
    "Ranking",
    "contributions",
    "factor_evidence",
    "factor_ranking",
    "global_qualification",
    "retained_margin",
    "roi_profile",
]

Ranking = Literal["qualification", "relevance", "support", "random"]
RANKINGS: tuple[Ranking, ...] = get_args(Ranking)


@dataclass(frozen=True, eq=False)
class FactorEvidence:
    """What the factors of one frozen run say of its source scans, in float64 on the host.

    Attributes
    ----------
    sites : ndarray of str, shape [E]
        Source sites, sorted: the order of every axis E, and of pairs by ``triu_indices``.
    a : Tensor, shape [n, J]
        Full-scan contributions, scans in the order of ``run.fold.source``.
    again : Tensor, shape [n, K, J]
        Contributions of the re-estimates.
    membership : Tensor, shape [E, 2, n]
        1 / N_ec for the scans of site e and class c, else 0.
    qualification : Qualification
        pi_task, q_re, alpha_bar and g of the frozen run, as the full method qualifies, whatever variant trained it.
    Pi_bar : Tensor, shape [J, P]
        The assignment retained after the warm-up.
    settings : BrioSettings
    """

    sites: np.ndarray
    a: Tensor
    again: Tensor
    membership: Tensor
    qualification: Qualification
    Pi_bar: Tensor
    settings: BrioSettings

    @property
    def squared_change(self) -> Tensor:
        """Mean over the re-estimates of (a^(k) - a^(0))^2. Shape [n, J]."""
        return (self.again - self.a[:, None]).square().mean(1)


def factor_evidence(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_length: Sequence[float],
    n_resamples: int = RESAMPLES,
) -> list[FactorEvidence]:
    """Contributions and qualifications of fitted BRIO runs on the re-estimates that all diagnostics share.

    Parameters are those of :func:`brio.diagnostics.source_answers`.
    """
    settings = _brio(method).settings
    cohort = connectomes.cohort
    found: dict[int, FactorEvidence] = {}
    fields = ("contributions",)
    walk = source_outputs(method, fitted_runs, connectomes, block_length, n_resamples, fields, fields)
    for position, (full,), (other,) in walk:
        fitted = fitted_runs[position]
        source = fitted.run.fold.source
        site, label = cohort.sites[source], cohort.labels[source]
        a, again = torch.from_numpy(full).double(), torch.from_numpy(other).double()
        cells, w = membership(site, label), fitted.parameters["w"].double().cpu()
        site_weight = torch.full((len(cells),), 1.0 / len(cells), dtype=torch.float64)
        change = (again - a[:, None]).square().mean(1)
        qualification = qualify(a, change, w, cells, site_weight, replace(settings, variant="full"))
        Pi_bar = fitted.state.inference["Pi_bar"].double().cpu()
        found[position] = FactorEvidence(cell_members(site, label)[0], a, again, cells, qualification, Pi_bar, settings)
    return [found[i] for i in range(len(fitted_runs))]


def global_qualification(alpha_bar: Tensor) -> Tensor:
    """Global factor qualification, appendix on interpretability: the mean over pairs and classes. [pairs, 2, J] -> [J].

    Examples
    --------
    >>> global_qualification(torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]))
    tensor([0.7500, 0.2500])
    """
    return alpha_bar.mean((0, 1))


def roi_profile(alpha_global: Tensor, Pi_bar: Tensor) -> Tensor:
    """ROI profile S_hat, appendix on interpretability: qualifications seen through the assignment; sums to one.

    Parameters
    ----------
    alpha_global : Tensor, shape [J]
        :func:`global_qualification`.
    Pi_bar : Tensor, shape [J, P]
        Rows sum to 1 / J, up to the iterations that balanced them; so the score is divided by its own sum.

    Returns
    -------
    Tensor, shape [P]
    """
    S = alpha_global @ Pi_bar
    return S / S.sum()


def factor_ranking(evidence: FactorEvidence, by: Ranking, seed: int = 0) -> np.ndarray:
    """Factors from the best to the worst; equal scores in the order of their numbers. Shape [J], int64.

    Parameters
    ----------
    by : {"qualification", "relevance", "support", "random"}
        alpha = pi_task q_pair averaged over pairs of source sites and classes; pi_task; q_pair averaged likewise; or an
        order drawn from the seed.
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


def contributions(method: Method, fitted: FittedRun, scans: Scans) -> Tensor:
    """Contributions a of any scans under a fitted BRIO run, in the precision of the scans. Shape [n, J]."""
    return Stack.restore(_brio(method), scans, [fitted]).forward(scans, shared=True).contributions[0]


def retained_margin(a: Tensor, fitted: FittedRun, retained: Sequence[int] | np.ndarray) -> np.ndarray:
    """Logit of some factors alone, Eq. (10) with the others left out: the same classifier, nothing trained again.

    All factors retained give the margins of the run.

    Parameters
    ----------
    a : Tensor, shape [n, J]
        :func:`contributions` of the scans.
    retained : sequence of int
        Numbers of the factors that stay.

    Returns
    -------
    ndarray, shape [n], float64
    """
    stays = torch.zeros(a.shape[-1], dtype=a.dtype, device=a.device)
    stays[torch.as_tensor(np.asarray(retained, dtype=np.int64), device=a.device)] = 1.0
    logit = (a * stays).sum(-1) / math.sqrt(a.shape[-1]) + fitted.parameters["b"].to(a)
    return logit.double().cpu().numpy()


def _brio(method: Method) -> Brio:
    if not isinstance(method, Brio):
        raise BrioError(f"method '{method.name}' has no factors; give runs of brio or of one of its variants")
    return method
