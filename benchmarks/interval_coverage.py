"""Do tests and intervals hold their level? Real connectomes, with labels permuted and with planted signal.

    python benchmarks/interval_coverage.py COHORT [COHORT ...] [--draws 5000] [--quick]

A ridge classifier at a fixed penalty, on correlations (FC) and on log-connectomes (log), stands for two methods. Every
draw permutes the labels within sites, so that the true AUC is one half (under k-fold it is higher: shares of patients
differ between sites, and a model can tell sites apart). For other signals, the class difference of the real labels is
added to the connectomes again, as strong as it takes for both views to reach a stated AUC; its strength varies between
sites with an SD of 30%, half of the variance shared by both views. Sites are new in every draw, or the same in all.
Settings: all 20 sites; 10, 5 or 3 of them, chosen 20 times; ten folds, stratified by site, with three seeds, dealt anew
for every 25 draws.

Each row is one test of one quantity: how often a two-sided test at the 5% level rejects the truth, which is how often
the 95% interval misses it; the upper end of the 95% interval of that rate; the power, which is how often it rejects a
value that is ten points (AUC) or six points (difference) below the truth; and the mean half-width of the interval. The
truth is one half or no difference without signal, else the mean over draws. Two one-sided tests (equivalence) are rated
by how often they state that two methods differ by less than two points where they differ by two; their power is for
methods that do not differ. ``standing`` says what the first intervals were (old) and which are printed today (used).
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from scipy.special import ndtri
from torch import Tensor

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes, log_connectome
from brio.protocol.statistics import EQUIVALENCE_MARGIN, LEAST_FOR_NEW_SITE, fold_correction, site_correction

PENALTY, INTERCEPT = 1.0, 100.0  # relative to the mean diagonal of the kernel; the constant stands for an intercept
MARGIN = 100 * EQUIVALENCE_MARGIN
SITE_SD, SHARED = 0.3, 0.5
TRUE_AUC = 70.0
SHIFTS = {"AUC": 10.0, "difference": 6.0}
"""Points between the truth and the value that a test should reject, for its power."""
SUBSETS, FOLDS, SEEDS, CHUNK = 20, 10, 3, 250
SETTINGS = {"20 sites": 20, "19 sites": 19, "10 sites": 10, "5 sites": 5, "3 sites": 3, "ten folds": None}
AMPLITUDES, TUNING_DRAWS = (0.05, 0.09, 0.13, 0.2, 0.3), 200

FindTruth = Callable[[str, np.ndarray], np.ndarray]


class Kernels:
    """Kernels of both views of some participants, and the inverses that all their models follow from.

    With ``G = (K + penalty)^-1`` over all participants, the margins of a block by a model of all others are
    ``y - G_bb^-1 (G y)_b``. A signal of strength ``a`` adds ``a y_i`` times a direction to the features of participant
    i, which changes the kernel by a matrix of rank two.
    """

    def __init__(
        self, kernels: list[Tensor], label: Tensor, site: Tensor, directions: list[Tensor] | None = None
    ) -> None:
        self.kernels, self.label = kernels, label
        self.site = torch.unique(site, return_inverse=True)[1]
        self.n_sites = int(self.site.max()) + 1
        self.blocks = [torch.nonzero(self.site == s)[:, 0] for s in range(self.n_sites)]
        self.directions = directions or [self._find_direction(kernel) for kernel in kernels]
        identity = torch.eye(len(label), dtype=torch.float64, device=label.device)
        self.inverses = [torch.linalg.inv(kernel + INTERCEPT + PENALTY * identity) for kernel in kernels]

    @classmethod
    def read(cls, cohort: Cohort, device: str) -> "Kernels":
        """Compute the kernels of a cohort, centred, with a mean diagonal of one."""
        matrices = Connectomes(cohort).full
        rows, columns = np.triu_indices(matrices.shape[1], 1)
        kernels = []
        for view in (matrices, torch.cat([log_connectome(part, 0.5) for part in matrices.split(64)])):
            edges = view[:, rows, columns].to(device, torch.float64)
            edges -= edges.mean(dim=0)
            kernel = edges @ edges.T
            kernels.append(kernel * len(kernel) / kernel.trace())
        site = np.unique(cohort.sites, return_inverse=True)[1]
        return cls(kernels, torch.as_tensor(cohort.labels == 1, device=device), torch.as_tensor(site, device=device))

    def select(self, sites: list[int]) -> "Kernels":
        """Return the kernels of the participants of some sites, in their order."""
        kept = torch.cat([self.blocks[s] for s in sites])
        site = torch.cat([torch.full_like(self.blocks[s], k) for k, s in enumerate(sites)])
        kernels = [kernel[kept][:, kept] for kernel in self.kernels]
        return Kernels(kernels, self.label[kept], site, [d[kept] for d in self.directions])

    def _find_direction(self, kernel: Tensor) -> Tensor:
        """Return the products of all features with the mean class difference within sites, of length one."""
        weight = torch.zeros(len(self.label), dtype=torch.float64, device=kernel.device)
        for block in self.blocks:
            patient = self.label[block]
            weight[block] = torch.where(patient, 1 / patient.sum(), -1 / (~patient).sum()).double()
        products = kernel @ weight
        return products / (weight @ products).sqrt()

    def permute(self, draws: int, rng: torch.Generator) -> Tensor:
        """Permute the labels within sites. Shape [draws, n]."""
        label = self.label.expand(draws, -1).clone()
        for block in self.blocks:
            order = torch.rand(draws, len(block), generator=rng, device=label.device).argsort(dim=1)
            label[:, block] = self.label[block][order]
        return label

    def score(self, view: int, label: Tensor, strength: Tensor, blocks: list[Tensor]) -> Tensor:
        """Return the margins of each block by a model of all other participants. Shape [draws, n].

        Parameters
        ----------
        view : int
        label, strength : Tensor, shape [draws, n]
        blocks : list of Tensor, shape [size]
            Participants of each block.
        """
        G, y = self.inverses[view], label.double() - 0.5
        U = torch.stack([strength * y, self.directions[view].expand_as(y)], dim=2)  # [draws, n, 2]
        GU = torch.einsum("ij,djk->dik", G, U)
        corner = torch.tensor([[0.0, 1.0], [1.0, -1.0]], dtype=G.dtype, device=G.device)
        core = torch.linalg.inv(corner + U.mT @ GU)
        solved = y @ G - (GU @ (core @ (GU.mT @ y[:, :, None])))[:, :, 0]
        joined = torch.cat([GU, solved[:, :, None]], dim=2)  # [draws, n, 3]
        margins = torch.full_like(y, torch.nan)
        for block in blocks:
            part = joined[:, block]
            right = torch.einsum("ij,djk->dik", torch.linalg.inv(G[block][:, block]), part)
            # the inverse of the block less its change of rank two, applied to the last column
            inner = torch.linalg.inv(core) - part[:, :, :2].mT @ right[:, :, :2]
            change = right[:, :, :2] @ torch.linalg.solve(inner, part[:, :, :2].mT @ right[:, :, 2:])
            margins[:, block] = y[:, block] - right[:, :, 2] - change[:, :, 0]
        return margins


def draw_strengths(
    amplitudes: Sequence[float], kernels: Kernels, draws: int, rng: torch.Generator, effects: Tensor | None
) -> Tensor:
    """Return the strength of the signal at each participant's site in both views. Shape [2, draws, n].

    Parameters
    ----------
    amplitudes : pair of float
    kernels : Kernels
    draws : int
    rng : Generator
    effects : Tensor, shape [2, sites], or None
        Of fixed sites; by default new ones in every draw.
    """
    effects = draw_effects((draws, kernels.n_sites), rng) if effects is None else effects[:, None].expand(-1, draws, -1)
    amplitude = torch.tensor(amplitudes, dtype=torch.float64, device=rng.device)
    return (amplitude[:, None, None] * (1 + SITE_SD * effects))[:, :, kernels.site]


def draw_effects(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Draw standard normal effects of sites in both views. Shape [2, ..., sites]."""
    own = torch.randn(2, *shape, generator=rng, device=rng.device, dtype=torch.float64)
    shared = torch.randn(*shape, generator=rng, device=rng.device, dtype=torch.float64)
    return SHARED**0.5 * shared + (1 - SHARED) ** 0.5 * own


def count_pairs(label: Tensor, margins: Tensor) -> tuple[Tensor, Tensor]:
    """Return areas in percent, and DeLong's covariances over participants.

    Parameters
    ----------
    label : Tensor of bool, shape [draws, n]
    margins : Tensor, shape [methods, draws, n]

    Returns
    -------
    auc : shape [draws, methods]
    covariance : shape [draws, methods, methods]
    """
    n_patients, n_controls = label.double().sum(1, keepdim=True), (~label).double().sum(1, keepdim=True)
    placements = torch.empty_like(margins)
    for k, margin in enumerate(margins):
        order = margin.argsort(dim=1)
        ordered = label.gather(1, order)
        below = ordered.cumsum(1)
        values = torch.where(ordered, (~ordered).cumsum(1) / n_controls, (n_patients - below) / n_patients)
        placements[k].scatter_(1, order, values)
    auc = (placements * label).sum(2) / n_patients.T  # [methods, draws]
    covariance = torch.zeros((), dtype=torch.float64)
    for own, n in ((label, n_patients), (~label, n_controls)):
        centred = ((placements - auc[:, :, None]) * own).transpose(0, 1)  # [draws, methods, n]
        covariance = covariance + centred @ centred.mT / (n * (n - 1))[:, :, None]
    return 100 * auc.T, 1e4 * covariance


@dataclass(frozen=True)
class Draws:
    """What the tests see of many draws, AUC in percent."""

    auc: np.ndarray  # [draws, units, 2]
    covariance: np.ndarray | None = None  # [draws, sites, 2, 2]
    pairs: np.ndarray | None = None  # of a patient and a control, [draws, sites]
    groups: np.ndarray | None = None  # AUC of two random halves of each site in the first view, [draws, sites, 2]
    group_variance: np.ndarray | None = None
    new: np.ndarray | None = None  # AUC at a site that no model was trained on, [draws, 2]


def draw_sites(
    kernels: Kernels,
    amplitudes: Sequence[float],
    draws: int,
    rng: torch.Generator,
    effects: Tensor | None = None,
    trained: Kernels | None = None,
) -> Draws:
    """Leave one site out in many draws; where ``trained`` are all sites but the last, no model is trained on that."""
    label, strength = kernels.permute(draws, rng), draw_strengths(amplitudes, kernels, draws, rng, effects)
    n_sites = kernels.n_sites if trained is None else trained.n_sites
    if trained is not None:
        inside = torch.cat(kernels.blocks[:n_sites])
        margins = torch.stack([kernels.score(v, label, strength[v], kernels.blocks[n_sites:]) for v in (0, 1)])
        for v in (0, 1):
            margins[v][:, inside] = trained.score(v, label[:, inside], strength[v][:, inside], trained.blocks)
    else:
        margins = torch.stack([kernels.score(v, label, strength[v], kernels.blocks) for v in (0, 1)])
    auc, covariance, pairs, groups, group_variance = [], [], [], [], []
    for block in kernels.blocks:
        own = label[:, block]
        one, spread = count_pairs(own, margins[:, :, block])
        auc.append(one)
        covariance.append(spread)
        pairs.append(own.sum(1) * (~own).sum(1))
        rank = torch.where(own, own.cumsum(1), (~own).cumsum(1))  # labels are in random order
        halves = [count_half(own, margins[:1, :, block], rank % 2 == half) for half in (0, 1)]
        groups.append(torch.cat([half[0] for half in halves], 1))
        group_variance.append(torch.cat([half[1][:, 0] for half in halves], 1))
    areas, *others = (torch.stack(part, 1).cpu().numpy() for part in (auc, covariance, pairs, groups, group_variance))
    new = None if trained is None else areas[:, -1]
    return Draws(areas[:, :n_sites], *(part[:, :n_sites] for part in others), new)


def count_half(label: Tensor, margins: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Return area and variance of some participants, the same number in each draw."""
    n = int(kept[0].sum())
    return count_pairs(label[kept].reshape(-1, n), margins[:, kept].reshape(1, -1, n))


def draw_folds(
    kernels: Kernels, amplitudes: Sequence[float], draws: int, rng: torch.Generator, effects: Tensor | None = None
) -> Draws:
    """Deal participants to ten folds, stratified by site, with three seeds; labels are drawn many times."""
    label, strength = kernels.permute(draws, rng), draw_strengths(amplitudes, kernels, draws, rng, effects)
    auc = []
    for _ in range(SEEDS):
        order = (kernels.site + torch.rand(len(kernels.site), generator=rng, device=rng.device)).argsort()
        folds = [order[f::FOLDS] for f in range(FOLDS)]
        margins = torch.stack([kernels.score(v, label, strength[v], folds) for v in (0, 1)])
        auc += [count_pairs(label[:, fold], margins[:, :, fold])[0] for fold in folds]
    return Draws(torch.stack(auc, 1).cpu().numpy())


@dataclass(frozen=True)
class Estimate:
    """An estimate in each draw, its standard error and the degrees of freedom. Shape [draws]."""

    mean: np.ndarray
    error: np.ndarray
    df: float = np.inf

    def reject(self, null: float | np.ndarray) -> np.ndarray:
        """Whether a two-sided test at the 5% level rejects a value."""
        return np.abs(self.mean - null) > stats.t.ppf(0.975, self.df) * self.error

    def half_width(self) -> float:
        """Mean half-width of the 95% interval."""
        return float(stats.t.ppf(0.975, self.df) * self.error.mean())


@dataclass(frozen=True)
class Ranks:
    """Wilcoxon's signed-rank test. Shape [draws, sites]."""

    values: np.ndarray

    def reject(self, null: float | np.ndarray) -> np.ndarray:
        """Whether the test rejects a value."""
        differences = self.values - np.reshape(null, (-1, 1))
        n = differences.shape[1]
        ranks = stats.rankdata(np.abs(differences), axis=1)
        positive = (ranks * (differences > 0)).sum(axis=1)
        chance = np.ones(1)  # of each sum of positive ranks
        for rank in range(1, n + 1):
            chance = np.concatenate([chance, np.zeros(rank)]) / 2 + np.concatenate([np.zeros(rank), chance]) / 2
        smaller = np.minimum(positive, n * (n + 1) / 2 - positive)
        return 2 * np.cumsum(chance)[np.floor(smaller).astype(int)] <= 0.05

    def half_width(self) -> float:
        """Return NaN: the test comes without an interval."""
        return float("nan")


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests at the 5% level, for a true difference of the margin. Shape [draws]."""

    estimate: Estimate

    def reject(self, null: float | np.ndarray) -> np.ndarray:
        """Whether they state that the difference is within the margin, where ``null`` differs from it by the margin."""
        one_sided = stats.t.ppf(0.95, self.estimate.df) * self.estimate.error
        return np.abs(self.estimate.mean - null + MARGIN) + one_sided < MARGIN

    def half_width(self) -> float:
        """Mean half-width of the interval that has to lie within the margin."""
        return float(stats.t.ppf(0.95, self.estimate.df) * self.estimate.error.mean())


@dataclass(frozen=True)
class Permutation:
    """A test against chance by permuted labels. Shape [draws], and [permutations]."""

    mean: np.ndarray
    permuted: np.ndarray

    def reject(self, null: float | np.ndarray) -> np.ndarray:
        """Whether the AUC is further from a value than 95% of those of permuted labels are from their mean."""
        return np.abs(self.mean - null) > np.quantile(np.abs(self.permuted - self.permuted.mean()), 0.95)

    def half_width(self) -> float:
        """Return NaN: the test comes without an interval."""
        return float("nan")


Test = Estimate | Ranks | Equivalence | Permutation


class Row(NamedTuple):
    """One test of one quantity; ``scope`` says whether its truth is that of new sites or of these."""

    quantity: str
    name: str
    standing: str
    scope: str
    test: Test
    truth: np.ndarray


def estimate_mean(values: np.ndarray, correction: float) -> Estimate:
    """Estimate a mean over units [draws, units]."""
    n = values.shape[1]
    return Estimate(values.mean(axis=1), np.sqrt((1 / n + correction) * values.var(axis=1, ddof=1)), n - 1)


def estimate_new_site(values: np.ndarray, correction: float, df: int) -> Estimate:
    """Estimate the score at one more site."""
    variance = (1 + 1 / values.shape[1] + 2 * correction) * values.var(axis=1, ddof=1)
    return Estimate(values.mean(axis=1), np.sqrt(variance), df)


def estimate_over_people(values: np.ndarray, variance: np.ndarray, weights: np.ndarray, factor: float) -> Estimate:
    """Estimate a weighted mean over sites from DeLong's variances."""
    return Estimate((weights * values).sum(axis=1), np.sqrt(factor * (weights**2 * variance).sum(axis=1)))


def estimate_contrast(values: np.ndarray, correction: float, rng: np.random.Generator) -> Estimate:
    """Estimate the difference in mean between two random halves of the sites."""
    n = values.shape[1]
    halves = np.array_split(rng.permuted(values, axis=1), 2, axis=1)
    within = sum((half.shape[1] - 1) * half.var(axis=1, ddof=1) for half in halves) / (n - 2)
    error = np.sqrt(within * (sum(1 / half.shape[1] for half in halves) + correction))
    return Estimate(halves[0].mean(axis=1) - halves[1].mean(axis=1), error, n - 2)


CONTRASTS = {"AUC, FC": np.array([1.0, 0.0]), "AUC, log": np.array([0.0, 1.0]), "difference": np.array([-1.0, 1.0])}


def list_site_tests(draws: Draws, find_truth: FindTruth, permuted: np.ndarray | None) -> Iterator[Row]:
    """Yield every test over left-out sites."""
    n, rng = draws.auc.shape[1], np.random.default_rng(0)
    equal, pairs = np.full(draws.pairs.shape, 1 / n), draws.pairs / draws.pairs.sum(axis=1, keepdims=True)
    correction = site_correction(n)
    factor = 1 + n * correction
    for name, contrast in CONTRASTS.items():
        values = draws.auc @ contrast
        variance = np.einsum("i,dsij,j->ds", contrast, draws.covariance, contrast)
        truth = find_truth(name, values.mean(axis=1))
        corrected = estimate_mean(values, correction)
        yield Row(name, "t over sites", "old", "both", estimate_mean(values, 0.0), truth)
        yield Row(name, "Wilcoxon over sites", "old", "both", Ranks(values), truth)
        usual = estimate_mean(values, 1 / (n - 1))
        yield Row(name, "t with 1/(n - 1) over sites", "", "both", usual, truth)
        yield Row(name, "corrected t over sites", "used", "both", corrected, truth)
        for label, weights in ((name, equal), (f"{name}, pair-weighted", pairs)):
            here = find_truth(name, (weights * values).sum(axis=1))
            for test, standing, by in (("DeLong", "old", 1.0), ("corrected DeLong", "used", factor)):
                people = estimate_over_people(values, variance, weights, by)
                yield Row(label, test, standing, "these", people, here)
        if name == "difference":
            yield Row(name, "equivalence, t over sites", "", "both", Equivalence(estimate_mean(values, 0.0)), truth)
            yield Row(name, "equivalence, corrected t", "used", "both", Equivalence(corrected), truth)
            if n >= 10:
                for test, by in (("t between groups", 0.0), ("corrected t between groups", 2 * correction)):
                    gap = estimate_contrast(values, by, rng)
                    yield Row("interaction", test, "" if by else "used", "both", gap, np.zeros(len(values)))
            continue
        if permuted is not None:
            by_chance = Permutation(values.mean(axis=1), (permuted @ contrast).mean(axis=1))
            yield Row(name, "permutation", "", "both", by_chance, truth)
        if draws.new is not None:
            for test, new in (
                ("t over sites", estimate_new_site(values, 0.0, n - 1)),
                ("corrected t over sites", estimate_new_site(values, correction, n - 2)),
            ):
                standing = "used" if test.startswith("corrected") and n >= LEAST_FOR_NEW_SITE else ""
                yield Row(f"{name}, new site", test, standing, "new", new, draws.new @ contrast)
    gap, variance = draws.groups @ np.array([1.0, -1.0]), draws.group_variance.sum(axis=2)
    for test, standing, by in (("DeLong", "used", 1.0), ("corrected DeLong", "", factor)):
        people = estimate_over_people(gap, variance, pairs, by)
        yield Row("two groups of participants", test, standing, "these", people, np.zeros(len(gap)))


def list_fold_tests(draws: Draws, find_truth: FindTruth, permuted: np.ndarray | None) -> Iterator[Row]:
    """Yield every test over folds."""
    for name, contrast in CONTRASTS.items():
        values = draws.auc @ contrast
        truth, before = find_truth(name, values.mean(axis=1)), estimate_mean(values, 1 / (FOLDS - 1))
        overlap = fold_correction(1, FOLDS - 1, FOLDS)
        error = np.sqrt((1 / overlap.n_folds + overlap.correction) * values.var(axis=1, ddof=1))
        corrected = Estimate(values.mean(axis=1), error, overlap.n_folds - 1)
        yield Row(name, "t over folds", "", "these", estimate_mean(values, 0.0), truth)
        yield Row(name, "t with 1/9, folds of all seeds", "old", "these", before, truth)
        yield Row(name, "corrected t over folds", "used", "these", corrected, truth)
        if name == "difference":
            yield Row(name, "equivalence, corrected t", "used", "these", Equivalence(corrected), truth)
        elif permuted is not None:
            by_chance = Permutation(values.mean(axis=1), (permuted @ contrast).mean(axis=1))
            yield Row(name, "permutation", "", "these", by_chance, truth)


class Setting:
    """Some number of sites, or ten folds, of one cohort: draws of it, with signals of stated AUC."""

    def __init__(self, kernels: Kernels, n_sites: int | None, seed: int) -> None:
        self.kernels, self.n_sites = kernels, n_sites
        self.rng = torch.Generator(device=kernels.label.device).manual_seed(seed)
        self.subsets = self._choose_subsets(np.random.default_rng(seed)) if self.is_subset else []
        self.effects = draw_effects((kernels.n_sites,), self.rng)
        self.curve = self._find_curve()

    @property
    def is_subset(self) -> bool:
        """Whether sites are drawn from all sites of the cohort."""
        return self.n_sites is not None and self.n_sites < self.kernels.n_sites

    def _choose_subsets(self, rng: np.random.Generator) -> list[tuple[list[int], Kernels, Kernels]]:
        """Choose sites, the last of which is new to all models; also return their kernels, with and without it."""
        chosen = []
        for k in range(SUBSETS):
            sites = [int(s) for s in rng.permutation(np.delete(np.arange(self.kernels.n_sites), k))[: self.n_sites]]
            part = self.kernels.select([*sites, k])
            chosen.append(([*sites, k], part, part.select(list(range(len(sites))))))
        return chosen

    def draw(self, amplitudes: Sequence[float], draws: int, fixed: bool) -> tuple[Draws, np.ndarray]:
        """Draw many times; also return the number of the subset of sites of each draw."""
        effects = self.effects if fixed else None
        parts = []
        for sites, part, trained in self.subsets:
            own = None if effects is None else effects[:, sites]
            parts.append(draw_sites(part, amplitudes, draws // SUBSETS, self.rng, own, trained))
        simulate, chunk = (draw_folds, 25) if self.n_sites is None else (draw_sites, CHUNK)
        for start in range(0, 0 if self.is_subset else draws, chunk):
            parts.append(simulate(self.kernels, amplitudes, min(chunk, draws - start), self.rng, effects))
        columns = [[getattr(part, field.name) for part in parts] for field in fields(Draws)]
        subset = np.concatenate([np.full(len(part.auc), k * self.is_subset) for k, part in enumerate(parts)])
        return Draws(*(None if c[0] is None else np.concatenate(c) for c in columns)), subset

    def _find_curve(self) -> np.ndarray:
        """Return the mean AUC of both views at each amplitude. Shape [amplitudes, 2]."""
        seed, scores = self.rng.initial_seed(), []
        for amplitude in AMPLITUDES:
            self.rng.manual_seed(seed)
            draws, _ = self.draw((amplitude, amplitude), TUNING_DRAWS, self.n_sites is None)
            scores.append(draws.auc.mean(axis=(0, 1)))
        return np.array(scores)

    def find_amplitude(self, view: int) -> float:
        """Return the amplitude of the signal at which a view reaches the AUC that both have to have."""
        scores = np.array([50.0, *self.curve[:, view]])
        return float(np.interp(ndtri(TRUE_AUC / 100), ndtri(scores / 100), [0.0, *AMPLITUDES]))


def find_upper_bound(rejected: np.ndarray) -> float:
    """Return the upper end of Clopper and Pearson's 95% interval of a rate, in percent."""
    k, n = int(rejected.sum()), len(rejected)
    return 100 * float(stats.beta.ppf(0.975, k + 1, n - k)) if k < n else 100.0


def measure(setting: Setting, draws: int) -> Iterator[str]:
    """Yield the lines of the table of one setting, without cohort and setting."""
    is_kfold = setting.n_sites is None
    list_tests = list_fold_tests if is_kfold else list_site_tests
    permuted = None if setting.is_subset else setting.draw((0.0, 0.0), draws // 4, False)[0].auc
    equal = [setting.find_amplitude(view) for view in (0, 1)]
    signals = [("none", (0.0, 0.0), False), ("equal, new sites", equal, False), ("equal, these sites", equal, True)]
    for signal, amplitudes, fixed in signals:
        if is_kfold and signal == "equal, new sites":
            continue
        drawn, subset = setting.draw(amplitudes, draws, fixed)

        def find_truth(
            quantity: str, means: np.ndarray, signal: str = signal, group: np.ndarray = subset * fixed
        ) -> np.ndarray:
            if signal == "none" and (quantity == "difference" or not is_kfold):
                return np.full(len(means), 0.0 if quantity == "difference" else 50.0)
            return np.array([means[group == g].mean() for g in range(group.max() + 1)])[group]

        for row in list_tests(drawn, find_truth, permuted if signal == "none" else None):
            if row.scope == "these" and signal == "equal, new sites":
                continue
            rejected, shift = row.test.reject(row.truth), SHIFTS.get(row.quantity.split(",")[0])
            if isinstance(row.test, Equivalence):
                shift = -MARGIN  # equal methods
            cells = [signal, row.quantity, row.name, row.standing, f"{row.truth.mean():.1f}"]
            cells += [f"{100 * rejected.mean():.1f}", f"{find_upper_bound(rejected):.1f}"]
            cells.append("" if shift is None else f"{100 * row.test.reject(row.truth - shift).mean():.1f}")
            half = row.test.half_width()
            yield " | ".join([*cells, "" if np.isnan(half) else f"{half:.1f}"])


def main() -> None:
    """Draw and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", nargs="+")
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--quick", action="store_true", help="200 draws of each setting")
    parser.add_argument("--setting", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    draws = 200 if args.quick else args.draws
    header = ["cohort", "setting", "signal", "quantity", "test", "standing", "truth", "rejected, %", "at most, %"]
    header += ["power, %", "half-width, points"]
    print(f"| {' | '.join(header)} |\n{'| --- ' * len(header)}|", flush=True)
    cohorts = [Cohort.load(path) for path in args.cohort]
    for cohort in cohorts:
        others = [other for other in cohorts if other is not cohort]
        kernels = Kernels.read(cohort.select(audit(cohort, companions=others).keep), args.device)
        for seed, name in enumerate(SETTINGS):
            if name not in args.setting:
                continue
            for line in measure(Setting(kernels, SETTINGS[name], seed), draws):
                print(f"| {cohort.atlas.name} | {name} | {line} |", flush=True)


if __name__ == "__main__":
    main()
