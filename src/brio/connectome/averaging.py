"""Connectomes that are means over sessions: FC and re-estimates are computed for each session and then averaged.

The mean is of Fisher z, edge by edge. Each session of a scan is re-estimated from its own frames with draws of its own,
so that no block crosses from one session to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..cohort import Cohort
from ..cohort.sessions import read_session_frames
from ..errors import BrioError
from .fc import psi
from .resampling import reestimate


class SessionIndex(NamedTuple):
    """The sessions of some scans, one after the other.

    Shapes: owner [m], offset, n_frames [m], number [m], n_sessions [n].
    """

    owner: np.ndarray  # position of the scan of each session
    offset: np.ndarray  # first frame of the session in its scan, and its number of frames
    n_frames: np.ndarray
    number: np.ndarray  # of the session in its scan, from 0
    n_sessions: np.ndarray  # sessions of each scan


def list_sessions(cohort: Cohort) -> list[np.ndarray] | None:
    """List the frames of the sessions of each scan, where connectomes are means over sessions.

    Returns None where no scan is made of several sessions.
    """
    sessions = read_session_frames(cohort.participants)
    if sessions is None:
        return None
    for i, lengths in enumerate(sessions):
        if len(lengths) > 1 and lengths.sum() != cohort.n_frames[i]:
            raise BrioError(
                f"participant {cohort.ids[i]}: its {len(lengths)} sessions have {lengths.sum()} frames, but the scan "
                f"has {cohort.n_frames[i]}; scans whose connectomes are averaged over sessions cannot be cut: import "
                "them with --sessions join or all"
            )
    return [lengths if len(lengths) > 1 else cohort.n_frames[i : i + 1] for i, lengths in enumerate(sessions)]


def index_sessions(sessions: Sequence[np.ndarray], n_frames: np.ndarray) -> SessionIndex:
    """Index the sessions of some scans.

    Shapes: n_frames [n].
    """
    count = np.array([len(lengths) for lengths in sessions])
    own = [lengths if len(lengths) > 1 else np.array([n]) for lengths, n in zip(sessions, n_frames, strict=True)]
    return SessionIndex(
        owner=np.repeat(np.arange(len(count)), count),
        offset=np.concatenate([np.cumsum(lengths) - lengths for lengths in own]),
        n_frames=np.concatenate(own),
        number=np.concatenate([np.arange(len(lengths)) for lengths in own]),
        n_sessions=count,
    )


def clip_session_blocks(block_length: np.ndarray, sessions: SessionIndex) -> np.ndarray:
    """Clip the block lengths of scans to half of each session. Shape [n] -> [m]."""
    return np.minimum(block_length[sessions.owner], np.maximum(sessions.n_frames // 2, 1))


def average_psi(parts: Sequence[Tensor]) -> Tensor:
    """Average the FC of the sessions of a scan.

    Shapes: parts [T_s, P]; returns [P, P].
    """
    connectomes = [psi(x, torch.tensor(len(x), device=x.device)) for x in parts]
    return torch.stack(connectomes).mean(0) if len(parts) > 1 else connectomes[0]


def reestimate_sessions(
    frames: Tensor,
    first: np.ndarray,
    sessions: SessionIndex,
    block_length: np.ndarray,
    keys: np.ndarray,
    n_reestimates: int,
    balanced: bool = False,
) -> Tensor:
    """Re-estimate each session of some scans, and average over the sessions of a scan.

    Shapes: frames [F, P], first, block_length, keys [n]; returns [n, K, P, P].
    """
    owner, blocks = sessions.owner, clip_session_blocks(block_length, sessions)
    own_keys = draws.key(keys[owner], "session of a mean connectome", sessions.number).view(np.int64)
    own_keys = np.where(sessions.n_sessions[owner] > 1, own_keys, keys[owner])  # a scan of one session keeps its draws
    if balanced:
        own_keys = 1 + sessions.number % (n_reestimates - 1)
    A = reestimate(frames, first[owner] + sessions.offset, sessions.n_frames, blocks, own_keys, n_reestimates, balanced)
    weight = torch.from_numpy(1.0 / sessions.n_sessions[owner]).to(A)
    mean = A.new_zeros(len(first), *A.shape[1:])
    return mean.index_add_(0, torch.from_numpy(owner).to(A.device), A * weight[:, None, None, None])
