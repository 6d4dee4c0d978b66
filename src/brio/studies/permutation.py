"""Whether the AUC of a method could be chance: the whole pipeline on labels permuted within sites."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .. import draws
from ..cohort import Cohort
from ..cohort.scans import index_participants
from ..console import Progress, silent
from ..drawing import make_panels, series_style
from ..formatting import state_p
from ..jobs import Job
from ..jobs.plan import build_plan
from ..jobs.run import execute_plan
from ..protocol import average_margins
from ..protocol.metrics import score_columns, weigh_by_pairs
from ..results import MEAN_OVER_SITES, PAIR_WEIGHTED, average_seeds
from .context import Arm, StudyContext, display_name
from .study import Finding, register_study
from .summaries import FACTS, count_site_pairs, label_axis

if TYPE_CHECKING:
    from ..connectome import Connectomes
    from ..methods.linear.ridge import KernelRidgeMethod
    from ..training import Run

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


@register_study("permutation", "Permutation test against chance", "It has no such test.")
def compare_with_permutations(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare the AUC of a method (default ridge) with that of the whole pipeline on labels permuted within sites."""
    scores = {a: _score_arm(context, a) for a in arms}
    summary = pd.DataFrame([_summarise(a, rows, column) for a, rows in scores.items() for column in _ESTIMANDS])
    parts = [rows.assign(arm=a.name, **context.results_of(a).facts) for a, rows in scores.items()]
    table = pd.concat(parts, ignore_index=True)[["arm", "permutation", *_ESTIMANDS, *FACTS]]
    text = [
        f"{row['method']}, {row['estimand']}: AUC {row['AUC']:.1f} % ({state_p(row['p'])}, one-sided; "
        f"{row['permutations']:,} permutations: mean {row['permuted mean']:.1f}, SD {row['permuted SD']:.1f}, "
        f"largest {row['permuted largest']:.1f})."
        for _, row in summary.iterrows()
    ]
    text.append(
        "Labels were permuted within sites, with the same permutation for every fold and seed. Every step that sees "
        "labels was repeated, the choice of the penalty or checkpoint included."
    )
    return Finding(table, summary, text, lambda: _draw(scores, summary), digits=6)


def _score_arm(context: StudyContext, arm: Arm) -> pd.DataFrame:
    """Both estimands with the true labels (permutation 0) and each permutation (from 1): one row per permutation."""
    from ..methods.linear.ridge import KernelRidgeMethod

    observed = average_seeds(context.results_of(arm).rows)[arm.method]
    planned_runs = list(build_plan(context.job_of(arm), [arm.method]).runs.values())
    method = planned_runs[0].method  # settings do not differ between the folds of an arm
    if isinstance(method, KernelRidgeMethod):
        labels = permute_labels(context.cohort, PERMUTATIONS_IN_CLOSED_FORM)
        runs = [planned.run for planned in planned_runs]
        permuted = score_label_columns(method, context.connectomes, runs, labels, context.progress)
    else:
        permuted = _run_permuted_cohorts(context, arm)
    auc = np.column_stack([observed.to_numpy(dtype=float), permuted.loc[observed.index].to_numpy(dtype=float)])
    weighted = weigh_by_pairs(auc, count_site_pairs(context, list(observed.index)))
    return pd.DataFrame(
        {"permutation": np.arange(auc.shape[1]), "auc": np.nanmean(auc, axis=0), "pair_weighted_auc": weighted}
    )


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

        def report(message: str, share: float, number: int = number) -> None:
            context.progress(f"permutation {number} of {PERMUTATIONS}, {message}", (number - 1 + share) / PERMUTATIONS)

        job = _relabel_job(context.job_of(arm, report), column)
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


def _summarise(arm: Arm, scores: pd.DataFrame, column: str) -> dict[str, Any]:
    observed, permuted = 100 * scores[column].iloc[0], 100 * scores[column].iloc[1:].to_numpy()
    return {
        "method": display_name(arm.method),
        "estimand": _ESTIMANDS[column],
        "AUC": observed,
        "permuted mean": permuted.mean(),
        "permuted SD": permuted.std(ddof=1),
        "permuted 95th percentile": np.quantile(permuted, 0.95),
        "permuted largest": permuted.max(),
        "permutations": len(permuted),
        "p": compute_p(observed, permuted),
    }


def _draw(scores: dict[Arm, pd.DataFrame], summary: pd.DataFrame) -> Any:
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
            name = display_name(a.method)
            axis.axvline(values[0], color=colour, linewidth=1.6, label=f"{name}, {values[0]:.1f} % ({state_p(p[k])})")
        axis.axvline(50, color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        label_axis(axis, f"AUC, {estimand}, %")
        axis.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    axes[0].set_ylabel("share of permutations, %", fontsize=9)
    return figure
