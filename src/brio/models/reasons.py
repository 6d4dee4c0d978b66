"""Reasons why a scan differs from those of a model, and which of them are flags; needs no torch.

A difference is a **flag** where the model cannot mean the scan (it is no connectome of these regions, or the model has
seen it), or where scans with that difference did worse at left-out sites. Else it is a **note**.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from scipy.special import ndtr

from ..schemas import StoredCount, StoredShare
from ..schemas.stored_values import one_of

LEAST_WITH_REASON, LEAST_SITES, LEVEL = 30, 2, 0.05
"""A reason is tested where so many participants of so many left-out sites have it, and flags where p is below this."""

REASONS = {
    "foreign": "another atlas, order of regions, or noise",
    "known": "known to the model",
    "short": "fewer frames",
    "dead_rois": "ROIs without signal",
    "tr": "repetition time",
    "motion": "head motion",
    "edge_sd": "spread of the edges",
    "far": "far from the mean connectome",
    "tr_unknown": "repetition time unknown",
}
"""Codes of what may be said of a scan, and their names in a count."""

CANNOT_BE_MEANT = ("foreign", "known")
"""Always flags."""

TESTED = ("short", "dead_rois", "tr", "motion", "edge_sd", "far")
"""Flags only where scans with them did worse at left-out sites."""


@dataclass(frozen=True)
class ReasonEvidence:
    """How participants with a scan that has one reason did at left-out sites."""

    code: Annotated[str, one_of(*TESTED)]
    n: StoredCount  # participants of left-out sites who have it, and their sites
    n_sites: StoredCount
    accuracy: StoredShare | None  # share of these participants, and of all others, that were predicted right
    accuracy_without: StoredShare | None
    p: StoredShare | None  # one-sided, for these participants doing no worse; None where too few have the reason

    @property
    def is_flag(self) -> bool:
        """Whether scans with this reason are flagged."""
        return self.p is not None and self.p < LEVEL


def describe_codes(codes: Iterable[str]) -> str:
    """Count the reasons in the column ``flag`` or ``notes`` of some scans, commonest first."""
    counts = pd.Series([code for cell in codes for code in cell.split()], dtype=object).value_counts()
    return ", ".join(f"{n} {REASONS[str(code)]}" for code, n in counts.items())


def compare_reasons(scans: pd.DataFrame, left_out: pd.DataFrame) -> tuple[ReasonEvidence, ...]:
    """Test of each reason whether scans with it did worse at left-out sites.

    The accuracies of scans with and without the reason are compared by a one-sided z test. The variance of each is that
    of its scans or that between its sites, whichever is larger: scans of one site are right or wrong together.
    """
    right = ((scans["logit"] > 0) == scans["label"]).to_numpy(dtype=float)
    site, checked = scans["fold"].to_numpy(), left_out.loc[scans["participant_id"]]
    return tuple(_test_reason(code, right, site, checked[code].to_numpy()) for code in TESTED)


def _test_reason(code: str, right: np.ndarray, site: np.ndarray, has: np.ndarray) -> ReasonEvidence:
    n, n_sites = int(has.sum()), len(np.unique(site[has]))
    accuracy, without = (float(right[part].mean()) if part.any() else None for part in (has, ~has))
    p = None
    if accuracy is not None and without is not None and n >= LEAST_WITH_REASON and n_sites >= LEAST_SITES:
        variance = sum(_find_variance(right[part], site[part]) for part in (has, ~has))
        p = float(ndtr((accuracy - without) / max(variance, 1e-12) ** 0.5))
    return ReasonEvidence(code, n, n_sites, accuracy, without, p)


def _find_variance(right: np.ndarray, site: np.ndarray) -> float:
    """Variance of a share of right scans: over scans, or over sites where that is larger."""
    share, n = right.mean(), len(right)
    sums = pd.Series(right - share).groupby(site).sum()
    over_sites = float((sums**2).sum()) / n**2 * len(sums) / max(1, len(sums) - 1)
    return max(float(share * (1 - share)) / n, over_sites)


def find_flagged_scans(scans: pd.DataFrame, left_out: pd.DataFrame, reasons: Iterable[ReasonEvidence]) -> np.ndarray:
    """Find which scans of the evidence the model would have flagged, had their site been new.

    Shapes: returns [n].
    """
    flags = ["foreign", *(reason.code for reason in reasons if reason.is_flag)]
    return left_out.loc[scans["participant_id"], flags].any(axis=1).to_numpy()
