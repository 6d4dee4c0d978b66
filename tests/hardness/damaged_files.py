"""Damage stored files in every way that leaves them odd: other types, gaps, short lists, other encodings, deep nesting.

:func:`damage` yields the cases of one file. :func:`place` writes one, and renews the hashes that a folder keeps of its
files, so that what reads the file meets the odd content and not the hash.
"""

import contextlib
import copy
import csv
import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from brio.cohort.cohort import hash_content
from stored import rewrite_sums

Damages = Iterator[tuple[str, Callable[[], bytes]]]
"""What is done to a file, and what makes its content when it is asked for."""

ODD_VALUES = (
    *("null", "true", '"x"', '""', "[]", "{}", '[["x", null], {}]', '{"x": null}', "-1", "0", "0.5", "1e300", "NaN"),
    *("-Infinity", "1e400", "1000000", "1" * 25, '"\\ud800"', '"\\u0000"', '"a\\nb"', '"../../../etc/passwd"'),
    '"<script>alert(1)</script>"',
)
"""JSON text that replaces a value."""
LONG = "z" * 200_000
ODD_CELLS = (
    *("", "x", "nan", "-inf", "1e400", "-1", "0.5", "1.5", "True", "1" * 25, "é\u2028ß", '"', "a\nb", "<script>"),
    LONG,
)
"""What replaces a cell."""

_HERE = "\0here\0"


def damage(file: str, content: bytes) -> Damages:
    """Yield all cases of a file by its ending: json, csv or tsv."""
    own = _damage_json(content) if file.endswith(".json") else _damage_table(content, "\t" if "tsv" in file else ",")
    return itertools.chain(_damage_bytes(content), own)


def _damage_bytes(content: bytes) -> Damages:
    yield "empty", lambda: b""
    yield "blank", lambda: b" \n\n"
    yield "cut in half", lambda: content[: len(content) // 2]
    yield "cut by a byte", lambda: content.rstrip()[:-1]
    yield "NUL bytes", lambda: content[:50] + b"\0\0" + content[50:]
    yield "all NUL", lambda: b"\0" * len(content)
    yield "latin-1", lambda: content[:-2] + b"\xe9" + content[-2:]
    yield "UTF-16", lambda: content.decode().encode("utf-16")
    yield "byte order mark", lambda: b"\xef\xbb\xbf" + content
    yield "carriage returns", lambda: content.replace(b"\n", b"\r\n")
    yield "twice", lambda: content + content
    yield "binary", lambda: bytes(range(256)) * 8


def _damage_json(content: bytes) -> Damages:
    for text in ("null", "true", "3", '"text"', "[]", "{}", "[{}]", "NaN", "1" * 100_000):
        yield f"holds {text[:10]}", partial(str.encode, text)
    for depth in (40, 900, 100_000):
        yield f"lists of depth {depth}", lambda n=depth: b"[" * n + b"]" * n
        yield f"objects of depth {depth}", lambda n=depth: b'{"a":' * n + b"1" + b"}" * n
    document = json.loads(content)
    first = next(iter(document))
    yield "a key twice", lambda: f"{{{json.dumps(first)}: 1, {json.dumps(document)[1:]}".encode()
    yield "an unknown key", lambda: json.dumps({"a later version": [1, {"x": None}], **document}).encode()
    for path in _list_paths(document):
        place, value = ".".join(map(str, path)), _find(document, path)
        change = partial(_change, document, path)
        yield f"{place} is missing", partial(change, None)
        for odd in ODD_VALUES:
            yield f"{place} is {odd}", partial(change, odd)
        yield f"{place} is deep", partial(change, "[" * 500 + "]" * 500)
        if isinstance(value, list) and value:
            yield f"{place} is shorter", partial(change, json.dumps(value[:-1]))
            yield f"{place} is longer", partial(change, json.dumps([*value, value[-1]]))
        if isinstance(value, dict) and value:
            yield f"{place} has another key", partial(change, json.dumps(value | {"x": 1}))


def _list_paths(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List where values stand; of long lists and objects the first and the last item."""
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    named = isinstance(document, dict) and (len(keys) < 40 or at == ())
    for key in keys if named else dict.fromkeys([*keys[:1], *keys[-1:]]):
        yield (*at, key)
        if isinstance(document[key], dict | list):
            yield from _list_paths(document[key], (*at, key))


def _find(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _change(document: Any, path: tuple[Any, ...], new: str | None) -> bytes:
    """The document with other JSON text at a place, or without it."""
    changed = copy.deepcopy(document)
    holder = _find(changed, path[:-1])
    if new is None:
        del holder[path[-1]]
        return json.dumps(changed).encode()
    holder[path[-1]] = _HERE
    return json.dumps(changed).replace(json.dumps(_HERE), new).encode()


def _damage_table(content: bytes, separator: str) -> Damages:
    header, *rows = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator)

    def write(head: list[str], body: list[list[str]]) -> Callable[[], bytes]:
        def make() -> bytes:
            text = io.StringIO()
            csv.writer(text, delimiter=separator, lineterminator="\n").writerows([head, *body])
            return text.getvalue().encode()

        return make

    yield "header alone", write(header, [])
    yield "no header", write(rows[0], rows[1:])
    yield "first row twice", write(header, [rows[0], *rows])
    yield "rows reversed", write(header, rows[::-1])
    yield "last row missing", write(header, rows[:-1])
    yield "a short row", write(header, [*rows[:-1], rows[-1][:-1]])
    yield "a long row", write(header, [*rows[:-1], [*rows[-1], "1"]])
    yield "all rows long", write(header, [[*row, "1"] for row in rows])
    yield "other separator", lambda: content.replace(separator.encode(), b";")
    yield "quote not closed", lambda: content.replace(b"\n", b'\n"', 1)
    yield "one column", write(header[:1], [row[:1] for row in rows])
    yield "an unknown column", write([*header, "later"], [[*row, "1"] for row in rows])
    for k, name in enumerate(header):
        yield f"no column {name}", write(header[:k] + header[k + 1 :], [row[:k] + row[k + 1 :] for row in rows])
        yield f"column {name} twice", write([*header, name], [[*row, row[k]] for row in rows])
        for odd in ODD_CELLS:
            yield f"{name} is {odd[:30]!a}", write(header, [[*rows[0][:k], odd, *rows[0][k + 1 :]], *rows[1:]])
            if odd != LONG:
                yield f"every {name} is {odd!a}", write(header, [[*row[:k], odd, *row[k + 1 :]] for row in rows])


def place(path: Path, content: bytes) -> None:
    """Write a damaged file, and renew the hashes of the folder that holds it."""
    path.write_bytes(content)
    renew_hashes(path.parent)


def renew_hashes(folder: Path) -> None:
    """Write the hashes of the files of a job, a model or a cohort as they are now."""
    header, sums = folder / "cohort.json", folder / "SHA256SUMS"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        document, frames = json.loads(header.read_bytes()), np.load(folder / "frames.npy")
        tables = [(folder / name).read_bytes() for name in ("participants.tsv", "atlas.tsv")]
        fingerprint = hash_content(frames, *(table.decode() for table in tables), document["classes"])
        new = {"tables": hashlib.sha256(b"".join(tables)).hexdigest(), "fingerprint": fingerprint}
        if {len(document[key]) for key in new} == {64} and document | new != document:
            header.write_text(json.dumps(document | new))
    if sums.is_file():
        rewrite_sums(sums)
