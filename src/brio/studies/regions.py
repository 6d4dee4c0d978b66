"""Where the factors that qualify lie in the brain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..diagnostics import factor_evidence, global_qualification, roi_profile
from ..drawing import panels, style
from .arms import Arm, arm
from .bench import Bench
from .study import Finding, study

__all__ = ["regions"]

TOP, SHOWN = 5, 15


def _arms(bench: Bench) -> list[Arm]:
    return [arm("brio")]


@study(
    "regions",
    "Regions of the factors that qualify",
    "on ABIDE the five regions with the highest scores are the left precuneus, right superior temporal gyrus, right "
    "posterior cingulate gyrus, left medial superior frontal gyrus and right fusiform gyrus.",
    _arms,
)
def regions(bench: Bench) -> Finding:
    """ROI profile S_hat (appendix on interpretability), averaged over folds and seeds; 1/P is no emphasis at all."""
    method, outcomes = bench.fitted(arm("brio"))
    lengths = [bench.block_length(o.run) for o in outcomes]
    evidence = factor_evidence(method, outcomes, bench.graphs, lengths)
    S_hat = np.stack([roi_profile(global_qualification(e.qualification.alpha_bar), e.Pi_bar).numpy() for e in evidence])
    facts = bench.trained(arm("brio")).facts
    table = _profile(bench, S_hat).assign(**facts)
    names = list(table.sort_values("S_hat", ascending=False)["roi"][:TOP])
    P = S_hat.shape[1]
    ratio = table["S_hat"].max() * P
    agree = np.mean([len(set(np.argsort(-row)[:TOP]) & set(np.argsort(-S_hat.mean(0))[:TOP])) / TOP for row in S_hat])
    text = [
        f"Highest mean scores: {', '.join(names)}.",
        f"The highest is {ratio:.2f} times 1/P; a single run shares {100 * agree:.0f} % of these {TOP} regions on "
        f"average, where {100 * TOP / P:.0f} % would be chance.",
    ]
    if coordinates(bench) is None:
        text.append("The atlas has no coordinates, so no brain is drawn.")
    summary = table.sort_values("S_hat", ascending=False)[: SHOWN - 5].reset_index(drop=True)
    return Finding(table, summary, text, lambda: _draw(bench, table))


def _profile(bench: Bench, S_hat: np.ndarray) -> pd.DataFrame:
    names = bench.cohort.atlas.rois["name"].tolist()
    mean, runs = S_hat.mean(0), len(S_hat)
    spread = S_hat.std(0, ddof=1) if runs > 1 else np.full(len(mean), np.nan)
    return pd.DataFrame({"roi": names, "S_hat": mean, "SD": spread, "times_1_over_P": mean * len(mean), "runs": runs})


def coordinates(bench: Bench) -> np.ndarray | None:
    """Coordinates of the ROIs, where the atlas has them. Shape [P, 3]."""
    atlas = bench.cohort.atlas
    if not atlas.has_coordinates:
        return None
    found = atlas.rois[["x", "y", "z"]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    return found if np.isfinite(found).all() else None


def _draw(bench: Bench, table: pd.DataFrame) -> Any:
    where = coordinates(bench)
    try:
        from nilearn import plotting
    except ImportError:
        where = None
    figure, axes = panels(1 if where is None else 2, 5.4 if where is None else 9.6, 4.2)
    top = table.sort_values("S_hat")[-SHOWN:]
    y = np.arange(len(top))
    axes[0].errorbar(top["times_1_over_P"], y, xerr=top["SD"] * len(table), fmt="o", color=style(0)["color"], capsize=2)
    axes[0].axvline(1, color="0.6", linewidth=0.8, linestyle=(0, (4, 3)))
    axes[0].set_yticks(y, top["roi"], fontsize=8)
    axes[0].set_xlabel("score, times 1/P (SD over runs)", fontsize=9)
    if where is not None:
        strong = table["S_hat"].to_numpy() >= top["S_hat"].min()
        plotting.plot_markers(
            table["times_1_over_P"].to_numpy()[strong],
            where[strong],
            node_size=40,
            node_cmap="viridis",
            axes=axes[1],
            display_mode="xz",
        )
    return figure
