"""Scores of a run on its test scans, and their summary over sites."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.metrics import brier_score_loss

__all__ = ["ONE_CLASS", "auc", "bootstrap_interval", "scores"]

ONE_CLASS = "the test scans hold one class only"


def auc(label: np.ndarray, logit: np.ndarray) -> float:
    """Area under the ROC curve: the share of pairs in order, ties by half. NaN where only one class is present.

    Counted here and not by scikit-learn, whose checks of its input take a hundred times longer than the counting: a
    penalty that is chosen by leaving out sites in turn asks for thousands of areas.

    Examples
    --------
    >>> auc(np.array([0, 0, 1, 1]), np.array([-2.0, 0.5, 0.5, 3.0]))
    0.875
    """
    control, patient = np.sort(logit[label != 1]), logit[label == 1]
    if not len(control) or not len(patient):
        return float("nan")
    if np.isnan(logit).any():
        raise ValueError("some logits are not a number: there is no order to score")
    below = np.searchsorted(control, patient, "left") + np.searchsorted(control, patient, "right")
    return float(below.sum() / (2 * len(control) * len(patient)))


def _share(hit: np.ndarray) -> float:
    return float(hit.mean()) if len(hit) else float("nan")


def scores(label: np.ndarray, logit: np.ndarray) -> dict[str, float]:
    """Scores at logit threshold 0 (probability one half); NaN where a score has no meaning."""
    said = logit > 0
    right = said == (label == 1)
    sensitivity, specificity = _share(right[label == 1]), _share(right[label == 0])
    probability = 0.5 * (1.0 + np.tanh(0.5 * logit))
    return {
        "auc": auc(label, logit),
        "acc": _share(right),
        "balanced_acc": 0.5 * (sensitivity + specificity),
        "sensitivity": sensitivity,
        "specificity": specificity,
        "brier": float(brier_score_loss(label, probability, pos_label=1)),
    }


def bootstrap_interval(
    values: Sequence[float] | np.ndarray, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the mean over sites, sites drawn with replacement. NaN for fewer than two sites."""
    known = np.asarray(values, dtype=float)
    known = known[~np.isnan(known)]
    if len(known) < 2:
        return float("nan"), float("nan")
    draws = np.random.default_rng(seed).integers(0, len(known), (resamples, len(known)))
    means = known[draws].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
