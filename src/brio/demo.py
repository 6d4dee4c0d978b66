"""The demonstration behind ``brio demo``: one job from scans to a figure, on a simulated cohort."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .api import Result, run
from .cohort.simulate import Simulation, simulate
from .progress import Progress, silent
from .report import draw_sites

__all__ = ["DEMO_SETTINGS", "run_demo"]

DEMO_SETTINGS = {"epochs": 30, "T_w": 10, "M": 9, "K": 4}
"""The simulated cohort is small and needs few epochs; with these settings the demonstration takes under a minute."""


def run_demo(
    out: Path,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = silent,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Simulate a cohort, audit it, compare BRIO, its backbone and ridge on every site, and draw the result.

    Parameters
    ----------
    out : Path
        Folder for the results; the figure is ``sites.png``.
    seed : int
        Of the simulation.
    device : {"auto", "cpu", "cuda", "cuda-tf32"}
    progress : Progress
    say : function of one line of text
        Receives what a user should read on the way.

    Returns
    -------
    Result
    """
    cohort = simulate(Simulation(per_class=12, seed=seed))
    truth = cohort.provenance["truth"]
    say(f"{cohort!r}")
    say(f"planted: stable evidence in ROIs {_range(truth['stable'])}, unstable in {_range(truth['unstable'])},")
    say(f"  changing sign between sites in {_range(truth['spurious'])}, site effects in {_range(truth['site'])}")
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


def _range(rois: list[int]) -> str:
    return f"{rois[0] + 1}-{rois[-1] + 1}"
