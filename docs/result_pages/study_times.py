"""How long the paper's studies take, from the stored output of ``benchmarks/paper_studies.py``."""

from __future__ import annotations

import re

import pandas as pd

from brio.studies.study import PAPER

COLUMNS = ["study", "arms", "runs", "training s", "whole s", "products, TFLOP"]

_ARM = re.compile(r"# (?P<name>\w+ [^:]+): (?P<runs>\d+) runs, (?P<seconds>[\d.]+) s(, (?P<products>\d+) TFLOP)?")


def parse_study_times(text: str) -> pd.DataFrame:
    """Read the times of each study, as one process would have taken them.

    Where the studies ran in several processes, one after the other in the text, a later process trains arms again
    that studies of an earlier one had trained. They are taken out of its rows. Rows of sums are left out, and so are
    arms of a study that was not finished.

    Parameters
    ----------
    text : str

    Returns
    -------
    DataFrame
        Columns :data:`COLUMNS`; seconds and products are floats.

    Raises
    ------
    ValueError
        If a study occurs twice, or has more or fewer arms in its row than lines of arms.
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
            if cells[0] in [row[0] for row in rows]:
                raise ValueError(f"{cells[0]}: occurs twice")
            if len(arms) != int(cells[1]):
                raise ValueError(f"{cells[0]}: its row has {cells[1]} arms, but {len(arms)} lines are of arms")
            repeated = [match for name, match in arms.items() if name in trained]
            rows.append([cells[0], *_subtract(cells[1:], repeated)])
            trained |= arms.keys()
            arms = {}
    return pd.DataFrame(rows, columns=COLUMNS)


def _subtract(cells: list[str], repeated: list[re.Match[str]]) -> list[float]:
    """Subtract repeated arms from the numbers in the row of a study."""
    n_arms, n_runs, training, whole, products = map(float, cells)
    runs_again, seconds_again, products_again = (
        sum(float(arm[what] or 0) for arm in repeated) for what in ("runs", "seconds", "products")
    )
    return [
        int(n_arms) - len(repeated),
        int(n_runs - runs_again),
        training - seconds_again,
        whole - seconds_again,
        products - products_again,
    ]
