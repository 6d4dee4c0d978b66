"""``sites.csv`` and ``covariances.csv``: what statistics over participants need, without a row of a participant.

``sites.csv`` has one row per method and test site, or per method and fold of each seed under k-fold. Its sums of
predicted probabilities add up over sites: the Brier score is ``(sum_p2 - 2 sum_py + n_patients) / n``, and slope,
intercept and Brier score of a linear recalibration follow from them too (:func:`describe_calibration`).

``covariances.csv`` has the covariance over participants of the AUC of two methods at a test site. Under k-fold there is
none: the models of different folds share training scans, so that participants do not add up independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pandas as pd

from ..errors import BrioError
from ..protocol import SiteAreas, auc, delong_covariance, placement_values
from ..schemas import Name, StoredCount, StoredNonNegative, StoredShare
from ..storage import write_recorded
from .files import COVARIANCES, SITES, format_csv, is_kept, read_csv

SITE_COLUMNS = ["method", "seed", "fold", "n_patients", "n_controls", "auc", "ensemble_auc", "auc_variance"]
CALIBRATION_SUMS = ["sum_p", "sum_p2", "sum_py"]
COVARIANCE_COLUMNS = ["method", "other", "fold", "covariance"]


@dataclass(frozen=True)
class SiteRow:
    """A row of ``sites.csv``, see :func:`site_rows`."""

    method: Name
    seed: StoredCount | None
    fold: Name
    n_patients: StoredCount
    n_controls: StoredCount
    auc: StoredShare | None
    ensemble_auc: StoredShare | None
    auc_variance: StoredNonNegative | None
    sum_p: StoredNonNegative | None = None
    sum_p2: StoredNonNegative | None = None
    sum_py: StoredNonNegative | None = None


@dataclass(frozen=True)
class CovarianceRow:
    """A row of ``covariances.csv``, see :func:`covariance_rows`."""

    method: Name
    other: Name
    fold: Name
    covariance: float | None


def site_rows(predictions: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Make the rows of ``sites.csv`` from predictions.

    Returns ``method``; ``seed``, under k-fold alone; ``fold``; ``n_patients``, ``n_controls``; ``auc``, averaged over
    seeds, and ``ensemble_auc``, that of the averaged logits (under k-fold, both are those of one run); ``auc_variance``
    over participants; ``sum_p``, ``sum_p2``, ``sum_py``: sums over scans of the predicted probability, its square and
    its product with the label, averaged over seeds. Scores are NaN where a logit is missing under one seed.
    """
    by_seed = protocol == "kfold"
    rows = []
    for name, own in predictions.groupby("method", sort=False):
        seeds = own["seed"].nunique()
        for unit, part in own.groupby(["fold", "seed"] if by_seed else ["fold"]):
            label, logit = _stack_seeds(part, 1 if by_seed else seeds)
            fold, *seed = unit
            patients = int((label == 1).sum())
            row = {"method": name, "seed": seed[0] if seed else pd.NA, "fold": fold}
            row |= {"n_patients": patients, "n_controls": len(label) - patients}
            probability = part["probability"].astype(float)
            terms = (probability, probability**2, probability * part["label"])
            sums = (term.sum(skipna=False) for term in terms)
            n_seeds = part["seed"].nunique()
            row |= _score_site(label, logit)
            row |= dict(zip(CALIBRATION_SUMS, (total / n_seeds for total in sums), strict=True))
            rows.append(row)
    return pd.DataFrame(rows, columns=[*SITE_COLUMNS, *CALIBRATION_SUMS]).astype({"seed": "Int64"})


def _stack_seeds(part: pd.DataFrame, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels [n] of a site and the logits [n, seeds] of one method, in the order of its participants."""
    scans, first, row = np.unique(part["participant_id"].to_numpy(str), return_index=True, return_inverse=True)
    known, column = np.unique(part["seed"].to_numpy(), return_inverse=True)
    place = row * len(known) + column
    if len(np.unique(place)) < len(place):
        raise BrioError("predictions: a participant occurs more than once under one method, fold and seed")
    # a run without a row for a participant counts as a run without a score
    logit = np.full((len(scans), max(seeds, len(known))), np.nan)
    logit[row, column] = part["logit"].to_numpy(float)
    return part["label"].to_numpy()[first], logit


def _average_placements(label: np.ndarray, logit: np.ndarray) -> np.ndarray:
    """Return the placement values of one method averaged over seeds, shape [n]; NaN where a logit is missing."""
    if np.isnan(logit).any():
        return np.full(len(label), np.nan)
    return np.mean([placement_values(label, column) for column in logit.T], axis=0)


def _score_site(label: np.ndarray, logit: np.ndarray) -> dict[str, float]:
    placements = _average_placements(label, logit)
    if np.isnan(placements).any():
        return dict.fromkeys(("auc", "ensemble_auc", "auc_variance"), float("nan"))
    area, covariance = delong_covariance(label, placements[:, None])
    ensemble = auc(label, logit.mean(axis=1))
    return {"auc": float(area[0]), "ensemble_auc": ensemble, "auc_variance": float(covariance[0, 0])}


def covariance_rows(predictions: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Make the rows of ``covariances.csv`` from predictions of several methods for the same scans.

    Returns ``method``, ``other``, ``fold``, ``covariance``: one row per unordered pair of methods and test site, a
    method with itself included; empty under k-fold.
    """
    rows: list[dict[str, object]] = []
    if protocol == "kfold":
        return pd.DataFrame(rows, columns=COVARIANCE_COLUMNS)
    seeds = predictions.groupby("method")["seed"].nunique()
    for fold, part in predictions.groupby("fold"):
        labels, placements = {}, {}
        for name, own in part.groupby("method", sort=False):
            label, logit = _stack_seeds(own, int(seeds[name]))
            labels[name] = (tuple(sorted(own["participant_id"].unique())), label)
            placements[name] = _average_placements(label, logit)
        scans, label = next(iter(labels.values()))
        for name, (others, _) in labels.items():
            if others != scans:
                raise BrioError(
                    f"{fold}: {name} and {next(iter(labels))} were tested on different scans; run them with the same "
                    "exclusions"
                )
        _, covariance = delong_covariance(label, np.transpose(list(placements.values())))
        for (i, first), (j, second) in combinations_with_replacement(enumerate(placements), 2):
            rows.append({"method": first, "other": second, "fold": fold, "covariance": covariance[i, j]})
    return pd.DataFrame(rows, columns=COVARIANCE_COLUMNS)


def collect_areas(sites: pd.DataFrame, covariances: pd.DataFrame, methods: Sequence[str]) -> SiteAreas | None:
    """Collect what statistics over participants need, at the test sites where all of some methods have an AUC.

    Returns None where there is no such site, or the covariance of two of the methods is not stored.
    """
    table = sites[sites["method"].isin(methods)].pivot(index="fold", columns="method", values="auc")
    if set(table.columns) != set(methods):
        return None
    table = table[list(methods)].dropna()
    counts = sites.drop_duplicates("fold").set_index("fold").loc[table.index, ["n_patients", "n_controls"]]
    of_these = covariances[covariances["method"].isin(methods) & covariances["other"].isin(methods)]
    stored = {(row.method, row.other, row.fold): row.covariance for row in of_these.itertuples()}
    covariance = np.empty((len(table), len(methods), len(methods)))
    for s, fold in enumerate(table.index):
        for i, first in enumerate(methods):
            for j, second in enumerate(methods):
                value = stored.get((first, second, fold), stored.get((second, first, fold)))
                if value is None:
                    return None
                covariance[s, i, j] = value
    if table.empty:
        return None
    return SiteAreas(counts["n_patients"].to_numpy(), counts["n_controls"].to_numpy(), table.to_numpy(), covariance)


def describe_calibration(sites: pd.DataFrame) -> pd.DataFrame:
    """Describe how well the probabilities of each method are calibrated over all its sites, from their sums.

    Returns ``brier``; ``slope`` and ``intercept`` of the least-squares line of the label on the probability, 1 and 0 if
    calibrated; ``recalibrated_brier``, the Brier score on that line.
    """
    sums = sites.groupby("method", sort=False)[["n_patients", "n_controls", *CALIBRATION_SUMS]].sum(min_count=1)
    n = sums["n_patients"] + sums["n_controls"]
    share, mean = sums["n_patients"] / n, sums["sum_p"] / n
    covariance, variance = sums["sum_py"] / n - share * mean, sums["sum_p2"] / n - mean**2
    slope = covariance / variance
    return pd.DataFrame(
        {
            "brier": ((sums["sum_p2"] - 2 * sums["sum_py"] + sums["n_patients"]) / n).clip(lower=0),
            "slope": slope,
            "intercept": share - slope * mean,
            "recalibrated_brier": (share * (1 - share) - slope * covariance).clip(lower=0),
        }
    )


def read_sites(folder: Path) -> pd.DataFrame | None:
    """Read ``sites.csv`` of a folder; None where it has none."""
    path = folder / SITES
    return read_csv(path, SiteRow, SITE_COLUMNS).astype({"seed": "Int64"}) if is_kept(path) else None


def read_covariances(folder: Path) -> pd.DataFrame | None:
    """Read ``covariances.csv`` of a folder; None where it has none."""
    path = folder / COVARIANCES
    return read_csv(path, CovarianceRow, COVARIANCE_COLUMNS) if is_kept(path) else None


def format_site_tables(sites: pd.DataFrame, covariances: pd.DataFrame) -> dict[str, str]:
    """Return the texts of ``sites.csv`` and, unless there are no covariances, ``covariances.csv``, by file name."""
    files = {SITES: format_csv(sites)}
    return files | ({COVARIANCES: format_csv(covariances)} if len(covariances) else {})


def write_site_tables(folder: Path, sites: pd.DataFrame, covariances: pd.DataFrame) -> None:
    """Write ``sites.csv`` and, unless there are no covariances, ``covariances.csv``, with their hashes."""
    write_recorded(folder, format_site_tables(sites, covariances))
