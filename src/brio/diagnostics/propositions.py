"""Check both propositions of the paper on a frozen BRIO run."""

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

_ROUNDING = 1e-7  # a bound is the root of a difference of numbers near 1, in float64


def contrast_stability(V_sub: Tensor, Delta: Tensor, Delta_re: Tensor, D_re: Tensor, eps_q: float) -> dict[str, Tensor]:
    """Compute the quantities of Proposition 1, Eq. (17), for every site and factor.

    Shapes: V_sub, D_re [E, 2, J], Delta, Delta_re [E, J].
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


def check_proposition_1(evidence: FactorEvidence) -> pd.DataFrame:
    """Check that class contrasts are stable under re-estimation, for each source site and factor of a frozen run.

    Proposition 1 says that ``holds`` is true in every row, and ``sign_kept`` wherever ``sign_condition`` is.

    Returns one row per site and factor: ``site``, ``factor``, ``Delta``, ``Delta_re``, ``change`` (of the contrast),
    ``bound``, ``holds``; by class ``q_0``, ``q_1``, ``threshold_0``, ``threshold_1``; ``sign_condition``,
    ``sign_kept``. See :func:`contrast_stability`.
    """
    a, cells = evidence.a, evidence.cell_average
    _, V_sub, Delta = contribution_statistics(a, cells)
    _, _, Delta_re = contribution_statistics(evidence.a_reestimated.mean(1), cells)
    D_re = reestimation_variation(evidence.squared_change, cells)
    stability = contrast_stability(V_sub, Delta, Delta_re, D_re, evidence.settings.eps_q)
    E, J = Delta.shape
    columns: dict[str, Tensor] = {"Delta": Delta, "Delta_re": Delta_re, "change": (Delta_re - Delta).abs()}
    columns |= {name: stability[name] for name in ("bound", "holds")}
    columns |= {f"q_{c}": stability["q_re"][:, c] for c in (0, 1)}
    columns |= {f"threshold_{c}": stability["threshold"][:, c] for c in (0, 1)}
    columns |= {name: stability[name] for name in ("sign_condition", "sign_kept")}
    table = pd.DataFrame({name: t.flatten().numpy() for name, t in columns.items()})
    table.insert(0, "factor", np.tile(np.arange(J), E))
    table.insert(0, "site", np.repeat(evidence.sites, J))
    return table


def reweighting_gain(pi: Tensor, q_pair: Tensor) -> dict[str, Tensor]:
    """Compute how much support penalty reweighting by support saves (proof of Proposition 2).

    Shapes: pi [J], q_pair [pairs, 2, J]; returns [pairs, 2].
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


def check_proposition_2(evidence: FactorEvidence) -> pd.DataFrame:
    """Check the variational form of the qualification, for each pair of source sites and class of a frozen run.

    Returns one row per pair and class: ``site_1``, ``site_2``, ``label``, ``g``; ``penalty_relevance``, ``penalty``,
    ``objective``, ``gain``, ``kl`` (see :func:`reweighting_gain`); and ``holds``: the objective at alpha_bar is -log g,
    and the gain equals the KL divergence and is not negative.
    """
    qualification = evidence.qualification
    gains = reweighting_gain(qualification.pi_task, pair_support(qualification.q_re))
    tolerance = _ROUNDING * (1.0 + gains["penalty_relevance"])
    holds = (gains["objective"] - gains["penalty"]).abs() <= tolerance
    holds &= ((gains["gain"] - gains["kl"]).abs() <= tolerance) & (gains["gain"] >= -tolerance)
    columns = {"g": (-gains["penalty"]).exp(), **gains, "holds": holds}
    table = pd.DataFrame({name: t.flatten().numpy() for name, t in columns.items()})
    first, second = np.triu_indices(len(evidence.sites), 1)
    table.insert(0, "label", np.tile([0, 1], len(first)))
    table.insert(0, "site_2", np.repeat(evidence.sites[second], 2))
    table.insert(0, "site_1", np.repeat(evidence.sites[first], 2))
    return table
