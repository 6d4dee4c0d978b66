"""Spoil any file: one function for each kind of damage, which needs to know nothing of what the file means.

Every function takes the path and random numbers, so that a case is the same whenever it is tried.
"""

import os
import random
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

Spoil = Callable[[Path, random.Random], None]

HUGE = 2**30
"""Size of a file that is too large; a hole, which takes no space."""

NUMBERS = ("nan", "inf", "-inf", "1e400", "-1", "0", "9" * 25, "1e-400", "1_0", "0x10", "٣", "1,5", "")
NAMES = ("=1+1", "../../x", "<script>", "x" * 300, "a\0b", "é\u2028ß", "'; --", "%s%n", "con", ".", "\u202e", "")


def _change_bytes(change: Callable[[bytes, random.Random], bytes]) -> Spoil:
    def spoil(path: Path, draw: random.Random) -> None:
        path.write_bytes(change(path.read_bytes(), draw))

    return spoil


def _put(make: Callable[[Path], object]) -> Spoil:
    """Put something else in the place of a file or folder."""

    def spoil(path: Path, draw: random.Random) -> None:
        remove(path)
        make(path)

    return spoil


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _flip(content: bytes, draw: random.Random) -> bytes:
    data = bytearray(content)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _replace_token(pattern: bytes, tokens: tuple[str, ...]) -> Callable[[bytes, random.Random], bytes]:
    """Replace one token of a text; of a file without any, some bytes."""

    def change(content: bytes, draw: random.Random) -> bytes:
        found = list(re.finditer(pattern, content))
        new = draw.choice(tokens).encode()
        if not found:
            return content[: len(content) // 2] + new + content[len(content) // 2 + len(new) :]
        start, end = draw.choice(found).span()
        return content[:start] + new + content[end:]

    return change


def _extend(path: Path, draw: random.Random) -> None:
    os.truncate(path, HUGE)


def _listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def _forbid(path: Path, draw: random.Random) -> None:
    path.chmod(0)


def _fill_folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_text("x")


SPOILS: dict[str, dict[str, Spoil]] = {
    "missing": {"removed": lambda path, draw: remove(path)},
    "empty": {
        "no bytes": _change_bytes(lambda content, draw: b""),
        "blank": _change_bytes(lambda content, draw: b" \n\n"),
    },
    "cut": {
        "anywhere": _change_bytes(lambda content, draw: content[: draw.randrange(len(content))]),
        "last byte": _change_bytes(lambda content, draw: content.rstrip()[:-1]),
    },
    "flipped byte": {f"draw {k}": _change_bytes(_flip) for k in range(3)},
    "other type": {
        "JSON": _change_bytes(lambda content, draw: b'[{"a": [1, null]}]'),
        "table": _change_bytes(lambda content, draw: b"a,b\n1,2\n"),
        "archive": _change_bytes(lambda content, draw: b"PK\3\4" + content),
        "picture": _change_bytes(lambda content, draw: b"\x89PNG\r\n\x1a\n" + content[8:]),
    },
    "not UTF-8": {
        "a byte": _change_bytes(lambda content, draw: content[: (k := len(content) // 2)] + b"\xe9\xff" + content[k:]),
        "UTF-16": _change_bytes(lambda content, draw: content.decode("latin-1").encode("utf-16")),
    },
    "huge": {"a hole": _extend},
    "deep": {
        "lists": _change_bytes(lambda content, draw: b"[" * 100_000 + b"]" * 100_000),
        "objects": _change_bytes(lambda content, draw: b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    },
    "wrong numbers": {
        f"draw {k}": _change_bytes(_replace_token(rb"(?<![\w.])-?\d+(\.\d+)?(e-?\d+)?", NUMBERS)) for k in range(3)
    },
    "wrong names": {f"draw {k}": _change_bytes(_replace_token(rb"[A-Za-z_]{2,}\d*", NAMES)) for k in range(3)},
    "folder for file": {"empty folder": _put(Path.mkdir), "folder": _put(_fill_folder)},
    "special file": {
        "pipe": _put(os.mkfifo),
        "no end": _put(lambda path: path.symlink_to("/dev/zero")),
        "socket": _put(_listen),
    },
    "symlink": {
        "loop": _put(lambda path: path.symlink_to(path.name)),
        "broken": _put(lambda path: path.symlink_to("gone")),
    },
    "no permission": {"none": _forbid},
}
"""Kind -> what is done -> the function that does it."""

UNREADABLE = ("empty", "folder for file", "special file", "symlink", "no permission")
"""Kinds after which no file can be read, whatever it was."""
