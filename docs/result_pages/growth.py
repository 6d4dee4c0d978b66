"""How do time and memory grow?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from brio.drawing import make_panels, series_style
from brio.formatting import format_count
from brio.methods import make_method
from brio.methods.linear.ridge import DECOMPOSED_SCANS

from .evidence import EVIDENCE, name_source, read_measurement
from .markdown import fixed, state, write_commands, write_page, write_table

FILE = "growth.md"
TITLE = "How do time and memory grow?"
FIGURE = "growth.svg"
FOLDER = "growth"
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
    "audit": "audit, with the search for duplicates among all pairs",
    "connectomes": "FC of all scans",
    "ridge": "ridge, penalty by inner folds",
    "log-ridge": "log-ridge, penalty by inner folds",
    "brio-plus": "BRIO plus",
}
STEEPEST = {"scans": 3.2, "ROIs": 3.2}
"""Exponents above which a step counts as a cliff: eigenvectors cost the third power."""
STEEP_ELSEWHERE = 1.6
"""The same of other quantities."""
MACHINE = 24
"""GiB of memory of the machine that all this was measured on."""
BEYOND = 100_000
"""Scans of the largest public study, UK Biobank."""
CHANGES = {
    "audit": "nothing",
    "connectomes": "held in a mapped file, as the frames are",
    "ridge": "with more scans than edges, solve for one coefficient of each edge instead of one weight of each scan; "
    "the equations are then as large as the edges squared, whatever the number of scans",
    "log-ridge": "as for ridge; logarithms kept in a mapped file",
    "brio-plus": "as for log-ridge, with changes under re-estimation read part by part",
}
"""What would have to change for the largest study to fit into the memory of one usual machine."""


@cache
def read_growth() -> pd.DataFrame:
    """Read CPU seconds and mebibytes of each work, by axis and value."""
    return pd.read_csv(EVIDENCE / FOLDER / "growth.csv").sort_values(["work", "axis", "value"])


@cache
def read_large() -> pd.DataFrame:
    """Read seconds and memory of each step with a large cohort, by step."""
    return pd.read_csv(EVIDENCE / FOLDER / "large-cohort.csv").set_index("step")


def fit_exponent(x: np.ndarray, y: np.ndarray) -> float:
    """Compute the exponent of a power law between the two largest points of a curve.

    Examples
    --------
    >>> fixed(fit_exponent(np.array([1.0, 2.0, 4.0]), np.array([3.0, 12.0, 48.0])))
    '2.0'
    """
    return float(np.log(y[-1] / y[-2]) / np.log(x[-1] / x[-2]))


def steepest_step(x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest exponent between two neighbouring points."""
    return float((np.diff(np.log(y)) / np.diff(np.log(x))).max())


def fit_work_exponent(work: str, axis: str) -> float:
    """Return the exponent of the time of a work in a quantity."""
    points = curves()[work, axis]
    return fit_exponent(points["value"].to_numpy(), points["seconds"].to_numpy())


def curves() -> dict[tuple[str, str], pd.DataFrame]:
    """Return the points of each curve, by work and axis."""
    return {(str(work), str(axis)): points for (work, axis), points in read_growth().groupby(["work", "axis"])}


def count_cliffs() -> int:
    """Count the curves with a step between neighbouring points that is a cliff."""
    return sum(
        steepest_step(points["value"].to_numpy(), points["seconds"].to_numpy()) > STEEPEST.get(axis, STEEP_ELSEWHERE)
        for (_, axis), points in curves().items()
    )


def find_steepest(axes: Iterable[str]) -> float:
    """Find the largest exponent of a step between neighbouring points of the curves against some quantities."""
    return max(
        steepest_step(points["value"].to_numpy(), points["seconds"].to_numpy())
        for (_, axis), points in curves().items()
        if axis in set(axes)
    )


def draw_growth() -> Any:
    """Draw the time of each work against each quantity, in logarithmic axes."""
    figure, axes = make_panels(len(AXES), 9.6, 5.8, rows=2, sharey=True)
    for axis, name in zip(axes, AXES, strict=True):
        for k, work in enumerate(WORK):
            points = curves().get((work, name))
            if points is not None:
                axis.plot(points["value"], points["seconds"], linewidth=1, markersize=4, **series_style(k))
        axis.set(xscale="log", yscale="log", xlabel=name)
        values = sorted(set(read_growth().query("axis == @name")["value"]) - {4096})  # no room beside the last
        axis.set_xticks(values, [str(value) for value in values], fontsize=8)
        axis.minorticks_off()
    for axis in axes[::4]:
        axis.set_ylabel("CPU seconds")
    lines = [axes[0].plot([], [], linewidth=1, markersize=4, **series_style(k))[0] for k in range(len(WORK))]
    figure.legend(lines, list(WORK.values()), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


FIGURES = {FIGURE: draw_growth}
"""Figures of the page, by file name in ``docs/images``."""


def _exponent_table() -> str:
    rows = [
        [text, *(fixed(fit_work_exponent(work, axis)) if (work, axis) in curves() else "" for axis in AXES)]
        for work, text in WORK.items()
    ]
    return write_table(["work", *AXES], rows)


def _name_step(step: str) -> str:
    """What a step does, with the number of folds where it fits any."""
    folds = read_large().loc[step, "folds"]
    return STEPS[step] + ("" if np.isnan(folds) else f", {format_count(int(folds), 'fold')}")


def _large_table() -> str:
    rows = []
    for step, row in read_large().iterrows():
        cells = [fixed(row["seconds"], 0), fixed(row["peak_own_gib"]), fixed(row["peak_gib"])]
        if isinstance(row["failed"], str):
            cells = ["does not fit", f"needs {fixed(row['needed_gib'], 0)} besides connectomes", ""]
        rows.append([_name_step(str(step)), *cells])
    return write_table(["step", "seconds", "memory of the process, GiB", "with mapped scans, GiB"], rows)


def _estimate_gib(step: str, n_scans: int, n_rois: int) -> float:
    """Memory that a step needs at least, in GiB: the connectomes, and what the method says that it needs besides."""
    own = make_method(step).estimate_fit_bytes(n_scans, n_rois) if step in ("ridge", "log-ridge", "brio-plus") else 0.0
    return (own + (4.0 * n_scans * n_rois**2 if step != "audit" else 0.0)) / 2**30


def _beyond_table() -> str:
    rows = []
    large = read_large()
    (scans,), (rois,) = large["scans"].unique(), large["rois"].unique()
    for step, change in CHANGES.items():
        hours, name = "not measured", STEPS[step]
        if step in large.index and not isinstance(large.loc[step, "failed"], str):
            exponent = fit_work_exponent(step, "scans")  # of smaller cohorts, where pairs of scans cost little
            growth = (BEYOND / scans) ** (exponent if step == "connectomes" else max(2.0, exponent))
            hours, name = fixed(large.loc[step, "seconds"] * growth / 3600), _name_step(step)
        memory = _estimate_gib(step, BEYOND, int(rois)) or large.loc[step, "peak_own_gib"] * BEYOND / scans
        rows.append([name, hours, fixed(memory, 0), change])
    return write_table(["step", "hours on two cores", "memory, GiB", "what would have to change"], rows)


def page() -> str:
    """Return the page."""
    large, brio = read_large(), curves()["brio", "scans"]
    (scans,), (rois,), (frames,), (sites,) = (large[name].unique() for name in ("scans", "rois", "frames", "sites"))
    points = [len(curve) for curve in curves().values()]
    fits = large["failed"].isna()
    plus = make_method("brio-plus").estimate_fit_bytes(scans, rois) / 2**30
    peak = large.loc[fits, "peak_own_gib"].max()
    return write_page(
        TITLE,
        state(
            f"**No cliff.** In {len(curves())} curves of time against one quantity, of {min(points)} to {max(points)} "
            "points, the steepest step between "
            f"neighbouring points has an exponent of {fixed(find_steepest(STEEPEST))} (scans, regions) and "
            f"{fixed(find_steepest(set(AXES) - STEEPEST.keys()))} (other quantities); above {STEEPEST['scans']} and "
            f"{STEEP_ELSEWHERE} it would count as a cliff. On two cores and {MACHINE} GiB, a cohort of {scans:,} "
            f"scans with {rois} regions is audited, and ridge and log-ridge can be fitted to it in {fixed(peak, 0)} "
            f"GiB. One fold of BRIO plus would need {fixed(plus, 0)} GiB besides the connectomes, and is refused.",
            count_cliffs() == 0 and bool(fits[["audit", "ridge", "log-ridge"]].all()) and peak < MACHINE < plus,
        ),
        "## When one quantity grows",
        "Exponents of the time between the two largest values of each curve: 1 means that the time doubles with the "
        "quantity, 2 that it grows by four. Simulated scans, one thread, CPU seconds. The other quantities stay at 256 "
        "scans, 100 regions, 200 frames, K = 8, J = 4, 8 sites and one run; BRIO plus and BRIO at 50 regions and 128 "
        "and 64 scans, BRIO at K = 4.",
        write_commands("python benchmarks/growth.py growth"),
        _exponent_table(),
        "The memory of each point is in `evidence/growth/growth.csv`.",
        f"![Time against each quantity](../images/{FIGURE})",
        f"Ridge and log-ridge find eigenvectors of up to {DECOMPOSED_SCANS:,} source scans, whose time grows with the "
        "third power. With more scans, conjugate gradients solve all penalties and inner folds together in products "
        "that grow with the second power.",
        f"## {scans:,} scans on two cores",
        f"Simulated scans of {frames} frames and {rois} regions at {sites} sites, {MACHINE} GiB of memory. Methods "
        "start with the connectomes in memory: these count for their memory, not for their time. Mapped pages of the "
        "scans count as memory in the last column only; the system can take them back at any time.",
        write_commands(
            "python benchmarks/large_cohort.py large --step open --step audit --step connectomes --step ridge --step "
            "log-ridge --step brio-plus"
        ),
        _large_table(),
        "The search for duplicates compares sketches of all pairs of scans in blocks, so its memory does not grow with "
        "the pairs. All folds of ridge share one Gram matrix of the cohort, and so do those of log-ridge; features are "
        "read from edges in float32, some scans at a time. BRIO plus holds log-connectomes of all scans and "
        "their re-estimates in float32, and the edges of a fold in float64.",
        "BRIO was measured before, with an earlier version of the same benchmark, which printed:",
        f"```\n{read_measurement('large-cohort.txt')}\n```",
        f"## {BEYOND:,} scans, on paper",
        "About as many as the imaging study of UK Biobank aims at. Arithmetic, not run: the times above grow with the "
        "exponents of the first table, but at least with the second power where all pairs of scans are compared or "
        f"multiplied. Memory is what the methods estimate of themselves at {rois} regions, connectomes included; that "
        "of the audit grows with the number of scans.",
        _beyond_table(),
        f"BRIO trains in steps of a fixed size: from {brio['value'].iloc[0]} to {brio['value'].iloc[-1]} scans its "
        f"time grew with an exponent of {fixed(fit_work_exponent('brio', 'scans'))} and its memory from "
        f"{fixed(brio['mebibytes'].iloc[0], 0)} to {fixed(brio['mebibytes'].iloc[-1], 0)} MiB; larger cohorts were not "
        "measured in this way. A cluster "
        "shortens a study by computing folds and methods side by side. It does not divide one run: a worker needs the "
        "memory of the table.",
        name_source(FOLDER, "measurements"),
    )
