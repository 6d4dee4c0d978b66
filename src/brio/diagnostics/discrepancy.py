"""Site discrepancy and predictive variation of fitted runs, over re-estimates and windows of scans."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeGuard, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .. import draws
from ..cohort import Cohort
from ..cohort.scans import find_live_rois, find_valid_frames, index_participants
from ..connectome import BlockRule, Connectomes, HarmonisedConnectomes, ReestimateRequest, clip_block_length
from ..connectome.connectomes import LEAST_FRAMES
from ..errors import BrioError
from ..methods.brio import BrioSettings
from ..methods.brio.qualification import contribution_statistics, reestimation_variation, reference_scale
from ..settings import require
from ..training import FittedRun, Inputs, Method, NeuralMethod, Run, Scans
from ..training.cells import cell_average_weights, group_by_cell
from ..training.stack import Stack, is_training_only
from ..transport import entropic_cost

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
        yield from scans.split(size)


Placement = Literal["first", "middle", "last"]
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
"""Where in a scan its window may lie."""


def locate_window(n_frames: int, share: float, placement: Placement) -> slice:
    """Return the frames of a scan that its window holds. Their number is rounded half up."""
    _check_window(share, placement)
    # 1e-9 absorbs rounding errors: 0.29 * 50 is 14.499999999999998
    length = int(np.floor(share * n_frames + 0.5 + 1e-9))
    start = {"first": 0, "middle": (n_frames - length) // 2, "last": n_frames - length}[placement]
    return slice(start, start + length)


def _check_window(share: float, placement: Placement) -> None:
    require(0 < share <= 1, "share", share, "above 0 and at most 1")
    require(placement in PLACEMENTS, "placement", placement, f"one of {', '.join(PLACEMENTS)}")


def estimate_window_connectomes(connectomes: Connectomes, share: float, placement: Placement) -> Connectomes:
    """Estimate the connectomes of a cohort from a share of the valid frames of every scan.

    A window is treated as a full scan: its connectome, its ROIs with signal and its resampled BOLD series are computed
    from its frames only. (An ROI that is flat within the window is without signal there; frames that it alone made
    invalid then count, beyond the share.) Scans keep their positions in the cohort, so
    ``method.predict_margins(fitted, estimate_window_connectomes(...), fold.test)`` applies a fitted run to windows.
    Frames are not copied.
    """
    _check_window(share, placement)
    if share == 1:
        return connectomes
    if isinstance(connectomes, HarmonisedConnectomes):
        raise BrioError("harmonised connectomes cannot be cut to windows; use runs without harmonisation")
    return Connectomes(_cut_cohort(connectomes, share, placement), connectomes.device, connectomes.dtype)


def _cut_cohort(connectomes: Connectomes, share: float, placement: Placement) -> Cohort:
    """A view of the cohort in which every scan is its window."""
    cohort = connectomes.cohort
    starts, lengths = cohort.starts.copy(), cohort.n_frames.copy()
    for i, n in enumerate(connectomes.n_frames):
        window = locate_window(int(n), share, placement)
        first, stop = window.start, window.stop
        if stop - first < LEAST_FRAMES:
            raise BrioError(
                f"participant {cohort.ids[i]}: a share of {share:g} of its {n} frames is {stop - first}, fewer than "
                f"the {LEAST_FRAMES} that a connectome needs; use a larger share or exclude the scan"
            )
        if n < cohort.n_frames[i]:  # from positions among the valid frames to positions in the scan
            scan = cohort.scan(i)
            valid = np.flatnonzero(find_valid_frames(scan, find_live_rois(scan)))
            first, stop = int(valid[first]), int(valid[stop - 1]) + 1
        starts[i], lengths[i] = cohort.starts[i] + first, stop - first
    table = cohort.participants
    if "n_frames" in table:
        table = table.assign(n_frames=lengths)
    fingerprint = hashlib.sha256(f"{cohort.fingerprint} {share} {placement}".encode()).hexdigest()
    return replace(cohort, starts=starts, n_frames=lengths, participants=table, fingerprint=fingerprint, path=None)


_PAPER = BrioSettings()
_COSTS_AT_A_TIME = 1 << 24  # entries of the cost matrices of one batch of transport problems


def site_discrepancy(
    representation: np.ndarray | Tensor,
    site: np.ndarray,
    label: np.ndarray,
    epsilon: float = _PAPER.epsilon,
    iterations: int = _PAPER.sinkhorn_iterations,
    device: torch.device | str = "cpu",
) -> float:
    """Compute the class-conditional site discrepancy D_site (appendix); lower means that source sites are more alike.

    D_site is the mean of :func:`pair_divergences` over pairs of source sites and both classes.

    Shapes: representation [n, d], site, label [n].
    """
    return float(pair_divergences(representation, site, label, epsilon, iterations, device).mean())


def pair_divergences(
    representation: np.ndarray | Tensor,
    site: np.ndarray,
    label: np.ndarray,
    epsilon: float = _PAPER.epsilon,
    iterations: int = _PAPER.sinkhorn_iterations,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Compute the debiased Sinkhorn divergence between every pair of sites, class by class.

    Representations are normalised to unit length. All scans of a cell have equal weight; nothing is qualified.

    Shapes: returns [pairs, 2].
    """
    names, members = group_by_cell(site, label)
    if len(names) < 2:
        raise BrioError("a discrepancy between sites needs at least two source sites")
    cost = _squared_distances(torch.as_tensor(representation).to(device, torch.float64))
    first, second = np.triu_indices(len(names), 1)
    cells = [scans for both in members for scans in both]  # cell 2 e + c
    every = np.arange(len(cells))
    within = _entropic_costs(cost, cells, every, every, epsilon, iterations).view(-1, 2)  # once per cell, not per pair
    left, right = ((2 * e[:, None] + np.arange(2)).reshape(-1) for e in (first, second))
    across = _entropic_costs(cost, cells, left, right, epsilon, iterations).view(-1, 2)
    return (across - 0.5 * within[first] - 0.5 * within[second]).cpu()


def _squared_distances(x: Tensor) -> Tensor:
    """Squared distances between unit-normalised rows. Shape [n, d] -> [n, n]."""
    unit = torch.nn.functional.normalize(x, dim=-1)
    square = unit.square().sum(-1)
    distance = square[:, None] + square - 2.0 * unit @ unit.T
    return distance.clamp_min(0.0).fill_diagonal_(0.0)


def _entropic_costs(
    cost: Tensor, cells: list[np.ndarray], left: np.ndarray, right: np.ndarray, epsilon: float, iterations: int
) -> Tensor:
    """Entropic costs between cells ``left[i]`` and ``right[i]``. Shape [problems].

    Sides are padded to powers of two with points without mass, and problems of the same padded shape are solved in one
    batch.
    """
    width = np.array([1 << (len(scans) - 1).bit_length() for scans in cells])
    out = cost.new_empty(len(left))
    shapes = np.stack([width[left], width[right]], 1)
    for n, m in np.unique(shapes, axis=0):
        problems = np.flatnonzero((shapes == [n, m]).all(1))
        size = max(1, _COSTS_AT_A_TIME // int(n * m))
        for part in (problems[start : start + size] for start in range(0, len(problems), size)):
            rows, log_eta = _pad_cells(cells, left[part], n, cost)
            columns, log_zeta = _pad_cells(cells, right[part], m, cost)
            C = cost[rows[:, :, None], columns[:, None, :]]
            out[torch.from_numpy(part).to(cost.device)] = entropic_cost(C, epsilon, iterations, log_eta, log_zeta)
    return out


def _pad_cells(cells: list[np.ndarray], chosen: np.ndarray, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Scans of the chosen cells, and their log weights, -inf for padding. Shapes [b, width]."""
    index, weight = np.zeros((len(chosen), width), dtype=np.int64), np.zeros((len(chosen), width))
    for row, cell in enumerate(chosen):
        scans = cells[cell]
        index[row], index[row, : len(scans)] = scans[0], scans
        weight[row, : len(scans)] = 1.0 / len(scans)
    return torch.from_numpy(index).to(like.device), torch.from_numpy(weight).to(like).log()


def predictive_variation(
    margin: np.ndarray, reestimated: np.ndarray, site: np.ndarray, label: np.ndarray, epsilon: float = 1e-12
) -> float:
    """Compute the normalised predictive re-estimation variation (appendix).

    It says how much logits vary under re-estimation, relative to their spread: the mean over source sites and classes
    of D_re / (T + epsilon), Eqs. (14) and (15) with the logit margin in place of a contribution. Scaling all logits
    does not change it.

    Shapes: margin [n], reestimated [n, K], site, label [n].
    """
    cells = cell_average_weights(site, label)
    full, other = torch.from_numpy(margin).double()[:, None], torch.from_numpy(reestimated).double()
    _, V, Delta = contribution_statistics(full, cells)
    D_re = reestimation_variation((other - full).square().mean(1, keepdim=True), cells)
    return float((D_re / (reference_scale(V, Delta) + epsilon)).mean())


def measure_discrepancies(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_lengths: Sequence[float],
    n_reestimates: int = DEFAULT_REESTIMATES,
    epsilon: float = _PAPER.epsilon,
    iterations: int = _PAPER.sinkhorn_iterations,
) -> pd.DataFrame:
    """Measure the site discrepancy and the predictive variation of each fitted run of a method.

    Returns one row per run, in the order of ``fitted_runs``: ``method``, ``fold``, ``seed``, ``validation_auc``,
    ``D_site``, ``D_re_pred``. The functions of :mod:`brio.diagnostics.mismatch` read it.
    """
    cohort = connectomes.cohort
    rows: dict[int, dict[str, object]] = {}
    fields = ("logit", "representation")
    for position, full, reestimated in iterate_source_outputs(
        method, fitted_runs, connectomes, block_lengths, n_reestimates, fields, ("logit",)
    ):
        fitted = fitted_runs[position]
        source = fitted.run.fold.source
        site, label = cohort.sites[source], cohort.labels[source]
        rows[position] = {
            "method": method.name,
            "fold": fitted.run.fold.name,
            "seed": fitted.run.seed,
            "validation_auc": fitted.validation_auc,
            "D_site": site_discrepancy(full["representation"], site, label, epsilon, iterations, connectomes.device),
            "D_re_pred": predictive_variation(full["logit"], reestimated["logit"], site, label),
        }
    columns = ["method", "fold", "seed", "validation_auc", "D_site", "D_re_pred"]
    return pd.DataFrame([rows[i] for i in range(len(fitted_runs))], columns=columns)


class RepeatedMargins(NamedTuple):
    """Margins of the test scans of participants with several scans in a fold.

    Shapes: scans [N], full [N], reestimated [N, K].
    """

    scans: np.ndarray  # positions in the cohort
    full: np.ndarray  # margins of the scans
    reestimated: np.ndarray  # margins of their re-estimates


def collect_repeated_margins(
    method: Method,
    fitted_runs: Sequence[FittedRun],
    connectomes: Connectomes,
    block_lengths: Sequence[float],
    n_reestimates: int,
) -> RepeatedMargins:
    """Apply fitted runs of one seed to the repeated scans among their test scans."""
    inputs = method.gather_inputs(connectomes)
    parts = []
    for fitted, length in zip(fitted_runs, block_lengths, strict=True):
        scans = select_repeated(connectomes.cohort.participant_ids, fitted.run.fold.test)
        if len(scans) == 0:
            continue
        blocks = clip_block_length(length, connectomes.n_frames[scans], BlockRule())
        request = ReestimateRequest(scans, blocks, fitted.run.seed, DIAGNOSTIC_REFRESH, n_reestimates)
        reestimated = np.empty((len(scans), n_reestimates))
        for chunk, resampled in inputs.iterate_reestimates(request):
            reestimated[chunk] = method.predict(fitted, resampled).margin.reshape(len(chunk), n_reestimates)
        full = method.predict_margins(fitted, connectomes, scans)
        parts.append(RepeatedMargins(scans, full, reestimated))
    if not parts:
        names = ", ".join(dict.fromkeys(fitted.run.fold.name for fitted in fitted_runs))
        raise BrioError(f"fold {names}: nobody has several scans among the test scans; choose other folds")
    return RepeatedMargins(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def select_repeated(participant_ids: np.ndarray, scans: np.ndarray) -> np.ndarray:
    """Select the scans of participants who have several among them.

    Shapes: participant_ids [n_all], scans [n]; returns [N].
    """
    _, member = index_participants(participant_ids[scans])
    return scans[np.bincount(member, minlength=1)[member] > 1]
