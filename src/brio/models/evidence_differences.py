"""In which settings the evaluated runs of a job differ from a model, in words."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..connectome import HarmonisationRule
from ..results import StoredJob

_FINAL_SETTINGS = {
    "choose_by": (
        "source-sites",
        "the evaluated runs chose the penalty on validation sites (choose_by=validation), the model by inner "
        "folds over its source sites (choose_by=source-sites)",
        "--set choose_by=source-sites --set protocol.validation_sites=0",
    ),
    "refit": (
        True,
        "the evaluated runs were not trained again with their validation sites (refit=false), the model was "
        "(refit=true)",
        "--set refit=true",
    ),
}
"""Settings whose defaults differ between run and fit: value of the model, what differs, options of 'brio run'."""


def describe_differing_settings(
    job: StoredJob, name: str, settings: Mapping[str, Any], harmonisation: HarmonisationRule
) -> tuple[str, ...]:
    """Say which settings of the evaluated runs are not those of the model, with both values and what to do."""
    evaluated = [run.record.settings for run in job.runs if run.record.row.method == name]
    if not evaluated or job.plan is None:
        return ("the settings of the evaluated runs are not stored",)
    own = json.loads(json.dumps(dict(settings)))  # as records hold them
    differing = sorted({key for one in evaluated for key in one if one[key] != own.get(key)})
    explained = [key for key in differing if key in _FINAL_SETTINGS and own.get(key) == _FINAL_SETTINGS[key][0]]
    parts = [
        f"{key} ({_join_values([one[key] for one in evaluated if key in one])} in the evidence, {own.get(key)} in the "
        "model)"
        for key in differing
        if key not in explained
    ]
    theirs = asdict(HarmonisationRule(**job.plan.harmonise or {}))
    parts += [
        f"harmonise.{key} ({theirs[key]} in the evidence, {value} in the model)"
        for key, value in asdict(harmonisation).items()
        if value != theirs[key]
    ]
    sentences = [_explain_default(key, name, job.plan.label) for key in explained]
    return (*sentences, *([f"other values of {', '.join(parts)}"] if parts else []))


def _explain_default(key: str, name: str, label: str | None) -> str:
    """Explain a difference between the defaults of the two commands, and how to evaluate what was fitted."""
    _, words, options = _FINAL_SETTINGS[key]
    asked = f" --label {shlex.quote(label)}" if label else ""
    command = f"brio run COHORT --method {name}{asked} --seeds 3 {options} --out RESULTS"
    return f"{words}; to evaluate what is fitted, give --evaluate, or a folder of '{command}'"


def _join_values(values: list[Any]) -> str:
    return " or ".join(dict.fromkeys(map(str, values)))
