"""Compare models at a hospital that they were not fitted to, and find the networks whose evidence turns round there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..connectome import Connectomes
from ..jobs.job import Job
from ..models import (
    Ensemble,
    Member,
    Model,
    ScanPredictions,
    add_evidence,
    fit_model,
    predict_scans,
    read_model,
    write_model,
)
from ..models.evidence import Estimate
from ..models.external import score_labelled_scans
from ..models.fit import settle_final_settings
from ..models.output import write_predictions
from ..models.regions import compute_region_contributions
from ..protocol import auc, make_training_fold
from ..protocol.intervals import t_interval
from ..protocol.placements import delong_covariance, placement_values
from ..report import render_prediction_page
from ..training import Run

_Z = 1.959963984540054
LEAST_SHARE = 0.05
"""A network that adds less is no evidence."""


@dataclass(frozen=True, eq=False)
class AppliedModel:
    """A model, its predictions for the new hospital, and their AUC with an interval over participants."""

    model: Model
    predictions: ScanPredictions
    auc: Estimate


@dataclass(frozen=True)
class NetworkEvidence:
    """What a planted network of regions adds to the margins of two models."""

    name: str
    ridge: tuple[float, float]
    plus: tuple[float, float]

    @property
    def turns_round(self) -> bool:
        """Whether either model takes it for evidence at the source sites, and it misleads at the new hospital."""
        return any(here >= LEAST_SHARE and there < 0 for here, there in (self.ridge, self.plus))


def fit_or_read(job: Job, folder: Path, evidence: Path | None) -> Model:
    """Fit a model and write it, or read it where it was written before."""
    if folder.exists():
        return read_model(folder)
    model = fit_model(job)
    if evidence is not None:
        model = add_evidence(model, evidence, job.connectomes)
    write_model(model, folder)
    return model


def apply_model(model: Model, cohort: Cohort, out: Path, device: str) -> AppliedModel:
    """Predict the scans of a hospital and write the predictions, unless they are there."""
    predictions = predict_scans(model, cohort, device=device)
    if not out.exists():
        write_predictions(model, cohort, predictions, out, render_prediction_page(model, cohort, predictions))
    scores = score_labelled_scans(cohort, predictions)
    assert scores is not None
    return AppliedModel(model, predictions, scores.auc)


def score_briefly(job: Job, cohort: Cohort) -> float:
    """Fit a closed-form method to all sites, write nothing, and return its AUC at a hospital.

    Intervals, ranges and all else that a model needs are not computed.
    """
    name = job.spec.methods[0]
    method = settle_final_settings(name, job.spec.settings_of(name))
    (fitted,) = method.fit(job.connectomes, [Run(make_training_fold(job.cohort, 0, 0), 0)])
    ensemble = Ensemble(method, (Member(fitted),))
    margins = ensemble.collect_margins(Connectomes(cohort, job.device.torch_device))
    return float(auc(cohort.labels, margins.full[0]))


def compare_areas(cohort: Cohort, first: AppliedModel, second: AppliedModel) -> Estimate:
    """Compute the difference of two AUCs over the same scans, with DeLong's 95 % interval."""
    label = cohort.labels
    placements = [placement_values(label, one.predictions.logit) for one in (first, second)]
    areas, covariance = delong_covariance(label, np.stack(placements, axis=1))
    contrast = np.array([1.0, -1.0])
    difference, error = float(contrast @ areas), float(np.sqrt(contrast @ covariance @ contrast))
    return Estimate(difference, difference - _Z * error, difference + _Z * error)


def compare_over_sites(rows: pd.DataFrame, first: str, second: str) -> Estimate:
    """Compute the mean difference of two methods' AUC over test sites, with its 95 % interval over sites (t)."""
    by_site = rows.groupby(["method", "fold"])["auc"].mean()
    differences = (by_site[first] - by_site[second]).to_numpy(dtype=float)
    low, high = t_interval(differences)
    return Estimate(float(differences.mean()), float(low), float(high))


def list_networks(
    ridge: Model, plus: Model, source: Cohort, new: Cohort, truth: Mapping[str, Sequence[int]]
) -> list[NetworkEvidence]:
    """List what each planted network adds to the margins of ridge and BRIO plus, at source sites and a new one."""
    plain = [Connectomes(cohort, "cpu") for cohort in (source, new)]
    of_model = []
    for model in (ridge, plus):
        at_source, at_new = (_measure_class_difference(model, connectomes) for connectomes in plain)
        total = at_source.sum()
        of_model.append([(at_source[rois].sum() / total, at_new[rois].sum() / total) for rois in truth.values()])
    return [NetworkEvidence(name, *shares) for name, *shares in zip(truth, *of_model, strict=True)]


def _measure_class_difference(model: Model, plain: Connectomes) -> np.ndarray:
    """Mean contribution of each ROI to the margin in patients less that in controls. Shape [P]."""
    added = compute_region_contributions(model, plain)
    assert added is not None
    patient = plain.cohort.labels == 1
    return np.asarray(added[patient].mean(0) - added[~patient].mean(0))
