"""Summaries, sentences and figures that studies share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..cohort.scans import index_participants
from ..drawing import make_panels, series_style
from ..formatting import format_signed, state_p
from ..jobs.spec import settle_without_validation
from ..protocol import compare_over_folds, compare_over_sites, t_interval
from ..protocol.metrics import count_pairs, weigh_by_pairs
from ..results import average_seeds, mean_correction, summarise_scores, unit_columns
from .context import Arm, StudyContext, display_name, make_arm

FACTS = ["folds", "seeds", "epochs", "K"]
"""Columns that describe the runs behind a row of a study."""

_COLUMNS = ["arm", "method", "protocol", "fold", "seed", "auc", "acc", "balanced_acc", "brier", "validation_auc"]


def tidy_rows(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Reduce the rows of runs to the columns of a study's table."""
    by_arm = rows.groupby("arm")
    counted = rows.assign(folds=by_arm["fold"].transform("nunique"), seeds=by_arm["seed"].transform("nunique"))
    return counted[[*_COLUMNS, *columns, *FACTS]]


def _average_scores(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Average scores in percent: [site, arm] or, in distribution, [fold of a seed, arm]."""
    return 100 * average_seeds(rows, metric, units=unit_columns(_protocol_of(rows)), column="arm")


def _protocol_of(rows: pd.DataFrame) -> str:
    return "loso" if (rows["protocol"] == "loso").all() else "kfold"


def summarise_arms(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Summarise AUC and ACC of each arm, and how its AUC differs from that of a reference.

    Returns one row per arm, in percent. - ``AUC``, ``SD``, ``low``, ``high``, ``ACC``, ``ACC SD``: mean, SD and 95 %
    interval (corrected t) over test sites (seeds averaged first), or over test folds. - ``minus <reference>``,
    ``difference low``, ``difference high``, ``better at``: paired difference of AUC. - ``p``: corrected t test over
    sites or folds, after Holm's correction over the arms. - ``warning``: why no difference could reach significance,
    else empty. - :data:`FACTS`.
    """
    auc, acc = _average_scores(rows, "auc"), _average_scores(rows, "acc")
    differences = pd.DataFrame()
    if auc.shape[1] > 1:
        if _protocol_of(rows) == "loso":
            differences = compare_over_sites(auc, reference).set_index("method")
        else:
            sizes = rows[["n_test", "n_source"]].mean()
            differences = compare_over_folds(auc, sizes["n_test"], sizes["n_source"], reference).set_index("method")
    summary = []
    for name in auc.columns:
        own = rows[rows["arm"] == name]
        correction = mean_correction(own, _protocol_of(rows))
        low, high = summarise_scores(auc[name], correction, limits=(0.0, 100.0)).interval or (np.nan, np.nan)
        row: dict[str, Any] = {"arm": name, "AUC": auc[name].mean(), "SD": auc[name].std(ddof=1)}
        row |= {"low": low, "high": high, "ACC": acc[name].mean(), "ACC SD": acc[name].std(ddof=1)}
        row |= _describe_pair(differences, name, reference)
        row |= {"folds": own["fold"].nunique(), "seeds": own["seed"].nunique()}
        row |= {key: own[key].iloc[0] for key in ("epochs", "K")}
        row |= {"warning": differences.loc[name, "warning"] if name in differences.index else ""}
        summary.append(row)
    return pd.DataFrame(summary).astype({"epochs": "Int64", "K": "Int64"})


def _describe_pair(differences: pd.DataFrame, name: str, reference: str) -> dict[str, Any]:
    """Return the columns of a summary that compare an arm with the reference; empty cells for the reference itself."""
    if name not in differences.index:
        return dict.fromkeys((f"minus {reference}", "difference low", "difference high", "better at", "p"))
    test = differences.loc[name]
    units = "n_sites" if "n_sites" in differences else "n_folds"
    return {
        f"minus {reference}": test["mean_difference"],
        "difference low": test["low"],
        "difference high": test["high"],
        "better at": f"{test['better']} of {test[units]}",
        "p": test["p_holm"],
    }


def pair_with_reference(rows: pd.DataFrame, column: str, reference: str) -> pd.DataFrame:
    """Compare a quantity of arms with that of a reference; lower is better.

    Returns one row per other arm: ``minus <reference>``, ``difference low`` and ``difference high``; ``lower at`` and
    ``higher at``, numbers of folds; ``p`` of the corrected t test over folds after Holm's correction; ``warning``, why
    no difference could reach significance, else empty.
    """
    differences = compare_over_sites(average_seeds(rows, column, column="arm"), reference, lower_is_better=True)
    return pd.DataFrame(
        {
            "arm": differences["method"],
            f"minus {reference}": differences["mean_difference"],
            "difference low": differences["low"],
            "difference high": differences["high"],
            **{
                f"{word} at": [f"{k} of {n}" for k, n in zip(differences[side], differences["n_sites"], strict=True)]
                for word, side in (("lower", "better"), ("higher", "worse"))
            },
            "p": differences["p_holm"],
            "warning": [warning and dataclasses.replace(warning, units="folds") for warning in differences["warning"]],
        }
    )


def format_difference(points: float) -> str:
    """Write a difference in percentage points."""
    return f"{format_signed(points)} points"


def describe_differences(
    summary: pd.DataFrame,
    reference: str,
    quantity: str = "AUC",
    *,
    level: float = 0.05,
    write: Callable[[float], str] = format_difference,
) -> list[str]:
    """Describe the differences to a reference, and whether they are significant, a sentence each."""
    column, name = f"minus {reference}", display_name(reference)
    compared = summary.dropna(subset=[column])
    if compared.empty:
        return [f"There is no other arm to compare with {name}."]

    def list_arms(arms: pd.DataFrame) -> str:
        return ", ".join(
            f"{display_name(row['arm'])} ({write(row[column])}, {state_p(row['p'])})" for _, row in arms.iterrows()
        )

    significant = compared["p"] <= level
    sentences = []
    for sign, word in ((1, "higher"), (-1, "lower")):
        arms = compared[significant & (np.sign(compared[column]) == sign)]
        if len(arms):
            sentences.append(f"Significantly {word} {quantity} than {name} after Holm's correction: {list_arms(arms)}.")
    rest = compared[~significant]
    if len(rest):
        sentences.append(f"No significant difference in {quantity} from {name}: {list_arms(rest)}.")
    return sentences + _describe_warnings(compared)


def _describe_warnings(compared: pd.DataFrame) -> list[str]:
    """Say for which arms nothing could be tested, and why."""
    warned = compared[compared["warning"] != ""]
    if warned.empty:
        return []
    by_reason = warned.groupby(warned["warning"].map(str), sort=False)["arm"].agg(
        lambda arms: ", ".join(map(display_name, arms))
    )
    return [f"Not tested: {arms}; {reason}." for reason, arms in by_reason.items()]


def list_own_arms(context: StudyContext, default: Sequence[str] = ("ridge",)) -> list[Arm]:
    """List the arms of a study of one or few methods."""
    return [_make_own_arm(context, name) for name in context.methods or default]


def _make_own_arm(context: StudyContext, name: str) -> Arm:
    if context.job.protocol_settings.validation_sites:
        return make_arm(name)
    given = context.job.spec.settings_of(name)
    added = {key: value for key, value in settle_without_validation(name, given).items() if key not in given}
    return make_arm(name, **added)


def read_arm_predictions(context: StudyContext, arm: Arm) -> pd.DataFrame:
    """Read the predictions of an arm; an arm whose reused results have none is trained here."""
    predictions = context.results_of(arm).job.predictions
    if predictions is None:
        predictions = context.trained_results(arm).job.predictions
    assert predictions is not None  # a job that was just executed has them
    return predictions[predictions["method"] == arm.method]


def tabulate_arms(
    context: StudyContext, arms: Sequence[Arm], score_runs: Callable[[pd.DataFrame], pd.DataFrame]
) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Score the predictions of arms.

    Returns table: Rows of all arms, with the column ``arm`` first and the facts of each arm last.

    Returns parts: The same by arm.
    """
    parts = [
        score_runs(read_arm_predictions(context, a)).assign(arm=a.name, **context.results_of(a).facts) for a in arms
    ]
    table = pd.concat(parts, ignore_index=True)
    return table[["arm", *(name for name in table.columns if name != "arm")]], parts


def count_site_pairs(context: StudyContext, folds: Sequence[str]) -> np.ndarray:
    """Count the pairs of a patient and a control at each test site, in the order of the folds. Shape [folds]."""
    people, _ = index_participants(context.cohort.participant_ids)
    labels, sites = context.cohort.labels[people], context.cohort.sites[people]
    return np.array([count_pairs(labels[sites == fold]) for fold in folds])


def compute_site_interval(values: np.ndarray) -> tuple[float, float]:
    """Compute the 95 % interval (t) of a mean over sites, in one place for our own studies. Shape [sites]."""
    return t_interval(values)


def summarise_sites(auc: pd.Series, n_pairs: np.ndarray) -> dict[str, float]:
    """Summarise the AUC of sites by both estimands, in percent.

    Shapes: auc [sites], n_pairs [sites].
    """
    scores = 100 * auc.to_numpy(dtype=float)
    low, high = t_interval(scores, limits=(0.0, 100.0))
    weighted = float(weigh_by_pairs(scores, n_pairs))
    return {"AUC": float(np.nanmean(scores)), "low": low, "high": high, "pair-weighted AUC": weighted}


def compute_error_bars(mean: Any, low: Any, high: Any) -> np.ndarray:
    """Return the lengths of error bars below and above a mean; rounding never makes them negative.

    Shapes: returns [2, ...].
    """
    centre = np.asarray(mean, dtype=float)
    return np.clip([centre - np.asarray(low, dtype=float), np.asarray(high, dtype=float) - centre], 0.0, None)


def draw_arms(summary: pd.DataFrame, reference: str, label: Callable[[str], str] = display_name) -> Any:
    """Draw AUC and ACC of each arm and how its AUC differs from that of the reference."""
    column = f"minus {reference}"
    compared = summary[column].notna()
    count, width = (3, 10.4) if compared.any() else (2, 8.4)
    figure, axes = make_panels(count, width, 1.0 + 0.34 * len(summary), sharey=True)
    for axis, mean, sd in zip(axes, ("AUC", "ACC"), ("SD", "ACC SD"), strict=False):
        for y, (_, row) in enumerate(summary.iterrows()):
            _draw_mean(axis, y, row[mean], row[sd], 0 if row["arm"] == reference else 1)
        axis.set_xlabel(f"{mean}, % (mean, SD)", fontsize=9)
    for y, (_, row) in enumerate(summary.iterrows()):
        if compared.iloc[y]:
            bars = compute_error_bars([row[column]], [row["difference low"]], [row["difference high"]])
            _draw_mean(axes[2], y, row[column], bars, 1)
            beside = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8, "color": "0.3"}
            axes[2].annotate(state_p(row["p"]), (1.02, y), **beside)
    if compared.any():
        axes[2].axvline(0, color=series_style(0)["color"], linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axes[2].set_xlabel(f"AUC minus {label(reference)}, points\n(95 % interval, corrected p)", fontsize=9)
    for axis in axes:
        axis.locator_params(axis="x", nbins=6)
        axis.grid(axis="y", color="0.93")
        axis.set_axisbelow(True)
    axes[0].set_yticks(np.arange(len(summary)), [label(a) for a in summary["arm"]], fontsize=9)
    axes[0].set_ylim(len(summary) - 0.4, -0.6)
    return figure


def _draw_mean(axis: Any, y: int, x: float, bars: Any, k: int) -> None:
    """Draw a mean with its error bars in row y, in the style of series k."""
    style = series_style(k)
    axis.errorbar(x, y, xerr=bars, fmt=style["marker"], color=style["color"], capsize=2, markersize=6)


def draw_lines(axis: Any, x: Sequence[float], summary: pd.DataFrame, k: int, label: str = "") -> None:
    """Draw the mean AUC with its interval over sites along a setting."""
    bars = compute_error_bars(summary["AUC"], summary["low"], summary["high"])
    axis.errorbar(list(x), summary["AUC"], yerr=bars, capsize=3, label=label, **series_style(k))


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
