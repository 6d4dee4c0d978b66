"""The table of participants: text that stays text, sites, and two classes of labels."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import BrioError, nearest

__all__ = ["Roster", "Table", "binary_labels", "covariates", "find_table", "read_participants", "read_roster", "skip"]

MISSING = frozenset({"", "n/a", "na", "nan"})
OWN_COLUMNS = ("participant_id", "site", "label", "n_frames")


@dataclass(frozen=True)
class Table:
    """Rows of text; a missing value is None."""

    path: Path
    columns: list[str]
    rows: list[dict[str, str | None]]

    def require(self, column: str, option: str | None = None) -> None:
        """Raise unless the table has the column; ``option`` is what would name another one."""
        if column not in self.columns:
            named = [c for c in self.columns if c]
            hint = nearest(column, named)
            listed = "" if hint.startswith("known") else f" It has {', '.join(named)}"
            other = f"; {option} can name another" if option else ""
            raise BrioError(f"{self.path}: there is no column '{column}', {hint}{listed}{other}")

    def ids(self, column: str) -> list[str]:
        """The values of a column that must name every row, once each."""
        self.require(column)
        seen: dict[str, int] = {}
        for number, row in enumerate(self.rows, start=1):
            who = row[column]
            if who is None:
                raise BrioError(f"{self.path}: column '{column}' is empty in row {number}")
            if who in seen:
                raise BrioError(f"{self.path}: participant {who} appears in rows {seen[who]} and {number}; keep one")
            seen[who] = number
        return list(seen)


@dataclass
class Roster:
    """Participants with site and label, ready to meet their scans.

    Attributes
    ----------
    rows : list of dict
        ``participant_id``, ``site``, ``label`` (0 or 1) and every other column of the source.
    classes : tuple of two str
        What 0 and 1 mean.
    skipped : list of dict
        ``participant_id`` and ``reason`` of each row that was left out.
    """

    rows: list[dict[str, Any]]
    classes: tuple[str, str]
    skipped: list[dict[str, str]] = field(default_factory=list)


def skip(participant_id: str, reason: str, **more: str) -> dict[str, str]:
    """One entry of ``provenance["skipped"]``."""
    return {"participant_id": participant_id, "reason": reason, **more}


def find_table(src: Path, named: str | Path | None) -> Path:
    """The participants table: the one named (as a path or inside ``src``), or participants.tsv/.csv in ``src``."""
    if named is not None:
        found = [p for p in (Path(named), src / named) if p.is_file()]
        if not found:
            raise BrioError(f"{named}: no such participants table, neither here nor in {src}")
        return found[0]
    found = [p for p in (src / "participants.tsv", src / "participants.csv") if p.is_file()]
    if len(found) != 1:
        problem = "there are both participants.tsv and participants.csv" if found else "there is no participants.tsv"
        raise BrioError(f"{src}: {problem}; say which table with --participants")
    return found[0]


def read_participants(path: Path) -> Table:
    """Read a tsv or csv table as text, so that ``0050002`` keeps its zeros."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            lines = list(csv.reader(file, delimiter=_delimiter(path, head)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BrioError(f"{path}: cannot be read as a table ({error})") from error
    lines = [line for line in lines if any(cell.strip() for cell in line)]
    if len(lines) < 2:
        raise BrioError(f"{path}: needs a header and at least one row")
    columns = [c.strip() for c in lines[0]]
    doubled = [c for c, n in Counter(columns).items() if c and n > 1]
    if doubled:
        raise BrioError(f"{path}: column '{doubled[0]}' appears more than once in the header")
    rows = []
    for number, line in enumerate(lines[1:], start=1):
        if len(line) < len(columns) or any(cell.strip() for cell in line[len(columns) :]):
            raise BrioError(f"{path}: row {number} has {len(line)} cells, the header {len(columns)}")
        cells = [cell.strip() for cell in line]
        rows.append({c: None if v.lower() in MISSING else v for c, v in zip(columns, cells, strict=False)})
    return Table(path, columns, rows)


def _delimiter(path: Path, head: str) -> str:
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
    """Read a participants table and settle sites and labels; rows without either are listed as skipped."""
    table = read_participants(path)
    site_column, label_column = site_column or "site", label_column or "label"
    ids = table.ids("participant_id")
    table.require(site_column, "--site-column")
    table.require(label_column, "--label-column")
    labels, classes = binary_labels(
        [r[label_column] for r in table.rows], f"{path}: column '{label_column}'", patient, control
    )
    roster = Roster([], classes)
    used = {"participant_id", site_column, label_column}
    for who, label, row in zip(ids, labels, table.rows, strict=True):
        if row[site_column] is None:
            roster.skipped.append(skip(who, f"no site in column '{site_column}'"))
        elif row[label_column] is None:
            roster.skipped.append(skip(who, f"no label in column '{label_column}'"))
        elif label is None:
            roster.skipped.append(skip(who, f"label '{row[label_column]}' is neither patient nor control"))
        else:
            person = {"participant_id": who, "site": row[site_column], "label": label}
            roster.rows.append(person | covariates(row, used))
    return roster


def covariates(row: dict[str, str | None], used: set[str]) -> dict[str, str | None]:
    """The other columns of a row; one that bears a name of our own is kept as ``<name>_in_source``."""
    return {f"{c}_in_source" if c in OWN_COLUMNS else c: v for c, v in row.items() if c and c not in used}


def binary_labels(
    values: list[str | None], where: str, patient: str | None, control: str | None
) -> tuple[list[int | None], tuple[str, str]]:
    """Map text to 1 (patient) and 0 (control).

    Without ``patient`` and ``control`` the values must be 0 and 1. With one of them there must be exactly two
    values. With both, any other value is a group the user left out: None.

    Returns
    -------
    labels : list of 0, 1 or None
    classes : tuple of two str
        Names of 0 and 1.
    """
    counts = Counter(v for v in values if v is not None)
    held = ", ".join(f"'{v}' ({n})" for v, n in sorted(counts.items())) or "nothing"
    for asked, option in ((patient, "--patient"), (control, "--control")):
        if asked is not None and not any(_same(v, asked) for v in counts):
            raise BrioError(f"{where} has no value '{asked}' for {option}; it holds {held}")
    if patient is None and control is None:
        if not all(_same(v, "0") or _same(v, "1") for v in counts):
            raise BrioError(f"{where} holds {held}; say which two values to take with --patient and --control")
        patient, control = "1", "0"
    else:
        rest = [v for v in counts if not any(_same(v, asked) for asked in (patient, control) if asked is not None)]
        if (patient is None or control is None) and len(rest) != 1:
            raise BrioError(f"{where} holds {held}; say which two values to take with --patient and --control")
        patient = rest[0] if patient is None else patient
        control = rest[0] if control is None else control
    if _same(patient, control):
        raise BrioError(f"{where}: --patient and --control are both '{patient}'")
    mapped = [None if v is None else 1 if _same(v, patient) else 0 if _same(v, control) else None for v in values]
    if {0, 1} - set(mapped):
        raise BrioError(f"{where} holds {held}: one class only; two classes are needed")
    return mapped, (control, patient)


def _same(value: str, asked: str) -> bool:
    """Equal as text or as numbers (``1.0`` is ``1``)."""
    if value == asked:
        return True
    try:
        return float(value) == float(asked)
    except ValueError:
        return False
