"""What differs when scans are read to be predicted: sites, labels and a participants table are optional."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ...errors import BrioError
from ..repetition_time import is_repetition_time

TR_TOLERANCE = 0.005
"""Seconds by which two statements of a repetition time may differ."""


@dataclass(frozen=True)
class ScansToPredict:
    """Tell a reader that the scans are to be predicted, so that one scan without site and label is enough."""

    tr: float | None = None
    known_header: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.tr is not None and not is_repetition_time(self.tr):
            raise BrioError(f"the repetition time cannot be {self.tr}; give the seconds between frames, for example 2")


def choose_tr(in_file: float | None, in_table: str | None, path: Path, default: float | None = None) -> float | None:
    """Choose the repetition time of a scan: that of its file or of the table, which must agree, else the default.

    Returns seconds; None where nobody states it.
    """
    if in_table is None:
        return default if in_file is None else in_file
    try:
        stated = float(in_table)
    except ValueError:
        stated = math.nan
    if not is_repetition_time(stated):
        raise BrioError(f"{path}: its tr in the participants table is '{in_table}'; write seconds, for example 2")
    if in_file is not None and abs(in_file - stated) > TR_TOLERANCE:
        raise BrioError(
            f"{path}: its repetition time is {in_file:g} s in the file, but {stated:g} s in the table; correct the "
            "column 'tr' of the participants table"
        )
    return stated
