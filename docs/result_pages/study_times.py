"""How long the paper's studies take, from the stored output of ``benchmarks/paper_studies.py``."""

from __future__ import annotations

import re

import pandas as pd

from brio.studies.study import PAPER

__all__ = ["COLUMNS", "parse_study_times"]

COLUMNS = ["study", "arms", "runs", "training s", "whole s", "products, TFLOP"]

_ARM = re.compile(r"# (?P<name>\w+ [^:]+): (?P<runs>\d+) runs, (?P<seconds>[\d.]+) s(, (?P<products>\d+) TFLOP)?")


def parse_study_times(text: str) -> pd.DataFrame:
    """Parse the row of each study, as if one process had made all of them.

    Where the studies were made in several processes, one after the other in the text, a later process trains arms again
    that studies of an earlier one had trained. They are taken out of its rows. Rows of sums are left out, and so are
    arms of a study that was not finished.

    Parameters
    ----------
    text : str

    Returns
    -------
    DataFrame
        Columns :data:`COLUMNS`; seconds and products are floats.
    """
    rows: list[list[object]] = []
    trained: set[str] = set()
    arms: dict[str, re.Match[str]] = {}
    for line in text.splitlines():
        arm = _ARM.fullmatch(line)
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if arm is not None:
            arms[arm["name"]] = arm
        elif cells[0] == COLUMNS[0]:  # the header of another process
            arms = {}
        elif cells[0] in PAPER:
            repeated = [match for name, match in arms.items() if name in trained]
            runs, seconds, products = (
                sum(float(match[what] or 0) for match in repeated) for what in ("runs", "seconds", "products")
            )
            measured = [float(cell) for cell in cells[1:]]
            less = [len(repeated), runs, seconds, seconds, products]
            n_arms, n_runs, *others = [value - again for value, again in zip(measured, less, strict=True)]
            rows.append([cells[0], int(n_arms), int(n_runs), *others])
            trained |= arms.keys()
            arms = {}
    return pd.DataFrame(rows, columns=COLUMNS)
