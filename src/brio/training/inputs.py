"""What a network sees of scans, gathered from a cohort for the needs of one method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..cohort import Cohort
from ..cohort.covariates import COVARIATE_COLUMNS, read_covariates, read_hemispheres, read_repetition_times
from ..cohort.sessions import read_session_frames
from ..connectome import BoldRule, Connectomes, ReestimateRequest, edge_cut
from ..errors import BrioError

NEEDS = {
    "bold": "BOLD series resampled to one length and one repetition time",
    "sites": "site of every source scan",
    "sex": "sex of every participant",
    "age": "age of every participant",
    "motion": "mean framewise displacement of every scan",
    "hemisphere": "hemisphere of each ROI",
}
"""What a method may need besides connectomes and labels, and what each means."""


class Scans(NamedTuple):
    """A batch of scans as networks see them.

    Attributes
    ----------
    A : Tensor, shape [B, P, P]
        FC, with zero rows for ROIs without signal.
    alive : Tensor of bool, shape [B, P]
        Whether an ROI has signal.
    cut : Tensor, shape [B]
        Smallest absolute FC among the strongest ``edge_share`` (a setting) of the edges; 0 where the method has no such
        setting.
    n_frames : Tensor, shape [B]
        Valid frames of the scan; those of the full scan also for its re-estimates, which have the same length.
    bold : Tensor, shape [B, T, P]
        z-scored BOLD series of one length, the windows of a scan one after the other; T = 0 where it is not needed.
    covariates : Tensor, shape [B, C]
        Sex, age and motion: those needed, in this order.
    """

    A: Tensor
    alive: Tensor
    cut: Tensor
    n_frames: Tensor
    bold: Tensor
    covariates: Tensor

    @staticmethod
    def of(A: Tensor, alive: Tensor | None = None) -> Scans:
        """Make scans of connectomes alone, for methods that need nothing else; ``n_frames`` and ``cut`` are 0.

        Parameters
        ----------
        A : Tensor, shape [B, P, P]
        alive : Tensor of bool, shape [B, P], optional
            By default every ROI has signal.

        Returns
        -------
        Scans

        Examples
        --------
        >>> Scans.of(torch.zeros(2, 5, 5)).alive.all()
        tensor(True)
        """
        if alive is None:
            alive = torch.ones(A.shape[:-1], dtype=torch.bool, device=A.device)
        zeros = A.new_zeros(A.shape[:-2])
        no_bold, no_covariates = A.new_zeros(*A.shape[:-2], 0, A.shape[-1]), A.new_zeros(*A.shape[:-2], 0)
        return Scans(A, alive, zeros, zeros, no_bold, no_covariates)


class InputShape(NamedTuple):
    """Sizes that a network is built for.

    Attributes
    ----------
    n_rois : int
    n_sites : int
        Source sites; the largest number in the stack.
    n_frames : int
        Of the BOLD series; 0 where it is not needed.
    """

    n_rois: int
    n_sites: int
    n_frames: int


def check_needs(cohort: Cohort, needs: frozenset[str], settings: Any, requester: str) -> None:
    """Raise a user-facing error if the cohort lacks what a method needs.

    Sites are not checked: every cohort that is trained on has them.
    """
    read_covariates(cohort, _covariates(needs), requester)
    if "bold" in needs and read_session_frames(cohort.participants) is not None:
        raise BrioError(
            f"{requester} reads time series, but connectomes of this cohort are averaged over sessions; import the "
            "scans with --sessions join, first or all"
        )
    if "bold" in needs and _bold_rule(settings).tr is not None:
        read_repetition_times(cohort, requester)
    if "hemisphere" in needs:
        read_hemispheres(cohort, requester)


def _bold_rule(settings: Any) -> BoldRule:
    return BoldRule(settings.bold_frames, settings.bold_tr, getattr(settings, "bold_windows", 1))


def _covariates(needs: frozenset[str]) -> list[str]:
    return [name for name in COVARIATE_COLUMNS if name in needs]


class Inputs:
    """The scans of a cohort on a device, with what one method needs of them.

    Nothing here is learned: each row depends on its own scan alone.
    """

    def __init__(self, connectomes: Connectomes, needs: frozenset[str], settings: Any, requester: str) -> None:
        self.connectomes = connectomes
        cohort, device, dtype = connectomes.cohort, connectomes.device, connectomes.dtype
        self._share: float | None = getattr(settings, "edge_share", None)
        self._cut = connectomes.full.new_zeros(len(connectomes))
        if self._share is not None:
            self._cut = connectomes.edge_cut(self._share)
        self._n_frames = torch.from_numpy(connectomes.n_frames).to(device, dtype)
        if connectomes.without_frames:
            self._n_frames.fill_(torch.nan)  # a method that reads it without saying so must not go unnoticed
        covariates = read_covariates(cohort, _covariates(needs), requester)
        self._covariates = torch.from_numpy(covariates).to(device, dtype)
        self._rule = _bold_rule(settings) if "bold" in needs else None
        self._tr: np.ndarray | None = None
        if self._rule is None:
            self._bold = connectomes.full.new_zeros(len(connectomes), 0, connectomes.n_rois)
        else:
            self._tr = None if self._rule.tr is None else read_repetition_times(cohort, requester)
            self._bold = connectomes.bold(self._rule, self._tr)

    def shape(self, n_sites: int) -> InputShape:
        """Return the sizes that a network is built for, with at most ``n_sites`` source sites."""
        return InputShape(self.connectomes.n_rois, n_sites, self._bold.shape[1])

    def take(self, index: Tensor, A: Tensor | None = None) -> Scans:
        """Gather scans by position in the cohort.

        Shapes: index [...], A [..., P, P].
        """
        connectomes = self.connectomes
        return Scans(
            connectomes.full[index] if A is None else A,
            connectomes.alive[index],
            self._cut[index],
            self._n_frames[index],
            self._bold[index],
            self._covariates[index],
        )

    def iterate_reestimates(
        self, request: ReestimateRequest, max_bytes: int | None = None
    ) -> Iterator[tuple[np.ndarray, Scans]]:
        """Iterate over re-estimates of scans, chunk by chunk.

        BOLD is made of the same resampled frames as the connectome.

        Shapes: returns chunk [n].
        """
        connectomes = self.connectomes
        for chunk, A in connectomes.iterate_reestimates(request, max_bytes):
            flat = A.flatten(0, 1)
            index = torch.from_numpy(request.scans[chunk]).to(connectomes.device).repeat_interleave(request.K)
            scans = self.take(index, flat)
            if self._share is not None:
                scans = scans._replace(cut=edge_cut(flat, self._share))
            if self._rule is not None:
                scans = scans._replace(bold=connectomes.resampled_bold(request.select(chunk), self._rule, self._tr))
            yield chunk, scans
