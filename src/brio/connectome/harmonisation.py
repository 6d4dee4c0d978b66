"""Harmonised connectomes: effects of sites or covariates, fitted to the source scans of one run, are removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..cohort import Cohort
from ..cohort.covariates import read_covariates
from ..errors import BrioError
from .combat import Combat, fit_combat
from .connectomes import Connectomes
from .fc import fill_dead
from .harmonisation_rule import HarmonisationRule, require_covariates
from .resampling import ReestimateRequest
from .residuals import CONSTANT, Residualiser, fit_residualiser
from .support import source_mean


@dataclass(frozen=True, eq=False)
class Harmoniser:
    """Effects fitted to source scans, ready for scans of the same or of another cohort.

    Shapes: dead_roi_fill [P, P], covariate_mean, covariate_sd [C].
    """

    rule: HarmonisationRule
    combat: Combat | None  # effects of the source sites; None unless the rule is of the kind "combat"
    dead_roi_fill: Tensor  # what the edges of an ROI without signal hold: the mean connectome of the source sites
    covariate_mean: np.ndarray  # of the covariates of the source scans; C = 0 where there are none
    covariate_sd: np.ndarray
    residualiser: Residualiser | None = None  # slopes on covariates; None unless the rule is of the kind "residualise"

    def read_covariates(self, cohort: Cohort) -> np.ndarray | None:
        """Read covariates in units of the source scans, [n, C]; None where the rule has none."""
        if not self.rule.covariates:
            return None
        return (_read_covariates(cohort, self.rule) - self.covariate_mean) / self.covariate_sd


def fit_harmoniser(plain: Connectomes, source: np.ndarray, rule: HarmonisationRule) -> Harmoniser:
    """Fit effects of sites or covariates to source scans."""
    sites = plain.cohort.sites
    fill = source_mean([plain.site_mean(source[sites[source] == e]) for e in np.unique(sites[source])])
    mean, sd = np.zeros(0), np.ones(0)
    known = None
    if rule.covariates:
        known = _read_covariates(plain.cohort, rule)[source]
        require_covariates(known, rule, "this run")
        mean, sd = known.mean(0), known.std(0).clip(1e-9)
        if rule.kind == "residualise":  # motion may have gaps, and one sex alone must not be divided by nothing
            mean, sd = np.nanmean(known, axis=0), np.nanstd(known, axis=0)
            sd = np.where(sd > CONSTANT * np.abs(mean).clip(1.0), sd, 1.0)
        known = (known - mean) / sd
    index = torch.from_numpy(source).to(plain.device)
    edges = _read_edges(plain.full[index], plain.alive[index], fill)
    if rule.kind == "residualise":
        assert known is not None
        groups = 2 * np.unique(sites[source], return_inverse=True)[1] + plain.cohort.labels[source]
        return Harmoniser(rule, None, fill, mean, sd, fit_residualiser(edges, groups, known))
    return Harmoniser(rule, fit_combat(edges, sites[source], known), fill, mean, sd)


class HarmonisedConnectomes(Connectomes):
    """Connectomes of a cohort without effects of sites or covariates; re-estimates are mapped alike."""

    def __init__(self, plain: Connectomes, harmoniser: Harmoniser) -> None:
        self.__dict__.update(plain.__dict__)  # frames, horizons and BOLD are shared
        self._medians, self._means, self._cuts = {}, {}, {}  # of FC: not shared
        self._sites = _name_sites(plain.cohort, harmoniser.rule)
        self._dead_roi_fill = harmoniser.dead_roi_fill.to(plain.full)
        self._covariates = harmoniser.read_covariates(plain.cohort)
        self._residualiser, self.combat = harmoniser.residualiser, None
        x = _read_edges(plain.full, plain.alive, self._dead_roi_fill)
        if harmoniser.combat is not None:
            unseen = harmoniser.rule.unseen
            self.combat = harmoniser.combat.extend_to_unseen_sites(x, self._sites, unseen, self._covariates)
        self.full = self._harmonise(plain.full, plain.alive, np.arange(len(plain)), x)

    def iterate_reestimates(
        self, request: ReestimateRequest, max_bytes: int | None = None
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Yield harmonised re-estimates, as :meth:`Connectomes.iterate_reestimates` does."""
        for chunk, A in super().iterate_reestimates(request, max_bytes):
            scans = np.repeat(request.scans[chunk], request.K)
            flat = A.flatten(0, 1)
            alive = self.alive[torch.from_numpy(scans).to(self.device)]
            yield (
                chunk,
                self._harmonise(flat, alive, scans, _read_edges(flat, alive, self._dead_roi_fill)).unflatten(
                    0, A.shape[:2]
                ),
            )

    def _harmonise(self, A: Tensor, alive: Tensor, scans: np.ndarray, edges: np.ndarray) -> Tensor:
        """Symmetric matrices of harmonised edges, zero rows for dead ROIs. Shape [n, P, P]."""
        known = None if self._covariates is None else self._covariates[scans]
        if self.combat is not None:
            harmonised = self.combat.apply(edges, self._sites[scans], known)
        else:
            assert self._residualiser is not None
            assert known is not None
            harmonised = self._residualiser.apply(edges, known)
        u, v = _upper_triangle(A)
        live = alive.to(A.dtype)
        full = torch.zeros_like(A)
        full[:, u, v] = torch.from_numpy(harmonised).to(A)
        full = full + full.mT
        return full * live.unsqueeze(-1) * live.unsqueeze(-2)


def harmonise_connectomes(plain: Connectomes, source: np.ndarray, rule: HarmonisationRule) -> Connectomes:
    """Harmonise connectomes for a run with these source scans; without harmonisation, return them as they are."""
    return plain if rule.kind == "none" else HarmonisedConnectomes(plain, fit_harmoniser(plain, source, rule))


def _read_covariates(cohort: Cohort, rule: HarmonisationRule) -> np.ndarray:
    return read_covariates(cohort, rule.covariate_names, "harmonise.covariates")


def _name_sites(cohort: Cohort, rule: HarmonisationRule) -> np.ndarray:
    """Site of each scan; one unnamed site where the cohort has none."""
    if "site" in cohort.participants:
        return cohort.sites
    if rule.unseen in ("unlabelled", "raise"):
        raise BrioError(f"harmonise.unseen={rule.unseen} needs the site of every scan, but there is no column 'site'")
    return np.full(len(cohort), "")


def _upper_triangle(A: Tensor) -> Tensor:
    return torch.triu_indices(A.shape[-1], A.shape[-1], 1, device=A.device)


def _read_edges(A: Tensor, alive: Tensor, fill: Tensor) -> np.ndarray:
    """Edges above the diagonal, dead ROIs filled. Shape [n, P, P] -> [n, P (P - 1) / 2]."""
    u, v = _upper_triangle(A)
    return fill_dead(A, alive, fill.to(A))[:, u, v].double().cpu().numpy()
