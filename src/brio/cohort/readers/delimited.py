"""Split lines of delimited text into cells. A quoted cell ends in its own line."""

from __future__ import annotations

import csv
from pathlib import Path

from ...errors import BrioError

__all__ = ["split_line"]


def split_line(path: Path, number: int, line: str, delimiter: str | None) -> list[str]:
    """Split a line into cells without the blanks around them.

    A quote that is not closed in its line is an error: read on, it would swallow the rows that follow.

    Parameters
    ----------
    path : Path
        The file, for error messages.
    number : int
        Number of the line in it, from 1.
    line : str
    delimiter : str or None
        None means any run of blanks.

    Returns
    -------
    list of str

    Raises
    ------
    BrioError
        If a quoted cell does not end in this line, or a cell is very long.

    Examples
    --------
    >>> split_line(Path("people.csv"), 2, '007,"Smith, A", F', ",")
    ['007', 'Smith, A', 'F']
    """
    if delimiter is None:
        return line.split()
    if '"' not in line and len(line) < csv.field_size_limit():
        return [cell.strip() for cell in line.split(delimiter)]
    try:
        cells = next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        if "limit" in str(error):
            problem = f"a cell of more than {csv.field_size_limit():,} characters"
        else:
            problem = "a quote that is not closed in this line, or text beside a quoted cell"
        raise BrioError(f"{path}: line {number} has {problem}; correct it") from error
    return [cell.strip() for cell in cells]
