"""The summary of a job from its plan and its tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..connectome import HarmonisationRule
from ..methods import find_method, make_method
from .aggregate import average_seeds, name_units, summarise_ensemble, summarise_metrics, unit_columns
from .format import format_interval, format_percent
from .people import compute_chance_p, summarise_people
from .plan import Plan
from .summary import INTERVALS, MethodSummary, MetricSummary, Summary, TuningBudget

if TYPE_CHECKING:
    from ..training import MethodFacts

FULL_SEEDS = 3
"""With fewer seeds a job is a smoke run, unless seeds decide nothing."""

SELECTION = "AUC on validation scans of each run, or on inner folds of the source sites; never on test scans"


def changed_settings(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings of a method that differ from its defaults."""
    defaults = json.loads(json.dumps(dataclasses.asdict(make_method(method).settings)))
    return {k: v for k, v in settings.items() if k in defaults and defaults[k] != v}


def summarise(
    plan: Plan,
    rows: pd.DataFrame,
    predictions: pd.DataFrame,
    facts: Mapping[str, MethodFacts],
    label_is_sex: bool = False,
) -> Summary:
    """Summarise a job: mean and SD over sites of the means over seeds, with a 95 % interval, see :data:`INTERVALS`.

    Under k-fold every fold of every seed counts, since another seed deals the scans to other folds.
    """
    harmonise = HarmonisationRule(**plan.harmonise) if plan.harmonise else HarmonisationRule()
    methods = {
        name: _summarise_method(plan, name, rows, predictions, facts[name], harmonise.transductive)
        for name in plan.methods
    }
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
        smoke_run=plan.folds is not None or (_do_seeds_matter(plan, facts) and len(plan.seeds) < FULL_SEEDS),
        harmonise=str(harmonise) or None,
        intervals=INTERVALS[plan.protocol],
        warnings=tuple(_warn_of_shortcuts(methods, plan.protocol, label_is_sex)),
        selection=SELECTION,
        methods=methods,
    )


def _do_seeds_matter(plan: Plan, facts: Mapping[str, MethodFacts]) -> bool:
    """Whether runs of another seed may differ; a linear model without validation sites is the same under all."""
    without_validation = plan.protocol == "loso" and plan.protocol_settings["validation_sites"] == 0
    return not without_validation or any(facts[name].uses_seed for name in plan.methods)


def _summarise_method(
    plan: Plan, name: str, rows: pd.DataFrame, predictions: pd.DataFrame, facts: MethodFacts, transductive: bool
) -> MethodSummary:
    entry, planned = find_method(name), plan.methods[name]
    own = rows[rows["method"] == name]
    units = unit_columns(plan.protocol)
    without_auc = own[own["auc"].isna()].groupby(units)["note"].first()
    tuned = planned.tuned
    own_predictions = predictions[predictions["method"] == name]
    scores = average_seeds(own, units=units)[name]
    scores_by_field: dict[str, Any] = {
        **summarise_metrics(own, plan.protocol),
        **summarise_people(own_predictions, plan.protocol, name),
    }
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
        **scores_by_field,
        auc_of_averaged_logits=summarise_ensemble(own_predictions, plan.protocol),
        p_chance=compute_chance_p(scores, own, plan.protocol),
        validation_auc=_average(own, "validation_auc"),
        without_auc=dict(zip(name_units(without_auc.index), map(str, without_auc), strict=True)),
    )


def _average(rows: pd.DataFrame, column: str) -> float | None:
    """Mean over runs; None where no run has a number, or the column was not kept."""
    mean = rows[column].mean() if column in rows else None
    return None if mean is None or pd.isna(mean) else float(mean)


def _describe_spread(auc: MetricSummary) -> str:
    """The interval of a mean AUC; where scores do not vary there is none."""
    return format_interval(auc.interval) if auc.interval else "the same everywhere"


def _warn_of_shortcuts(methods: Mapping[str, MethodSummary], protocol: str, label_is_sex: bool) -> list[str]:
    """Warn of controls above chance: they are right without looking at the brain, unless they are given the label."""
    where = "at unseen sites" if protocol == "loso" else "in test folds"
    given_label = [name for name, m in methods.items() if label_is_sex and "sex" in m.needs]
    warnings = [
        f"{name} is given sex, which is the label here: its score says nothing about the brain or about shortcuts; "
        "leave it out"
        for name in given_label
    ]
    return warnings + [
        f"{name} reaches AUC {format_percent(m.auc.mean)} ({_describe_spread(m.auc)}) {where} without a "
        "connectome: part of what any method scores may be that"
        for name, m in methods.items()
        if m.control and m.is_above_chance and name not in given_label
    ]
