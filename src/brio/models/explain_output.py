"""Write an explanation: tables, figures, text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..drawing import import_brain_plots, make_panels, save_figure
from ..formatting import escape_markdown, format_code, format_count, format_table
from ..results.files import write_atomically, write_csv
from ..storage import create_whole_folder, write_sums
from .explain import STRONGEST, ModelExplanation, find_reason_against_refits
from .patterns import CohortReading, RoiGroups

DIVERGING = "RdBu_r"
POSITIVE, NEGATIVE = "#B2182B", "#2166AC"
GROUP_COLOURS = (
    *("#2CA02C", "#FF7F0E", "#9467BD", "#BCBD22", "#8C564B", "#17BECF", "#E377C2", "#7F7F7F"),
    *("#98DF8A", "#FFBB78", "#C5B0D5", "#DBDB8D"),
)
"""Neither red nor blue, which are the signs of edges. They repeat after twelve groups."""
DRAWN_EDGES = 60
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
    starts, centres = _find_blocks(groups)
    titles = {"pattern": "Pattern: what goes with the margin", "coefficient": "Coefficient: what is weighed"}
    for ax, (column, title) in zip(axes, titles.items(), strict=True):
        matrix = _fill_matrix(edges[column].to_numpy(), len(groups.name))[np.ix_(groups.order, groups.order)]
        limit = float(np.quantile(np.abs(matrix), 0.995)) or 1.0
        image = ax.imshow(matrix, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
        for start in starts[1:]:
            ax.axhline(start - 0.5, color="0.35", linewidth=0.6)
            ax.axvline(start - 0.5, color="0.35", linewidth=0.6)
        ax.set_yticks(centres, groups.in_order, fontsize=8)
        _finish_matrix(figure, ax, image, groups, title)
    return figure


def _finish_matrix(figure: Any, ax: Any, image: Any, groups: RoiGroups, title: str) -> None:
    """Add the groups below a matrix, its title and its scale."""
    centres = _find_blocks(groups)[1]
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
    for start in _find_blocks(groups)[0][1:]:
        ax.axvline(start - 0.5, color="white", linewidth=0.8)
    assert explanation.factors is not None
    shares = explanation.factors["share"].to_numpy()[:J]
    ax.set_yticks(np.arange(J), [f"factor {j + 1} ({s:.0%} of the margin)" for j, s in enumerate(shares)], fontsize=8)
    _finish_matrix(figure, ax, image, groups, "Share of each region that belongs to a factor")
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
        f"{min(DRAWN_EDGES, len(values))} strongest patterns: red edges are stronger towards {second}, blue ones weaker"
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
    ordered = groups.name[groups.order]  # clockwise from the top, with a gap between groups
    position = np.arange(len(ordered)) + 1.5 * np.cumsum(np.concatenate([[0], ordered[1:] != ordered[:-1]]))
    angle = np.empty(len(ordered))
    angle[groups.order] = np.pi / 2 - 2 * np.pi * (position + 1.25) / (position[-1] + 2.5)
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


def _fill_matrix(values: np.ndarray, n_rois: int) -> np.ndarray:
    matrix = np.zeros((n_rois, n_rois))
    matrix[np.triu_indices(n_rois, 1)] = values
    return matrix + matrix.T


def _find_strongest(values: np.ndarray) -> np.ndarray:
    """Whether each edge is among the strongest. Shape [edges], bool."""
    chosen = np.zeros(len(values), dtype=bool)
    chosen[np.argsort(-np.abs(values), kind="stable")[:DRAWN_EDGES]] = True
    return chosen


def _find_blocks(groups: RoiGroups) -> tuple[list[int], list[float]]:
    """First position and centre of each group in the order of a figure."""
    names = groups.name[groups.order].tolist()
    starts = [names.index(name) for name in groups.in_order]
    return starts, [start + (names.count(name) - 1) / 2 for start, name in zip(starts, groups.in_order, strict=True)]


TEXT, MATRIX, BRAIN, CHORDS = "explanation.md", "matrix.png", "brain.png", "chord.png"
_ROWS = 15


def write_explanation(explanation: ModelExplanation, out: str | Path) -> list[str]:
    """Write an explanation, with its hashes, to a new folder, which is there whole or not at all."""
    folder = Path(out)
    no_brain = _find_reason_against_brain(explanation)
    with create_whole_folder(folder) as partial:
        for name in ("edges", "rois", "factors", "profiles", "sites", "new_sites"):
            table = getattr(explanation, name)
            if table is not None:
                write_csv(partial / f"{name}.csv", table)
        save_figure(draw_matrix(explanation), partial / MATRIX)
        if explanation.edges is not None:
            save_figure(draw_chords(explanation), partial / CHORDS)
        coordinates = find_coordinates(explanation)
        if coordinates is not None and not no_brain:
            save_figure(draw_brain(explanation, coordinates, import_brain_plots()), partial / BRAIN)
        write_atomically(partial / TEXT, describe_explanation(explanation))
        write_sums(partial)
    top = explanation.rois.sort_values("rank")["roi"][:5]
    lines = [f"regions with the highest ranks: {', '.join(top)}", *_list_what_is_missing(explanation)]
    if explanation.reading is not None:
        lines.insert(0, _name_scans(explanation.reading, explanation.model.training.n_scans))
    return [*lines, f"wrote {folder / TEXT}"]


def _name_scans(reading: CohortReading, n_training: int) -> str:
    others = n_training - reading.n_learned
    seen = f"it was fitted to {reading.n_learned or 'none'} of them"
    seen += f" and to {format_count(others, 'other')}" if reading.n_learned and others > 0 else ""
    scans = "those it was fitted to" if reading.is_training else seen
    return f"read on {reading.patterns[0].n_scans} scans of {escape_markdown(reading.name)}: {scans}"


def describe_explanation(explanation: ModelExplanation) -> str:
    """Write the page of an explanation as Markdown."""
    model = explanation.model
    training = model.training
    seeds = len(model.members)
    parts = [
        f"# What {model.method.name} on {escape_markdown(training.cohort)} reads",
        f"The model was fitted to {training.n_scans} scans of {len(training.sites)} sites; "
        f"{seeds} member{'s' if seeds > 1 else ''}. A higher margin speaks for class {format_code(model.classes[1])}, "
        f"a lower one for {format_code(model.classes[0])}.",
        "## How to read this",
        *_explain_terms(explanation),
        "## Regions",
        _describe_regions(explanation),
        *_describe_edges(explanation),
        *_describe_factors(explanation),
        "## Stability",
        *_describe_stability(explanation),
    ]
    if missing := _list_what_is_missing(explanation):
        parts += ["## Not computed", "\n".join(f"- {line}" for line in missing)]
    return "\n\n".join(parts) + "\n"


def _explain_terms(explanation: ModelExplanation) -> list[str]:
    lines = [
        "- Neither coefficients nor patterns nor factors are causes. They say what this model reads, in these scans."
    ]
    if explanation.edges is not None:
        lines += [
            "- **A coefficient is not a pattern.** A coefficient says how an edge is weighed. An edge that only "
            "cancels noise of other edges has a large one, although it does not differ between the classes. Do not "
            "read coefficients as effects.",
            "- A pattern says how an edge changes where the margin is higher by one: the covariance of the edge with "
            "the margin over the variance of the margin (Haufe et al. 2014, NeuroImage 87:96-110). It says which edges "
            "go with the margin, and also shows edges that the model does not need. What goes with the margin for "
            "other reasons, such as motion or site, is in it too.",
        ]
    if explanation.factors is not None:
        lines.append(
            "- A factor is a group of regions whose contribution, with those of the other factors and an intercept, "
            "adds up to the margin. Its share is that of the variance of the margin; shares sum to one."
        )
    return ["\n".join(lines)]


def _describe_regions(explanation: ModelExplanation) -> str:
    edges = explanation.edges
    by = "emphasis (share of its factors; 1 is none)" if edges is None else "the sum of its absolute patterns"
    columns = ["emphasis"] if edges is None else ["absolute_pattern", "signed_pattern"]
    columns += [name for name in explanation.rois if name.startswith("lowest_rank")]
    table = explanation.rois.sort_values("rank")[["rank", "roi", "group", *columns]]
    origin = f"Groups: {explanation.groups.origin}."
    text = f"Ranked by {by}; all are in `rois.csv`. {origin}\n\n{_format(table)}"
    return text if _find_reason_against_brain(explanation) else f"{text}\n\n![Regions in a glass brain]({BRAIN})"


def _describe_edges(explanation: ModelExplanation) -> list[str]:
    edges, members = explanation.edges, explanation.members
    if edges is None:
        return []
    values = sorted({member.edge_values for member in members})
    text = [f"The value of an edge: {', or '.join(values)}."]
    if len(values) > 1:
        text.append("Members read edges in different units, so their mean is a rough one.")
    if members[0].beyond_edges:
        pairs = zip(members, explanation.model.patterns, strict=True)
        shares = [m.coefficients @ p.pattern for m, p in pairs if m.coefficients is not None and p.pattern is not None]
        share = float(sum(shares) / len(shares))
        text.append(f"Edges make {share:.0%} of the variance of the margin, the rest is {members[0].beyond_edges}.")
    strongest = edges.reindex(edges["pattern"].abs().sort_values(ascending=False, kind="stable").index)
    agreement = edges["coefficient"].corr(edges["pattern"])
    text.append(f"Over edges, coefficients and patterns correlate by {agreement:.2f}.")
    shown = _drop_repeated(explanation, strongest.drop(columns="pattern_sd_reestimates", errors="ignore"))
    return [
        "## Edges",
        " ".join(text) + f" The {_ROWS} strongest patterns; all are in `edges.csv`.",
        _format(shown),
        f"![Patterns and coefficients of all edges]({MATRIX})",
        f"![The strongest patterns as chords]({CHORDS})",
    ]


def _describe_factors(explanation: ModelExplanation) -> list[str]:
    if explanation.factors is None:
        return []
    text = "Contributions over the scans that the model was fitted to; `profiles.csv` has the regions of each factor."
    if len(explanation.members) > 1:
        text += " Each seed numbers its factors on its own."
    figure = [f"![Regions of each factor]({MATRIX})"] if explanation.edges is None else []
    return ["## Factors", text, _format(_drop_repeated(explanation, explanation.factors)), *figure]


def _describe_stability(explanation: ModelExplanation) -> list[str]:
    reading, edges, sites = explanation.reading, explanation.edges, explanation.sites
    lines = []
    if reading is not None:
        lines.append(f"- R{_name_scans(reading, explanation.model.training.n_scans)[1:]}.")
        if edges is not None and not reading.is_training:
            correlation = edges["pattern"].corr(edges["pattern_cohort"])
            lines.append(f"- Their pattern correlates by {correlation:.2f} with that of the model.")
    if reading is not None and reading.reestimated and edges is not None:
        K = reading.reestimated[0].margin.shape[1]
        share = (edges["same_sign_reestimates"] == 1).mean()
        lines.append(
            f"- Re-estimation: each scan replaced by {K} re-estimates of itself. The sign of the pattern is the same "
            f"in all of them for {share:.0%} of the edges. That is about other minutes of the same scans, not about "
            "other people."
        )
    factors = explanation.factors
    if factors is not None and "reliability" in factors and factors["reliability"].notna().any():
        low, high = factors["reliability"].min(), factors["reliability"].max()
        lines.append(
            f"- Factors: {low:.0%} to {high:.0%} of the variance of a contribution lies between scans, the rest within "
            "them under re-estimation."
        )
    if sites is not None and explanation.new_sites is not None:
        difference = sites["difference_correlation"]
        shares = explanation.new_sites.set_index("strongest_edges")["same_sign_new_sites"]
        lines += [
            f"- Without one of {len(sites)} sites: patterns correlate by "
            f"{sites['pattern_correlation'].min():.2f} or more with that of the model, coefficients by "
            f"{sites['coefficient_correlation'].min():.2f} or more. These fits share most of their scans.",
            "- At the left-out site itself, where no scan took part in the fit: the pattern correlates by "
            f"{difference.median():.2f} in the median over sites ({difference.min():.2f} to {difference.max():.2f}; 0 "
            "by chance) with the difference between the classes there. The classes differ in the direction of the "
            f"pattern without the site in {sites['strongest_same_sign'].mean():.0%} of its {STRONGEST} strongest "
            f"edges, in {shares.iloc[-1]:.0%} of all edges (50% by chance). `sites.csv` has each site, "
            "`new_sites.csv` other numbers of edges.",
        ]
    return ["\n".join(lines)] if lines else ["Nothing is known: no scans were given."]


def _find_reason_against_brain(explanation: ModelExplanation) -> str:
    if find_coordinates(explanation) is None:
        return (
            f"no brain is drawn: atlas '{escape_markdown(explanation.model.atlas.name)}' lacks coordinates of some ROIs"
        )
    if import_brain_plots() is None:
        return "no brain is drawn: nilearn is not installed; install it (pip install nilearn) and repeat the command"
    return ""


def _list_what_is_missing(explanation: ModelExplanation) -> list[str]:
    """What was not computed, and what to do for it."""
    reading = explanation.reading
    missing = []
    if reading is None:
        missing.append("stability under re-estimation: no scans were given (--cohort)")
    elif not reading.reestimated:
        missing.append("stability under re-estimation: no re-estimates were asked for (--reestimates)")
    if explanation.sites is None:
        reason = find_reason_against_refits(explanation.model) or "it was not asked for (--cohort with --sites)"
        missing.append(f"stability over left-out sites: {reason}")
    elif explanation.factors is not None:
        missing.append("stability of factors over left-out sites: factors of two fits cannot be matched")
    return [*missing, *filter(None, [_find_reason_against_brain(explanation)])]


def _drop_repeated(explanation: ModelExplanation, table: pd.DataFrame) -> pd.DataFrame:
    """Drop columns of the given scans where these are the scans of the model, since they say the same."""
    reading = explanation.reading
    repeated = [name for name in table if str(name).endswith("_cohort")]
    return table.drop(columns=repeated) if reading is not None and reading.is_training else table


def _format(table: pd.DataFrame) -> str:
    rows = []
    for row in table[:_ROWS].itertuples(index=False):
        rows.append([f"{cell:.3g}" if isinstance(cell, float) else escape_markdown(cell) for cell in row])
    return format_table([str(name).replace("_", " ") for name in table], rows)
