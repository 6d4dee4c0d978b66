"""What a network sees of scans, gathered from a cohort for the needs of one method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..cohort import Cohort
from ..cohort.covariates import COVARIATE_COLUMNS, read_covariates, read_hemispheres, read_repetition_times
from ..connectome import BoldRule, Connectomes, Resamples, edge_cut

__all__ = ["NEEDS", "InputShape", "Inputs", "Scans", "check_needs"]

NEEDS = {
    "bold": "BOLD series of one length, on one clock",
    "sites": "site labels of the source scans",
    "sex": "sex of every participant",
    "age": "age of every participant",
    "motion": "mean framewise displacement",
    "hemisphere": "hemisphere of each ROI",
}
"""What a method may need besides connectomes and labels."""


class Scans(NamedTuple):
    """A batch of scans as networks see them."""

    A: Tensor  # [B, P, P] FC, zero rows for ROIs without signal
    alive: Tensor  # [B, P] whether an ROI has signal
    cut: Tensor  # [B] |FC| of the weakest edge that counts as strong; 0 where the method asks for none
    n_frames: Tensor  # [B] valid frames of the scan
    bold: Tensor  # [B, T, P] z-scored BOLD of one length; T = 0 where it is not needed
    covariates: Tensor  # [B, C] sex, age, motion: those needed, in this order

    @staticmethod
    def of(A: Tensor, alive: Tensor | None = None) -> Scans:
        """Connectomes alone, for methods that need nothing else.

        Examples
        --------
        >>> Scans.of(torch.zeros(2, 5, 5)).alive.all()
        tensor(True)
        """
        if alive is None:
            alive = torch.ones(A.shape[:-1], dtype=torch.bool, device=A.device)
        none = A.new_zeros(A.shape[:-2])
        return Scans(A, alive, none, none, A.new_zeros(*A.shape[:-2], 0, A.shape[-1]), none.new_zeros(*none.shape, 0))


class InputShape(NamedTuple):
    """What a network has to fit."""

    n_rois: int
    n_sites: int  # source sites, the largest number in the stack
    n_frames: int  # of the BOLD window, 0 where it is not needed


def check_needs(cohort: Cohort, needs: frozenset[str], settings: Any, who: str) -> None:
    """Raise an error for people if the cohort lacks what a method needs."""
    read_covariates(cohort, _covariates(needs), who)
    if "bold" in needs and bold_rule(settings).tr is not None:
        read_repetition_times(cohort, who)
    if "hemisphere" in needs:
        read_hemispheres(cohort, who)


def bold_rule(settings: Any) -> BoldRule:
    """The rule for BOLD from a method's settings ``bold_frames`` and ``bold_tr``."""
    return BoldRule(settings.bold_frames, settings.bold_tr)


def _covariates(needs: frozenset[str]) -> list[str]:
    return [name for name in COVARIATE_COLUMNS if name in needs]


class Inputs:
    """The scans of a cohort on a device, with what one method needs of them.

    Nothing here is learned: each row depends on its own scan alone.
    """

    def __init__(self, connectomes: Connectomes, needs: frozenset[str], settings: Any, who: str) -> None:
        self.connectomes = connectomes
        cohort, device, dtype = connectomes.cohort, connectomes.device, connectomes.dtype
        self._share: float | None = getattr(settings, "edge_share", None)
        self._cut = connectomes.full.new_zeros(len(connectomes))
        if self._share is not None:
            self._cut = connectomes.edge_cut(self._share)
        self._n_frames = torch.from_numpy(connectomes.n_frames).to(device, dtype)
        known = read_covariates(cohort, _covariates(needs), who)
        self._covariates = torch.from_numpy(known).to(device, dtype)
        self._rule = bold_rule(settings) if "bold" in needs else None
        self._tr: np.ndarray | None = None
        if self._rule is None:
            self._bold = connectomes.full.new_zeros(len(connectomes), 0, connectomes.n_rois)
        else:
            self._tr = None if self._rule.tr is None else read_repetition_times(cohort, who)
            self._bold = connectomes.bold(self._rule, self._tr)

    def shape(self, n_sites: int) -> InputShape:
        """What a network has to fit, with so many source sites at most."""
        return InputShape(self.connectomes.n_rois, n_sites, self._bold.shape[1])

    def take(self, index: Tensor, A: Tensor | None = None) -> Scans:
        """Full scans by position in the cohort; ``index`` may have any shape, which comes first in all fields.

        ``A`` are other connectomes of these scans."""
        graphs = self.connectomes
        return Scans(
            graphs.full[index] if A is None else A,
            graphs.alive[index],
            self._cut[index],
            self._n_frames[index],
            self._bold[index],
            self._covariates[index],
        )

    def reestimates(self, asked: Resamples, room: int | None = None) -> Iterator[tuple[np.ndarray, Scans]]:
        """Yield re-estimates of the given scans chunk by chunk: positions into ``asked.scans``, then [n * K] scans.

        BOLD is made of the same resampled frames as the connectome.
        """
        graphs = self.connectomes
        for chunk, A in graphs.reestimates(asked, room):
            flat = A.flatten(0, 1)
            index = torch.from_numpy(asked.scans[chunk]).to(graphs.device).repeat_interleave(asked.K)
            found = self.take(index, flat)
            if self._share is not None:
                found = found._replace(cut=edge_cut(flat, self._share))
            if self._rule is not None:
                found = found._replace(bold=graphs.resampled_bold(asked.of(chunk), self._rule, self._tr))
            yield chunk, found
