"""Damage stored files in every way that leaves them odd: other types, gaps, short lists, other encodings, deep nesting.

:func:`damage` yields the cases of one file. :func:`place` writes one, and renews the hashes that a folder keeps of its
files, so that what reads the file meets the odd content and not the hash.
"""

import contextlib
import copy
import csv
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from brio.cohort.folder import hash_content


class Case(NamedTuple):
    """One damaged file: its path inside a folder, what was done to it, and what it holds then."""

    file: str
    what: str
    content: bytes

    @property
    def id(self) -> str:
        """Short name of the case."""
        return f"{self.file}: {self.what}"


ODD_VALUES: dict[str, str] = {
    "null": "null",
    "true": "true",
    "text": '"x"',
    "no text": '""',
    "list": "[]",
    "object": "{}",
    "list of lists": '[["x", null], {}]',
    "object of null": '{"x": null}',
    "-1": "-1",
    "half": "0.5",
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "1e400": "1e400",
    "million": "1000000",
    "whole number of 25 digits": "1" * 25,
    "half a surrogate pair": '"\\ud800"',
    "NUL": '"\\u0000"',
    "line break": '"a\\nb"',
    "path": '"../../../etc/passwd"',
    "markup": '"<script>alert(1)</script>"',
}
"""JSON text that replaces a value."""

ODD_CELLS = {
    "empty": "",
    "text": "x",
    "nan": "nan",
    "inf": "-inf",
    "1e400": "1e400",
    "-1": "-1",
    "half": "0.5",
    "1.5": "1.5",
    "True": "True",
    "whole number of 25 digits": "1" * 25,
    "accents": "é\u2028ß",
    "quote": '"',
    "line break": "a\nb",
    "markup": "<script>",
    "long": "z" * 200_000,
}

_HERE = "\0here\0"


def damage(file: str, content: bytes) -> Iterator[Case]:
    """Yield all cases of a file by its ending: json, csv or tsv."""
    yield from (Case(file, what, made) for what, made in _damage_bytes(content))
    if file.endswith(".json"):
        yield from (Case(file, what, made) for what, made in _damage_json(content))
    else:
        separator = "\t" if file.endswith(".tsv") else ","
        yield from (Case(file, what, made) for what, made in _damage_table(content, separator))


def _damage_bytes(content: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "blank", b" \n\n"
    yield "cut in half", content[: len(content) // 2]
    yield "cut by a byte", content.rstrip()[:-1]
    yield "NUL bytes", content[:50] + b"\0\0" + content[50:]
    yield "all NUL", b"\0" * len(content)
    yield "latin-1", content.replace(b'"', b'"\xe9', 1) if b'"' in content else content.replace(b"\n", b"\xe9\n")
    yield "UTF-16", content.decode().encode("utf-16")
    yield "byte order mark", b"\xef\xbb\xbf" + content
    yield "carriage returns", content.replace(b"\n", b"\r\n")
    yield "twice", content + content
    yield "binary", bytes(range(256)) * 8


def _damage_json(content: bytes) -> Iterator[tuple[str, bytes]]:
    for text in ("null", "true", "3", '"text"', "[]", "{}", "[{}]", "NaN", "1" * 100_000):
        yield f"holds {text[:10]}", text.encode()
    for depth in (40, 900, 100_000):
        yield f"lists of depth {depth}", b"[" * depth + b"]" * depth
        yield f"objects of depth {depth}", b'{"a":' * depth + b"1" + b"}" * depth
    document = json.loads(content)
    first = next(iter(document))
    text = json.dumps(document)
    yield "a key twice", f"{{{json.dumps(first)}: 1, {text[1:]}".encode()
    yield "an unknown key", json.dumps({"a later version": [1, {"x": None}], **document}).encode()
    for path in _list_paths(document):
        place = ".".join(map(str, path))
        yield f"{place} is missing", json.dumps(_change(document, path, None)).encode()
        for name, odd in ODD_VALUES.items():
            changed = json.dumps(_change(document, path, [_HERE])).replace(json.dumps(_HERE), odd)
            yield f"{place} is {name}", changed.encode()
        deep = json.dumps(_change(document, path, [_HERE])).replace(json.dumps(_HERE), "[" * 500 + "]" * 500)
        yield f"{place} is deep", deep.encode()
        value = _find(document, path)
        if isinstance(value, list) and value:
            yield f"{place} is shorter", json.dumps(_change(document, path, [value[:-1]])).encode()
            yield f"{place} is longer", json.dumps(_change(document, path, [[*value, value[-1]]])).encode()
        if isinstance(value, dict) and value:
            yield f"{place} has another key", json.dumps(_change(document, path, [value | {"x": 1}])).encode()


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


def _change(document: Any, path: tuple[Any, ...], new: list[Any] | None) -> Any:
    """A copy with another value at a place, or without it."""
    changed = copy.deepcopy(document)
    holder = _find(changed, path[:-1])
    if new is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new[0]
    return changed


def _damage_table(content: bytes, separator: str) -> Iterator[tuple[str, bytes]]:
    header, *rows = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator)

    def write(head: list[str], body: list[list[str]]) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=separator, lineterminator="\n").writerows([head, *body])
        return text.getvalue().encode()

    yield "header alone", write(header, [])
    yield "no header", write(rows[0], rows[1:])
    yield "first row twice", write(header, [rows[0], *rows])
    yield "rows reversed", write(header, rows[::-1])
    yield "last row missing", write(header, rows[:-1])
    yield "a short row", write(header, [*rows[:-1], rows[-1][:-1]])
    yield "a long row", write(header, [*rows[:-1], [*rows[-1], "1"]])
    yield "all rows long", write(header, [[*row, "1"] for row in rows])
    yield "other separator", content.replace(separator.encode(), b";")
    yield "quote not closed", content.replace(b"\n", b'\n"', 1)
    yield "one column", write(header[:1], [row[:1] for row in rows])
    yield "an unknown column", write([*header, "later"], [[*row, "1"] for row in rows])
    for k, name in enumerate(header):
        yield f"no column {name}", write(header[:k] + header[k + 1 :], [row[:k] + row[k + 1 :] for row in rows])
        yield f"column {name} twice", write([*header, name], [[*row, row[k]] for row in rows])
        for what, odd in ODD_CELLS.items():
            yield f"{name} is {what}", write(header, [[*rows[0][:k], odd, *rows[0][k + 1 :]], *rows[1:]])
            if what != "long":
                yield f"every {name} is {what}", write(header, [[*row[:k], odd, *row[k + 1 :]] for row in rows])


def place(folder: Path, case: Case) -> None:
    """Write a damaged file into a folder, and renew the hashes of the folder that holds it."""
    path = folder / case.file
    path.write_bytes(case.content)
    renew_hashes(path.parent)


def renew_hashes(folder: Path) -> None:
    """Write the hashes of the files of a model or a cohort as they are now."""
    sums = folder / "SHA256SUMS"
    if sums.is_file():
        names = [line.split("  ")[1] for line in sums.read_text().splitlines()]
        lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
        sums.write_text("".join(lines))
    header = folder / "cohort.json"
    if header.is_file() and (folder / "participants.tsv").is_file():
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            document, new = json.loads(header.read_bytes()), _hash_cohort(folder, json.loads(header.read_bytes()))
            if {len(str(document[key])) for key in new} == {64} and document | new != document:
                header.write_text(json.dumps(document | new))


def _hash_cohort(folder: Path, header: dict[str, Any]) -> dict[str, str]:
    """The hash of the tables of a cohort, and its fingerprint."""
    tables = [(folder / name).read_bytes() for name in ("participants.tsv", "atlas.tsv")]
    frames = np.load(folder / "frames.npy")
    fingerprint = hash_content(frames, *(table.decode() for table in tables), header["classes"])
    return {"tables": hashlib.sha256(b"".join(tables)).hexdigest(), "fingerprint": fingerprint}
