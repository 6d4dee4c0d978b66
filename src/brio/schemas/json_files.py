"""Parse a JSON object within bounds: size, nesting, whole numbers of 64 bits, keys that are there once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from ..errors import REPEAT_JOB, file_error, find_control
from .file_content import decode

MAX_JSON_BYTES = 64 << 20
"""No JSON file of brio comes near it: the plan of ten thousand runs has a megabyte."""
MAX_DEPTH = 32
LINES = "\r\n\t"
"""Control characters that stored text may hold, such as the trace of an error."""
_LARGEST = 1 << 63


class _OddDocumentError(ValueError):
    """JSON that is valid and that brio never writes; the message says what is odd."""


def parse_json(content: bytes, path: Path, remedy: str = REPEAT_JOB) -> dict[str, Any]:
    """Parse a JSON object."""
    text = decode(content, path, remedy)
    try:
        document = json.loads(text, object_pairs_hook=_make_object, parse_int=_read_whole_number)
        if _is_deeper(document, MAX_DEPTH):
            raise _OddDocumentError(f"is nested deeper than {MAX_DEPTH} levels")
        if "\\" in text or find_control(text, LINES):
            _check_text(document)
    except RecursionError:
        raise file_error(path, f"is nested deeper than {MAX_DEPTH} levels", remedy) from None
    except _OddDocumentError as odd:
        raise file_error(path, str(odd), remedy) from None
    except ValueError as error:
        raise file_error(path, f"cannot be read ({error})", remedy) from error
    if not isinstance(document, dict):
        raise file_error(path, "holds no JSON object", remedy)
    return document


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _OddDocumentError(f"has the key {json.dumps(twice)} twice")
    return made


def _read_whole_number(digits: str) -> int:
    if len(digits) > 20 or not -_LARGEST <= int(digits) < _LARGEST:
        raise _OddDocumentError(f"holds a whole number of {len(digits.lstrip('-'))} digits")
    return int(digits)


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (levels == 0 or any(_is_deeper(one, levels - 1) for one in inner))


def _check_text(value: Any) -> None:
    """Refuse half of a surrogate pair, which cannot be printed, and control characters, which steer a terminal."""
    if isinstance(value, dict):
        for key, one in value.items():
            _check_text(key)
            _check_text(one)
    elif isinstance(value, list):
        for one in value:
            _check_text(one)
    elif isinstance(value, str) and (find_control(value, LINES) or any("\ud800" <= c <= "\udfff" for c in value)):
        raise _OddDocumentError(f"holds the text {json.dumps(value)[:40]}, which is no text that brio writes")
