"""What a few labelled scans of a new site buy, if slope and intercept are adapted to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from .. import draws
from ..drawing import horizontal_offset, make_panels
from ..errors import BrioError
from ..formatting import format_interval, format_signed, join_names
from ..models import PriorWidths, fit_adaptation
from ..protocol import t_interval
from .context import Arm, StudyContext, display_method
from .study import Finding, register_study
from .summaries import draw_intervals, label_axis, tabulate_arms

SIZES = (10, 20, 40)
"""Numbers of local scans, besides none."""

LEAST_REST = 10
"""Scans that must be left to score; smaller sites are left out of a size."""

DRAWS = 20
"""Random choices of local scans, for every size, fold and seed."""

_DEFAULT = PriorWidths()
KINDS = {
    "adapted": _DEFAULT,
    "half": PriorWidths(_DEFAULT.slope / 2, _DEFAULT.intercept / 2, "given"),
    "double": PriorWidths(2 * _DEFAULT.slope, 2 * _DEFAULT.intercept, "given"),
    "unshrunk": PriorWidths(10.0, 10.0, "given"),  # has a mode even where local scans separate the classes
}
"""How strongly slope and intercept are shrunk: the default, half and double its widths, and as good as not at all."""


@register_study("adaptation", "Adapting to a new site with a few labelled scans", "It does not adapt to a test site.")
def study_adaptation(context: StudyContext, arms: list[Arm]) -> Finding:
    """Adapt slope and intercept (default ridge) to 10, 20 and 40 scans of each test site, and score its other scans."""
    table = tabulate_arms(context, arms, _score_runs)
    changes = {str(name): summarise_sizes(rows) for name, rows in table.groupby("arm", sort=False)}
    summary = pd.DataFrame([row for name, own in changes.items() for row in _format_rows(name, own)])
    text = [_describe(name, own) for name, own in changes.items()]
    text += _name_small_sites(table)
    text.append(
        f"Local scans are drawn at random from the test site, {DRAWS} times for each size and seed, with its share of "
        "patients; its other scans are scored, before and after. Slope and intercept are shrunk towards no change by "
        f"the default widths of `brio adapt` (standard deviations {_DEFAULT.slope:g} of the logarithm of the slope and "
        f"{_DEFAULT.intercept:g} of the intercept), which are not chosen by these scores; half and double those widths "
        "show how much depends on them. Accuracy is that of the more probable class. Intervals are over test sites."
    )
    return Finding(table, summary, text, lambda: _draw(changes), digits=6)


def choose_local_scans(label: np.ndarray, order: np.ndarray, size: int) -> np.ndarray:
    """Choose local scans with the share of patients of all scans, at least one of each class.

    Shapes: label [n], order [n]; returns [n].
    """
    n_patients = int(np.clip(round(size * label.mean()), 1, size - 1))
    chosen = np.zeros(len(label), dtype=bool)
    for c, n in ((1, n_patients), (0, size - n_patients)):
        own = np.flatnonzero(label == c)
        chosen[own[np.argsort(order[own], kind="stable")[:n]]] = True
    return chosen


def _score_runs(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per run and size: means over draws of the scores of the scans that are left."""
    rows = []
    for (fold, seed), run in predictions.groupby(["fold", "seed"], sort=False):
        label = run["label"].to_numpy()
        logits = logit(run["probability"].to_numpy(dtype=float).clip(1e-12, 1 - 1e-12))
        place = {"fold": fold, "seed": seed, "patients": int(label.sum()), "controls": int((1 - label).sum())}
        rows.append({**place, "size": 0, "draws": 1, **_score(label, logits, "")})
        for size in SIZES:
            if len(label) < size + LEAST_REST or not 0 < label.mean() < 1:
                continue
            ids = draws.addresses(run["participant_id"].to_numpy(dtype=str))
            scores = []
            for draw in range(DRAWS):
                place_of_draw = (draws.address(str(fold)), draw, ids)
                order = draws.draw_uniform(int(seed), "adaptation, local scans", *place_of_draw)
                scores.append(_adapt_once(label, logits, choose_local_scans(label, order, size)))
            rows.append({**place, "size": size, "draws": DRAWS, **pd.DataFrame(scores).mean().to_dict()})
    if all(row["size"] == 0 for row in rows):
        raise BrioError(
            f"no test site has {SIZES[0] + LEAST_REST} scans of both classes: {SIZES[0]} to adapt to and {LEAST_REST} "
            "to score; use a cohort with larger sites"
        )
    return pd.DataFrame(rows)


def _adapt_once(label: np.ndarray, logits: np.ndarray, local: np.ndarray) -> dict[str, float]:
    """Scores of the other scans without adaptation, and with each kind of it."""
    rest = ~local
    scores = _score(label[rest], logits[rest], "")
    for kind, widths in KINDS.items():
        fitted = fit_adaptation(label[local], logits[local], widths)
        scores |= _score(label[rest], fitted.apply(logits[rest]), f"_{kind}")
        if kind == "adapted":
            scores |= {"slope": fitted.slope, "intercept": fitted.intercept}
    return scores


def _score(label: np.ndarray, logits: np.ndarray, suffix: str) -> dict[str, float]:
    brier = float(((expit(logits) - label) ** 2).mean())
    return {f"brier{suffix}": brier, f"accuracy{suffix}": float(((logits > 0) == label).mean())}


def summarise_sizes(rows: pd.DataFrame) -> pd.DataFrame:
    """Average scores and their changes over test sites, seeds first.

    Returns ``sites``; ``brier`` and ``accuracy`` before adaptation; and for each of :data:`KINDS` the change of both
    with the ends of its 95 % interval over sites: ``brier adapted``, ``brier adapted low``, ... Accuracy is in percent.
    Without local scans there are no changes.
    """
    names = [f"{score}{suffix}" for score in ("brier", "accuracy") for suffix in ("", *(f"_{kind}" for kind in KINDS))]
    by_site = rows.groupby(["size", "fold"])[names].mean()
    by_site[[name for name in names if name.startswith("accuracy")]] *= 100
    summary = []
    for size, own in by_site.groupby("size"):
        point = {"size": size, "sites": len(own), "brier": own["brier"].mean(), "accuracy": own["accuracy"].mean()}
        for score in ("brier", "accuracy"):
            for kind in KINDS:
                change = (own[f"{score}_{kind}"] - own[score]).to_numpy()
                low, high = t_interval(change) if size else (np.nan, np.nan)
                point |= {f"{score} {kind}": change.mean(), f"{score} {kind} low": low, f"{score} {kind} high": high}
        summary.append(point)
    return pd.DataFrame(summary).set_index("size")


_COLUMNS = {
    "adapted": "change",
    "half": "change, half the widths",
    "double": "change, double the widths",
    "unshrunk": "change, not shrunk",
}


def _format_rows(name: str, points: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of the small table of one method."""
    rows = []
    for size, point in points.iterrows():
        row = {"method": display_method(name), "local scans": size, "sites": int(point["sites"])}
        row |= {"Brier score before": f"{point['brier']:.3f}"}
        for kind, words in _COLUMNS.items():
            row[words] = "" if not size else _format_change(point, f"brier {kind}", 3)
        row |= {"accuracy before, %": f"{point['accuracy']:.1f}"}
        row["change, points"] = "" if not size else _format_change(point, "accuracy adapted", 1)
        rows.append(row)
    return rows


def _format_change(point: pd.Series, name: str, digits: int) -> str:
    def write(value: float) -> str:
        return format_signed(value, digits)

    interval = format_interval((point[f"{name} low"], point[f"{name} high"]), write)
    return f"{write(point[name])} ({interval})"


def _describe(name: str, points: pd.DataFrame) -> str:
    """What each number of local scans changed for one method."""
    changes = [
        f"{size} local scans {_format_change(point, 'brier adapted', 3)}, accuracy "
        f"{_format_change(point, 'accuracy adapted', 1)} points ({int(point['sites'])} sites)"
        for size, point in points.iterrows()
        if size
    ]
    none = points.loc[0]
    return (
        f"{display_method(name)}: without adaptation the Brier score is {none['brier']:.3f} and accuracy "
        f"{none['accuracy']:.1f} % (means over {int(none['sites'])} test sites). Change of the Brier score with "
        f"{'; with '.join(changes)}."
    )


def _name_small_sites(rows: pd.DataFrame) -> list[str]:
    """Name the sites that are left out of each size."""
    every = set(rows["fold"])
    missing = {size: sorted(every - set(rows.loc[rows["size"] == size, "fold"])) for size in SIZES}
    listed = "; for ".join(f"{size} local scans: {join_names(names, 99)}" for size, names in missing.items() if names)
    return [f"Too small, with fewer than {LEAST_REST} scans left to score, for {listed}."] if listed else []


def _draw(changes: dict[str, pd.DataFrame]) -> Any:
    """Change of the Brier score and of accuracy against the number of local scans."""
    figure, axes = make_panels(2, 9.0, 3.7)
    for axis, score in zip(axes, ("brier", "accuracy"), strict=True):
        for k, (name, points) in enumerate(changes.items()):
            own = points.drop(index=0)
            for j, (kind, words) in enumerate((("adapted", ""), ("unshrunk", ", not shrunk"))):
                x = own.index + horizontal_offset(2 * k + j, 2 * len(changes), 14)
                look: dict[str, Any] = {"linewidth": 1.4, "label": f"{display_method(name)}{words}"}
                look |= {"linestyle": (0, (3, 2)), "markerfacecolor": "white"} if j else {}
                mean, low, high = (own[f"{score} {kind}{end}"] for end in ("", " low", " high"))
                draw_intervals(axis, x, mean, low, high, k, **look)
        axis.axhline(0, color="0.35", linewidth=1.0, linestyle=(0, (1, 1.5)))
        axis.set_xticks(SIZES)
        axis.set_xlim(0, max(SIZES) + 10)
    y = "change of the Brier score; lower is better", "change of accuracy, points"
    for axis, label in zip(axes, y, strict=True):
        label_axis(axis, "local scans", f"{label}\n(95 % interval over sites)", grid="y")
    axes[0].legend(fontsize=8, frameon=False, loc="upper right")
    return figure
