"""Scores of a run on its test scans, and the bootstrap interval of a mean over sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

ONE_CLASS = "the test scans hold one class only"
"""Why a run has no AUC, as results state it."""
ROUNDING = 1e-11
"""Relative difference up to which margins count as equal. Sums of thousands of products in double precision, and the
eigenvectors that margins come from, are right to 1e-14 to 1e-12; margins of unlike scans hardly ever agree so closely.
"""


def merge_ties(margin: np.ndarray, scale: float = 0.0) -> np.ndarray:
    """Make margins of a column equal that agree to rounding; all others are returned as they are.

    Every AUC, placement value and ROC curve is of such margins, since the last bits of a margin follow the order of the
    scans. Neighbours agree if they differ by no more than 1e-11 of the larger of them, of the median absolute margin,
    or of ``scale``.

    Shapes: margin [n, ...]; returns [n, ...].
    """
    margin = np.asarray(margin, dtype=float)
    ascending = np.sort(margin, axis=0)
    largest = max(scale, -ascending[0].min(), ascending[-1].max())
    if largest == np.inf:  # such as of a run that diverged
        return margin
    gap = ascending[1:] - ascending[:-1]
    if gap.min(initial=np.inf) > ROUNDING * largest:
        return margin
    size = np.abs(ascending)
    middle = np.partition(size, len(size) // 2, axis=0)[len(size) // 2]
    larger = np.maximum(np.maximum(size[1:], size[:-1]), np.maximum(middle, scale))
    merged = ascending.copy()
    merged[1:][gap <= ROUNDING * larger] = -np.inf
    merged = np.maximum.accumulate(merged, axis=0)  # the lowest of those that are tied
    out = np.empty_like(merged)
    np.put_along_axis(out, np.argsort(margin, axis=0), merged, axis=0)
    return out


def auc(label: np.ndarray, logit: np.ndarray, scale: float = 0.0) -> float:
    """Compute the area under the ROC curve: the share of pairs of patient and control in order, ties counted as half.

    Logits that agree to rounding are ties, see :func:`merge_ties`.

    scikit-learn's function is not used: its input checks take a hundred times longer than the counting, and choosing a
    penalty by inner folds computes thousands of areas.

    Shapes: label [n], logit [n].

    Returns NaN if there is one class only.
    """
    control, patient = label != 1, label == 1
    n_pairs = int(control.sum()) * int(patient.sum())
    if not n_pairs:
        return float("nan")
    if np.isnan(logit).any():
        raise ValueError("some logits are NaN, so scans cannot be ordered")
    merged = merge_ties(logit, scale)
    controls, patients = np.sort(merged[control]), merged[patient]
    below = np.searchsorted(controls, patients, "left") + np.searchsorted(controls, patients, "right")
    return float(below.sum() / (2 * n_pairs))


def _share(flags: np.ndarray) -> float:
    return float(flags.mean()) if len(flags) else float("nan")


def calibrate_margins(margin: np.ndarray, details: Mapping[str, Any]) -> np.ndarray:
    """Turn margins into logits of probabilities.

    Classes are predicted from margins, probabilities from these logits.

    Shapes: margin [n]; returns [n].
    """
    slope, intercept = details.get("calibration", (1.0, 0.0))
    return slope * margin + intercept


def score_predictions(label: np.ndarray, logit: np.ndarray) -> dict[str, float]:
    """Score predictions; the predicted class is that with probability above one half (logit above 0).

    Shapes: label [n], logit [n].

    Returns ``auc``, ``acc``, ``balanced_acc``, ``sensitivity``, ``specificity``, ``brier``; NaN where a score is
    undefined.
    """
    from sklearn.metrics import brier_score_loss

    correct = (logit > 0) == (label == 1)
    sensitivity, specificity = _share(correct[label == 1]), _share(correct[label == 0])
    probability = 0.5 * (1.0 + np.tanh(0.5 * logit))
    return {
        "auc": auc(label, logit),
        "acc": _share(correct),
        "balanced_acc": 0.5 * (sensitivity + specificity),
        "sensitivity": sensitivity,
        "specificity": specificity,
        "brier": float(brier_score_loss(label, probability, pos_label=1)),
    }


def bootstrap_interval(
    values: Sequence[float] | np.ndarray, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Compute the percentile bootstrap interval of the mean over sites.

    Shapes: values [sites].

    Returns low, high: NaN for fewer than two sites.
    """
    present = np.asarray(values, dtype=float)
    present = present[~np.isnan(present)]
    if len(present) < 2:
        return float("nan"), float("nan")
    draws = np.random.default_rng(seed).integers(0, len(present), (resamples, len(present)))
    means = present[draws].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
