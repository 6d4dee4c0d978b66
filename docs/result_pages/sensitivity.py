"""How sensitive is BRIO to K, J and the block length?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import format_signed, state_p

from .comparisons import Verdict, arm_scores, compare_sites, group_rows, judge, shown
from .evidence import ATLASES, atlas_label, read_study

STUDIES = {atlas: f"studies/{atlas}/sensitivity" for atlas in ATLASES}
SETTINGS = {"K": "number of re-estimates, K", "J": "number of factors, J", "block": "block length / estimate"}
CLAIMS = {
    "K": ("AUC rises as K increases from small values", ["brio,K=2"]),
    "J": ("Intermediate values of J are better than very small or large ones", ["brio,J=1,d_t=64", "brio,J=16,d_t=4"]),
    "block": (
        "The estimated block length is better than half and twice that length",
        ["brio,block_scale=0.5", "brio,block_scale=2.0"],
    ),
}
"""What the paper says of each setting, and the arms that say whether it is so."""


@cache
def scores(atlas: str, setting: str) -> pd.DataFrame:
    """Return the AUC at each test site for each value of a setting, BRIO's own value under the name ``brio``."""
    rows = read_study(STUDIES[atlas])
    return arm_scores(rows[rows["setting"] == setting])


@cache
def differences(atlas: str, setting: str) -> pd.DataFrame:
    """Return the differences in AUC to BRIO's own value."""
    return compare_sites(scores(atlas, setting), "brio", "sensitivity", f"{atlas_label(atlas)}, {setting}")


def list_differences() -> list[pd.DataFrame]:
    """List the differences of all settings on both atlases."""
    return [differences(atlas, setting) for atlas in ATLASES for setting in SETTINGS]


def find_largest_change(setting: str) -> float:
    """Return the largest absolute difference to BRIO's own value on either atlas."""
    return max(differences(atlas, setting)["mean"].abs().max() for atlas in ATLASES)


def mean_scores(atlas: str, setting: str) -> pd.Series:
    """Return the mean AUC over test sites for each value of a setting."""
    return scores(atlas, setting).mean()


def values(setting: str) -> dict[str, float]:
    """Return the value of a setting in each arm, smallest first."""
    rows = read_study(STUDIES["aal116"])
    return rows[rows["setting"] == setting].groupby("arm", sort=False)["value"].first().sort_values().to_dict()


def list_changes_of(atlas: str) -> pd.DataFrame:
    """Return the differences in AUC to BRIO's own values, named by value under their setting, for the figure."""
    named = {name: {arm: f"{value:g}" for arm, value in values(name).items()} for name in SETTINGS}
    return group_rows({SETTINGS[name]: differences(atlas, name).rename(index=named[name]) for name in SETTINGS})


@cache
def judge_claims() -> list[Verdict]:
    """Return the verdicts on the paper's sensitivity analysis; BRIO's own values are its reference."""
    verdicts = []
    for atlas in ATLASES:
        for setting, (claim, arms) in CLAIMS.items():
            table = differences(atlas, setting).loc[arms]
            measured = ", ".join(
                f"{setting} = {values(setting)[arm]:g}: {format_signed(row['mean'])} ({state_p(row['p_holm'])})"
                for arm, row in table.iterrows()
            )
            word = judge(len(shown(table, -1)), len(shown(table, 1)), len(table))
            verdicts.append((f"{claim} ({atlas_label(atlas)})", f"AUC minus BRIO in points, {measured}", word))
    return verdicts
