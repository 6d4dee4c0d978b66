"""Read participants tables: identifiers stay text, and labels are mapped to two classes."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import BrioError, nearest

__all__ = [
    "Roster",
    "TextTable",
    "describe_skipped",
    "extract_covariates",
    "find_table",
    "map_labels",
    "read_participants",
    "read_roster",
]

MISSING = frozenset({"", "n/a", "na", "nan"})
RESERVED_COLUMNS = ("participant_id", "site", "label", "n_frames")
"""Columns that brio writes itself."""


@dataclass(frozen=True)
class TextTable:
    """A table in which every value is text.

    Attributes
    ----------
    path : Path
        Its file, for error messages.
    columns : list of str
    rows : list of dict
        Value of each column; None where it is missing.
    """

    path: Path
    columns: list[str]
    rows: list[dict[str, str | None]]

    def require_column(self, column: str, option: str | None = None) -> None:
        """Raise :class:`BrioError` unless the table has a column.

        Parameters
        ----------
        column : str
        option : str, optional
            Command-line option that names another column, for the message.
        """
        if column not in self.columns:
            columns = [c for c in self.columns if c]
            hint = nearest(column, columns)
            listing = "" if hint.startswith("known") else f" It has {', '.join(columns)}"
            remedy = f"; {option} can name another" if option else ""
            raise BrioError(f"{self.path}: there is no column '{column}', {hint}{listing}{remedy}")

    def read_ids(self, column: str) -> list[str]:
        """Read a column whose values must be present and unique.

        Parameters
        ----------
        column : str

        Returns
        -------
        list of str
            One identifier per row.

        Raises
        ------
        BrioError
            If the column or a value is missing, or a value appears twice.
        """
        self.require_column(column)
        first_row: dict[str, int] = {}
        for number, row in enumerate(self.rows, start=1):
            participant = row[column]
            if participant is None:
                raise BrioError(f"{self.path}: column '{column}' is empty in row {number}")
            if participant in first_row:
                raise BrioError(
                    f"{self.path}: participant {participant} appears in rows {first_row[participant]} and {number}; "
                    "keep one"
                )
            first_row[participant] = number
        return list(first_row)


@dataclass
class Roster:
    """Participants with site and label, to be matched with their scans.

    Attributes
    ----------
    rows : list of dict
        ``participant_id``, ``site``, ``label`` (0 or 1) and every other column of the source.
    classes : tuple of two str
        Names of the labels 0 and 1.
    skipped : list of dict
        ``participant_id`` and ``reason`` of each row that cannot be used.
    """

    rows: list[dict[str, Any]]
    classes: tuple[str, str]
    skipped: list[dict[str, str]] = field(default_factory=list)


def describe_skipped(participant_id: str, reason: str, file: str | None = None) -> dict[str, str]:
    """Make an entry of ``provenance["skipped"]``.

    Parameters
    ----------
    participant_id : str
        The participant, or the name of the file where the participant is unknown.
    reason : str
    file : str, optional
        Name of the file that was skipped.

    Returns
    -------
    dict
    """
    return {"participant_id": participant_id, "reason": reason} | ({} if file is None else {"file": file})


def find_table(src: Path, requested: str | Path | None) -> Path:
    """Find the participants table.

    Parameters
    ----------
    src : Path
        Folder with the scans.
    requested : str or Path, optional
        Path of the table, or its name in ``src``; by default participants.tsv or participants.csv in ``src``.

    Returns
    -------
    Path

    Raises
    ------
    BrioError
        If there is no table, or there are two and none is requested.
    """
    if requested is not None:
        paths = [path for path in (Path(requested), src / requested) if path.is_file()]
        if not paths:
            raise BrioError(f"{requested}: no such participants table, neither here nor in {src}")
        return paths[0]
    paths = [path for path in (src / "participants.tsv", src / "participants.csv") if path.is_file()]
    if len(paths) != 1:
        problem = "there are both participants.tsv and participants.csv" if paths else "there is no participants.tsv"
        raise BrioError(f"{src}: {problem}; name the table with --participants")
    return paths[0]


def read_participants(path: Path) -> TextTable:
    """Read a tsv or csv table as text, so that ``0050002`` keeps its zeros.

    Returns
    -------
    TextTable

    Raises
    ------
    BrioError
        If the file cannot be read, has no rows, repeats a column, or has rows of unequal length.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            lines = list(csv.reader(file, delimiter=_find_delimiter(path, head)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BrioError(f"{path}: cannot be read as a table ({error})") from error
    lines = [line for line in lines if any(cell.strip() for cell in line)]
    if len(lines) < 2:
        raise BrioError(f"{path}: needs a header and at least one row")
    columns = [c.strip() for c in lines[0]]
    repeated = [c for c, n in Counter(columns).items() if c and n > 1]
    if repeated:
        raise BrioError(f"{path}: column '{repeated[0]}' appears more than once in the header")
    rows = []
    for number, line in enumerate(lines[1:], start=1):
        if len(line) < len(columns) or any(cell.strip() for cell in line[len(columns) :]):
            raise BrioError(f"{path}: row {number} has {len(line)} cells, the header {len(columns)}")
        cells = [cell.strip() for cell in line]
        rows.append({c: None if v.lower() in MISSING else v for c, v in zip(columns, cells, strict=False)})
    return TextTable(path, columns, rows)


def _find_delimiter(path: Path, head: str) -> str:
    if path.suffix.lower() == ".csv":
        return "," if "," in head else ";"
    return "\t"


def read_roster(
    path: Path,
    *,
    site_column: str | None = None,
    label_column: str | None = None,
    patient: str | None = None,
    control: str | None = None,
) -> Roster:
    """Read a participants table with its sites and labels.

    Parameters
    ----------
    path : Path
        A tsv or csv table with a column ``participant_id``.
    site_column, label_column : str, optional
        Columns of the site and the label, ``site`` and ``label`` by default.
    patient, control : str, optional
        Values of the label column for patients (1) and controls (0), see :func:`map_labels`.

    Returns
    -------
    Roster
        Rows without a site or a label, or of another group, are listed as skipped.
    """
    table = read_participants(path)
    site_column, label_column = site_column or "site", label_column or "label"
    ids = table.read_ids("participant_id")
    table.require_column(site_column, "--site-column")
    table.require_column(label_column, "--label-column")
    labels, classes = map_labels(
        [r[label_column] for r in table.rows], f"{path}: column '{label_column}'", patient, control
    )
    roster = Roster([], classes)
    used = {"participant_id", site_column, label_column}
    for participant, label, row in zip(ids, labels, table.rows, strict=True):
        if row[site_column] is None:
            roster.skipped.append(describe_skipped(participant, f"no site in column '{site_column}'"))
        elif row[label_column] is None:
            roster.skipped.append(describe_skipped(participant, f"no label in column '{label_column}'"))
        elif label is None:
            roster.skipped.append(
                describe_skipped(participant, f"label '{row[label_column]}' is neither patient nor control")
            )
        else:
            required = {"participant_id": participant, "site": row[site_column], "label": label}
            roster.rows.append(required | extract_covariates(row, used))
    return roster


def extract_covariates(row: dict[str, str | None], used: set[str]) -> dict[str, str | None]:
    """Extract the columns of a row that are kept as covariates.

    Parameters
    ----------
    row : dict
    used : set of str
        Columns to leave out: identifier, site and label.

    Returns
    -------
    dict
        A column whose name brio uses itself is renamed to ``<name>_in_source``.
    """
    return {f"{c}_in_source" if c in RESERVED_COLUMNS else c: v for c, v in row.items() if c and c not in used}


def map_labels(
    values: list[str | None], where: str, patient: str | None, control: str | None
) -> tuple[list[int | None], tuple[str, str]]:
    """Map text to the labels 1 (patient) and 0 (control).

    Parameters
    ----------
    values : list of str or None
        None where a value is missing.
    where : str
        File and column of the values, for error messages.
    patient, control : str or None
        Values that mean 1 and 0. If both are None, the values must be 0 and 1. If one is given, there must be exactly
        two values. If both are given, any other value is a group to skip.

    Returns
    -------
    labels : list of 0, 1 or None
        None for a missing value or another group.
    classes : tuple of two str
        Names of the labels 0 and 1.

    Raises
    ------
    BrioError
        If the values do not give two classes.
    """
    counts = Counter(v for v in values if v is not None)
    listing = ", ".join(f"'{v}' ({n})" for v, n in sorted(counts.items())) or "nothing"
    for value, option in ((patient, "--patient"), (control, "--control")):
        if value is not None and not any(_is_equal(v, value) for v in counts):
            raise BrioError(f"{where} has no value '{value}' for {option}; it holds {listing}")
    if patient is None and control is None:
        if not all(_is_equal(v, "0") or _is_equal(v, "1") for v in counts):
            raise BrioError(f"{where} holds {listing}; name two values with --patient and --control")
        patient, control = "1", "0"
    else:
        rest = [v for v in counts if not any(_is_equal(v, value) for value in (patient, control) if value is not None)]
        if (patient is None or control is None) and len(rest) != 1:
            raise BrioError(f"{where} holds {listing}; name two values with --patient and --control")
        patient = rest[0] if patient is None else patient
        control = rest[0] if control is None else control
    if _is_equal(patient, control):
        raise BrioError(f"{where}: --patient and --control are both '{patient}'")
    mapped = [
        None if v is None else 1 if _is_equal(v, patient) else 0 if _is_equal(v, control) else None for v in values
    ]
    if {0, 1} - set(mapped):
        raise BrioError(f"{where} holds {listing}: one class only; two classes are needed")
    return mapped, (control, patient)


def _is_equal(value: str, other: str) -> bool:
    """Compare as text, then as numbers (``1.0`` is ``1``)."""
    if value == other:
        return True
    try:
        return float(value) == float(other)
    except ValueError:
        return False
