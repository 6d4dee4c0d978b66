"""Where the factors that qualify lie in the brain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..diagnostics import gather_factor_evidence, global_qualification, roi_profile
from ..drawing import make_panels
from .arms import Arm, arm
from .context import StudyContext
from .study import Finding, study

__all__ = ["regions"]

TOP, SHOWN = 5, 15
COLOURS = "viridis_r"


def _arms(context: StudyContext) -> list[Arm]:
    return [arm("brio")]


@study(
    "regions",
    "Regions of the factors that qualify",
    "on ABIDE the five regions with the highest scores are the left precuneus, right superior temporal gyrus, right "
    "posterior cingulate gyrus, left medial superior frontal gyrus and right fusiform gyrus.",
    _arms,
)
def regions(context: StudyContext) -> Finding:
    """ROI profile S_hat (appendix on interpretability), averaged over folds and seeds; 1/P is no emphasis at all."""
    method, fitted_runs = context.fitted_runs(arm("brio"))
    lengths = [context.block_length(o.run) for o in fitted_runs]
    evidence = gather_factor_evidence(method, fitted_runs, context.connectomes, lengths)
    S_hat = np.stack([roi_profile(global_qualification(e.qualification.alpha_bar), e.Pi_bar).numpy() for e in evidence])
    table = _profile(context, S_hat).assign(**context.trained_results(arm("brio")).facts)
    ordered = table.sort_values("S_hat", ascending=False).reset_index(drop=True)
    where = coordinates(context)
    text = [
        f"Highest mean scores: {', '.join(ordered['roi'][:TOP])}.",
        f"The highest is {ordered['times_1_over_P'][0]:.2f} times 1/P.",
        _come_back(S_hat, np.array([o.run.seed for o in fitted_runs])),
    ]
    text += _why_no_brain(context.cohort.atlas.name, where)
    return Finding(table, ordered[: SHOWN - 5], text, lambda: _draw(table, where))


def shared_regions(S_hat: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """Share of each run's highest regions that are also the highest in the mean over the runs of other seeds.

    All runs of a seed start from the same weights and share most of their scans, so what they have in common says
    nothing; against other seeds, ``TOP`` of P regions are expected by chance.

    Parameters
    ----------
    S_hat : ndarray, shape [runs, P]
    seed : ndarray, shape [runs]

    Returns
    -------
    ndarray, shape [runs]
        Not a number where all runs have the same seed.
    """
    out = np.full(len(S_hat), np.nan)
    for s in np.unique(seed) if len(np.unique(seed)) > 1 else ():
        top = np.argsort(-S_hat[seed != s].mean(0))[:TOP]
        own = np.argsort(-S_hat[seed == s], axis=1)[:, :TOP]
        out[seed == s] = np.isin(own, top).mean(1)
    return out


def _come_back(S_hat: np.ndarray, seed: np.ndarray) -> str:
    """Whether the regions are the same from seed to seed, in a sentence."""
    shares = 100 * shared_regions(S_hat, seed)
    if np.isnan(shares).any():
        return (
            "Whether they come back cannot be judged from one seed, whose runs all start from the same weights; ask "
            "for more (--seeds 3)."
        )
    by_seed = [shares[seed == s].mean() for s in np.unique(seed)]
    return (
        f"A run shares {shares.mean():.0f} % of its {TOP} highest regions with those of the mean over other seeds "
        f"({min(by_seed):.0f} to {max(by_seed):.0f} % from seed to seed), where {100 * TOP / S_hat.shape[1]:.0f} % "
        "would be chance."
    )


def _profile(context: StudyContext, S_hat: np.ndarray) -> pd.DataFrame:
    names = context.cohort.atlas.rois["name"].tolist()
    mean, runs = S_hat.mean(0), len(S_hat)
    spread = S_hat.std(0, ddof=1) if runs > 1 else np.full(len(mean), np.nan)
    return pd.DataFrame({"roi": names, "S_hat": mean, "SD": spread, "times_1_over_P": mean * len(mean), "runs": runs})


def coordinates(context: StudyContext) -> np.ndarray | None:
    """Coordinates of the ROIs, where the atlas has them. Shape [P, 3]."""
    atlas = context.cohort.atlas
    if not atlas.has_coordinates:
        return None
    found = atlas.rois[["x", "y", "z"]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    return found if np.isfinite(found).all() else None


def _plotting() -> Any:
    """Where nilearn draws, or None where it is not installed."""
    try:
        from nilearn import plotting
    except ImportError:
        return None
    return plotting


def _why_no_brain(atlas: str, where: np.ndarray | None) -> list[str]:
    """Why the figure has no brain and what to do, where it has none."""
    if where is None:
        return [
            f"No brain is drawn: atlas '{atlas}' has no coordinates for all its ROIs. Cohorts imported with --atlas "
            "aal116 or cc200 have them, or made with an atlas that has columns x, y and z; table.csv has every score."
        ]
    if _plotting() is None:
        return [
            "No brain is drawn: nilearn is not installed here. Install it (pip install nilearn) and give the same "
            "command again; finished runs are not trained again."
        ]
    return []


def _draw(table: pd.DataFrame, where: np.ndarray | None) -> Any:
    """The highest regions and, where coordinates and nilearn are there, the same ones in a brain in their colours."""
    brain = None if where is None else _plotting()
    figure, axes = make_panels(1 if brain is None else 2, 5.4 if brain is None else 10.4, 4.2)
    top = table.sort_values("S_hat")[-SHOWN:]
    y, score = np.arange(len(top)), top["times_1_over_P"].to_numpy()
    axes[0].errorbar(score, y, xerr=top["SD"] * len(table), fmt="none", ecolor="0.6", capsize=2)
    axes[0].scatter(score, y, c=score, cmap=COLOURS, s=40, zorder=3)
    axes[0].axvline(1, color="0.6", linewidth=0.8, linestyle=(0, (4, 3)))
    axes[0].set_yticks(y, top["roi"], fontsize=8)
    axes[0].set_xlabel("score relative to 1/P (mean, SD over runs)", fontsize=9)
    if brain is not None and where is not None:
        figure.draw_without_rendering()  # nilearn fills the panel as it is now, so the layout must be settled
        figure.set_layout_engine("none")
        words = {"node_size": 60, "node_cmap": COLOURS, "display_mode": "xz", "colorbar": False, "alpha": 1.0}
        brain.plot_markers(score, where[top.index], axes=axes[1], **words)
    return figure
