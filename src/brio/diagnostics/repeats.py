"""Margins of test scans and of their re-estimates, for participants with several scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..cohort.sessions import index_participants
from ..connectome import BlockRule, Connectomes, ReestimateRequest, clip_block_length
from ..errors import BrioError
from ..training import FittedRun, Method
from .outputs import DIAGNOSTIC_REFRESH


class RepeatedMargins(NamedTuple):
    """Margins of the test scans of participants with several scans in a fold.

    Shapes: scans [N], full [N], reestimated [N, K].
    """

    scans: np.ndarray  # positions in the cohort
    full: np.ndarray  # margins of the scans
    reestimated: np.ndarray  # margins of their re-estimates


def collect_repeated_margins(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_lengths: Sequence[float],
    n_reestimates: int,
) -> RepeatedMargins:
    """Apply fitted runs of one seed to the repeated scans among their test scans."""
    inputs = method.gather_inputs(connectomes)
    parts = []
    for fitted, length in zip(fitted_runs, block_lengths, strict=True):
        scans = select_repeated(connectomes.cohort.participant_ids, fitted.run.fold.test)
        if len(scans) == 0:
            continue
        blocks = clip_block_length(length, connectomes.n_frames[scans], BlockRule())
        request = ReestimateRequest(scans, blocks, fitted.run.seed, DIAGNOSTIC_REFRESH, n_reestimates)
        reestimated = np.empty((len(scans), n_reestimates))
        for chunk, resampled in inputs.iterate_reestimates(request):
            reestimated[chunk] = method.predict(fitted, resampled).margin.reshape(len(chunk), n_reestimates)
        full = method.predict_margins(fitted, connectomes, scans)
        parts.append(RepeatedMargins(scans, full, reestimated))
    if not parts:
        names = ", ".join(dict.fromkeys(fitted.run.fold.name for fitted in fitted_runs))
        raise BrioError(f"fold {names}: nobody has several scans among the test scans; choose other folds")
    return RepeatedMargins(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def select_repeated(participant_ids: np.ndarray, scans: np.ndarray) -> np.ndarray:
    """Select the scans of participants who have several among them.

    Shapes: participant_ids [n_all], scans [n]; returns [N].
    """
    _, member = index_participants(participant_ids[scans])
    return scans[np.bincount(member, minlength=1)[member] > 1]
