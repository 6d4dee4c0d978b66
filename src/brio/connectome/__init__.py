"""Connectomes: the FC estimator Psi, block length, re-estimation and the propagation support S."""

from .blocks import BlockRule, clip_block_length
from .bold import BoldRule
from .combat import Combat, Harmonise, fit_combat
from .connectomes import Connectomes
from .dead import fill_dead
from .fc import psi
from .harmonised import harmonised
from .logs import log_connectome
from .resampling import Resamples, reestimate
from .support import edge_cut, source_mean, source_strength, sym_top

__all__ = [
    "BlockRule",
    "BoldRule",
    "Combat",
    "Connectomes",
    "Harmonise",
    "Resamples",
    "clip_block_length",
    "edge_cut",
    "fill_dead",
    "fit_combat",
    "harmonised",
    "log_connectome",
    "psi",
    "reestimate",
    "source_mean",
    "source_strength",
    "sym_top",
]
