"""How a site answers requests from its scans."""

from typing import Any

import numpy as np
import torch
from scipy.special import expit

from ..cohort import Cohort, audit, relabel
from ..cohort.scans import index_participants, require_frames
from ..cohort.values import fold_value, means_sex, read_sex, write_value
from ..connectome import BlockRule, Connectomes, find_live_edges, read_edges, unfold_edges
from ..device import full_precision
from ..draws import draw_uniform
from ..errors import BrioError
from ..formatting import format_count
from ..models.fit import learn_interval_factor
from ..models.model import check_atlas
from ..models.ranges import measure_distances, sum_facts, sum_logs
from ..protocol.calibration import fit_recalibration
from ..protocol.metrics import average_margins, count_participants, delong_covariance, placement_values
from ..schemas import to_json
from . import equations
from .messages import ALL, FEWEST, Answer, Arrays, CalibratedScore, Request, SiteScore, Terms, digest, list_quantiles
from .model import build_model, make_project_method
from .progress import Progress

_MARKS, _PAIRS, _STEPS = 8, 16, 10
"""Marks of a connectome, pairs of regions in each, and steps that it tells apart between correlations of 0 and 1."""


class Site:
    """The scans of a site, in the form that the method of a project reads. Shapes: live, plain [n, d]."""

    def __init__(self, terms: Terms, cohort: Cohort, least_per_class: int = 10) -> None:
        require_frames(
            cohort.participants, cohort.name, "a model with prediction intervals, which come from re-estimates,"
        )
        self.method = make_project_method(terms)
        check_atlas(terms.make_atlas(), cohort)
        if cohort.atlas.is_unnamed:
            raise BrioError(
                f"{cohort.name}: its regions have no names, so their order cannot be checked; import the scans with "
                "--atlas-table and a table in the order of their columns"
            )
        asked = relabel(cohort, terms.label, 0) if terms.label else cohort
        _check_meaning(terms, asked)
        self.cohort = asked.select(audit(asked).keep & asked.labelled)
        self.label, self.scans = self.cohort.labels, np.arange(len(self.cohort))
        sites = np.unique(self.cohort.sites)
        if not len(sites):
            raise BrioError(
                f"{cohort.name}: has no labelled scan left after the audit; add labels, or see 'brio audit' for the "
                "excluded scans"
            )
        if len(sites) > 1:
            remedy = "make a cohort for each site with 'brio select COHORT --where \"site == 'NAME'\" --out COHORT2'"
            raise BrioError(f"{cohort.name}: has {len(sites)} sites, but each site answers for itself; {remedy}")
        self.name = str(sites[0])
        counts = [count_participants(self.cohort, self.scans[self.label == k]) for k in (0, 1)]
        if min(counts) < max(1, least_per_class):
            zero, one = asked.classes
            found = f"{format_count(counts[0], 'participant')} of class {zero} and {counts[1]} of {one}"
            raise BrioError(
                f"{cohort.name}: has {found}, but answers only with at least {least_per_class} of each class; "
                "add participants, or lower --least-per-class with the first answer"
            )
        self.connectomes = Connectomes(self.cohort)
        live = find_live_edges(self.connectomes.alive).cpu().numpy()
        for k in (0, 1):  # a sum over fewer participants of a class than the site has agreed to is left out
            first, member = index_participants(self.cohort.participant_ids[self.label == k])
            known = np.zeros((len(first), live.shape[1]), dtype=bool)
            np.logical_or.at(known, member, live[self.label == k])
            live = live & (known.sum(0) >= min(least_per_class, FEWEST))
        self.live = live
        with full_precision():
            features = self.method.transform(self.connectomes.full)
        self.plain = np.where(self.live, read_edges(features).double().cpu().numpy(), 0.0)

    def mark_scans(self) -> list[list[str]]:
        """Write marks of each connectome, some of which stay if frames are scaled or rounded again."""
        fc = read_edges(self.connectomes.full).cpu().numpy()
        order = np.argsort(draw_uniform("marks of a connectome", np.arange(fc.shape[1])))
        steps = np.rint(_STEPS * fc[:, np.resize(order, (_MARKS, _PAIRS))]).astype(int).tolist()
        return [[f"{k} {row}" for k, row in enumerate(rows)] for rows in steps]

    def answer(self, request: Request) -> Answer:
        """Answer a request."""
        counts, score = tuple(np.bincount(self.label, minlength=2).tolist()), None
        if request.round and (counted := request.sites.get(self.name)) != counts:
            listed = "does not list this site" if counted is None else f"lists {counted[0]} and {counted[1]}"
            zero, one = self.cohort.classes
            found = f"has {format_count(counts[0], 'scan')} of class {zero} and {counts[1]} of {one} at '{self.name}'"
            found += f", but the request {listed}"
            raise BrioError(f"{self.cohort.name}: {found}; give the scans with which the first request was answered")
        progress = {model: Progress(request.terms, rounds) for model, rounds in request.shown.items()}
        sums = {model: getattr(self, request.asked)(progress.get(model)) for model in request.list_answered(self.name)}
        if request.asked == "score":
            score = self.compare_labels(progress[self.name if request.terms.leaves_sites_out else ALL])
        return Answer(digest(request), request.round, self.name, score, sums)

    def read(self, progress: Progress) -> np.ndarray:
        """Read features minus their mean over all sites. Shape [n, d]."""
        return np.where(self.live, self.plain, progress.fill) - progress.centre

    def centre(self, progress: Progress) -> tuple[np.ndarray, np.ndarray]:
        """Centre features [n, d] and labels [n] within the site, or around their means over all sites."""
        x, y = self.read(progress), 2.0 * self.label - 1.0
        if self.method.site_intercepts:
            return x - x.mean(0), y - y.mean()
        return x, y - (2 * progress.share - 1)

    # ------------------------------------------------------------ what a site answers, one function for each round

    def describe(self, _: None = None) -> Arrays:
        """Answer with counts, means and spreads; labels enter the class counts and the choice of scans only."""
        counts, n = self.live.sum(0), len(self.scans)
        fc = read_edges(self.connectomes.full).double().cpu().numpy()
        length = self.connectomes.estimate_block_length(self.scans, self.cohort.sites, self.label, BlockRule(), 0)
        return {
            "n": np.bincount(self.label, minlength=2),
            "features": self.plain.sum(0),
            "live": counts,
            "squares": (self.plain**2).sum(),
            "fc_means": np.where(self.live, fc, 0.0).sum(0) / np.maximum(counts, 1),
            "fc_sites": counts > 0,
            "block_length": np.array([n * length, n]),
            "facts": sum_facts(self.connectomes),
        }

    def begin(self, progress: Progress) -> Arrays:
        """Answer with A_e'b_e and the model of the site alone, scaled by n_e / n."""
        A, b = self.centre(progress)
        labels = equations.multiply_labels(A, b)
        own = equations.solve_alone(A, labels, progress.n_all, progress.penalty)
        mean = unfold_edges(torch.from_numpy(progress.mean), self.cohort.n_rois)
        distance = measure_distances(self.connectomes, self.scans, mean[None])[:, 0]
        models = own / max(float(np.linalg.norm(own)), 1e-300) * len(A) / progress.n_all
        return {"labels": labels, "models": models, "distance": sum_logs(distance, self.cohort.participant_ids)}

    def multiply(self, progress: Progress) -> Arrays:
        """Answer with A_e'A_e v for the newest direction v."""
        return {"product": equations.multiply_vector(self.centre(progress)[0], progress.directions[-1])}

    def compare(self, progress: Progress) -> Arrays:
        """Answer with A_e'A_e v for the mean v of all models, and the spread of margins under other sites' models."""
        margin = self.centre(progress)[0] @ self.leave_own_out(progress)
        return self.multiply(progress) | {"spread": np.array(equations.measure_spread(margin, self.label))}

    def solve(self, progress: Progress) -> Arrays:
        """Answer with the step that would solve the problem if all sites were like this one."""
        A, _ = self.centre(progress)
        step = equations.solve_alone(A, progress.point.residual, progress.n_all, progress.penalty)
        return {"direction": step * len(A) / progress.n_all}

    def score(self, progress: Progress) -> Arrays:
        """Answer with sums for the patterns of the final model, and how margins differ between halves of scans."""
        x, n = self.read(progress), len(self.scans)
        margin = x @ progress.point.w
        factor = learn_interval_factor(build_model(progress), self.connectomes, self.scans)
        return {"covariance": margin @ x, "variance": (margin**2).sum(), "halves": np.array([n * factor**2, n])}

    def leave_own_out(self, progress: Progress) -> np.ndarray:
        """Return the mean of the models of the other sites. Shape [d]."""
        others = progress.directions[0] - self.begin(progress)["models"]
        return others * progress.n_all / (progress.n_all - len(self.scans))

    def compare_labels(self, progress: Progress) -> SiteScore:
        """Score a model that has not seen the site; the margins themselves do not leave the site.

        A model that leaves the site out is calibrated by the other sites and scored in full. For the mean of the other
        sites' models, no calibration is independent of the labels of this site, so only its ranking of the scans is
        scored.
        """
        calibrated, is_left_out = None, progress.terms.leaves_sites_out
        w = progress.point.w if is_left_out else self.leave_own_out(progress)
        first, margin = average_margins(self.cohort, self.scans, self.read(progress) @ w)
        label = self.label[first]
        auc, covariance = delong_covariance(label, placement_values(label, margin)[:, None])
        if is_left_out:
            slope, intercept = progress.calibrate()
            logit = slope * margin + intercept
            found: Any = (v if abs(v) <= equations.LARGEST else None for v in fit_recalibration(label, logit))
            calibrated = CalibratedScore(
                n_right=int(((logit > 0) == label).sum()),
                brier=float(((expit(logit) - label) ** 2).sum()),
                calibration=tuple(found),
                spread=equations.measure_spread(margin, label),
            )
        return SiteScore(
            n_controls=int((label == 0).sum()),
            n_patients=int(label.sum()),
            auc=float(auc[0]),
            variance=to_json(covariance[0, 0]),
            quantiles={q: float(np.quantile(margin, float(q))) for q in list_quantiles(len(margin))},
            calibrated=calibrated,
        )


def _check_meaning(terms: Terms, cohort: Cohort) -> None:
    """Refuse labels unless the classes have the names of a project, in its order; or are those of a comparison."""
    if terms.label and ">" in terms.label:  # each class may be called what it likes
        return
    column = (terms.label or "").partition("=")[0].strip()
    is_sex = means_sex(column) or all(map(read_sex, (*terms.classes, *cohort.classes)))
    for k, name in enumerate(terms.classes):
        meant = {fold_value(cohort.classes[k], is_sex)}
        if terms.label:
            written = set(map(write_value, cohort.participants[column][cohort.labels == k])) - {""}
            values = {fold_value(value, is_sex) for value in written}
            meant |= values if len(values) == 1 else set()
        if fold_value(name, is_sex) not in meant:
            found = f"label {k} is '{cohort.classes[k]}' here, but '{name}' in project '{terms.project}'"
            remedy = f"if they mean the same, import the scans with --class-names {','.join(terms.classes)}"
            if terms.label:
                remedy = "if they mean the same, write the same word in the table, and import again"
            raise BrioError(f"{cohort.name}: {found}; {remedy}")
