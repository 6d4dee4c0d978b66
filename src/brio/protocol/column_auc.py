"""Areas under the ROC curve of many columns of labels and margins at once, and the two means over sites."""

from __future__ import annotations

import numpy as np

from .metrics import merge_ties


def score_columns(label: np.ndarray, margin: np.ndarray, scale: float = 0.0) -> np.ndarray:
    """Compute the AUC of each column, as :func:`brio.protocol.auc` does of one: ties count as half.

    Shapes: label [n, ...], margin [n, ...]; returns [...].

    Returns NaN for a column with one class only.
    """
    if np.isnan(margin).any():
        raise ValueError("some margins are NaN, so scans cannot be ordered")
    patient = label == 1
    n_patients = patient.sum(axis=0)
    n_pairs = n_patients * (len(label) - n_patients)
    from scipy.stats import rankdata

    rank_sum = (rankdata(merge_ties(margin, scale), axis=0) * patient).sum(axis=0)  # Mann and Whitney's statistic
    in_order = rank_sum - n_patients * (n_patients + 1) / 2
    return np.divide(in_order, n_pairs, out=np.full(np.shape(in_order), np.nan), where=n_pairs > 0)


def count_pairs(label: np.ndarray) -> int:
    """Count the pairs of a patient and a control among the scans of a site. ``label`` has shape [n]."""
    patients = int((label == 1).sum())
    return patients * (len(label) - patients)


def weigh_by_pairs(auc: np.ndarray, n_pairs: np.ndarray) -> np.ndarray:
    """Average the AUC of sites, weighted by their pairs of patient and control: the pair-weighted within-site AUC.

    Shapes: auc [sites, ...], n_pairs [sites]; returns [...].

    Returns NaN where no site has an AUC.
    """
    weight = np.asarray(n_pairs, dtype=float).reshape(-1, *[1] * (np.ndim(auc) - 1)) * ~np.isnan(auc)
    total = weight.sum(axis=0)
    return np.divide(
        (weight * np.nan_to_num(auc)).sum(axis=0), total, out=np.full(total.shape, np.nan), where=total > 0
    )
