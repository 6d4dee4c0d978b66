"""What stored files may hold: types and domains declared once, a reader for JSON, one for tables, one kind of error."""

from .domains import (
    NOT_EMPTY,
    Count,
    FieldsOf,
    Hex,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    SameLength,
    Setting,
    SettingsOf,
    Share,
)
from .file_content import read_bounded
from .json_files import MAX_JSON_BYTES, parse_json
from .records import OMIT_NONE, formerly, from_json, to_json
from .table_files import MAX_PARTICIPANT_TABLE_BYTES, MAX_TABLE_BYTES, check_columns, check_rows, parse_table

__all__ = [
    "MAX_JSON_BYTES",
    "MAX_PARTICIPANT_TABLE_BYTES",
    "MAX_TABLE_BYTES",
    "NOT_EMPTY",
    "OMIT_NONE",
    "Count",
    "FieldsOf",
    "Hex",
    "Name",
    "NonNegative",
    "Positive",
    "PositiveCount",
    "SameLength",
    "Setting",
    "SettingsOf",
    "Share",
    "check_columns",
    "check_rows",
    "formerly",
    "from_json",
    "parse_json",
    "parse_table",
    "read_bounded",
    "to_json",
]
