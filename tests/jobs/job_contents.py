"""What a job leaves in its folder, to be compared with another job."""

import csv
import json
from pathlib import Path

from brio.storage import LOCK, SUMS
from stored import list_hashed


def content_without_seconds(out: Path) -> dict[str, object]:
    """Every file of a job by name, but for seconds, the lock, and the plan that processes agreed on first."""
    files: dict[str, object] = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        name = str(path.relative_to(out))
        if path.name == LOCK or "shared-plan" in path.parts:
            continue
        if path.name == "results.csv":
            with path.open(newline="") as file:
                files[name] = [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]
        elif path.name == "run.json":
            record = json.loads(path.read_text())
            del record["row"]["seconds"]
            files[name] = record
        else:
            files[name] = list_hashed(path) if path.name == SUMS else path.read_bytes()
    assert any(name.endswith("run.json") for name in files)
    return files
