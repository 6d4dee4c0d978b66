"""Numbers of the tables and charts, laid out: the template only draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...errors import BrioError
from ...protocol.calibration import calibration_error, reliability_curve, roc_band
from ...results import METRICS, score_units
from .reading import EvidenceArm
from .verdict import Comparison
from .words import count, interval, percent

__all__ = ["Look", "calibration", "calibration_gap", "forest", "looks", "result_table", "roc", "training"]

COLOURS = 7
MARKERS = 8
DRAWN = 5
"""Methods that the charts show before the reader chooses others."""


@dataclass(frozen=True)
class Look:
    """How an arm is told apart: a colour, a marker (for print, and for eyes that do not see the colour), and whether
    the charts show it at first."""

    key: int
    name: str
    drawn: bool

    @property
    def colour(self) -> str:
        return f"c{self.key % COLOURS}"

    @property
    def marker(self) -> str:
        return f"mk{self.key % MARKERS}"


def looks(arms: Sequence[EvidenceArm], found: Comparison) -> dict[str, Look]:
    """The look of every arm: first the best, the reference and BRIO, then by rank, then controls and other arms."""
    names = {arm.name for arm in arms}
    first = [arm.name for arm in found.ranked[:1]]
    first += [found.reference.name] if found.reference else []
    first += ["brio"] if "brio" in names else []
    ranked = [arm.name for arm in found.ranked]
    controls = [arm.name for arm in arms if arm.control]
    order = list(dict.fromkeys([*first, *ranked, *controls, *(arm.name for arm in arms)]))
    return {name: Look(k, name, k < DRAWN) for k, name in enumerate(order)}


@dataclass(frozen=True)
class Scale:
    """A line from ``low`` to ``high`` as percent of its width."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Where a value lies, in percent."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    @property
    def ticks(self) -> list[dict[str, Any]]:
        first = int(np.ceil(self.low / 10) * 10)
        return [{"at": self.at(t), "text": str(t)} for t in range(first, int(self.high) + 1, 10)]


def _scale(values: Iterable[float | None]) -> Scale:
    """From just under the least AUC, or 40, to 100."""
    known = [100 * v for v in values if v is not None and not np.isnan(v)]
    return Scale(float(np.floor(min([44.0, *known]) / 5) * 5), 100.0)


def result_table(arms: Sequence[EvidenceArm], found: Comparison) -> dict[str, Any]:
    """One row for each arm, best first: every metric as the summary has it, and the difference from the reference."""
    lows = [a.summary.auc.interval[0] for a in arms if a.summary.auc.interval]
    scale = _scale([*lows, *(a.summary.auc.mean for a in arms)])
    all_smoke = all(arm.job.summary.smoke_run for arm in arms)
    rows = []
    for arm in sorted(arms, key=lambda a: -(a.summary.auc.mean or 0.0)):
        auc = arm.summary.auc
        rows.append(
            {
                "name": arm.name,
                "family": arm.summary.family,
                "remarks": _remarks(arm, found, all_smoke),
                "auc": auc,
                "bar": None if auc.interval is None else [scale.at(100 * v) for v in auc.interval],
                "dot": None if auc.mean is None else scale.at(100 * auc.mean),
                "averaged": arm.summary.auc_of_averaged_logits.mean,
                **{m: arm.summary.metric(m).mean for m in METRICS if m != "auc"},
                "against": found.against.get(arm.name) if arm.plain else None,
                "reference": arm is found.reference,
            }
        )
    return {"rows": rows, "scale": scale, "chance": scale.at(50.0)}


def _remarks(arm: EvidenceArm, found: Comparison, all_smoke: bool) -> list[str]:
    tuning = arm.summary.tuning
    out = ["reference"] if arm is found.reference else []
    out += ["control"] if arm.control else []
    out += ["smoke run"] if arm.job.summary.smoke_run and not all_smoke else []
    out += ["sees unlabelled test scans"] if arm.summary.transductive else []
    out += [f"best of {tuning.budget} settings"] if tuning and arm.summary.is_tuned else []
    out += [] if arm.plain or arm.control else [f"{arm.method} with other settings"]
    return out


def forest(arms: Sequence[EvidenceArm], look: dict[str, Look], facts: dict[str, Any] | None) -> dict[str, Any]:
    """AUC at each held-out site (mean over seeds, and their range) and the mean over sites with its interval."""
    rows = pd.concat([arm.rows for arm in arms], ignore_index=True)
    rivals = {arm.name for arm in arms if not arm.control} or {arm.name for arm in arms}
    scale = _scale(rows[rows["method"].isin(rivals)].groupby(["fold", "method"])["auc"].mean())
    ordered = sorted(arms, key=lambda a: look[a.name].key)
    by = {key: part["auc"].to_numpy(dtype=float) for key, part in rows.groupby(["fold", "method"])}
    sizes = rows.groupby("fold")["n_test"].first()
    classes = {s["site"]: s["n"] for s in (facts or {}).get("sites", [])}
    sites: list[dict[str, Any]] = [
        {
            "name": str(fold),
            "n": int(sizes[fold]),
            "classes": classes.get(str(fold)),
            "lanes": [_lane(scale, look[a.name], by.get((fold, a.name), np.empty(0))) for a in ordered],
        }
        for fold in sizes.index
    ]
    means = []
    for arm in ordered:
        auc = arm.summary.auc
        means.append(
            {
                "look": look[arm.name],
                "value": auc.mean,
                "dot": None if auc.mean is None else scale.at(100 * auc.mean),
                "bar": None if auc.interval is None else [scale.at(100 * v) for v in auc.interval],
                "tip": f"{arm.name}: {percent(auc.mean)} (95 % interval {interval(auc.interval)})",
            }
        )
    off = any(lane["dot"] is not None and lane["dot"] < 0 for site in sites for lane in site["lanes"])
    return {"sites": sites, "means": means, "scale": scale, "chance": scale.at(50.0), "off": off}


def _lane(scale: Scale, look: Look, seeds: np.ndarray) -> dict[str, Any]:
    known = seeds[~np.isnan(seeds)]
    if not len(known) or len(known) < len(seeds):
        return {"look": look, "value": None, "dot": None, "bar": None, "tip": f"{look.name}: no AUC, one class only"}
    ends = [float(known.min()), float(known.max())]
    spread = f", {interval(ends)} over {count(len(known), 'seed')}" if len(known) > 1 else ""
    mean = float(known.mean())
    return {
        "look": look,
        "value": mean,
        "dot": scale.at(100 * mean),  # a control may lie off the scale, which is made for the others
        "bar": [max(0.0, scale.at(100 * v)) for v in ends],
        "tip": f"{look.name}: {percent(mean)}{spread}",
    }


@dataclass(frozen=True)
class Frame:
    """The axes of a small chart in the coordinates of its drawing."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    left: float = 38.0
    top: float = 8.0
    width: float = 174.0
    height: float = 148.0

    def x(self, value: float) -> float:
        return round(self.left + self.width * (value - self.x_low) / (self.x_high - self.x_low), 1)

    def y(self, value: float) -> float:
        return round(self.top + self.height * (1 - (value - self.y_low) / (self.y_high - self.y_low)), 1)

    def path(self, xs: Iterable[float], ys: Iterable[float]) -> str:
        """Points of a line, those without a value left out."""
        return " ".join(f"{self.x(a):g},{self.y(b):g}" for a, b in zip(xs, ys, strict=True) if not np.isnan(b))

    def band(self, xs: Sequence[float], low: np.ndarray, high: np.ndarray) -> str:
        """Outline of the area between two lines."""
        known = ~(np.isnan(low) | np.isnan(high))
        at = np.asarray(xs, dtype=float)[known]
        return f"{self.path(at, low[known])} {self.path(at[::-1], high[known][::-1])}".strip()


def roc(arm: EvidenceArm) -> dict[str, Any] | None:
    """Mean ROC curve over sites with its band; None where no site has both classes."""
    try:
        found = roc_band(arm.predictions, by=score_units(arm.protocol), points=51)
    except BrioError:
        return None
    frame = Frame(0, 1, 0, 1)
    at = found.false_positive_rate
    line_x, line_y = np.concatenate([[0.0], at]), np.concatenate([[0.0], found.true_positive_rate])
    return {
        "frame": frame,
        "line": frame.path(line_x, line_y),
        "band": frame.band(at.tolist(), found.low, found.high),
        "auc": found.auc,
        "interval": [found.auc_low, found.auc_high],
        "n": found.n_sites,
        "left_out": found.left_out,
    }


def calibration_gap(arm: EvidenceArm) -> float | None:
    """Expected calibration error over ten bins of equally many predictions; None where nothing was said."""
    said = arm.predictions
    if said.empty:
        return None
    return calibration_error(said["label"].to_numpy(), said["probability"].to_numpy(dtype=float), strategy="quantile")


def calibration(arm: EvidenceArm) -> dict[str, Any] | None:
    """Observed share of patients against the predicted one, ten bins of equally many scans; intervals over sites."""
    said = arm.predictions
    if said.empty:
        return None
    label, probability = said["label"].to_numpy(), said["probability"].to_numpy(dtype=float)
    table = reliability_curve(label, probability, strategy="quantile", site=said["site"].to_numpy())
    frame = Frame(0, 1, 0, 1)
    points = [
        {
            "x": frame.x(row["probability"]),
            "y": frame.y(row["observed"]),
            "low": None if np.isnan(row["low"]) else frame.y(row["low"]),
            "high": None if np.isnan(row["high"]) else frame.y(row["high"]),
            "tip": f"said {percent(row['probability'])} %, were patients {percent(row['observed'])} % "
            f"({count(int(row['count']), 'prediction')})",
        }
        for row in table[table["count"] > 0].to_dict("records")
    ]
    return {"frame": frame, "points": points, "error": calibration_gap(arm)}


def training(arm: EvidenceArm) -> dict[str, Any] | None:
    """Validation AUC over epochs: mean over runs, 10 to 90 % of them, and the epochs that were chosen."""
    curves = [
        pd.Series({int(e): float(v) for e, v in curve if v is not None})
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
    chosen = sorted(int(e) for e in arm.rows["selected_epoch"].dropna())
    return {
        "frame": frame,
        "line": frame.path(epochs, runs.mean().to_numpy()),
        "band": frame.band(epochs.tolist(), low, high),
        "chosen": [frame.x(e) for e in chosen],
        "median": int(np.median(chosen)) if chosen else None,
        "last": int(epochs.max()),
        "bottom": bottom,
        "runs": len(curves),
    }
