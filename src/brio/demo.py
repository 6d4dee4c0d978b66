"""The demonstration of ``brio demo``: one job on a simulated cohort, from scans to a figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .api import Result, run
from .cohort.simulate import Simulation, simulate
from .progress import Progress, silent
from .report import draw_sites

__all__ = ["DEMO_SETTINGS", "run_demo"]

DEMO_SETTINGS = {"epochs": 30, "T_w": 10, "M": 9, "K": 4, "cell_batch": 4}
"""Few epochs suffice for the small simulated cohort; the demonstration takes under a minute."""
PLANTED = ("stable", "unstable", "spurious", "site")
"""Kinds of ROIs in which the simulation plants something."""


def run_demo(
    out: Path,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = silent,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Simulate and audit a cohort, evaluate BRIO, its backbone and ridge at every site, and draw the result.

    Parameters
    ----------
    out : Path
        Folder of the job; the figure is ``sites.png``.
    seed : int
        Seed of the simulation.
    device : {"auto", "cpu", "cuda", "cuda-tf32"}
    progress : Progress
    say : function of one line of text
        Called with each message to the user.

    Returns
    -------
    Result
    """
    cohort = simulate(Simulation(per_class=12, seed=seed))
    rois = {kind: _format_rois(numbers) for kind, numbers in cohort.provenance["truth"].items() if kind in PLANTED}
    say(f"{cohort!r}")
    say(f"planted: stable evidence in ROIs {rois['stable']}, unstable in {rois['unstable']},")
    say(f"  changing sign between sites in {rois['spurious']}, site effects in {rois['site']}")
    result = run(
        cohort,
        ["brio", "backbone", "ridge"],
        out=out,
        settings=dict(DEMO_SETTINGS),
        device=device,
        progress=progress,
        say=say,
    )
    draw_sites(result.rows, result.summary, out / "sites.png", "Simulated cohort")
    return result


def _format_rois(rois: list[int]) -> str:
    return f"{rois[0] + 1}-{rois[-1] + 1}"
