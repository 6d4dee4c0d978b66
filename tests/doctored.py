"""Stored files that a test changes, and summaries of jobs that nobody computed: what is not said is plain."""

import json
from pathlib import Path

from brio.results import METRICS, MethodSummary, MetricSummary, Summary


def make_method(**fields) -> MethodSummary:
    """What a method reached: no score but those that are given."""
    metrics = dict.fromkeys((*METRICS, "auc_of_averaged_logits"), MetricSummary())
    facts = {"family": "any", "provenance": "", "transductive": False, "control": False}
    return MethodSummary(**facts | {"runs": 9, "folds": 3, "seeds": 3} | metrics | fields)


def make_summary(methods, folds, **fields) -> Summary:
    """What a job reached with these methods."""
    names = {"cohort": "", "atlas": "", "fingerprint": "", "protocol": "loso", "smoke_run": False}
    counts = {"n_scans": 97, "n_excluded": 0, "seeds": (0, 1, 2)}
    return Summary(**names | counts | fields, folds=tuple(folds), methods=methods)


def change_json(path: Path, change) -> None:
    """Read a JSON file, change what it holds in place, and write it again."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
