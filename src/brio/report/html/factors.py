"""What BRIO's runs keep of their factors: how site pairs qualify them, and which ROIs they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from .reading import EvidenceArm

__all__ = ["RunFactors", "assignment", "qualification", "read_factors"]

_NAMES = ("alpha_bar", "g", "q_re", "pi_task", "Pi_bar")


@dataclass(frozen=True, eq=False)
class RunFactors:
    """Factors of one run, the most relevant first; they have no names that runs could share.

    Attributes
    ----------
    fold : str
    seed : int
    validation_auc : float
    sites : list of str
        Source sites, sorted.
    pi_task : ndarray, shape [J]
        Relevance.
    alpha_bar : ndarray, shape [pairs, 2, J]
    g : ndarray, shape [pairs, 2]
    q_re : ndarray, shape [sites, 2, J], or None where nothing was re-estimated
    Pi_bar : ndarray, shape [J, P]
    """

    fold: str
    seed: int
    validation_auc: float
    sites: list[str]
    pi_task: np.ndarray
    alpha_bar: np.ndarray
    g: np.ndarray
    q_re: np.ndarray | None
    Pi_bar: np.ndarray


def read_factors(arm: EvidenceArm) -> list[RunFactors]:
    """The factors of every run of an arm that kept them; none for other methods, or where weights were not kept."""
    return list(_factors(arm))


def _factors(arm: EvidenceArm) -> Iterator[RunFactors]:
    for run in arm.runs:
        found = arm.job.store.read_tensors(run.key, _NAMES)
        if not {"alpha_bar", "g", "pi_task", "Pi_bar"} <= set(found):
            continue
        order = np.argsort(-found["pi_task"], kind="stable")
        row = run.record.row
        yield RunFactors(
            fold=row.fold,
            seed=row.seed,
            validation_auc=row.validation_auc or 0.0,
            sites=list(run.record.source_sites),
            pi_task=found["pi_task"][order],
            alpha_bar=found["alpha_bar"][..., order],
            g=found["g"],
            q_re=found["q_re"][..., order] if "q_re" in found else None,
            Pi_bar=found["Pi_bar"][order],
        )


def qualification(runs: Sequence[RunFactors]) -> dict[str, Any]:
    """Qualification in each fold, averaged over its seeds, for the script to draw.

    Seeds have other validation sites, so a pair is averaged over the seeds in which both of its sites are source.
    ``pairs`` holds, for each pair (i < j positions in ``sites``) and class, the strength g and then the J weights
    alpha_bar; ``support`` holds q_re for each site and class; both None where no seed has the pair or site.
    """
    folds = {}
    for fold in sorted({run.fold for run in runs}):
        mine = [run for run in runs if run.fold == fold]
        sites = sorted({site for run in mine for site in run.sites})
        pairs: dict[tuple[str, str], list[np.ndarray]] = {}
        support: dict[str, list[np.ndarray]] = {}
        for run in mine:
            for k, pair in enumerate(combinations(run.sites, 2)):
                pairs.setdefault(pair, []).append(np.column_stack([run.g[k], run.alpha_bar[k]]))  # [2, 1 + J]
            if run.q_re is not None:
                for site, q in zip(run.sites, run.q_re, strict=True):
                    support.setdefault(site, []).append(q)
        folds[fold] = {
            "sites": sites,
            "seeds": len(mine),
            "pi": _rounded(np.mean([run.pi_task for run in mine], axis=0)),
            "pairs": [_mean(pairs.get(pair)) for pair in combinations(sites, 2)],
            "support": [_mean(support.get(site)) for site in sites] if support else None,
        }
    return folds


def _mean(values: list[np.ndarray] | None) -> list[Any] | None:
    return None if values is None else _rounded(np.mean(values, axis=0))


def _rounded(values: np.ndarray) -> list[Any]:
    return values.round(3).tolist()


def assignment(runs: Sequence[RunFactors]) -> dict[str, Any]:
    """The factor of each ROI in the run with the best validation AUC, and how far the runs agree on it.

    ``factor`` is counted from 0; ``share`` says how much of the ROI the factor has. ``agreement`` is the mean adjusted
    Rand index over pairs of runs: 1 if all make the same groups of ROIs, about 0 if they have nothing in common.
    """
    from sklearn.metrics import adjusted_rand_score

    best = max(runs, key=lambda run: (run.validation_auc, run.fold, -run.seed))
    groups = [run.Pi_bar.argmax(0) for run in runs]
    pairs = list(combinations(groups, 2))
    if len(pairs) > 300:  # plenty for a mean
        pairs = [pairs[k] for k in np.random.default_rng(0).choice(len(pairs), 300, replace=False)]
    return {
        "fold": best.fold,
        "seed": best.seed,
        "factor": best.Pi_bar.argmax(0).tolist(),
        "share": (best.Pi_bar / best.Pi_bar.sum(0)).max(0).round(2).tolist(),
        "pi": _rounded(best.pi_task),
        "agreement": float(np.mean([adjusted_rand_score(a, b) for a, b in pairs])) if pairs else None,
        "runs": len(runs),
    }
