"""What somebody with a participant's scan can learn from a model, measured on models of half of the participants.

``measured_attacks.csv`` has the results for ABIDE; ``benchmarks/model_attacks.py`` writes it.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np
import torch

from .. import draws
from ..connectome import Connectomes
from ..protocol import Fold, auc, make_training_fold
from ..protocol.folds import assign_stratified_folds
from ..schemas import StoredCount, StoredShare, to_json
from ..training import FittedRun, Method, Run

MEASURED = "measured_attacks.csv"


@dataclass(frozen=True)
class MeasuredAttacks:
    """What a model fitted to half of the participants of each site reveals about them; mean over both halves."""

    method: str
    cohort: str
    n_scans: StoredCount  # of the cohort, both halves
    n_sites: StoredCount
    membership: StoredShare
    diagnosis_in: StoredShare | None  # AUC of the margin for the label, of scans in the training set and of others
    diagnosis_out: StoredShare | None
    rows_diagnosis: StoredShare | None = None
    rows_recognised: StoredCount | None = None
    rows: StoredCount | None = None


def fit_halves(method: Method, connectomes: Connectomes, n_halves: int = 2) -> list[tuple[FittedRun, Fold, np.ndarray]]:
    """Fit a method to one half of the participants of each site and class, then to the other."""
    cohort = connectomes.cohort
    dealt = assign_stratified_folds(draws.addresses(cohort.participant_ids), cohort.sites, cohort.labels, 2, seed=0)
    fitted = []
    for half in range(n_halves):
        members = np.flatnonzero(dealt == half)
        fold = make_training_fold(cohort.select(members), 0, "auto" if method.needs_validation else 0)
        fold = replace(fold, source=members[fold.source], validation=members[fold.validation])
        (run,) = method.fit(connectomes, [Run(fold, 0)])
        fitted.append((run, fold, dealt == half))
    return fitted


def measure_attacks(
    method: Method, connectomes: Connectomes, fitted: list[tuple[FittedRun, Fold, np.ndarray]], name: str
) -> MeasuredAttacks:
    """Measure what models fitted to halves reveal about the participants they were fitted to."""
    cohort, scores = connectomes.cohort, []
    for run, fold, inside in fitted:
        usable = np.flatnonzero(~np.isin(cohort.sites, fold.one_class_sites))
        scores.append(_attack(method, run, connectomes, usable, inside[usable]))
    n_sites = len(np.unique(cohort.sites))
    return MeasuredAttacks(method.name, name, len(cohort), n_sites, *to_json(np.mean(scores, axis=0)))


def _attack(
    method: Method, run: FittedRun, connectomes: Connectomes, scans: np.ndarray, inside: np.ndarray
) -> tuple[float, float, float]:
    """AUC for having been inside, and for the label inside and outside.

    The attacker has half of the participants outside, from which to learn what is usual at each site.
    """
    cohort = connectomes.cohort.select(scans)
    inputs, index = method.gather_inputs(connectomes), torch.from_numpy(scans).to(connectomes.device)
    margin = np.concatenate([method.predict(run, inputs.take(part)).margin for part in index.split(256)]).astype(float)
    sign = np.where(cohort.labels == 1, 1.0, -1.0)
    dealt = assign_stratified_folds(draws.addresses(cohort.participant_ids), cohort.sites, cohort.labels, 2, seed=1)
    reference = ~inside & (dealt == 0)
    centred = _centre_by_site(margin[:, None], cohort.sites, reference)[:, 0]
    guesses = [sign * centred, np.abs(centred)]
    explanation = method.explain(run)
    if explanation is not None and explanation.coefficients is not None:
        edges = method.read_explained(run, inputs.take(index)).edges
        x = _centre_by_site(np.asarray(edges, dtype=float), cohort.sites, reference)
        guesses.append(sign * (x @ _whiten(np.asarray(explanation.coefficients, dtype=float), x[reference])))
    tested, label = ~reference, cohort.labels
    membership = max(auc(inside[tested], guess[tested]) for guess in guesses)
    return membership, auc(label[inside], margin[inside]), auc(label[~inside], margin[~inside])


def _centre_by_site(values: np.ndarray, sites: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Subtract from the scans of each site the mean of its reference scans, or of all of them if it has none."""
    centred = values - values[reference].mean(0)
    for site in np.unique(sites[reference]):
        centred[sites == site] = values[sites == site] - values[reference & (sites == site)].mean(0)
    return centred


def _whiten(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Multiply coefficients by the inverse covariance of reference scans, so that what scans have in common drops out.

    A linear model is a weighted sum of its source scans. The product of a source scan with this sum is then mostly due
    to the scan itself.
    """
    ridge = (x**2).sum() / x.size  # mean variance of an edge
    x = x / np.sqrt(len(x))
    return np.asarray((w - x.T @ np.linalg.solve(x @ x.T + ridge * np.eye(len(x)), x @ w)) / ridge)


def read_measured_attacks(method: str) -> MeasuredAttacks | None:
    """Read what was measured for a method on ABIDE; None if it was not measured."""
    lines = (files(__package__) / MEASURED).read_text(encoding="utf-8").splitlines()
    for row in csv.DictReader(lines):
        if row["method"] == method:
            values: dict[str, Any] = {
                k: v if k in ("method", "cohort") else json.loads(v or "null") for k, v in row.items()
            }
            return MeasuredAttacks(**values)
    return None
