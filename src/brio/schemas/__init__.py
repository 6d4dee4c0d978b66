"""What stored files may hold: types and domains declared once, a reader for JSON, one for tables, one kind of error."""

from .domains import NOT_EMPTY, Count, Hex, Name, NonNegative, Positive, PositiveCount, SameLength, SettingsOf, Share
from .json_files import read_json
from .records import OMIT_NONE, formerly, from_json, to_json
from .table_files import MAX_PARTICIPANT_TABLE_BYTES, MAX_TABLE_BYTES, read_table, read_table_text

__all__ = [
    "MAX_PARTICIPANT_TABLE_BYTES",
    "MAX_TABLE_BYTES",
    "NOT_EMPTY",
    "OMIT_NONE",
    "Count",
    "Hex",
    "Name",
    "NonNegative",
    "Positive",
    "PositiveCount",
    "SameLength",
    "SettingsOf",
    "Share",
    "formerly",
    "from_json",
    "read_json",
    "read_table",
    "read_table_text",
    "to_json",
]
