"""The embedded default: one job from scans to a figure, on a cohort whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .api import Result, run
from .cohort.simulate import Simulation, simulate
from .progress import Progress, silent
from .report import draw_sites

__all__ = ["DEMO_SETTINGS", "run_demo"]

DEMO_SETTINGS = {"epochs": 30, "T_w": 10, "M": 9, "K": 4}
"""A small cohort learns in fewer epochs than real ones; these keep the demonstration under a minute."""


def run_demo(
    out: Path,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = silent,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Simulate, audit, train BRIO, its backbone and ridge leaving one site out, and draw the result."""
    cohort = simulate(Simulation(per_class=12, seed=seed))
    truth = cohort.provenance["truth"]
    say(f"{cohort!r}")
    say(f"planted: stable evidence in ROIs {_range(truth['stable'])}, unstable in {_range(truth['unstable'])},")
    say(
        f"  of changing sign between sites in {_range(truth['spurious'])}, the scanner's own in {_range(truth['site'])}"
    )
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
