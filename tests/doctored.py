"""Stored files that a test changes, and summaries of jobs that nobody computed: what is not said is plain."""

import dataclasses
import json
from pathlib import Path

from brio.protocol import ProtocolSettings
from brio.results import INTERVALS, METRICS, MethodSummary, MetricSummary, Summary
from stored import rehash


def make_method(**fields) -> MethodSummary:
    """What a method reached: no score but those that are given."""
    metrics = dict.fromkeys((*METRICS, "auc_of_averaged_logits"), MetricSummary())
    facts = {"family": "any", "provenance": "", "block": "", "needs": (), "transductive": False, "control": False}
    return MethodSummary(**facts | {"runs": 9, "folds": 3, "seeds": 3, "changed": {}} | metrics | fields)


def make_summary(methods, folds, **fields) -> Summary:
    """What a job reached with these methods."""
    names = {"cohort": "", "atlas": "", "fingerprint": "", "protocol": "loso", "smoke_run": False}
    counts = {"n_scans": 97, "n_excluded": 0, "seeds": (0, 1, 2)}
    settings = {
        "protocol_settings": dataclasses.asdict(ProtocolSettings(validation_sites=2)),
        "intervals": INTERVALS[fields.get("protocol", "loso")],
    }
    return Summary(**names | counts | settings | fields, folds=tuple(folds), methods=methods)


def change_json(path: Path, change) -> None:
    """Read a JSON file, change what it holds in place, and write it again, with a hash that fits."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    rehash(path.parent)
