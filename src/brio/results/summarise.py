"""From seeds to sites to means: the one policy for missing scores, intervals and tests of a job."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from ..connectome import HarmonisationRule
from ..errors import BrioError
from ..formatting import format_interval, format_percent
from ..methods import find_method, make_method
from ..protocol.metrics import (
    PeopleEstimate,
    SiteAreas,
    assess_over_people,
    auc,
    delong_covariance,
    equal_weights,
    find_score_distance,
    pair_weights,
    placement_values,
)
from ..protocol.statistics import (
    ALPHA,
    FoldOverlap,
    compare_by_corrected_t,
    compare_family,
    fold_correction,
    t_interval,
)
from ..schemas import Name, StoredCount, StoredNonNegative, StoredShare
from ..storage import write_recorded
from .cohort import read_label_is_sex
from .files import COVARIANCES, SITES, format_csv, is_kept, read_csv
from .records import INTERVALS, METRICS, MethodSummary, MetricSummary, Plan, Summary, TuningBudget

if TYPE_CHECKING:
    from ..training import MethodFacts


def unit_columns(protocol: str) -> list[str]:
    """Return the columns that identify one unit of comparison: a site, or a fold of one seed.

    A site holds the same scans under every seed, so seeds are averaged; a numbered fold does not, so every fold of
    every seed counts.
    """
    return ["fold"] if protocol == "loso" else ["seed", "fold"]


def name_units(units: pd.Index) -> list[str]:
    """Return the names of units for readers: test sites, or folds with their seeds."""
    return [f"fold {unit[1]} of seed {unit[0]}" if isinstance(unit, tuple) else str(unit) for unit in units]


def average_seeds(
    rows: pd.DataFrame, metric: str = "auc", *, units: Sequence[str] = ("fold",), column: str = "method"
) -> pd.DataFrame:
    """Average the scores of runs over seeds, under the policy of this module.

    Returns methods in the order of the rows; NaN where a unit has no score, or no run of one of the seeds of the
    method.
    """
    duplicates = rows[rows.duplicated([column, "fold", "seed"])]
    if len(duplicates):
        name, fold, seed = duplicates.iloc[0][[column, "fold", "seed"]]
        raise BrioError(
            f"{column} '{name}', fold {fold}, seed {seed} occurs more than once; methods of different jobs "
            "need different names"
        )
    means = {name: _average_runs(own, list(units), metric) for name, own in rows.groupby(column, sort=False)}
    return pd.DataFrame(means).sort_index().rename_axis(columns=column)


def _average_runs(rows: pd.DataFrame, units: list[str], metric: str) -> pd.Series:
    """Mean of each unit of one method that has a score under every seed; NaN for the others."""
    groups = rows.groupby(units)[metric]
    n_runs = 1 if "seed" in units else rows["seed"].nunique()
    return groups.mean().where(groups.count() == n_runs)


def mean_correction(rows: pd.DataFrame, protocol: str) -> FoldOverlap | None:
    """Return what is added to 1/n in the variance of a mean over n units, see :func:`brio.protocol.standard_error`."""
    if protocol == "loso":
        return None
    sizes = rows[["n_test", "n_source", "n_validation"]].mean()
    others = float(sizes["n_source"] + sizes["n_validation"])
    return fold_correction(float(sizes["n_test"]), others, rows["fold"].nunique())


def summarise_scores(
    scores: Sequence[float] | np.ndarray | pd.Series,
    correction: FoldOverlap | None = None,
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> MetricSummary:
    """Summarise the scores of sites; those without one (NaN) do not count.

    Shapes: scores [n_units].
    """
    present = pd.Series(scores, dtype=float).dropna()
    low, high = t_interval(present.to_numpy(), correction, limits=limits)
    return MetricSummary(
        mean=float(present.mean()) if len(present) else None,
        sd=float(present.std(ddof=1)) if len(present) > 1 else None,
        interval=None if np.isnan(low) else (low, high),
        n=len(present),
    )


def compare_scores(
    scores: pd.DataFrame, rows: pd.DataFrame, protocol: str, reference: str, *, lower_is_better: bool = False
) -> pd.DataFrame:
    """Compare the scores [units, methods] of runs with those of a reference, over sites or the folds of all seeds.

    Returns the columns of :func:`brio.protocol.compare_family`.
    """
    correction = None
    if protocol != "loso":
        n_test, n_source = rows[["n_test", "n_source"]].mean()
        correction = fold_correction(n_test, n_source, scores.index.get_level_values("fold").nunique())
    return compare_family(scores, reference, correction, lower_is_better=lower_is_better)


def summarise_metrics(rows: pd.DataFrame, protocol: str) -> dict[str, MetricSummary]:
    """Summarise every metric of the runs of one method over sites, or over the folds of all seeds under k-fold."""
    units, correction = unit_columns(protocol), mean_correction(rows, protocol)
    return {
        metric: summarise_scores(_average_runs(rows, units, metric), correction, limits=(0.0, 1.0))
        for metric in METRICS
    }


def summarise_ensemble(predictions: pd.DataFrame, protocol: str) -> MetricSummary:
    """Summarise the AUC of an ensemble: the margin of each scan is averaged over the seeds first.

    Under leave-one-site-out, there is one AUC per site. Under k-fold, there is one AUC over all scans, because a scan
    is in a different fold under each seed; ``sd`` and ``interval`` are then None. A margin that is missing under one
    seed (NaN, as of a run that diverged) leaves its site, or the cohort under k-fold, without a score.
    """
    by = ["fold"] if protocol == "loso" else []
    groups = predictions.groupby([*by, "participant_id"])
    scans = groups.agg(label=("label", "first"), margin=("margin", "mean"))
    scans["margin"] = scans["margin"].where(groups["margin"].count() == groups.size())
    return summarise_scores(scans.groupby(by or (lambda scan: 0)).apply(_auc_if_complete), limits=(0.0, 1.0))


def _auc_if_complete(scans: pd.DataFrame) -> float:
    if scans["margin"].isna().any():
        return float("nan")
    return auc(scans["label"].to_numpy(), scans["margin"].to_numpy())


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
    seeds, and ``ensemble_auc``, that of the averaged margins (under k-fold, both of one run); ``auc_variance``
    over participants; ``sum_p``, ``sum_p2``, ``sum_py``: sums over participants of the predicted probability, its
    square and its product with the label, averaged over seeds. Scores are NaN where a margin is missing under one seed.
    """
    by_seed = protocol == "kfold"
    rows = []
    for name, own in predictions.groupby("method", sort=False):
        seeds = own["seed"].nunique()
        for unit, part in own.groupby(["fold", "seed"] if by_seed else ["fold"]):
            label, margin = _stack_seeds(part, 1 if by_seed else seeds)
            fold, *seed = unit
            patients = int((label == 1).sum())
            row = {"method": name, "seed": seed[0] if seed else pd.NA, "fold": fold}
            row |= {"n_patients": patients, "n_controls": len(label) - patients}
            probability = part["probability"].astype(float)
            terms = (probability, probability**2, probability * part["label"])
            sums = (term.sum(skipna=False) for term in terms)
            n_seeds = part["seed"].nunique()
            row |= _score_site(label, margin)
            row |= dict(zip(CALIBRATION_SUMS, (total / n_seeds for total in sums), strict=True))
            rows.append(row)
    return pd.DataFrame(rows, columns=[*SITE_COLUMNS, *CALIBRATION_SUMS]).astype({"seed": "Int64"})


def _stack_seeds(part: pd.DataFrame, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels [n] of a site and the margins [n, seeds] of one method, in the order of its participants."""
    scans, first, row = np.unique(part["participant_id"].to_numpy(str), return_index=True, return_inverse=True)
    known, column = np.unique(part["seed"].to_numpy(), return_inverse=True)
    place = row * len(known) + column
    if len(np.unique(place)) < len(place):
        raise BrioError("predictions: a participant occurs more than once for the same method, fold and seed")
    # a run without a row for a participant counts as a run without a score
    margin = np.full((len(scans), max(seeds, len(known))), np.nan)
    margin[row, column] = part["margin"].to_numpy(float)
    return part["label"].to_numpy()[first], margin


def _average_placements(label: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """Return the placement values of one method averaged over seeds, shape [n]; NaN where a margin is missing."""
    if np.isnan(margin).any():
        return np.full(len(label), np.nan)
    return np.mean([placement_values(label, column) for column in margin.T], axis=0)


def _score_site(label: np.ndarray, margin: np.ndarray) -> dict[str, float]:
    placements = _average_placements(label, margin)
    if np.isnan(placements).any():
        return dict.fromkeys(("auc", "ensemble_auc", "auc_variance"), float("nan"))
    area, covariance = delong_covariance(label, placements[:, None])
    ensemble = auc(label, margin.mean(axis=1))
    return {"auc": float(area[0]), "ensemble_auc": ensemble, "auc_variance": float(covariance[0, 0])}


def add_intervals(sites: pd.DataFrame) -> pd.DataFrame:
    """Add the 95% interval of the AUC of each row over its participants: DeLong's, of 0 or 1 the score interval.

    The ends are NaN where the AUC or its variance is unknown, and where all margins are equal.
    """
    half = ndtri(1 - ALPHA / 2) * sites["auc_variance"].where(sites["auc_variance"] > 0) ** 0.5
    sites = sites.assign(low=(sites["auc"] - half).clip(lower=0), high=(sites["auc"] + half).clip(upper=1))
    for row in sites.index[(sites["auc_variance"] == 0) & sites["auc"].isin([0, 1])]:
        distance = find_score_distance(int(sites.at[row, "n_patients"]), int(sites.at[row, "n_controls"]))
        ends = (0.0, distance) if sites.at[row, "auc"] == 0 else (1 - distance, 1.0)
        sites.loc[row, ["low", "high"]] = ends
    return sites


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
            label, margin = _stack_seeds(own, int(seeds[name]))
            labels[name] = (tuple(sorted(own["participant_id"].unique())), label)
            placements[name] = _average_placements(label, margin)
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
    names, keys = list(methods), ["fold", "method", "other"]
    table = sites[sites["method"].isin(names)].pivot(index="fold", columns="method", values="auc")
    table = table.reindex(columns=names).dropna()
    pairs = covariances[covariances["method"].isin(names) & covariances["other"].isin(names)]
    mirrored = pairs.rename(columns={"method": "other", "other": "method"})
    stored = pd.concat([pairs, mirrored]).drop_duplicates(keys).set_index(keys)["covariance"]
    cells = pd.MultiIndex.from_product([table.index, names, names], names=keys)
    if table.empty or not cells.isin(stored.index).all():  # a stored NaN is that of a site with one patient or control
        return None
    counts = sites.drop_duplicates("fold").set_index("fold").loc[table.index, ["n_patients", "n_controls"]]
    matrices = stored.reindex(cells).to_numpy(dtype=float).reshape(len(table), len(names), len(names))
    return SiteAreas(counts["n_patients"].to_numpy(), counts["n_controls"].to_numpy(), table.to_numpy(), matrices)


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
    return read_csv(path, SiteRow).astype({"seed": "Int64"}) if is_kept(path) else None


def read_covariances(folder: Path) -> pd.DataFrame | None:
    """Read ``covariances.csv`` of a folder; None where it has none."""
    path = folder / COVARIANCES
    return read_csv(path, CovarianceRow) if is_kept(path) else None


def format_site_tables(sites: pd.DataFrame, covariances: pd.DataFrame) -> dict[str, str]:
    """Return the texts of ``sites.csv`` and, unless there are no covariances, ``covariances.csv``, by file name."""
    files = {SITES: format_csv(sites)}
    return files | ({COVARIANCES: format_csv(covariances)} if len(covariances) else {})


def write_site_tables(folder: Path, sites: pd.DataFrame, covariances: pd.DataFrame) -> None:
    """Write ``sites.csv`` and, unless there are no covariances, ``covariances.csv``, with their hashes."""
    write_recorded(folder, format_site_tables(sites, covariances))


MEAN_OVER_SITES, PAIR_WEIGHTED = "mean over sites", "pair-weighted"
"""Names of the two estimands."""

ESTIMANDS: dict[str, Callable[[SiteAreas], np.ndarray]] = {
    MEAN_OVER_SITES: equal_weights,
    PAIR_WEIGHTED: pair_weights,
}
"""Name of an estimand -> the weights of the sites."""

CHANCE = 0.5


def assess_auc(
    sites: pd.DataFrame, covariances: pd.DataFrame, method: str, correction: float | None = None
) -> dict[str, PeopleEstimate]:
    """Estimate both means of the AUC of a method over test sites, with intervals over participants."""
    areas = collect_areas(sites, covariances, [method])
    if areas is None:
        return {}
    one = np.array([1.0])
    means = {
        name: assess_over_people(areas, one, weigh(areas), correction=correction) for name, weigh in ESTIMANDS.items()
    }
    return {
        name: replace(mean, low=float(np.maximum(mean.low, 0)), high=float(np.minimum(mean.high, 1)))
        for name, mean in means.items()
    }


def compare_over_people(sites: pd.DataFrame, covariances: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Estimate how the AUC of all methods differs from that of a reference, over participants at fixed sites.

    There is no p value: a pair of methods has one, over sites.

    Returns one row per method and estimand, for methods whose covariance with the reference is stored: ``method``,
    ``other``, ``estimand``, ``n_sites``, ``mean_difference``, ``low``, ``high``.
    """
    rows = []
    for method in dict.fromkeys(sites["method"]):
        areas = None if method == reference else collect_areas(sites, covariances, [method, reference])
        if areas is None:
            continue
        for estimand, weigh in ESTIMANDS.items():
            mean = assess_over_people(areas, np.array([1.0, -1.0]), weigh(areas))
            rows.append((method, reference, estimand, len(areas.auc), mean.mean, mean.low, mean.high))
    columns = ["method", "other", "estimand", "n_sites", "mean_difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def compute_chance_p(scores: pd.Series, rows: pd.DataFrame, protocol: str) -> float | None:
    """Test the AUC of a method against chance over left-out sites or folds, by the corrected t test.

    Shapes: scores [units].

    Returns two-sided p value; None where there are too few scores, or they do not vary.
    """
    chance = np.full(len(scores), CHANCE)
    p = compare_by_corrected_t(scores.to_numpy(), chance, mean_correction(rows, protocol)).p
    return None if np.isnan(p) else p


def summarise_people(predictions: pd.DataFrame, protocol: str, method: str) -> dict[str, Any]:
    """Summarise what predictions say about the AUC over participants at fixed sites."""
    if protocol == "kfold":
        return {}
    sites = site_rows(predictions, protocol)
    tests = assess_auc(sites, covariance_rows(predictions, protocol), method)
    if not tests:
        return {}
    mean, pairs = (
        (test.mean, None if np.isnan(test.error) else (test.low, test.high))
        for test in (tests[MEAN_OVER_SITES], tests[PAIR_WEIGHTED])
    )
    return {
        "pair_weighted_auc": MetricSummary(mean=pairs[0], interval=pairs[1], n=int(sites["auc"].count())),
        "auc_interval_over_people": mean[1],
    }


FULL_SEEDS = 3
"""With fewer seeds a job is a smoke run, unless seeds decide nothing."""

SELECTION = "AUC on validation scans of each run, or on inner folds of the source scans; never on test scans"


def changed_settings(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a method that differ from its defaults."""
    defaults = json.loads(json.dumps(dataclasses.asdict(make_method(method).settings)))
    return {k: v for k, v in settings.items() if k in defaults and defaults[k] != v}


def summarise(
    plan: Plan,
    rows: pd.DataFrame,
    predictions: pd.DataFrame,
    facts: Mapping[str, MethodFacts],
    cohort_facts: dict[str, Any] | None = None,
) -> Summary:
    """Summarise a job: mean and SD over sites of the means over seeds, with a 95% interval, see :data:`INTERVALS`.

    Under k-fold every fold of every seed counts, since another seed deals the scans to other folds.
    """
    harmonise = HarmonisationRule(**plan.harmonise) if plan.harmonise else HarmonisationRule()
    methods = {
        name: _summarise_method(plan, name, rows, predictions, facts[name], harmonise.transductive)
        for name in plan.methods
    }
    if (covariates := (cohort_facts or {}).get("covariates")) is not None:
        for name in (name for name in methods if not find_method(name).needs_all):
            known = tuple(need for need in methods[name].needs if need in covariates)
            methods[name] = replace(methods[name], needs=known)
    return Summary(
        cohort=plan.cohort,
        atlas=plan.atlas,
        fingerprint=plan.fingerprint,
        n_scans=plan.n_scans,
        n_excluded=len(plan.excluded),
        protocol=plan.protocol,
        protocol_settings=plan.protocol_settings,
        fold_rule=plan.fold_rule,
        folds=tuple(sorted(set(rows["fold"]))),
        seeds=plan.seeds,
        smoke_run=is_smoke_run(plan, facts),
        harmonise=str(harmonise) or None,
        intervals=INTERVALS[plan.protocol],
        warnings=tuple(_warn_of_shortcuts(methods, plan.protocol, read_label_is_sex(cohort_facts))),
        selection=SELECTION,
        methods=methods,
    )


def is_smoke_run(plan: Plan, facts: Mapping[str, MethodFacts]) -> bool:
    """Return whether a job supports no claim: it has few seeds (unless seeds decide nothing) or not every fold."""
    # a linear model without validation sites is the same under all seeds
    without_validation = plan.protocol == "loso" and plan.protocol_settings["validation_sites"] == 0
    seeds_matter = not without_validation or any(facts[name].uses_seed for name in plan.methods)
    return plan.folds is not None or (seeds_matter and len(plan.seeds) < FULL_SEEDS)


def _summarise_method(
    plan: Plan, name: str, rows: pd.DataFrame, predictions: pd.DataFrame, facts: MethodFacts, transductive: bool
) -> MethodSummary:
    entry, planned, tuned = find_method(name), plan.methods[name], plan.methods[name].tuned
    own, own_predictions = rows[rows["method"] == name], predictions[predictions["method"] == name]
    units = unit_columns(plan.protocol)
    without_auc = own[own["auc"].isna()].groupby(units)["note"].first()
    scores: dict[str, Any] = summarise_metrics(own, plan.protocol) | summarise_people(
        own_predictions, plan.protocol, name
    )
    return MethodSummary(
        family=entry.family,
        provenance=str(entry.provenance),
        block=entry.block,
        needs=tuple(entry.needs),
        transductive=entry.transductive or transductive,
        control=entry.control,
        tuning=None if tuned is None else TuningBudget(tuned.budget, tuned.cohort, tuned.atlas),
        runs=len(own),
        folds=own["fold"].nunique(),
        seeds=len(plan.seeds),
        epochs=facts.epochs,
        trained_epochs=_average(own, "trained_epochs"),
        steps=_average(own, "steps"),
        K=facts.reestimates if own["block_length"].notna().any() else None,
        dead_rois=facts.dead_rois,
        changed=changed_settings(name, planned.settings),
        **scores,
        auc_of_averaged_logits=summarise_ensemble(own_predictions, plan.protocol),
        p_chance=compute_chance_p(average_seeds(own, units=units)[name], own, plan.protocol),
        validation_auc=_average(own, "validation_auc"),
        without_auc=dict(zip(name_units(without_auc.index), map(str, without_auc), strict=True)),
    )


def _average(rows: pd.DataFrame, column: str) -> float | None:
    """Mean over runs; None where no run has a number."""
    mean = rows[column].mean()
    return None if pd.isna(mean) else float(mean)


def _warn_of_shortcuts(methods: Mapping[str, MethodSummary], protocol: str, label_is_sex: bool) -> Iterator[str]:
    """Warn of confound baselines above chance, which use no brain data, unless they are given the label."""
    where = "at unseen sites" if protocol == "loso" else "in test folds"
    given_label = [name for name, m in methods.items() if label_is_sex and "sex" in m.needs]
    for name in given_label:
        yield (
            f"{name} uses sex as an input, but sex is the label here, so its score says nothing about the brain or "
            "about shortcuts; leave this method out"
        )
    for name, m in methods.items():
        if m.control and m.is_above_chance and name not in given_label:
            spread = format_interval(m.auc.interval) if m.auc.interval else "the same everywhere"
            yield (
                f"{name} reaches an AUC of {format_percent(m.auc.mean)}% ({spread}) {where} without connectomes, so "
                "part of the scores of other methods may come from the same confounds"
            )
