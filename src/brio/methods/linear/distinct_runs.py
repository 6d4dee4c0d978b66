"""Runs of a linear model that are fitted once each: those that hold the same scans share a fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...progress import Progress, silent
from ...threads import map_on_cores
from ...training import Run

T = TypeVar("T")


def fit_distinct_runs(
    fit_run: Callable[[Run], T],
    runs: Sequence[Run],
    *,
    uses_seed: bool,
    bytes_each: float,
    message: str,
    progress: Progress = silent,
) -> list[T]:
    """Fit every run, but only once those that hold the same scans where nothing depends on the seed.

    Several are fitted at once, each on one core, where memory allows.
    """
    keys = [_find_key(run, i if uses_seed else None) for i, run in enumerate(runs)]
    distinct = dict(reversed(list(zip(keys, runs, strict=True))))
    to_fit = [distinct[key] for key in dict.fromkeys(keys)]

    def report(position: int) -> None:
        progress(f"{message}, fold {to_fit[position].fold.name}", position / len(to_fit))

    fitted = map_on_cores(fit_run, to_fit, report=report, bytes_each=bytes_each)
    fitted_by_key = dict(zip(dict.fromkeys(keys), fitted, strict=True))
    return [fitted_by_key[key] for key in keys]


def _find_key(run: Run, position: int | None) -> tuple[object, ...]:
    """What decides the fit of a run: the scans of its fold, and where a seed may matter the run itself."""
    return (*(part.tobytes() for part in (run.fold.source, run.fold.validation, run.fold.test)), position)
