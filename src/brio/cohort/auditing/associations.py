"""Associations that let a classifier succeed without the brain: label, scan length and repetition time by site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency, mannwhitneyu

from ..cohort import Cohort

__all__ = [
    "LabelBySite",
    "LengthByLabel",
    "LengthBySite",
    "RepetitionTime",
    "SiteCounts",
    "class_counts",
    "label_by_site",
    "length_by_label",
    "length_by_site",
    "repetition_time",
    "site_counts",
]


@dataclass(frozen=True)
class SiteCounts:
    """Scans of a site in class 0 and class 1, as supplied and without the proposed exclusions."""

    site: str
    before: tuple[int, int]
    after: tuple[int, int]


@dataclass(frozen=True)
class LabelBySite:
    """Does the site tell the label?

    Attributes
    ----------
    cramers_v : float or None
        0: the same share of patients at every site; 1: the site determines the label. None with one site or class.
    by_chance : float or None
        Cramer's V expected where site and label are independent; it is not 0 in a finite cohort.
    p : float or None
        Chi-square test of independence.
    """

    cramers_v: float | None = None
    by_chance: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class LengthBySite:
    """Does the scan length tell the site?

    Attributes
    ----------
    shortest, longest : int
        Frames, over all scans.
    eta_squared : float or None
        Share of the variance of the scan length that lies between sites. None where all lengths are the same.
    differs_inside : dict of site to (shortest, longest)
        Sites whose scans are not all of one length.
    all_shortest : dict of site to number of scans
        Sites at which every scan has the length of the shortest scan of a cohort of several lengths.
    """

    shortest: int
    longest: int
    eta_squared: float | None
    differs_inside: dict[str, tuple[int, int]]
    all_shortest: dict[str, int]


@dataclass(frozen=True)
class LengthByLabel:
    """Does the scan length tell the label?

    Attributes
    ----------
    auc : float or None
        Area under the curve with the number of frames as score for label 1, all sites pooled. None with one class.
    p : float or None
        Mann-Whitney test, two-sided, all sites pooled.
    auc_inside : float or None
        Mean of the areas inside sites, over the sites that have both classes and several lengths.
    auc_by_site : dict of site to float
        The areas that enter this mean.
    """

    auc: float | None
    p: float | None
    auc_inside: float | None
    auc_by_site: dict[str, float]


@dataclass(frozen=True)
class RepetitionTime:
    """Does the repetition time tell the site? From column ``tr`` of the participants.

    Attributes
    ----------
    unknown : int
        Scans without a repetition time.
    by_site : dict of site to dict of seconds to number of scans
        Seconds are text, to three digits.
    differs_inside : tuple of str
        Sites with several repetition times.
    """

    unknown: int
    by_site: dict[str, dict[str, int]]
    differs_inside: tuple[str, ...]

    @property
    def sites_by_value(self) -> dict[str, list[str]]:
        """Seconds, rising, and the sites that have scans with it."""
        values = sorted({tr for counts in self.by_site.values() for tr in counts}, key=float)
        return {tr: [site for site, counts in self.by_site.items() if tr in counts] for tr in values}


def class_counts(labels: np.ndarray) -> tuple[int, int]:
    """How many labels are 0 and how many are 1."""
    return int((labels == 0).sum()), int((labels == 1).sum())


def site_counts(cohort: Cohort, keep: np.ndarray) -> tuple[SiteCounts, ...]:
    """Scans of each site and class, of all scans and of those in the mask ``keep``."""
    sites, labels = cohort.sites, cohort.labels
    return tuple(
        SiteCounts(str(s), class_counts(labels[sites == s]), class_counts(labels[(sites == s) & keep]))
        for s in np.unique(sites)
    )


def label_by_site(cohort: Cohort) -> LabelBySite:
    """Cramer's V of site and label, with the chi-square test.

    Examples
    --------
    >>> scans = [np.random.default_rng(i).normal(size=(50, 3)) for i in range(8)]
    >>> label_by_site(Cohort.from_scans(scans, site=list("AAAABBBB"), label=[0, 0, 0, 0, 1, 1, 1, 1])).cramers_v
    1.0
    """
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


def length_by_site(cohort: Cohort) -> LengthBySite:
    """How scan length differs between and inside sites; frames are counted as acquired, valid or not."""
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


def length_by_label(cohort: Cohort) -> LengthByLabel:
    """Scan length as a score for the label, over all sites and inside each."""
    sites, lengths, labels = cohort.sites, cohort.n_frames, cohort.labels
    inside: dict[str, float] = {}
    for site in np.unique(sites):
        here = sites == site
        auc, _ = _area(lengths[here], labels[here])
        if auc is not None and len(np.unique(lengths[here])) > 1:
            inside[str(site)] = auc
    auc, p = _area(lengths, labels)
    return LengthByLabel(auc, p, float(np.mean(list(inside.values()))) if inside else None, inside)


def repetition_time(cohort: Cohort) -> RepetitionTime | None:
    """Repetition times by site, or None where the participants have no column ``tr``."""
    if "tr" not in cohort.participants.columns:
        return None
    tr = pd.to_numeric(cohort.participants["tr"], errors="coerce")
    known = tr.notna().to_numpy()
    if not known.any():
        return None
    text = tr[known].round(3).map("{:g}".format)
    counts = text.groupby(cohort.sites[known]).value_counts()
    by_site: dict[str, dict[str, int]] = {}
    for (site, value), n in sorted(counts.items(), key=lambda item: (item[0][0], float(item[0][1]))):
        by_site.setdefault(str(site), {})[str(value)] = int(n)
    several = tuple(site for site, values in by_site.items() if len(values) > 1)
    return RepetitionTime(int((~known).sum()), by_site, several)


def _area(score: np.ndarray, label: np.ndarray) -> tuple[float | None, float | None]:
    """Area under the curve and its Mann-Whitney p value; (None, None) with one class."""
    one, zero = score[label == 1], score[label == 0]
    if len(one) == 0 or len(zero) == 0:
        return None, None
    if len(np.unique(score)) == 1:  # the test divides by the spread of the ranks
        return 0.5, 1.0
    test = mannwhitneyu(one, zero, alternative="two-sided", method="asymptotic")
    return float(test.statistic / (len(one) * len(zero))), float(test.pvalue)
