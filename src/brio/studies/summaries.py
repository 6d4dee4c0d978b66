"""What studies say of arms: means over sites with intervals, paired differences with their tests, and one figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..drawing import make_panels, series_style
from ..protocol import bootstrap_interval, compare_over_folds, compare_over_sites
from .arms import printed

__all__ = [
    "arm_summary",
    "bars",
    "draw_arms",
    "draw_lines",
    "in_words",
    "p_in_words",
    "p_value",
    "paired",
    "signed",
    "tidy",
]

FACTS = ["folds", "seeds", "epochs", "K"]
_KEPT = ["arm", "method", "protocol", "fold", "seed", "auc", "acc", "balanced_acc", "brier", "validation_auc"]


def tidy(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """One row a run: its arm, scores, further columns and what the runs of the arm are made of."""
    by_arm = rows.groupby("arm")
    told = rows.assign(folds=by_arm["fold"].transform("nunique"), seeds=by_arm["seed"].transform("nunique"))
    return told[[*_KEPT, *columns, *FACTS]]


def _scores(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One row a site (the mean over seeds) or, in distribution, a fold of a seed; one column an arm, in percent."""
    unit = ["fold"] if (rows["protocol"] == "loso").all() else ["seed", "fold"]
    table = 100 * rows.groupby([*unit, "arm"])[metric].mean().unstack("arm")
    return table[list(dict.fromkeys(rows["arm"]))]


def arm_summary(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """AUC and ACC of each arm, and how its AUC differs from that of a reference.

    Mean, SD and 95 % interval over held-out sites (seeds averaged first) or over test folds, in percent; paired
    differences with Wilcoxon's signed-rank test over sites, or the corrected resampled t-test over folds, corrected
    by Holm over the arms; ``warning`` says where so few sites could not have shown a difference.
    """
    auc, acc = _scores(rows, "auc"), _scores(rows, "acc")
    differences = pd.DataFrame()
    if auc.shape[1] > 1:
        if (rows["protocol"] == "loso").all():
            differences = compare_over_sites(auc, reference).set_index("method")
        else:
            sizes = rows[["n_test", "n_source"]].mean()
            differences = compare_over_folds(auc, sizes["n_test"], sizes["n_source"], reference).set_index("method")
    out = []
    for name in auc.columns:
        mine = rows[rows["arm"] == name]
        low, high = bootstrap_interval(auc[name].to_numpy())
        row: dict[str, Any] = {"arm": name, "AUC": auc[name].mean(), "SD": auc[name].std(ddof=1)}
        row |= {"low": low, "high": high, "ACC": acc[name].mean(), "ACC SD": acc[name].std(ddof=1)}
        d = differences.loc[name] if name in differences.index else None
        units = [c for c in differences.columns if c in ("n_sites", "n_folds")]
        row |= {f"to {reference}": None if d is None else d["mean_difference"]}
        row |= {"from": None if d is None else d["low"], "until": None if d is None else d["high"]}
        row |= {"better at": None if d is None else f"{d['better']} of {d[units[0]]}"}
        row |= {"p": None if d is None else d["p_holm"]}
        row |= {"folds": mine["fold"].nunique(), "seeds": mine["seed"].nunique()}
        row |= {key: mine[key].iloc[0] for key in ("epochs", "K")}
        row |= {"warning": "" if d is None else d["warning"]}
        out.append(row)
    return pd.DataFrame(out).astype({"epochs": "Int64", "K": "Int64"})


def paired(rows: pd.DataFrame, column: str, reference: str) -> pd.DataFrame:
    """How a quantity that is the better the lower it is differs between arms and a reference, seeds averaged.

    One row an arm: ``to <reference>`` with its interval, at how many folds it is lower and higher, p of Wilcoxon's
    signed-rank test over folds after Holm's correction, and a ``warning`` where so few folds could not have shown a
    difference.
    """
    values = rows.groupby(["fold", "arm"])[column].mean().unstack("arm")[list(dict.fromkeys(rows["arm"]))]
    found = compare_over_sites(values, reference, lower_is_better=True)
    return pd.DataFrame(
        {
            "arm": found["method"],
            f"to {reference}": found["mean_difference"],
            "from": found["low"],
            "until": found["high"],
            **{
                f"{word} at": [f"{k} of {n}" for k, n in zip(found[column], found["n_sites"], strict=True)]
                for word, column in (("lower", "better"), ("higher", "worse"))
            },
            "p": found["p_holm"],
            "warning": found["warning"].str.replace("sites", "folds"),
        }
    )


def in_words(
    summary: pd.DataFrame, reference: str, level: float = 0.05, form: Callable[[float], str] | None = None
) -> list[str]:
    """What may be said of the differences to the reference, sentence by sentence."""
    form = signed if form is None else form
    column = f"to {reference}"
    known = summary.dropna(subset=[column])
    if known.empty:
        return ["There is nothing to compare with."]
    clear = known[known["p"] <= level]
    lines = []
    for sign, word in ((1, "above"), (-1, "below")):
        those = clear[np.sign(clear[column]) == sign]
        if len(those):
            told = ", ".join(f"{printed(r['arm'])} ({form(r[column])})" for _, r in those.iterrows())
            lines.append(f"Clearly {word} {printed(reference)} (p at most {level:g} after Holm's correction): {told}.")
    rest = known[~known.index.isin(clear.index)]
    if len(rest):
        said = [f"{printed(r['arm'])} ({form(r[column])}, {p_in_words(r['p'])})" for _, r in rest.iterrows()]
        lines.append(f"Not shown to differ from {printed(reference)}: {', '.join(said)}.")
    few = known[known["warning"] != ""]
    if len(few) == len(known) and few["warning"].nunique() == 1:
        lines.append(f"Nor could it have been: {few['warning'].iloc[0]}.")
    elif len(few):
        told = ", ".join(f"{printed(r['arm'])} ({' '.join(r['warning'].split()[:2])})" for _, r in few.iterrows())
        lines.append(f"Could not have been shown at level {level:g}, since too few differ: {told}.")
    return lines


def signed(difference: float, digits: int = 1) -> str:
    """A difference with its sign and one decimal or more; what rounds to nothing has no sign.

    Examples
    --------
    >>> signed(0.26), signed(-0.04)
    ('+0.3', '0.0')
    """
    told = f"{difference:+.{digits}f}"
    return told if float(told) else told[1:]


def p_value(p: float) -> str:
    """A p value with two digits.

    Examples
    --------
    >>> p_value(1.0), p_value(0.052), p_value(0.0002)
    ('1.0', '0.052', '< 0.001')
    """
    return f"{p:#.2g}" if p >= 0.001 else "< 0.001"


def p_in_words(p: float) -> str:
    """A p value as a sentence has it, or that there is none.

    Examples
    --------
    >>> p_in_words(0.2), p_in_words(0.0002), p_in_words(float("nan"))
    ('p = 0.20', 'p < 0.001', 'no test')
    """
    return "no test" if p != p else f"p {p_value(p)}" if p < 0.001 else f"p = {p_value(p)}"


def bars(mean: Any, low: Any, high: Any) -> np.ndarray:
    """Lengths of error bars below and above a mean, which rounding never makes negative. Shape [2, ...].

    Examples
    --------
    >>> bars([50.0], [50.0 + 1e-14], [52.0]).tolist()
    [[0.0], [2.0]]
    """
    middle = np.asarray(mean, dtype=float)
    return np.clip([middle - np.asarray(low, dtype=float), np.asarray(high, dtype=float) - middle], 0.0, None)


def draw_arms(summary: pd.DataFrame, reference: str, label: Callable[[str], str] = printed) -> Any:
    """AUC and ACC of each arm and how its AUC differs from that of the reference, in the order of the summary."""
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
            _mark(axes[2], y, row[column], bars([row[column]], [row["from"]], [row["until"]]), 1)
            beside = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8, "color": "0.3"}
            axes[2].annotate(p_in_words(row["p"]), (1.02, y), **beside)
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
    """A mean with its bar in the row of an arm."""
    look = series_style(k)
    axis.errorbar(x, y, xerr=length, fmt=look["marker"], color=look["color"], capsize=2, markersize=6)


def draw_lines(axis: Any, x: Sequence[float], summary: pd.DataFrame, k: int, label: str = "") -> None:
    """Mean AUC with its interval over sites along a setting."""
    length = bars(summary["AUC"], summary["low"], summary["high"])
    axis.errorbar(list(x), summary["AUC"], yerr=length, capsize=3, label=label, **series_style(k))
