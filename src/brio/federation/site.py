"""A site's part: read a request, check it, answer it from the scans of the site, and keep a log in words."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit

from ..cohort import Cohort, audit, relabel
from ..connectome import BlockRule, Connectomes, find_live_edges, read_edges
from ..device import full_precision
from ..errors import BrioError
from ..formatting import format_count
from ..models.fit import learn_interval_factor
from ..models.model import check_atlas, check_classes
from ..models.ranges import describe_scans, measure_distances
from ..protocol.calibration import Recalibration, fit_recalibration
from ..protocol.metrics import average_margins, count_participants, delong_covariance, placement_values
from ..schemas import to_json
from . import equations
from .messages import ALL, Answer, Arrays, Request, Terms, digest
from .model import SiteScore, build_model, fill_square
from .progress import Progress, Totals, add_up, follow, name_models

BEYOND = 10
"""Participants at or beyond every limit that leaves a site."""
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


class Site:
    """The scans of a site, as the method of a project reads them."""

    def __init__(self, terms: Terms, cohort: Cohort) -> None:
        self.method, self.terms = terms.make_method(), terms
        asked = relabel(cohort, terms.label, 0) if terms.label else cohort
        check_atlas(terms.make_atlas(), asked)
        check_classes(terms.classes, asked)
        self.cohort = asked.select(audit(asked).keep)
        sites = np.unique(self.cohort.sites)
        if len(sites) != 1:
            remedy = "make a cohort of each with 'brio select COHORT --where \"site == 'NAME'\"'"
            raise BrioError(f"{cohort.name}: has {format_count(len(sites), 'site')}, and one answers; {remedy}")
        self.name, self.label = str(sites[0]), self.cohort.labels
        self.connectomes = Connectomes(self.cohort)
        self.scans = np.arange(len(self.cohort))

    @cached_property
    def fc(self) -> np.ndarray:
        """Entries of the FC matrices, 0 for regions without signal. Shape [n, d]."""
        return read_edges(self.connectomes.full).double().cpu().numpy()

    @cached_property
    def live(self) -> np.ndarray:
        """Which edges have signal at both ends. Shape [n, d]."""
        return find_live_edges(self.connectomes.alive).cpu().numpy()

    @cached_property
    def plain(self) -> np.ndarray:
        """Features, 0 for edges of regions without signal. Shape [n, d]."""
        with full_precision():
            matrices = self.method.transform(self.connectomes.full)
        return np.where(self.live, read_edges(matrices).double().cpu().numpy(), 0.0)

    def read(self, totals: Totals) -> tuple[np.ndarray, np.ndarray]:
        """Read features less their mean over all sites, and labels of -1 or 1. Shapes [n, d] and [n]."""
        return np.where(self.live, self.plain, totals.fill) - totals.centre, 2.0 * self.label - 1.0

    def centre(self, totals: Totals) -> tuple[np.ndarray, np.ndarray]:
        """Centre features and labels within the site, or around their means over all sites."""
        x, y = self.read(totals)
        if self.method.site_intercepts:
            return x - x.mean(0), y - y.mean()
        return x, y - (2 * totals.share - 1)

    # ------------------------------------------------------------ what a site answers, one function for each round

    def require_enough(self, least: int) -> None:
        """Refuse a site with few participants of a class, whose numbers would be those of persons."""
        counts = [count_participants(self.cohort, self.scans[self.label == k]) for k in (0, 1)]
        if min(counts) < least:
            found = " and ".join(f"{n} {name}" for n, name in zip(counts, self.cohort.classes, strict=True))
            raise BrioError(f"{self.cohort.name}: has {found}; {least} participants of each class are needed to answer")

    def describe(self) -> tuple[Arrays, dict[str, Any]]:
        """Answer with counts, means and spreads of the scans; no label goes in but the number of each class."""
        facts = describe_scans(self.connectomes)
        counts = self.live.sum(0)
        frames = self.connectomes.n_frames
        length = 1.0
        if not self.connectomes.without_frames:
            sites = self.cohort.sites
            length = self.connectomes.estimate_block_length(self.scans, sites, self.label, BlockRule(), 0)
        sums = {
            "n": np.bincount(self.label, minlength=2),
            "features": self.plain.sum(0),
            "squares": (self.plain**2).sum(),
            "live": counts,
            "fc_means": np.where(self.live, self.fc, 0.0).sum(0) / np.maximum(counts, 1),
            "fc_sites": counts > 0,
            "block_length": np.array([len(self.scans) * length, len(self.scans)]),
            **{name: _sum_logs(facts[name].to_numpy()) for name in ("motion", "edge_sd")},
        }
        limits = {"frames": _find_limits(frames), "tr": _find_limits(facts["tr"].to_numpy())}
        return sums, limits | {"dead_rois": _find_limits(facts["dead_rois"].to_numpy())}

    def begin(self, totals: Totals, n_all: int) -> Arrays:
        """Answer with A_e'b_e and the model of the site alone, of length n_e / n."""
        A, b = self.centre(totals)
        labels = equations.multiply_labels(A, b)
        own = equations.solve_alone(A, labels, n_all, totals.penalty)
        mean = fill_square(totals.mean, self.cohort.n_rois)
        distance = measure_distances(self.connectomes, self.scans, mean[None])[:, 0]
        return {
            "labels": labels,
            "models": own / max(float(np.linalg.norm(own)), 1e-300) * len(A) / n_all,
            "distance": _sum_logs(distance),
        }

    def multiply(self, progress: Progress, n_all: int) -> Arrays:
        """Answer with A_e'A_e v for the newest direction v, the first time with the spread of margins besides."""
        A, _ = self.centre(progress.totals)
        sums = {"product": equations.multiply_vector(A, progress.directions[-1])}
        if len(progress.directions) == 1:
            margin = A @ self.leave_own_out(progress, n_all)
            sums["spread"] = np.array(equations.measure_spread(margin, self.label))
        return sums

    def solve(self, progress: Progress, n_all: int) -> Arrays:
        """Answer with the step that would solve the problem if all sites were like this one."""
        A, _ = self.centre(progress.totals)
        step = equations.solve_alone(A, progress.point.residual, n_all, progress.totals.penalty)
        return {"direction": step * len(A) / n_all}

    def leave_own_out(self, progress: Progress, n_all: int) -> np.ndarray:
        """Return the mean of the models of the other sites. Shape [d]."""
        others = progress.directions[0] - self.begin(progress.totals, n_all)["models"]
        return others * n_all / (n_all - len(self.scans))

    def describe_reading(self, request: Request, progress: Progress) -> Arrays:
        """Answer with what the final model reads of the scans, and how far its margins move between halves of a scan."""
        x, _ = self.read(progress.totals)
        margin = x @ progress.point.w
        model = build_model(request, progress)
        factor = learn_interval_factor(model, self.connectomes, self.scans)
        n = len(margin)
        return {"covariance": margin @ x, "variance": (margin**2).sum(), "halves": np.array([n * factor**2, n])}

    def score(self, progress: Progress, n_all: int, is_left_out: bool) -> dict[str, Any]:
        """Answer with the scores of a model that has not seen the site; margins themselves stay here.

        A model that leaves the site out is calibrated by the others and scored in full. The mean of the other sites'
        models has no calibration that labels of this site did not touch, so its order of the scans alone is scored.
        """
        w = progress.point.w if is_left_out else self.leave_own_out(progress, n_all)
        first, margin = average_margins(self.cohort, self.scans, self.read(progress.totals)[0] @ w)
        label = self.label[first]
        area, covariance = delong_covariance(label, placement_values(label, margin)[:, None])
        score = SiteScore(
            n_controls=int((label == 0).sum()),
            n_patients=int(label.sum()),
            auc=float(area[0]),
            variance=float(covariance[0, 0]),
            quantiles={
                str(q): float(np.quantile(margin, q)) for q in QUANTILES if min(q, 1 - q) * len(margin) >= BEYOND
            },
        )
        if is_left_out:
            slope, intercept = progress.calibrate()
            logit = slope * margin + intercept
            found = [value if np.isfinite(value) else None for value in fit_recalibration(label, logit)]
            score = replace(
                score,
                n_right=int(((logit > 0) == label).sum()),
                brier=float(((expit(logit) - label) ** 2).sum()),
                calibration=dict(zip(Recalibration._fields, found, strict=True)),
                spread=list(equations.measure_spread(margin, label)),
            )
        return to_json(score)


def answer(request: Request, cohort: Cohort, least_per_class: int = 10) -> Answer:
    """Answer a request from the scans of a site; :mod:`.record` checks whether the site has agreed to it.

    Parameters
    ----------
    request : Request
    cohort : Cohort
        Scans of one site, with labels.
    least_per_class : int
        Fewest participants of each class for which a site answers.

    Returns
    -------
    Answer
    """
    terms, asked = request.terms, request.asked
    site = Site(terms, cohort)
    site.require_enough(least_per_class)
    facts: dict[str, Any] = {}
    sums: dict[str, Arrays] = {}
    if asked == "describe":
        sums[ALL], facts = site.describe()
    elif site.name not in request.sites:
        raise BrioError(f"site '{site.name}' is not among those of the project: {', '.join(request.sites)}")
    for model in name_models(request) if asked != "describe" else ():
        rounds, left_out = request.shown[model], model == site.name
        n_all = request.n_all - (0 if model == ALL else sum(request.sites[model]))
        if asked == "begin":
            if not left_out:
                sums[model] = site.begin(add_up(terms, rounds[0]), n_all)
            continue
        progress = follow(terms, rounds)
        if asked == "score":
            if model == ALL:
                sums[model] = site.describe_reading(request, progress)
            if left_out or terms.evaluation == "site-models":
                facts = site.score(progress, n_all, left_out)
        elif not left_out:
            sums[model] = getattr(site, asked)(progress, n_all)
    return Answer(digest(request), request.round, site.name, facts, sums=sums)


def _sum_logs(values: np.ndarray) -> np.ndarray:
    """Return number, sum and sum of squares of the logarithms of known values."""
    logs = np.log(np.maximum(values[np.isfinite(values)].astype(float), 1e-6))
    return np.array([len(logs), logs.sum(), (logs**2).sum()])


def _find_limits(values: np.ndarray) -> list[float] | None:
    """Find the smallest and largest values that ten scans reach; none where fewer are known."""
    known = np.sort(values[np.isfinite(values)].astype(float))
    return [float(known[BEYOND - 1]), float(known[-BEYOND])] if len(known) >= BEYOND else None
