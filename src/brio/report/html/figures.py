"""Figures and tables of the page."""

from __future__ import annotations

import base64
import gzip
import html
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ...drawing import import_brain_plots
from ...formatting import format_count, format_interval, format_percent, format_training, state_p
from ...methods.registry import READING, REDESIGN
from ...protocol.calibration import reliability_curve
from ...results import METRICS, MetricSummary, name_units, unit_columns
from ..comparisons import Comparison, EvidenceArm


@dataclass(frozen=True)
class Scale:
    """A horizontal scale from ``low`` to ``high``; positions are in percent of its width."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return the position of a value."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    @property
    def ticks(self) -> list[dict[str, Any]]:
        """Position and text of every multiple of ten."""
        first = int(np.ceil(self.low / 10) * 10)
        return [{"at": self.place(tick), "text": str(tick)} for tick in range(first, int(self.high) + 1, 10)]


def make_auc_scale(scores: Iterable[float | None]) -> Scale:
    """Make a scale from just below the lowest AUC, at most 40 %, to 100 %."""
    percents = [100 * score for score in scores if score is not None and not np.isnan(score)]
    return Scale(float(np.floor(min([44.0, *percents]) / 5) * 5), 100.0)


@dataclass(frozen=True)
class Frame:
    """The plot area of a small chart, and the ranges of its axes."""

    x_low: float  # ranges of the axes
    x_high: float
    y_low: float
    y_high: float
    left: float = 38.0  # the plot area in the units of the drawing
    top: float = 8.0
    width: float = 174.0
    height: float = 148.0

    def x(self, value: float) -> float:
        """Return the horizontal position of a value."""
        return round(self.left + self.width * (value - self.x_low) / (self.x_high - self.x_low), 1)

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        return round(self.top + self.height * (1 - (value - self.y_low) / (self.y_high - self.y_low)), 1)

    def trace(self, xs: np.ndarray, ys: np.ndarray) -> str:
        """Return the points of a line, without those whose y is NaN."""
        return " ".join(f"{self.x(a):g},{self.y(b):g}" for a, b in zip(xs, ys, strict=True) if not np.isnan(b))

    def outline(self, xs: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
        """Return the points around the area between two lines.

        Shapes: xs, low, high [n].
        """
        defined = ~(np.isnan(low) | np.isnan(high))
        xs, low, high = (np.asarray(values, dtype=float)[defined] for values in (xs, low, high))
        return f"{self.trace(xs, low)} {self.trace(xs[::-1], high[::-1])}".strip()


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#4B9CD3", "#555555")
"""The palette of Okabe and Ito, its light colours darkened for a white page; factor j has colour j."""

_STYLE = """<style>
body { margin: 0; font: 14px sans-serif; color: #566370 }
#connectome-plot > div { margin: 0 auto }
#select-view { margin: 6px 10px } .modebar { display: none }
</style>"""
_SCRIPT = """<script>
$(document).ready(() => { try {
  const originalLayout = getLayout
  getLayout = (...args) => ({ ...originalLayout(...args), hovermode: 'closest' })
  const plot = document.getElementById('connectome-plot')
  const update = updateLayout // fails if the frame is resized before the first drawing is finished
  updateLayout = (...args) => { try { update(...args) } catch (error) { setTimeout(() => update(...args), 500) } }
  const dots = plot.data.flatMap((trace, k) => trace.type === 'scatter3d' ? [k] : [])
  const labels = connectomeInfo.connectome.marker_labels
  Plotly.restyle(plot, { mode: 'markers', hoverinfo: 'text', hovertext: [labels] }, dots)
  surfaceRelayout()
} catch (error) { console.info('labels of regions are shown in the default way') } })
</script>"""
"""Shows the name of a region under the pointer, instead of all names at once."""

_VIEWS = (("from the left", -1, 1, 2, -1), ("from behind", 1, 0, 2, -1), ("from above", 1, 0, 1, 1))
"""Title; sign and axis of the horizontal direction, vertical axis, sign of the third axis towards the reader."""

_OUTLINES = (
    "-41,-72 -29,-54 -18,-46 -6,-52 2,-53 20,-46 30,-33 40,-33 60,-28 67,-20 72,-10 73,-4 73,12 68,24 58,42 50,51 "
    "34,62 8,74 -20,81 -38,82 -52,78 -76,63 -101,24 -107,8 -105,-10 -102,-16 -94,-24 -94,-34 -88,-46 -76,-58 -54,-68 "
    "-50,-72",
    "5,-72 10,-68 36,-63 46,-58 65,-32 70,-22 73,-10 71,30 67,44 62,52 50,65 42,70 12,82 0,78 -14,82 -42,70 -50,65 "
    "-62,52 -67,44 -71,30 -73,-10 -70,-22 -64,-34 -46,-58 -36,-63 -10,-68 -5,-72",
    "-21,-106 -10,-107 0,-101 8,-106 16,-107 30,-102 39,-96 54,-80 71,-48 73,-36 73,-22 56,40 48,54 41,62 20,72 10,73 "
    "0,71 -18,73 -36,65 -43,60 -56,40 -72,-20 -73,-36 -70,-50 -54,-80 -38,-97 -21,-106",
)
"""Silhouette of the MNI152 brain mask for each view, in mm, simplified to 1.2 mm."""
CENTRE = np.array([0.0, -17.0, 5.0])
HALF_EXTENT = 92.0
"""Middle of that brain, and half its length with a margin, in mm."""


def describe_brain(arm: str, runs: Sequence[RunFactors], facts: dict[str, Any] | None) -> dict[str, Any]:
    """Describe where the factors of an arm lie, for the template."""
    brain = summarise_assignment(runs) | {"arm": arm, "page": None, "views": [], "missing": "", "groups": []}
    factor = brain["factor"]
    rois = (facts or {}).get("rois")
    if facts is None or rois is None or len(rois["name"]) != len(factor):
        brain["missing"] = "This folder has no coordinates of regions (no facts.json): run the job again to get them."
        return brain
    brain["groups"] = [
        [name for name, j in zip(rois["name"], factor, strict=True) if j == group] for group in range(len(brain["pi"]))
    ]
    if rois["xyz"] is None:
        brain["missing"] = (
            f"The atlas '{facts['atlas']}' has no coordinates of all its regions, so they cannot be drawn: "
            "'brio atlas COHORT TABLE --out COHORT2' adds them to a cohort."
        )
        return brain
    brain["views"] = _project_regions(rois["xyz"], factor)
    labels = [f"{name}, factor {j + 1}" for name, j in zip(rois["name"], factor, strict=True)]
    viewer = render_brain_viewer(rois["xyz"], labels, factor)
    if viewer is None:
        brain["missing"] = "The interactive brain needs nilearn, which was not installed when this page was written."
    else:  # compressed to half its size; the script of the page decompresses it when its section is opened
        brain["page"] = base64.b64encode(gzip.compress(viewer.encode(), compresslevel=6, mtime=0)).decode()
    return brain


def render_brain_viewer(xyz: Sequence[Sequence[float]], labels: Sequence[str], factor: Sequence[int]) -> str | None:
    """Render an interactive brain as an HTML page; None where nilearn is not installed.

    Shapes: xyz [P, 3].
    """
    if (plots := import_brain_plots()) is None:
        return None
    view = plots.view_markers(
        np.asarray(xyz, dtype=float),
        marker_color=[COLOURS[j % len(COLOURS)] for j in factor],
        marker_size=9.0,
        marker_labels=[html.escape(label) for label in labels],
    )
    page = re.sub(r"<link\b[^>]*>", "", view.html)  # its icon would be loaded from the network
    return page.replace("</body>", f"{_STYLE}{_SCRIPT}</body>")


def _project_regions(xyz: Sequence[Sequence[float]], factor: Sequence[int]) -> list[dict[str, Any]]:
    """Project the regions and the outline of a brain on squares of 200 units, seen from three sides.

    The middle of the brain is the middle of the square, whatever regions an atlas has.
    """
    positions = np.asarray(xyz, dtype=float)
    reach = max(HALF_EXTENT, float(np.abs(positions - CENTRE).max()))
    scaled = (positions - CENTRE) / reach * 92
    views = []
    for (title, sign, across, up, towards), outline in zip(_VIEWS, _OUTLINES, strict=True):
        depth = towards * scaled[:, ({0, 1, 2} - {across, up}).pop()]
        dots = [
            {
                "x": round(100 + sign * float(scaled[u, across]), 1),
                "y": round(100 - float(scaled[u, up]), 1),
                "factor": int(factor[u]),
            }
            for u in np.argsort(depth, kind="stable")  # the nearest is drawn last
        ]
        edge = [tuple(map(float, point.split(","))) for point in outline.split()]
        points = " ".join(
            f"{100 + sign * 92 * (a - CENTRE[across]) / reach:.1f},{100 - 92 * (b - CENTRE[up]) / reach:.1f}"
            for a, b in edge
        )
        views.append({"title": title, "dots": dots, "outline": points})
    return views


@dataclass(frozen=True, eq=False)
class RunFactors:
    """Factors of one run, the most relevant first; factors of different runs do not correspond to each other.

    Shapes: pi_task [J], alpha_bar [pairs, 2, J], g [pairs, 2], q_re [sites, 2, J], Pi_bar [J, P].
    """

    fold: str
    seed: int
    validation_auc: float | None  # on validation scans or inner folds; None where there is no such score
    sites: list[str]  # source sites, sorted
    pi_task: np.ndarray  # relevance
    alpha_bar: np.ndarray  # weight of each factor in the alignment of each pair of source sites, by class
    g: np.ndarray  # strength of alignment
    q_re: np.ndarray | None  # re-estimation support; None where nothing was re-estimated
    Pi_bar: np.ndarray  # assignment of ROIs to factors


def read_factors(arm: EvidenceArm) -> list[RunFactors]:
    """Read the factors of every run of an arm; none of runs that keep no factors."""
    factors = []
    for run in arm.runs:
        tensors = arm.job.store.read_tensors(run.key, ("alpha_bar", "g", "q_re", "pi_task", "Pi_bar"))
        if not {"alpha_bar", "g", "pi_task", "Pi_bar"} <= tensors.keys():
            continue
        order = np.argsort(-tensors["pi_task"], kind="stable")
        row = run.record.row
        factors.append(
            RunFactors(
                fold=row.fold,
                seed=row.seed,
                validation_auc=row.validation_auc,
                sites=list(run.record.source_sites),
                pi_task=tensors["pi_task"][order],
                alpha_bar=tensors["alpha_bar"][..., order],
                g=tensors["g"],
                q_re=tensors["q_re"][..., order] if "q_re" in tensors else None,
                Pi_bar=tensors["Pi_bar"][order],
            )
        )
    return factors


def summarise_qualification(runs: Sequence[RunFactors], protocol: str) -> dict[str, Any]:
    """Average the qualification of each test site over its seeds, for the script of the page to draw.

    Seeds have different validation sites, so a pair is averaged over the seeds in which both its sites are source
    sites. Under k-fold another seed makes other folds, so nothing is averaged.

    Returns by test site, or by fold and seed. ``pairs`` holds, for each pair of ``sites`` (in the order of
    ``itertools.combinations``) and class, the strength g and then the J weights alpha_bar; ``support`` holds q_re for
    each site and class. Both are None where no seed has the pair or site.
    """
    grouped: dict[str, list[RunFactors]] = {}
    for run in sorted(runs, key=lambda run: run.fold):
        grouped.setdefault(run.fold if protocol == "loso" else f"{run.fold} of seed {run.seed}", []).append(run)

    def average(values: Sequence[np.ndarray] | None) -> list[Any] | None:
        return None if values is None else np.mean(values, axis=0).round(3).tolist()

    folds = {}
    for fold, fold_runs in grouped.items():
        sites = sorted({site for run in fold_runs for site in run.sites})
        pairs: dict[tuple[str, str], list[np.ndarray]] = {}
        support: dict[str, list[np.ndarray]] = {}
        for run in fold_runs:
            for k, pair in enumerate(combinations(run.sites, 2)):
                pairs.setdefault(pair, []).append(np.column_stack([run.g[k], run.alpha_bar[k]]))  # [2, 1 + J]
            if run.q_re is not None:
                for site, q in zip(run.sites, run.q_re, strict=True):
                    support.setdefault(site, []).append(q)
        folds[fold] = {
            "sites": sites,
            "seeds": len(fold_runs),
            "pi": average([run.pi_task for run in fold_runs]),
            "pairs": [average(pairs.get(pair)) for pair in combinations(sites, 2)],
            "support": [average(support.get(site)) for site in sites] if support else None,
        }
    return folds


def summarise_assignment(runs: Sequence[RunFactors]) -> dict[str, Any]:
    """Describe the ROIs of each factor in one run, and how well runs agree.

    It is the run with the highest AUC on validation scans or inner folds; where there is none, the first.
    """
    scored = [run for run in runs if run.validation_auc is not None]
    best = max(scored, key=lambda run: (run.validation_auc, run.fold, -run.seed)) if scored else runs[0]
    groups = [run.Pi_bar.argmax(0) for run in runs]
    pairs = list(combinations(groups, 2))
    if len(pairs) > 300:  # enough for a mean
        pairs = [pairs[k] for k in np.random.default_rng(0).choice(len(pairs), 300, replace=False)]
    return {
        "fold": best.fold,
        "seed": best.seed,
        "chosen_by_score": bool(scored),
        "factor": best.Pi_bar.argmax(0).tolist(),
        "share": (best.Pi_bar / best.Pi_bar.sum(0)).max(0).round(2).tolist(),
        "pi": best.pi_task.round(3).tolist(),
        "agreement": float(np.mean([compute_rand_index(a, b) for a, b in pairs])) if pairs else None,
        "runs": len(runs),
    }


def compute_rand_index(a: np.ndarray, b: np.ndarray) -> float:
    """Compute the adjusted Rand index of two groupings; there are hundreds in a report, each of few regions.

    Shapes: a, b [P].
    """
    counts = np.zeros((a.max() + 1, b.max() + 1), dtype=np.int64)
    np.add.at(counts, (a, b), 1)
    together, in_a, in_b = (int((n**2).sum()) for n in (counts, counts.sum(1), counts.sum(0)))
    both, only_a, only_b = together - len(a), in_a - together, in_b - together  # ordered pairs in one group
    neither = len(a) ** 2 - only_a - only_b - together
    if only_a == only_b == 0:
        return 1.0
    largest = (both + only_a) * (only_a + neither) + (both + only_b) * (only_b + neither)
    return 2.0 * (both * neither - only_a * only_b) / largest


N_SHOWN = 5
"""Methods that the charts show until the reader selects others."""


@dataclass(frozen=True)
class ArmStyle:
    """How the charts show an arm: colour and marker (the marker alone identifies it in print)."""

    key: int  # position in the order of the charts
    name: str

    @property
    def shown(self) -> bool:
        """Whether the charts show the arm at first."""
        return self.key < N_SHOWN

    @property
    def colour(self) -> str:
        """CSS class of the colour."""
        return f"c{self.key % 7}"

    @property
    def marker(self) -> str:
        """Id of the marker symbol."""
        return f"mk{self.key % 8}"


def assign_styles(arms: Sequence[EvidenceArm], comparison: Comparison) -> dict[str, ArmStyle]:
    """Assign a style to every arm: best method, reference and BRIO first, then by rank, then all others."""
    names, ranked = [arm.name for arm in arms], [arm.name for arm in comparison.ranked]
    first = [*ranked[:1], comparison.reference.name if comparison.reference else "", "brio"]
    controls = [arm.name for arm in arms if arm.control]
    order = dict.fromkeys(name for name in [*first, *ranked, *controls, *names] if name in names)
    return {name: ArmStyle(k, name) for k, name in enumerate(order)}


def build_result_table(
    arms: Sequence[EvidenceArm], comparison: Comparison, given_label: Collection[str] = ()
) -> dict[str, Any]:
    """Build the table of results: one row per arm, best first, with metrics and the difference from the reference."""
    lows = [arm.summary.auc.interval[0] for arm in arms if arm.summary.auc.interval]
    scale = make_auc_scale([*lows, *(arm.summary.auc.mean for arm in arms)])
    all_smoke = all(arm.job.summary.smoke_run for arm in arms)
    rows = []
    for arm in sorted(arms, key=lambda arm: -(arm.summary.auc.mean or 0.0)):
        remarks = _list_remarks(arm, comparison, all_smoke)
        row = {
            "name": arm.name,
            "remarks": remarks + (["is given the label as a covariate"] if arm.name in given_label else []),
            "auc": arm.summary.auc,
            **_place(scale, arm.summary.auc),
            "pair_weighted": arm.summary.pair_weighted_auc or MetricSummary(),
            "people": _describe_people(arm),
            "averaged": arm.summary.auc_of_averaged_logits.mean,
            **{metric: arm.summary.metric(metric).mean for metric in METRICS if metric != "auc"},
            "difference": comparison.differences.get(arm.name) if arm.plain else None,
            "is_reference": arm is comparison.reference,
        }
        rows.append(row)
    has_pairs = any(row["pair_weighted"].mean is not None for row in rows)
    return {"rows": rows, "scale": scale, "chance": scale.place(50.0), "has_pairs": has_pairs}


def _describe_people(arm: EvidenceArm) -> str:
    """Describe the other intervals and the test against chance, for a tip; smoke runs are not tested."""
    summary, parts = arm.summary, []
    if arm.protocol == "loso" and summary.auc.new_site_interval:
        parts.append(f"at one new site {format_interval(summary.auc.new_site_interval)}")
    if summary.auc_interval_over_people:
        parts.append(f"for new participants at these sites {format_interval(summary.auc_interval_over_people)}")
    if summary.p_chance is not None and not arm.job.summary.smoke_run:
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
    ordered = sorted(arms, key=lambda arm: styles[arm.name].key)
    seed_scores = {key: part["auc"].to_numpy(dtype=float) for key, part in rows.groupby([*by, "method"])}
    sizes = rows.groupby(by)["n_test"].first()
    class_counts = {site["site"]: site["n"] for site in (facts or {}).get("sites", []) if arms[0].unit == "site"}
    sites: list[dict[str, Any]] = []
    for name, unit in zip(name_units(sizes.index), sizes.index, strict=True):
        place = unit if isinstance(unit, tuple) else (unit,)
        lanes = [
            _build_lane(scale, styles[arm.name], seed_scores.get((*place, arm.name), np.empty(0))) for arm in ordered
        ]
        sites.append({"name": name, "n": int(sizes[unit]), "class_counts": class_counts.get(name), "lanes": lanes})
    means = []
    for arm in ordered:
        auc = arm.summary.auc
        interval = f" (95 % interval {format_interval(auc.interval)})" if auc.interval else ""
        tip = f"{arm.name}: {format_percent(auc.mean)}{interval}"
        means.append({"style": styles[arm.name], "value": auc.mean, **_place(scale, auc), "tip": tip})
    off_scale = any(lane["dot"] is not None and lane["dot"] < 0 for site in sites for lane in site["lanes"])
    return {"sites": sites, "means": means, "scale": scale, "chance": scale.place(50.0), "off_scale": off_scale}


def _build_lane(scale: Scale, style: ArmStyle, seed_scores: np.ndarray) -> dict[str, Any]:
    if not len(seed_scores) or np.isnan(seed_scores).any():
        return {"style": style, "value": None, "dot": None, "bar": None, "tip": f"{style.name}: no AUC"}
    mean, ends = float(seed_scores.mean()), [float(seed_scores.min()), float(seed_scores.max())]
    n_seeds = len(seed_scores)
    spread = f", {format_interval(ends)} over {format_count(n_seeds, 'seed')}" if n_seeds > 1 else ""
    return {
        "style": style,
        "value": mean,
        "dot": scale.place(100 * mean),  # negative for a control left of the scale, which is made for the methods
        "bar": [max(0.0, scale.place(100 * end)) for end in ends],
        "tip": f"{style.name}: {format_percent(mean)}{spread}",
    }


def build_roc(arm: EvidenceArm) -> dict[str, Any] | None:
    """Build the mean ROC curve over sites with its band; None where no site has both classes."""
    if (roc := arm.roc) is None:
        return None
    frame, rate = Frame(0, 1, 0, 1), roc.false_positive_rate
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
    curve = reliability_curve(label, probability, site=predictions["site"].to_numpy())
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
