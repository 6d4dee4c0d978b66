"""Factors of BRIO's runs: how they qualify for each pair of sites, and which ROIs they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ..evidence import EvidenceArm

_NAMES = ("alpha_bar", "g", "q_re", "pi_task", "Pi_bar")


@dataclass(frozen=True, eq=False)
class RunFactors:
    """Factors of one run, the most relevant first; factors of different runs do not correspond to each other.

    Shapes: pi_task [J], alpha_bar [pairs, 2, J], g [pairs, 2], q_re [sites, 2, J], Pi_bar [J, P].
    """

    fold: str
    seed: int
    validation_auc: float | None  # on validation scans or inner folds; None where there is no such score
    sites: list[str]  # source sites, sorted
    pi_task: np.ndarray  # relevance
    alpha_bar: np.ndarray  # weight of each factor in the alignment of each pair of source sites, by class
    g: np.ndarray  # strength of alignment
    q_re: np.ndarray | None  # re-estimation support; None where nothing was re-estimated
    Pi_bar: np.ndarray  # assignment of ROIs to factors


def read_factors(arm: EvidenceArm) -> list[RunFactors]:
    """Read the factors of every run of an arm."""
    return list(_iterate_factors(arm))


def _iterate_factors(arm: EvidenceArm) -> Iterator[RunFactors]:
    for run in arm.runs:
        tensors = arm.job.store.read_tensors(run.key, _NAMES)
        if not {"alpha_bar", "g", "pi_task", "Pi_bar"} <= set(tensors):
            continue
        order = np.argsort(-tensors["pi_task"], kind="stable")
        row = run.record.row
        yield RunFactors(
            fold=row.fold,
            seed=row.seed,
            validation_auc=row.validation_auc,
            sites=list(run.record.source_sites),
            pi_task=tensors["pi_task"][order],
            alpha_bar=tensors["alpha_bar"][..., order],
            g=tensors["g"],
            q_re=tensors["q_re"][..., order] if "q_re" in tensors else None,
            Pi_bar=tensors["Pi_bar"][order],
        )


def summarise_qualification(runs: Sequence[RunFactors], protocol: str) -> dict[str, Any]:
    """Average the qualification of each test site over its seeds, for the script of the page to draw.

    Seeds have different validation sites, so a pair is averaged over the seeds in which both its sites are source
    sites. Under k-fold another seed makes other folds, so nothing is averaged.

    Returns by test site, or by fold and seed. ``pairs`` holds, for each pair of ``sites`` (in the order of
    ``itertools.combinations``) and class, the strength g and then the J weights alpha_bar; ``support`` holds q_re for
    each site and class. Both are None where no seed has the pair or site.
    """
    grouped: dict[str, list[RunFactors]] = {}
    for run in sorted(runs, key=lambda run: run.fold):
        grouped.setdefault(run.fold if protocol == "loso" else f"{run.fold} of seed {run.seed}", []).append(run)
    folds = {}
    for fold, fold_runs in grouped.items():
        sites = sorted({site for run in fold_runs for site in run.sites})
        pairs: dict[tuple[str, str], list[np.ndarray]] = {}
        support: dict[str, list[np.ndarray]] = {}
        for run in fold_runs:
            for k, pair in enumerate(combinations(run.sites, 2)):
                pairs.setdefault(pair, []).append(np.column_stack([run.g[k], run.alpha_bar[k]]))  # [2, 1 + J]
            if run.q_re is not None:
                for site, q in zip(run.sites, run.q_re, strict=True):
                    support.setdefault(site, []).append(q)
        folds[fold] = {
            "sites": sites,
            "seeds": len(fold_runs),
            "pi": _round(np.mean([run.pi_task for run in fold_runs], axis=0)),
            "pairs": [_mean(pairs.get(pair)) for pair in combinations(sites, 2)],
            "support": [_mean(support.get(site)) for site in sites] if support else None,
        }
    return folds


def _mean(values: list[np.ndarray] | None) -> list[Any] | None:
    return None if values is None else _round(np.mean(values, axis=0))


def _round(values: np.ndarray) -> list[Any]:
    return values.round(3).tolist()


def summarise_assignment(runs: Sequence[RunFactors]) -> dict[str, Any]:
    """Describe the ROIs of each factor in one run, and how well runs agree.

    It is the run with the highest AUC on validation scans or inner folds; where there is none, the first.
    """
    scored = [run for run in runs if run.validation_auc is not None]
    best = max(scored, key=lambda run: (run.validation_auc, run.fold, -run.seed)) if scored else runs[0]
    groups = [run.Pi_bar.argmax(0) for run in runs]
    pairs = list(combinations(groups, 2))
    if len(pairs) > 300:  # enough for a mean
        pairs = [pairs[k] for k in np.random.default_rng(0).choice(len(pairs), 300, replace=False)]
    return {
        "fold": best.fold,
        "seed": best.seed,
        "chosen_by_score": bool(scored),
        "factor": best.Pi_bar.argmax(0).tolist(),
        "share": (best.Pi_bar / best.Pi_bar.sum(0)).max(0).round(2).tolist(),
        "pi": _round(best.pi_task),
        "agreement": float(np.mean([compute_rand_index(a, b) for a, b in pairs])) if pairs else None,
        "runs": len(runs),
    }


def compute_rand_index(a: np.ndarray, b: np.ndarray) -> float:
    """Compute the adjusted Rand index of two groupings; there are hundreds in a report, each of few regions.

    Shapes: a, b [P].
    """
    counts = np.zeros((a.max() + 1, b.max() + 1), dtype=np.int64)
    np.add.at(counts, (a, b), 1)
    together, in_a, in_b = (int((n**2).sum()) for n in (counts, counts.sum(1), counts.sum(0)))
    both, only_a, only_b = together - len(a), in_a - together, in_b - together  # ordered pairs in one group
    neither = len(a) ** 2 - only_a - only_b - together
    if only_a == only_b == 0:
        return 1.0
    largest = (both + only_a) * (only_a + neither) + (both + only_b) * (only_b + neither)
    return 2.0 * (both * neither - only_a * only_b) / largest
