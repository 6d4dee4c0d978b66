"""Predict scans with a model: probability, its interval for other minutes of the scan, and the class, or no call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit, stdtrit

from ..cohort import Cohort
from ..connectome import Connectomes
from ..device import resolve_device
from ..domains import Accuracy, InnerShare, Reestimates, require_number
from .evidence import CallRule, choose_rule
from .model import Model, check_atlas, check_classes
from .regions import compute_region_contributions

__all__ = [
    "DEFAULT_ACCURACY",
    "DEFAULT_REESTIMATES",
    "NO_CALL",
    "ScanPredictions",
    "call_scans",
    "compute_half_width",
    "find_called",
    "find_flagged",
    "predict_scans",
]

DEFAULT_REESTIMATES = 47
DEFAULT_ACCURACY = 0.8
LEVEL = 0.95
NO_CALL = "no call"


@dataclass(frozen=True, eq=False)
class ScanPredictions:
    """Predictions of a model for some scans.

    Attributes
    ----------
    table : DataFrame, one row per scan
        ``participant_id``, or the name of the scan where participants have several; ``probability`` of the second class
        and ``margin``; ``low`` and ``high``, the prediction interval of the probability for equally many other minutes
        of this scan; ``agreement``, the share of re-estimates on the same side; ``predicted``, the name of the class,
        or "no call" (empty where the model was not evaluated); ``interval_crosses_half`` (yes or no); ``distance`` to
        the mean connectome; ``flag`` and ``notes``, codes of what differs from the scans of the model, and ``reasons``,
        the same in words (:func:`~brio.models.ranges.check_ranges`).
    contributions : DataFrame or None
        What each factor adds to the margin: ``participant_id``, ``seed``, ``factor``, ``contribution``; the factor
        ``intercept`` completes the sum. None where the method has no factors.
    rule : CallRule or None
        By which classes are called.
    logit : ndarray, shape [n]
        Of the probabilities.
    regions : ndarray, shape [n, P], or None
        What the edges of each region add to the margin. None where the method is not linear in the edges.
    """

    table: pd.DataFrame
    contributions: pd.DataFrame | None
    rule: CallRule | None
    logit: np.ndarray
    regions: np.ndarray | None = None


def predict_scans(
    model: Model,
    cohort: Cohort,
    *,
    reestimates: int = DEFAULT_REESTIMATES,
    wanted_accuracy: float = DEFAULT_ACCURACY,
    level: float = LEVEL,
    device: str = "auto",
) -> ScanPredictions:
    """Predict scans with a model.

    Parameters
    ----------
    model : Model
    cohort : Cohort
        The scans; sites and labels are not needed.
    reestimates : int
        Re-estimates of each scan, from which the interval is computed. The next prime with remainder 3 when divided by
        4 is taken, see :mod:`brio.connectome.resampling`.
    wanted_accuracy : float
        Accuracy that called classes shall have at a new site, see :func:`~brio.models.evidence.learn_call_rules`.
    level : float
        Of the interval.
    device : {"auto", "cpu", "cuda", "cuda-tf32"}

    Returns
    -------
    ScanPredictions

    Raises
    ------
    BrioError
        If the ROIs are not those of the model, labels have its classes in the other order, or the scans lack what its
        method needs.
    """
    require_number(reestimates, Reestimates, "reestimates")
    require_number(level, InnerShare, "level")
    require_number(wanted_accuracy, Accuracy, "accuracy")
    check_atlas(model.atlas, cohort)
    check_classes(model.classes, cohort)
    compute = resolve_device(device)
    plain = Connectomes(cohort, compute.torch_device)
    with compute.network_precision():
        margins = model.compute_margins(plain, reestimates)
        contributions = model.compute_contributions(plain)
        regions = compute_region_contributions(model, plain)
    logit, resampled = model.average_members(margins)
    half = model.interval_factor * compute_half_width(resampled, level)
    rule = None if model.evidence is None else choose_rule(model.evidence.rules, wanted_accuracy)
    table = pd.DataFrame(
        {
            "participant_id": cohort.ids,
            "probability": expit(logit),
            "margin": margins.full.mean(0),
            "low": expit(logit - half),
            "high": expit(logit + half),
            "agreement": ((resampled > 0) == (logit > 0)[:, None]).mean(1),
        }
    )
    checked = model.check_scans(plain)
    evaluated = model.evidence is not None
    table["predicted"] = call_scans(logit, rule, model.classes, find_flagged(checked)) if evaluated else ""
    table["interval_crosses_half"] = np.where((table["low"] < 0.5) & (table["high"] > 0.5), "yes", "no")
    table = pd.concat([table, checked], axis=1)
    return ScanPredictions(table, _list_contributions(model, cohort, contributions), rule, logit, regions)


def compute_half_width(resampled: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Compute half the width of the prediction interval of each logit for equally many other minutes of a scan.

    The spread of re-estimates says how far the logit of these minutes lies from that of an endless scan. Other minutes
    lie as far from it on their own, so their logit differs from this one by the root of two times as much. A model
    multiplies this by its ``interval_factor``.

    Parameters
    ----------
    resampled : ndarray, shape [n, K]
        Logits of re-estimates.
    level : float

    Returns
    -------
    ndarray, shape [n]
    """
    n_reestimates = resampled.shape[1]
    quantile = stdtrit(n_reestimates - 1, 0.5 + level / 2)
    return quantile * np.sqrt(2.0) * resampled.std(axis=1, ddof=1)


def find_flagged(checked: pd.DataFrame) -> np.ndarray:
    """Find the scans that get no call whatever their logit: those with a flag. Shape [n], bool."""
    return np.asarray(checked["flag"] != "")


def find_called(table: pd.DataFrame) -> np.ndarray:
    """Find the scans whose class is called. Shape [n], bool."""
    return ~np.asarray(table["predicted"].isin(["", NO_CALL]))


def call_scans(logit: np.ndarray, rule: CallRule | None, classes: tuple[str, str], flagged: np.ndarray) -> np.ndarray:
    """Name the class of each scan whose logit is large enough.

    Parameters
    ----------
    logit : ndarray, shape [n]
    rule : CallRule or None
        Without one there is no call.
    classes : tuple of two str
    flagged : ndarray of bool, shape [n]
        Scans that get no call, whatever their logit, see :func:`find_flagged`.

    Returns
    -------
    ndarray of str, shape [n]
    """
    called = np.zeros(len(logit), dtype=bool) if rule is None else (np.abs(logit) >= rule.threshold) & ~flagged
    return np.where(called, np.array(classes)[(logit > 0).astype(int)], NO_CALL)


def _list_contributions(model: Model, cohort: Cohort, values: np.ndarray | None) -> pd.DataFrame | None:
    if values is None:
        return None
    n_members, n_scans, n_columns = values.shape
    factors = [*(str(j + 1) for j in range(n_columns - 1)), "intercept"]
    return pd.DataFrame(
        {
            "participant_id": np.repeat(np.tile(cohort.ids, n_members), n_columns),
            "seed": np.repeat([m.fitted.run.seed for m in model.members], n_scans * n_columns),
            "factor": np.tile(factors, n_members * n_scans),
            "contribution": values.reshape(-1),
        }
    )
