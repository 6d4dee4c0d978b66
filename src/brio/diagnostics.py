"""Diagnostics of fitted runs with everything frozen: pure functions without files or figures.

They cover outputs of fitted runs on re-estimates of their source scans; site discrepancy, predictive variation and
their relation over runs; the factors of BRIO and both propositions; windows of scans; and repeated scans.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata
from torch import Tensor

from . import draws
from .cohort.scans import find_live_rois, find_valid_frames
from .connectome import BlockRule, Connectomes, HarmonisedConnectomes, ReestimateRequest, clip_block_length
from .connectome.connectomes import LEAST_FRAMES, SCANS_AT_A_TIME
from .errors import BrioError
from .methods.brio import Brio, BrioSettings
from .methods.brio.qualification import (
    Qualification,
    contribution_statistics,
    pair_support,
    qualification_profile,
    qualify,
    reestimation_support,
    reestimation_variation,
    reference_scale,
)
from .settings import require
from .training import FittedRun, Inputs, Method, NeuralMethod, Run, Scans
from .training.stack import Stack, cell_average_weights, group_by_cell, is_training_only
from .transport import entropic_cost

DIAGNOSTIC_REESTIMATES = 8
"""Default number of re-estimates of each scan; BRIO draws as many at a refresh."""

# Stands in for the index of a refresh. Training uses 0, 1, 2, ..., so these draws differ from all of its own.
DIAGNOSTIC_REFRESH = draws.address("diagnostics")
Measured = TypeVar("Measured")
_PASS_BYTES = 64 << 20  # float64 features of one pass, for methods that are not stacked


def estimate_source_block_length(connectomes: Connectomes, run: Run) -> float:
    """Estimate the block length that all methods share for a fold and seed, from the source scans of the fold.

    The default block rule is used, so that methods with other settings see the same re-estimates.
    """
    cohort, source = connectomes.cohort, run.fold.source
    return connectomes.estimate_block_length(source, cohort.sites[source], cohort.labels[source], BlockRule(), run.seed)


@dataclass(frozen=True, eq=False)
class FrozenRuns:
    """Fitted runs of one method, and the re-estimates of their scans: block length of each run, number per scan."""

    method: Method
    fitted: Sequence[FittedRun]
    connectomes: Connectomes
    block_lengths: Sequence[float]
    n_reestimates: int = DIAGNOSTIC_REESTIMATES


Fields = dict[str, np.ndarray]
"""Fields of the outputs of one fitted run by name, scans in the order of ``run.fold.source``."""


def map_source_outputs(
    frozen: FrozenRuns,
    fields: tuple[Sequence[str], Sequence[str]],
    measure: Callable[[FittedRun, Fields, Fields], Measured],
) -> list[Measured]:
    """Measure a quantity of each fitted run of one method from its outputs for source scans and their re-estimates.

    Representations can be wide (a linear model uses every edge), so outputs of full scans are held for one run at a
    time. Runs of one seed and block length share their re-estimates, which are drawn once for all of them.

    ``fields`` holds the names of the fields for full scans and for re-estimates. Shapes: full scans [n, ...],
    re-estimates [n, K, ...].
    """
    inputs = frozen.method.gather_inputs(frozen.connectomes)
    measured: dict[int, Measured] = {}
    for (seed, rounded), positions in _group_runs(frozen):
        group = _RunGroup(frozen.method, [frozen.fitted[p] for p in positions], inputs)
        reestimated = _compute_reestimated(group, inputs, rounded, seed, frozen.n_reestimates, fields[1])
        for r, position in enumerate(positions):
            index = torch.from_numpy(frozen.fitted[position].run.fold.source).to(frozen.connectomes.device)
            parts = [group.compute(inputs.take(part), fields[0], [r]) for part in index.split(SCANS_AT_A_TIME)]
            full = {name: np.concatenate([part[name][0] for part in parts]) for name in fields[0]}
            measured[position] = measure(frozen.fitted[position], full, reestimated[r])
    return [measured[i] for i in range(len(frozen.fitted))]


def _group_runs(frozen: FrozenRuns) -> Iterator[tuple[tuple[int, float], list[int]]]:
    """Seed, rounded block length and positions of runs that share re-estimates and the shapes of their weights."""
    groups: dict[tuple[int, float, tuple[tuple[int, ...], ...]], list[int]] = {}
    method = frozen.method
    for position, (fitted, length) in enumerate(zip(frozen.fitted, frozen.block_lengths, strict=True)):
        if not fitted.parameters:
            raise BrioError(
                f"method '{method.name}', fold {fitted.run.fold.name}, seed {fitted.run.seed}: the weights of this "
                "run were not stored; run the job again without --records-only and with another --out"
            )
        shapes: tuple[tuple[int, ...], ...] = ()
        if _is_stackable(method):  # some keep a tensor per source site for inference, so shapes differ between folds
            read = [t for name, t in fitted.parameters.items() if not is_training_only(name, method)]
            read += [*fitted.state.learned.values(), *fitted.state.inference.values()]
            shapes = tuple(tuple(t.shape) for t in read)
        groups.setdefault((fitted.run.seed, float(np.floor(length + 0.5)), shapes), []).append(position)
    for (seed, rounded, _), positions in groups.items():
        yield (seed, rounded), positions


def _is_stackable(method: Method) -> TypeGuard[NeuralMethod]:
    return isinstance(method, NeuralMethod) and type(method).predict is NeuralMethod.predict


def _compute_reestimated(
    group: _RunGroup, inputs: Inputs, block_length: float, seed: int, n_reestimates: int, names: Sequence[str]
) -> list[Fields]:
    """Fields of every run on re-estimates of its own source scans. Shapes [n, K, ...]."""
    sources = [fitted.run.fold.source for fitted in group.fitted_runs]
    scans = np.unique(np.concatenate(sources))
    blocks = clip_block_length(block_length, inputs.connectomes.n_frames[scans], BlockRule())
    request = ReestimateRequest(scans, blocks, seed, DIAGNOSTIC_REFRESH, n_reestimates)
    outputs: dict[str, np.ndarray] = {}  # of all runs on the scans of all, [R, N, K, ...]
    for chunk, resampled in inputs.iterate_reestimates(request):
        for name, fields in group.compute(resampled, names).items():
            values = fields.reshape(len(sources), len(chunk), n_reestimates, *fields.shape[2:])
            whole = (len(sources), len(scans), *values.shape[2:])
            outputs.setdefault(name, np.empty(whole, values.dtype))[:, chunk] = values
    rows = [np.searchsorted(scans, source) for source in sources]
    return [{name: values[r, own] for name, values in outputs.items()} for r, own in enumerate(rows)]


class _RunGroup:
    """Fitted runs of one method that see the same scans: networks as a stack, other methods run by run."""

    def __init__(self, method: Method, fitted_runs: Sequence[FittedRun], inputs: Inputs) -> None:
        self.method, self.fitted_runs = method, fitted_runs
        self.stack: Stack | None = None
        if _is_stackable(method):
            like = inputs.take(torch.zeros(1, dtype=torch.int64, device=inputs.connectomes.device))
            self.stack = Stack.restore(method, like, fitted_runs)

    def compute(self, scans: Scans, names: Sequence[str], runs: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """Fields of the outputs of some of the runs (default: all) on the same scans. Shapes [R, B, ...]."""
        chosen = range(len(self.fitted_runs)) if runs is None else runs
        parts = []
        least = max(1, _PASS_BYTES // (8 * scans.A.shape[-1] ** 2))
        size = least if self.stack is None else self.stack.scans_per_pass(len(chosen), scans.A)
        for part in scans.split(size):
            if self.stack is None:
                predictions = [self.method.predict(self.fitted_runs[r], part) for r in chosen]
                fields = {"logit": "margin", "representation": "representation"}
                parts.append({name: np.stack([getattr(one, fields[name]) for one in predictions]) for name in names})
            else:
                index = None if runs is None else torch.tensor(list(runs), device=scans.A.device)
                out = self.stack.forward(part, shared=True, runs=index)
                parts.append({name: getattr(out, name).cpu().numpy() for name in names})
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in names}


_PAPER = BrioSettings()
_COSTS_AT_A_TIME = 1 << 24  # entries of the cost matrices of one batch of transport problems


def site_discrepancy(
    representation: np.ndarray | Tensor,
    site: np.ndarray,
    label: np.ndarray,
    epsilon: float = _PAPER.epsilon,
    iterations: int = _PAPER.sinkhorn_iterations,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Compute the debiased Sinkhorn divergence between every pair of source sites, class by class (appendix).

    Its mean is the site discrepancy D_site; lower means that source sites are more alike. Representations are
    normalised to unit length. All scans of a cell have equal weight; nothing is qualified.

    Shapes: representation [n, d], site, label [n]; returns [pairs, 2].
    """
    names, members = group_by_cell(site, label)
    if len(names) < 2:
        raise BrioError(
            "the discrepancy between sites needs at least two source sites, but there is one; add source sites"
        )
    unit = torch.nn.functional.normalize(torch.as_tensor(representation).to(device, torch.float64), dim=-1)
    square = unit.square().sum(-1)
    cost = (square[:, None] + square - 2.0 * unit @ unit.T).clamp_min(0.0).fill_diagonal_(0.0)  # [n, n]
    first, second = np.triu_indices(len(names), 1)
    cells = [scans for both in members for scans in both]  # cell 2 e + c
    every = np.arange(len(cells))
    within = _entropic_costs(cost, cells, every, every, epsilon, iterations).view(-1, 2)  # once per cell, not per pair
    left, right = ((2 * e[:, None] + np.arange(2)).reshape(-1) for e in (first, second))
    across = _entropic_costs(cost, cells, left, right, epsilon, iterations).view(-1, 2)
    return (across - 0.5 * within[first] - 0.5 * within[second]).cpu()


def _entropic_costs(
    cost: Tensor, cells: list[np.ndarray], left: np.ndarray, right: np.ndarray, epsilon: float, iterations: int
) -> Tensor:
    """Entropic costs between cells ``left[i]`` and ``right[i]``. Shape [problems].

    Sides are padded to powers of two with points without mass, and problems of the same padded shape are solved in one
    batch.
    """
    width = np.array([1 << (len(scans) - 1).bit_length() for scans in cells])
    padding = [np.pad(scans, (0, width.max() - len(scans)), constant_values=scans[0]) for scans in cells]
    padded, size = torch.from_numpy(np.stack(padding)), torch.tensor([[len(scans)] for scans in cells])
    log_weight = ((torch.arange(int(width.max())) < size) / size.to(cost.dtype)).log()
    padded, log_weight = padded.to(cost.device), log_weight.to(cost.device)
    out = cost.new_empty(len(left))
    shapes = np.stack([width[left], width[right]], 1)
    for n, m in np.unique(shapes, axis=0):
        problems, most = np.flatnonzero((shapes == [n, m]).all(1)), max(1, _COSTS_AT_A_TIME // int(n * m))
        for part in np.split(problems, range(most, len(problems), most)):
            rows, columns = padded[left[part], :n], padded[right[part], :m]
            marginals = log_weight[left[part], :n], log_weight[right[part], :m]
            C = cost[rows[:, :, None], columns[:, None, :]]
            out[part] = entropic_cost(C, epsilon, iterations, *marginals)
    return out


def predictive_variation(margin: np.ndarray, reestimated: np.ndarray, site: np.ndarray, label: np.ndarray) -> float:
    """Compute the normalised predictive re-estimation variation (appendix).

    It measures how much logits vary under re-estimation, relative to their spread. It is the mean over source sites and
    classes of D_re / T, Eqs. (14) and (15), with the logit margin in place of a contribution. Scaling all logits does
    not change it.

    Shapes: margin [n], reestimated [n, K], site, label [n].
    """
    cells = cell_average_weights(site, label)
    full, other = torch.from_numpy(margin).double()[:, None], torch.from_numpy(reestimated).double()
    _, V, Delta = contribution_statistics(full, cells)
    D_re = reestimation_variation((other - full).square().mean(1, keepdim=True), cells)
    return float((D_re / (reference_scale(V, Delta) + 1e-12)).mean())


def measure_discrepancies(frozen: FrozenRuns) -> pd.DataFrame:
    """Measure the site discrepancy and the predictive variation of each fitted run of a method.

    Returns one row per run, in their order: ``fold``, ``seed``, ``validation_auc``, ``D_site``,
    ``D_re_pred``.
    """
    cohort, device = frozen.connectomes.cohort, frozen.connectomes.device

    def measure(fitted: FittedRun, full: Fields, reestimated: Fields) -> dict[str, object]:
        fold = fitted.run.fold
        site, label = cohort.sites[fold.source], cohort.labels[fold.source]
        D_site = site_discrepancy(full["representation"], site, label, device=device).mean()
        return {
            "fold": fold.name,
            "seed": fitted.run.seed,
            "validation_auc": fitted.validation_auc,
            "D_site": float(D_site),
            "D_re_pred": predictive_variation(full["logit"], reestimated["logit"], site, label),
        }

    fields = ("logit", "representation"), ("logit",)
    return pd.DataFrame(map_source_outputs(frozen, fields, measure))


DELTA_AUC = 0.01
"""Tolerance for a preserved AUC; the paper does not state its value."""

_MEASURES, _RESAMPLES = ["D_site", "D_re_pred"], 2000
# The next functions read rows of runs, as measure_discrepancies returns them. Rates are shares, not percentages.


def spearman(rows: pd.DataFrame) -> tuple[float, float, float]:
    """Compute Spearman's rho of D_site and the predictive variation over runs, and its 95% bootstrap interval.

    NaN where one of them is constant; the interval is over folds, and NaN for one fold.
    """

    def correlate(parts: Sequence[np.ndarray]) -> float:
        values = np.concatenate(parts)
        if len(values) < 2 or (values == values[0]).all(0).any() or np.isnan(values).any():
            return float("nan")
        ranks = rankdata(values, axis=0)  # several times faster than spearmanr for the few runs of a resample
        return float(np.corrcoef(ranks.T)[1, 0])

    by_fold = [part[_MEASURES].to_numpy(dtype=float) for _, part in rows.groupby("fold")]
    return correlate([rows[_MEASURES].to_numpy(dtype=float)]), *_bootstrap_folds(by_fold, correlate)


def discordance(rows: pd.DataFrame) -> tuple[float, float, float]:
    """Compute R_discord: among pairs of methods, the share in which the smaller D_site has the larger variation.

    Methods are compared within a fold and seed. Pairs tied in either measure do not count; NaN if no pair is left.
    The 95% bootstrap interval is over folds, and NaN for one fold.
    """
    by_fold = []  # numbers of discordant pairs and of pairs without ties
    for _, fold in rows.groupby("fold"):
        counts = np.zeros(2)
        for _, group in fold.groupby("seed"):
            a, b = np.triu_indices(len(group), 1)
            D_site, D_re = group[_MEASURES].to_numpy(dtype=float).T
            direction = np.sign(D_site[a] - D_site[b]) * np.sign(D_re[a] - D_re[b])
            counts += (direction < 0).sum(), (direction != 0).sum()
        by_fold.append(counts)

    def divide(counts: Sequence[np.ndarray]) -> float:
        discordant, total = np.sum(counts, axis=0)
        return float(discordant / total) if total else float("nan")

    return divide(by_fold), *_bootstrap_folds(by_fold, divide)


def _bootstrap_folds(parts: list[Any], statistic: Callable[[list[Any]], float]) -> tuple[float, float]:
    """Percentile bootstrap interval over folds; NaN for fewer than two folds, or if a resample has no value."""
    if len(parts) < 2:
        return float("nan"), float("nan")
    resamples = np.random.default_rng(0).integers(0, len(parts), (_RESAMPLES, len(parts)))
    low, high = np.quantile([statistic([parts[i] for i in drawn]) for drawn in resamples], [0.025, 0.975])
    return float(low), float(high)


def mark_mismatches(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Mark the runs that are mismatches: their source sites look alike, yet their predictions vary.

    Returns the rows with two further columns, whose means over the runs of a method are its mismatch rates:
    ``mismatch`` (D_site below its median and variation above its median) and ``auc_preserved_mismatch``.
    """
    of_reference = rows[rows["arm"] == reference]
    if of_reference.duplicated(["fold", "seed"]).any():
        raise BrioError(
            f"'{reference}' cannot be the reference: it has several runs with the same fold and seed; keep one of them"
        )
    reference_auc = of_reference.set_index(["fold", "seed"])["validation_auc"]
    fold_and_seed = pd.MultiIndex.from_frame(rows[["fold", "seed"]])
    missing = ~fold_and_seed.isin(reference_auc.index)
    if missing.any():
        fold, seed = fold_and_seed[missing][0]
        raise BrioError(
            f"fold {fold}, seed {seed}: the reference '{reference}' was not run; run it with this fold and seed"
        )
    mismatch = (rows["D_site"] < rows["D_site"].median()) & (rows["D_re_pred"] > rows["D_re_pred"].median())
    slack = 1e-12  # an AUC exactly at the tolerance is preserved, however it was rounded
    least = reference_auc.loc[fold_and_seed].to_numpy() - DELTA_AUC - slack
    preserved = rows["validation_auc"].to_numpy() >= least
    return rows.assign(mismatch=mismatch, auc_preserved_mismatch=mismatch & preserved)


RANKINGS = ("qualification", "relevance", "support", "random")
"""Scores by which :func:`rank_factors` orders the factors of BRIO."""


@dataclass(frozen=True, eq=False)
class FactorEvidence:
    """Contributions and qualification of the factors of one frozen run on its source scans.

    Tensors are float64 on the host.

    Shapes: sites [E], a, squared_change [n, J], a_reestimated [n, K, J], cell_average [E, 2, n], Pi_bar [J, P].
    """

    sites: np.ndarray  # source sites, sorted. Every axis E has this order, and pairs of sites that of triu_indices
    a: Tensor  # contributions of full scans, in the order of run.fold.source
    a_reestimated: Tensor  # contributions of the re-estimates
    squared_change: Tensor  # mean over the re-estimates of (a^(k) - a^(0))^2
    cell_average: Tensor  # 1 / N_ec for the scans of site e and class c, else 0
    qualification: Qualification
    Pi_bar: Tensor  # the assignment, fixed after the warm-up
    settings: BrioSettings


def gather_factor_evidence(frozen: FrozenRuns) -> list[FactorEvidence]:
    """Compute contributions and qualifications of fitted BRIO runs on the re-estimates that all diagnostics share."""
    settings, cohort = _require_brio(frozen.method).settings, frozen.connectomes.cohort

    def measure(fitted: FittedRun, full: Fields, reestimated: Fields) -> FactorEvidence:
        source = fitted.run.fold.source
        site, label = cohort.sites[source], cohort.labels[source]
        a, a_reestimated = (torch.from_numpy(out["contributions"]).double() for out in (full, reestimated))
        cells, w = cell_average_weights(site, label), fitted.parameters["w"].double().cpu()
        site_weight = torch.full((len(cells),), 1.0 / len(cells), dtype=torch.float64)
        change = (a_reestimated - a[:, None]).square().mean(1)
        qualification = qualify(a, change, w, cells, site_weight, replace(settings, variant="full"))
        Pi_bar = fitted.state.inference["Pi_bar"].double().cpu()
        names, _ = group_by_cell(site, label)
        return FactorEvidence(names, a, a_reestimated, change, cells, qualification, Pi_bar, settings)

    fields = ("contributions",), ("contributions",)
    return map_source_outputs(frozen, fields, measure)


def roi_profile(alpha_bar: Tensor, Pi_bar: Tensor) -> Tensor:
    """Compute the ROI profile S_hat (appendix, interpretability): global qualifications assigned to ROIs.

    The global qualification of a factor is its mean over pairs and classes.

    Shapes: alpha_bar [pairs, 2, J], Pi_bar [J, P]; returns [P].
    """
    S = alpha_bar.mean((0, 1)) @ Pi_bar
    return S / S.sum()


def rank_factors(evidence: FactorEvidence, by: str, seed: int = 0) -> np.ndarray:
    """Order the factors from best to worst; factors with equal scores keep their order.

    Shapes: returns [J].
    """
    if by not in RANKINGS:
        raise BrioError(f"ranking '{by}' is unknown; known: {', '.join(RANKINGS)}")
    pi_task, support = evidence.qualification.pi_task, pair_support(evidence.qualification.q_re)
    scores = {
        "qualification": (pi_task * support).mean((0, 1)),
        "relevance": pi_task,
        "support": support.mean((0, 1)),
        "random": torch.from_numpy(draws.draw_uniform(seed, "random ranking of factors", np.arange(len(pi_task)))),
    }
    return scores[by].sort(descending=True, stable=True).indices.numpy()


def compute_contributions(method: Method, fitted: FittedRun, scans: Scans) -> Tensor:
    """Compute the contributions a of any scans under a fitted BRIO run.

    Shapes: returns [n, J].
    """
    return Stack.restore(_require_brio(method), scans, [fitted]).forward(scans, shared=True).contributions[0]


def retained_margin(a: Tensor, fitted: FittedRun, retained: Sequence[int] | np.ndarray) -> np.ndarray:
    """Compute the logit from some of the factors: Eq. (10) without the others, with the same classifier.

    With all factors retained, these are the margins of the run.

    Shapes: a [n, J]; returns [n].
    """
    mask = torch.zeros(a.shape[-1], dtype=a.dtype, device=a.device)
    mask[torch.as_tensor(np.asarray(retained, dtype=np.int64), device=a.device)] = 1.0
    logit = (a * mask).sum(-1) / math.sqrt(a.shape[-1]) + fitted.parameters["b"].to(a)
    return logit.double().cpu().numpy()


def _require_brio(method: Method) -> Brio:
    if not isinstance(method, Brio):
        raise BrioError(f"method '{method.name}' has no factors; use runs of brio or of one of its variants")
    return method


_ROUNDING = 1e-7  # a bound is the root of a difference of numbers near 1, in float64


def contrast_stability(V_sub: Tensor, Delta: Tensor, Delta_re: Tensor, D_re: Tensor, eps_q: float) -> dict[str, Tensor]:
    """Compute the quantities of Proposition 1, Eq. (17), for every site and factor.

    Shapes: V_sub, D_re [E, 2, J], Delta, Delta_re [E, J].
    """
    T = reference_scale(V_sub, Delta)
    q_re = reestimation_support(T, D_re, eps_q)
    kappa = Delta.square().unsqueeze(1) / (4.0 * (V_sub + eps_q))
    threshold = (1.0 + kappa) / (1.0 + 2.0 * kappa)
    bound = ((T + eps_q) * (1.0 / q_re - 1.0)).clamp_min(0.0).sqrt().sum(1)
    rounding = _ROUNDING * (T + eps_q).sqrt().sum(1)
    return {
        "q_re": q_re,
        "kappa": kappa,
        "threshold": threshold,
        "bound": bound,
        "holds": (Delta_re - Delta).abs() <= bound + rounding,
        "sign_condition": (q_re > threshold).all(1),
        "sign_kept": Delta * Delta_re > 0,
    }


def check_proposition_1(evidence: FactorEvidence) -> pd.DataFrame:
    """Check that class contrasts are stable under re-estimation, for each source site and factor of a frozen run.

    Proposition 1 says that ``holds`` is true in every row, and ``sign_kept`` in every row where ``sign_condition`` is.

    Returns one row per site and factor: ``site``, ``factor``, ``Delta``, ``Delta_re``, ``change`` (of the contrast),
    ``bound``, ``holds``; by class ``q_0``, ``q_1``, ``threshold_0``, ``threshold_1``; ``sign_condition``,
    ``sign_kept``. See :func:`contrast_stability`.
    """
    a, cells = evidence.a, evidence.cell_average
    _, V_sub, Delta = contribution_statistics(a, cells)
    _, _, Delta_re = contribution_statistics(evidence.a_reestimated.mean(1), cells)
    D_re = reestimation_variation(evidence.squared_change, cells)
    stability = contrast_stability(V_sub, Delta, Delta_re, D_re, evidence.settings.eps_q)
    E, J = Delta.shape
    columns: dict[str, Tensor] = {"Delta": Delta, "Delta_re": Delta_re, "change": (Delta_re - Delta).abs()}
    columns |= {name: stability[name] for name in ("bound", "holds")}
    by_class = {"q": stability["q_re"], "threshold": stability["threshold"]}
    columns |= {f"{name}_{c}": values[:, c] for name, values in by_class.items() for c in (0, 1)}
    columns |= {name: stability[name] for name in ("sign_condition", "sign_kept")}
    place = {"site": np.repeat(evidence.sites, J), "factor": np.tile(np.arange(J), E)}
    return pd.DataFrame(place | {name: t.flatten().numpy() for name, t in columns.items()})


def reweighting_gain(pi: Tensor, q_pair: Tensor) -> dict[str, Tensor]:
    """Compute how much support penalty reweighting by support saves (proof of Proposition 2).

    Shapes: pi [J], q_pair [pairs, 2, J]; returns [pairs, 2].
    """
    g, alpha_bar = qualification_profile(pi, q_pair)
    penalty_relevance = -torch.xlogy(pi, q_pair).sum(-1)
    objective = (torch.xlogy(alpha_bar, alpha_bar) - torch.xlogy(alpha_bar, pi * q_pair)).sum(-1)
    return {
        "penalty_relevance": penalty_relevance,
        "penalty": -g.log(),
        "objective": objective,
        "gain": penalty_relevance + g.log(),
        "kl": (torch.xlogy(pi, pi) - torch.xlogy(pi, alpha_bar)).sum(-1),
    }


def check_proposition_2(evidence: FactorEvidence) -> pd.DataFrame:
    """Check the variational form of the qualification, for each pair of source sites and class of a frozen run.

    Returns one row per pair and class: ``site_1``, ``site_2``, ``label``, ``g``; ``penalty_relevance``, ``penalty``,
    ``objective``, ``gain``, ``kl`` (see :func:`reweighting_gain`); and ``holds``: the objective at alpha_bar is -log g,
    and the gain equals the KL divergence and is not negative.
    """
    qualification = evidence.qualification
    gains = reweighting_gain(qualification.pi_task, pair_support(qualification.q_re))
    tolerance = _ROUNDING * (1.0 + gains["penalty_relevance"])
    holds = (gains["objective"] - gains["penalty"]).abs() <= tolerance
    holds &= ((gains["gain"] - gains["kl"]).abs() <= tolerance) & (gains["gain"] >= -tolerance)
    columns = {"g": (-gains["penalty"]).exp(), **gains, "holds": holds}
    first, second = (np.repeat(evidence.sites[e], 2) for e in np.triu_indices(len(evidence.sites), 1))
    place = {"site_1": first, "site_2": second, "label": np.arange(len(first)) % 2}
    return pd.DataFrame(place | {name: t.flatten().numpy() for name, t in columns.items()})


PLACEMENTS = ("first", "middle", "last")
"""Where in a scan its window may lie."""


def estimate_window_connectomes(connectomes: Connectomes, share: float, placement: str) -> Connectomes:
    """Estimate the connectomes of a cohort from a share of the valid frames of every scan.

    A window is treated as a full scan: its connectome, its ROIs with signal and its resampled BOLD series are computed
    from its frames only. (An ROI that is flat within the window is without signal there; frames that only this ROI made
    invalid then count in addition to the share.) Scans keep their positions in the cohort, so
    ``method.predict_margins(fitted, estimate_window_connectomes(...), fold.test)`` applies a fitted run to windows.
    Frames are not copied, and their number is rounded half up.
    """
    require(0 < share <= 1, "share", share, "above 0 and at most 1")
    require(placement in PLACEMENTS, "placement", placement, f"one of {', '.join(PLACEMENTS)}")
    if share == 1:
        return connectomes
    if isinstance(connectomes, HarmonisedConnectomes):
        raise BrioError(
            "connectomes of windows cannot be estimated from harmonised connectomes; use runs without harmonisation"
        )
    cohort = connectomes.cohort
    starts, lengths = cohort.starts.copy(), cohort.n_frames.copy()
    for i, n in enumerate(connectomes.n_frames):
        # 1e-9 absorbs rounding errors: 0.29 * 50 is 14.499999999999998
        length = int(np.floor(share * n + 0.5 + 1e-9))
        first = {"first": 0, "middle": (int(n) - length) // 2, "last": int(n) - length}[placement]
        stop = first + length
        if stop - first < LEAST_FRAMES:
            raise BrioError(
                f"participant {cohort.ids[i]}: the window has only {stop - first} of {n} frames; a connectome needs "
                f"at least {LEAST_FRAMES}; use a share above {share:g}, or exclude the scan"
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
    view = replace(cohort, starts=starts, n_frames=lengths, participants=table, fingerprint=fingerprint, path=None)
    return Connectomes(view, connectomes.device, connectomes.dtype)


class RepeatedMargins(NamedTuple):
    """Margins of the N test scans of participants with several scans in a fold, under S seeds."""

    scans: np.ndarray  # positions in the cohort, [N]
    full: np.ndarray  # margins of the scans, [N, S]
    reestimated: np.ndarray  # margins of their re-estimates, [N, S, K]


def collect_repeated_margins(frozen: FrozenRuns) -> RepeatedMargins:
    """Apply fitted runs of one method to the repeated scans among their test scans."""
    method, connectomes, K = frozen.method, frozen.connectomes, frozen.n_reestimates
    inputs = method.gather_inputs(connectomes)
    parts: dict[int, list[tuple[np.ndarray, ...]]] = {}
    for fitted, length in zip(frozen.fitted, frozen.block_lengths, strict=True):
        test = fitted.run.fold.test
        scans = test[pd.Series(connectomes.cohort.participant_ids[test]).duplicated(keep=False).to_numpy()]
        if len(scans) == 0:
            continue
        blocks = clip_block_length(length, connectomes.n_frames[scans], BlockRule())
        reestimated = np.empty((len(scans), K))
        request = ReestimateRequest(scans, blocks, fitted.run.seed, DIAGNOSTIC_REFRESH, K)
        for chunk, resampled in inputs.iterate_reestimates(request):
            reestimated[chunk] = method.predict(fitted, resampled).margin.reshape(len(chunk), K)
        full = method.predict_margins(fitted, connectomes, scans)
        parts.setdefault(fitted.run.seed, []).append((scans, full, reestimated))
    if not parts:
        names = ", ".join(dict.fromkeys(fitted.run.fold.name for fitted in frozen.fitted))
        raise BrioError(
            f"no participant has several test scans (folds: {names}); choose other folds, or add repeated scans"
        )
    by_seed = [[np.concatenate(field) for field in zip(*folds, strict=True)] for folds in parts.values()]
    sorted_by_scan = [[field[np.argsort(scans)] for field in (scans, *fields)] for scans, *fields in by_seed]
    scans, full, reestimated = (np.stack(field, axis=1) for field in zip(*sorted_by_scan, strict=True))
    return RepeatedMargins(scans[:, 0], full, reestimated)
