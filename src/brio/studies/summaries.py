"""Summaries of arms: means over sites with intervals, paired differences with their tests, and sentences about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ..formatting import state_p
from ..protocol import compare_over_folds, compare_over_sites
from ..results import average_seeds, mean_correction, summarise_scores, unit_columns
from ..results.format import format_signed
from .arms import display_name

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
