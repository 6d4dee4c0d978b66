"""The files of ``brio explain``: tables, figures and a page of text."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ..drawing import import_brain_plots, save_figure
from ..formatting import format_count
from ..results.files import write_atomically, write_csv
from ..results.format import escape_markdown, format_code, format_table
from ..storage import create_whole_folder, write_sums
from .explain import ModelExplanation
from .explain_figures import draw_brain, draw_chords, draw_matrix, find_coordinates
from .patterns import CohortReading
from .site_stability import STRONGEST, find_reason_against_refits

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
        share = _measure_edge_share(explanation)
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


def _measure_edge_share(explanation: ModelExplanation) -> float:
    """Share of the edges in the variance of the margin, mean over members: coefficients times patterns."""
    pairs = zip(explanation.members, explanation.model.patterns, strict=True)
    shares = [m.coefficients @ p.pattern for m, p in pairs if m.coefficients is not None and p.pattern is not None]
    return float(sum(shares) / len(shares))


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
