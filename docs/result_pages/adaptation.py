"""What do a few labelled scans of a new hospital buy?"""

from __future__ import annotations

from functools import cache

import pandas as pd

from brio.formatting import format_number, format_signed
from brio.models import PriorWidths
from brio.studies.adaptation import DRAWS, LEAST_REST, summarise_sizes

from .markdown import STATISTICS, atlas_label, in_words, signed_interval, state, write_page, write_table
from .own_studies import ATLASES, describe_study, name_sources, read_arms, show_figures, write_study_commands

FILE = "adaptation.md"
TITLE = "What do a few labelled scans of a new hospital buy?"
STUDY = "adaptation"
KINDS = {"adapted": "default", "half": "half the widths", "double": "double the widths", "unshrunk": "not shrunk"}
"""Kinds of adaptation in the study, in words."""


@cache
def points(atlas: str, method: str) -> pd.DataFrame:
    """Return scores before adaptation and their changes, by number of local scans."""
    return summarise_sizes(read_arms(STUDY, atlas)[method])


def list_changes() -> pd.DataFrame:
    """Return one row per atlas, method and number of local scans above 0."""
    rows = [
        {"atlas": atlas, "method": method, "size": size, **point}
        for atlas in ATLASES
        for method in read_arms(STUDY, atlas)
        for size, point in points(atlas, method).iterrows()
        if size
    ]
    return pd.DataFrame(rows)


def missing_sites(size: int) -> list[str]:
    """Return the sites that are too small for a number of local scans."""
    rows = read_arms(STUDY, ATLASES[0])["ridge"]
    return sorted(set(rows["fold"]) - set(rows.loc[rows["size"] == size, "fold"]))


def _format_change(row: pd.Series, name: str, digits: int) -> str:
    return f"{format_signed(row[name], digits)} ({signed_interval(row[f'{name} low'], row[f'{name} high'], digits)})"


def _score_table() -> str:
    rows = []
    for atlas in ATLASES:
        for method in read_arms(STUDY, atlas):
            for size, row in points(atlas, method).iterrows():
                cells = [atlas_label(atlas), f"`{method}`", str(size), f"{row['sites']:.0f}"]
                brier = _format_change(row, "brier adapted", 3) if size else ""
                accuracy = _format_change(row, "accuracy adapted", 1) if size else ""
                cells += [format_number(row["brier"], 3), brier, format_number(row["accuracy"], 1), accuracy]
                rows.append(cells)
    header = ["atlas", "method", "local scans", "sites", "Brier before", "change (95 % interval)"]
    return write_table([*header, "accuracy before, %", "change, points (95 % interval)"], rows)


def _width_table() -> str:
    rows = []
    for _, row in list_changes().iterrows():
        changes = (_format_change(row, f"brier {kind}", 3) for kind in KINDS)
        rows.append([atlas_label(row["atlas"]), f"`{row['method']}`", str(row["size"]), *changes])
    return write_table(["atlas", "method", "local scans", *KINDS.values()], rows)


def page() -> str:
    """Return the page."""
    changes = list_changes()
    ten = changes[changes["size"] == 10]
    largest = changes["size"].max()
    widths = PriorWidths()
    shown = (changes["accuracy adapted low"] > 0).sum()
    gain = -changes["brier adapted"]
    first = read_arms(STUDY, ATLASES[0])["ridge"].query("size == 0")
    share = first.eval("patients / (patients + controls)")
    return write_page(
        TITLE,
        state(
            "**Slightly better probabilities, and hardly more right answers.** Adapting slope and intercept to ten "
            f"local scans lowers the Brier score by {format_number(-ten['brier adapted'].max(), 3)} to "
            f"{format_number(-ten['brier adapted'].min(), 3)}; the interval lies below zero in "
            f"{(ten['brier adapted high'] < 0).sum()} of {len(ten)} cases, two methods on two atlases. Forty scans are "
            "not seen to buy more. Accuracy changes by "
            f"{format_signed(changes['accuracy adapted'].min())} to {format_signed(changes['accuracy adapted'].max())} "
            f"points; its interval is above zero in {shown} of {len(changes)} cases.",
            bool((ten["brier adapted"] < 0).all() and (ten["brier adapted high"] < 0).any())
            and gain[changes["size"] == largest].max() < gain.max() + 0.001
            and shown < len(changes) / 2,
        ),
        "The study asks what a hospital gains that has some scans with diagnoses of its own. Slope and intercept of "
        "the logits are fitted to local scans and shrunk towards no change; weights stay ([Adapting a "
        "model](../adapt.md)). Local scans are drawn at random from the test site with its share of patients, "
        f"{DRAWS} times for each fold and seed. The other scans of the site are scored, before and after. A site needs "
        f"{LEAST_REST} scans to score beyond the local ones. Accuracy is that of the more probable class. "
        f"{describe_study(STUDY)} {STATISTICS}",
        write_study_commands(STUDY),
        _score_table(),
        "Too small: "
        + "; ".join(
            f"for {size} local scans {in_words(names)}" for size in (10, 20, 40) if (names := missing_sites(size))
        )
        + ".",
        *show_figures(STUDY, "Change of the Brier score and of accuracy against the number of local scans"),
        "Change of the Brier score by how strongly slope and intercept are shrunk. The default widths of the prior are "
        f"{widths.slope:g} for the logarithm of the slope and {widths.intercept:g} for the intercept:",
        _width_table(),
        "## What it shows",
        state(
            "Shrinkage is what makes few scans useful. Without it, ten scans make the Brier score worse by "
            f"{format_number(ten['brier unshrunk'].min(), 3)} to {format_number(ten['brier unshrunk'].max(), 3)}. "
            "Double the default widths gain about as much, half of them about half as much.",
            bool((ten["brier unshrunk"] > 0).all())
            and 0.75 < changes["brier double"].mean() / changes["brier adapted"].mean() < 1.25
            and 0.35 < changes["brier half"].mean() / changes["brier adapted"].mean() < 0.65,
        ),
        "## What it cannot show",
        "Sizes cannot be compared with each other: only larger sites have forty scans to spare, and their scores were "
        "better before. The default widths are near what slope and intercept of these very sites differ by "
        "([calibration](calibration.md)), which was known when they were set; other hospitals may differ more. "
        f"Intervals are not corrected for {len(changes)} cases. Patients are {100 * share.min():.0f} to "
        f"{100 * share.max():.0f} % of a site here. What a hospital gains where they are rare was not measured on real "
        "scans.",
        name_sources(STUDY),
    )
