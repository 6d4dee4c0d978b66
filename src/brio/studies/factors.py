"""What trained models rest on: the factors of BRIO (retention, regions, propositions) and whole scans (scan-length)."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..drawing import DASHED, OUTSIDE, import_brain_plots, label_axis, make_panels, series_style, show_names_as_text
from ..formatting import format_percent, format_signed, state_p
from ..protocol import auc, average_margins, compare_family
from .comparison import choose_reference
from .context import Arm, StudyContext, display_name, make_arm
from .study import Finding, register_study
from .summaries import collect_facts, draw_over_sites, stack_arms

if TYPE_CHECKING:
    from torch import Tensor

    from ..connectome import Connectomes
    from ..diagnostics import FactorEvidence
    from ..training import FittedRun, Method


def _list_brio(context: StudyContext) -> list[Arm]:
    return [make_arm("brio")]


def _gather_evidence(context: StudyContext, arm: Arm) -> tuple[Method, list[tuple[FittedRun, FactorEvidence]]]:
    """Load the fitted runs of BRIO and gather the evidence of the factors of each."""
    from ..diagnostics import gather_factor_evidence

    frozen = context.freeze_runs(arm)
    return frozen.method, list(zip(frozen.fitted, gather_factor_evidence(frozen), strict=True))


RANDOM_ORDERS = 20
"""Random rankings whose AUCs are averaged for each run."""


@register_study("retention", _list_brio)
def retain_factors(context: StudyContext, arms: list[Arm]) -> Finding:
    """Score test sites with only the best-ranked factors, which are ranked on source sites; the classifier is fixed.

    Rankings are by qualification, relevance, support, and at random.
    """
    rows = _score_runs(context, arms[0])
    by_site = 100 * rows.groupby(["ranking", "share", "fold"], sort=False)["auc"].mean()
    means = by_site.groupby(["ranking", "share"], sort=False).mean().unstack("share")
    text = [
        f"With {share:g}% of the factors, the mean AUC is highest for the ranking '{means[share].idxmax()}'. "
        f"Difference in AUC from 'qualification', in points: {_list_differences(by_site, share, 'qualification')}."
        for share in means.columns
        if share < 100
    ]
    text.append(f"With all factors, the mean AUC is {means[100.0].iloc[0]:.1f}% for every ranking.")
    facts = context.trained_results(arms[0]).facts
    summary = means.rename(columns=lambda share: f"{share:g}%").reset_index().assign(**facts)
    return Finding(rows.assign(**facts), summary, text, lambda: _draw_retention(by_site))


def _list_differences(by_site: pd.Series, share: float, reference: str) -> str:
    """List differences of series to a reference over sites at one share; the index is series, share and site."""
    tests = compare_family(by_site.xs(share, level="share").unstack(0), reference)
    columns = tests[["method", "mean_difference", "p_holm"]].itertuples(index=False)
    return ", ".join(f"{display_name(name)} {format_signed(mean)} ({state_p(p)})" for name, mean, p in columns)


def _draw_shares(by_site: pd.Series, size: tuple[float, float], spacing: float, x: str, y: str, **legend: Any) -> Any:
    """Draw scores over sites against shares; the index is series, share and site."""
    figure, (axis,) = make_panels(1, *size)
    draw_over_sites(axis, by_site, spacing)
    shares = by_site.index.unique("share")
    axis.set_xticks(shares, [f"{share:.0f}" for share in shares])
    label_axis(axis, x, f"{y} (95% interval)", legend=OUTSIDE | legend)
    return figure


def _score_runs(context: StudyContext, arm: Arm) -> pd.DataFrame:
    """Score every run under every ranking: one row per run, ranking and number of factors."""
    import torch

    from ..diagnostics import compute_contributions

    method, gathered = _gather_evidence(context, arm)
    inputs = method.gather_inputs(context.connectomes)
    rows = []
    for fitted, evidence in gathered:
        fold = fitted.run.fold
        test = torch.from_numpy(fold.test).to(context.connectomes.device)
        a = compute_contributions(method, fitted, inputs.take(test))
        people, averaged = average_margins(context.cohort, fold.test, a.double().cpu().numpy())
        a = torch.from_numpy(averaged).to(a)  # margins are linear in contributions, so this averages margins too
        scores = _score_rankings(evidence, a, fitted, context.cohort.labels[people])
        rows.append(scores.assign(fold=fold.name, seed=fitted.run.seed))
    return pd.concat(rows, ignore_index=True)[["fold", "seed", "ranking", "factors", "share", "auc"]]


def _score_rankings(evidence: FactorEvidence, a: Tensor, fitted: FittedRun, labels: np.ndarray) -> pd.DataFrame:
    """Score one run on its test scans with 1 to J factors under each ranking; a has shape [participants, J]."""
    from ..diagnostics import RANKINGS, rank_factors, retained_margin

    J = a.shape[1]

    @cache  # rankings share most of their sets of factors
    def score(factors: frozenset[int]) -> float:
        return auc(labels, retained_margin(a, fitted, sorted(factors)))

    rows = []
    for ranking in RANKINGS:
        n_orders = RANDOM_ORDERS if ranking == "random" else 1
        orders = [rank_factors(evidence, ranking, seed) for seed in range(n_orders)]
        for n_factors in range(1, J + 1):
            sets = [frozenset(order[:n_factors].tolist()) for order in (orders if n_factors < J else orders[:1])]
            mean = float(np.mean([score(factors) for factors in sets]))
            rows.append({"ranking": ranking, "factors": n_factors, "share": 100 * n_factors / J, "auc": mean})
    return pd.DataFrame(rows)


def _draw_retention(by_site: pd.Series) -> Any:
    spacing, y = 100 / len(by_site.index.unique("share")), "AUC at test sites, %"
    legend = {"title": "factors ranked by", "title_fontsize": 8}
    return _draw_shares(by_site, (7.0, 3.8), spacing, "factors kept, %", y, **legend)


TOP, TABULATED, DRAWN = 5, 10, 15
"""Numbers of regions in the text, the small table and the figure."""


@register_study("regions", _list_brio)
def rank_regions(context: StudyContext, arms: list[Arm]) -> Finding:
    """Rank regions by the profile S_hat of the qualified factors (appendix), averaged over folds and seeds.

    Without emphasis on any region, each of P regions has a score of 1/P.
    """
    from ..diagnostics import roi_profile

    _, gathered = _gather_evidence(context, arms[0])
    S_hat = np.stack([roi_profile(one.qualification.alpha_bar, one.Pi_bar).numpy() for _, one in gathered])
    seed = np.array([fitted.run.seed for fitted, _ in gathered])
    mean = S_hat.mean(0)
    spread = S_hat.std(0, ddof=1) if len(S_hat) > 1 else np.full(len(mean), np.nan)
    columns = {"roi": context.cohort.atlas.rois["name"].tolist(), "S_hat": mean, "SD": spread}
    table = pd.DataFrame(columns | {"times_1_over_P": mean * len(mean), "runs": len(S_hat)})
    table = table.assign(**context.trained_results(arms[0]).facts)
    ordered = table.sort_values("S_hat", ascending=False).reset_index(drop=True)
    coordinates = read_coordinates(context)
    text = [
        f"Regions with the highest mean scores: {', '.join(ordered['roi'][:TOP])}.",
        f"The highest score is {ordered['times_1_over_P'][0]:.2f} times 1/P, the score of a region without emphasis.",
        _describe_repeatability(S_hat, seed),
    ]
    if coordinates is None:
        text.append(
            f"No brain is drawn, because atlas '{context.cohort.atlas.name}' does not have coordinates for all ROIs. "
            "Add them with 'brio atlas COHORT TABLE --out COHORT2', or with --atlas-table at import."
        )
    elif import_brain_plots() is None:
        text.append(
            "No brain is drawn, because nilearn is not installed. Install it (pip install nilearn) and repeat the "
            "command."
        )
    shown = ordered[:TABULATED].rename(columns={"roi": "region", "times_1_over_P": "times 1/P"})
    return Finding(table, shown, text, lambda: _draw_regions(table, coordinates))


def measure_shared_regions(S_hat: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """Measure how many of each run's highest regions are also the highest in the mean over runs of other seeds.

    All runs of a seed start from the same weights and share most of their scans, so their agreement shows nothing. A
    run is therefore compared with other seeds, where a share of ``TOP / P`` is expected by chance.

    Shapes: S_hat [runs, P], seed [runs]; returns [runs].
    """
    shares = np.full(len(S_hat), np.nan)
    for s in np.unique(seed) if len(np.unique(seed)) > 1 else ():
        top = np.argsort(-S_hat[seed != s].mean(0))[:TOP]
        own = np.argsort(-S_hat[seed == s], axis=1)[:, :TOP]
        shares[seed == s] = np.isin(own, top).mean(1)
    return shares


def _describe_repeatability(S_hat: np.ndarray, seed: np.ndarray) -> str:
    """State whether the highest regions are the same from seed to seed."""
    shares = 100 * measure_shared_regions(S_hat, seed)
    if np.isnan(shares).any():
        return (
            "One seed cannot show whether these regions are repeatable, because all runs of a seed start from the same "
            "weights. Use more seeds (--seeds 3)."
        )
    by_seed = [shares[seed == s].mean() for s in np.unique(seed)]
    return (
        f"Of the {TOP} highest-scoring regions of a run, on average {shares.mean():.0f}% are also among the {TOP} "
        f"highest in the mean over other seeds ({min(by_seed):.0f} to {max(by_seed):.0f}%, depending on the seed); "
        f"{100 * TOP / S_hat.shape[1]:.0f}% are expected by chance."
    )


def read_coordinates(context: StudyContext) -> np.ndarray | None:
    """Return the coordinates of all ROIs, shape [P, 3]; None if one is missing."""
    atlas = context.cohort.atlas
    if not atlas.has_coordinates:
        return None
    xyz = atlas.rois[["x", "y", "z"]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    return xyz if np.isfinite(xyz).all() else None


def _draw_regions(table: pd.DataFrame, coordinates: np.ndarray | None) -> Any:
    """Draw the highest regions and, with coordinates and nilearn, the same regions in a brain in the same colours."""
    brain = None if coordinates is None else import_brain_plots()
    figure, axes = make_panels(1 if brain is None else 2, 5.4 if brain is None else 10.4, 4.2)
    top, colours = table.sort_values("S_hat")[-DRAWN:], "viridis_r"
    y, score = np.arange(len(top)), top["times_1_over_P"].to_numpy()
    axes[0].errorbar(score, y, xerr=top["SD"] * len(table), fmt="none", ecolor="0.6", capsize=2)
    axes[0].scatter(score, y, c=score, cmap=colours, s=40, zorder=3)
    axes[0].axvline(1, **DASHED)
    axes[0].set_yticks(y, top["roi"], fontsize=8)
    label_axis(axes[0], "score relative to 1/P (mean, SD over runs)")
    if brain is not None and coordinates is not None:
        show_names_as_text(figure)
        figure.draw_without_rendering()  # nilearn fills the panel as it is now, so the layout must be final
        figure.set_layout_engine("none")
        options = {"node_size": 60, "node_cmap": colours, "display_mode": "xz", "colorbar": False, "alpha": 1.0}
        brain.plot_markers(score, coordinates[top.index], axes=axes[1], **options)
    return figure


@register_study("propositions", _list_brio)
def check_propositions(context: StudyContext, arms: list[Arm]) -> Finding:
    """Check the bound and sign rule of Proposition 1, Eq. (17), and the gain of Proposition 2, Eqs. (20) and (21)."""
    from ..diagnostics import check_proposition_1, check_proposition_2

    _, gathered = _gather_evidence(context, arms[0])
    runs = [(evidence, {"fold": one.run.fold.name, "seed": one.run.seed}) for one, evidence in gathered]
    first, second = (
        pd.concat([check(evidence).assign(**run) for evidence, run in runs], ignore_index=True)
        for check in (check_proposition_1, check_proposition_2)
    )
    facts = context.trained_results(arms[0]).facts
    rule_applies, change, bound = first["sign_condition"], first["change"], first["bound"]
    kept_where_applicable = format_percent(first.loc[rule_applies, "sign_kept"].mean())
    quantities = {
        "Prop. 1: sites and factors": f"{len(first)}",
        "Prop. 1: bound holds, %": format_percent(first["holds"].mean()),
        "Prop. 1: change over bound, median": f"{(change / bound.where(bound > 0)).median():.3f}",
        "Prop. 1: sign rule applies, %": format_percent(rule_applies.mean()),
        "Prop. 1: sign kept where the rule applies, %": kept_where_applicable,
        "Prop. 1: sign kept overall, %": format_percent(first["sign_kept"].mean()),
        "Prop. 2: pairs of sites and classes": f"{len(second)}",
        "Prop. 2: identities hold, %": format_percent(second["holds"].mean()),
        "Prop. 2: reweighting gain, mean": f"{second['gain'].mean():.4f}",
        "Prop. 2: strength g, mean": f"{second['g'].mean():.4f}",
    }
    summary = pd.DataFrame(quantities.items(), columns=["quantity", "value"]).assign(**facts)
    text = [
        f"The bound of Proposition 1 holds for {first['holds'].sum()} of {len(first)} combinations of run, site and "
        f"factor. The sign of the class contrast is kept in {first['sign_kept'].sum()} of them. The sign rule "
        f"applies to {rule_applies.sum()} combinations and is right for "
        f"{first.loc[rule_applies, 'sign_kept'].sum()} of these.",
        f"Reweighting by support lowers the support penalty by {second['gain'].mean():.3g} on average (Proposition 2).",
    ]
    table = pd.concat([first.assign(proposition=1), second.assign(proposition=2)], ignore_index=True).assign(**facts)
    table = table.astype({"factor": "Int64", "label": "Int64"})
    return Finding(table, summary, text, lambda: draw_propositions(first, second), digits=6)


def draw_propositions(first: pd.DataFrame, second: pd.DataFrame) -> Any:
    """Draw the change of each class contrast against its bound, no point above the diagonal, and gains."""
    figure, (left, right) = make_panels(2, 8.6, 3.6)
    applies = first["sign_condition"].astype(bool)
    for k, (mask, label) in enumerate(((~applies, "sign rule does not apply"), (applies, "sign rule applies"))):
        points, style = first[mask], {"s": 6, "alpha": 0.3, "linewidths": 0, **series_style(k)}
        left.scatter(points["bound"], points["change"], label=label, rasterized=True, **style)
    limits = _log_limits(first["bound"])
    left.plot(limits, limits, color="0.5", linewidth=0.8)
    middle = float(np.sqrt(limits[0] * limits[1]))
    beside = {"xytext": (-4, 4), "textcoords": "offset points", "ha": "right", "fontsize": 8, "color": "0.3"}
    left.annotate("change = bound", (middle, middle), **beside)
    x, y, legend = "bound on the change in class contrast", "change under re-estimation", {"loc": "lower right"}
    y_limits = (_log_limits(first["change"])[0], limits[1])
    options: dict[str, Any] = {"xlim": limits, "ylim": y_limits, "legend": legend | {"markerscale": 1.8}}
    label_axis(left, x, y, title="Proposition 1", log="xy", **options)
    for handle in left.get_legend().legend_handles:
        handle.set_alpha(1.0)
    edges = np.linspace(0, max(float(second["gain"].max()), 1e-6), 30)
    right.hist(second["gain"], bins=edges, color=series_style(0)["color"])
    label_axis(right, "reweighting gain", "site pairs and classes", title="Proposition 2", log="y")
    return figure


def _log_limits(values: pd.Series) -> tuple[float, float]:
    """Return limits of a logarithmic axis, with a little room around the positive values."""
    positive = values[values > 0]
    return (float(positive.min()) / 1.5, float(positive.max()) * 1.5) if len(positive) else (0.1, 1.0)


SHARES = (0.75, 0.5)
"""Shares of the frames of a test scan that are kept."""

METHODS = ("brio", "brio-wo-rs", "brio-wo-qg")


@register_study("scan-length", lambda context: [make_arm(name) for name in context.methods or METHODS])
def shorten_scans(context: StudyContext, arms: list[Arm]) -> Finding:
    """Score test scans rebuilt from 75 or 50% of their frames (first, middle, last); trained models do not change."""
    windows = _estimate_windows(context)
    rows = stack_arms({a: _score_windows(context, a, windows) for a in arms}, context.trained_results)
    change = 100 * rows.groupby(["arm", "share", "fold"], sort=False)["change"].mean()  # over windows and seeds
    means = change.groupby(["arm", "share"], sort=False).mean().unstack("share").drop(columns=100.0)
    reference, text = choose_reference(arms), []
    for share in means.columns:
        changes = ", ".join(f"{display_name(str(name))} {format_signed(value)}" for name, value in means[share].items())
        text.append(f"Change in mean AUC with {share:g}% of the frames, in points: {changes}.")
        if len(means) > 1:
            differences = _list_differences(change, share, reference)
            text.append(f"Change minus that of {display_name(reference)}, in points: {differences}.")
    summary = means.rename(columns=lambda share: f"change at {share:g}%").join(collect_facts(rows)).reset_index()
    return Finding(rows, summary, text, lambda: _draw_lengths(change))


def _estimate_windows(context: StudyContext) -> dict[tuple[float, str], Connectomes]:
    """Estimate connectomes from each window of the scans, by its share and placement; whole scans come first."""
    from ..diagnostics import PLACEMENTS, estimate_window_connectomes

    whole = context.connectomes
    windows = {window: estimate_window_connectomes(whole, *window) for window in product(SHARES, PLACEMENTS)}
    return {(1.0, "all"): whole} | windows


def _score_windows(context: StudyContext, arm: Arm, windows: dict[tuple[float, str], Connectomes]) -> pd.DataFrame:
    """Score every run of an arm on its test scans, whole and in each window: one row per run and window."""
    method, fitted_runs = context.load_fitted_runs(arm)
    rows = []
    for fitted in fitted_runs:
        fold = fitted.run.fold
        for (share, window), connectomes in windows.items():
            margins = method.predict_margins(fitted, connectomes, fold.test)
            first, averaged = average_margins(context.cohort, fold.test, margins)
            row = {"fold": fold.name, "seed": fitted.run.seed, "share": 100 * share, "window": window}
            rows.append(row | {"auc": auc(context.cohort.labels[first], averaged)})
    table = pd.DataFrame(rows)
    whole = table.groupby(["fold", "seed"])["auc"].transform("first")
    return table.assign(change=table["auc"] - whole)


def _draw_lengths(change: pd.Series) -> Any:
    figure = _draw_shares(change, (6.8, 3.6), -25.0, "frames kept per test scan, %", "change in AUC, points")
    (axis,) = figure.axes
    axis.invert_xaxis()
    axis.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    return figure
