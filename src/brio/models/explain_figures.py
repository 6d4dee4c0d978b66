"""Figures of an explanation: matrix of edges, glass brain, chords between groups of ROIs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..drawing import make_panels
from .explain import ModelExplanation
from .roi_groups import RoiGroups

DIVERGING = "RdBu_r"
POSITIVE, NEGATIVE = "#B2182B", "#2166AC"
GROUP_COLOURS = (
    *("#2CA02C", "#FF7F0E", "#9467BD", "#BCBD22", "#8C564B", "#17BECF", "#E377C2", "#7F7F7F"),
    *("#98DF8A", "#FFBB78", "#C5B0D5", "#DBDB8D"),
)
"""Neither red nor blue, which are the signs of edges. They repeat after twelve groups."""
STRONGEST = 60
"""Edges in the brain and the chords."""
NAMED_ROIS = 15
_BEND = 0.45
"""How far chords bend towards the centre: 0 all the way, 1 not at all."""


def draw_matrix(explanation: ModelExplanation) -> Any:
    """Draw patterns and coefficients of all edges, or the assignment of ROIs to factors where there are no edges."""
    groups, edges = explanation.groups, explanation.edges
    if edges is None:
        return _draw_assignment(explanation)
    figure, axes = make_panels(2, 12.0, 5.6)
    titles = {"pattern": "Pattern: what goes with the margin", "coefficient": "Coefficient: what is weighed"}
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        matrix = _fill_matrix(edges[column].to_numpy(), len(groups.name))[np.ix_(groups.order, groups.order)]
        _draw_square(figure, ax, matrix, groups, title)
    return figure


def _draw_square(figure: Any, ax: Any, matrix: np.ndarray, groups: RoiGroups, title: str) -> None:
    limit = float(np.quantile(np.abs(matrix), 0.995)) or 1.0
    image = ax.imshow(matrix, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    starts, centres = _find_blocks(groups)
    for start in starts[1:]:
        ax.axhline(start - 0.5, color="0.35", linewidth=0.6)
        ax.axvline(start - 0.5, color="0.35", linewidth=0.6)
    ax.set_yticks(centres, groups.in_order, fontsize=8)
    ax.set_xticks(centres, groups.in_order, fontsize=8, rotation=45, ha="right", rotation_mode="anchor")
    ax.tick_params(length=0)
    ax.set_title(title, fontsize=10)
    figure.colorbar(image, ax=ax, shrink=0.8).ax.tick_params(labelsize=8)


def _draw_assignment(explanation: ModelExplanation) -> Any:
    """The share of every ROI in every factor of the first member, groups side by side."""
    assignment, groups = explanation.members[0].assignment, explanation.groups
    assert assignment is not None
    J, P = assignment.shape
    figure, (ax,) = make_panels(1, 10.0, 2.2 + 0.4 * J)
    image = ax.imshow(P * assignment[:, groups.order], cmap="viridis", vmin=0, aspect="auto", interpolation="nearest")
    starts, centres = _find_blocks(groups)
    for start in starts[1:]:
        ax.axvline(start - 0.5, color="white", linewidth=0.8)
    ax.set_xticks(centres, groups.in_order, fontsize=8, rotation=45, ha="right", rotation_mode="anchor")
    assert explanation.factors is not None
    shares = explanation.factors["share"].to_numpy()[:J]
    ax.set_yticks(np.arange(J), [f"factor {j + 1} ({s:.0%} of the margin)" for j, s in enumerate(shares)], fontsize=8)
    ax.tick_params(length=0)
    ax.set_title("Share of each region that belongs to a factor", fontsize=10)
    figure.colorbar(image, ax=ax, shrink=0.8).ax.tick_params(labelsize=8)
    return figure


def find_coordinates(explanation: ModelExplanation) -> np.ndarray | None:
    """Return the coordinates of all ROIs, shape [P, 3]; None if one is missing."""
    if not explanation.model.atlas.has_coordinates:
        return None
    xyz = explanation.rois[["x", "y", "z"]].to_numpy(dtype=float)
    return xyz if np.isfinite(xyz).all() else None


def draw_brain(explanation: ModelExplanation, coordinates: np.ndarray, plotting: Any) -> Any:
    """Draw the regions with the highest ranks, and the strongest edges in a glass brain.

    Shapes: coordinates [P, 3].
    """
    from matplotlib.figure import Figure

    rois, edges, P = explanation.rois, explanation.edges, len(coordinates)
    column = "emphasis" if edges is None else "absolute_pattern"
    score = rois[column].to_numpy()
    figure = Figure(figsize=(14.0, 3.6))
    bars = figure.add_axes((0.135, 0.14, 0.15, 0.78))
    top = np.argsort(-score, kind="stable")[:NAMED_ROIS][::-1]
    bars.barh(np.arange(len(top)), score[top], color="0.55", height=0.7)
    if edges is not None:
        bars.plot(rois["signed_pattern"].to_numpy()[top], np.arange(len(top)), "o", color="black", markersize=4)
        bars.axvline(0, color="0.3", linewidth=0.6)
    bars.set_yticks(np.arange(len(top)), rois["roi"].to_numpy()[top], fontsize=8)
    bars.tick_params(axis="x", labelsize=8)
    label = "emphasis (1: none)" if edges is None else "sum over edges: |pattern| (bar), pattern (dot)"
    bars.set_xlabel(label, fontsize=8)
    for side in ("top", "right"):
        bars.spines[side].set_visible(False)
    place = (0.3, 0.0, 0.68, 0.92)
    size = 1 + 60 * ((score - score.min()) / max(np.ptp(score), 1e-12)) ** 3  # the highest stand out
    if edges is None:
        plotting.plot_markers(
            score, coordinates, node_size=size, node_cmap="viridis_r", display_mode="lyrz", figure=figure, axes=place
        )
        return figure
    values = edges["pattern"].to_numpy()
    matrix = _fill_matrix(np.where(_find_strongest(values), values, 0.0), P)
    limit = float(np.abs(matrix).max()) or 1.0
    plotting.plot_connectome(
        matrix,
        coordinates,
        node_color="black",
        node_size=size,
        edge_cmap=DIVERGING,
        edge_vmin=-limit,
        edge_vmax=limit,
        edge_kwargs={"linewidth": 1.2},
        node_kwargs={"alpha": 0.75, "linewidths": 0},
        display_mode="lyrz",
        figure=figure,
        axes=place,
        colorbar=True,
    )
    second = explanation.model.classes[1]
    title = (
        f"{min(STRONGEST, len(values))} strongest patterns: red edges are stronger towards {second}, blue ones weaker"
    )
    figure.text(0.63, 0.93, title, ha="center", fontsize=9)
    return figure


def draw_chords(explanation: ModelExplanation) -> Any:
    """Draw the strongest edges as chords of a circle on which ROIs lie group by group."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, PathPatch, Wedge
    from matplotlib.path import Path

    groups, edges = explanation.groups, explanation.edges
    assert edges is not None
    names = groups.in_order
    angle = _place_on_circle(groups)
    point = np.stack([np.cos(angle), np.sin(angle)], 1)
    figure = Figure(figsize=(10.4, 8.4))
    ax = figure.add_axes((0.0, 0.0, 0.81, 1.0))
    ax.set_aspect("equal")
    ax.set_axis_off()
    colours = {name: GROUP_COLOURS[k % len(GROUP_COLOURS)] for k, name in enumerate(names)}
    half = np.degrees(np.pi * 0.92 / len(angle))
    for name in names:
        own = np.degrees(angle[groups.name == name])
        ax.add_patch(Wedge((0, 0), 1.06, own.min() - half, own.max() + half, width=0.05, color=colours[name], lw=0))
    values = edges["pattern"].to_numpy()
    strongest = np.flatnonzero(_find_strongest(values))
    u, v = (index[strongest] for index in np.triu_indices(len(angle), 1))
    limit = np.abs(values[strongest]).max()
    for a, b, value in sorted(zip(u, v, values[strongest], strict=True), key=lambda edge: abs(edge[2])):
        share = abs(value) / limit
        curve = Path([point[a], _BEND * (point[a] + point[b]) / 2, point[b]], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
        colour = POSITIVE if value > 0 else NEGATIVE
        ax.add_patch(PathPatch(curve, fill=False, edgecolor=colour, lw=0.5 + 2.0 * share**2, alpha=0.35 + 0.6 * share))
    shown = np.unique(np.concatenate([u, v])).tolist()
    reach = 1.14 + 0.018 * max(len(explanation.rois["roi"][roi]) for roi in shown)  # names lie outside the circle
    ax.set_xlim(-reach, reach)
    ax.set_ylim(-reach, reach)
    for roi in shown:
        turn = np.degrees(angle[roi]) % 360
        left = 90 < turn < 270
        ax.text(
            1.09 * point[roi, 0],
            1.09 * point[roi, 1],
            explanation.rois["roi"][roi],
            fontsize=6.5,
            rotation=turn + 180 if left else turn,
            rotation_mode="anchor",
            ha="right" if left else "left",
            va="center",
        )
    second = explanation.model.classes[1]
    signs = [
        Line2D([], [], color=POSITIVE, lw=2, label=f"stronger towards {second}"),
        Line2D([], [], color=NEGATIVE, lw=2, label=f"weaker towards {second}"),
    ]
    patches = [Patch(color=colours[name], label=name) for name in names]
    title = f"{len(strongest)} strongest patterns"
    figure.legend(handles=[*signs, *patches], loc="center right", frameon=False, fontsize=9, title=title)
    return figure


def _place_on_circle(groups: RoiGroups) -> np.ndarray:
    """Angle of each ROI: in the order of the figure, clockwise from the top, with a gap between groups. Shape [P]."""
    names = groups.name[groups.order]
    gap = 1.5 * np.cumsum(np.concatenate([[0], names[1:] != names[:-1]]))
    position = np.arange(len(names)) + gap
    angle = np.empty(len(names))
    angle[groups.order] = np.pi / 2 - 2 * np.pi * (position + 1.25) / (position[-1] + 2.5)
    return angle


def _fill_matrix(values: np.ndarray, n_rois: int) -> np.ndarray:
    matrix = np.zeros((n_rois, n_rois))
    matrix[np.triu_indices(n_rois, 1)] = values
    return matrix + matrix.T


def _find_strongest(values: np.ndarray) -> np.ndarray:
    """Whether each edge is among the strongest. Shape [edges], bool."""
    chosen = np.zeros(len(values), dtype=bool)
    chosen[np.argsort(-np.abs(values), kind="stable")[:STRONGEST]] = True
    return chosen


def _find_blocks(groups: RoiGroups) -> tuple[list[int], list[float]]:
    """First position and centre of each group in the order of a figure."""
    names = groups.name[groups.order].tolist()
    starts = [names.index(name) for name in groups.in_order]
    return starts, [start + (names.count(name) - 1) / 2 for start, name in zip(starts, groups.in_order, strict=True)]
