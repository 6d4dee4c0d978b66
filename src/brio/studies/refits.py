"""Methods with other training data: labels permuted within sites, fewer sites, fewer participants."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from .. import draws
from ..cohort import Cohort
from ..cohort.scans import index_participants
from ..console import Progress, report_part, silent
from ..device import memory_budget
from ..drawing import ABOVE, DASHED, draw_intervals, horizontal_offset, label_axis, make_panels, series_style
from ..formatting import bracket_interval, format_signed, state_p
from ..jobs import Job
from ..jobs.plan import build_plan
from ..jobs.run import execute_plan
from ..protocol import Fold, auc, average_margins, count_participants
from ..protocol.metrics import score_columns, weigh_by_pairs
from ..results import MEAN_OVER_SITES, PAIR_WEIGHTED, average_seeds
from .context import Arm, StudyContext, display_method
from .study import Finding, register_study
from .summaries import average_sites, count_site_pairs, move_first, stack_arms

if TYPE_CHECKING:
    from ..connectome import Connectomes
    from ..methods.linear.ridge import KernelRidgeMethod
    from ..training import Method, Run


def _list_runs(context: StudyContext, arm: Arm) -> tuple[Method, list[Run]]:
    """List the runs of an arm, and its method, whose settings do not differ between folds."""
    planned_runs = list(build_plan(context.job_of(arm), [arm.method]).runs.values())
    return planned_runs[0].method, [planned.run for planned in planned_runs]


PERMUTATIONS_IN_CLOSED_FORM = 1_000
"""Permutations for a method that fits many columns of labels at once."""

PERMUTATIONS = 100
"""Permutations for any other method, which is trained again for each."""

_ESTIMANDS = {"auc": MEAN_OVER_SITES, "pair_weighted_auc": PAIR_WEIGHTED}


def permute_labels(cohort: Cohort, count: int) -> np.ndarray:
    """Permute the labels of participants within each site, so that sites keep their numbers of patients.

    Shapes: returns [N, B].
    """
    permutation = np.arange(count)[None, :]
    order = draws.draw_uniform("label permutation", permutation, draws.addresses(cohort.participant_ids)[:, None])
    first, member = index_participants(cohort.participant_ids)  # all scans of a participant have one label
    permuted = np.empty((len(cohort), count), dtype=np.int64)
    for site in np.unique(cohort.sites):
        members = first[cohort.sites[first] == site]
        permuted[members] = cohort.labels[members][np.argsort(order[members], axis=0, kind="stable")]
    return permuted[first][member]


def relabel_cohort(cohort: Cohort, labels: np.ndarray) -> Cohort:
    """Return the same scans with other labels, under a fingerprint of their own.

    Shapes: labels [N].
    """
    digest = hashlib.sha256(cohort.fingerprint.encode() + b"labels" + np.asarray(labels, dtype=np.int8).tobytes())
    participants = cohort.participants.assign(label=labels)
    return replace(cohort, participants=participants, fingerprint=digest.hexdigest(), path=None)


def compute_p(observed: float, permuted: np.ndarray) -> float:
    """Compute the p value of a permutation test, (1 + number of permutations as high) / (1 + number of permutations).

    Shapes: permuted [B].
    """
    # a mean of the same values in another order may differ in its last bits
    return float((1 + (permuted >= observed - 1e-12).sum()) / (1 + len(permuted)))


@register_study("permutation")
def compare_with_permutations(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare the AUC of a method (default: ridge) with that of the whole pipeline on labels permuted within sites."""
    scores = {a: _permute_arm(context, a) for a in arms}
    table = stack_arms(scores, context.results_of)
    summary = pd.DataFrame([_summarise_permutations(a, rows, m) for a, rows in scores.items() for m in _ESTIMANDS])
    text = [
        f"{row['method']}, {row['estimand']}: AUC {row['AUC']:.1f}% ({state_p(row['p'])}, one-sided; "
        f"{row['permutations']:,} permutations: mean {row['permuted mean']:.1f}, SD {row['permuted SD']:.1f}, "
        f"largest {row['permuted largest']:.1f})."
        for _, row in summary.iterrows()
    ]
    text.append(
        "Labels were permuted within sites, with the same permutations for every fold and seed. Every step that uses "
        "labels was repeated, including the choice of the penalty or checkpoint."
    )
    return Finding(table, summary, text, lambda: _draw_permutations(scores, summary), digits=6)


def _permute_arm(context: StudyContext, arm: Arm) -> pd.DataFrame:
    """Both estimands with the true labels (permutation 0) and each permutation (from 1): one row per permutation."""
    from ..methods.linear.ridge import KernelRidgeMethod

    observed = average_seeds(context.results_of(arm).rows)[arm.method]
    method, runs = _list_runs(context, arm)
    if isinstance(method, KernelRidgeMethod):
        labels = permute_labels(context.cohort, PERMUTATIONS_IN_CLOSED_FORM)
        permuted = score_label_columns(method, context.connectomes, runs, labels, context.progress)
    else:
        permuted = _run_permuted_cohorts(context, arm)
    by_site = np.column_stack([observed, permuted.loc[observed.index]]).astype(float)
    columns = {"permutation": np.arange(by_site.shape[1]), "auc": np.nanmean(by_site, axis=0)}
    weighted = weigh_by_pairs(by_site, count_site_pairs(context, list(observed.index)))
    return pd.DataFrame(columns | {"pair_weighted_auc": weighted})


def score_label_columns(
    method: KernelRidgeMethod,
    connectomes: Connectomes,
    runs: Sequence[Run],
    labels: np.ndarray,
    progress: Progress = silent,
) -> pd.DataFrame:
    """Fit many columns of labels on one factorisation per fold, and score each against its own labels.

    Shapes: labels [N, B].
    """
    by_fold: dict[str, list[np.ndarray]] = {}
    for run, margins in zip(runs, method.fit_labels(connectomes, runs, labels, progress), strict=True):
        test, averaged = average_margins(connectomes.cohort, run.fold.test, margins)
        by_fold.setdefault(run.fold.name, []).append(score_columns(labels[test], averaged))
    return pd.DataFrame({name: np.mean(columns, axis=0) for name, columns in by_fold.items()}).T


def _run_permuted_cohorts(context: StudyContext, arm: Arm) -> pd.DataFrame:
    """AUC of every permutation at each test site, seeds averaged, from an ordinary job for each. [site x B].

    The jobs are stored beside the arms, so that an interrupted study is resumed.
    """
    labels = permute_labels(context.cohort, PERMUTATIONS)
    columns = []
    for number, column in enumerate(labels.T, 1):
        part, title = 1 / PERMUTATIONS, f"permutation {number} of {PERMUTATIONS}, "
        progress = report_part(context.progress, (number - 1) * part, part, title)
        job = _relabel_job(context.job_of(arm, progress), column)
        folder = context.out / "arms" / "permuted" / arm.name / f"{number:03d}"
        rows = execute_plan(job, build_plan(job, [arm.method]), folder, quiet=True).rows
        columns.append(average_seeds(rows)[arm.method])
    return pd.concat(columns, axis=1)


def _relabel_job(job: Job, labels: np.ndarray) -> Job:
    """The same job on other labels; it stores no weights."""
    connectomes = copy.copy(job.connectomes)  # shares all tensors
    connectomes.cohort = relabel_cohort(job.cohort, labels)
    relabelled = replace(job, cohort=connectomes.cohort, estimate=lambda: connectomes)
    return relabelled.with_spec(records_only=True, engine=None)  # no folder has this cohort, so no worker can read it


def _summarise_permutations(arm: Arm, scores: pd.DataFrame, column: str) -> dict[str, Any]:
    observed, permuted = 100 * scores[column].iloc[0], 100 * scores[column].iloc[1:].to_numpy()
    return {
        "method": display_method(arm.method),
        "estimand": _ESTIMANDS[column],
        "AUC": observed,
        "permuted mean": permuted.mean(),
        "permuted SD": permuted.std(ddof=1),
        "permuted 95th percentile": np.quantile(permuted, 0.95),
        "permuted largest": permuted.max(),
        "permutations": len(permuted),
        "p": compute_p(observed, permuted),
    }


def _draw_permutations(scores: dict[Arm, pd.DataFrame], summary: pd.DataFrame) -> Any:
    figure, axes = make_panels(2, 8.4, 3.4, sharey=True, sharex=True)
    every = 100 * pd.concat(list(scores.values()))[list(_ESTIMANDS)].to_numpy()
    bins = np.arange(np.floor(every.min()), np.ceil(every.max()) + 1)  # a point each
    for axis, (column, estimand) in zip(axes, _ESTIMANDS.items(), strict=True):
        p = summary[summary["estimand"] == estimand]["p"].tolist()
        for k, (a, rows) in enumerate(scores.items()):
            values, colour = 100 * rows[column].to_numpy(), series_style(k)["color"]
            share = np.full(len(values) - 1, 100 / (len(values) - 1))
            axis.hist(values[1:], bins, weights=share, color=colour, alpha=0.2)
            axis.hist(values[1:], bins, weights=share, color=colour, histtype="step")
            name = display_method(a.name)
            axis.axvline(values[0], color=colour, linewidth=1.6, label=f"{name}, {values[0]:.1f}% ({state_p(p[k])})")
        axis.axvline(50, **DASHED)
        label_axis(axis, f"AUC, {estimand}, %", legend=ABOVE | {"borderaxespad": 0.2})
    axes[0].set_ylabel("share of permutations, %", fontsize=9)
    return figure


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


@register_study("learning-curve")
def draw_learning_curves(context: StudyContext, arms: list[Arm]) -> Finding:
    """Train on random subsets of source sites and of their participants (default: ridge); test sites do not change."""
    table = stack_arms({a: _score_subsets(context, a) for a in arms}, context.results_of)
    parts = [_summarise_curves(context, rows) for _, rows in table.groupby("arm", sort=False)]
    summary = pd.concat(parts, ignore_index=True)
    text = [sentence for own in parts for sentence in _describe_gains(own, len(arms) > 1)]
    text.append(
        f"For each size, test site and seed, {DRAWS} random subsets are drawn. All intervals are 95% intervals over "
        "test sites. Subsets of participants approximately keep the shares of sites and classes."
    )
    table["size"] = ["all" if np.isinf(size) else f"{size:g}" for size in table["size"]]
    shown = summary.assign(arm=summary["arm"].map(display_method)).drop(columns="size")
    return Finding(table, shown, text, lambda: _draw_curves(summary), digits=6)


def _score_subsets(context: StudyContext, arm: Arm) -> pd.DataFrame:
    """One row per run: its place on the curve, the scans it learned from, and its AUC on the test site."""
    (method, runs), cohort = _list_runs(context, arm), context.cohort
    subsets = [subset for run in runs for subset in _list_subsets(run, cohort)]
    scored = []
    for subset, margin in _fit_subsets(context, method, subsets):
        test, averaged = average_margins(cohort, subset.run.fold.test, margin)
        scored.append((subset, auc(cohort.labels[test], averaged)))
    full = context.results_of(arm).rows.set_index(["fold", "seed"])["auc"]
    scored += [(_Subset(axis, np.inf, 0, run), full[run.fold.name, run.seed]) for run in runs for axis in _AXES]
    rows = []
    for (axis, size, draw, run), score in scored:
        row = {"axis": axis, "size": size, "draw": draw, "fold": run.fold.name, "seed": run.seed}
        row["source_sites"] = len(np.unique(cohort.sites[run.fold.source]))
        row["source_participants"] = count_participants(cohort, run.fold.source)
        rows.append(row | {"auc": score})
    return pd.DataFrame(rows)


def _list_subsets(run: Run, cohort: Cohort) -> Iterator[_Subset]:
    """All subsets of the source scans of a run, smaller ones first."""
    from ..training import Run

    n_sites = len(np.unique(cohort.sites[run.fold.source]))
    counts: list[tuple[str, Callable[..., Fold], float]]
    counts = [("sites", keep_sites, count) for count in SITE_COUNTS if count < n_sites]
    shares = [("participants", keep_participants, share) for share in SHARES]
    for draw in range(DRAWS):
        for axis, keep, size in (*counts, *shares):
            yield _Subset(axis, size, draw, Run(keep(run.fold, cohort, size, run.seed, draw), run.seed))


def _fit_subsets(context: StudyContext, method: Method, subsets: list[_Subset]) -> Iterator[tuple[_Subset, np.ndarray]]:
    """Fit all subsets, as many in a stack as memory allows, and yield the margins of their test scans."""
    from ..methods.linear.ridge import KernelRidgeMethod

    connectomes = context.connectomes
    need = max((method.bytes_per_run(connectomes, subset.run) for subset in subsets), default=0)
    size = context.job.spec.runs_per_stack or min(100, max(1, memory_budget(connectomes.device) // max(1, need)))
    for start in range(0, len(subsets), size):
        stack = subsets[start : start + size]
        runs = [subset.run for subset in stack]
        shares = start / len(subsets), len(stack) / len(subsets)
        report = report_part(context.progress, *shares, f"{method.name}, subsets: ")
        if isinstance(method, KernelRidgeMethod):  # the same margins without fitting the inner folds
            columns = method.fit_labels(connectomes, runs, context.cohort.labels[:, None], report)
            yield from zip(stack, (margins[:, 0] for margins in columns), strict=True)
            continue
        for subset, fitted in zip(stack, method.fit(connectomes, runs, report), strict=True):
            fitted.require_finite(method.name)
            yield subset, fitted.test_logit


def _summarise_curves(context: StudyContext, rows: pd.DataFrame) -> pd.DataFrame:
    """One row per point of the curves, in percent; differences are to all source scans.

    Where cells are small, a larger share may keep no more participants, which are then the same: one point.
    """
    summary = []
    for axis, label in _AXES.items():
        own = rows[rows["axis"] == axis]
        by_site = 100 * own.groupby(["size", "fold"])["auc"].mean()  # draws and seeds averaged
        gaps = by_site.sub(by_site.loc[np.inf], level="fold").drop(index=np.inf)
        points = average_sites(pd.DataFrame({"AUC": by_site, "difference": gaps}))
        points[["AUC low", "AUC high"]] = points[["AUC low", "AUC high"]].clip(0.0, 100.0)
        scores = by_site.unstack("fold")
        weighted = weigh_by_pairs(scores.to_numpy().T, count_site_pairs(context, list(scores)))
        counts = own.groupby("size")[["source_sites", "source_participants"]].mean().set_axis(_AXES.values(), axis=1)
        points = counts.join(points).assign(**{"pair-weighted AUC": weighted, "runs": own.groupby("size").size()})
        summary.append(points.reset_index().assign(arm=rows["arm"].iloc[0], against=label))
    names = {"AUC low": "low", "AUC high": "high", "difference": "minus all"}
    table = move_first(pd.concat(summary, ignore_index=True), "arm", "against").rename(columns=names)
    return table.drop_duplicates(["against", "source participants"], keep="last")


def _describe_gains(summary: pd.DataFrame, several: bool) -> list[str]:
    """Describe the gain from all source scans over the fewest and the second most of each curve, one sentence each."""
    sentences = []
    name = f" of {display_method(str(summary['arm'].iloc[0]))}" if several else ""
    for label in _AXES.values():
        own = summary[summary["against"] == label]
        if len(own) < 2:
            continue
        most = own.iloc[-1]
        gains = [
            f"{format_signed(-row['minus all'])} points"
            f"{bracket_interval(-row[['difference high', 'difference low']], format_signed, whole=100)} "
            f"compared with {row[label]:.0f} {label}"
            for _, row in own.iloc[[0, -2] if len(own) > 2 else [0]].iterrows()
        ]
        sentences.append(
            f"With all source scans (on average {most[label]:.0f} {label}), the mean AUC{name} is {most['AUC']:.1f}%: "
            f"{' and '.join(gains)}."
        )
    return sentences


def _draw_curves(summary: pd.DataFrame) -> Any:
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
        x = f"{label}, mean over test sites" if label == _AXES["participants"] else label
        label_axis(axis, x, grid="y", xlim=(0, 1.05 * sizes.max()))
        axis.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axis.yaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("AUC at the test site, %\n(95% interval over sites)", fontsize=9)
    axes[1].legend(fontsize=8, frameon=False, loc="lower right")
    return figure
