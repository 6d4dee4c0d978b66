"""How do time and memory grow?"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from brio.drawing import make_panels, series_style
from brio.formatting import format_count
from brio.methods import make_method
from brio.methods.linear import ridge

from .evidence import EVIDENCE

FIGURE = "growth.svg"
FOLDER = "growth"
DECOMPOSED_SCANS = ridge.DECOMPOSED_SCANS
AXES = ("scans", "ROIs", "frames", "K", "J", "sites", "runs")
WORK = {
    "audit": "audit of a cohort",
    "connectomes": "FC of a cohort",
    "ridge": "one fold of ridge",
    "log-ridge": "one fold of log-ridge",
    "brio-plus": "one fold of BRIO plus",
    "brio": "BRIO: a warm-up epoch, a refresh, a guided epoch",
}
STEPS = {
    "open": "open the folder",
    "audit": "audit, including the search for duplicates among all pairs",
    "connectomes": "FC of all scans",
    "ridge": "ridge, penalty chosen on inner folds",
    "log-ridge": "log-ridge, penalty chosen on inner folds",
    "brio-plus": "BRIO plus",
}
STEEPEST = 3.2
"""Exponent of scans and regions above which a step counts as a cliff: eigenvectors cost the third power."""
STEEP_ELSEWHERE = 1.6
"""The same of other quantities."""
MACHINE = 24
"""GiB of memory of the machine that all this was measured on."""
BEYOND = 100_000
"""Scans of the largest public study, UK Biobank."""
CHANGES = {
    "audit": "nothing",
    "connectomes": "keep the FC in a memory-mapped file, like the frames",
    "ridge": "with more scans than edges, solve for one coefficient per edge instead of one weight per scan; "
    "the size of the system of equations is then the number of edges squared, whatever the number of scans",
    "log-ridge": "as for ridge; also keep the logarithms in a memory-mapped file",
    "brio-plus": "as for log-ridge; also read the changes under re-estimation part by part",
}
"""What would have to change for the largest study to fit into the memory of one usual machine."""


@cache
def curves() -> dict[tuple[str, str], pd.DataFrame]:
    """Return CPU seconds and mebibytes by value of a quantity, by work and quantity."""
    points = pd.read_csv(EVIDENCE / FOLDER / "growth.csv").sort_values(["work", "axis", "value"])
    return {(str(work), str(axis)): part for (work, axis), part in points.groupby(["work", "axis"])}


@cache
def read_large() -> pd.DataFrame:
    """Read seconds and memory of each step with a large cohort, by step."""
    return pd.read_csv(EVIDENCE / FOLDER / "large-cohort.csv").set_index("step")


def fit_exponents(work: str, axis: str) -> np.ndarray:
    """Return the exponents of the time of a work in a quantity, between neighbouring points of the curve."""
    points = curves()[work, axis]
    return np.diff(np.log(points["seconds"])) / np.diff(np.log(points["value"]))


def find_steepest(*axes: str) -> float:
    """Find the largest exponent of a step between neighbouring points of the curves against some quantities."""
    return max(float(fit_exponents(work, axis).max()) for work, axis in curves() if axis in axes)


def draw_growth() -> Any:
    """Draw the time of each work against each quantity, in logarithmic axes."""
    figure, axes = make_panels(len(AXES), 9.6, 5.8, rows=2, sharey=True)
    for axis, name in zip(axes, AXES, strict=True):
        for k, work in enumerate(WORK):
            points = curves().get((work, name))
            if points is not None:
                axis.plot(points["value"], points["seconds"], linewidth=1, markersize=4, **series_style(k))
        axis.set(xscale="log", yscale="log", xlabel=name)
        drawn = {value for (_, quantity), points in curves().items() if quantity == name for value in points["value"]}
        values = sorted(drawn - {4096})  # no room beside the last
        axis.set_xticks(values, [str(value) for value in values], fontsize=8)
        axis.minorticks_off()
    for axis in axes[::4]:
        axis.set_ylabel("CPU seconds")
    lines = [axes[0].plot([], [], linewidth=1, markersize=4, **series_style(k))[0] for k in range(len(WORK))]
    figure.legend(lines, list(WORK.values()), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


FIGURES = {FIGURE: draw_growth}
"""Figures of the page, by file name in ``docs/images``."""


def name_step(step: str) -> str:
    """Say what a step does, with the number of folds where it fits any."""
    folds = read_large()["folds"].get(step, np.nan)
    return STEPS[step] + ("" if np.isnan(folds) else f", {format_count(int(folds), 'fold')}")


def estimate_gib(step: str, n_scans: int, n_rois: int, with_connectomes: bool = True) -> float:
    """Return the memory that a step needs at least, in GiB: connectomes, and what its method says that it needs."""
    own = make_method(step).estimate_fit_bytes(n_scans, n_rois) if step in ("ridge", "log-ridge", "brio-plus") else 0.0
    return (own + 4.0 * with_connectomes * n_scans * n_rois**2) / 2**30


def estimate_hours(step: str) -> float | None:
    """Return the hours of a step with the scans of the largest study; None where it was not measured."""
    large = read_large()
    if step not in large.index or isinstance(large.loc[step, "failed"], str):
        return None
    exponent = fit_exponents(step, "scans")[-1]  # of smaller cohorts, where pairs of scans cost little
    exponent = exponent if step == "connectomes" else max(2.0, exponent)
    return float(large.loc[step, "seconds"] * (BEYOND / large["scans"].iloc[0]) ** exponent / 3600)


def list_exponents() -> pd.DataFrame:
    """Return the exponent between the two largest values of each curve, under its quantity, for the figure."""
    every = [
        (WORK[work].split(":")[0], fit_exponents(work, axis)[-1], axis)
        for axis in AXES
        for work in WORK
        if (work, axis) in curves()
    ]
    return pd.DataFrame(every, columns=["work", "mean", "group"]).set_index("work")
