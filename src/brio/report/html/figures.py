"""Figures of the page: what the templates need besides the evidence."""

from __future__ import annotations

import base64
import gzip
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ...drawing import import_brain_plots
from ...formatting import typeset
from ...models.evidence import UNKNOWN
from ...models.external import Validation, tabulate_scores
from ...results import RunRecord, name_units, unit_columns
from ..comparisons import Comparison, EvidenceArm, compare_arms
from . import fill_template


@dataclass(frozen=True)
class Scale:
    """A horizontal scale of shares, from ``low`` to ``high`` percent; positions are in percent of its width."""

    low: float
    high: float
    step: int = 10  # from one tick to the next, in percent
    mark: float = 0.5  # share at the dashed line

    def place(self, value: float) -> float:
        """Return the position of a share."""
        return round(100 * (100 * value - self.low) / (self.high - self.low), 2)

    @property
    def ticks(self) -> list[dict[str, Any]]:
        """Position and text of every tick."""
        ticks = range(int(self.low), int(self.high) + 1, self.step)
        return [{"at": self.place(tick / 100), "text": typeset(str(tick))} for tick in ticks]


def make_scale(shares: Iterable[float | None], mark: float = 0.5) -> Scale:
    """Make a scale where the shares are, with the mark inside."""
    percents = [100 * mark, *(100 * share for share in shares if share is not None and not np.isnan(share))]
    step = next(step for step in (1, 2, 5, 10, 20, 50) if max(percents) - min(percents) <= 5 * step)
    low, high = np.floor(min(percents) / step) * step, np.ceil(max(percents) / step) * step
    return Scale(float(low), float(max(high, low + step)), step, mark)


def join_known(intervals: Iterable[Sequence[float]]) -> list[float]:
    """Join the ends of intervals; intervals that span the whole scale are uninformative and are not drawn."""
    return [end for ends in intervals if ends and ends[1] - ends[0] < 1 for end in ends]


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
LEAST_AGREEMENT = 0.6
"""Factors are shown where the groups of regions agree between seeds with an adjusted Rand index of at least this."""
CENTRE = np.array([0.0, -17.0, 5.0])
HALF_EXTENT = 92.0
"""Middle of the MNI152 brain, and half its length with a margin, in mm."""


def describe_brain(arm: str, runs: Sequence[RunFactors], facts: dict[str, Any] | None) -> dict[str, Any]:
    """Describe where the factors of an arm lie, for the template.

    ``regions`` are coordinates from the middle of the brain, shrunk until all of them lie inside the drawing, and the
    factor of each; without coordinates there are none.
    """
    brain = summarise_assignment(runs) | {"arm": arm, "groups": [], "regions": [], "page": None, "is_too_large": False}
    rois, factor = (facts or {}).get("rois"), brain["factor"]
    if not brain["agrees"] or rois is None or len(rois["name"]) != len(factor):
        return brain
    regions = list(zip(rois["name"], factor, strict=True))
    brain["groups"] = [[name for name, j in regions if j == group] for group in range(len(brain["pi"]))]
    if rois["xyz"] is not None:
        centred = np.asarray(rois["xyz"], dtype=float) - CENTRE
        brain["shrunk"] = HALF_EXTENT / max(HALF_EXTENT, float(np.abs(centred).max()))
        brain["regions"] = [(*xyz, j) for xyz, j in zip((centred * brain["shrunk"]).tolist(), factor, strict=True)]
        viewer = render_brain_viewer(rois["xyz"], [f"{name}, factor {j + 1}" for name, j in regions], factor)
        if viewer is not None:  # compressed to half its size; the script of the page decompresses it when it is opened
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
    return page.replace("</body>", f"{fill_template('brain.html.j2', {})}</body>")


@dataclass(frozen=True, eq=False)
class RunFactors:
    """Factors of one run, the most relevant first; factors of different runs do not correspond to each other.

    Shapes: pi_task [J], alpha_bar [pairs, 2, J], g [pairs, 2], q_re [sites, 2, J], Pi_bar [J, P].
    """

    record: RunRecord
    pi_task: np.ndarray  # relevance
    alpha_bar: np.ndarray  # weight of each factor in the alignment of each pair of source sites, by class
    g: np.ndarray  # strength of alignment
    Pi_bar: np.ndarray  # assignment of ROIs to factors
    q_re: np.ndarray | None = None  # re-estimation support; None where nothing was re-estimated


def read_factors(arm: EvidenceArm) -> list[RunFactors]:
    """Read the factors of every run of an arm; none of runs that keep no factors."""
    factors = []
    for run in arm.runs:
        tensors = arm.job.store.read_tensors(run.key, ("alpha_bar", "g", "q_re", "pi_task", "Pi_bar"))
        if {"alpha_bar", "g", "pi_task", "Pi_bar"} <= tensors.keys():
            order = np.argsort(-tensors["pi_task"], kind="stable")
            by_factor = {name: t[..., order] for name, t in tensors.items() if name not in ("g", "Pi_bar")}
            factors.append(RunFactors(run.record, g=tensors["g"], Pi_bar=tensors["Pi_bar"][order], **by_factor))
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
    for run in sorted(runs, key=lambda run: run.record.row.fold):
        row = run.record.row
        grouped.setdefault(row.fold if protocol == "loso" else f"{row.fold} of seed {row.seed}", []).append(run)

    def average(values: Sequence[np.ndarray] | None) -> list[Any] | None:
        return None if values is None else np.mean(values, axis=0).round(3).tolist()

    folds = {}
    for fold, fold_runs in grouped.items():
        sites = sorted({site for run in fold_runs for site in run.record.source_sites})
        pairs: dict[tuple[str, str], list[np.ndarray]] = {}
        support: dict[str, list[np.ndarray]] = {}
        for run in fold_runs:
            strengths = np.concatenate([run.g[..., None], run.alpha_bar], axis=2)  # [pairs, 2, 1 + J]
            for pair, values in zip(combinations(run.record.source_sites, 2), strengths, strict=True):
                pairs.setdefault(pair, []).append(values)
            for site, q in zip(run.record.source_sites, [] if run.q_re is None else run.q_re, strict=False):
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
    """Describe the ROIs of each factor in one run, and how well runs of the same fold agree between seeds.

    It is the run with the highest AUC on validation scans or inner folds; where there is none, the first.
    """
    from sklearn.metrics import adjusted_rand_score

    def rank(run: RunFactors) -> tuple[float, str, int]:
        row = run.record.row
        return row.validation_auc or 0.0, row.fold, -row.seed

    scored = [run for run in runs if run.record.row.validation_auc is not None]
    best = max(scored, key=rank) if scored else runs[0]
    pairs = [
        (a.Pi_bar.argmax(0), b.Pi_bar.argmax(0))
        for a, b in combinations(runs, 2)
        if a.record.row.fold == b.record.row.fold and a.record.row.seed != b.record.row.seed
    ]
    if len(pairs) > 300:  # enough for a mean
        pairs = [pairs[k] for k in np.random.default_rng(0).choice(len(pairs), 300, replace=False)]
    agreement = float(np.mean([adjusted_rand_score(a, b) for a, b in pairs])) if pairs else None
    return {
        "fold": best.record.row.fold,
        "seed": best.record.row.seed,
        "chosen_by_score": bool(scored),
        "factor": best.Pi_bar.argmax(0).tolist(),
        "pi": best.pi_task.round(3).tolist(),
        "agreement": agreement,
        "agrees": agreement is not None and agreement >= LEAST_AGREEMENT,
    }


def assign_keys(arms: Sequence[EvidenceArm], comparison: Comparison) -> dict[str, int]:
    """Number every arm, which determines its colour and marker: best method, reference and BRIO come first.

    They are followed by the other methods by rank, then by all other arms.
    """
    names, ranked = [arm.name for arm in arms], [arm.name for arm in comparison.ranked]
    first = [*ranked[:1], comparison.reference.name if comparison.reference else "", "brio"]
    controls = [arm.name for arm in arms if arm.control]
    order = dict.fromkeys(name for name in [*first, *ranked, *controls, *names] if name in names)
    return {name: k for k, name in enumerate(order)}


def build_result_table(arms: Sequence[EvidenceArm], comparison: Comparison | None = None) -> dict[str, Any]:
    """Build a table of results: its arms, best first, with scales that hold every mean, difference and interval."""
    compared = comparison or compare_arms([arm for arm in arms if arm.plain])
    rows = compared.differences.values()
    intervals = [arm.summary.auc.interval or () for arm in arms]
    of_differences = [(row["low"], row["high"]) for row in rows]
    return {
        "is_main": comparison is not None,
        "arms": sorted(arms, key=lambda arm: -arm.mean_auc),
        "comparison": compared,
        "scale": make_scale([*join_known(intervals), *(arm.summary.auc.mean for arm in arms)]),
        "difference_scale": make_scale([*join_known(of_differences), *(row["mean_difference"] for row in rows)], 0.0),
    }


def build_forest(arms: Sequence[EvidenceArm], facts: dict[str, Any] | None) -> dict[str, Any]:
    """Build the chart of sites: AUC of each arm at each test site, mean over seeds, with DeLong's interval.

    Under k-fold, folds of different seeds are different folds: each has its own row. The scale is made for methods: a
    confound baseline may lie left of it.
    """
    by = unit_columns(arms[0].protocol)
    units = pd.concat([arm.rows for arm in arms], ignore_index=True).groupby(by)
    class_counts = {site["site"]: site["n"] for site in (facts or {}).get("sites", []) if arms[0].unit == "site"}
    intervals = {arm.name: arm.intervals_of_sites for arm in arms}
    sites: list[dict[str, Any]] = []
    for name, (_, rows) in zip(name_units(units["n_test"].first().index), units, strict=True):
        scores = rows.groupby("method")["auc"].agg(["mean", "min", "max", "count", "size"])
        lanes = scores[scores["count"] == scores["size"]].to_dict("index")  # those with a score under every seed
        for arm, lane in lanes.items():
            lane["interval"] = intervals[arm].get(name)
        n_test = int(rows["n_test"].iloc[0])
        sites.append({"name": name, "n": n_test, "class_counts": class_counts.get(name), "lanes": lanes})
    competing = {arm.name for arm in arms if not arm.control} or {arm.name for arm in arms}
    drawn = [(arm, lane) for site in sites for arm, lane in site["lanes"].items()]
    scale = make_scale(
        value for arm, lane in drawn if arm in competing for value in (lane["mean"], *(lane["interval"] or ()))
    )
    return {"sites": sites, "scale": scale, "is_off_scale": any(scale.place(lane["mean"]) < 0 for _, lane in drawn)}


def build_validation_chart(validations: Sequence[Validation], keys: dict[str, int]) -> dict[str, Any]:
    """Build the chart of new sites: expected and observed AUC of each model, with the key of its method."""
    methods = [name for name in dict.fromkeys(one.method for one in validations) if name not in keys]
    keys = keys | {name: len(keys) + k for k, name in enumerate(methods)}
    rows, known = [], []
    for one in validations:
        expected, here = one.expected.get("auc", UNKNOWN), UNKNOWN if one.caution else one.auc
        scores = [] if one.caution else tabulate_scores(one, one.expected)
        rows.append({"validation": one, "key": keys[one.method], "expected": expected, "here": here, "scores": scores})
        known += [expected.value, here.value, *join_known(ends for ends in (expected.ends, here.ends) if ends)]
    return {"rows": rows, "scale": make_scale(known)}


def build_training(arm: EvidenceArm) -> dict[str, Any] | None:
    """Build the training chart: validation AUC by epoch, and the selected epochs.

    Returns mean over runs with a band from the 10% to the 90% quantile; None where curves were not stored.
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
    bands = list(zip(low, high, strict=True))
    selected = sorted(int(epoch) for epoch in arm.rows["selected_epoch"].dropna())
    return {
        "frame": frame,
        "line": frame.trace(epochs, runs.mean().to_numpy()),
        "band": frame.outline(epochs, low, high),
        "selected": [frame.x(epoch) for epoch in selected],
        "median": int(np.median(selected)) if selected else None,
        "last": int(epochs.max()),
        "table": list(zip(epochs.astype(int), runs.mean(), bands, strict=True))[:: -(-len(epochs) // 12)],
        "bottom": bottom,
        "runs": len(curves),
    }
