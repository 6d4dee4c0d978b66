"""The user's options for an import, the table of scans that every layout yields, and the participants table."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ...console import Progress, silent
from ...errors import BrioError, find_control, find_nearest, nearest
from ...formatting import format_count
from ...version import __version__
from ..atlas import Atlas
from ..cohort import UNNAMED_CLASSES, Cohort, find_filled
from ..covariates import COVARIATE_COLUMNS
from ..selection import find_fulfilling
from ..values import (
    LISTED_VALUES,
    ColumnValues,
    fold_value,
    list_counts,
    means_sex,
    normalise_text,
    parse_number,
    read_sex,
    refuse_unsafe_names,
    shorten_list,
    write_value,
)
from . import series
from .series import Series

# What --patient or --control names: one value, several that make one class, or none.
ClassValues = str | Sequence[str] | None
Row = dict[str, Any]
# What of a bundled atlas files must have: nothing, as many ROIs, or their names.
Strictness = Literal["free", "count", "names"]


@dataclass(frozen=True, eq=False)
class ImportOptions:
    """A user's options for an import; None if not given. Each reader takes some of them, see ``READERS``."""

    atlas: str | None = None
    participants: str | Path | None = None  # the participants table (tsv or csv), if it is not in its usual place
    id_column: str | None = None
    site_column: str | None = None
    label_column: str | None = None
    age_column: str | None = None
    sex_column: str | None = None
    male: str | None = None  # values of that column
    female: str | None = None
    missing: tuple[str, ...] = ()  # codes of missing values in the table, such as -99
    ignore_columns: tuple[str, ...] = ()  # names or patterns of columns that are no covariates
    where: str | None = None  # the condition of brio.cohort.selection that rows of the table fulfil
    exclude: str | Path | None = None  # list of participants to leave out
    class_names: tuple[str, str] | None = None  # of controls and patients; by default the values that name them
    patient: ClassValues = None
    control: ClassValues = None
    task: str | None = None  # of BIDS derivatives alone, see brio.cohort.readers.bids.find_bids
    match: str | None = None  # a text, with wildcards, in the paths of the files to read
    pattern: str | None = None  # where names of files have participant and session, see table.read_pattern
    runs: str | None = None
    session_column: str | None = None
    sessions: str | None = None
    measure: str | None = None  # of connectomes alone, see brio.cohort.readers.table.find_fc
    denoise: str | None = None  # of images alone, see brio.cohort.readers.images.find_fmriprep
    space: str | None = None
    res: str | None = None
    high_pass: float | None = None  # Hz
    low_pass: float | None = None
    tr: float | None = None  # of scans to predict alone: seconds, where no file or table states them
    name: str | None = None  # name of the cohort
    frames_in_rows: bool = False  # whether to take rows as frames although they seem to be the ROIs
    atlas_table: Atlas | None = None  # table of the ROIs, the name of its file or known atlas, and what was odd
    atlas_source: str = ""
    atlas_warnings: tuple[str, ...] = ()
    drop_roi: tuple[str, ...] = ()  # ROIs to drop, for example a column with the global signal
    labels_required: bool = True  # False for scans to predict: one scan without site and label is enough
    known_header: tuple[str, ...] = ()  # of scans to predict alone: the header of the scans of their model
    known_rois: Atlas | None = None  # and its ROIs
    jobs: int = 1  # of images alone: scans that are extracted at once
    workspace: Path | None = None  # of images alone: folder of the extracted series until the cohort is written
    progress: Progress = silent

    def describe(self, found: dict[str, Any]) -> dict[str, Any]:
        """Describe the options for the provenance, without paths of files; a reader may have found other values."""
        names = [option.name for option in fields(self)]
        stated = {name: getattr(self, name) for name in names[: names.index("name")]} | found
        for name in ("participants", "exclude"):
            if stated[name] is not None:
                stated[name] = series.describe_name(Path(stated[name]).name)
        stated |= {"atlas_table": self.atlas_source or None, "drop_roi": list(self.drop_roi)}
        return {name: value for name, value in stated.items() if value not in (None, (), [])}

    def compare_first_rows(self, files: Sequence[Path]) -> series.FirstRows:
        """Compare the first rows of files, which begin with the same header or none, and with that of a model."""
        if self.known_rois is None:
            return series.FirstRows(files)
        return series.FirstRows(
            files, [*filter(None, [self.known_header]), *self.known_rois.list_unique_names().values()]
        )


def read_file(path: Path, beside: series.FirstRows | None = None) -> tuple[Path, Series]:
    """Read a source that is one file."""
    return path, series.read_series(path, beside=beside)


@dataclass(eq=False)
class Layout:
    """The content of a layout: its participants, their scans and how to read them, and the name of the cohort."""

    rows: list[Row]  # of the participants table: participant_id, site, label and further columns
    classes: tuple[str, str] = UNNAMED_CLASSES  # names of the labels 0 and 1
    listed: list[Row] = field(default_factory=list)  # participant_id, session and file of the whole table
    skipped: list[dict[str, str]] = field(default_factory=list)  # participant_id, reason and perhaps file
    unlabelled: list[dict[str, str]] = field(default_factory=list)
    label_texts: dict[str, str] = field(default_factory=dict)  # how the label of each participant was written
    renamed: dict[str, str] = field(default_factory=dict)  # columns under another spelling
    scans: Sequence[tuple[Row, Any]] = ()  # row and source of each scan
    read: Callable[[Any], tuple[Path, Series]] = read_file  # reads a source
    atlas: str = "unknown"
    name: str = ""  # empty for that of the folder
    options: dict[str, Any] = field(default_factory=dict)  # values of options that were found
    strictness: Strictness = "free"
    connectomes: bool = False
    n_files: int | None = None  # None where each source is a file, or a list of files
    notes: dict[str, Any] = field(default_factory=dict)  # further entries of the provenance
    warnings: tuple[str, ...] = ()
    table: Atlas | None = None  # table of the ROIs, where the layout knows it

    def skip(self, reason: str, *participants: str, **which: str | None) -> None:
        """Record why participants are skipped; ``which`` gives the ``session`` or ``file``, if known."""
        stated = {"reason": reason} | {key: value for key, value in which.items() if value}
        self.skipped += [{"participant_id": participant} | stated for participant in participants]

    def leave_unlabelled(self, participant_id: str, reason: str) -> None:
        """Record why a participant has no label."""
        self.unlabelled.append({"participant_id": participant_id, "reason": reason})


# ---------------------------------------------------------------- columns


COVARIATES = (*sorted(COVARIATE_COLUMNS.values()), "tr")  # columns that some methods need
_OTHER_SPELLINGS = {"fdmean": "mean_fd"}
# Column for each spelling, in lower case and without signs.
_SIMPLE = {name.replace("_", ""): name for name in COVARIATES} | _OTHER_SPELLINGS


def find_column(columns: Sequence[str], name: str, path: Path) -> str:
    """Find a column by its name, or else by its name in different capitals."""
    spellings = [column for column in columns if column.lower() == name]
    return name if name in spellings or not spellings else _require_one(path, spellings, name)


def choose_covariates(
    table: TextTable, options: ImportOptions, layout: Layout, taken: set[str]
) -> tuple[set[str], dict[str, str]]:
    """Choose the columns that ``--ignore-columns`` leaves out, and identify the columns that some methods need.

    The latter are columns named by options, or else those whose names differ only in capitals or in the characters
    between words.
    """
    ignored = set[str]()
    for pattern in options.ignore_columns:
        found = {column for column in table.columns if column == pattern or fnmatchcase(column, pattern)}
        if not found:
            known = nearest(pattern, table.columns)
            raise BrioError(f"{table.path}: --ignore-columns: the table has no column '{pattern}'; {known}")
        ignored |= found - taken
    named = {"age": options.age_column, "sex": options.sex_column}
    for name, column in named.items():
        table.require_column(column or table.columns[0], f"--{name}-column")
        if column in taken or (column is not None and name == "sex" and column == options.age_column):
            problem = f"--{name}-column: column '{column}' is already the id, site, label, session or age"
            remedy = f"name another column, or leave out --{name}-column and methods that need the {name}"
            raise BrioError(f"{table.path}: {problem}; {remedy}")
    spellings: dict[str, list[str]] = {}
    for column in table.columns:
        ours = _SIMPLE.get("".join(c for c in column.lower() if c.isalnum()))
        if ours is None or ours in table.columns or column in taken | ignored or named.get(ours) is not None:
            continue
        spellings.setdefault(ours, []).append(column)
    names = {_require_one(table.path, same, name): name for name, same in spellings.items()}
    names |= {column: name for name, column in named.items() if column is not None}
    layout.renamed |= {ours: theirs for theirs, ours in names.items() if ours != theirs}
    return ignored, names


def convert_sexes(rows: Sequence[Row], options: ImportOptions, where: str) -> tuple[str, ...]:
    """Translate the codes of ``--male`` and ``--female``; refuse numbers whose meaning was not given."""
    named = {ours: code for ours, code in (("M", options.male), ("F", options.female)) if code}
    codes, read = (
        {fold_value(code): ours for ours, code in named.items()},
        ColumnValues((r.get("sex") for r in rows), where),
    )
    unclear, unknown = Counter[str](), Counter[str]()
    for row, value, text in zip(rows, read.values, read.texts, strict=True):
        if value in codes:
            row["sex"] = codes[value]
        elif value is not None and parse_number(text) is not None:
            unclear[value] += 1
            row["sex"] = None if len(named) == 2 else value
        elif value is not None and not read_sex(text):
            unknown[text] += 1
    read.refuse_spellings(code for code in codes if code in read.spellings and not read_sex(code))
    if unclear and len(named) < 2 and options.labels_required:
        example = "--male 1 --female 2" if "2" in unclear else "--male 1 --female 0"
        the = "the code" if len(unclear) == 1 else "the codes"
        raise BrioError(
            f"{where} contains {the} {list_counts(unclear)}; state what the codes mean, for example {example}"
        )
    remedy = "write F or M in the table, or give --male and --female"
    warnings = [f"{where}: not understood as a sex: {list_counts(unknown)}; {remedy}"] if unknown else []
    if unclear and len(named) == 2:
        warnings.append(
            f"{where}: numbers other than --male and --female are treated as missing: {list_counts(unclear)}"
        )
    return tuple(warnings)


def _require_one(path: Path, spellings: list[str], name: str) -> str:
    if len(spellings) > 1:
        problem = f"columns '{spellings[0]}' and '{spellings[1]}' would both be read as '{name}'"
        raise BrioError(f"{path}: {problem}; rename the right one to '{name}'")
    return spellings[0]


def summarise_columns(cohort: Cohort) -> str:
    """Summarise in one line which of the columns that some methods need were found, and under which name."""
    renamed = cohort.provenance.get("renamed_columns", {})
    found = [name for name in COVARIATES if find_filled(cohort.participants, name).any()]
    missing = [name for name in COVARIATES if name not in found]
    named = [f"{name} (column '{renamed[name]}')" if name in renamed else name for name in found]
    parts = [", ".join(named)] if named else []
    parts += [f"not found: {', '.join(missing)}"] if missing else []
    return f"columns that some methods need: {'; '.join(parts)}"


# Other names of columns that are asked for, in lower case.
_SAME_MEANING = {
    "participant_id": ("participant", "subject", "subject_id", "sub", "sub_id", "subid", "id"),
    "site": ("centre", "center", "hospital", "scanner", "site_id"),
    "label": ("diagnosis", "group", "dx_group", "dx"),
}
# Columns whose names say what they hold: they are not suggested for being spelt alike.
_KNOWN_COLUMNS = ("participant_id", "session", "sex", "age")

MISSING = frozenset({"", "n/a", "na", "nan", "#n/a", "null", "<na>"})
# Missing values of columns that hold numbers alone besides, as SAS, SPSS and Python write them.
MISSING_NUMBERS = frozenset({".", "-", "none"})
RESERVED_COLUMNS = ("participant_id", "site", "label", "n_frames")  # columns that brio writes itself
TABLE_NAMES = ("participants.tsv", "participants.csv")  # usual names of the participants table


@dataclass(frozen=True)
class TextTable:
    """A table in which every value is text."""

    path: Path  # its file, for error messages
    columns: list[str]
    rows: list[dict[str, str | None]]  # value of each column; None where it is missing
    numbers: Sequence[int] = ()  # of the rows in the file, from 1
    written: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # missing cells of each row that are words

    def require_column(self, column: str, option: str | None = None, taken: Iterable[str] = ()) -> None:
        """Raise :class:`BrioError` unless the table has a column."""
        if column in self.columns:
            return
        columns = [c for c in self.columns if c]
        same = [c for c in columns if c.lower() in _SAME_MEANING.get(column, ()) and c not in taken]
        close = same[0] if same else find_nearest(column, set(columns) - {*_KNOWN_COLUMNS, *taken})
        suggestion = f"did you mean '{close}'? The columns are" if close else "its columns are"
        remedy = f"give the right column with {option}" if option else f"rename the right column to '{column}'"
        raise BrioError(f"{self.path}: has no column '{column}'; {suggestion} {', '.join(columns)}; {remedy}")

    def clear_codes(self, codes: Collection[str], *kept: str | None) -> tuple[TextTable, tuple[str, ...]]:
        """Clear the cells that ``--missing`` names, in all but a few columns, and say how many, for a warning."""
        if not codes:
            return self, ()
        absent = {fold_value(code): code for code in codes if code.lower() not in MISSING | MISSING_NUMBERS}
        folded, counts = {*map(fold_value, codes)}, Counter[str]()
        rows, written = list[dict[str, str | None]](), {number: {**cells} for number, cells in self.written.items()}
        for number, row in zip(self.numbers, self.rows, strict=True):
            found = {c: v for c, v in row.items() if v is not None and c not in kept and fold_value(v) in folded}
            for column, value in found.items():
                counts[column] += 1
                absent.pop(fold_value(value), None)
            written.setdefault(number, {}).update(found)
            rows.append(row | dict.fromkeys(found))
        if absent:
            listing = shorten_list([f"'{code}'" for code in absent.values()])
            problem = f"no cell to clear is {listing}, which --missing names"
            raise BrioError(f"{self.path}: {problem} (ids, sessions and files are kept); leave it out of --missing")
        said = f"--missing: {format_count(counts.total(), 'cell')} cleared"
        listing = shorten_list([f"{column} {n}" for column, n in counts.items()])
        warnings = (f"{self.path}: {said} ({listing})",) if counts else ()
        return replace(self, rows=rows, written=written), warnings

    def read_ids(self, column: str, session_column: str | None = None, option: str | None = None) -> list[str]:
        """Read a column whose values must be present and, except for sessions of a participant, unique."""
        self.require_column(column, option)
        first_row: dict[tuple[str, str | None], int] = {}
        ids = []
        for number, row in zip(self.numbers, self.rows, strict=True):
            participant, session = row[column], row.get(session_column or "")
            if participant is None:
                raise BrioError(f"{self.path}: column '{column}' is empty in row {number}; every row needs an id")
            ids.append(participant)
            other = first_row.setdefault((normalise_text(participant), session), number)
            if other != number:
                problem = f"participant {participant} appears in rows {other} and {number}; keep one of these rows"
                another = "" if option is None else " (or in a column given with --session-column)"
                remedy = f", or give each scan its own session in column '{session_column}'{another}"
                raise BrioError(f"{self.path}: {problem}{'' if session_column is None else remedy}")
        return ids


def find_table(src: Path, requested: str | Path | None, id_column: str | None = None) -> Path:
    """Find the participants table."""
    if requested is not None:
        paths = [path for path in (Path(requested), src / requested) if series.is_regular(path)]
        if not paths:
            folder = Path(requested).parent
            missing = "" if folder.is_dir() or (src / folder).is_dir() else f" (there is no folder {folder})"
            raise BrioError(f"{requested}: no such participants table here or in {src}{missing}")
        return paths[0]
    paths = list_tables(src) or guess_tables(src, id_column)
    if len(paths) != 1:
        problem = f"has both {paths[0].name} and {paths[1].name}" if paths else "has no participants.tsv"
        ids = f", or with '{id_column or 'participant_id'}' as the name of a column" * (not paths)
        raise BrioError(f"{src}: {problem}; give the participants table with --participants{ids}")
    return paths[0]


def list_tables(src: Path) -> list[Path]:
    """List the participants tables of a folder, by their usual names."""
    return [src / name for name in TABLE_NAMES if series.is_regular(src / name)]


def guess_tables(src: Path, id_column: str | None) -> list[Path]:
    """List the tables of a folder with a column of ids: where a table is needed, they may be that of the participants.

    Scans to predict need none, so that beside them such a file may be a list of the excluded, of ROIs, or a scan.
    """
    files = sorted(path for ending in ("*.tsv", "*.csv") for path in src.glob(ending) if series.is_regular(path))
    columns = {path: [c.strip() for c in re.split("[\t,;]", series.read_first_row(path))] for path in files}
    ids = ("participant_id", *_SAME_MEANING["participant_id"])
    return [path for path in files if id_column in columns[path] or {*ids} & {*map(str.lower, columns[path])}]


_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+(,[0-9]+)?")  # thousands, as German tables write them


def read_participants(path: Path) -> TextTable:
    """Read a tsv or csv table as text, so that ``0050002`` keeps its zeros.

    Columns of numbers with decimal commas get decimal points, see
    :func:`~brio.cohort.readers.series.has_decimal_commas`.
    """
    text = series.read_lines(path, "a table")
    head = re.sub('"[^"]*"', "", next(filter(str.strip, text), ""))
    delimiter = max(",;\t" if path.suffix.lower() == ".csv" else "\t,;", key=head.count)
    lines = []
    for number, line in enumerate(text, start=1):
        cells = series.split_line(path, number, line, delimiter)
        refuse_unsafe_names([cell for cell in cells if find_control(cell)], f"{path}, line {number}")
        lines += [cells] if any(cells) else []
    if len(lines) < 2:
        raise BrioError(f"{path}: the table needs a header and at least one row")
    columns, rows, written = lines[0], [], dict[int, dict[str, str]]()
    for column, n in Counter(columns).items():
        if column and n > 1:
            raise BrioError(f"{path}: column '{column}' appears more than once in the header")
    for number, cells in enumerate(lines[1:], start=1):
        if len(cells) < len(columns) or any(cells[len(columns) :]):
            has = format_count(len(cells), "cell")
            remedy = f"; {series.ROW_NAMES}" if set(map(len, lines[1:])) == {len(columns) + 1} else ""
            raise BrioError(f"{path}: row {number} has {has}, but the header has {len(columns)}{remedy}")
        rows.append({c: None if v.lower() in MISSING else v for c, v in zip(columns, cells, strict=False)})
        written[number] = {c: v for c, v in zip(columns, cells, strict=False) if v.lower() in MISSING - {"", "n/a"}}
    has_any_commas = False
    for column in columns:
        numbers = {value for row in rows if (value := row[column]) is not None and value.lower() not in MISSING_NUMBERS}
        if numbers and None not in (parse_number(number.replace(",", ".", 1)) for number in numbers):
            has_commas = series.has_decimal_commas(numbers, delimiter)
            has_any_commas |= has_commas
            for number, row in enumerate(rows, start=1):
                if (value := row[column]) is not None and value not in numbers:
                    written[number][column], value = value, None
                row[column] = value.replace(",", ".") if value is not None and has_commas else value
    for column, held in zip(columns, zip(*lines[1:], strict=False), strict=False) if has_any_commas else ():
        points = [cell for cell in held if "." in cell]
        if all(map(_GROUPED.fullmatch, points)) and points and not any(re.search("[^0-9.,+-]", cell) for cell in held):
            problem = f"column '{column}' contains {points[0]}, and other columns have decimal commas"
            raise BrioError(
                f"{path}: {problem}; write {points[0].replace('.', '')} without a point, or a decimal comma"
            )
    return TextTable(path, columns, rows, range(1, len(rows) + 1), written)


# ---------------------------------------------------------------- classes


def list_class_values(values: ClassValues) -> list[str]:
    """List the values that form one class."""
    return [values] if isinstance(values, str) else list(dict.fromkeys(values or ()))


def map_labels(
    values: list[str | None],
    where: str,
    patient: ClassValues,
    control: ClassValues,
    labels_required: bool = True,
    is_sex: bool = False,
) -> tuple[list[int | None], tuple[str, str]]:
    """Map text to the labels 1 (patient) and 0 (control)."""
    read = ColumnValues(values, where, is_sex)
    patients, controls = (
        {fold_value(v, is_sex): normalise_text(v) for v in list_class_values(named)} for named in (patient, control)
    )
    known = [*read.spellings]
    if not known and labels_required:
        raise BrioError(f"{where} is empty in every row; two classes are needed")
    listing = str(read) or "nothing"
    choose = "give the values of both classes with --patient and --control (each accepts several values)"
    if len(known) > LISTED_VALUES:
        kind, example = ("continuous", "age>14.5") if read.are_numbers else ("multi-class", "group=ASD")
        listing = f"{len(known):,} values, so it seems to be {kind}"
        choose += ", or import with another label column and ask about this one in 'brio run', for example with "
        choose += f"--label '{example}'"
    rest = [v for v in known if v not in patients | controls]
    for named, option in ((patients, "--patient"), (controls, "--control")):
        absent = [text for value, text in named.items() if value not in known]
        if absent and (labels_required or rest):
            raise BrioError(f"{where} has no value '{absent[0]}' for {option}; the column has {listing}")
    unclear = BrioError(f"{where} has {listing}; {'' if len(known) < 3 else 'brio separates two classes: '}{choose}")
    one_class = BrioError(f"{where} has only one class, {listing}, but two classes are needed")
    if len(known) == 1 and labels_required:
        raise one_class
    if not patients and not controls:
        if not {*known} <= {"0", "1"}:
            raise unclear
        patients, controls = {"1": "1"}, {"0": "0"}
    elif not patients or not controls:
        if len(rest) > 1 or (labels_required and not rest):
            raise unclear
        other = dict(zip(rest, rest, strict=True)) or {"": f"not {'/'.join((patients | controls).values())}"}
        patients, controls = patients or other, controls or other
    read.refuse_spellings(value for value in known if value in patients | controls)
    for value in patients.keys() & controls:
        raise BrioError(f"{where}: --patient and --control are both '{patients[value]}'")
    mapped = [1 if value in patients else 0 if value in controls else None for value in read.values]
    if labels_required and {0, 1} - set(mapped):
        raise one_class
    names = ["/".join(read.name(v) if v in known else text for v, text in c.items()) for c in (controls, patients)]
    return mapped, (names[0], names[1])


def explain_other_group(value: str, patient: ClassValues, control: ClassValues) -> str:
    """Report that a value belongs to neither class, and which value it may be a misspelling of."""
    named = {fold_value(name): name for name in [*list_class_values(patient), *list_class_values(control)]}
    near = difflib.get_close_matches(fold_value(value), named, n=1, cutoff=0.75)
    return f"label '{value}' is neither patient nor control" + (f" (mistyped '{named[near[0]]}'?)" if near else "")


# ---------------------------------------------------------------- rows of the table


def find_rows(src: Path, options: ImportOptions, also: Sequence[str] = ()) -> tuple[Path | None, Layout]:
    """Find the participants table, and read it with its sites and labels; ``also`` may name ``session`` and ``file``.

    Returns no rows if there is no table, none is required and no option refers to one.
    """
    session = None if options.session_column == "session" else options.session_column
    named = {"participant_id": options.id_column, "site": options.site_column, "label": options.label_column}
    named |= {name: session if name == "session" else None for name in also}
    stated = (*named.values(), options.participants, options.patient, options.control)
    stated += (options.age_column, options.sex_column, options.where, options.exclude, options.missing or None)
    required = options.labels_required
    if not (required or list_tables(src) or any(value is not None for value in stated)):
        return None, Layout([])
    path = find_table(src, options.participants, options.id_column)
    table = read_participants(path)
    if session is not None:
        table.require_column(session, "--session-column")
    own = {name: column or find_column(table.columns, name, path) for name, column in named.items()}
    if also == ("session",) and own["session"] not in table.columns:  # BIDS
        own["session"] = "session_id"
        table = table if "session_id" in table.columns else _add_sessions(table, own["participant_id"])
    site_column, label_column, session_column = own["site"], own["label"], own.get("session")
    if label_column in table.columns and label_column in (site_column, own["participant_id"]):
        raise BrioError(
            f"{path}: column '{label_column}' cannot be the label and the site, or the id; change an option"
        )
    sessions = session_column or "session"
    table, cleared = table.clear_codes(options.missing, own["participant_id"], sessions, own.get("file"))
    named_by = {"participant_id": own["participant_id"], "session": sessions, "file": own.get("file", "")}
    whole = [{ours: row.get(theirs) for ours, theirs in named_by.items()} for row in table.rows]
    layout = Layout([], listed=[row for row in whole if row["participant_id"] is not None], warnings=cleared)
    if options.participants is None and path.name not in TABLE_NAMES:
        layout.warnings += (f"{path}: taken as the participants table, since it has a column of ids",)
    table = select_rows(table, options, layout, own["participant_id"], sessions)
    ids = table.read_ids(own["participant_id"], session_column, "--id-column")
    if required or options.site_column is not None:
        table.require_column(site_column, "--site-column", taken=[label_column])
    patients, controls = list_class_values(options.patient), list_class_values(options.control)
    if required or options.label_column is not None or patients or controls:
        table.require_column(label_column, "--label-column", taken=[site_column])
    groups = [row.get(label_column) for row in table.rows]
    where, is_sex = f"{path}: column '{label_column}'", means_sex(label_column)
    labels, layout.classes = map_labels(groups, where, patients, controls, required, is_sex)
    layout.renamed = {n: c for n, c in own.items() if n != c and named[n] is None and c in table.columns}
    ignored, names = choose_covariates(table, options, layout, {*own.values()})
    used = {own["participant_id"], site_column, *ignored}
    used |= {label_column} if max(len(patients), len(controls)) < 2 else set()
    copies = [c for c in table.columns if c not in used and (m := _COPY.fullmatch(c)) and m[1] in table.columns]
    if copies:
        problem = f"seems to have repeated columns, numbered by pandas ({shorten_list(copies)})"
        layout.warnings += (f"{path}: {problem}; brio keeps these columns unless --ignore-columns lists them",)
    found = [name for name in ("session", "file") if own.get(name) in table.columns]
    names |= {own[name]: name for name in found}
    rows_written = [table.written.get(number, {}) for number in table.numbers]
    for participant, label, group, row, written in zip(ids, labels, groups, table.rows, rows_written, strict=True):
        site, is_other = row.get(site_column), group is not None and label is None
        reason = _explain_missing("label", label_column, written)
        reason = explain_other_group(group or "", patients, controls) if is_other else reason
        if required and None in (site, label):
            reason = _explain_missing("site", site_column, written) if site is None else reason
            layout.skip(reason, participant, session=row.get(sessions))
            continue
        if is_other:
            layout.leave_unlabelled(participant, reason)
        layout.label_texts[participant] = normalise_text(group)
        covariates = extract_covariates(row, used, names, (*RESERVED_COLUMNS, *found))
        layout.rows.append({"participant_id": participant, "site": site, "label": label} | covariates)
    return path, layout


def select_rows(table: TextTable, options: ImportOptions, layout: Layout, ids: str, sessions: str) -> TextTable:
    """Select the rows of a table by ``--where`` and ``--exclude``; the layout lists the others as skipped.

    ``ids`` and ``sessions`` are the names of columns.
    """
    if options.where is None and options.exclude is None:
        return table
    table.require_column(ids, "--id-column")
    rows, where = pd.DataFrame(table.rows, dtype=object), str(table.path)
    about = (options.where, options.exclude, where, ids, sessions, options.sex_column)
    reasons, warnings = explain_left_out(rows, *about)
    layout.warnings += warnings
    kept = [(number, row) for number, row, why in zip(table.numbers, table.rows, reasons, strict=True) if not why]
    for row, reason in zip(table.rows, reasons, strict=True):
        layout.skip(reason, *([row[ids] or ""] if reason else []), session=row.get(sessions))
    return replace(table, rows=[row for _, row in kept], numbers=[number for number, _ in kept])


def explain_left_out(
    table: pd.DataFrame,
    where: str | None,
    exclude: str | Path | None,
    name: str,
    ids: str,
    sessions: str,
    sex_column: str | None = None,
) -> tuple[list[str], tuple[str, ...]]:
    """Give the reason why each row of a table is left out (empty if it is kept), and problems with the list."""
    reasons, warnings = np.full(len(table), "", dtype=object), tuple[str, ...]()
    if where is not None:
        fulfilled, missing, columns, odd = find_fulfilling(table, where, name, [sex_column])
        warnings += tuple(odd)
        reasons[~fulfilled] = f"'{where}' is false"
        reasons[missing] = f"no value in {' or '.join(columns)}, which --where compares"
    if exclude is not None:
        participants, file = [*map(write_value, table[ids])], series.describe_name(Path(exclude).name)
        listed = _read_exclusions(Path(exclude), ids, set(participants))
        refuse_unsafe_names([file], "--exclude")
        rows = zip(participants, table.get(sessions, [None] * len(table)), strict=True)
        keys = [[(p, session) for session in ("", simplify_session(s))] for p, s in rows]
        for i, own in enumerate(keys):
            for key in filter(listed.__contains__, own):
                reasons[i] = f"excluded by {file}{listed[key]}"
        unknown = sorted(listed.keys() - set(chain(*keys)))
        absent = f"not found in {name}: {shorten_list([f'{p} (session {s})' if s else p for p, s in unknown])}"
        if len(unknown) == len(listed):  # the list is of another study, or writes identifiers in another way
            raise BrioError(f"{exclude}: lists no participant to leave out ({absent if unknown else 'it is empty'})")
        warnings += (f"{exclude}: {absent}",) if unknown else ()
    if reasons.all():
        counts = ", ".join(f"{reason} ({n})" for reason, n in Counter(reasons).items())
        raise BrioError(f"{name}: none of the {len(table)} rows is left; reasons: {counts}")
    return reasons.tolist(), warnings


def _read_exclusions(path: Path, ids: str, known: Collection[str]) -> dict[tuple[str, str], str]:
    """Read whom to leave out and why: one id per line, or a table with ids, perhaps session and reason.

    The column of ids is ``participant_id``, or the one of the participants table. An id that is not ``known`` may have
    the prefix ``sub-`` of BIDS in the list or in the table alone.
    """

    def find_id(text: str) -> str:
        forms = (written := write_value(text)), written.removeprefix("sub-"), f"sub-{written}"
        return next((form for form in forms if form in known), written)

    lines = [line for line in map(str.strip, series.read_lines(path, "a list of participants")) if line]
    rows: list[Any] = [(line.strip('"'), None, None) for line in lines]
    header = [cell.strip('" ') for cell in re.split("[\t,;]", lines[0])] if lines else []
    if ids in header or "participant_id" in map(str.lower, header):
        table = read_participants(path)
        columns = [find_column(table.columns, name, path) for name in ("participant_id", "session", "reason")]
        columns[0] = columns[0] if columns[0] in table.columns else ids
        rows = [[row.get(column) for column in columns] for row in table.rows]
        if None in (ids_of_rows := [row[0] for row in rows]):
            row = ids_of_rows.index(None) + 1
            raise BrioError(f"{path}: column '{columns[0]}' is empty in row {row}; every row needs an id")
    return {(find_id(p), simplify_session(s)): f": {why}" if why else "" for p, s, why in rows}


def select_scans(cohort: Cohort, where: str | None, exclude: str | Path | None) -> tuple[Cohort, tuple[str, ...]]:
    """Select scans of a cohort by ``--where`` and ``--exclude``, record this in the provenance, and report problems."""
    if where is None and exclude is None:
        raise BrioError("no selection was given; give --where or --exclude")
    name, columns = f"cohort '{cohort.name}'", ("participant_id", "session")
    reasons, warnings = explain_left_out(cohort.participants, where, exclude, name, *columns)
    file = None if exclude is None else series.describe_name(Path(exclude).name)
    record = {"fingerprint": cohort.fingerprint, "where": where, "exclude": file, "brio": __version__}
    counts = Counter(filter(None, reasons))
    selected = cohort.select([i for i, reason in enumerate(reasons) if not reason])
    steps = [*cohort.provenance.get("selected", []), {**record, "left_out": counts}]
    return replace(selected, provenance={**cohort.provenance, "selected": steps}), warnings


def _explain_missing(what: str, column: str, written: Mapping[str, str]) -> str:
    """Say that a row has no label or site, and which word in its cell was taken for a missing value."""
    return f"no {what} in column '{column}'" + (f", which is '{written[column]}'" if column in written else "")


def simplify_session(session: object) -> str:
    """Write a session in its shortest form: ``ses-01`` and ``1.0`` are ``1``; empty for no session."""
    text = write_value(session).removeprefix("ses-").removesuffix(".0")
    return text.lstrip("0") or text[:1]


def _add_sessions(table: TextTable, id_column: str) -> TextTable:
    """Give each session that BIDS lists in ``sub-*/sub-*_sessions.tsv``, beside the table, a row of its own."""
    rows, numbers = list[dict[str, str | None]](), list[int]()
    columns = dict.fromkeys(table.columns)
    for number, row in zip(table.numbers, table.rows, strict=True):
        subject = f"sub-{write_value(row.get(id_column)).removeprefix('sub-')}"
        path = table.path.parent / subject / f"{subject}_sessions.tsv"
        own: list[dict[str, str | None]] = [{}]
        if series.is_regular(path):
            sessions = read_participants(path)
            sessions.require_column("session_id")
            own, columns = sessions.rows, columns | dict.fromkeys(sessions.columns)
        rows += [row | {c: value for c, value in one.items() if value is not None} for one in own]
        numbers += [number] * len(own)
    return replace(table, columns=[*columns], rows=[dict.fromkeys(columns) | row for row in rows], numbers=numbers)


_COPY = re.compile(r"(.+)\.[0-9]+")  # how pandas numbers columns of one name: age, age.1


def extract_covariates(
    row: dict[str, str | None], used: set[str], names: Mapping[str, str], reserved: Collection[str] = RESERVED_COLUMNS
) -> dict[str, str | None]:
    """Extract the columns of a row that are kept as covariates; no other column gets a reserved name."""
    kept = {column: value for column, value in row.items() if column and column not in used}
    reserved = {*reserved, *names.values()}
    return {names.get(c) or (f"{c}_in_source" if c in reserved else c): value for c, value in kept.items()}
