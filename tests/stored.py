"""Stored folders whose files a test changes, with hashes that fit again."""

import hashlib
import subprocess
import sys
from pathlib import Path

from brio.storage import SUMS, reserve_name


def name_leftover(folder: Path) -> Path:
    """Return the name of something that a process of this machine was writing when it was killed."""
    head, machine, _, process, number = reserve_name(folder).name.split("-")
    dead = subprocess.Popen([sys.executable, "-c", ""])  # a process number that nobody has
    dead.wait()
    return folder / f"{head}-{machine}-{dead.pid}-{process}-{number}"


def list_hashed(sums: Path) -> list[str]:
    """Return the names in a file of hashes, all of which fit; hashes differ where a file says how long it took."""
    pairs = [line.split("  ", 1) for line in sums.read_text().splitlines()]
    assert [name for digest, name in pairs if _hash(sums.with_name(name)) != digest] == []
    return [name for _, name in pairs]


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rehash(folder: Path) -> Path:
    """Write the hashes of a folder, and of all folders in it, anew; files that are gone lose their lines."""
    for sums in folder.rglob(SUMS):
        names = [line.split("  ", 1)[1] for line in sums.read_text().splitlines()]
        files = [sums.with_name(name) for name in names if sums.with_name(name).is_file()]
        sums.write_text("".join(f"{_hash(f)}  {f.name}\n" for f in files))
    return folder
