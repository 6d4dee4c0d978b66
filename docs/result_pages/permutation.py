"""Could the AUC be chance?"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from brio.formatting import format_p
from brio.results import ESTIMANDS
from brio.studies.permutation import compute_p

from .markdown import STATISTICS, atlas_label, fixed, interval, state, write_page, write_table
from .own_studies import (
    ATLASES,
    describe_study,
    name_sources,
    read_arms,
    show_figures,
    write_study_commands,
)
from .unseen_scores import scores

FILE = "permutation.md"
TITLE = "Could the AUC be chance?"
STUDY = "permutation"
_COLUMNS = dict(zip(("auc", "pair_weighted_auc"), ESTIMANDS, strict=True))


@cache
def summary() -> pd.DataFrame:
    """Return observed and permuted AUC of each atlas, method and estimand, in percent."""
    rows = []
    for atlas in ATLASES:
        for method, table in read_arms(STUDY, atlas).items():
            for column, estimand in _COLUMNS.items():
                observed = 100 * table.loc[table["permutation"] == 0, column].item()
                permuted = 100 * table.loc[table["permutation"] > 0, column].to_numpy()
                low, high = np.quantile(permuted, [0.025, 0.975])
                rows.append(
                    {"atlas": atlas, "method": method, "estimand": estimand, "observed": observed}
                    | {"mean": permuted.mean(), "sd": permuted.std(ddof=1), "low": low, "high": high}
                    | {"largest": permuted.max(), "n": len(permuted), "p": compute_p(observed, permuted)}
                )
    return pd.DataFrame(rows)


def _table() -> str:
    rows = [
        [
            atlas_label(row["atlas"]),
            f"`{row['method']}`",
            row["estimand"],
            fixed(row["observed"]),
            fixed(row["mean"]),
            fixed(row["sd"]),
            interval(row["low"], row["high"]),
            fixed(row["largest"]),
            format_p(row["p"]),
        ]
        for _, row in summary().iterrows()
    ]
    header = ["atlas", "method", "mean of AUC", "AUC", "permuted mean", "SD", "95 % of permutations", "largest", "p"]
    return write_table(header, rows)


def page() -> str:
    """Return the page."""
    table = summary()
    (n,) = table["n"].unique()
    control = scores("aal116")["covariates-only"].mean()
    return write_page(
        TITLE,
        state(
            f"**No.** None of {n:,} permutations of the labels reaches the AUC of either method, on either atlas, by "
            f"either mean of AUC. The highest permuted AUC is {fixed(table['largest'].max())}, the lowest observed one "
            f"{fixed(table['observed'].min())}.",
            bool((table["largest"] < table["observed"]).all()),
        ),
        "The study asks how high the AUC would come out if connectomes said nothing about the diagnosis. Labels are "
        "permuted within sites, so that every site keeps its number of patients, and the whole pipeline is run on "
        f"them, the choice of the penalty included. {describe_study(STUDY)} p values are one-sided, (1 + permutations "
        f"at least as high) / (1 + permutations); the smallest that {n:,} permutations allow is 1/{1 + n:,}. "
        f"{STATISTICS}",
        write_study_commands(STUDY),
        _table(),
        *show_figures(STUDY, "AUC with permuted labels (histogram) and with the true ones (line)"),
        "## What it shows",
        state(
            f"With this cohort and protocol, chance alone spreads the AUC with an SD of {fixed(table['sd'].min())} to "
            f"{fixed(table['sd'].max())} points: an AUC below about {fixed(table['high'].max(), 0)} would be no "
            f"evidence. Its mean is {fixed(table['mean'].min())} to {fixed(table['mean'].max())}. A pipeline in which "
            "labels of the test site leak into training would score above one half with permuted labels too.",
            bool(((table["mean"] - 50).abs() < 0.5).all()),
        ),
        "## What it cannot show",
        "It does not say what the signal is. Patients and controls differ in age, sex and motion, and permuting labels "
        f"breaks these links as well: those three alone reach {fixed(control)} at unseen sites (`covariates-only`, "
        "[all methods](unseen-sites.md)). It compares a method with chance, not with another method. Networks were not "
        "permuted.",
        name_sources(STUDY),
    )
