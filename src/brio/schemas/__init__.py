"""What stored files may hold: types and domains declared once, a reader for JSON, one for tables, one kind of error."""

from .file_content import read_bounded
from .json_files import MAX_JSON_BYTES, parse_json
from .records import OMIT_NONE, from_json, to_json
from .stored_values import (
    NOT_EMPTY,
    FieldsOf,
    Hex,
    Name,
    SameLength,
    Setting,
    SettingsOf,
    StoredCount,
    StoredNonNegative,
    StoredPositive,
    StoredPositiveCount,
    StoredShare,
)
from .table_files import MAX_PARTICIPANT_TABLE_BYTES, MAX_TABLE_BYTES, check_columns, check_rows, parse_table

__all__ = [
    "MAX_JSON_BYTES",
    "MAX_PARTICIPANT_TABLE_BYTES",
    "MAX_TABLE_BYTES",
    "NOT_EMPTY",
    "OMIT_NONE",
    "FieldsOf",
    "Hex",
    "Name",
    "SameLength",
    "Setting",
    "SettingsOf",
    "StoredCount",
    "StoredNonNegative",
    "StoredPositive",
    "StoredPositiveCount",
    "StoredShare",
    "check_columns",
    "check_rows",
    "from_json",
    "parse_json",
    "parse_table",
    "read_bounded",
    "to_json",
]
