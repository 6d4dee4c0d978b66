"""Harmonised connectomes: site effects removed by ComBat, fitted to the source scans of one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..cohort.covariates import read_covariates
from ..settings import require
from .combat import fit_combat
from .connectomes import Connectomes
from .fc import fill_dead
from .resampling import ReestimateRequest
from .support import source_mean

__all__ = ["HarmonisationRule", "HarmonisedConnectomes", "harmonise_connectomes"]


@dataclass(frozen=True)
class HarmonisationRule:
    """Whether and how connectomes are harmonised before a method reads them.

    Attributes
    ----------
    kind : {"none", "combat"}
        ComBat is fitted to the source scans of each run, edge by edge.
    unseen : {"identity", "pooled", "raise", "unlabelled"}
        What happens to scans of a site that ComBat was not fitted to (validation and test sites). ``identity``: they
        stay as they are. ``pooled``: the average site effect is removed. ``raise``: they are an error. ``unlabelled``:
        an effect estimated from all scans of that site, without their labels, is removed; this is transductive, and
        results say so.
    covariates : bool
        Preserve the effects of age and sex.
    """

    kind: Literal["none", "combat"] = "none"
    unseen: Literal["identity", "pooled", "raise", "unlabelled"] = "identity"
    covariates: bool = False

    def __post_init__(self) -> None:
        require(self.kind in ("none", "combat"), "harmonise.kind", self.kind, "none or combat")

    @property
    def transductive(self) -> bool:
        """Whether scans of the test site are read before they are predicted."""
        return self.kind != "none" and self.unseen == "unlabelled"

    def __str__(self) -> str:
        return "" if self.kind == "none" else f"ComBat, unseen sites: {self.unseen}"


class HarmonisedConnectomes(Connectomes):
    """Connectomes of a cohort without site effects; re-estimates are harmonised by the same map.

    Parameters
    ----------
    plain : Connectomes
        To harmonise.
    source : ndarray of int64
        Positions of the source scans, to which ComBat is fitted.
    rule : HarmonisationRule

    Attributes
    ----------
    combat : Combat
        The fitted site effects.
    """

    def __init__(self, plain: Connectomes, source: np.ndarray, rule: HarmonisationRule) -> None:
        self.__dict__.update(plain.__dict__)  # frames, horizons and BOLD are shared
        self._medians, self._means, self._cuts = {}, {}, {}  # of FC: not shared
        sites = plain.cohort.sites
        p = plain.n_rois
        self._upper = torch.triu_indices(p, p, 1, device=plain.device)
        site_means = [plain.site_mean(source[sites[source] == e]) for e in np.unique(sites[source])]
        self._dead_roi_fill = source_mean(site_means)
        known = None
        if rule.covariates:
            known = read_covariates(plain.cohort, ["sex", "age"], "harmonise.covariates")
            known = (known - known[source].mean(0)) / known[source].std(0).clip(1e-9)
        self._covariates = known
        x = self._edges(plain.full, plain.alive)
        fitted = fit_combat(x[source], sites[source], None if known is None else known[source])
        self.combat = fitted.extend_to_unseen_sites(x, sites, rule.unseen, known)
        self.full = self._harmonise(plain.full, plain.alive, np.arange(len(plain)), x)

    def iterate_reestimates(
        self, request: ReestimateRequest, max_bytes: int | None = None
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield harmonised re-estimates, as :meth:`Connectomes.iterate_reestimates` does."""
        for chunk, A in super().iterate_reestimates(request, max_bytes):
            scans = np.repeat(request.scans[chunk], request.K)
            flat = A.flatten(0, 1)
            alive = self.alive[torch.from_numpy(scans).to(self.device)]
            yield chunk, self._harmonise(flat, alive, scans, self._edges(flat, alive)).unflatten(0, A.shape[:2])

    def _edges(self, A: Tensor, alive: Tensor) -> np.ndarray:
        """Edges above the diagonal, dead ROIs filled. Shape [n, P, P] -> [n, P (P - 1) / 2]."""
        u, v = self._upper
        return fill_dead(A, alive, self._dead_roi_fill)[:, u, v].double().cpu().numpy()

    def _harmonise(self, A: Tensor, alive: Tensor, scans: np.ndarray, edges: np.ndarray) -> Tensor:
        """Symmetric matrices of harmonised edges, zero rows for dead ROIs. Shape [n, P, P]."""
        known = None if self._covariates is None else self._covariates[scans]
        harmonised = self.combat.apply(edges, self.cohort.sites[scans], known)
        u, v = self._upper
        live = alive.to(A.dtype)
        full = torch.zeros_like(A)
        full[:, u, v] = torch.from_numpy(harmonised).to(A)
        full = full + full.mT
        return full * live.unsqueeze(-1) * live.unsqueeze(-2)


def harmonise_connectomes(plain: Connectomes, source: np.ndarray, rule: HarmonisationRule) -> Connectomes:
    """Harmonise connectomes for a run with these source scans; without harmonisation, return them as they are.

    Parameters
    ----------
    plain : Connectomes
    source : ndarray of int64
        Positions of the source scans of the run.
    rule : HarmonisationRule

    Returns
    -------
    Connectomes
    """
    return plain if rule.kind == "none" else HarmonisedConnectomes(plain, source, rule)
