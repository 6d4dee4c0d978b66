"""What our own studies share: the arm of a method with or without validation sites, and both means of AUC over sites.

:mod:`brio.results.people` says what the two estimands are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from ..cohort.sessions import index_participants
from ..jobs.spec import settle_without_validation
from ..protocol import t_interval
from ..protocol.column_auc import count_pairs, weigh_by_pairs
from .arms import Arm, make_arm
from .context import StudyContext


def list_own_arms(context: StudyContext, default: Sequence[str] = ("ridge",)) -> list[Arm]:
    """List the arms of a study of one or few methods."""
    return [_make_own_arm(context, name) for name in context.methods or default]


def _make_own_arm(context: StudyContext, name: str) -> Arm:
    if context.job.protocol_settings.validation_sites:
        return make_arm(name)
    given = context.job.spec.settings_of(name)
    added = {key: value for key, value in settle_without_validation(name, given).items() if key not in given}
    return make_arm(name, **added)


def read_arm_predictions(context: StudyContext, arm: Arm) -> pd.DataFrame:
    """Read the predictions of an arm; an arm whose reused results have none is trained here."""
    predictions = context.results_of(arm).job.predictions
    if predictions is None:
        predictions = context.trained_results(arm).job.predictions
    assert predictions is not None  # a job that was just executed has them
    return predictions[predictions["method"] == arm.method]


def tabulate_arms(
    context: StudyContext, arms: Sequence[Arm], score_runs: Callable[[pd.DataFrame], pd.DataFrame]
) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Score the predictions of arms.

    Returns table: Rows of all arms, with the column ``arm`` first and the facts of each arm last.

    Returns parts: The same by arm.
    """
    parts = [
        score_runs(read_arm_predictions(context, a)).assign(arm=a.name, **context.results_of(a).facts) for a in arms
    ]
    table = pd.concat(parts, ignore_index=True)
    return table[["arm", *(name for name in table.columns if name != "arm")]], parts


def count_site_pairs(context: StudyContext, folds: Sequence[str]) -> np.ndarray:
    """Count the pairs of a patient and a control at each test site, in the order of the folds. Shape [folds]."""
    people, _ = index_participants(context.cohort.participant_ids)
    labels, sites = context.cohort.labels[people], context.cohort.sites[people]
    return np.array([count_pairs(labels[sites == fold]) for fold in folds])


def compute_site_interval(values: np.ndarray) -> tuple[float, float]:
    """Compute the 95 % interval (t) of a mean over sites, in one place for our own studies. Shape [sites]."""
    return t_interval(values)


def summarise_sites(auc: pd.Series, n_pairs: np.ndarray) -> dict[str, float]:
    """Summarise the AUC of sites by both estimands, in percent.

    Shapes: auc [sites], n_pairs [sites].
    """
    scores = 100 * auc.to_numpy(dtype=float)
    low, high = t_interval(scores, limits=(0.0, 100.0))
    weighted = float(weigh_by_pairs(scores, n_pairs))
    return {"AUC": float(np.nanmean(scores)), "low": low, "high": high, "pair-weighted AUC": weighted}
