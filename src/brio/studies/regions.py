"""Where in the brain the qualified factors lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..drawing import import_brain_plots, make_panels, show_names_as_text
from .context import Arm, StudyContext, make_arm
from .study import Finding, register_study

TOP, TABULATED, DRAWN = 5, 10, 15
"""Numbers of regions in the text, the small table and the figure."""

COLOURS = "viridis_r"


def _list_arms(context: StudyContext) -> list[Arm]:
    return [make_arm("brio")]


@register_study(
    "regions",
    "Regions of the qualified factors",
    "On ABIDE, the five regions with the highest scores are the left precuneus, right superior temporal gyrus, right "
    "posterior cingulate gyrus, left medial superior frontal gyrus and right fusiform gyrus.",
    _list_arms,
)
def rank_regions(context: StudyContext) -> Finding:
    """Rank regions by the profile S_hat of the qualified factors (appendix), averaged over folds and seeds.

    Without emphasis on any region, each of P regions has a score of 1/P.
    """
    from ..diagnostics import gather_factor_evidence, global_qualification, roi_profile

    method, fitted_runs = context.load_fitted_runs(make_arm("brio"))
    lengths = [context.estimate_block_length(fitted.run) for fitted in fitted_runs]
    evidence = gather_factor_evidence(method, fitted_runs, context.connectomes, lengths)
    S_hat = np.stack([roi_profile(global_qualification(e.qualification.alpha_bar), e.Pi_bar).numpy() for e in evidence])
    table = _tabulate_profiles(context, S_hat).assign(**context.trained_results(make_arm("brio")).facts)
    ordered = table.sort_values("S_hat", ascending=False).reset_index(drop=True)
    coordinates = read_coordinates(context)
    text = [
        f"Highest mean scores: {', '.join(ordered['roi'][:TOP])}.",
        f"The highest score is {ordered['times_1_over_P'][0]:.2f} times 1/P, the score of a region without emphasis.",
        _describe_repeatability(S_hat, np.array([fitted.run.seed for fitted in fitted_runs])),
    ]
    headers = {"roi": "region", "times_1_over_P": "times 1/P"}
    shown = ordered[:TABULATED].rename(columns=headers)
    text += _explain_missing_brain(context.cohort.atlas.name, coordinates)
    return Finding(table, shown, text, lambda: _draw(table, coordinates))


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
    """Say whether the highest regions are the same from seed to seed."""
    shares = 100 * measure_shared_regions(S_hat, seed)
    if np.isnan(shares).any():
        return (
            "One seed cannot show whether these regions are repeatable: all its runs start from the same weights. Use "
            "more seeds (--seeds 3)."
        )
    by_seed = [shares[seed == s].mean() for s in np.unique(seed)]
    return (
        f"Of the {TOP} highest regions of a run, {shares.mean():.0f} % are among the {TOP} highest of the mean over "
        f"other seeds ({min(by_seed):.0f} to {max(by_seed):.0f} %, depending on the seed). "
        f"{100 * TOP / S_hat.shape[1]:.0f} % are expected by chance."
    )


def _tabulate_profiles(context: StudyContext, S_hat: np.ndarray) -> pd.DataFrame:
    names = context.cohort.atlas.rois["name"].tolist()
    mean, runs = S_hat.mean(0), len(S_hat)
    spread = S_hat.std(0, ddof=1) if runs > 1 else np.full(len(mean), np.nan)
    return pd.DataFrame({"roi": names, "S_hat": mean, "SD": spread, "times_1_over_P": mean * len(mean), "runs": runs})


def read_coordinates(context: StudyContext) -> np.ndarray | None:
    """Return the coordinates of all ROIs, shape [P, 3]; None if one is missing."""
    atlas = context.cohort.atlas
    if not atlas.has_coordinates:
        return None
    xyz = atlas.rois[["x", "y", "z"]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    return xyz if np.isfinite(xyz).all() else None


def _explain_missing_brain(atlas: str, coordinates: np.ndarray | None) -> list[str]:
    """Say why the figure has no brain and what to do; nothing if it has one."""
    if coordinates is None:
        return [
            f"No brain is drawn: atlas '{atlas}' lacks coordinates of some ROIs. 'brio atlas COHORT TABLE --out "
            "COHORT2' adds them, as --atlas-table does at the import. All scores are in table.csv."
        ]
    if import_brain_plots() is None:
        return [
            "No brain is drawn: nilearn is not installed. Install it (pip install nilearn) and repeat the command. "
            "Finished runs are not trained again."
        ]
    return []


def _draw(table: pd.DataFrame, coordinates: np.ndarray | None) -> Any:
    """Draw the highest regions and, with coordinates and nilearn, the same regions in a brain in the same colours."""
    brain = None if coordinates is None else import_brain_plots()
    figure, axes = make_panels(1 if brain is None else 2, 5.4 if brain is None else 10.4, 4.2)
    top = table.sort_values("S_hat")[-DRAWN:]
    y, score = np.arange(len(top)), top["times_1_over_P"].to_numpy()
    axes[0].errorbar(score, y, xerr=top["SD"] * len(table), fmt="none", ecolor="0.6", capsize=2)
    axes[0].scatter(score, y, c=score, cmap=COLOURS, s=40, zorder=3)
    axes[0].axvline(1, color="0.6", linewidth=0.8, linestyle=(0, (4, 3)))
    axes[0].set_yticks(y, top["roi"], fontsize=8)
    axes[0].set_xlabel("score relative to 1/P (mean, SD over runs)", fontsize=9)
    if brain is not None and coordinates is not None:
        show_names_as_text(figure)
        figure.draw_without_rendering()  # nilearn fills the panel as it is now, so the layout must be final
        figure.set_layout_engine("none")
        options = {"node_size": 60, "node_cmap": COLOURS, "display_mode": "xz", "colorbar": False, "alpha": 1.0}
        brain.plot_markers(score, coordinates[top.index], axes=axes[1], **options)
    return figure
