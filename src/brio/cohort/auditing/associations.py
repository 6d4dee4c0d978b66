"""Measure associations that let a classifier succeed without looking at the brain.

These are associations between site and label, scan length and site, scan length and label, and repetition time and
site. Where participants have several scans, those of their first scans: tests over scans would count people twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..sessions import index_participants

__all__ = [
    "LabelBySite",
    "LengthByLabel",
    "LengthBySite",
    "RepetitionTime",
    "SiteCounts",
    "count_by_site",
    "count_classes",
    "measure_label_by_site",
    "measure_length_by_label",
    "measure_length_by_site",
    "select_first_scans",
    "summarise_repetition_times",
]


@dataclass(frozen=True)
class SiteCounts:
    """Participants of one site, as supplied and without the proposed exclusions.

    Attributes
    ----------
    site : str
    before, after : tuple of two int
        Participants with label 0 and label 1, each counted once however many scans there are.
    """

    site: str
    before: tuple[int, int]
    after: tuple[int, int]


@dataclass(frozen=True)
class LabelBySite:
    """Whether the site predicts the label.

    Attributes
    ----------
    cramers_v : float or None
        0: the same share of patients at every site; 1: the site determines the label. None with one site or class.
    by_chance : float or None
        Cramer's V expected if site and label were independent; not 0 in a finite cohort.
    p : float or None
        p value of the chi-square test of independence.
    """

    cramers_v: float | None = None
    by_chance: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class LengthBySite:
    """Whether the scan length predicts the site.

    Attributes
    ----------
    shortest, longest : int
        Frames of the shortest and the longest scan.
    eta_squared : float or None
        Share of the variance of scan length that lies between sites. None if all scans have one length.
    differs_inside : dict of site to (shortest, longest)
        Sites whose scans differ in length.
    all_shortest : dict of site to number of scans
        Sites at which every scan is as short as the shortest scan of the cohort. Empty if all scans have one length.
    """

    shortest: int
    longest: int
    eta_squared: float | None
    differs_inside: dict[str, tuple[int, int]]
    all_shortest: dict[str, int]


@dataclass(frozen=True)
class LengthByLabel:
    """Whether the scan length predicts the label.

    Attributes
    ----------
    auc : float or None
        AUC with the number of frames as the score for label 1, all sites pooled. None with one class.
    p : float or None
        p value of the two-sided Mann-Whitney test, all sites pooled.
    auc_inside : float or None
        Mean of the AUCs within sites, over the sites that have both classes and several lengths.
    auc_by_site : dict of site to float
        The AUCs that enter this mean.
    """

    auc: float | None
    p: float | None
    auc_inside: float | None
    auc_by_site: dict[str, float]


@dataclass(frozen=True)
class RepetitionTime:
    """Repetition times of each site, from the column ``tr`` of the participants table.

    Attributes
    ----------
    unknown : int
        Scans without a repetition time.
    by_site : dict of site to dict of seconds to number of scans
        Seconds are text, rounded to milliseconds.
    differs_inside : tuple of str
        Sites with several repetition times.
    """

    unknown: int
    by_site: dict[str, dict[str, int]]
    differs_inside: tuple[str, ...]

    @property
    def sites_by_value(self) -> dict[str, list[str]]:
        """Sites that use each repetition time, in increasing order of the time."""
        values = sorted({tr for counts in self.by_site.values() for tr in counts}, key=float)
        return {tr: [site for site, counts in self.by_site.items() if tr in counts] for tr in values}


def count_classes(labels: np.ndarray) -> tuple[int, int]:
    """Count the labels that are 0 and those that are 1.

    Parameters
    ----------
    labels : ndarray of int64, shape [N]

    Returns
    -------
    tuple of two int

    Examples
    --------
    >>> count_classes(np.array([0, 1, 1]))
    (1, 2)
    """
    return int((labels == 0).sum()), int((labels == 1).sum())


def count_by_site(cohort: Cohort, keep: np.ndarray) -> tuple[SiteCounts, ...]:
    """Count the participants of each site and class.

    Parameters
    ----------
    cohort : Cohort
        N scans.
    keep : ndarray of bool, shape [N]
        Scans that remain after the exclusions.

    Returns
    -------
    tuple of SiteCounts
        Sorted by site.
    """
    before, after = select_first_scans(cohort), select_first_scans(cohort.select(keep))
    return tuple(
        SiteCounts(str(s), *(count_classes(part.labels[part.sites == s]) for part in (before, after)))
        for s in np.unique(cohort.sites)
    )


def select_first_scans(cohort: Cohort) -> Cohort:
    """Select the first scan of each participant, so that counts and tests are about participants.

    Returns
    -------
    Cohort
        The same cohort if nobody has several scans.
    """
    return cohort.select(index_participants(cohort.participant_ids)[0])


def measure_label_by_site(cohort: Cohort) -> LabelBySite:
    """Measure the association of site and label by Cramer's V, with a chi-square test.

    Returns
    -------
    LabelBySite

    Examples
    --------
    >>> scans = [np.random.default_rng(i).normal(size=(50, 3)) for i in range(8)]
    >>> cohort = Cohort.from_scans(scans, site=list("AAAABBBB"), label=[0, 0, 0, 0, 1, 1, 1, 1])
    >>> measure_label_by_site(cohort).cramers_v
    1.0
    """
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
    """Measure how scan length differs between and within sites. All acquired frames count, valid or not.

    Returns
    -------
    LengthBySite
    """
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
    """Measure how well scan length predicts the label, over all sites and within each.

    Returns
    -------
    LengthByLabel
    """
    sites, lengths, labels = cohort.sites, cohort.n_frames, cohort.labels
    within: dict[str, float] = {}
    for site in np.unique(sites):
        at_site = sites == site
        auc, _ = _compute_auc(lengths[at_site], labels[at_site])
        if auc is not None and len(np.unique(lengths[at_site])) > 1:
            within[str(site)] = auc
    auc, p = _compute_auc(lengths, labels)
    return LengthByLabel(auc, p, float(np.mean(list(within.values()))) if within else None, within)


def summarise_repetition_times(cohort: Cohort) -> RepetitionTime | None:
    """Count the repetition times of each site.

    Returns
    -------
    RepetitionTime or None
        None if the cohort states no repetition time.
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
