"""Does a method do equally well in all participants?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import format_p, format_signed

from .comparisons import LEVEL
from .markdown import (
    STATISTICS,
    atlas_label,
    code,
    fixed,
    signed_interval,
    state,
    value_with_interval,
    write_page,
    write_table,
)
from .own_studies import ATLASES, describe_study, name_sources, read_arms, show_figure, write_study_commands

FILE = "subgroups.md"
TITLE = "Does a method do equally well in all participants?"
STUDY = "subgroups"


@cache
def rows(atlas: str) -> pd.DataFrame:
    """Return the subgroups of all methods, and below those of a variable the difference of the last and the first."""
    parts = [table.assign(method=method) for method, table in read_arms(STUDY, atlas).items()]
    return pd.concat(parts, ignore_index=True)


@cache
def differences() -> pd.DataFrame:
    """Return the differences between subgroups on both atlases; p Holm is corrected within a method and an atlas."""
    parts = [rows(atlas).assign(atlas=atlas) for atlas in ATLASES]
    table = pd.concat(parts, ignore_index=True)
    return table[table["p"].notna()]


def _subgroup_table(atlas: str) -> str:
    table = rows(atlas)
    table = table[table["p"].isna()]
    methods = list(table["method"].unique())
    out = []
    for (variable, subgroup), own in table.groupby(["variable", "subgroup"], sort=False):
        first = own.iloc[0]
        spread = f" ({first['range']})" if pd.notna(first["range"]) else ""
        counts = [f"{first[name]:.0f}" for name in ("patients", "controls", "sites")]
        by_method = own.set_index("method").loc[methods]
        scores = [value_with_interval(row["AUC"], row["low"], row["high"]) for _, row in by_method.iterrows()]
        out.append([f"{shorten(variable)}: {subgroup}{spread}", *counts, *scores])
    header = ["subgroup", "patients", "controls", "sites"]
    return write_table([*header, *(f"AUC of `{m}` (95 % interval)" for m in methods)], out)


def _difference_table(atlas: str) -> str:
    out = [
        [
            f"`{row['method']}`",
            f"{shorten(row['variable'])}: {row['subgroup'].replace(' third', '')}",
            format_signed(row["AUC"]),
            signed_interval(row["low"], row["high"]),
            signed_interval(row["random low"], row["random high"]),
            format_p(row["p"]),
            format_p(row["p Holm"]),
        ]
        for _, row in differences().query("atlas == @atlas").iterrows()
    ]
    header = ["method", "difference", "points", "95 % interval", "random subgroups", "p", "p, corrected"]
    return write_table(header, out)


def shorten(variable: str) -> str:
    """Return the name of a variable without its unit."""
    return variable.split(",")[0]


def _show_atlas(atlas: str) -> list[str]:
    figure = show_figure(STUDY, atlas, "AUC by sex, age, motion and scan length")
    return [f"## {atlas_label(atlas)}", _difference_table(atlas), figure, _subgroup_table(atlas)]


def page() -> str:
    """Return the page."""
    table = differences()
    smallest = table.loc[table["p Holm"].idxmin()]
    half_width = (table["high"] - table["low"]) / 2
    female = rows("aal116").query("subgroup == 'female'").iloc[0]
    (variable,) = table.loc[table["units"] == "sites", "variable"].unique()
    uncorrected = table[table["p"] <= LEVEL]
    return write_page(
        TITLE,
        state(
            "**No difference is shown between the sexes, or between thirds of age, motion and scan length.** Of "
            f"{len(table)} comparisons on two atlases, the smallest corrected p value is "
            f"{format_p(smallest['p Holm'])} ({shorten(smallest['variable'])}, `{smallest['method']}`, "
            f"{atlas_label(smallest['atlas'])}). Half the width of the intervals of the "
            f"differences is {fixed(half_width.min(), 0)} to {fixed(half_width.max(), 0)} points.",
            bool((table["p Holm"] > LEVEL).all()),
        ),
        "The study asks whether predictions at unseen sites separate patients from controls equally well in all "
        "participants. The AUC of a subgroup counts pairs of a patient and a control of the same site and the same "
        f"subgroup. {describe_study(STUDY)} {STATISTICS}",
        write_study_commands(STUDY),
        "Differences are of the last and the first subgroup. Intervals draw participants within sites and classes; for "
        f"{shorten(variable)} they draw sites, and are too narrow, as there are few "
        "([statistics](../statistics.md)). *Random subgroups*: where 95 % of the differences between random subgroups "
        "of the same sizes lie, drawn within sites "
        "and classes. Their mean is not zero where the subgroups come from different sites, which differ in AUC. p is "
        "how often they lie as far from their mean: it leaves such differences out, and the interval does not. It is "
        "corrected by Holm's method for the variables of a method.",
        *(block for atlas in ATLASES for block in _show_atlas(atlas)),
        "## What it shows",
        f"Without correction, {len(uncorrected)} of the {len(table)} comparisons have p at most 0.05"
        + (
            f": {code(uncorrected['method'])}, {shorten(uncorrected['variable'].iloc[0])}, on "
            f"{atlas_label(uncorrected['atlas'].iloc[0])}. "
            if len(uncorrected) and len(uncorrected[["variable", "atlas"]].drop_duplicates()) == 1
            else ". "
        )
        + "The two methods and the two atlases share participants, so that agreement between rows is no second "
        "finding.",
        "## What it cannot show",
        "That subgroups are equal: a difference within these intervals was not ruled out. There are "
        f"{female['patients']:.0f} female patients, and {female['pairs']:.0f} pairs of female participants within a "
        f"site. {shorten(variable).capitalize()} hardly differs within sites: its thirds are sites, drawn and "
        "exchanged as such, and a difference between them may be any other difference between these sites.",
        name_sources(STUDY),
    )
