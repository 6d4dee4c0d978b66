"""Summaries, sentences and figures that studies share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..cohort.scans import index_participants
from ..drawing import draw_dot, draw_intervals, horizontal_offset, label_axis, make_panels, note_beside, series_style
from ..formatting import format_signed, state_p
from ..protocol import t_interval
from ..protocol.metrics import count_pairs
from ..results import average_seeds, mean_correction, summarise_scores, unit_columns
from ..results.summarise import compare_scores
from .context import Arm, ArmResults, StudyContext, display_name

FACTS = ["folds", "seeds", "epochs", "K"]
"""Columns that describe the runs behind a row of a study."""

_COLUMNS = ["arm", "method", "protocol", "fold", "seed", "auc", "acc", "balanced_acc", "brier", "validation_auc"]


def tidy_rows(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Reduce the rows of runs to the columns of a study's table."""
    return rows[[*_COLUMNS, *columns, *FACTS]]


def summarise_arms(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Summarise AUC and ACC of each arm, and how its AUC differs from that of a reference.

    Returns one row per arm, in percent: ``AUC``, ``SD``, ``low``, ``high``, ``ACC``, ``ACC SD`` (mean, SD and 95%
    interval, corrected t, over test sites with seeds averaged first, or over test folds); the columns of
    :func:`_name_differences`, empty for the reference; :data:`FACTS`.
    """
    protocol = "loso" if (rows["protocol"] == "loso").all() else "kfold"
    auc, acc = (100 * average_seeds(rows, m, units=unit_columns(protocol), column="arm") for m in ("auc", "acc"))
    summary = pd.DataFrame({"AUC": auc.mean(), "SD": auc.std(ddof=1)})
    correction = {name: mean_correction(own, protocol) for name, own in rows.groupby("arm")}
    ends = [summarise_scores(auc[name], correction[name], limits=(0.0, 100.0)).interval for name in auc]
    summary[["low", "high"]] = [pair or (np.nan, np.nan) for pair in ends]
    summary = summary.assign(**{"ACC": acc.mean(), "ACC SD": acc.std(ddof=1)})
    tests = compare_scores(auc, rows, protocol, reference) if auc.shape[1] > 1 else pd.DataFrame()
    differences = _name_differences(tests, reference, {"better": "better at"})
    return summary.join(differences.set_index("arm")).join(collect_facts(rows)).reset_index()


def collect_facts(rows: pd.DataFrame) -> pd.DataFrame:
    """Collect the facts of each arm, which all its rows share."""
    facts = rows.groupby("arm", sort=False).agg({"fold": "nunique", "seed": "nunique", "epochs": "first", "K": "first"})
    return facts.set_axis(FACTS, axis=1).astype("Int64")


def pair_with_reference(rows: pd.DataFrame, column: str, reference: str) -> pd.DataFrame:
    """Compare a quantity of arms with that of a reference over test folds, seeds averaged; lower is better.

    Returns the columns of :func:`_name_differences`.
    """
    scores = average_seeds(rows, column, column="arm")
    tests = compare_scores(scores, rows, "loso", reference, lower_is_better=True)
    warning = [warning and dataclasses.replace(warning, units="folds") for warning in tests["warning"]]
    return _name_differences(tests.assign(warning=warning), reference, {"better": "lower at", "worse": "higher at"})


def _name_differences(tests: pd.DataFrame, reference: str, counts: dict[str, str]) -> pd.DataFrame:
    """Name the columns of paired tests; ``counts``: columns that count units, and what they are called.

    Returns one row per tested arm: ``minus <reference>``, ``difference low``, ``difference high``, the counts, ``p`` of
    the corrected t test after Holm's correction, ``warning`` (why no difference could reach significance, else empty).
    """
    names = {"method": "arm", "mean_difference": f"minus {reference}", "low": "difference low"}
    names |= {"high": "difference high", **counts, "p_holm": "p", "warning": "warning"}
    if tests.empty:
        return pd.DataFrame(columns=list(names.values()))
    shares = {name: tests[name].astype(str) + " of " + tests["n"].astype(str) for name in counts}
    return tests.assign(**shares)[list(names)].rename(columns=names)


def describe_differences(
    summary: pd.DataFrame, reference: str, quantity: str = "AUC", write: Callable[[float], str] | None = None
) -> list[str]:
    """Describe the differences from a reference, and whether they are significant, one sentence each."""
    column, name = f"minus {reference}", display_name(reference)
    write = write or (lambda points: f"{format_signed(points)} points")
    compared = summary.dropna(subset=[column])
    if compared.empty:
        return [f"No method could be compared with {name}."]

    def list_arms(arms: pd.DataFrame) -> str:
        return ", ".join(
            f"{display_name(row['arm'])} ({write(row[column])}, {state_p(row['p'])})" for _, row in arms.iterrows()
        )

    significant = compared["p"] <= 0.05
    sentences = []
    for sign, word in ((1, "higher"), (-1, "lower")):
        arms = compared[significant & (np.sign(compared[column]) == sign)]
        if len(arms):
            sentences.append(f"Significantly {word} {quantity} than {name} after Holm's correction: {list_arms(arms)}.")
    rest = compared[compared["p"] > 0.05]
    if len(rest):
        sentences.append(f"No significant difference in {quantity} from {name}: {list_arms(rest)}.")
    warned = compared[compared["warning"] != ""]
    for reason, arms in warned.groupby(warned["warning"].map(str), sort=False)["arm"]:
        sentences.append(f"Not tested: {', '.join(map(display_name, arms))}; {reason}.")
    return sentences


def describe_left_out(context: StudyContext, names: Collection[str] | None = None) -> list[str]:
    """State which methods were left out and why, one sentence each."""
    return [f"Left out: {why}." for name, why in context.left_out.items() if names is None or name in names]


def read_arm_predictions(context: StudyContext, arm: Arm) -> pd.DataFrame:
    """Read the predictions of an arm; an arm whose reused results have none is trained here."""
    predictions = context.results_of(arm).job.predictions
    if predictions is None:
        predictions = context.trained_results(arm).job.predictions
    assert predictions is not None  # a job that was just executed has them
    return predictions[predictions["method"] == arm.method]


def move_first(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return a table with some columns before all others."""
    return table[[*columns, *(name for name in table if name not in columns)]]


def stack_arms(parts: Mapping[Arm, pd.DataFrame], results: Callable[[Arm], ArmResults], *first: str) -> pd.DataFrame:
    """Stack tables of arms: the name of the arm and the given columns come first, the facts of its results last."""
    tables = [part.assign(arm=a.name, **results(a).facts) for a, part in parts.items()]
    stacked = move_first(pd.concat(tables, ignore_index=True), "arm", *first)
    return stacked.astype({"epochs": "Int64", "K": "Int64"})


def score_runs(predictions: pd.DataFrame, score: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    """Score the predictions of each run: the rows of all runs, ``fold`` and ``seed`` first."""
    runs = predictions.groupby(["fold", "seed"], sort=False)
    rows = pd.concat([score(run).assign(fold=fold, seed=seed) for (fold, seed), run in runs], ignore_index=True)
    return move_first(rows, "fold", "seed")


def tabulate_runs(
    context: StudyContext, arms: Sequence[Arm], score: Callable[[pd.DataFrame], pd.DataFrame]
) -> pd.DataFrame:
    """Score the predictions of each run of some arms, see :func:`score_runs` and :func:`stack_arms`."""
    return stack_arms({a: score_runs(read_arm_predictions(context, a), score) for a in arms}, context.results_of)


def average_sites(by_site: pd.DataFrame) -> pd.DataFrame:
    """Average each column over sites at each position, the first level of the index.

    Returns the means and, beside each, the ends of its 95% interval (t): ``auc``, ``auc low``, ``auc high``.
    """
    points: dict[Any, pd.Series | np.ndarray] = {}
    for name, column in by_site.items():
        groups = column.groupby(level=0, sort=False)
        ends = np.array([t_interval(values.to_numpy(dtype=float)) for _, values in groups])
        points |= {name: groups.mean(), f"{name} low": ends[:, 0], f"{name} high": ends[:, 1]}
    return pd.DataFrame(points)


def count_site_pairs(context: StudyContext, folds: Sequence[str]) -> np.ndarray:
    """Count the pairs of a patient and a control at each test site, in the order of the folds. Shape [folds]."""
    people, _ = index_participants(context.cohort.participant_ids)
    labels, sites = context.cohort.labels[people], context.cohort.sites[people]
    return np.array([count_pairs(labels[sites == fold]) for fold in folds])


def draw_over_sites(axis: Any, by_site: pd.Series, spacing: float) -> None:
    """Draw the mean of each series over sites at each position with its 95% interval (t).

    The levels of the index are the series, the position and the site.
    """
    names = list(dict.fromkeys(by_site.index.get_level_values(0)))
    for k, name in enumerate(names):
        points = average_sites(by_site.loc[name].to_frame("mean"))
        x = points.index + horizontal_offset(k, len(names), spacing)
        ends = points["mean low"], points["mean high"]
        draw_intervals(axis, x, points["mean"], *ends, k, linewidth=1.2, label=display_name(str(name)))


def draw_arms(summary: pd.DataFrame, reference: str, label: Callable[[str], str] = display_name) -> Any:
    """Draw AUC and ACC of each arm and how its AUC differs from that of the reference."""
    column = f"minus {reference}"
    compared = summary[column].notna()
    count, width = (3, 10.4) if compared.any() else (2, 8.4)
    figure, axes = make_panels(count, width, 1.0 + 0.34 * len(summary), sharey=True)
    for y, (_, row) in enumerate(summary.iterrows()):
        k = 0 if row["arm"] == reference else 1
        for axis, mean, sd in zip(axes, ("AUC", "ACC"), ("SD", "ACC SD"), strict=False):
            draw_dot(axis, y, row[mean], row[mean] - row[sd], row[mean] + row[sd], k)
            label_axis(axis, f"{mean}, % (mean, SD)")
        if compared.iloc[y]:
            draw_dot(axes[2], y, row[column], row["difference low"], row["difference high"], 1)
            note_beside(axes[2], y, state_p(row["p"]))
    if compared.any():
        axes[2].axvline(0, color=series_style(0)["color"], linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        label_axis(axes[2], f"AUC minus {label(reference)}, points\n(95% interval, corrected p)")
    for axis in axes:
        axis.locator_params(axis="x", nbins=6)
        axis.grid(axis="y", color="0.93")
        axis.set_axisbelow(True)
    axes[0].set_yticks(np.arange(len(summary)), [label(a) for a in summary["arm"]], fontsize=9)
    axes[0].set_ylim(len(summary) - 0.4, -0.6)
    return figure
