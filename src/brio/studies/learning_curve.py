"""How the AUC at a new site grows with the number of source sites, and of participants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from .. import draws
from ..cohort import Cohort
from ..cohort.scans import index_participants
from ..device import memory_budget
from ..drawing import horizontal_offset, make_panels, series_style
from ..formatting import format_interval, format_signed
from ..jobs.plan import build_plan
from ..protocol import Fold, auc, average_margins, count_participants, t_interval
from ..protocol.metrics import weigh_by_pairs
from ..results import MEAN_OVER_SITES, PAIR_WEIGHTED
from .context import Arm, StudyContext, display_method
from .study import Finding, register_study
from .summaries import count_site_pairs, draw_intervals, label_axis

if TYPE_CHECKING:
    from ..training import Method, Run

SITE_COUNTS = (3, 5, 8, 12)
"""Numbers of source sites, besides all of them."""

SHARES = (0.125, 0.25, 0.5, 0.75)
"""Shares of the participants of each source site and class, besides all of them."""

DRAWS = 2
"""Random subsets of each size, for every fold and seed."""

_AXES = {"sites": "source sites", "participants": "source participants"}


def keep_sites(fold: Fold, cohort: Cohort, count: int, seed: int, draw: int) -> Fold:
    """Keep some of the source sites of a fold. Subsets of one draw are nested."""
    site = cohort.sites[fold.source]
    names = np.unique(site)
    order = draws.draw_uniform(seed, "learning curve, sites", draws.address(fold.name), draw, draws.addresses(names))
    kept = names[np.argsort(order, kind="stable")[:count]]
    return replace(fold, source=fold.source[np.isin(site, kept)])


def keep_participants(fold: Fold, cohort: Cohort, share: float, seed: int, draw: int) -> Fold:
    """Keep a share of the source participants of each site and class, at least one. Subsets of one draw are nested."""
    site, label = cohort.sites[fold.source], cohort.labels[fold.source]
    participants = cohort.participant_ids[fold.source]
    first, member = index_participants(participants)
    ids = draws.addresses(participants[first])
    order = draws.draw_uniform(seed, "learning curve, participants", draws.address(fold.name), draw, ids)
    table = pd.DataFrame({"site": site[first], "label": label[first], "order": order})
    cell = table.groupby(["site", "label"])["order"]
    kept = cell.rank(method="first") <= np.maximum(1, (share * cell.transform("size")).round())
    return replace(fold, source=fold.source[kept.to_numpy()[member]])


class _Subset(NamedTuple):
    """A fold with fewer source scans, and where it lies on the curves."""

    axis: str
    size: float
    draw: int
    run: Run


@register_study("learning-curve", "Learning curves: source sites and participants", "It has no learning curve.")
def draw_learning_curves(context: StudyContext, arms: list[Arm]) -> Finding:
    """Train on random subsets of source sites, and of their participants (default ridge); test sites stay whole."""
    parts = [_score_arm(context, a) for a in arms]
    table = pd.concat(parts, ignore_index=True)
    table["size"] = ["all" if np.isinf(size) else f"{size:g}" for size in table["size"]]
    summary = pd.concat([_summarise_arm(context, rows) for rows in parts], ignore_index=True)
    text = [sentence for a in arms for sentence in _describe(summary[summary["arm"] == a.name], len(arms) > 1)]
    text.append(
        f"Each point is the mean over {DRAWS} random subsets for every test site and seed; its interval is over test "
        "sites. Subsets of participants keep the shares of sites and classes."
    )
    shown = summary.assign(arm=summary["arm"].map(display_method)).drop(columns="size")
    return Finding(table, shown, text, lambda: _draw(summary), digits=6)


def _score_arm(context: StudyContext, arm: Arm) -> pd.DataFrame:
    """One row per run: its place on the curve, the scans it learned from, and its AUC on the test site."""
    planned_runs = list(build_plan(context.job_of(arm), [arm.method]).runs.values())
    method, cohort, facts = planned_runs[0].method, context.cohort, context.results_of(arm).facts
    subsets = [subset for planned in planned_runs for subset in _list_subsets(planned.run, cohort)]
    scored = []
    for subset, margin in _fit_subsets(context, method, subsets):
        test, averaged = average_margins(cohort, subset.run.fold.test, margin)
        scored.append((subset, auc(cohort.labels[test], averaged)))
    full = context.results_of(arm).rows.set_index(["fold", "seed"])["auc"]
    for run in (planned.run for planned in planned_runs):
        scored += [(_Subset(axis, np.inf, 0, run), full[run.fold.name, run.seed]) for axis in _AXES]
    rows = []
    for (axis, size, draw, run), score in scored:
        row = {"arm": arm.name, "axis": axis, "size": size, "draw": draw, "fold": run.fold.name, "seed": run.seed}
        row["source_sites"] = len(np.unique(cohort.sites[run.fold.source]))
        row["source_participants"] = count_participants(cohort, run.fold.source)
        rows.append(row | {"auc": score})
    return pd.DataFrame(rows).assign(**facts).astype({"epochs": "Int64", "K": "Int64"})


def _list_subsets(run: Run, cohort: Cohort) -> Iterator[_Subset]:
    """All subsets of the source scans of a run, smaller ones first."""
    from ..training import Run

    n_sites = len(np.unique(cohort.sites[run.fold.source]))
    for draw in range(DRAWS):
        for count in SITE_COUNTS:
            if count < n_sites:
                fold = keep_sites(run.fold, cohort, count, run.seed, draw)
                yield _Subset("sites", count, draw, Run(fold, run.seed))
        for share in SHARES:
            fold = keep_participants(run.fold, cohort, share, run.seed, draw)
            yield _Subset("participants", share, draw, Run(fold, run.seed))


def _fit_subsets(context: StudyContext, method: Method, subsets: list[_Subset]) -> Iterator[tuple[_Subset, np.ndarray]]:
    """Fit all subsets, as many in a stack as memory allows, and yield the margins of their test scans."""
    from ..methods.linear.ridge import KernelRidgeMethod

    connectomes = context.connectomes
    need = max((method.bytes_per_run(connectomes, subset.run) for subset in subsets), default=0)
    size = context.job.spec.runs_per_stack or min(100, max(1, memory_budget(connectomes.device) // max(1, need)))
    for start in range(0, len(subsets), size):
        stack = subsets[start : start + size]
        runs = [subset.run for subset in stack]

        def report(message: str, share: float, start: int = start, n: int = len(stack)) -> None:
            context.progress(f"{method.name}, subsets: {message}", (start + share * n) / len(subsets))

        if isinstance(method, KernelRidgeMethod):  # the same margins without fitting the inner folds
            columns = method.fit_labels(connectomes, runs, context.cohort.labels[:, None], report)
            yield from zip(stack, (margins[:, 0] for margins in columns), strict=True)
            continue
        for subset, fitted in zip(stack, method.fit(connectomes, runs, report), strict=True):
            fitted.require_finite(method.name)
            yield subset, fitted.test_logit


def _summarise_arm(context: StudyContext, rows: pd.DataFrame) -> pd.DataFrame:
    """One row per point of the curves, in percent; differences are to all source scans.

    Where cells are small, a larger share may keep no more participants, which are then the same: one point.
    """
    summary = []
    for axis, label in _AXES.items():
        own = rows[rows["axis"] == axis]
        by_site = own.groupby(["size", "fold"])["auc"].mean().unstack("fold")  # draws and seeds averaged
        n_pairs = count_site_pairs(context, list(by_site.columns))
        for size, scores in by_site.iterrows():
            here = own[own["size"] == size]
            values, differences = 100 * scores.to_numpy(dtype=float), 100 * (scores - by_site.loc[np.inf])
            low, high = t_interval(values, limits=(0.0, 100.0))
            point = {
                "arm": rows["arm"].iloc[0],
                "against": label,
                "size": size,
                "source sites": float(here["source_sites"].mean()),
                "source participants": float(here["source_participants"].mean()),
                **{"AUC": float(np.nanmean(values)), "low": low, "high": high},
                "pair-weighted AUC": float(weigh_by_pairs(values, n_pairs)),
            }
            gaps = (np.nan,) * 3 if np.isinf(size) else (differences.mean(), *t_interval(differences.to_numpy()))
            point |= dict(zip(("minus all", "difference low", "difference high"), gaps, strict=True))
            summary.append(point | {"runs": len(here)})
    return pd.DataFrame(summary).drop_duplicates(["against", "source participants"], keep="last")


def _describe(summary: pd.DataFrame, several: bool) -> list[str]:
    """What all source scans are worth against the fewest and the second most of each curve, a sentence each."""
    sentences = []
    name = f" of {display_method(str(summary['arm'].iloc[0]))}" if several else ""
    for label in _AXES.values():
        own = summary[summary["against"] == label]
        if len(own) < 2:
            continue
        most = own.iloc[-1]
        gains = [
            f"{format_signed(-row['minus all'])} points against {row[label]:.0f} (95 % interval "
            f"{format_interval([-row['difference high'], -row['difference low']], format_signed)})"
            for _, row in own.iloc[[0, -2] if len(own) > 2 else [0]].iterrows()
        ]
        sentences.append(
            f"With all source scans (on average {most[label]:.0f} {label}), the mean AUC{name} is {most['AUC']:.1f} %: "
            f"{' and '.join(gains)} {label}."
        )
    return sentences


def _draw(summary: pd.DataFrame) -> Any:
    figure, axes = make_panels(2, 8.6, 3.7, sharey=True)
    arms = list(dict.fromkeys(summary["arm"]))
    for axis, label in zip(axes, _AXES.values(), strict=True):
        sizes = summary[(summary["arm"] == arms[0]) & (summary["against"] == label)][label]
        # both means of all arms stand side by side at a size, so that no bar runs through another marker
        offsets = [horizontal_offset(k, 2 * len(arms), sizes.max() / 5) for k in range(2 * len(arms))]
        for k, arm in enumerate(arms):
            own = summary[(summary["arm"] == arm) & (summary["against"] == label)]
            name, x = display_method(arm), own[label] + offsets[2 * k]
            line: dict[str, Any] = {"linewidth": 1.4, "label": f"{name}, {MEAN_OVER_SITES}"}
            draw_intervals(axis, x, own["AUC"], own["low"], own["high"], k, **line)
            dashed = {"linestyle": (0, (3, 2)), "linewidth": 1.2, "markerfacecolor": "white", "markersize": 5}
            dashed |= {"label": f"{name}, {PAIR_WEIGHTED}", **series_style(k)}
            axis.plot(own[label] + offsets[2 * k + 1], own["pair-weighted AUC"], **dashed)
        label_axis(axis, f"{label}, mean over test sites" if label == _AXES["participants"] else label, grid="y")
        axis.set_xlim(0, 1.05 * sizes.max())
        axis.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axis.yaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("AUC at the test site, %\n(95 % interval over sites)", fontsize=9)
    axes[1].legend(fontsize=8, frameon=False, loc="lower right")
    return figure
