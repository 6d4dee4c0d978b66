"""Both propositions of the paper, checked on what a frozen BRIO run shows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..methods.brio.qualification import (
    contribution_statistics,
    pair_support,
    qualification_profile,
    reestimation_support,
    reestimation_variation,
    reference_scale,
)
from .factors import FactorEvidence

__all__ = ["contrast_stability", "proposition_1", "proposition_2", "reweighting_gain"]

_ROUNDING = 1e-7  # of a bound that is the root of a difference of numbers near 1 in float64


def contrast_stability(V_sub: Tensor, Delta: Tensor, Delta_re: Tensor, D_re: Tensor, eps_q: float) -> dict[str, Tensor]:
    """The quantities of Proposition 1, Eq. (17), for every site and factor.

    Parameters
    ----------
    V_sub, D_re : Tensor, shape [E, 2, J]
    Delta, Delta_re : Tensor, shape [E, J]
        Class contrast of full scans, and of contributions averaged over scans and re-estimates.

    Returns
    -------
    dict of Tensor
        ``q_re``, ``kappa`` and ``threshold`` [E, 2, J]; ``bound``, ``holds`` (|Delta_re - Delta| is within the bound),
        ``sign_condition`` (both supports exceed (1 + kappa) / (1 + 2 kappa)) and ``sign_kept`` [E, J].
    """
    T = reference_scale(V_sub, Delta)
    q_re = reestimation_support(T, D_re, eps_q)
    kappa = Delta.square().unsqueeze(1) / (4.0 * (V_sub + eps_q))
    threshold = (1.0 + kappa) / (1.0 + 2.0 * kappa)
    bound = ((T + eps_q) * (1.0 / q_re - 1.0)).clamp_min(0.0).sqrt().sum(1)
    rounding = _ROUNDING * (T + eps_q).sqrt().sum(1)
    return {
        "q_re": q_re,
        "kappa": kappa,
        "threshold": threshold,
        "bound": bound,
        "holds": (Delta_re - Delta).abs() <= bound + rounding,
        "sign_condition": (q_re > threshold).all(1),
        "sign_kept": Delta * Delta_re > 0,
    }


def proposition_1(evidence: FactorEvidence) -> pd.DataFrame:
    """Class-contrast stability under re-estimation, for each source site and factor of a frozen run.

    Returns
    -------
    DataFrame
        ``site``, ``factor``, ``Delta``, ``Delta_re``, ``change`` (of the contrast), ``bound``, ``holds``, ``q_0``,
        ``q_1``, ``threshold_0``, ``threshold_1`` (by class), ``sign_condition``, ``sign_kept``. The proposition says:
        ``holds`` everywhere, and ``sign_kept`` wherever the condition holds.
    """
    a, cells = evidence.a, evidence.membership
    _, V_sub, Delta = contribution_statistics(a, cells)
    _, _, Delta_re = contribution_statistics(evidence.again.mean(1), cells)
    D_re = reestimation_variation(evidence.squared_change, cells)
    found = contrast_stability(V_sub, Delta, Delta_re, D_re, evidence.settings.eps_q)
    E, J = Delta.shape
    columns: dict[str, Tensor] = {"Delta": Delta, "Delta_re": Delta_re, "change": (Delta_re - Delta).abs()}
    columns |= {name: found[name] for name in ("bound", "holds")}
    columns |= {f"q_{c}": found["q_re"][:, c] for c in (0, 1)}
    columns |= {f"threshold_{c}": found["threshold"][:, c] for c in (0, 1)}
    columns |= {name: found[name] for name in ("sign_condition", "sign_kept")}
    table = pd.DataFrame({name: t.flatten().numpy() for name, t in columns.items()})
    table.insert(0, "factor", np.tile(np.arange(J), E))
    table.insert(0, "site", np.repeat(evidence.sites, J))
    return table


def reweighting_gain(pi: Tensor, q_pair: Tensor) -> dict[str, Tensor]:
    """What reweighting by support saves in support penalty, proof of Proposition 2. Shapes [J] and [pairs, 2, J].

    Returns
    -------
    dict of Tensor, shape [pairs, 2]
        ``penalty_relevance``: sum_j pi_j log(1 / q_j), of relevance-only weights; ``penalty``: -log g, the least value
        of the objective; ``objective``: its value at alpha_bar; ``gain``: the difference of the penalties; ``kl``:
        KL(pi || alpha_bar), which equals it.
    """
    g, alpha_bar = qualification_profile(pi, q_pair)
    penalty_relevance = -torch.xlogy(pi, q_pair).sum(-1)
    objective = (torch.xlogy(alpha_bar, alpha_bar) - torch.xlogy(alpha_bar, pi * q_pair)).sum(-1)
    return {
        "penalty_relevance": penalty_relevance,
        "penalty": -g.log(),
        "objective": objective,
        "gain": penalty_relevance + g.log(),
        "kl": (torch.xlogy(pi, pi) - torch.xlogy(pi, alpha_bar)).sum(-1),
    }


def proposition_2(evidence: FactorEvidence) -> pd.DataFrame:
    """The variational form of the qualification, for each pair of source sites and class of a frozen run.

    Returns
    -------
    DataFrame
        ``site_1``, ``site_2``, ``label``, ``g``, ``penalty_relevance``, ``penalty``, ``objective``, ``gain``, ``kl``
        (see :func:`reweighting_gain`) and ``holds``: the objective at alpha_bar is -log g, and the gain is the
        divergence and not negative.
    """
    qualification = evidence.qualification
    found = reweighting_gain(qualification.pi_task, pair_support(qualification.q_re))
    near = _ROUNDING * (1.0 + found["penalty_relevance"])
    holds = (found["objective"] - found["penalty"]).abs() <= near
    holds &= ((found["gain"] - found["kl"]).abs() <= near) & (found["gain"] >= -near)
    columns = {"g": (-found["penalty"]).exp(), **found, "holds": holds}
    table = pd.DataFrame({name: t.flatten().numpy() for name, t in columns.items()})
    first, second = np.triu_indices(len(evidence.sites), 1)
    table.insert(0, "label", np.tile([0, 1], len(first)))
    table.insert(0, "site_2", np.repeat(evidence.sites[second], 2))
    table.insert(0, "site_1", np.repeat(evidence.sites[first], 2))
    return table
