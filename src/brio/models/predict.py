"""Predict scans with a model: probability, its interval for other minutes of the scan, and whether to trust it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit, stdtrit

from ..cohort import Cohort
from ..connectome import Connectomes
from ..device import resolve_device
from ..domains import Accuracy, InnerShare, Reestimates, require_number
from .evidence import DecisionRule, choose_rule
from .model import Model, check_atlas, check_classes
from .ranges import check_ranges
from .regions import compute_region_contributions

__all__ = ["DEFAULT_REESTIMATES", "ScanPredictions", "compute_half_width", "predict_scans"]

DEFAULT_REESTIMATES = 32
DEFAULT_ACCURACY = 0.8
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class ScanPredictions:
    """Predictions of a model for some scans.

    Attributes
    ----------
    table : DataFrame, one row per scan
        ``participant_id``, or the name of the scan where participants have several; ``probability`` of the second class
        and ``margin``; ``low`` and ``high``, the prediction interval of the probability for equally many other minutes
        of this scan; ``agreement``, the share of re-estimates on the same side; ``decided`` (yes or abstain; empty
        where the model was not evaluated);
        ``in_range`` (yes or no) with ``reasons`` and ``distance_rank``.
    contributions : DataFrame or None
        What each factor adds to the margin: ``participant_id``, ``seed``, ``factor``, ``contribution``; the factor
        ``intercept`` completes the sum. None where the method has no factors.
    rule : DecisionRule or None
        By which ``decided`` is decided.
    logit : ndarray, shape [n]
        Of the probabilities.
    regions : ndarray, shape [n, P], or None
        What the edges of each region add to the margin. None where the method is not linear in the edges.
    """

    table: pd.DataFrame
    contributions: pd.DataFrame | None
    rule: DecisionRule | None
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
        Re-estimates of each scan, from which the interval is computed; at least 2.
    wanted_accuracy : float
        Accuracy that decided predictions shall have at a new site, see :func:`~brio.models.evidence.choose_rule`.
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
    rule = None if model.evidence is None else choose_rule(model.evidence.risk, wanted_accuracy)
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
    ranges = check_ranges(model.ranges, model.mean, plain)
    table["decided"] = _decide(logit, ranges["in_range"] == "yes", model, rule)
    table = pd.concat([table, ranges], axis=1)
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


def _decide(logit: np.ndarray, in_range: pd.Series, model: Model, rule: DecisionRule | None) -> np.ndarray:
    """Decide where the logit is large enough; never for scans that the evidence does not speak of."""
    if model.evidence is None:
        return np.full(len(logit), "")
    threshold = np.inf if rule is None else rule.threshold
    return np.where((np.abs(logit) >= threshold) & in_range, "yes", "abstain")


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
