"""Rank the methods of a report and test them against a reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..protocol.statistics import compare_over_folds, compare_over_sites
from ..results import average_seeds, unit_columns
from .evidence import EvidenceArm

ALPHA = 0.05
LINEAR_METHODS = ("ridge", "logistic", "svm", "tangent-ridge", "fc-tangent-ridge", "core-scaffold")
"""The first of these that was run is the reference. The order is fixed in advance: to take the best of them on the test
scans would be a choice made by the test scans."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods ranked by mean AUC, and their tests against a reference."""

    ranked: list[EvidenceArm]  # best first; without controls, and without smoke runs unless there are no others
    reference: EvidenceArm | None  # A linear method, else BRIO, else the best method; None where nothing is ranked
    has_linear_reference: bool
    differences: dict[str, dict[str, Any]]


def compare_arms(arms: Sequence[EvidenceArm]) -> Comparison:
    """Rank the arms of one protocol by their mean AUC and test them against the reference."""
    candidates = [arm for arm in arms if not arm.control and arm.summary.auc.mean is not None]
    scans = Counter(arm.job.summary.fingerprint for arm in candidates).most_common(1)
    candidates = [arm for arm in candidates if arm.job.summary.fingerprint == scans[0][0]]  # others cannot be paired
    complete = [arm for arm in candidates if not arm.job.summary.smoke_run]
    ranked = sorted(complete or candidates, key=lambda arm: -(arm.summary.auc.mean or 0.0))
    if not ranked:
        return Comparison([], None, False, {})
    by_name = {arm.name: arm for arm in ranked}
    linear = next((by_name[name] for name in LINEAR_METHODS if name in by_name), None) or next(
        (arm for name in LINEAR_METHODS for arm in ranked if arm.method == name), None
    )
    reference = linear or by_name.get("brio") or ranked[0]
    table = _test_against(reference.name, ranked)
    differences = {str(row["method"]): {str(k): v for k, v in row.items()} for row in table.to_dict("records")}
    return Comparison(ranked, reference, linear is not None, differences)


def _test_against(reference: str, arms: Sequence[EvidenceArm]) -> pd.DataFrame:
    if len(arms) < 2:
        return pd.DataFrame(columns=["method"])
    rows = pd.concat([arm.rows for arm in arms], ignore_index=True)
    scores = average_seeds(rows, units=unit_columns(arms[0].protocol))
    if arms[0].protocol == "loso":
        return compare_over_sites(scores, reference, alpha=ALPHA).rename(columns={"n_sites": "n"})
    n_test, n_source = float(rows["n_test"].mean()), float(rows["n_source"].mean())
    table = compare_over_folds(scores, n_test, n_source, reference, alpha=ALPHA)
    return table.rename(columns={"n_folds": "n"})
