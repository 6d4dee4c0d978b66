"""Charts and tables of the page, laid out here so that the template only draws them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...errors import BrioError
from ...formatting import format_count, state_p
from ...methods.provenance import READING, REDESIGN
from ...protocol.calibration import reliability_curve, roc_band
from ...results import METRICS, MetricSummary, mean_correction, name_units, unit_columns
from ...results.format import format_interval, format_percent, format_training
from ..evidence import EvidenceArm
from ..ranking import Comparison
from .axes import Frame, Scale, make_auc_scale

N_COLOURS = 7
N_MARKERS = 8
N_SHOWN = 5
"""Methods that the charts show until the reader selects others."""


@dataclass(frozen=True)
class ArmStyle:
    """How the charts show an arm: colour and marker (the marker alone identifies it in print)."""

    key: int  # position in the order of the charts
    name: str
    shown: bool  # whether the charts show the arm at first

    @property
    def colour(self) -> str:
        """CSS class of the colour."""
        return f"c{self.key % N_COLOURS}"

    @property
    def marker(self) -> str:
        """Id of the marker symbol."""
        return f"mk{self.key % N_MARKERS}"


def assign_styles(arms: Sequence[EvidenceArm], comparison: Comparison) -> dict[str, ArmStyle]:
    """Assign a style to every arm: best method, reference and BRIO first, then by rank, then all others."""
    names = [arm.name for arm in arms]
    ranked = [arm.name for arm in comparison.ranked]
    reference = [comparison.reference.name] if comparison.reference else []
    brio = ["brio"] if "brio" in names else []
    controls = [arm.name for arm in arms if arm.control]
    order = dict.fromkeys([*ranked[:1], *reference, *brio, *ranked, *controls, *names])
    return {name: ArmStyle(k, name, k < N_SHOWN) for k, name in enumerate(order)}


def build_result_table(
    arms: Sequence[EvidenceArm], comparison: Comparison, given_label: Collection[str] = ()
) -> dict[str, Any]:
    """Build the table of results: one row per arm, best first, with metrics and the difference from the reference."""
    lows = [arm.summary.auc.interval[0] for arm in arms if arm.summary.auc.interval]
    scale = make_auc_scale([*lows, *(arm.summary.auc.mean for arm in arms)])
    all_smoke = all(arm.job.summary.smoke_run for arm in arms)
    rows = [
        {
            "name": arm.name,
            "remarks": [
                *_list_remarks(arm, comparison, all_smoke),
                *(["is given the label as a covariate"] if arm.name in given_label else []),
            ],
            "auc": arm.summary.auc,
            **_place(scale, arm.summary.auc),
            "pair_weighted": arm.summary.pair_weighted_auc or MetricSummary(),
            "people": _describe_people(arm, tested=not arm.job.summary.smoke_run),
            "averaged": arm.summary.auc_of_averaged_logits.mean,
            **{metric: arm.summary.metric(metric).mean for metric in METRICS if metric != "auc"},
            "difference": comparison.differences.get(arm.name) if arm.plain else None,
            "is_reference": arm is comparison.reference,
        }
        for arm in sorted(arms, key=lambda arm: -(arm.summary.auc.mean or 0.0))
    ]
    has_pairs = any(row["pair_weighted"].mean is not None for row in rows)
    return {"rows": rows, "scale": scale, "chance": scale.place(50.0), "has_pairs": has_pairs}


def _describe_people(arm: EvidenceArm, tested: bool) -> str:
    """Describe the other intervals and the test against chance, for a tip; smoke runs are not tested."""
    summary, parts = arm.summary, []
    if arm.protocol == "loso" and summary.auc.new_site_interval:
        parts.append(f"at one new site {format_interval(summary.auc.new_site_interval)}")
    if summary.auc_interval_over_people:
        parts.append(f"for new participants at these sites {format_interval(summary.auc_interval_over_people)}")
    if tested and summary.p_chance is not None:
        parts.append(f"against chance {state_p(summary.p_chance)}")
    return "; ".join(parts)


def _place(scale: Scale, auc: MetricSummary) -> dict[str, Any]:
    """Place a mean AUC and its interval on a scale."""
    return {
        "dot": None if auc.mean is None else scale.place(100 * auc.mean),
        "bar": None if auc.interval is None else [scale.place(100 * end) for end in auc.interval],
    }


def _list_remarks(arm: EvidenceArm, comparison: Comparison, all_smoke: bool) -> list[str]:
    summary, tuning = arm.summary, arm.summary.tuning
    remarks = ["reference"] if arm is comparison.reference else []
    remarks += ["control"] if arm.control else []
    remarks += [summary.block] if summary.block in (READING, REDESIGN) else []
    remarks += ["smoke run"] if arm.job.summary.smoke_run and not all_smoke else []
    remarks += ["uses unlabelled test scans"] if arm.summary.transductive else []
    remarks += [f"best of {tuning.budget} settings"] if tuning and arm.summary.is_tuned else []
    remarks += [] if arm.plain or arm.control else [f"{arm.method} with other settings"]
    training = format_training(summary.epochs, summary.trained_epochs, summary.steps)
    return remarks + ([f"epochs (steps): {training}"] if summary.epochs else [])


def build_forest(
    arms: Sequence[EvidenceArm], styles: dict[str, ArmStyle], facts: dict[str, Any] | None
) -> dict[str, Any]:
    """Build the chart of sites: AUC at each test site (mean and range over seeds), and the mean over sites.

    Under k-fold, folds of different seeds are different folds: each has its own row.
    """
    rows = pd.concat([arm.rows for arm in arms], ignore_index=True)
    competing = {arm.name for arm in arms if not arm.control} or {arm.name for arm in arms}
    by = unit_columns(arms[0].protocol)
    scale = make_auc_scale(rows[rows["method"].isin(competing)].groupby([*by, "method"])["auc"].mean())
    ordered = sorted((styles[arm.name] for arm in arms), key=lambda style: style.key)
    seed_scores = {key: part["auc"].to_numpy(dtype=float) for key, part in rows.groupby([*by, "method"])}
    sizes = rows.groupby(by)["n_test"].first()
    class_counts = {site["site"]: site["n"] for site in (facts or {}).get("sites", []) if arms[0].unit == "site"}
    sites: list[dict[str, Any]] = [
        {
            "name": name,
            "n": int(sizes[unit]),
            "class_counts": class_counts.get(name),
            "lanes": [_build_lane(scale, s, seed_scores.get((*place, s.name), np.empty(0))) for s in ordered],
        }
        for name, unit in zip(name_units(sizes.index), sizes.index, strict=True)
        for place in [unit if isinstance(unit, tuple) else (unit,)]
    ]
    auc_of = {arm.name: arm.summary.auc for arm in arms}
    means = [_build_mean_lane(scale, style, auc_of[style.name]) for style in ordered]
    off_scale = any(lane["dot"] is not None and lane["dot"] < 0 for site in sites for lane in site["lanes"])
    return {"sites": sites, "means": means, "scale": scale, "chance": scale.place(50.0), "off_scale": off_scale}


def _build_mean_lane(scale: Scale, style: ArmStyle, auc: MetricSummary) -> dict[str, Any]:
    interval = f" (95 % interval {format_interval(auc.interval)})" if auc.interval else ""
    tip = f"{style.name}: {format_percent(auc.mean)}{interval}"
    return {"style": style, "value": auc.mean, **_place(scale, auc), "tip": tip}


def _build_lane(scale: Scale, style: ArmStyle, seed_scores: np.ndarray) -> dict[str, Any]:
    scored = seed_scores[~np.isnan(seed_scores)]
    if not len(scored) or len(scored) < len(seed_scores):
        return {"style": style, "value": None, "dot": None, "bar": None, "tip": f"{style.name}: no AUC"}
    ends = [float(scored.min()), float(scored.max())]
    spread = f", {format_interval(ends)} over {format_count(len(scored), 'seed')}" if len(scored) > 1 else ""
    mean = float(scored.mean())
    return {
        "style": style,
        "value": mean,
        "dot": scale.place(100 * mean),  # negative for a control left of the scale, which is made for the methods
        "bar": [max(0.0, scale.place(100 * end)) for end in ends],
        "tip": f"{style.name}: {format_percent(mean)}{spread}",
    }


def build_roc(arm: EvidenceArm) -> dict[str, Any] | None:
    """Build the mean ROC curve over sites with its band; None where no site has both classes."""
    correction = mean_correction(arm.rows, arm.protocol)
    try:
        roc = roc_band(arm.predictions, by=unit_columns(arm.protocol), points=51, correction=correction)
    except BrioError:
        return None
    frame = Frame(0, 1, 0, 1)
    rate = roc.false_positive_rate
    return {
        "frame": frame,
        "line": frame.trace(np.concatenate([[0.0], rate]), np.concatenate([[0.0], roc.true_positive_rate])),
        "band": frame.outline(rate, roc.low, roc.high),
        "auc": roc.auc,
        "interval": [roc.auc_low, roc.auc_high],
    }


def build_calibration(arm: EvidenceArm) -> dict[str, Any] | None:
    """Build the calibration chart: observed against predicted share of patients, in ten bins of equal size.

    Returns intervals are over sites; None where predictions were not stored.
    """
    predictions = arm.predictions
    if predictions.empty:
        return None
    label, probability = predictions["label"].to_numpy(), predictions["probability"].to_numpy(dtype=float)
    curve = reliability_curve(label, probability, strategy="quantile", site=predictions["site"].to_numpy())
    frame = Frame(0, 1, 0, 1)
    points = [
        {
            "x": frame.x(row["probability"]),
            "y": frame.y(row["observed"]),
            "low": None if np.isnan(row["low"]) else frame.y(row["low"]),
            "high": None if np.isnan(row["high"]) else frame.y(row["high"]),
            "tip": f"predicted {format_percent(row['probability'])} %, observed {format_percent(row['observed'])} % "
            f"({format_count(int(row['count']), 'prediction')})",
        }
        for row in curve[curve["count"] > 0].to_dict("records")
    ]
    return {"frame": frame, "points": points, "error": arm.calibration_error}


def build_training(arm: EvidenceArm) -> dict[str, Any] | None:
    """Build the training chart: validation AUC by epoch, and the selected epochs.

    Returns mean over runs with a band from the 10 % to the 90 % quantile; None where curves were not stored.
    """
    curves = [
        pd.Series({int(epoch): float(auc) for epoch, auc in curve if auc is not None})
        for run in arm.runs
        if (curve := run.record.details.get("validation_curve"))
    ]
    if not curves:
        return None
    runs = pd.DataFrame(curves).sort_index(axis=1)
    epochs = runs.columns.to_numpy(dtype=float)
    low, high = (runs.quantile(q).to_numpy() for q in (0.1, 0.9))
    bottom = min(0.4, float(np.floor(10 * np.nanmin(low)) / 10))
    frame = Frame(min(1.0, epochs.min()), max(epochs.max(), 2.0), bottom, 1.0)
    selected = sorted(int(epoch) for epoch in arm.rows["selected_epoch"].dropna())
    return {
        "frame": frame,
        "line": frame.trace(epochs, runs.mean().to_numpy()),
        "band": frame.outline(epochs, low, high),
        "selected": [frame.x(epoch) for epoch in selected],
        "median": int(np.median(selected)) if selected else None,
        "last": int(epochs.max()),
        "bottom": bottom,
        "runs": len(curves),
    }
