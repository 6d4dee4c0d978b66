"""Measure associations that let a classifier succeed without looking at the brain.

These are associations between site and label, scan length and site, covariates (and scan length) and label, and
repetition time and site. Where participants have several scans, those of their first scans: tests over scans would
count people twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..cohort import REQUIRED_COLUMNS, TEXT_COLUMNS, Cohort
from ..covariates import SEX_CODES
from ..scans import FC_ONLY, index_participants
from .findings import DEAD_FRACTION_PREFIX


@dataclass(frozen=True)
class SiteCounts:
    """Participants of one site, as supplied and without the proposed exclusions."""

    site: str
    before: tuple[int, int]  # participants with label 0 and label 1, each counted once however many scans there are
    after: tuple[int, int]


@dataclass(frozen=True)
class LabelBySite:
    """Whether the site predicts the label."""

    cramers_v: float | None = None
    by_chance: float | None = None  # cramer's V expected if site and label were independent; not 0 in a finite cohort
    p: float | None = None  # p value of the chi-square test of independence


@dataclass(frozen=True)
class LengthBySite:
    """Whether the scan length predicts the site."""

    shortest: int  # frames of the shortest and the longest scan
    longest: int
    eta_squared: float | None
    differs_inside: dict[str, tuple[int, int]]  # sites whose scans differ in length
    all_shortest: dict[str, int]


@dataclass(frozen=True)
class LengthByLabel:
    """Whether the scan length predicts the label."""

    auc: float | None  # AUC with the number of frames as the score for label 1, all sites pooled. None with one class
    p: float | None  # p value of the two-sided Mann-Whitney test, all sites pooled
    auc_inside: float | None  # mean of the AUCs within sites, over the sites that have both classes and several lengths
    auc_by_site: dict[str, float]  # the AUCs that enter this mean


@dataclass(frozen=True)
class CovariateByLabel:
    """Whether a covariate predicts the label, over all sites and within them."""

    column: str
    kind: str
    n: tuple[int, int]  # participants of each class that have a value
    typical: tuple[float, float]
    value: str  # that value; empty for a number
    auc: float
    p: float
    auc_inside: float | None
    p_inside: float | None
    n_sites: int
    warn: bool = False


@dataclass(frozen=True)
class RepetitionTime:
    """Repetition times of each site, from the column ``tr`` of the participants table."""

    unknown: int  # scans without a repetition time
    by_site: dict[str, dict[str, int]]  # seconds are text, rounded to milliseconds
    differs_inside: tuple[str, ...]  # sites with several repetition times

    @property
    def sites_by_value(self) -> dict[str, list[str]]:
        """Sites that use each repetition time, in increasing order of the time."""
        values = sorted({tr for counts in self.by_site.values() for tr in counts}, key=float)
        return {tr: [site for site, counts in self.by_site.items() if tr in counts] for tr in values}


def count_classes(labels: np.ndarray) -> tuple[int, int]:
    """Count the labels that are 0 and those that are 1.

    Shapes: labels [N].
    """
    return int((labels == 0).sum()), int((labels == 1).sum())


def count_by_site(before: Cohort, after: Cohort) -> tuple[SiteCounts, ...]:
    """Count the participants of each site and class, of cohorts with one scan of each."""
    return tuple(
        SiteCounts(str(s), *(count_classes(part.labels[part.sites == s]) for part in (before, after)))
        for s in np.unique(before.sites)
    )


def select_first_scans(cohort: Cohort) -> Cohort:
    """Select the first scan of each participant, so that counts and tests are about participants."""
    return cohort.select(index_participants(cohort.participant_ids)[0])


def measure_label_by_site(cohort: Cohort) -> LabelBySite:
    """Measure the association of site and label by Cramer's V, with a chi-square test."""
    from scipy.stats import chi2_contingency

    table = pd.crosstab(cohort.sites, cohort.labels).to_numpy()
    if min(table.shape) < 2:
        return LabelBySite()
    test = chi2_contingency(table, correction=False)
    size = table.sum() * (min(table.shape) - 1)
    return LabelBySite(
        cramers_v=float(np.sqrt(test.statistic / size)),
        # the chi-square statistic of independent variables is n / (n - 1) times its degrees of freedom on average
        by_chance=float(min(1.0, np.sqrt(test.dof / size))),
        p=float(test.pvalue),
    )


def measure_length_by_site(cohort: Cohort) -> LengthBySite:
    """Measure how scan length differs between and within sites. All acquired frames count, valid or not."""
    lengths = pd.Series(cohort.n_frames.astype(np.float64))
    groups = lengths.groupby(cohort.sites)
    total = float(((lengths - lengths.mean()) ** 2).sum())
    between = float((groups.size() * (groups.mean() - lengths.mean()) ** 2).sum())
    low, high = groups.min(), groups.max()
    shortest = low[(high == lengths.min()) & (lengths.max() > lengths.min())].index
    return LengthBySite(
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        eta_squared=min(1.0, between / total) if total > 0 else None,
        differs_inside={str(s): (int(low[s]), int(high[s])) for s in low.index[low < high]},
        all_shortest={str(s): int(groups.size()[s]) for s in shortest},
    )


def measure_length_by_label(cohort: Cohort) -> LengthByLabel:
    """Measure how well scan length predicts the label, over all sites and within each."""
    sites, lengths, labels = cohort.sites, cohort.n_frames, cohort.labels
    within: dict[str, float] = {}
    for site in np.unique(sites):
        at_site = sites == site
        auc, _ = _compute_auc(lengths[at_site], labels[at_site])
        if auc is not None and len(np.unique(lengths[at_site])) > 1:
            within[str(site)] = auc
    auc, p = _compute_auc(lengths, labels)
    return LengthByLabel(auc, p, float(np.mean(list(within.values()))) if within else None, within)


FEWEST_VALUES = 3  # participants of each class that must have a value for a covariate to be compared
MOST_CATEGORIES = 20  # text with more different values is no category
SIGNIFICANCE = 0.05
_IDENTIFIER = re.compile(r"(.*[_ ])?(id|uid|guid|index|file|filename|name|unnamed: ?0)", re.IGNORECASE)


def measure_covariates_by_label(cohort: Cohort, threshold: float) -> tuple[CovariateByLabel, ...]:
    """Measure how well each covariate, and the scan length, predicts the label by itself."""
    measured = [_measure_covariate(cohort, *covariate) for covariate in _list_covariates(cohort)]
    warned = []
    for one in measured:
        auc, p = (one.auc, one.p) if one.auc_inside is None else (one.auc_inside, one.p_inside)
        differs = abs((auc or 0.5) - 0.5) >= threshold - 0.5
        warned.append(replace(one, warn=differs and (1.0 if p is None else p) * len(measured) < SIGNIFICANCE))
    return tuple(warned)


def _list_covariates(cohort: Cohort) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """List name, values (numbers or text) and participants with a value of each column that can be compared."""
    source = cohort.provenance.get("options")
    own_label = str(source.get("label_column")) if isinstance(source, dict) else ""
    left_out = {*REQUIRED_COLUMNS, *TEXT_COLUMNS, FC_ONLY, cohort.label_covariate or own_label}
    left_out |= {"n_frames"} if FC_ONLY in cohort.participants else set()
    for column in map(str, cohort.participants.columns):
        values = cohort.participants[column]
        known = values.notna().to_numpy() & (values.astype(str).str.strip() != "").to_numpy()
        counts = count_classes(cohort.labels[known])
        if column in left_out or column.startswith(DEAD_FRACTION_PREFIX) or min(counts) < FEWEST_VALUES:
            continue
        numbers = pd.to_numeric(values[known], errors="coerce")
        is_number = bool(np.isfinite(numbers.to_numpy(dtype=float)).all()) and values.dtype != bool
        text = values[known].astype(str).str.strip().str.casefold().to_numpy()
        n_values = len(set(text))
        if n_values < 2 or (n_values == known.sum() and _IDENTIFIER.fullmatch(column)):
            continue
        if is_number:
            yield column, numbers.to_numpy(dtype=float), known
        elif n_values <= MOST_CATEGORIES and not _names_classes(text, cohort.labels[known], cohort.classes):
            yield column, values[known].astype(str).str.strip().to_numpy(), known


def _names_classes(text: np.ndarray, labels: np.ndarray, classes: tuple[str, str]) -> bool:
    """Return whether a column says the class in words, as the sex does where the classes are the sexes."""
    by_class = [set(text[labels == label]) for label in (0, 1)]
    names = [name.strip().casefold() for name in classes]
    return all(
        len(values) == 1 and (name in values or SEX_CODES.get(min(values), -1) == SEX_CODES.get(name))
        for values, name in zip(by_class, names, strict=True)
    )


def _measure_covariate(cohort: Cohort, column: str, values: np.ndarray, known: np.ndarray) -> CovariateByLabel:
    """Measure one covariate over all sites, and within those that have both classes."""
    labels, sites = cohort.labels[known], cohort.sites[known]
    is_number = values.dtype.kind == "f"
    everywhere = np.zeros(len(labels), dtype=np.int64)
    _, site = np.unique(sites, return_inverse=True)
    n_ones, n_all = np.bincount(site, labels), np.bincount(site)
    both = ((n_ones > 0) & (n_ones < n_all))[site]
    auc, p, shares = _compare_classes(values, labels, everywhere)
    inside = _compare_classes(values[both], labels[both], site[both]) if both.any() else (None, None, {})
    value = "" if is_number else max(shares, key=lambda name: abs(shares[name]))
    typical = [float(np.mean(values[labels == k] if is_number else values[labels == k] == value)) for k in (0, 1)]
    kind, n, n_sites = "number" if is_number else "category", count_classes(labels), len(set(site[both]))
    return CovariateByLabel(
        column, kind, n, (typical[0], typical[1]), str(value), auc, p, inside[0], inside[1], n_sites
    )


def _compare_classes(
    values: np.ndarray, labels: np.ndarray, strata: np.ndarray
) -> tuple[float, float, dict[str, float]]:
    """Compare the classes inside strata that have both: AUC, p value and, of a category, differences of shares."""
    from scipy.stats import chi2, rankdata

    is_number = values.dtype.kind == "f"
    names = [""] if is_number else sorted(set(values))
    scores = np.zeros((len(values), len(names)))
    difference = np.zeros(len(names))
    covariance, total = np.zeros((len(names), len(names))), 0.0
    for stratum in np.unique(strata):
        inside = np.flatnonzero(strata == stratum)
        n, n1 = len(inside), int(labels[inside].sum())
        n0 = n - n1
        if is_number:  # ranks from 0 to 1: their means differ by AUC - 0.5
            scores[inside, 0] = (rankdata(values[inside]) - 0.5) / n
        else:
            scores[inside] = values[inside, None] == np.array(names)
        x, ones = scores[inside], labels[inside] == 1
        contrast = x[ones].mean(axis=0) - x[~ones].mean(axis=0)
        weight = n0 * n1 / n
        difference += weight * contrast
        covariance += weight / (n - 1) * (x - x.mean(axis=0)).T @ (x - x.mean(axis=0))
        total += weight
    rank = int(np.linalg.matrix_rank(covariance))
    p = float(chi2.sf(difference @ np.linalg.pinv(covariance) @ difference, rank)) if rank else 1.0
    difference /= total
    if is_number:
        return 0.5 + float(difference[0]), p, {}
    return 0.5 + float(np.abs(difference).sum()) / 4, p, dict(zip(names, difference.tolist(), strict=True))


def summarise_repetition_times(cohort: Cohort) -> RepetitionTime | None:
    """Count the repetition times of each site.

    Returns None if the cohort states no repetition time.
    """
    if "tr" not in cohort.participants.columns:
        return None
    tr = pd.to_numeric(cohort.participants["tr"], errors="coerce")
    stated = tr.notna().to_numpy()
    if not stated.any():
        return None
    text = tr[stated].round(3).map("{:g}".format)
    counts = text.groupby(cohort.sites[stated]).value_counts()
    by_site: dict[str, dict[str, int]] = {}
    for (site, value), n in sorted(counts.items(), key=lambda item: (item[0][0], float(item[0][1]))):
        by_site.setdefault(str(site), {})[str(value)] = int(n)
    several = tuple(site for site, values in by_site.items() if len(values) > 1)
    return RepetitionTime(int((~stated).sum()), by_site, several)


def _compute_auc(score: np.ndarray, label: np.ndarray) -> tuple[float | None, float | None]:
    """Compute the AUC and its Mann-Whitney p value; both are None with one class."""
    from scipy.stats import mannwhitneyu

    one, zero = score[label == 1], score[label == 0]
    if len(one) == 0 or len(zero) == 0:
        return None, None
    if len(np.unique(score)) == 1:  # the test divides by the spread of the ranks
        return 0.5, 1.0
    test = mannwhitneyu(one, zero, alternative="two-sided", method="asymptotic")
    return float(test.statistic / (len(one) * len(zero))), float(test.pvalue)
