"""Tables of a job: one row a run, one row a prediction, and a summary over sites."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..methods import find_method, make_method
from ..protocol import auc, bootstrap_interval
from .plan import Plan
from .store import RunStore, write_atomically

__all__ = ["COLUMNS", "changed_settings", "over_folds", "prediction_rows", "result_rows", "summarise", "write_tables"]

COLUMNS = [
    "cohort",
    "method",
    "protocol",
    "fold",
    "test_sites",
    "validation_sites",
    "seed",
    "n_source",
    "n_validation",
    "n_test",
    "auc",
    "acc",
    "balanced_acc",
    "sensitivity",
    "specificity",
    "brier",
    "validation_auc",
    "selected_epoch",
    "block_length",
    "seconds",
    "device",
    "note",
]
METRICS = ["auc", "acc", "balanced_acc", "sensitivity", "specificity", "brier"]
FULL_SEEDS = 3


def result_rows(plan: Plan, store: RunStore) -> pd.DataFrame:
    """One row for each finished run, in the order of the plan."""
    rows = [store.record(key)["row"] for key in plan.jobs if key in store]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"selected_epoch": "Int64"})


def prediction_rows(plan: Plan, store: RunStore) -> pd.DataFrame:
    """One row for each test scan of each finished run."""
    parts = []
    for key, job in plan.jobs.items():
        if key in store:
            part = pd.DataFrame(store.record(key)["predictions"])
            part.insert(0, "seed", job.run.seed)
            part.insert(0, "fold", job.run.fold.name)
            part.insert(0, "method", job.method.name)
            parts.append(part)
    table = pd.concat(parts, ignore_index=True)
    table["probability"] = 0.5 * (1.0 + np.tanh(0.5 * table["logit"]))
    return table


def changed_settings(method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Of the settings of a job, as its plan tells them, those that are not the method's own.

    Examples
    --------
    >>> changed_settings("ridge", {"choose_by": "source-sites", "penalties": 5})
    {'choose_by': 'source-sites'}
    """
    own = json.loads(json.dumps(dataclasses.asdict(make_method(method).settings)))
    return {k: v for k, v in settings.items() if k in own and own[k] != v}


def _mean_sd(values: pd.Series) -> dict[str, Any]:
    kept = values.dropna()
    low, high = bootstrap_interval(kept.to_numpy())
    spread = float(kept.std(ddof=1)) if len(kept) > 1 else None
    return {
        "mean": float(kept.mean()) if len(kept) else None,
        "sd": spread,
        "interval": None if np.isnan(low) else [low, high],
        "n": len(kept),
    }


def over_folds(rows: pd.DataFrame, protocol: str) -> dict[str, dict[str, Any]]:
    """Mean, SD and interval of each metric over sites, seeds averaged first; over all (seed, fold) under k-fold."""
    # a site is the same scans under every seed, a numbered fold is not: then every run stands for itself
    by_fold = rows.groupby("fold" if protocol == "loso" else ["seed", "fold"])[METRICS].mean()
    return {metric: _mean_sd(by_fold[metric]) for metric in METRICS}


def summarise(plan: Plan, rows: pd.DataFrame, predictions: pd.DataFrame) -> dict[str, Any]:
    """Mean and SD over folds (sites) of the seeds' means, with a site-bootstrap interval of 95 %.

    Under k-fold every (seed, fold) counts, since another seed deals the scans to other folds.

    ``auc_of_averaged_logits`` averages each scan's logit over the seeds before the AUC is taken, at each site, or over
    all scans under k-fold: what a user would get from an ensemble of the seeds.
    """
    facts = plan.facts
    known_folds = {job.run.fold.name for job in plan.jobs.values()}
    smoke = facts["folds"] is not None or len(facts["seeds"]) < FULL_SEEDS
    by_site = facts["protocol"] == "loso"
    together = ["fold"] if by_site else []
    methods: dict[str, Any] = {}
    for name, told in facts["methods"].items():
        kind = find_method(name)
        mine = rows[rows["method"] == name]
        said = predictions[predictions["method"] == name]
        ensemble = said.groupby([*together, "participant_id"]).agg(label=("label", "first"), logit=("logit", "mean"))
        settings, tuned = told["settings"], told.get("tuned")
        methods[name] = {
            "family": kind.family,
            "provenance": str(kind.provenance),
            "needs": list(kind.needs),
            "transductive": kind.transductive or plan.harmonise.transductive,
            "control": kind.control,
            "tuning": None if tuned is None else {k: tuned[k] for k in ("budget", "cohort", "atlas")},
            "runs": len(mine),
            "folds": mine["fold"].nunique(),
            "seeds": len(facts["seeds"]),
            "epochs": settings.get("epochs"),
            "K": settings.get("K") if mine["block_length"].notna().any() else None,  # None: nothing was re-estimated
            "dead_rois": settings.get("dead_rois"),
            "changed": changed_settings(name, settings),
            **over_folds(mine, facts["protocol"]),
            "auc_of_averaged_logits": _mean_sd(
                ensemble.groupby(together or (lambda row: 0)).apply(
                    lambda f: auc(f["label"].to_numpy(), f["logit"].to_numpy())
                )
            ),
            "validation_auc": float(mine["validation_auc"].mean()),
            "without_auc": {
                f: str(n) for f, n in mine[mine["auc"].isna()].drop_duplicates("fold").set_index("fold")["note"].items()
            },
        }
    return {
        "cohort": facts["cohort"],
        "atlas": facts["atlas"],
        "fingerprint": facts["fingerprint"],
        "n_scans": facts["n_scans"],
        "n_excluded": len(facts["excluded"]),
        "protocol": facts["protocol"],
        "protocol_settings": facts["protocol_settings"],
        "folds": sorted(known_folds),
        "seeds": facts["seeds"],
        "smoke_run": smoke,
        "harmonise": str(plan.harmonise) or None,
        "warnings": _shortcuts(methods, "at unseen sites" if by_site else "in held-out folds"),
        "selection": "AUC on validation scans of each run, or on source sites left out in turn; never on test scans",
        "methods": methods,
    }


def _shortcuts(methods: dict[str, Any], where: str) -> list[str]:
    """What the controls found: anything clearly above chance is a way to be right without looking at the brain."""
    out = []
    for name, found in methods.items():
        interval = found["auc"]["interval"]
        if found["control"] and interval is not None and interval[0] > 0.5:
            out.append(
                f"{name} reaches AUC {100 * found['auc']['mean']:.1f} "
                f"({100 * interval[0]:.1f} to {100 * interval[1]:.1f}) {where} without a connectome: "
                "part of what any method scores may be that"
            )
    return out


def write_tables(plan: Plan, store: RunStore, out: Path) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Write results.csv, predictions.csv and summary.json from the finished runs."""
    rows, predictions = result_rows(plan, store), prediction_rows(plan, store)
    summary = summarise(plan, rows, predictions)
    write_atomically(out / "results.csv", rows.to_csv(index=False, lineterminator="\n"))
    write_atomically(out / "predictions.csv", predictions.to_csv(index=False, lineterminator="\n"))
    write_atomically(out / "summary.json", json.dumps(summary, indent=2) + "\n")
    return rows, predictions, summary
