"""The options of a command that gives a job again, recovered from its plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..cohort import AuditRules
from ..connectome import HarmonisationRule
from ..errors import BrioError
from ..methods import find_method
from ..protocol import USUAL_VALIDATION_SITES, ProtocolSettings
from ..results import Plan, TuningRecord
from ..results.files import PLAN


def recover_options(plan: Plan, tuning: TuningRecord | None = None) -> dict[str, Any]:
    """Recover the options of ``brio run`` or ``brio tune`` that decide the plan of a job.

    A plan does not hold where cohorts, files with methods and searches were, nor options that change no number.
    """
    settings = _changed_settings(plan) if tuning is None else dict(tuning.given_settings)
    for part, defaults, values in (
        # a plan has the number that "auto" came to; the usual one is what it comes to again
        ("protocol", ProtocolSettings(validation_sites=USUAL_VALIDATION_SITES), plan.protocol_settings),
        ("audit", AuditRules(), plan.audit),
        ("harmonise", HarmonisationRule(), plan.harmonise),
    ):
        known = dataclasses.asdict(defaults)
        settings |= {f"{part}.{name}": v for name, v in (values or {}).items() if known.get(name, v) != v}
    options: dict[str, Any] = {"method": list(plan.methods), "label": plan.label, "protocol": plan.protocol}
    options["seeds"] = len(plan.seeds)
    if tuning is not None:
        options |= {"budget": tuning.budget, "oracle": tuning.oracle is not None}
    options |= {"set": settings, "fold": None if plan.folds is None else list(plan.folds)}
    return options | {
        "keep-all": plan.audit is None,
        "device": plan.device,
        "runs-per-stack": _recover_stack_size(plan),
    }


def _changed_settings(plan: Plan) -> dict[str, Any]:
    """Collect settings that differ from the defaults of their methods; a value holds for all methods that have it."""
    changed: dict[str, Any] = {}
    for name, planned in plan.methods.items():
        defaults = _read_defaults(name)
        changed |= {k: v for k, v in planned.settings.items() if k in defaults and defaults[k] != v}
    for name, planned in plan.methods.items():
        for key in changed.keys() & _read_defaults(name).keys():
            if planned.settings.get(key) != changed[key]:
                raise BrioError(
                    f"{PLAN}: setting '{key}' is {planned.settings.get(key)} for method '{name}' and {changed[key]} "
                    "for another one; no options of one command give that: repeat the methods one by one"
                )
    return changed


def _read_defaults(method: str) -> Mapping[str, Any]:
    """Return the default settings of a method that its name does not fix; none of a user's method not loaded."""
    try:
        entry = find_method(method)
    except BrioError:
        return {}
    return {key: value for key, value in entry.settings.items() if key not in entry.fixed}


def _recover_stack_size(plan: Plan) -> int | None:
    """Return the number of runs per stack, where it and not each method's need of memory decided the stacks."""
    sizes = [len(stack) for stack in plan.stacks]
    n_runs, rest = divmod(sum(sizes), max(1, len(plan.methods)))
    if not sizes or rest or len(sizes) == len(plan.methods) or plan.harmonise is not None:
        return None
    largest = max(sizes)
    n_stacks = -(-n_runs // largest)
    size = -(-n_runs // n_stacks)
    expected = [min(size, n_runs - first) for first in range(0, n_runs, size)]
    return largest if sizes == expected * len(plan.methods) else None
