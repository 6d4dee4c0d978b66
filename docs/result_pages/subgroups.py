"""Is the AUC the same in all subgroups of participants?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from .evidence import read_arms, stack_atlases

STUDY = "subgroups"


@cache
def rows(atlas: str) -> pd.DataFrame:
    """Return the subgroups of all methods, and below those of a variable the difference of the last and the first."""
    parts = [table.assign(method=method) for method, table in read_arms(STUDY, atlas).items()]
    return pd.concat(parts, ignore_index=True)


def differences() -> pd.DataFrame:
    """Return the differences between subgroups on both atlases; p Holm is corrected within a method and an atlas."""
    table = stack_atlases(rows).reset_index(drop=True)
    return table[table["p"].notna()]


def middle_age_is_highest() -> bool:
    """Return whether the middle third of age has the highest AUC of the thirds, for all methods and atlases."""
    table = stack_atlases(rows)
    thirds = table[table["variable"].str.startswith("age") & table["p"].isna()]
    highest = thirds.sort_values("AUC").groupby(["atlas", "method"]).tail(1)
    return bool(highest["subgroup"].eq("middle third").all())


def shorten(variable: str) -> str:
    """Return the name of a variable without its unit."""
    return variable.split(",")[0]


def list_drawn(atlas: str, method: str) -> pd.DataFrame:
    """Return the AUC of a method in each subgroup, under its variable, for the figure."""
    own = rows(atlas).query("method == @method and p.isna()")
    table = own.set_index("subgroup").rename(columns={"AUC": "mean"})
    return table.assign(group=table["variable"])
