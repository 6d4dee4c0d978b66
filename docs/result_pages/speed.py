"""How much time and memory does training need?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from .comparisons import Verdict, judge_parts
from .evidence import read_study
from .markdown import fixed, in_words

STUDY = "studies/aal116/efficiency"
CLAIMS = [  # BRIO against another method: quantity, and whether the paper has BRIO above (1) or below (-1)
    ("fc-hgnn", "time", 1),
    ("fc-hgnn", "memory", 1),
    ("core", "time", 1),
    ("core", "memory", 1),
    ("brainood", "time", -1),
    ("brainood", "memory", 1),
    ("disco", "time", -1),
    ("disco", "memory", -1),
]
SAME_MEMORY = 0.1
"""Relative spread of peak memory up to which it counts as the same."""


@cache
def costs() -> pd.DataFrame:
    """Return milliseconds an epoch (``time``) and peak memory in MiB (``memory``), by arm."""
    table = read_study(STUDY).set_index("arm")
    return pd.DataFrame({"time": 1e3 * table["seconds_an_epoch"], "memory": table["peak_memory_mib"]})


def held_claims() -> list[tuple[str, str, int]]:
    """Return the paper's comparisons of time and memory that hold here."""
    difference = costs().loc["brio"] - costs()
    return [claim for claim in CLAIMS if claim[2] * difference.loc[claim[0], claim[1]] > 0]


def memory_spread() -> float:
    """Return how much BRIO's peak memory differs over K and the number of scans, relative to its own."""
    memory = costs().loc[["brio", "brio, K = 2", "brio, K = 16", "brio, half of the scans"], "memory"]
    return float((memory.max() - memory.min()) / memory["brio"])


@cache
def judge_claims() -> list[Verdict]:
    """Return the verdicts on time and memory."""
    held, spread = held_claims(), memory_spread()
    missed = [f"{what} for `{name}`" for name, what, sign in CLAIMS if (name, what, sign) not in held]
    return [
        (
            "BRIO takes more time and memory than FC-HGNN and CORE, less time and more memory than BrainOOD, and less "
            "of both than DiSCO",
            f"{len(held)} of {len(CLAIMS)} comparisons hold (one measurement each); exceptions: {in_words(missed)}",
            judge_parts(claim in held for claim in CLAIMS),
        ),
        (
            "Peak memory does not depend on K or the number of source scans",
            f"largest minus smallest memory: {fixed(spread)} times the memory of BRIO (up to {SAME_MEMORY:g} "
            "would count as equal)",
            judge_parts([spread <= SAME_MEMORY]),
        ),
    ]
