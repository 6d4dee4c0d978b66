"""What a job will need: runs, memory, disk. What cannot fit is refused before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cohort import Cohort
from ..device import ComputeDevice, find_free_memory
from ..domains import find_numbers
from ..errors import BrioError
from ..formatting import format_time
from ..memory import format_bytes, require_disk, require_memory
from ..methods import find_method

if TYPE_CHECKING:
    from ..results import RunStore
    from ..training import Method, NeuralMethod

MOST_RUNS = 100_000
"""Runs that one job may have; a plan with more would take hours to write."""
_RECORD = 20_000
"""Bytes of a record and its folder."""
_COPIES = 6
"""Copies of the parameters of a network in training: values, gradients, two averages of AdamW, the best, a spare."""
_PASS = 12
"""Matrices that a re-estimate needs for its frames and one pass of a model."""


def estimate_memory(method: Method, cohort: Cohort) -> float:
    """Estimate the memory that one run of a method needs at least, connectomes included.

    A network that is larger than by default needs more in proportion to the outputs of its layers. The networks of a
    user's own file are not measured in advance.
    """
    reestimates = (method.facts.reestimates or 0) * cohort.n_rois**2 * 4.0 * _PASS
    own = _estimate_bold(method, cohort) + method.estimate_fit_bytes(len(cohort), cohort.n_rois)
    return _estimate_connectomes(cohort) + own + max(_estimate_step(method, cohort), reestimates)


def _estimate_connectomes(cohort: Cohort) -> float:
    """Memory of all connectomes, and of one more matrix of each scan, such as its logarithm."""
    return 2.0 * len(cohort) * cohort.n_rois**2 * 4.0


def _estimate_bold(method: Method, cohort: Cohort) -> float:
    """Memory of the windows of all scans; 0 where a method reads no BOLD."""
    settings = method.settings
    if "bold" not in method.needs or not hasattr(settings, "bold_windows"):
        return 0.0
    return 4.0 * len(cohort) * settings.bold_windows * settings.bold_frames * cohort.n_rois


def _estimate_step(method: Method, cohort: Cohort) -> float:
    """Memory of an optimisation step and of the parameters; 0 for closed-form models."""
    from ..training import NeuralMethod

    if not isinstance(method, NeuralMethod):
        return 0.0
    n_sites = len(set(cohort.sites.tolist()))
    graph = cohort.n_rois**2 * 4.0
    step = 2 * n_sites * method.settings.cell_batch * graph * method.estimate_peak_matrices()
    if find_method(method.name).file or not _is_enlarged(method.settings):
        return step
    parameters, outputs = _measure(method, cohort.n_rois, n_sites)
    _, usual = _measure(type(method)(), cohort.n_rois, n_sites)
    return step * max(1.0, outputs / usual) + 4.0 * _COPIES * parameters


def _is_enlarged(settings: Any) -> bool:
    """Whether a whole number of the settings is above its default; only then is measuring worth its second."""
    default = type(settings)()
    values = [(getattr(settings, name), getattr(default, name)) for name in find_numbers(type(settings))]
    return any(isinstance(now, int) and isinstance(usual, int) and now > usual for now, usual in values)


def _measure(method: NeuralMethod, n_rois: int, n_sites: int) -> tuple[int, int]:
    """Count the parameters of a network, and the outputs of its layers, without making it."""
    import torch

    from ..training.inputs import InputShape

    shape = InputShape(n_rois, n_sites, getattr(method.settings, "bold_frames", 0))
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        network = method.network(shape)
    parameters = list(network.parameters())
    return sum(p.numel() for p in parameters), sum(p.shape[0] for p in parameters if p.dim() > 1)


def check_memory(methods: Iterable[Method], cohort: Cohort, device: ComputeDevice) -> None:
    """Check that connectomes, and one run of each method, fit into the memory of their device."""
    for method in methods:
        needed = {device: _estimate_connectomes(cohort), method.place_fit(device): estimate_memory(method, cohort)}
        what = f"method '{method.name}' with these settings, on {len(cohort)} scans of {cohort.n_rois} ROIs, needs"
        advice = "choose smaller settings, or an atlas with fewer ROIs"
        for place, n_bytes in needed.items():
            require_memory(n_bytes, what, advice, find_free_memory(place.torch_device))


def check_number_of_runs(configurations: Mapping[str, int], n_folds: int, n_seeds: int) -> None:
    """Check that a job has not more runs than :data:`MOST_RUNS`."""
    n_runs = sum(configurations.values()) * n_folds * n_seeds
    if n_runs > MOST_RUNS:
        raise BrioError(
            f"this job would have {n_runs:,} runs ({len(configurations)} methods, {n_folds} folds, {n_seeds} seeds); "
            f"at most {MOST_RUNS:,} are possible: choose fewer seeds, methods or configurations"
        )


def state_needs(runs: Mapping[str, Method], cohort: Cohort, folder: Path, records_only: bool) -> str:
    """Say what a job needs, and check that it fits on the disk."""
    needed = max(estimate_memory(method, cohort) for method in {id(one): one for one in runs.values()}.values())
    disk = len(runs) * (_RECORD + (0 if records_only else 16 * cohort.n_rois**2))
    number = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    advice = "choose another --out, or store no weights (--records-only)"
    require_disk(disk, folder, f"{number} need{'s' if len(runs) == 1 else ''}", advice)
    return (
        f"{number}: {format_bytes(needed)} of memory or more for scans and models, about {format_bytes(disk)} on disk"
    )


def describe_rest(runs: Mapping[str, Method], store: RunStore) -> str:
    """Say how long the unfinished runs of a job take, if each takes as long as the finished ones of its method."""
    finished: dict[str, list[str]] = {}
    left: dict[str, int] = {}
    for key, method in runs.items():
        if key in store:
            finished.setdefault(method.name, []).append(key)
        else:
            left[method.name] = left.get(method.name, 0) + 1
    if not left or not left.keys() <= finished.keys():
        return ""
    total = 0.0
    for name, n in left.items():
        seconds = [float(store.read_record(key).row.seconds or 0.0) for key in finished[name]]
        total += n * sum(seconds) / len(seconds)
    return f"the others take about {format_time(total)}, if as long as these"
