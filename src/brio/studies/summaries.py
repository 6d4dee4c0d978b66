"""Summaries, sentences and figures that studies share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..cohort.scans import index_participants
from ..drawing import horizontal_offset, make_panels, series_style
from ..formatting import format_signed, state_p
from ..protocol import compare_family, t_interval
from ..protocol.metrics import count_pairs
from ..results import average_seeds, mean_correction, summarise_scores, unit_columns
from ..results.summarise import compare_scores
from .context import Arm, StudyContext, display_name

FACTS = ["folds", "seeds", "epochs", "K"]
"""Columns that describe the runs behind a row of a study."""

_COLUMNS = ["arm", "method", "protocol", "fold", "seed", "auc", "acc", "balanced_acc", "brier", "validation_auc"]


def tidy_rows(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Reduce the rows of runs to the columns of a study's table."""
    by_arm = rows.groupby("arm")
    counted = rows.assign(folds=by_arm["fold"].transform("nunique"), seeds=by_arm["seed"].transform("nunique"))
    return counted[[*_COLUMNS, *columns, *FACTS]]


def summarise_arms(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Summarise AUC and ACC of each arm, and how its AUC differs from that of a reference.

    Returns one row per arm, in percent: ``AUC``, ``SD``, ``low``, ``high``, ``ACC``, ``ACC SD`` (mean, SD and 95 %
    interval, corrected t, over test sites with seeds averaged first, or over test folds); ``minus <reference>``,
    ``difference low``, ``difference high``, ``better at`` (paired difference of AUC); ``p`` (corrected t test over
    sites or folds, after Holm's correction over the arms); :data:`FACTS`; ``warning`` (why no difference could reach
    significance, else empty). Cells that compare are empty for the reference.
    """
    protocol = "loso" if (rows["protocol"] == "loso").all() else "kfold"
    units = unit_columns(protocol)
    auc, acc = (100 * average_seeds(rows, metric, units=units, column="arm") for metric in ("auc", "acc"))
    differences = pd.DataFrame()
    if auc.shape[1] > 1:
        differences = compare_scores(auc, rows, protocol, reference).set_index("method")
    compared = dict.fromkeys((f"minus {reference}", "difference low", "difference high", "better at", "p"))
    summary = []
    for name in auc.columns:
        own, test = rows[rows["arm"] == name], differences.loc[name] if name in differences.index else None
        correction = mean_correction(own, protocol)
        low, high = summarise_scores(auc[name], correction, limits=(0.0, 100.0)).interval or (np.nan, np.nan)
        row: dict[str, Any] = {"arm": name, "AUC": auc[name].mean(), "SD": auc[name].std(ddof=1)}
        row |= {"low": low, "high": high, "ACC": acc[name].mean(), "ACC SD": acc[name].std(ddof=1)} | compared
        if test is not None:
            values = [*test[["mean_difference", "low", "high"]], f"{test['better']} of {test['n']}", test["p_holm"]]
            row |= dict(zip(compared, values, strict=True))
        row |= {"folds": own["fold"].nunique(), "seeds": own["seed"].nunique()}
        row |= {key: own[key].iloc[0] for key in ("epochs", "K")}
        summary.append(row | {"warning": "" if test is None else test["warning"]})
    return pd.DataFrame(summary).astype({"epochs": "Int64", "K": "Int64"})


def pair_with_reference(rows: pd.DataFrame, column: str, reference: str) -> pd.DataFrame:
    """Compare a quantity of arms with that of a reference; lower is better.

    Returns one row per other arm: ``minus <reference>``, ``difference low`` and ``difference high``; ``lower at`` and
    ``higher at``, numbers of folds; ``p`` of the corrected t test over folds after Holm's correction; ``warning``, why
    no difference could reach significance, else empty.
    """
    tests = compare_family(average_seeds(rows, column, column="arm"), reference, lower_is_better=True)
    counts = {name: tests[name].astype(str) + " of " + tests["n"].astype(str) for name in ("better", "worse")}
    warning = [warning and dataclasses.replace(warning, units="folds") for warning in tests["warning"]]
    names = {"method": "arm", "mean_difference": f"minus {reference}", "low": "difference low"}
    names |= {"high": "difference high", "better": "lower at", "worse": "higher at", "p_holm": "p"}
    return tests.assign(**counts, warning=warning)[[*names, "warning"]].rename(columns=names)


def describe_differences(
    summary: pd.DataFrame, reference: str, quantity: str = "AUC", write: Callable[[float], str] | None = None
) -> list[str]:
    """Describe the differences to a reference, and whether they are significant, a sentence each."""
    column, name = f"minus {reference}", display_name(reference)
    write = write or (lambda points: f"{format_signed(points)} points")
    compared = summary.dropna(subset=[column])
    if compared.empty:
        return [f"There is no other arm to compare with {name}."]

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
    rest = compared[~significant]
    if len(rest):
        sentences.append(f"No significant difference in {quantity} from {name}: {list_arms(rest)}.")
    warned = compared[compared["warning"] != ""]
    for reason, arms in warned.groupby(warned["warning"].map(str), sort=False)["arm"]:
        sentences.append(f"Not tested: {', '.join(map(display_name, arms))}; {reason}.")
    return sentences


def describe_left_out(context: StudyContext, names: Collection[str] | None = None) -> list[str]:
    """Say which methods were left out and why, a sentence each."""
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


def tabulate_arms(
    context: StudyContext, arms: Sequence[Arm], score: Callable[[pd.DataFrame], pd.DataFrame]
) -> pd.DataFrame:
    """Score the predictions of arms: rows of all arms, ``arm`` first and the facts of each arm last."""
    parts = [score(read_arm_predictions(context, a)).assign(arm=a.name, **context.results_of(a).facts) for a in arms]
    return move_first(pd.concat(parts, ignore_index=True), "arm")


def count_site_pairs(context: StudyContext, folds: Sequence[str]) -> np.ndarray:
    """Count the pairs of a patient and a control at each test site, in the order of the folds. Shape [folds]."""
    people, _ = index_participants(context.cohort.participant_ids)
    labels, sites = context.cohort.labels[people], context.cohort.sites[people]
    return np.array([count_pairs(labels[sites == fold]) for fold in folds])


def compute_error_bars(mean: Any, low: Any, high: Any) -> np.ndarray:
    """Return the lengths of error bars below and above a mean; rounding never makes them negative.

    Shapes: returns [2, ...].
    """
    centre = np.asarray(mean, dtype=float)
    return np.clip([centre - np.asarray(low, dtype=float), np.asarray(high, dtype=float) - centre], 0.0, None)


def label_axis(axis: Any, x: str = "", y: str = "", *, title: str = "", grid: str = "") -> None:
    """Label an axis, with lines of a grid behind the series."""
    axis.set_xlabel(x, fontsize=9)
    axis.set_ylabel(y, fontsize=9)
    if title:
        axis.set_title(title, fontsize=9, loc="left")
    if grid:
        axis.grid(axis=grid, color="0.93")
        axis.set_axisbelow(True)


def draw_intervals(axis: Any, x: Any, mean: Any, low: Any, high: Any, k: int, **options: Any) -> None:
    """Draw means with their intervals in the style of series k, along x."""
    bars = compute_error_bars(mean, low, high)
    axis.errorbar(x, mean, yerr=bars, **{"capsize": 2, **series_style(k), **options})


def draw_dot(axis: Any, mean: Any, y: Any, bars: Any, k: int, **options: Any) -> None:
    """Draw a mean in row y with its horizontal error bars, in the style of series k."""
    style = {"capsize": 2, "markersize": 6, "linestyle": "none", **series_style(k)}
    axis.errorbar(mean, y, xerr=bars, **style | options)


def draw_over_sites(axis: Any, by_site: pd.DataFrame, k: int, count: int, spacing: float, label: str) -> None:
    """Draw the mean of each column over sites with its 95 % interval (t), as series k of several.

    Shapes: by_site [sites, positions].
    """
    columns = [by_site[position].to_numpy() for position in by_site]
    low, high = np.array([t_interval(values) if values.any() else (0.0, 0.0) for values in columns]).T
    x = by_site.columns + horizontal_offset(k, count, spacing)
    draw_intervals(axis, x, by_site.mean(), low, high, k, linewidth=1.2, label=label)


def note_beside(axis: Any, y: float, p: float) -> None:
    """Write a p value to the right of an axis, in row y."""
    beside = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8, "color": "0.3"}
    axis.annotate(state_p(p), (1.02, y), **beside)


def draw_arms(summary: pd.DataFrame, reference: str, label: Callable[[str], str] = display_name) -> Any:
    """Draw AUC and ACC of each arm and how its AUC differs from that of the reference."""
    column = f"minus {reference}"
    compared = summary[column].notna()
    count, width = (3, 10.4) if compared.any() else (2, 8.4)
    figure, axes = make_panels(count, width, 1.0 + 0.34 * len(summary), sharey=True)
    for axis, mean, sd in zip(axes, ("AUC", "ACC"), ("SD", "ACC SD"), strict=False):
        for y, (_, row) in enumerate(summary.iterrows()):
            draw_dot(axis, row[mean], y, row[sd], 0 if row["arm"] == reference else 1)
        label_axis(axis, f"{mean}, % (mean, SD)")
    for y, (_, row) in enumerate(summary.iterrows()):
        if compared.iloc[y]:
            bars = compute_error_bars([row[column]], [row["difference low"]], [row["difference high"]])
            draw_dot(axes[2], row[column], y, bars, 1)
            note_beside(axes[2], y, row["p"])
    if compared.any():
        axes[2].axvline(0, color=series_style(0)["color"], linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        label_axis(axes[2], f"AUC minus {label(reference)}, points\n(95 % interval, corrected p)")
    for axis in axes:
        axis.locator_params(axis="x", nbins=6)
        axis.grid(axis="y", color="0.93")
        axis.set_axisbelow(True)
    axes[0].set_yticks(np.arange(len(summary)), [label(a) for a in summary["arm"]], fontsize=9)
    axes[0].set_ylim(len(summary) - 0.4, -0.6)
    return figure


def label_log_ticks(axis: Any) -> None:
    """Label the ticks of a logarithmic axis with plain numbers.

    An axis of less than half a decade has ticks at equal steps, one of less than two decades also at 2 and 5 times the
    powers of ten.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
    if high < 3 * low:
        axis.set_major_locator(MaxNLocator(5))
        axis.set_minor_locator(NullLocator())
    elif high < 50 * low:
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter("{x:g}")
