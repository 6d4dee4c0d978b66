"""Whether scores hold among participants who moved alike."""

from __future__ import annotations

from brio.formatting import format_signed

from .evidence import read_measured_table
from .markdown import atlas_label, fixed, signed_interval, state, write_commands, write_table

MEASUREMENT = "motion-matched.txt"
ALONE = "displacement alone"


def write_motion() -> list[str]:
    """Return the section on participants matched by motion."""
    table = read_measured_table(MEASUREMENT)
    numbers = ["all", "paired", "difference", "low", "high"]
    table[numbers] = table[numbers].astype(float)
    motion, methods = (table[(table["method"] == ALONE) == alone] for alone in (True, False))
    read = methods[methods["method"] != "covariates-only"]
    rows = [
        [
            atlas_label(row["cohort"]),
            row["method"] if row["method"] == ALONE else f"`{row['method']}`",
            fixed(row["all"]),
            fixed(row["paired"]),
            format_signed(row["difference"]),
            signed_interval(row["low"], row["high"]),
        ]
        for _, row in table.iterrows()
    ]
    return [
        "## Participants who moved alike",
        state(
            "Patients move more. Among patients and controls of a site who were paired by their mean framewise "
            f"displacement, the AUC of displacement alone is {fixed(motion['paired'].iloc[0])} instead of "
            f"{fixed(motion['all'].iloc[0])}. That of methods that read connectomes differs by "
            f"{format_signed(read['difference'].min())} to {format_signed(read['difference'].max())} points, nowhere "
            f"significantly; a loss of {fixed(-read['low'].min())} points is not excluded. Models were trained on all "
            "participants; only the test participants are paired.",
            bool((motion["difference"] < 0).all()) and bool(((read["low"] < 0) & (read["high"] > 0)).all()),
        ),
        write_table(["atlas", "method", "AUC, all", "AUC, paired", "difference", "95 % interval"], rows),
        "Logits of three seeds are averaged. Intervals are corrected t intervals over sites; both AUCs are of the "
        "same fitted models, so they are rather too wide. BRIO is of version 3.",
        write_commands("python benchmarks/motion_matched.py abide-aal JOBS"),
    ]
