"""Outputs of fitted runs on their source scans, and on re-estimates of these scans.

Every method sees the same re-estimates. Their draws depend on the seed of the run, the participant and an address that
training never uses; their block length is a parameter, one value for each fold and seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..connectome import BlockRule, Connectomes, ReestimateRequest, clip_block_length
from ..errors import BrioError
from ..training import FittedRun, Inputs, Method, NeuralMethod, Run, Scans
from ..training.stack import Stack, is_training_only

DEFAULT_REESTIMATES = 8
"""Re-estimates of each scan by default; BRIO draws as many at a refresh."""

# Stands in for the index of a refresh. Training uses 0, 1, 2, ..., so these draws differ from all of its own.
DIAGNOSTIC_REFRESH = draws.address("diagnostics")
_SCANS_AT_A_TIME = 256  # full scans gathered together
_PASS_BYTES = 64 << 20  # float64 features of one pass, for methods that are not stacked


class SourceOutputs(NamedTuple):
    """Outputs of one fitted run, scans in the order of ``run.fold.source``.

    Shapes: full [n, ...], reestimated [n, K, ...].
    """

    position: int  # of the run in the sequence of fitted runs
    full: dict[str, np.ndarray]  # requested fields for full scans
    reestimated: dict[str, np.ndarray]  # requested fields for K re-estimates of each scan


def estimate_source_block_length(connectomes: Connectomes, run: Run) -> float:
    """Estimate the block length that all methods share for a fold and seed, from the source scans of the fold.

    The default block rule is used, so that methods with other settings see the same re-estimates.
    """
    cohort, source = connectomes.cohort, run.fold.source
    return connectomes.estimate_block_length(source, cohort.sites[source], cohort.labels[source], BlockRule(), run.seed)


def iterate_source_outputs(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_lengths: Sequence[float],
    n_reestimates: int,
    full_fields: Sequence[str],
    reestimated_fields: Sequence[str],
) -> Iterator[SourceOutputs]:
    """Yield the outputs of fitted runs of one method, run by run.

    Representations can be wide (a linear model reads every edge), so outputs of full scans are held for one run at a
    time. Runs of one seed and block length share their re-estimates, which are drawn once for all of them.
    """
    inputs = method.gather_inputs(connectomes)
    for (seed, rounded), positions in _group_runs(method, fitted_runs, block_lengths):
        group = _RunGroup(method, [fitted_runs[p] for p in positions], inputs)
        sources = [fitted_runs[p].run.fold.source for p in positions]
        reestimated = _compute_reestimated(group, inputs, sources, rounded, seed, n_reestimates, reestimated_fields)
        for r, position in enumerate(positions):
            index = torch.from_numpy(sources[r]).to(connectomes.device)
            parts = [group.compute(inputs.take(part), full_fields, [r]) for part in index.split(_SCANS_AT_A_TIME)]
            full = [np.concatenate(field, axis=1)[0] for field in zip(*parts, strict=True)]
            yield SourceOutputs(
                position,
                dict(zip(full_fields, full, strict=True)),
                dict(zip(reestimated_fields, reestimated[r], strict=True)),
            )


def _group_runs(
    method: Method, fitted_runs: Sequence[FittedRun], block_lengths: Sequence[float]
) -> Iterator[tuple[tuple[int, float], list[int]]]:
    """Seed, rounded block length and positions of runs that share re-estimates and the shapes of their weights."""
    groups: dict[tuple[int, float, tuple[tuple[int, ...], ...]], list[int]] = {}
    for position, (fitted, length) in enumerate(zip(fitted_runs, block_lengths, strict=True)):
        if not fitted.parameters:
            raise BrioError(
                f"method '{method.name}', fold {fitted.run.fold.name}, seed {fitted.run.seed}: the weights of this "
                "run were not stored; run it again without --records-only"
            )
        shapes: tuple[tuple[int, ...], ...] = ()
        # some methods keep a tensor per source site for inference, so shapes differ between folds
        if _is_stackable(method):
            shapes = tuple(tuple(t.shape) for t in _inference_tensors(method, fitted))
        key = (fitted.run.seed, float(np.floor(length + 0.5)), shapes)
        groups.setdefault(key, []).append(position)
    for (seed, rounded, _), positions in groups.items():
        yield (seed, rounded), positions


def _is_stackable(method: Method) -> TypeGuard[NeuralMethod]:
    return isinstance(method, NeuralMethod) and type(method).predict is NeuralMethod.predict


def _inference_tensors(method: NeuralMethod, fitted: FittedRun) -> list[Tensor]:
    """The tensors of a fitted run that its network reads at inference."""
    read = [t for name, t in fitted.parameters.items() if not is_training_only(name, method)]
    return [*read, *fitted.state.learned.values(), *fitted.state.inference.values()]


def _compute_reestimated(
    group: _RunGroup,
    inputs: Inputs,
    sources: list[np.ndarray],
    block_length: float,
    seed: int,
    n_reestimates: int,
    names: Sequence[str],
) -> list[list[np.ndarray]]:
    """Fields of every run on re-estimates of its own source scans. Shapes [n, K, ...]."""
    scans = np.unique(np.concatenate(sources))
    blocks = clip_block_length(block_length, inputs.connectomes.n_frames[scans], BlockRule())
    row_of_scan = np.full((len(sources), len(scans)), -1)  # in the outputs of a run; -1: not one of its scans
    for r, source in enumerate(sources):
        row_of_scan[r, np.searchsorted(scans, source)] = np.arange(len(source))
    outputs: list[list[np.ndarray]] = [[] for _ in sources]
    request = ReestimateRequest(scans, blocks, seed, DIAGNOSTIC_REFRESH, n_reestimates)
    for chunk, resampled in inputs.iterate_reestimates(request):
        for r, fields in enumerate(zip(*group.compute(resampled, names), strict=True)):
            own_rows = row_of_scan[r, chunk]
            is_own = own_rows >= 0
            for k, field in enumerate(fields):
                if len(outputs[r]) == k:
                    outputs[r].append(np.empty((len(sources[r]), n_reestimates, *field.shape[1:]), field.dtype))
                values = field.reshape(len(chunk), n_reestimates, *field.shape[1:])
                outputs[r][k][own_rows[is_own]] = values[is_own]
    return outputs


class _RunGroup:
    """Fitted runs of one method that see the same scans: networks as a stack, other methods run by run."""

    def __init__(self, method: Method, fitted_runs: Sequence[FittedRun], inputs: Inputs) -> None:
        self.method, self.fitted_runs = method, fitted_runs
        self.stack: Stack | None = None
        if _is_stackable(method):
            like = inputs.take(torch.zeros(1, dtype=torch.int64, device=inputs.connectomes.device))
            self.stack = Stack.restore(method, like, fitted_runs)

    def compute(self, scans: Scans, names: Sequence[str], runs: Sequence[int] | None = None) -> list[np.ndarray]:
        """Fields of the outputs of some of the runs (default: all) on the same scans. Shapes [R, B, ...]."""
        chosen = range(len(self.fitted_runs)) if runs is None else runs
        parts = []
        for part in self._split(scans, len(chosen)):
            if self.stack is None:
                predictions = [self.method.predict(self.fitted_runs[r], part) for r in chosen]
                fields = [{"logit": p.margin, "representation": p.representation} for p in predictions]
                parts.append([np.stack([one[name] for one in fields]) for name in names])
            else:
                index = None if runs is None else torch.tensor(list(runs), device=scans.A.device)
                out = self.stack.forward(part, shared=True, runs=index)
                parts.append([getattr(out, name).cpu().numpy() for name in names])
        return [np.concatenate(fields, axis=1) for fields in zip(*parts, strict=True)]

    def _split(self, scans: Scans, n_runs: int) -> Iterator[Scans]:
        """Scans in portions that fit into memory."""
        size = max(1, _PASS_BYTES // (8 * scans.A.shape[-1] ** 2))
        if self.stack is not None:
            size = self.stack.scans_per_pass(n_runs, scans.A)
        for fields in zip(*(field.split(size) for field in scans), strict=True):
            yield Scans(*fields)
