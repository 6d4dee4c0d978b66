"""Is the ranking of methods the same for other labels?"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from brio.studies.comparison import OWN, TOGETHER

from .brio_plus import interaction, split_gain
from .comparisons import arm_scores, compare_pair, compare_sites, group_rows
from .evidence import ATLASES, atlas_label, read_record, read_study

STUDY = "labels"
NAMES = {OWN: "diagnosis", TOGETHER: "all labels together"}
DRAWN = ["log-ridge", "brio-plus", "mlp", "brio"]


def list_questions() -> list[str]:
    """List the labels in the order of the study, then all of them together."""
    return [*read_study(f"studies/{ATLASES[0]}/{STUDY}")["question"].unique(), TOGETHER]


@cache
def scores(atlas: str, question: str, without: str = "") -> pd.DataFrame:
    """Return the AUC of each method at each test site for a label, or for all but one: their mean at each site."""
    read_record(STUDY, atlas)
    rows = read_study(f"studies/{atlas}/{STUDY}")
    if question == TOGETHER:
        rows = (
            rows[rows["question"] != without].groupby(["arm", "fold", "seed"], sort=False)["auc"].mean().reset_index()
        )
    else:
        rows = rows[rows["question"] == question]
    return arm_scores(rows)


@cache
def differences(atlas: str, question: str) -> pd.DataFrame:
    """Return the differences in AUC of every method to ridge."""
    return compare_sites(
        scores(atlas, question), "ridge", "labels", f"{atlas_label(atlas)}, {NAMES.get(question, question)}"
    )


def compare_methods(atlas: str, first: str, second: str) -> pd.Series:
    """Compare two methods over all labels together: first minus second; one pair, not corrected."""
    return compare_pair(scores(atlas, TOGETHER), first, second, "single pairs", f"{atlas_label(atlas)}, all labels")


def compare_without(atlas: str, label: str) -> pd.Series:
    """Compare log-ridge with ridge over all labels but one; one pair, not corrected."""
    where = f"{atlas_label(atlas)}, all labels except {label}"
    return compare_pair(scores(atlas, TOGETHER, label), "log-ridge", "ridge", "single pairs", where)


def compare_sites_of_development(atlas: str, first: int) -> pd.Series:
    """Compare log-ridge with ridge over all labels at development sites (0) or at the others (1), not corrected."""
    half = scores(atlas, TOGETHER).sort_index().iloc[first::2]
    words = "other sites" if first else "development sites"
    return compare_pair(half, "log-ridge", "ridge", "single pairs", f"{atlas_label(atlas)}, all labels, {words}")


def is_largest_for(label: str) -> bool:
    """Return whether log-ridge differs most from ridge for a label, on both atlases."""
    labels = [question for question in list_questions() if question != TOGETHER]
    gains = {atlas: [differences(atlas, name).loc["log-ridge", "mean"] for name in labels] for atlas in ATLASES}
    return all(labels[int(np.argmax(gain))] == label for gain in gains.values())


def weigh_labels() -> dict[str, float]:
    """Return the weight of each label in the mean over all, averaged over sites."""
    asked = read_study(f"studies/{ATLASES[0]}/{STUDY}")[["fold", "question"]].drop_duplicates()
    shares = 1 / asked.groupby("fold")["question"].transform("size")
    weights = shares.groupby(asked["question"], sort=False).sum() / asked["fold"].nunique()
    return weights.to_dict()


def name_label(question: str) -> str:
    """Return a label as readers are shown it."""
    return NAMES.get(question, f"`{question}`")


def list_highest() -> list[str]:
    """List the method with the highest mean for each label and atlas."""
    return [str(scores(atlas, question).mean().idxmax()) for atlas in ATLASES for question in list_questions()]


def split_by_development(atlas: str, method: str) -> pd.Series:
    """Return the mean gain of a method over ridge for the diagnosis at development sites and others, and p of both."""
    first, second = split_gain(atlas, method)
    return pd.Series({"development": first.mean(), "others": second.mean(), "p": interaction(atlas, method).p})


def list_gains(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC of some methods to ridge, under their label, for the figure."""
    tables = {name_label(question): differences(atlas, question).loc[DRAWN] for question in list_questions()}
    return group_rows({name.replace("`", ""): table for name, table in tables.items()})
