"""The content of stored files: JSON objects as typed records, tables with typed columns, one kind of error for both.

A record is a frozen dataclass whose fields are the keys of a JSON object; a row is one whose fields are the columns of
a table. Their annotations declare the allowed values, which msgspec checks. This package adds what msgspec lacks:
limits on file size, strict JSON, tables, and errors that name the place and the value. Floats must be finite and whole
numbers must fit into 64 bits unless declared otherwise.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import pandas as pd
from msgspec import Meta
from msgspec import inspect as kinds

from ..errors import REPEAT_JOB, file_error, find_control, nearest
from ..settings import Share, describe_kind, list_kinds, read_hints

MAX_JSON_BYTES = 64 << 20
"""No JSON file of brio comes near this size: the plan of ten thousand runs takes up one megabyte."""
MAX_TABLE_BYTES = 64 << 20
"""Largest size of a table without participants."""
MAX_PARTICIPANT_TABLE_BYTES = 4 << 30
"""Largest size of a table with a row for each participant, or for each participant and run."""
_LARGEST = (1 << 63) - 1
MAX_DEPTH = 32
TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels"
MAX_LINE = 1 << 20
LINES = "\r\n\t"
"""Control characters that stored text may hold, such as the trace of an error."""
OMIT_NONE = {"omit_none": True}
"""Metadata of a field that is left out of the file if it is None."""


def one_of(*names: str) -> Meta:
    """Make a domain that consists of the given words."""
    return Meta(pattern=rf"\A(?:{'|'.join(map(re.escape, names))})\Z", description=" or ".join(names))


StoredShare = Share
StoredNonNegative = Annotated[float, Meta(ge=0)]
StoredPositive = Annotated[float, Meta(gt=0)]
StoredCount = Annotated[int, Meta(ge=0, le=_LARGEST, description="a whole number of at least 0")]
StoredPositiveCount = Annotated[int, Meta(ge=1, le=_LARGEST, description="a whole number of at least 1")]
StoredLabel = Annotated[int, Meta(ge=0, le=1, description="0 or 1")]
Name = Annotated[str, Meta(pattern=r"\A[^\r\n]+\Z", description="non-empty text on one line")]
Hex = Annotated[str, Meta(pattern=r"\A[0-9a-f]+\Z", description="text of hexadecimal digits")]
Setting = bool | int | float | str | None
NOT_EMPTY = Meta(min_length=1, description="at least one item")

T = TypeVar("T")


def read_bounded(path: Path, max_bytes: int, remedy: str = REPEAT_JOB) -> bytes:
    """Read a regular file with a known maximum size."""
    try:
        if path.exists() and not path.is_file():
            raise file_error(path, "is not a regular file", remedy)
        with path.open("rb") as file:
            # memory is reserved for all that is asked for, so no more than the file has
            content = file.read(min(os.fstat(file.fileno()).st_size, max_bytes) + 1)
    except OSError as error:
        how = "make it readable" if isinstance(error, PermissionError) else remedy
        raise file_error(path, f"cannot be read ({error.strerror or error})", how) from error
    except MemoryError:
        raise file_error(path, "does not fit into memory", "use a machine with more memory") from None
    if len(content) > max_bytes:
        raise file_error(path, f"is larger than {max_bytes >> 20:,} MiB, the limit for this file", remedy)
    return content


def _decode(content: bytes, path: Path, remedy: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise file_error(path, f"is not UTF-8 text (byte 0x{byte:02x} at position {error.start})", remedy) from None


class _OddDocumentError(ValueError):
    """JSON that is valid but that brio never writes; the message says why."""


class _NotFinite(float):
    """Infinity or NaN in a JSON file, which msgspec does not accept as a float; undeclared values may contain it."""


def parse_json(content: bytes, path: Path, remedy: str = REPEAT_JOB) -> dict[str, Any]:
    """Parse a JSON object within limits: nesting, whole numbers of 64 bits, unique keys."""
    text = _decode(content, path, remedy)
    try:
        document = json.loads(
            text,
            object_pairs_hook=_make_object,
            parse_int=_read_whole_number,
            parse_float=_read_number,
            parse_constant=_NotFinite,
        )
        _check_document(document, MAX_DEPTH, "\\" in text or bool(find_control(text, LINES)))
    except RecursionError:
        raise file_error(path, TOO_DEEP, remedy) from None
    except _OddDocumentError as odd:
        raise file_error(path, str(odd), remedy) from None
    except ValueError as error:
        raise file_error(path, f"cannot be read ({error})", remedy) from error
    if not isinstance(document, dict):
        raise file_error(path, "is not a JSON object", remedy)
    return document


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _OddDocumentError(f"has the key {json.dumps(twice)} more than once")
    return made


def _read_whole_number(digits: str) -> int:
    if len(digits) > 20 or not -_LARGEST <= int(digits) <= _LARGEST:
        raise _OddDocumentError(f"contains a whole number that is too large ({len(digits.lstrip('-'))} digits)")
    return int(digits)


def _read_number(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _NotFinite(number)


def _check_document(value: Any, levels: int, check_text: bool) -> None:
    """Refuse deep nesting, unpaired surrogates (which cannot be printed) and control characters."""
    if isinstance(value, dict | list):
        if not levels:
            raise _OddDocumentError(TOO_DEEP)
        for one in value if isinstance(value, list) else (*value, *value.values()):
            _check_document(one, levels - 1, check_text)
    elif check_text and isinstance(value, str) and (find_control(value, LINES) or re.search("[\ud800-\udfff]", value)):
        raise _OddDocumentError(f"contains the text {json.dumps(value)[:40]}, which brio never writes")


def to_json(record: Any) -> Any:
    """Turn a record, and the records in it, into plain dictionaries, lists and numbers; NaN becomes None."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {
            f.name: to_json(value)
            for f in dataclasses.fields(record)
            if (value := getattr(record, f.name)) is not None or not f.metadata.get("omit_none")
        }
    if isinstance(record, dict):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    if isinstance(record, np.ndarray | np.generic):
        return to_json(record.tolist())
    return None if isinstance(record, float) and math.isnan(record) else record


def from_json(kind: type[T], document: Any, path: Path, remedy: str = REPEAT_JOB, place: str = "") -> T:
    """Turn a JSON object at some place in a file into a record; keys that the record does not have are ignored."""
    try:
        return msgspec.convert(document, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise file_error(path, _explain_misfit(kind, document, str(error), place), remedy) from None


def check_fields(kind: type[T], values: dict[str, Any], path: Path, remedy: str = REPEAT_JOB, place: str = "") -> T:
    """Check an object with settings of a frozen dataclass: known names, values of its types, and its own checks."""
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise file_error(path, f"{_join(place, name)} is unknown ({nearest(name, known)})", remedy)
    return from_json(kind, values, path, remedy, place)


def check_lengths(record: Any, first: str, *others: str) -> None:
    """Check that lists of a record are as long as the first of them; None counts as absent."""
    wanted = len(getattr(record, first))
    for name in others:
        own = getattr(record, name)
        if own is not None and len(own) != wanted:
            raise ValueError(f"{name} has {len(own)} values, but {first} has {wanted}")


def _explain_misfit(kind: Any, document: Any, message: str, place: str) -> str:
    """State where a document is not valid and what is expected; msgspec's message has neither keys nor values."""
    problem, _, where = message.rpartition(" - at `") if " - at `" in message else (message, "", "")
    value = document = copy.deepcopy(document)
    types = list_kinds(kind)
    for name, index in re.findall(r"\.(\w+)|\[([\d.]+)\]", where):
        key: Any = name
        outer = _unwrap(types[0])
        if index == "...":
            key, inner = _find_misfit(kind, document, value, message), outer.value_type
        elif index:
            key = int(index)
            inner = outer.item_types[key] if isinstance(outer, kinds.TupleType) else getattr(outer, "item_type", None)
            inner = outer.fields[key].type if isinstance(outer, kinds.NamedTupleType) else inner
        else:
            inner = next(field.type for field in outer.fields if field.name == name)
        types, value, place = list_kinds(inner), value[key], f"{place}[{key}]" if index.isdigit() else _join(place, key)
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", problem):
        return f"{_join(place, missing[1])} is missing"
    if where.startswith("key`"):
        key, words = _find_misfit(kind, document, value, message), describe_kind(_unwrap(types[0]).key_type)
        return f"a key of {place} is {show_value(key)}, expected {words}"
    if not re.match("Expected `|Invalid enum value|Number out of range", problem):  # a record that checks itself
        return f"{place}: {problem}" if place else problem
    words = " or ".join(describe_kind(one, "null") for one in types)
    return f"{place or 'the file'} is {show_value(value)}, expected {words}"


def _unwrap(kind: Any) -> Any:
    """Return the type that has a description."""
    return kind.type if isinstance(kind, kinds.Metadata) else kind


def _find_misfit(kind: Any, document: Any, items: dict[str, Any], message: str) -> str:
    """Find the item of an object in a document that causes an error; the other items are removed."""
    for key, value in list(items.items()):
        items.clear()
        items[key] = value
        try:
            msgspec.convert(document, kind, str_keys=True)
        except msgspec.ValidationError as error:
            if str(error) == message:
                break
    return next(iter(items))


def _join(place: str, key: str) -> str:
    """Append a key to the place of a value; odd keys are quoted and shortened."""
    plain = key if re.fullmatch(r"[^\s.\[\]'\"]{1,60}", key) else f"[{show_value(key)}]"
    return f"{place}.{plain}" if place and not plain.startswith("[") else f"{place}{plain}"


def show_value(value: Any) -> str:
    """Show a value in an error message, shortened to one line of at most 40 characters."""
    text = f"'{value}'" if isinstance(value, str) else json.dumps(value, default=str)
    text = " ".join(text.split())
    return text if len(text) <= 40 else text[:39] + "…"


_PANDAS = tuple(int(part) for part in pd.__version__.split(".")[:2])
_EXACT_NUMBERS: dict[str, Any] = {"float_precision": "round_trip"} if _PANDAS < (3, 1) else {}
"""Numbers are read exactly as they were written; pandas 3.1 does so by default and deprecates the option."""


def parse_table(
    content: bytes, path: Path, row: type | None = None, text_columns: Sequence[str] = (), remedy: str = REPEAT_JOB
) -> pd.DataFrame:
    """Parse a csv file: text stays text, numbers are exact, empty cells missing.

    Returns at least one row if ``row`` is given. Columns that ``row`` does not declare are read as they are.
    """
    text = check_rows(content, path, ",", remedy)
    texts = [] if row is None else list_text_columns(row)
    try:
        table = pd.read_csv(
            io.StringIO(text),
            dtype=dict.fromkeys((*texts, *text_columns), str),
            na_values=[""],
            keep_default_na=False,
            index_col=False,
            low_memory=False,
            **_EXACT_NUMBERS,
        )
    except (ValueError, OverflowError) as error:
        raise file_error(path, f"cannot be read ({error})", remedy) from error
    return table if row is None else check_columns(table, path, row, remedy)


def list_text_columns(row: type) -> list[str]:
    """List the columns that a dataclass declares as text."""
    first = {name: list_kinds(kind)[0] for name, kind in read_hints(row).items()}
    return [name for name, kind in first.items() if isinstance(_unwrap(kind), kinds.StrType)]


def check_columns(table: pd.DataFrame, path: Path, row: Any, remedy: str = REPEAT_JOB) -> pd.DataFrame:
    """Check the columns of a table that was read; one whose field has a default may be absent."""
    for column in dataclasses.fields(row):
        if column.name not in table and column.default is dataclasses.MISSING:
            raise file_error(path, f"has no column '{column.name}'", remedy)
    if table.empty:
        raise file_error(path, "has no rows", remedy)
    for name, kind in read_hints(row).items():
        if name in table:
            table[name] = _check_column(table[name], kind, path, remedy)
    return table


def check_rows(content: bytes, path: Path, separator: str, remedy: str = REPEAT_JOB) -> str:
    """Decode the content of a table, and check that all rows have as many cells as the header."""
    text = _decode(content, path, remedy).removeprefix("\ufeff")
    if not text.strip():
        raise file_error(path, "is empty", remedy)
    if "\n" not in text:  # some spreadsheets end lines by this character alone
        text = text.replace("\r", "\n")
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if control := find_control(line.removesuffix("\r"), "\t"):  # pandas reads it as half a line break
            raise file_error(path, f"line {number} contains the control character {control}", remedy)
        if len(line) > MAX_LINE:
            raise file_error(path, f"line {number} is too long ({len(line):,} characters)", remedy)
    rows = [(number, line.count(separator) + 1) for number, line in enumerate(lines, start=1) if line.strip()]
    if '"' in text or "\r" in text:  # quoted cells may hold line breaks
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        try:
            rows = [(reader.line_num, len(cells)) for cells in reader if cells]
        except csv.Error as error:
            raise file_error(path, f"line {reader.line_num} cannot be read ({error})", remedy) from None
    n_columns = rows[0][1]
    for number, n_cells in rows:
        if n_cells != n_columns:
            cells = "cell" if n_cells == 1 else "cells"
            raise file_error(path, f"line {number} has {n_cells} {cells}, but the header has {n_columns}", remedy)
    header = next(csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=separator))
    name, count = Counter(header).most_common(1)[0]
    if count > 1:
        raise file_error(path, f"has the column {show_value(name)} more than once", remedy)
    return text


def _check_column(column: pd.Series, kind: Any, path: Path, remedy: str) -> pd.Series:
    """Check a column against its declaration; whole numbers that every row has become int64."""
    kind = str | None if kind is str else kind  # empty text is written as an empty cell
    types = [_unwrap(one) for one in list_kinds(kind)]
    is_number = isinstance(types[0], kinds.IntType | kinds.FloatType)
    filled = column.notna().to_numpy()
    cells = [cell if is_filled else None for cell, is_filled in zip(column.tolist(), filled, strict=True)]
    try:
        values = msgspec.convert(cells, list[kind], strict=False)
        numbers = np.array(values if is_number else [], dtype=float)
        misfits = np.flatnonzero(np.isinf(numbers)).tolist()
    except msgspec.ValidationError as error:
        misfits = [int(row) for row in re.findall(r"\[(\d+)\]`$", str(error))]
    if misfits:
        k, words = misfits[0], describe_kind(kind, "an empty cell")
        shown = show_value(str(column.iloc[k])) if filled[k] else "empty"
        raise file_error(path, f"column '{column.name}' is {shown} in row {k + 1}, expected {words}", remedy)
    if isinstance(types[0], kinds.IntType) and len(types) == 1:
        return pd.Series(values, index=column.index, name=column.name, dtype=np.int64)
    if is_number and not pd.api.types.is_numeric_dtype(column):  # a number of many digits is read as text
        return pd.Series(numbers, index=column.index, name=column.name)
    return column
