"""Stored folders whose files a test changes, with hashes that fit again; evidence and benchmarks that tests use."""

import csv
import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from brio.models.evidence import UNKNOWN, CallRule, Evidence
from brio.storage import LOCK, SUMS, reserve_name


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
        rewrite_sums(sums)
    return folder


def rewrite_sums(sums: Path) -> None:
    """Write the hashes of one folder anew."""
    names = [line.split("  ", 1)[1] for line in sums.read_text().splitlines()]
    files = [sums.with_name(name) for name in names if sums.with_name(name).is_file()]
    sums.write_text("".join(f"{_hash(f)}  {f.name}\n" for f in files))


def read_without_seconds(folder: Path) -> dict[str, object]:
    """Every file of a folder by name, to be compared with another one.

    Left out are the seconds that runs took, what pages and findings say of them, the lock, and the plan that processes
    agreed on first.
    """
    files: dict[str, object] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        if path.name == LOCK or "shared-plan" in path.parts:
            continue
        if path.name in ("results.csv", "table.csv"):
            with path.open(newline="") as file:
                files[name] = [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]
        elif path.name == "run.json":
            record = json.loads(path.read_text())
            del record["row"]["seconds"]
            files[name] = record
        elif path.name in ("page.html", "finding.md"):
            files[name] = None
        else:
            files[name] = list_hashed(path) if path.name == SUMS else path.read_bytes()
    assert files
    return files


def make_evidence(rules: tuple[CallRule, ...] = (), **scores: object) -> Evidence:
    """Make evidence of which nothing but a few counts and the given scores is known."""
    unknown = dict.fromkeys(("auc", "pair_weighted_auc", "slope", "intercept"), UNKNOWN)
    known = {"n_participants": 9, "n_sites": 3, "n_seeds": 1, "n_two_class_sites": 3, "accuracy": 0.7, "brier": 0.2}
    return Evidence(**unknown | known | {"fingerprint": "", "risk": (), "rules": rules} | scores)


def load_benchmark(name: str) -> ModuleType:
    """Import a script of ``benchmarks/``."""
    return load_script(Path(__file__).parents[1] / "benchmarks" / f"{name}.py")


def load_script(path: Path) -> ModuleType:
    """Import a file anew, whatever else has imported it."""
    spec = importlib.util.spec_from_file_location(f"{path.stem}_of_tests", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
