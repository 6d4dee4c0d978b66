"""The connectomes of a cohort as one run sees them after harmonisation fitted to its source scans."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..cohort.covariates import read_covariates
from .combat import Harmonise, fit_combat
from .connectomes import Connectomes
from .dead import fill_dead
from .resampling import Resamples
from .support import source_mean

__all__ = ["HarmonisedConnectomes", "harmonised"]


class HarmonisedConnectomes(Connectomes):
    """Connectomes whose edges had site effects taken out; re-estimates go through the same map."""

    def __init__(self, plain: Connectomes, source: np.ndarray, rule: Harmonise) -> None:
        self.__dict__.update(copy.copy(plain.__dict__))
        self._medians, self._means, self._cuts = {}, {}, {}
        sites = plain.cohort.sites
        p = plain.n_rois
        self._upper = torch.triu_indices(p, p, 1, device=plain.device)
        of_sites = [plain.site_mean(source[sites[source] == e]) for e in np.unique(sites[source])]
        self._stand_in = source_mean(of_sites)
        known = None
        if rule.covariates:
            known = read_covariates(plain.cohort, ["sex", "age"], "harmonise.covariates")
            known = (known - known[source].mean(0)) / known[source].std(0).clip(1e-9)
        self._known = known
        x = self._edges(plain.full, plain.alive)
        fitted = fit_combat(x[source], sites[source], None if known is None else known[source])
        self.combat = fitted.with_unseen(x, sites, rule.unseen, known)
        self.full = self._map(plain.full, plain.alive, np.arange(len(plain)), x)

    def reestimates(self, asked: Resamples, room: int | None = None) -> Iterator[tuple[np.ndarray, Tensor]]:
        for chunk, A in super().reestimates(asked, room):
            who = np.repeat(asked.scans[chunk], asked.K)
            flat = A.flatten(0, 1)
            alive = self.alive[torch.from_numpy(who).to(self.device)]
            yield chunk, self._map(flat, alive, who, self._edges(flat, alive)).unflatten(0, A.shape[:2])

    def _edges(self, A: Tensor, alive: Tensor) -> np.ndarray:
        u, v = self._upper
        return fill_dead(A, alive, self._stand_in)[:, u, v].double().cpu().numpy()

    def _map(self, A: Tensor, alive: Tensor, who: np.ndarray, x: np.ndarray) -> Tensor:
        known = None if self._known is None else self._known[who]
        out = self.combat.apply(x, self.cohort.sites[who], known)
        u, v = self._upper
        live = alive.to(A.dtype)
        full = torch.zeros_like(A)
        full[:, u, v] = torch.from_numpy(out).to(A)
        full = full + full.mT
        return full * live.unsqueeze(-1) * live.unsqueeze(-2)


def harmonised(plain: Connectomes, source: np.ndarray, rule: Harmonise) -> Connectomes:
    """The connectomes as a run with these source scans sees them."""
    return plain if rule.kind == "none" else HarmonisedConnectomes(plain, source, rule)
