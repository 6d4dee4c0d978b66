"""What do training and memory cost?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from .benchmarks import write_gpu_table
from .comparisons import Verdict
from .evidence import (
    describe_version,
    link_figure,
    name_source,
    read_measured_table,
    read_paper,
    read_paper_claim,
    read_study,
)
from .markdown import arm_label, fixed, in_words, state, write_frame, write_page, write_table

FILE = "speed.md"
TITLE = "What do training and memory cost?"
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
OPEN = ("brainood", "time", -1)
"""A comparison that one measurement does not decide: times of BRIO vary by more than the difference."""
SAME_MEMORY = 0.1
"""Relative spread of peak memory up to which it counts as the same."""


@cache
def costs() -> pd.DataFrame:
    """Return milliseconds an epoch (``time``) and peak memory in MiB (``memory``), by arm."""
    table = read_study(STUDY).set_index("arm")
    return pd.DataFrame({"time": 1e3 * table["seconds_an_epoch"], "memory": table["peak_memory_mib"]})


def held_claims() -> list[tuple[str, str, int]]:
    """Return the paper's comparisons of time and memory that hold here."""
    return [
        (name, what, sign)
        for name, what, sign in CLAIMS
        if (name, what, sign) != OPEN and sign * (costs().loc["brio", what] - costs().loc[name, what]) > 0
    ]


def memory_spread() -> float:
    """Return how much BRIO's peak memory differs over K and the number of scans, relative to its own."""
    memory = costs().loc[["brio", "brio, K = 2", "brio, K = 16", "brio, half of the scans"], "memory"]
    return float((memory.max() - memory.min()) / memory["brio"])


def portioned_spread(portion: str) -> float:
    """Return the same spread where re-estimates are made in smaller portions, from the stored measurement."""
    row = read_measured_table("reestimate-portions.txt").set_index("portions").loc[portion]
    memory = row.str.split(" MiB").str[0].astype(float)
    return float((memory.max() - memory.min()) / memory["K = 8"])


def page() -> str:
    """Return the page."""
    rows = read_study(STUDY)
    brio = costs().loc["brio"]
    paper_ms = 1e3 * read_paper()["seconds_per_epoch_of_one_fold"]
    (device,) = rows["device"].unique()
    order = costs().sort_values("time")
    return write_page(
        TITLE,
        state(
            f"**Training is cheap.** One epoch of one fold of BRIO took {fixed(brio['time'], 0)} ms on one H200 with "
            f"the batches of version 0.1.0; the paper reports {fixed(paper_ms, 0)} ms. Today's batches are smaller, "
            "and an epoch has 27 steps instead of 6: the last table has its time. "
            f"{len(held_claims())} of the paper's {len(CLAIMS)} comparisons of time and memory hold, and one is open. "
            f"Peak memory depends on K by default ({fixed(brio['memory'], 0)} MiB at BRIO's own "
            f"K, {fixed(costs().loc['brio, K = 2', 'memory'], 0)} at K = 2), because re-estimates are made in "
            "portions as large as a training step; with a quarter of that it does not.",
            brio["time"] < paper_ms and memory_spread() > SAME_MEMORY > portioned_spread("a quarter"),
        ),
        "## One run alone",
        f"AAL116, {int(rows['source_scans'].max())} source scans, {device}, nothing else on the GPU. "
        f"{describe_version(STUDY)} Memory is what "
        "training adds to the connectomes. Each row is one measurement.",
        write_table(
            ["method", "ms per epoch", "peak memory, MiB"],
            [[arm_label(str(n)), fixed(r["time"]), fixed(r["memory"], 0)] for n, r in order.iterrows()],
        ),
        f"The paper: {read_paper_claim(STUDY)}",
        "Times vary: a refresh of the qualifications takes a large part of BRIO's time and falls into some epochs "
        "only. Whether BRIO is faster than BrainOOD is therefore open: compare the default row of the next table "
        "at K = 8.",
        link_figure(f"{STUDY}/figure.svg", "Time and memory of the methods"),
        "## Smaller portions of re-estimates",
        write_frame(read_measured_table("reestimate-portions.txt")),
        "Two measurements of each; `python benchmarks/reestimate_portions.py abide-aal --device cuda-tf32`. "
        "Transcribed from the documentation of version 0.1.0 as `evidence/measurements/reestimate-portions.txt`.",
        "## All folds in one stack",
        "BRIO, every run trained for all its epochs (`python benchmarks/training_speed.py abide-aal`); 27 steps an "
        "epoch are those of its settings today, 6 those of version 0.1.0. The conditions are under "
        "[benchmarks](benchmarks.md#on-a-gpu).",
        write_gpu_table(),
        "Time and memory of larger cohorts: [How do time and memory grow?](growth.md)",
        name_source(STUDY, "measurements"),
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdicts on time and memory."""
    held = held_claims()
    missed = [f"{what} against {name}" for name, what, sign in CLAIMS if (name, what, sign) not in (*held, OPEN)]
    spread = memory_spread()
    return [
        Verdict(
            "Time and memory of BRIO against FC-HGNN, CORE, BrainOOD and DiSCO",
            f"{len(held)} of {len(CLAIMS)} comparisons hold, each of one measurement; not {in_words(missed)}; "
            f"{OPEN[1]} against {OPEN[0]} is open",
            "agrees" if len(held) == len(CLAIMS) else "in part" if held else "contradicted",
            FILE,
        ),
        Verdict(
            "Peak memory does not depend on K or the number of source scans",
            f"it differs by {fixed(100 * spread, 0)} % by default, by {fixed(100 * portioned_spread('a quarter'), 0)} "
            f"% where re-estimates are made in quarter portions (up to {fixed(100 * SAME_MEMORY, 0)} % counts as the "
            "same)",
            "agrees"
            if spread <= SAME_MEMORY
            else "in part"
            if portioned_spread("a quarter") <= SAME_MEMORY
            else "contradicted",
            FILE,
        ),
    ]
