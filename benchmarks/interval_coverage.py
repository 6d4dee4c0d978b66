"""How often do 95 % intervals of AUC hold the truth? A simulation for few and many sites, and for k-fold.

    python benchmarks/interval_coverage.py [--replicates 2000] [--part sites --part trained-sites --part folds]

sites          3, 5, 10 or 20 sites of ABIDE's sizes, drawn at random; the true AUC varies between sites with an SD of
               0, 3 or 6 points. Margins are normal in both classes; two methods with correlated margins, three seeds.
trained-sites  20 sites of ABIDE's sizes; a ridge classifier is trained on 19 and tested on the other, as in leave one
               site out. The effect of class on the features varies between sites.
folds          ten folds, stratified by site and class, three seeds; a ridge classifier is trained on seven folds for
               each test fold, two are left for validation, as in ``brio run --protocol kfold``.

The truth of an interval over sites or folds is the mean over new cohorts; that of an interval over participants is the
AUC of the very same models for new participants at the same sites. Both are exact: margins are normal, so the AUC of a
linear model is known. Prints a Markdown table: share of replicates in which the interval holds the truth, and mean
half-width in points. ``used`` marks the interval that brio prints.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from brio.protocol import (
    SiteAreas,
    assess_over_people,
    bootstrap_interval,
    delong_covariance,
    equal_weights,
    fold_correction,
    pair_weights,
    placement_values,
    t_interval,
)

# patients, then controls, of each site of ABIDE after the audit
N_PATIENTS = [18, 14, 20, 14, 15, 24, 75, 12, 19, 29, 15, 14, 19, 22, 41, 13, 52, 13, 46, 27]
N_CONTROLS = [17, 13, 28, 15, 19, 28, 100, 14, 15, 27, 15, 22, 20, 25, 31, 13, 53, 21, 25, 27]
SIZES = np.column_stack([N_PATIENTS, N_CONTROLS])
SITES, SEEDS, FOLDS, SOURCE_FOLDS = len(SIZES), 3, 10, 7
TRUE_AUC = np.array([0.74, 0.72])
FEATURE_CASES = ((30, 0.8, 10.0, 1.0), (200, 0.8, 300.0, 1.0), (40, 0.8, 30.0, 0.25))
"""Number of features, AUC of the best possible classifier, penalty, size of the cohort relative to ABIDE."""
USED = {
    *((f"{estimand}, new sites", "t over sites") for estimand in ("AUC", "difference")),
    ("AUC, new cohorts", "corrected t, n_test / n_other"),
    ("difference, new cohorts", "corrected t, n_test / n_source"),
}
"""Intervals that brio prints, besides those over participants at fixed sites."""
RESAMPLES = 1000
PARTS = ("sites", "trained-sites", "folds")

Ends = tuple[float, float]


class Interval(NamedTuple):
    """One interval of one replicate; where ``averaged``, the truth is the mean of ``truth`` over all replicates."""

    estimand: str
    name: str
    ends: Ends
    truth: float
    averaged: bool = False


def hierarchical_interval(values: np.ndarray, variances: np.ndarray, rng: np.random.Generator) -> Ends:
    """Draw sites again and participants within them; the draw of participants is normal with DeLong's variance."""
    drawn = rng.integers(0, len(values), (RESAMPLES, len(values)))
    noise = np.sqrt(variances)[drawn] * rng.standard_normal(drawn.shape)
    low, high = np.quantile((values[drawn] + noise).mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


CONTRASTS = (("AUC", np.array([1.0, 0.0])), ("difference", np.array([1.0, -1.0])))


def iterate_site_intervals(
    areas: SiteAreas, true_auc: np.ndarray, new_site: np.ndarray | None, rng: np.random.Generator
) -> Iterator[Interval]:
    """Yield the intervals of the first method and of its difference to the second.

    Parameters
    ----------
    areas : SiteAreas
    true_auc : ndarray, shape [sites, methods]
        At these sites.
    new_site : ndarray, shape [methods], or None
        Mean of the true AUC over all sites there could be; None if it is to be averaged over replicates.
    rng : Generator
    """
    for estimand, contrast in CONTRASTS:
        values = areas.auc @ contrast
        truth = float((true_auc.mean(axis=0) if new_site is None else new_site) @ contrast)
        variances = np.einsum("i,sij,j->s", contrast, areas.covariance, contrast)
        for name, ends in (
            ("bootstrap over sites", bootstrap_interval(values, resamples=RESAMPLES)),
            ("bootstrap over sites, then participants", hierarchical_interval(values, variances, rng)),
            ("t over sites", t_interval(values)),
        ):
            yield Interval(f"{estimand}, new sites", name, ends, truth, new_site is None)
        for name, weights in (("mean", equal_weights(areas)), ("pair-weighted", pair_weights(areas))):
            people = assess_over_people(areas, contrast, weights)
            here = float(weights @ true_auc @ contrast)
            yield Interval(f"{estimand}, {name}, these sites", "over participants", (people.low, people.high), here)


def simulate_sites(rng: np.random.Generator, n_sites: int, sd: float) -> Iterator[Interval]:
    """Yield the intervals of one cohort with normal margins."""
    sizes = SIZES[rng.integers(0, SITES, n_sites)]
    shared, own = rng.standard_normal((2, n_sites, 1))
    effects = np.concatenate([shared, 0.7 * shared + np.sqrt(0.51) * own], axis=1)
    true_auc = np.clip(TRUE_AUC + sd * effects, 0.01, 0.99)
    auc, covariance = np.empty((n_sites, 2)), np.empty((n_sites, 2, 2))
    for site, (n_patients, n_controls) in enumerate(sizes):
        label = np.repeat([1, 0], [n_patients, n_controls])
        person = np.sqrt(0.7) * rng.standard_normal(len(label)) + np.sqrt(0.3) * rng.standard_normal((2, len(label)))
        noise = rng.standard_normal((SEEDS, 2, len(label)))  # 20 % of the variance of a margin differs between seeds
        margin = np.sqrt(0.8) * person + np.sqrt(0.2) * noise + np.sqrt(2) * ndtri(true_auc[site])[:, None] * label
        placements = [np.mean([placement_values(label, margin[r, k]) for r in range(SEEDS)], axis=0) for k in (0, 1)]
        auc[site], covariance[site] = delong_covariance(label, np.transpose(placements))
    yield from iterate_site_intervals(SiteAreas(*sizes.T, auc, covariance), true_auc, TRUE_AUC, rng)


class FeatureCohort:
    """Participants at ABIDE's sites with normal features, half of which differ between classes.

    Parameters
    ----------
    rng : Generator
    n_features : int
    best_auc : float
        AUC of the best classifier within a site.
    size : float
        Number of participants relative to ABIDE.
    effect_sd : float
        SD between sites of the effect of class on a feature, relative to its mean.
    """

    def __init__(
        self, rng: np.random.Generator, n_features: int, best_auc: float, size: float = 1.0, effect_sd: float = 0.0
    ) -> None:
        self.sizes = np.maximum(2, np.rint(SIZES * size)).astype(int)
        self.label = np.concatenate([np.repeat([1, 0], pair) for pair in self.sizes])
        self.site = np.repeat(np.arange(SITES), self.sizes.sum(axis=1))
        effect = np.where(np.arange(n_features) < n_features // 2, 1.0, 0.0)
        effect *= np.sqrt(2) * ndtri(best_auc) / np.linalg.norm(effect)
        spread = effect_sd * np.linalg.norm(effect) / np.sqrt(n_features)
        self.effect = effect + spread * rng.standard_normal((SITES, n_features))  # [sites, features]
        # the same sites in every replicate of k-fold, where the truth is about new participants at these sites
        self.shift = 0.3 * np.random.default_rng(0).standard_normal((SITES, n_features))
        noise = rng.standard_normal((len(self.label), n_features))
        self.features = noise + self.shift[self.site] + self.label[:, None] * self.effect[self.site]

    def products(self, groups: np.ndarray, n_groups: int) -> np.ndarray:
        """Return the products of features, a constant and the class over the participants of each group.

        Shape [groups, 1 + features, 2 + features]; sums over groups are what a ridge classifier needs.
        """
        inputs = np.column_stack([np.ones(len(self.label)), self.features])
        columns = np.column_stack([inputs, 2.0 * self.label - 1])
        return np.stack([inputs[groups == g].T @ columns[groups == g] for g in range(n_groups)])

    def auc_at_sites(self, weights: np.ndarray) -> np.ndarray:
        """Return the true AUC of a linear model at each site, for new participants. Shape [sites]."""
        return ndtr(self.effect @ weights / np.sqrt(2 * weights @ weights))

    def pooled_auc(self, weights: np.ndarray) -> float:
        """Return the true AUC of a linear model over pairs of new participants of any sites."""
        patient, control = (self.shift + self.effect) @ weights, self.shift @ weights
        ordered = ndtr((patient[:, None] - control) / np.sqrt(2 * weights @ weights))
        share = self.sizes / self.sizes.sum(axis=0)
        return float(share[:, 0] @ ordered @ share[:, 1])


def fit_ridge(products: np.ndarray, penalty: float, n_used: int) -> np.ndarray:
    """Return the weights of a ridge classifier of the first features; zero for the others, which it does not see.

    Parameters
    ----------
    products : ndarray, shape [1 + features, 2 + features]
        Of the participants it is trained on.
    penalty : float
        The intercept has none.
    n_used : int
    """
    weights = np.zeros(len(products) - 1)
    gram = products[: n_used + 1, : n_used + 1] + penalty * np.diag(np.arange(n_used + 1) > 0)
    weights[:n_used] = np.linalg.solve(gram, products[: n_used + 1, -1])[1:]
    return weights


def simulate_trained_sites(rng: np.random.Generator, n_features: int, penalty: float) -> Iterator[Interval]:
    """Yield the intervals of one cohort whose models are trained on all sites but one."""
    cohort = FeatureCohort(rng, n_features, 0.8, effect_sd=0.7)
    auc, covariance, true_auc = np.empty((SITES, 2)), np.empty((SITES, 2, 2)), np.empty((SITES, 2))
    products = cohort.products(cohort.site, SITES)
    for site in range(SITES):
        test = cohort.site == site
        source = products.sum(axis=0) - products[site]
        placements = []
        for k, n_used in enumerate((n_features, 3 * n_features // 4)):
            weights = fit_ridge(source, penalty, n_used)
            placements.append(placement_values(cohort.label[test], cohort.features[test] @ weights))
            true_auc[site, k] = cohort.auc_at_sites(weights)[site]
        auc[site], covariance[site] = delong_covariance(cohort.label[test], np.transpose(placements))
    yield from iterate_site_intervals(SiteAreas(*cohort.sizes.T, auc, covariance), true_auc, None, rng)


def deal_folds(cohort: FeatureCohort, rng: np.random.Generator) -> np.ndarray:
    """Deal participants to folds, stratified by site and class. Shape [participants]."""
    fold = np.empty(len(cohort.label), dtype=int)
    for cell in np.unique(2 * cohort.site + cohort.label):
        members = rng.permutation(np.flatnonzero(2 * cohort.site + cohort.label == cell))
        fold[members] = (np.arange(len(members)) + rng.integers(FOLDS)) % FOLDS
    return fold


def simulate_folds(
    rng: np.random.Generator, n_features: int, best: float, penalty: float, size: float
) -> Iterator[Interval]:
    """Yield the intervals of one cohort under k-fold: three seeds, trained on seven folds each time."""
    cohort = FeatureCohort(rng, n_features, best, size)
    n_people = len(cohort.label)
    score, true_auc = np.empty((2, SEEDS, FOLDS)), np.empty((2, SEEDS, FOLDS))
    influence = np.zeros((2, n_people))  # of each person on the mean over folds
    for seed in range(SEEDS):
        fold = deal_folds(cohort, rng)
        products = cohort.products(fold, FOLDS)
        for f in range(FOLDS):
            test = fold == f
            source = products[[(f + step) % FOLDS for step in range(FOLDS - SOURCE_FOLDS, FOLDS)]].sum(axis=0)
            label = cohort.label[test]
            count = np.where(label == 1, label.sum(), len(label) - label.sum())
            for k, n_used in enumerate((n_features, 3 * n_features // 4)):
                weights = fit_ridge(source, penalty, n_used)
                placements = placement_values(label, cohort.features[test] @ weights)
                score[k, seed, f] = placements[label == 1].mean()
                influence[k, test] += placements / count / (FOLDS * SEEDS)
                true_auc[k, seed, f] = cohort.pooled_auc(weights)
    for estimand, contrast in CONTRASTS:
        values = np.tensordot(contrast, score, 1).ravel()
        truth = float(np.tensordot(contrast, true_auc, 1).mean())
        for name, ends in (
            ("bootstrap over folds and seeds", bootstrap_interval(values, resamples=RESAMPLES)),
            ("participants of all folds", people_interval(contrast @ influence, cohort.label, values.mean())),
            ("corrected t, n_test / n_other", t_interval(values, fold_correction(1, FOLDS - 1))),
            ("corrected t, n_test / n_source", t_interval(values, fold_correction(1, SOURCE_FOLDS))),
        ):
            yield Interval(f"{estimand}, new cohorts", name, ends, truth, averaged=True)
            if name == "participants of all folds":
                yield Interval(f"{estimand}, these models", name, ends, truth)


def people_interval(influence: np.ndarray, label: np.ndarray, mean: float) -> Ends:
    """Return the interval of a mean over folds from the variance over participants of their influence on it."""
    variance = sum(own.var(ddof=1) * len(own) for own in (influence[label == 1], influence[label == 0]))
    half = 1.96 * float(np.sqrt(variance))
    return mean - half, mean + half


def measure(replicates: int, seed: int, simulate: Callable[[np.random.Generator], Iterator[Interval]]) -> list[str]:
    """Return a table line without its first cell for each interval that the replicates yield."""
    collected: dict[tuple[str, str, bool], list[tuple[float, float, float]]] = defaultdict(list)
    for replicate in range(replicates):
        for one in simulate(np.random.default_rng([seed, replicate])):
            collected[one.estimand, one.name, one.averaged].append((*one.ends, one.truth))
    lines = []
    for (estimand, name, averaged), triples in collected.items():
        low, high, truth = np.transpose(triples)
        if averaged:
            truth = truth.mean()
        held = 100 * np.mean((low <= truth) & (truth <= high))
        used = "yes" if (estimand, name) in USED or name == "over participants" else ""
        lines.append(f"{estimand} | {name} | {held:.1f} | {50 * np.mean(high - low):.1f} | {used} |")
    return lines


def list_cases(parts: list[str]) -> Iterator[tuple[str, Callable[[np.random.Generator], Iterator[Interval]]]]:
    """Yield the name of each case and the function that simulates one replicate of it."""
    if "sites" in parts:
        for sd in (0.0, 0.03, 0.06):
            for n_sites in (3, 5, 10, 20):
                yield f"{n_sites} sites, SD {100 * sd:g}", lambda rng, n=n_sites, sd=sd: simulate_sites(rng, n, sd)
    if "trained-sites" in parts:
        for n_features, penalty in ((30, 10.0), (100, 100.0)):
            yield (
                f"20 sites, trained, {n_features} features",
                lambda rng, p=n_features, q=penalty: simulate_trained_sites(rng, p, q),
            )
    if "folds" in parts:
        for case in FEATURE_CASES:
            n_people = int(np.maximum(2, np.rint(SIZES * case[3])).sum())
            name = f"ten folds, {n_people} participants, {case[0]} features"
            yield name, lambda rng, case=case: simulate_folds(rng, *case)


def main() -> None:
    """Simulate and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable; by default all")
    args = parser.parse_args()
    print("| case | estimate | interval | holds the truth, % | half-width, points | used |")
    print("| --- " * 6 + "|")
    for k, (case, simulate) in enumerate(list_cases(args.part or list(PARTS))):
        for line in measure(args.replicates, k, simulate):
            print(f"| {case} | {line}", flush=True)


if __name__ == "__main__":
    main()
