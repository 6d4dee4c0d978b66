"""Predict scans with a model: logits, intervals, calls, warnings, and the contribution of each region."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.sparse import csr_array
from scipy.special import expit, stdtrit

from ..cohort import Cohort, find_extraction
from ..cohort.cohort import UNNAMED_CLASSES, find_filled
from ..cohort.covariates import ClassNames
from ..cohort.scans import FC_ONLY, SESSION_FRAMES
from ..cohort.values import compare_classes
from ..connectome import Connectomes
from ..connectome.connectomes import SCANS_AT_A_TIME
from ..device import resolve_device
from ..formatting import join_names
from ..settings import Accuracy, InnerShare, Reestimates, require_number
from .evidence import CallRule, choose_rule
from .model import Ensemble, Model, check_atlas, check_classes


def compute_region_contributions(model: Ensemble, plain: Connectomes) -> np.ndarray | None:
    """Compute what the edges of each region add to the margin of each scan, averaged over members.

    The contribution of an edge is its coefficient times its difference from the mean of the source scans. Each of the
    two regions of an edge gets half of its contribution, so that a row adds up to the margin minus the margin at that
    mean.

    Shapes: returns [n, P].

    Returns None if the margin is not a sum over edges.
    """
    u, v = np.triu_indices(plain.n_rois, 1)
    edge = np.arange(len(u))
    halves = csr_array((np.full(2 * len(u), 0.5), (np.r_[edge, edge], np.r_[u, v])))  # [edges, P]
    total = np.zeros((len(plain), plain.n_rois))
    for member in model.members:
        explanation = model.method.explain(member.fitted)
        if explanation is None or explanation.coefficients is None or explanation.beyond_edges:
            return None
        inputs = model.gather_inputs(plain, member)
        for part in torch.arange(len(plain), device=plain.device).split(SCANS_AT_A_TIME):
            edges = model.method.read_explained(member.fitted, inputs.take(part)).edges
            total[part.cpu().numpy()] += (np.asarray(edges, dtype=float) * explanation.coefficients) @ halves
    return total / len(model.members)


_KNOWN_COLUMNS = (
    *("participant_id", "session", "site", "label", "n_frames", "tr", "age", "sex", "mean_fd"),
    *(FC_ONLY, SESSION_FRAMES),
)


def warn_of_differences(model: Model, cohort: Cohort) -> list[str]:
    """Describe differences from the scans of the model that are no reason to refuse these scans."""
    return [line for warn in (_warn_of_rois, _warn_of_classes, _warn_of_extraction) for line in warn(model, cohort)]


def _warn_of_rois(model: Model, cohort: Cohort) -> list[str]:
    """Warn if the order of the ROIs could not be checked."""
    without = [name for name, atlas in (("scans", cohort.atlas), ("model", model.atlas)) if atlas.is_unnamed]
    if not without:
        return []
    return [f"warning: the ROIs of the {' and the '.join(without)} have no names, so columns are matched by position"]


def _warn_of_classes(model: Model, cohort: Cohort) -> list[str]:
    """Say which label is matched with which class of the model, where labels have other names."""
    (zero, one), (own_zero, own_one) = cohort.classes, model.classes
    if not cohort.labelled.any() or compare_classes(cohort.classes, model.classes) != "other":
        return []
    if cohort.classes == UNNAMED_CLASSES and ClassNames(*model.classes).controls == 0:  # so are 0 and 1 meant
        return []
    people, is_folder = ClassNames(), cohort.provenance.get("kind") == "cohort"
    remedy = "import the scans again with" if is_folder else "set"
    meant = (f" ({people.positives})", f" ({people.negatives})") if model.classes == UNNAMED_CLASSES else ("", "")
    return [
        f"warning: labels are {zero} and {one}, but the model has {own_zero} and {own_one}: {one} is "
        f"matched with {own_one}{meant[0]} and {zero} with {own_zero}{meant[1]}; if this is wrong, "
        f"{remedy} --patient and --control"
    ]


def _warn_of_extraction(model: Model, cohort: Cohort) -> list[str]:
    """Say that the series of the scans were extracted from images in another way than those of the model."""
    own, theirs = model.training.extraction, find_extraction(cohort.provenance)
    if own is None or theirs is None or own == theirs:
        return []
    both = [[f"--{key.replace('_', '-')} {value}" for key, value in ways.items()] for ways in (theirs, own)]
    said, asked = map(" ".join, both)
    return [f"warning: the scans were extracted with {said}, but those of the model with {asked}; use the same options"]


def remark_on_local_scans(model: Model, cohort: Cohort) -> list[str]:
    """Describe reasons not to adapt a model to these scans."""
    lines = warn_of_differences(model, cohort)
    known = cohort.labelled & find_filled(cohort.participants, "site")
    sites = sorted(set(cohort.participants["site"][known].astype(str))) if known.any() else []
    if len(sites) > 1:
        lines.append(
            f"warning: the labelled scans are from {len(sites)} sites ({join_names(sites, most=5)}), but a model is "
            "adapted to one hospital; adapt it to each site separately"
        )
    return lines


def suggest_label_column(cohort: Cohort) -> list[str]:
    """Say which options read labels, if no scan has a label and the table has further columns."""
    further = cohort.participants.drop(columns=[*_KNOWN_COLUMNS], errors="ignore")
    if cohort.labelled.any() or further.columns.empty:
        return []
    of_two_values = [name for name in further if further[name].nunique() == 2]
    names = join_names(map(str, of_two_values or further.columns), most=8)
    return [
        f"no scan has a label; the table has other columns ({names}); if one of them is the label, give its name with "
        "--label-column, and its values with --patient and --control"
    ]


PREDICTION_REESTIMATES = 47
DEFAULT_ACCURACY = 0.8
LEVEL = 0.95
NO_CALL = "no call"


@dataclass(frozen=True, eq=False)
class ScanPredictions:
    """Predictions of a model for a set of scans.

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
    reestimates: int = PREDICTION_REESTIMATES,
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
            "margin": margins.full.mean(0),
            "logit": logit,
            "probability": expit(logit),
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
    """Compute half the width of the prediction interval of each logit for the same number of other minutes of a scan.

    The spread of re-estimates estimates how far the logit of these minutes lies from that of an infinitely long scan.
    The logit of other minutes lies equally far from it, independently, so the two logits differ by sqrt(2) times as
    much. A model multiplies this by its ``interval_factor``.

    Shapes: resampled [n, K]; returns [n].
    """
    n_reestimates = resampled.shape[1]
    quantile = stdtrit(n_reestimates - 1, 0.5 + level / 2)
    return quantile * np.sqrt(2.0) * resampled.std(axis=1, ddof=1)


def find_flagged(checked: pd.DataFrame) -> np.ndarray:
    """Find the scans that get no call whatever their logit, because they have a flag. Shape [n], bool."""
    return np.asarray(checked["flag"] != "")


def find_called(table: pd.DataFrame) -> np.ndarray:
    """Find the scans whose class is called. Shape [n], bool."""
    return ~np.asarray(table["predicted"].isin(["", NO_CALL]))


def call_scans(logit: np.ndarray, rule: CallRule | None, classes: tuple[str, str], flagged: np.ndarray) -> np.ndarray:
    """Name the called class of each scan with a large enough logit and no flag.

    Shapes: logit [n], flagged [n]; returns [n].
    """
    called = np.zeros(len(logit), dtype=bool) if rule is None else (np.abs(logit) >= rule.threshold) & ~flagged
    return np.where(called, np.array(classes)[(logit > 0).astype(int)], NO_CALL)


def _list_contributions(model: Model, cohort: Cohort, values: np.ndarray | None) -> pd.DataFrame | None:
    if values is None:
        return None
    seeds = [member.fitted.run.seed for member in model.members]
    factors = [*map(str, range(1, values.shape[2])), "intercept"]
    index = pd.MultiIndex.from_product([seeds, cohort.ids, factors], names=["seed", "participant_id", "factor"])
    table = pd.DataFrame({"contribution": values.reshape(-1)}, index).reset_index()
    return table[["participant_id", "seed", "factor", "contribution"]]
