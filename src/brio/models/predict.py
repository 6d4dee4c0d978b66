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

DEFAULT_REESTIMATES = 47
DEFAULT_ACCURACY = 0.8
LEVEL = 0.95
NO_CALL = "no call"


@dataclass(frozen=True, eq=False)
class ScanPredictions:
    """Predictions of a model for some scans.

    Shapes: logit [n], regions [n, P].
    """

    table: pd.DataFrame
    contributions: pd.DataFrame | None
    rule: CallRule | None  # by which classes are called
    logit: np.ndarray  # of the probabilities
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
    """Predict scans with a model."""
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

    Shapes: resampled [n, K]; returns [n].
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

    Shapes: logit [n], flagged [n]; returns [n].
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
