"""Write an explanation: tables, figures, text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..connectome import unfold_edges
from ..drawing import import_brain_plots, make_panels, save_figure
from ..formatting import escape_markdown, format_count, format_number, format_table
from ..results.files import write_atomically, write_csv
from ..storage import create_whole_folder, write_sums
from .explain import STRONGEST, ModelExplanation, find_reason_against_refits
from .roi_groups import RoiGroups
from .text import fill_text

DIVERGING = "RdBu_r"
POSITIVE, NEGATIVE = "#B2182B", "#2166AC"
GROUP_COLOURS = (
    *("#2CA02C", "#FF7F0E", "#9467BD", "#BCBD22", "#8C564B", "#17BECF", "#E377C2", "#7F7F7F"),
    *("#98DF8A", "#FFBB78", "#C5B0D5", "#DBDB8D"),
)
"""Colours of groups, without red and blue, which mark the signs of edges; they repeat after twelve groups."""
DRAWN_EDGES = 60
"""Number of edges in the brain and in the chord diagram."""
NAMED_ROIS = 15
_BEND = 0.45
"""How far chords bend towards the centre: 0 to the centre, 1 not at all."""


def draw_matrix(explanation: ModelExplanation) -> Any:
    """Draw patterns and coefficients of all edges, or the assignment of ROIs to factors where there are no edges."""
    groups, edges, factors = explanation.groups, explanation.edges, explanation.factors
    if edges is not None:
        figure, axes = make_panels(2, 12.0, 5.6)
        titles = {"pattern": "Pattern: change per unit of margin", "coefficient": "Coefficient: weight in the margin"}
        for ax, (column, title) in zip(axes, titles.items(), strict=True):
            matrix = unfold_edges(torch.tensor(edges[column].to_numpy()), len(groups.name)).numpy()[
                np.ix_(groups.order, groups.order)
            ]
            limit = float(np.quantile(np.abs(matrix), 0.995)) or 1.0
            image = ax.imshow(matrix, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
            _finish_matrix(figure, ax, image, groups, title, both=True)
        return figure
    assignment = explanation.members[0].assignment
    assert assignment is not None
    assert factors is not None
    J, P = assignment.shape
    figure, (ax,) = make_panels(1, 10.0, 2.2 + 0.4 * J)
    image = ax.imshow(P * assignment[:, groups.order], cmap="viridis", vmin=0, aspect="auto", interpolation="nearest")
    names = [f"factor {j + 1} (share {share:.0%})" for j, share in enumerate(factors["share"][:J])]
    ax.set_yticks(np.arange(J), names, fontsize=8)
    _finish_matrix(figure, ax, image, groups, "Share of each region that belongs to each factor")
    return figure


def _finish_matrix(figure: Any, ax: Any, image: Any, groups: RoiGroups, title: str, both: bool = False) -> None:
    """Name and separate the groups below a matrix, or on both of its sides; add its title and scale."""
    names = groups.name[groups.order].tolist()
    starts = [names.index(name) for name in groups.in_order]
    centres = [start + (names.count(name) - 1) / 2 for start, name in zip(starts, groups.in_order, strict=True)]
    line = {"color": "0.35", "linewidth": 0.6} if both else {"color": "white", "linewidth": 0.8}
    for start in starts[1:]:
        ax.axvline(start - 0.5, **line)
        if both:
            ax.axhline(start - 0.5, **line)
    if both:
        ax.set_yticks(_spread(np.array(centres), 0.03 * len(names), len(names) - 1.0), groups.in_order, fontsize=8)
    apart = _spread(np.array(centres), 0.037 * len(names), len(names) - 1.0)
    ax.set_xticks(apart, groups.in_order, fontsize=8, rotation=45, ha="right", rotation_mode="anchor")
    ax.tick_params(length=0)
    ax.set_title(title, fontsize=10)
    figure.colorbar(image, ax=ax, shrink=0.8).ax.tick_params(labelsize=8)


def _spread(places: np.ndarray, gap: float, last: float) -> np.ndarray:
    """Move positions [n], in ascending order, apart so that their labels do not overlap; none moves beyond the last."""
    apart = places.astype(float)
    for k in range(1, len(apart)):
        apart[k] = max(apart[k], apart[k - 1] + gap)
    apart[-1:] = np.minimum(apart[-1:], last)
    for k in range(len(apart) - 2, -1, -1):
        apart[k] = min(apart[k], apart[k + 1] - gap)
    return apart


def draw_brain(explanation: ModelExplanation) -> Any:
    """Draw the regions with the highest ranks, and the strongest edges in a glass brain."""
    from matplotlib.figure import Figure

    rois, edges, plotting = explanation.rois, explanation.edges, import_brain_plots()
    coordinates = rois[["x", "y", "z"]].to_numpy(dtype=float)
    score = rois["emphasis" if edges is None else "absolute_pattern"].to_numpy()
    figure = Figure(figsize=(14.0, 3.6))
    bars = figure.add_axes((0.135, 0.14, 0.15, 0.78))
    top = np.argsort(-score, kind="stable")[:NAMED_ROIS][::-1]
    bars.barh(np.arange(len(top)), score[top], color="0.55", height=0.7)
    if edges is not None:
        bars.plot(rois["signed_pattern"].to_numpy()[top], np.arange(len(top)), "o", color="black", markersize=4)
        bars.axvline(0, color="0.3", linewidth=0.6)
    bars.set_yticks(np.arange(len(top)), rois["roi"].to_numpy()[top], fontsize=8)
    bars.tick_params(axis="x", labelsize=8)
    label = "emphasis (1: no emphasis)" if edges is None else "sum over edges: |pattern| (bar), pattern (dot)"
    bars.set_xlabel(label, fontsize=8)
    bars.spines[["top", "right"]].set_visible(False)
    size = 1 + 60 * ((score - score.min()) / max(np.ptp(score), 1e-12)) ** 3  # the highest stand out
    place = {"display_mode": "lyrz", "figure": figure, "axes": (0.3, 0.0, 0.68, 0.92)}
    if edges is None:
        plotting.plot_markers(score, coordinates, node_size=size, node_cmap="viridis_r", **place)
        return figure
    values, strongest = edges["pattern"].to_numpy(), _find_strongest(edges)
    drawn = np.zeros(len(values))
    drawn[strongest] = values[strongest]
    limit = float(np.abs(drawn).max()) or 1.0
    plotting.plot_connectome(
        unfold_edges(torch.from_numpy(drawn), len(rois)).numpy(),
        coordinates,
        node_color="black",
        node_size=size,
        edge_cmap=DIVERGING,
        edge_vmin=-limit,
        edge_vmax=limit,
        edge_kwargs={"linewidth": 1.2},
        node_kwargs={"alpha": 0.75, "linewidths": 0},
        colorbar=True,
        **place,
    )
    second = explanation.model.classes[1]
    title = f"{len(strongest)} strongest patterns: towards {second}, red edges increase and blue edges decrease"
    figure.text(0.63, 0.93, title, ha="center", fontsize=9)
    return figure


def draw_chords(explanation: ModelExplanation) -> Any:
    """Draw the strongest edges as chords of a circle on which ROIs are arranged by group."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Wedge

    groups, edges, second = explanation.groups, explanation.edges, explanation.model.classes[1]
    assert edges is not None
    ordered = groups.name[groups.order]  # clockwise from the top, with a gap between groups
    position = np.arange(len(ordered)) + 1.5 * np.cumsum(np.concatenate([[0], ordered[1:] != ordered[:-1]]))
    angle = np.empty(len(ordered))
    angle[groups.order] = np.pi / 2 - 2 * np.pi * (position + 1.25) / (position[-1] + 2.5)
    point = np.stack([np.cos(angle), np.sin(angle)], 1)
    figure = Figure(figsize=(10.4, 8.4))
    ax = figure.add_axes((0.0, 0.0, 0.81, 1.0))
    ax.set_aspect("equal")
    ax.set_axis_off()
    half = np.degrees(np.pi * 0.92 / len(angle))
    signs = ((POSITIVE, f"increases towards {second}"), (NEGATIVE, f"decreases towards {second}"))
    legend: list[Any] = [Line2D([], [], color=colour, lw=2, label=label) for colour, label in signs]
    for k, name in enumerate(groups.in_order):
        own, colour = np.degrees(angle[groups.name == name]), GROUP_COLOURS[k % len(GROUP_COLOURS)]
        ax.add_patch(Wedge((0, 0), 1.06, own.min() - half, own.max() + half, width=0.05, color=colour, lw=0))
        legend.append(Patch(color=colour, label=name))
    strongest = _find_strongest(edges)[::-1]  # the strongest is drawn last
    u, v = (index[strongest] for index in np.triu_indices(len(angle), 1))
    values = edges["pattern"].to_numpy()[strongest]
    share = np.abs(values) / np.abs(values).max()
    t = np.linspace(0, 1, 40)[:, None, None]
    chords = (1 - t) ** 2 * point[u] + t * (1 - t) * _BEND * (point[u] + point[v]) + t**2 * point[v]
    colours = np.where(values > 0, POSITIVE, NEGATIVE).tolist()
    widths, alpha = 0.5 + 2.0 * share**2, 0.35 + 0.6 * share
    ax.add_collection(LineCollection(chords.swapaxes(0, 1), colors=colours, linewidths=widths, alpha=alpha))
    shown, names = np.unique([u, v]).tolist(), explanation.rois["roi"]
    reach = 1.17 + 0.018 * max(len(names[roi]) for roi in shown)  # names lie outside the circle
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
    shown = sorted(shown, key=lambda roi: -angle[roi])  # clockwise
    clockwise = np.pi / 2 - angle[shown]
    for roi, place in zip(shown, np.pi / 2 - _spread(clockwise, 0.0135 * reach, 2 * np.pi), strict=True):
        turn, side = np.degrees(place) % 360, "left"
        if 90 < turn < 270:
            turn, side = turn + 180, "right"
        x, y = 1.12 * np.cos(place), 1.12 * np.sin(place)
        ax.plot([1.065 * point[roi, 0], 0.99 * x], [1.065 * point[roi, 1], 0.99 * y], color="0.6", linewidth=0.5)
        ax.text(x, y, names[roi], fontsize=6.5, rotation=turn, rotation_mode="anchor", ha=side, va="center")
    title = f"{len(strongest)} strongest patterns"
    figure.legend(handles=legend, loc="center right", frameon=False, fontsize=9, title=title)
    return figure


def _find_strongest(edges: pd.DataFrame) -> np.ndarray:
    """Find the edges that are drawn, the strongest first."""
    return np.argsort(-np.abs(edges["pattern"].to_numpy()), kind="stable")[:DRAWN_EDGES]


TEXT, PAGE, MATRIX, BRAIN, CHORDS = "explanation.md", "explanation.html", "matrix.png", "brain.png", "chord.png"
TABLES = ("edges", "rois", "factors", "profiles", "sites", "new_sites")
_ROWS = 15
_HEADINGS = {
    "roi": "region",
    "roi_a": "region",
    "roi_b": "other region",
    "absolute_pattern": "sum of absolute patterns",
    "signed_pattern": "sum of patterns",
    "pattern_cohort": "pattern in these scans",
    "same_sign_reestimates": "share of re-estimates with the sign of the pattern",
    "same_sign_sites": "share of leave-one-site-out fits with the sign of the pattern",
    "lowest_rank_reestimates": "worst rank in re-estimates",
    "lowest_rank_sites": "worst rank in leave-one-site-out fits",
    "share": "share of the variance of the margin",
    "sd": "SD",
    "rois": "main regions",
    "reliability": "share of variance between scans",
}
"""Headings of columns on the page; other columns keep their names."""


def write_explanation(
    explanation: ModelExplanation, out: str | Path, render_page: Callable[[str, Path], str]
) -> list[str]:
    """Write an explanation and its hashes to a new folder, completely or not at all.

    The page is rendered from the text and from the folder with its figures.
    """
    folder = Path(out)
    with create_whole_folder(folder) as partial:
        for name in TABLES:
            if (table := getattr(explanation, name)) is not None:
                write_csv(partial / f"{name}.csv", table)
        save_figure(draw_matrix(explanation), partial / MATRIX)
        if explanation.edges is not None:
            save_figure(draw_chords(explanation), partial / CHORDS)
        if not _find_reason_against_brain(explanation):
            save_figure(draw_brain(explanation), partial / BRAIN)
        write_atomically(partial / TEXT, text := describe_explanation(explanation))
        write_atomically(partial / PAGE, render_page(text, partial))
        write_sums(partial)
    top = explanation.rois.sort_values("rank")["roi"][:5]
    lines = [f"regions with the highest ranks: {', '.join(top)}", *_list_what_is_missing(explanation)]
    return [*_name_scans(explanation), *lines, f"wrote {folder / PAGE}"]


def describe_explanation(explanation: ModelExplanation) -> str:
    """Write the page of an explanation as Markdown."""
    edges, rois, cohort_patterns = explanation.edges, explanation.rois, explanation.cohort_patterns
    pairs = zip(explanation.members, explanation.model.patterns, strict=True)
    shares = [m.coefficients @ p.pattern for m, p in pairs if m.coefficients is not None and p.pattern is not None]
    ranked_by = ["emphasis"] if edges is None else ["absolute_pattern", "signed_pattern"]
    ranked_by += [name for name in rois if name.startswith("lowest_rank")]
    repeated = cohort_patterns is not None and cohort_patterns.is_training
    hidden = "_cohort" if repeated else None  # the same values, from the same scans

    def show(table: pd.DataFrame) -> str:
        columns = [
            name for name in table if name != "pattern_sd_reestimates" and not (hidden and name.endswith(hidden))
        ]
        shown = table[columns][:_ROWS]
        cells = [_write_column(shown[name]) for name in columns]
        headings = [_HEADINGS.get(name, name.replace("_", " ")) for name in columns]
        return format_table(headings, list(zip(*cells, strict=True)))

    return fill_text(
        "explanation.md.j2",
        **vars(explanation),
        show=show,
        rows=_ROWS,
        regions=rois.sort_values("rank")[["rank", "roi", "group", *ranked_by]],
        strongest=None if edges is None else edges.sort_values("pattern", key=lambda own: -own.abs(), kind="stable"),
        edge_values=sorted({member.edge_values for member in explanation.members}),
        share_of_edges=np.mean(shares) if shares else None,
        compared=STRONGEST,
        scans_named=_name_scans(explanation),
        missing=_list_what_is_missing(explanation),
        figures={"matrix": MATRIX, "brain": BRAIN, "chords": CHORDS},
        has_brain=not _find_reason_against_brain(explanation),
    )


def _write_column(column: pd.Series) -> list[str]:
    """Write the cells of a column, with decimals chosen so that its largest number has three digits."""
    if not pd.api.types.is_float_dtype(column):
        return [escape_markdown(cell) for cell in column]
    largest = column.abs().max()
    digits = int(np.clip(2 - np.floor(np.log10(largest)), 0, 9)) if np.isfinite(largest) and largest > 0 else 2
    return [format_number(value, digits) for value in column]


def _name_scans(explanation: ModelExplanation) -> list[str]:
    """Describe in one line the scans that were given, if any."""
    own = explanation.cohort_patterns
    if own is None:
        return []
    others = explanation.model.training.n_scans - own.n_training_scans
    scans = f"{own.patterns[0].n_scans:,} scans of cohort '{escape_markdown(own.cohort)}'"
    if own.is_training:
        return [f"the scans that the model was fitted to were given ({scans})"]
    seen = f"the model was fitted to {own.n_training_scans or 'none'} of them"
    seen += f" and to {format_count(others, 'other')}" if own.n_training_scans and others > 0 else ""
    return [f"{scans} were given; {seen}"]


def _find_reason_against_brain(explanation: ModelExplanation) -> str:
    atlas = explanation.model.atlas
    if not atlas.has_coordinates or not np.isfinite(explanation.rois[["x", "y", "z"]].to_numpy(dtype=float)).all():
        return f"no brain is drawn: atlas '{escape_markdown(atlas.name)}' lacks ROI coordinates"
    if import_brain_plots() is None:
        return (
            "no brain is drawn: nilearn is not installed; install it (pip install nilearn) and explain the model again"
        )
    return ""


def _list_what_is_missing(explanation: ModelExplanation) -> list[str]:
    """List what was not computed, and how to compute it."""
    own, missing = explanation.cohort_patterns, []
    if own is None or not own.reestimated:
        reason = "no scans were given; use --cohort"
        if own is not None:
            reason = "no re-estimates were requested; use --reestimates"
        missing.append(f"stability under re-estimation: {reason}")
    if explanation.sites is None:
        reason = find_reason_against_refits(explanation.model) or "not requested; use --cohort with --sites"
        missing.append(f"stability over left-out sites: {reason}")
    elif explanation.factors is not None:
        missing.append("stability of factors over left-out sites: factors of two fits cannot be matched")
    return [*missing, *filter(None, [_find_reason_against_brain(explanation)])]
