"""Summaries of arms: means over sites with intervals, paired differences with their tests, and one figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..drawing import make_panels, series_style
from ..protocol import bootstrap_interval, compare_over_folds, compare_over_sites
from ..results import average_seeds, score_units
from ..results.format import format_signed, state_p
from .arms import display_name

__all__ = [
    "FACTS",
    "describe_differences",
    "draw_arms",
    "draw_lines",
    "error_bars",
    "pair_with_reference",
    "summarise_arms",
    "tidy_rows",
]

FACTS = ["folds", "seeds", "epochs", "K"]
"""Columns that say how many runs, and what runs, are behind a row of a study."""

_COLUMNS = ["arm", "method", "protocol", "fold", "seed", "auc", "acc", "balanced_acc", "brier", "validation_auc"]


def tidy_rows(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return one row per run: its arm, scores, further columns and :data:`FACTS`."""
    by_arm = rows.groupby("arm")
    counted = rows.assign(folds=by_arm["fold"].transform("nunique"), seeds=by_arm["seed"].transform("nunique"))
    return counted[[*_COLUMNS, *columns, *FACTS]]


def _scores(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Scores in percent, [site x arm] or, in distribution, [fold of a seed x arm]."""
    return 100 * average_seeds(rows, metric, units=score_units(_protocol_of(rows)), column="arm")


def _protocol_of(rows: pd.DataFrame) -> str:
    return "loso" if (rows["protocol"] == "loso").all() else "kfold"


def summarise_arms(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Summarise AUC and ACC of each arm, and how its AUC differs from that of a reference.

    Parameters
    ----------
    rows : DataFrame
        One row per run, with the name of its arm, epochs and K.
    reference : str
        Name of the arm to compare with.

    Returns
    -------
    DataFrame
        One row per arm, in percent: mean, SD and 95 % interval over test sites (seeds averaged first) or over test
        folds; paired differences with Wilcoxon's signed-rank test over sites, or the corrected resampled t-test over
        folds, with Holm's correction over the arms. ``warning`` says where so few sites could not have shown a
        difference.
    """
    auc, acc = _scores(rows, "auc"), _scores(rows, "acc")
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
        low, high = bootstrap_interval(auc[name].to_numpy())
        row: dict[str, Any] = {"arm": name, "AUC": auc[name].mean(), "SD": auc[name].std(ddof=1)}
        row |= {"low": low, "high": high, "ACC": acc[name].mean(), "ACC SD": acc[name].std(ddof=1)}
        d = differences.loc[name] if name in differences.index else None
        units = [c for c in differences.columns if c in ("n_sites", "n_folds")]
        row |= {f"to {reference}": None if d is None else d["mean_difference"]}
        row |= {"from": None if d is None else d["low"], "until": None if d is None else d["high"]}
        row |= {"better at": None if d is None else f"{d['better']} of {d[units[0]]}"}
        row |= {"p": None if d is None else d["p_holm"]}
        row |= {"folds": own["fold"].nunique(), "seeds": own["seed"].nunique()}
        row |= {key: own[key].iloc[0] for key in ("epochs", "K")}
        row |= {"warning": "" if d is None else d["warning"]}
        summary.append(row)
    return pd.DataFrame(summary).astype({"epochs": "Int64", "K": "Int64"})


def pair_with_reference(rows: pd.DataFrame, column: str, reference: str) -> pd.DataFrame:
    """Compare a quantity of arms, the lower the better, with that of a reference.

    Parameters
    ----------
    rows : DataFrame
        One row per run: arm, fold, seed and the quantity.
    column : str
        The quantity.
    reference : str
        Name of the arm to compare with.

    Returns
    -------
    DataFrame
        One row per arm: ``to <reference>`` with its interval, at how many folds it is lower and higher, p of
        Wilcoxon's signed-rank test over folds after Holm's correction, and a ``warning`` where so few folds could not
        have shown a difference.
    """
    differences = compare_over_sites(average_seeds(rows, column, column="arm"), reference, lower_is_better=True)
    return pd.DataFrame(
        {
            "arm": differences["method"],
            f"to {reference}": differences["mean_difference"],
            "from": differences["low"],
            "until": differences["high"],
            **{
                f"{word} at": [f"{k} of {n}" for k, n in zip(differences[side], differences["n_sites"], strict=True)]
                for word, side in (("lower", "better"), ("higher", "worse"))
            },
            "p": differences["p_holm"],
            "warning": differences["warning"].str.replace("sites", "folds"),
        }
    )


def describe_differences(
    summary: pd.DataFrame, reference: str, level: float = 0.05, write: Callable[[float], str] = format_signed
) -> list[str]:
    """Say what the tests allow to say about the differences to a reference, a sentence each.

    Parameters
    ----------
    summary : DataFrame
        Of :func:`summarise_arms` or :func:`pair_with_reference`.
    reference : str
    level : float
        Of the tests.
    write : function
        Writes a difference.
    """
    column, name = f"to {reference}", display_name(reference)
    compared = summary.dropna(subset=[column])
    if compared.empty:
        return ["There is nothing to compare with."]
    clear = compared[compared["p"] <= level]
    lines = []
    for sign, word in ((1, "above"), (-1, "below")):
        selected = clear[np.sign(clear[column]) == sign]
        if len(selected):
            arms = ", ".join(f"{display_name(r['arm'])} ({write(r[column])})" for _, r in selected.iterrows())
            lines.append(f"Clearly {word} {name} (p at most {level:g} after Holm's correction): {arms}.")
    rest = compared[~compared.index.isin(clear.index)]
    if len(rest):
        arms = ", ".join(
            f"{display_name(r['arm'])} ({write(r[column])}, {state_p(r['p'])})" for _, r in rest.iterrows()
        )
        lines.append(f"Not shown to differ from {name}: {arms}.")
    few = compared[compared["warning"] != ""]
    if len(few) == len(compared) and few["warning"].nunique() == 1:
        lines.append(f"Nor could it have been: {few['warning'].iloc[0]}.")
    elif len(few):
        arms = ", ".join(f"{display_name(r['arm'])} ({' '.join(r['warning'].split()[:2])})" for _, r in few.iterrows())
        lines.append(f"Too few that differ to reach p < {level:g}: {arms}.")
    return lines


def error_bars(mean: Any, low: Any, high: Any) -> np.ndarray:
    """Return the lengths of error bars below and above a mean; rounding never makes them negative.

    Parameters
    ----------
    mean, low, high : arrays of one shape

    Returns
    -------
    ndarray, shape [2, ...]

    Examples
    --------
    >>> error_bars([50.0], [50.0 + 1e-14], [52.0]).tolist()
    [[0.0], [2.0]]
    """
    middle = np.asarray(mean, dtype=float)
    return np.clip([middle - np.asarray(low, dtype=float), np.asarray(high, dtype=float) - middle], 0.0, None)


def draw_arms(summary: pd.DataFrame, reference: str, label: Callable[[str], str] = display_name) -> Any:
    """Draw AUC and ACC of each arm and how its AUC differs from that of the reference.

    Parameters
    ----------
    summary : DataFrame
        Of :func:`summarise_arms`, in the order of the rows of the figure.
    reference : str
    label : function
        Turns the name of an arm into the text beside its row.

    Returns
    -------
    matplotlib.figure.Figure
    """
    column = f"to {reference}"
    compared = summary[column].notna()
    width = (3, 10.4) if compared.any() else (2, 8.4)
    figure, axes = make_panels(*width, 1.0 + 0.34 * len(summary), sharey=True)
    for axis, mean, sd in zip(axes, ("AUC", "ACC"), ("SD", "ACC SD"), strict=False):
        for y, (_, row) in enumerate(summary.iterrows()):
            _mark(axis, y, row[mean], row[sd], 0 if row["arm"] == reference else 1)
        axis.set_xlabel(f"{mean}, % (mean, SD)", fontsize=9)
    for y, (_, row) in enumerate(summary.iterrows()):
        if compared.iloc[y]:
            _mark(axes[2], y, row[column], error_bars([row[column]], [row["from"]], [row["until"]]), 1)
            beside = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8, "color": "0.3"}
            axes[2].annotate(state_p(row["p"]), (1.02, y), **beside)
    if compared.any():
        axes[2].axvline(0, color=series_style(0)["color"], linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axes[2].set_xlabel(f"AUC, points to {label(reference)}\n(95 % interval, corrected p)", fontsize=9)
    for axis in axes:
        axis.locator_params(axis="x", nbins=5)
        axis.grid(axis="y", color="0.93")
        axis.set_axisbelow(True)
    axes[0].set_yticks(np.arange(len(summary)), [label(a) for a in summary["arm"]], fontsize=9)
    axes[0].set_ylim(len(summary) - 0.4, -0.6)
    return figure


def _mark(axis: Any, y: int, x: float, length: Any, k: int) -> None:
    """Draw a mean with its bar in the row of an arm."""
    look = series_style(k)
    axis.errorbar(x, y, xerr=length, fmt=look["marker"], color=look["color"], capsize=2, markersize=6)


def draw_lines(axis: Any, x: Sequence[float], summary: pd.DataFrame, k: int, label: str = "") -> None:
    """Draw the mean AUC with its interval over sites along a setting.

    Parameters
    ----------
    axis : matplotlib.axes.Axes
    x : values of the setting
    summary : DataFrame
        Of :func:`summarise_arms`, one row per value.
    k : int
        Number of the line, which decides its style.
    label : str
    """
    length = error_bars(summary["AUC"], summary["low"], summary["high"])
    axis.errorbar(list(x), summary["AUC"], yerr=length, capsize=3, label=label, **series_style(k))
