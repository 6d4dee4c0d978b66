"""What fitted runs say of their source scans at full length, and of re-estimates of them.

Every method is asked about the same re-estimates: their draws depend on the seed of the run, the participant and one
address that training never uses, and their block length is given in, one for each fold and seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import draws
from ..connectome import BlockRule, Connectomes, Resamples, clip_block_length
from ..errors import BrioError
from ..training import FittedRun, Inputs, Method, NeuralMethod, Run, Scans
from ..training.stack import Stack, is_training_only

__all__ = ["RESAMPLES", "SourceAnswers", "source_answers", "source_block_length", "source_outputs"]

RESAMPLES = 8
"""Re-estimates of each scan, as many as BRIO makes at a refresh by default."""

_ADDRESS = draws.address("diagnostics")  # stands where training has the number of a refresh: 0, 1, 2, ...
_TAKEN = 256  # full scans gathered at a time
_PASS_BYTES = 64 << 20  # of features of a method without a stack, float64


class SourceAnswers(NamedTuple):
    """What one fitted run says of its source scans, in the order of ``run.fold.source``."""

    margin: np.ndarray  # [n] logit margin of the full scan, float64
    representation: np.ndarray  # [n, d] what the classifier reads, in the precision of the connectomes
    again: np.ndarray  # [n, K] logit margins of the re-estimates, float64


def source_block_length(connectomes: Connectomes, run: Run) -> float:
    """The block length that all methods share for a fold and seed: the fold-level estimate from its source scans."""
    cohort, source = connectomes.cohort, run.fold.source
    return connectomes.estimate_block_length(source, cohort.sites[source], cohort.labels[source], BlockRule(), run.seed)


def source_answers(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_length: Sequence[float],
    n_resamples: int = RESAMPLES,
) -> list[SourceAnswers]:
    """What fitted runs of one method say of their source scans and of K re-estimates of each.

    Representations can be wide (a linear model reads every edge); to keep few of them at a time, hand over few runs at
    a time or walk through :func:`source_outputs`.

    Parameters
    ----------
    method : Method
        With the settings the runs were fitted with.
    fitted_runs : sequence of FittedRun
        Fitted runs, with weights.
    connectomes : Connectomes
        What the runs were fitted on.
    block_length : sequence of float
        For each run, see :func:`source_block_length`.
    n_resamples : int
        K.

    Returns
    -------
    list of SourceAnswers
        In the order of ``fitted_runs``.

    Examples
    --------
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> from brio.methods import make_method
    >>> from brio.protocol import leave_one_site_out
    >>> graphs = Connectomes(simulate(Simulation(n_sites=5, per_class=4, n_rois=8, frames=60)))
    >>> ridge, run = make_method("ridge"), Run(leave_one_site_out(graphs.cohort, 0)[0], 0)
    >>> (said,) = source_answers(ridge, ridge.fit(graphs, [run]), graphs, [source_block_length(graphs, run)])
    >>> said.again.shape == (len(run.fold.source), 8)
    True
    """
    found: dict[int, SourceAnswers] = {}
    walk = source_outputs(
        method, fitted_runs, connectomes, block_length, n_resamples, ("logit", "representation"), ("logit",)
    )
    for position, (margin, representation), (again,) in walk:
        found[position] = SourceAnswers(
            margin.astype(np.float64),
            representation.astype(connectomes.full.new_empty(0).cpu().numpy().dtype),
            again.astype(np.float64),
        )
    return [found[i] for i in range(len(fitted_runs))]


def source_outputs(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_length: Sequence[float],
    n_resamples: int,
    of_full: tuple[str, ...],
    of_again: tuple[str, ...],
) -> Iterator[tuple[int, list[np.ndarray], list[np.ndarray]]]:
    """Walk through fitted runs: fields of a method's output on source scans, and on K re-estimates of each.

    Runs of one seed and block length are asked together about the same re-estimates, which are made once.

    Parameters
    ----------
    of_full, of_again : tuple of str
        Fields of the output of the method's network; ``logit`` and ``representation`` of any method.

    Yields
    ------
    position : int
        Into ``fitted_runs``; runs come group by group.
    full : list of ndarray, shapes [n, ...]
        The fields ``of_full``, scans in the order of the run's ``fold.source``.
    again : list of ndarray, shapes [n, K, ...]
        The fields ``of_again``.
    """
    inputs = method.inputs(connectomes)
    for (seed, rounded), positions in _groups(method, fitted_runs, block_length):
        runs = _Runs(method, [fitted_runs[p] for p in positions], inputs)
        sources = [fitted_runs[p].run.fold.source for p in positions]
        again = _asked_again(runs, inputs, sources, rounded, seed, n_resamples, of_again)
        for r, position in enumerate(positions):
            index = torch.from_numpy(sources[r]).to(connectomes.device)
            parts = [runs.say(inputs.take(part), of_full, [r]) for part in index.split(_TAKEN)]
            yield position, [np.concatenate(fields, axis=1)[0] for fields in zip(*parts, strict=True)], again[r]


def _groups(
    method: Method, fitted_runs: Sequence[FittedRun], block_length: Sequence[float]
) -> Iterator[tuple[tuple[int, float], list[int]]]:
    """Runs that see the same re-estimates and whose weights have the same shapes."""
    groups: dict[tuple[int, float, tuple[tuple[int, ...], ...]], list[int]] = {}
    for position, (fitted, length) in enumerate(zip(fitted_runs, block_length, strict=True)):
        if not fitted.parameters:
            raise BrioError(
                f"method '{method.name}', fold {fitted.run.fold.name}, seed {fitted.run.seed}: the weights of this "
                "run were not kept; run it again without --records-only"
            )
        shapes: tuple[tuple[int, ...], ...] = ()
        if isinstance(method, NeuralMethod) and _stackable(method):  # a bank grows with source sites
            shapes = tuple(tuple(t.shape) for t in _inference_tensors(method, fitted))
        key = (fitted.run.seed, float(np.floor(length + 0.5)), shapes)
        groups.setdefault(key, []).append(position)
    for (seed, rounded, _), positions in groups.items():
        yield (seed, rounded), positions


def _stackable(method: Method) -> bool:
    return isinstance(method, NeuralMethod) and type(method).predict is NeuralMethod.predict


def _inference_tensors(method: NeuralMethod, fitted: FittedRun) -> list[Tensor]:
    """The tensors of a fitted run that its network reads at inference."""
    read = [t for name, t in fitted.parameters.items() if not is_training_only(name, method)]
    return [*read, *fitted.state.learned.values(), *fitted.state.inference.values()]


def _asked_again(
    runs: _Runs,
    inputs: Inputs,
    sources: list[np.ndarray],
    block_length: float,
    seed: int,
    n_resamples: int,
    names: tuple[str, ...],
) -> list[list[np.ndarray]]:
    """The named outputs of every run on re-estimates of its own source scans. Shapes [n, K, ...]."""
    graphs = inputs.connectomes
    scans = np.unique(np.concatenate(sources))
    blocks = clip_block_length(block_length, graphs.n_frames[scans], BlockRule())
    row = np.full((len(sources), len(scans)), -1)  # where a run has a scan, -1 where it is not its own
    for r, source in enumerate(sources):
        row[r, np.searchsorted(scans, source)] = np.arange(len(source))
    found: list[list[np.ndarray]] = [[] for _ in sources]
    asked = Resamples(scans, blocks, seed, _ADDRESS, n_resamples)
    for chunk, resampled in inputs.reestimates(asked):
        for r, fields in enumerate(zip(*runs.say(resampled, names), strict=True)):
            own = row[r, chunk]
            for k, field in enumerate(fields):
                if len(found[r]) == k:
                    found[r].append(np.empty((len(sources[r]), n_resamples, *field.shape[1:]), field.dtype))
                found[r][k][own[own >= 0]] = field.reshape(len(chunk), n_resamples, *field.shape[1:])[own >= 0]
    return found


class _Runs:
    """Fitted runs of one method that are asked together: as a stack where it is a network, else one after another."""

    def __init__(self, method: Method, fitted_runs: Sequence[FittedRun], inputs: Inputs) -> None:
        self.method, self.fitted_runs = method, fitted_runs
        self.stack: Stack | None = None
        if isinstance(method, NeuralMethod) and _stackable(method):
            like = inputs.take(torch.zeros(1, dtype=torch.int64, device=inputs.connectomes.device))
            self.stack = Stack.restore(method, like, fitted_runs)

    def say(self, scans: Scans, names: tuple[str, ...], among: Sequence[int] | None = None) -> list[np.ndarray]:
        """The named outputs of some of the runs, or all, on the same scans. Shapes [R, B, ...]."""
        chosen = range(len(self.fitted_runs)) if among is None else among
        parts = []
        for part in self._passes(scans, len(chosen)):
            if self.stack is None:
                answers = [self.method.predict(self.fitted_runs[r], part) for r in chosen]
                told = [{"logit": a.margin, "representation": a.representation} for a in answers]
                parts.append([np.stack([one[name] for one in told]) for name in names])
            else:
                index = None if among is None else torch.tensor(list(among), device=scans.A.device)
                out = self.stack.forward(part, shared=True, runs=index)
                parts.append([getattr(out, name).cpu().numpy() for name in names])
        return [np.concatenate(fields, axis=1) for fields in zip(*parts, strict=True)]

    def _passes(self, scans: Scans, n_runs: int) -> Iterator[Scans]:
        """The scans in portions for which memory suffices."""
        size = max(1, _PASS_BYTES // (8 * scans.A.shape[-1] ** 2))
        if self.stack is not None:
            size = self.stack.graphs_in_a_pass(n_runs, scans.A)
        for fields in zip(*(field.split(size) for field in scans), strict=True):
            yield Scans(*fields)
