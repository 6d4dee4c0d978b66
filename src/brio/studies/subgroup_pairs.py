"""AUC within subgroups: pairs of a patient and a control of the same site and the same subgroup.

Everything is a weighted sum over the pairs of a site. A bootstrap draw is a weight for each participant, and random
subgroups are indicators in another order, so that thousands of either are a few matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

RESAMPLES = 2_000
"""Bootstrap draws, and as many draws of random subgroups."""

BETWEEN_SITES = 0.9
"""A variable with more of its variance between sites is treated as a property of the site."""


class SitePairs(NamedTuple):
    """The pairs of one site.

    Shapes: patients, controls [n1], [n0], in_order [n1, n0].
    """

    patients: np.ndarray  # rows of the participants
    controls: np.ndarray
    in_order: np.ndarray  # share of the seeds under which the patient has the larger margin; a tie is half


def collect_site_pairs(predictions: pd.DataFrame) -> tuple[pd.DataFrame, list[SitePairs]]:
    """Collect the pairs of every test site.

    Shapes: returns participants [n, 3].

    Returns participants: participant_id, site and label, one row per participant.
    """
    margins = predictions.pivot_table(index=["site", "participant_id", "label"], columns="seed", values="logit")
    participants = margins.index.to_frame(index=False)
    site, label, margin = participants["site"].to_numpy(), participants["label"].to_numpy(), margins.to_numpy()
    pairs = []
    for e in np.unique(site):
        patients, controls = (np.flatnonzero((site == e) & (label == c)) for c in (1, 0))
        if len(patients) and len(controls):
            gap = margin[patients][:, None] - margin[controls][None, :]  # [n1, n0, seeds]
            pairs.append(SitePairs(patients, controls, ((gap > 0) + 0.5 * (gap == 0)).mean(axis=2)))
    return participants, pairs


def divide_into_thirds(values: np.ndarray, site: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """Divide participants into thirds of a variable, from low to high.

    A variable that hardly differs within sites, such as the length of a scan, is a property of the site. Every
    participant then has the median of the site, and sites are the units.

    Shapes: values [n], site [n]; returns code [n], used [n].
    """
    column = pd.Series(values)
    centre = column.groupby(site).transform("mean")
    total = column.var(ddof=0)
    by_site = bool(total > 0 and (column - centre).pow(2).mean() < (1 - BETWEEN_SITES) * total)
    if by_site:
        column = column.groupby(site).transform("median")
    used = column.to_numpy(dtype=float)
    cuts = np.nanquantile(used, [1 / 3, 2 / 3])
    return np.where(np.isnan(used), -1, np.searchsorted(cuts, used, side="left")), used, by_site


@dataclass(frozen=True, eq=False)
class SubgroupScores:
    """AUC in each of G subgroups, and what chance gives. Shares, not percent.

    Shapes: auc [G], n_pairs, n_sites [G], drawn [B, G], random [B, G].
    """

    auc: np.ndarray  # NaN where a subgroup has no pair
    n_pairs: np.ndarray  # pairs of the subgroup, and sites that have some
    n_sites: np.ndarray
    drawn: np.ndarray  # AUC in bootstrap draws of participants within sites, or of sites
    random: np.ndarray  # AUC in random subgroups of the same sizes

    def difference(self, first: int, second: int) -> tuple[float, tuple[float, float], tuple[float, float], float]:
        """Return the AUC of one subgroup minus that of another."""
        observed = float(self.auc[first] - self.auc[second])
        random = self.random[:, first] - self.random[:, second]
        random = random[~np.isnan(random)]
        interval = _central(self.drawn[:, first] - self.drawn[:, second])
        if np.isnan(observed) or not len(random):
            return observed, interval, _central(random), float("nan")
        extreme = np.abs(random - random.mean()) >= abs(observed - random.mean()) - 1e-12
        return observed, interval, _central(random), float((1 + extreme.sum()) / (1 + len(random)))

    def interval(self, group: int) -> tuple[float, float]:
        """Return the 95 % bootstrap interval of the AUC of a subgroup."""
        return _central(self.drawn[:, group])

    def random_range(self, group: int) -> tuple[float, float]:
        """Return the range that holds 95 % of the AUCs of random subgroups of the same size."""
        return _central(self.random[:, group])


def score_subgroups(
    pairs: Sequence[SitePairs], code: np.ndarray, n_groups: int, *, by_site: bool = False, seed: int = 0
) -> SubgroupScores:
    """Score the subgroups of one variable.

    Shapes: code [n].
    """
    rng = np.random.default_rng(seed)
    observed = np.array([_sum_pairs(site, *_indicate(site, code, n_groups)) for site in pairs])[..., 0, :]  # [S, 2, G]
    if by_site:
        drawn, random = _draw_sites(observed, rng), _exchange_sites(observed, rng)
    else:
        drawn, random = np.zeros((2, RESAMPLES, n_groups)), np.zeros((2, RESAMPLES, n_groups))
        for site in pairs:
            indicators = _indicate(site, code, n_groups)
            counts = [rng.multinomial(n := x.shape[1], np.full(n, 1 / n), RESAMPLES) for x in indicators]
            drawn += _sum_pairs(site, *(c[..., None] * x for c, x in zip(counts, indicators, strict=True)))
            orders = [rng.permuted(np.tile(np.arange(x.shape[1]), (RESAMPLES, 1)), axis=1) for x in indicators]
            random += _sum_pairs(site, *(x[0, order] for x, order in zip(indicators, orders, strict=True)))
    auc, n_pairs = _divide(observed.sum(axis=0)), observed[:, 1].sum(axis=0)
    return SubgroupScores(auc, n_pairs, (observed[:, 1] > 0).sum(axis=0), _divide(drawn), _divide(random))


def _indicate(site: SitePairs, code: np.ndarray, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """1 where a patient, or a control, is in a subgroup. Shapes [1, n1, G] and [1, n0, G]."""
    groups = np.arange(n_groups)
    patients, controls = (
        (code[rows][:, None] == groups).astype(float)[None] for rows in (site.patients, site.controls)
    )
    return patients, controls


def _sum_pairs(site: SitePairs, patients: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """Weights of pairs in order, and of all pairs, in each subgroup, from weights [B, n1, G], [B, n0, G]: [2, B, G]."""
    in_order = np.einsum("bng,bng->bg", np.einsum("bmg,mn->bng", patients, site.in_order, optimize=True), controls)
    return np.stack([in_order, patients.sum(axis=1) * controls.sum(axis=1)])


def _draw_sites(observed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the sites of each subgroup with replacement: [S, 2, G] -> [2, B, G]; zero with fewer than two sites."""
    drawn = np.zeros((2, RESAMPLES, observed.shape[2]))
    for g in range(observed.shape[2]):
        members = np.flatnonzero(observed[:, 1, g])
        if len(members) > 1:
            counts = rng.multinomial(len(members), np.full(len(members), 1 / len(members)), RESAMPLES)
            drawn[:, :, g] = (counts @ observed[members, :, g]).T
    return drawn


def _exchange_sites(observed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Exchange the subgroups of sites at random: [S, 2, G] -> [2, B, G]."""
    total, member = observed.sum(axis=2), (observed[:, 1] > 0).astype(float)  # [S, 2], [S, G]
    order = rng.permuted(np.tile(np.arange(len(total)), (RESAMPLES, 1)), axis=1)
    return np.einsum("bsg,sk->kbg", member[order], total)


def _divide(sums: np.ndarray) -> np.ndarray:
    """AUC from weights of pairs in order and of all pairs; NaN where there is no pair."""
    return np.divide(sums[0], sums[1], out=np.full(sums[0].shape, np.nan), where=sums[1] > 0)


def _central(values: np.ndarray) -> tuple[float, float]:
    """The central 95 % of draws; NaN where none has a value."""
    present = values[~np.isnan(values)]
    if not len(present):
        return float("nan"), float("nan")
    low, high = np.quantile(present, [0.025, 0.975])
    return float(low), float(high)
