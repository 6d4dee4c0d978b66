"""What linear models share.

A run learns the features of its source scans, centres them and computes their inner products. Models are solved from
these products alone, for a grid of penalties. Validation scans or inner folds over source sites choose the penalty, and
inner folds calibrate the margins. For large cohorts, runs hold no copy of the features: the edges are stored once for
all runs.

The method comes first, then the choice of the penalty, the calibration and the algebra with Gram matrices. The sources
of the features come last: scans in memory, or stored edges.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from ... import training
from ...connectome import Connectomes, find_live_edges, read_edges
from ...console import Progress, silent
from ...device import full_precision
from ...errors import BrioError
from ...formatting import format_count
from ...machine import map_on_cores
from ...protocol import auc
from ...protocol.folds import assign_inner_folds
from ...settings import GridSize, Positive, require
from ...training import FittedRun, Method, Run, Scans, SourceScans, Tensors, TensorSpec


@dataclass(frozen=True)
class LinearSettings(training.MethodSettings):
    """Settings of a penalised linear model.

    Attributes
    ----------
    least_penalty, largest_penalty : float
        Smallest and largest penalty of the grid, in units of the mean squared norm of the centred features of a source
        scan, so that one grid suits every atlas and estimator.
    penalties : int
        Number of penalties in the grid, evenly spaced on a logarithmic scale. If several penalties have the same AUC,
        the strongest is chosen.
    choose_by : {"validation", "source-sites"}
        How the penalty is chosen: by the AUC on the validation scans, as in all other methods, or by the mean AUC over
        inner folds, each of which withholds one source site. Closed-form models are fast enough for inner folds, which
        are less noisy.
    dead_rois : {"source-mean", "zero"}
        Values for edges of an ROI without signal: the mean connectome of the source sites, or zero.
    """

    least_penalty: Positive = 0.1
    largest_penalty: Positive = 10.0
    penalties: GridSize = 5
    choose_by: Literal["validation", "source-sites"] = "validation"
    dead_rois: Literal["source-mean", "zero"] = "source-mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "at least least_penalty"
        require(self.largest_penalty >= self.least_penalty, "largest_penalty", self.largest_penalty, rule)

    @property
    def grid(self) -> np.ndarray:
        """Penalties to choose from, before they are scaled. Shape [penalties]."""
        return np.logspace(np.log10(self.least_penalty), np.log10(self.largest_penalty), self.penalties)


Fit = TypeVar("Fit")


class LinearMethod(Method):
    """A linear model on the features of a scan, by default the entries of its FC matrix. A subclass solves the dual."""

    settings: LinearSettings
    version = 3  # of penalties that score alike the strongest is chosen; since 2 probabilities are calibrated
    is_linear = True
    fits_on_cpu = True
    features_are_edges = False
    """Whether the features are the edges of FC matrices, except for ROIs without signal. Their products are then
    computed once for all folds."""
    feature_copies = 3
    """Number of copies of all edges in float64 that a run holds in memory at once, to estimate its memory."""
    most_decomposed: float = math.inf
    """Largest number of source scans for which the Gram matrix is decomposed or copied, not just multiplied."""
    uses_seed = True
    """Whether anything may depend on the seed. If not, runs whose folds hold the same scans share one solution. A
    subclass that draws random numbers must set it back to True."""
    features_use_labels = False
    """Whether features are learned from labels. Inner folds would then have seen the labels of their withheld site."""
    margins_are_log_odds = False
    """Whether margins are already log-odds of the classes. If not, probabilities are calibrated on inner folds."""
    site_intercepts = False
    """Whether each source site has its own intercept, which is not penalised. Features and labels are then centred
    within sites before :meth:`solve`, which is equivalent. Margins are calibrated on inner folds, because the
    intercepts of source sites do not apply to other sites."""
    edge_values = "Fisher z"
    """What the value of an edge is, for explanations; empty if features do not belong to edges."""
    beyond_edges = ""
    """What the margin consists of in addition to the edges, for explanations."""

    @property
    def can_store_edges(self) -> bool:
        """Whether the features are the edges of the matrices that :meth:`transform` returns."""
        return self.features_are_edges

    @property
    def needs_validation(self) -> bool:  # type: ignore[override]
        """Whether the penalty is chosen on validation scans."""
        return self.settings.choose_by == "validation"

    @property
    def facts(self) -> training.MethodFacts:
        """Facts that a job needs for planning and printing."""
        return training.MethodFacts(
            dead_rois=self.settings.dead_rois,
            setting_without_validation="choose_by=source-sites",
            holds="the mean and the coefficient of each feature, learned from all source scans",
            explains="coefficients of edges" if self.edge_values else "",
            uses_seed=self.uses_seed,
        )

    def transform(self, A: Tensor) -> Tensor:
        """Transform every FC matrix separately, [n, P, P] in and out, before features are learned or extracted.

        Edges of ROIs without signal are zero in the matrices that it returns.
        """
        return A

    def learn(self, source: SourceScans, scans: Any) -> Tensors:
        """Learn from the source scans what the features need; ``mean`` holds the values for edges without signal.

        Scans are :class:`Scans`, or the :class:`StoredEdges` of the whole cohort.
        """
        return {"mean": source.mean_connectome(self.settings.dead_rois).cpu()}

    def extract_features(self, scans: Scans, learned: Tensors) -> np.ndarray:
        """Extract the features of scans, here the entries of the FC matrix. Shape [n, d]."""
        return vectorise_fc(scans, learned["mean"])

    def learn_features(self, source: SourceScans, scans: Scans) -> tuple[Tensors, np.ndarray]:
        """Learn what the features need, and extract those of the source scans. Parameters as of :meth:`learn`."""
        learned = self.learn(source, scans)
        return learned, self.extract_features(scans, learned)

    def open_scans(self, connectomes: Connectomes, runs: Sequence[Run] = ()) -> OpenedScans:
        """Return the source of scans for runs: edges stored once, if the features of a run would be too large.

        A subclass may add data that its runs share.
        """
        if self.can_store_edges and StoredEdges.are_needed(len(connectomes), connectomes.n_rois):
            return StoredEdges((self.transform(A) for A in connectomes.full.split(1024)), connectomes.alive)
        return ScanReader(
            self.gather_inputs(connectomes), self.transform(connectomes.full), share_products=self.features_are_edges
        )

    def prepare_run(self, connectomes: Connectomes, opened: OpenedScans, run: Run) -> PreparedRun:
        """Learn the features of a run, centre those of its source scans, and scale the grid of penalties."""
        source = SourceScans.of_run(connectomes, run)
        rows: HeldRows | StoredRows
        if isinstance(opened, StoredEdges):
            learned = self.learn(source, opened)
            fill = learned["mean"] if learned["mean"].dim() == 1 else read_edges(learned["mean"])
            rows, gram = StoredRows.prepare(opened, source.scans, fill.double().numpy())
        else:
            learned, x = self.learn_features(source, opened(source.scans))
            centre = x.mean(0)
            if self.features_are_edges:
                gram = centre_gram(opened.multiply(source.scans, x), np.zeros(len(x)))
                x -= centre
            else:
                x = x - centre
                gram = x @ x.T
            rows = HeldRows(x, centre, lambda scans: self.extract_features(opened(scans), learned))
        penalties = self.settings.grid * max(np.trace(gram) / len(gram), 1e-9)  # features may all be constant
        inner_fold = assign_inner_folds(connectomes.cohort, run.fold, least_sites=2)  # sites, or fifths of one site
        group = source.site if self.site_intercepts else np.zeros(len(gram))
        return PreparedRun(source, learned, rows, gram, penalties, inner_fold, group)

    @abstractmethod
    def solve(self, gram: np.ndarray, y: np.ndarray, penalty: float) -> DualSolution:
        """Fit the model for one penalty. Shapes: gram [n, n], y [n]."""

    def solve_grid(self, prepared: PreparedRun, y: np.ndarray) -> list[DualSolution]:
        """Fit the model to all source scans for each penalty of the grid. Labels [n] of -1 or 1."""
        gram = prepared.gram
        if self.site_intercepts:
            gram, y = centre_gram(gram, prepared.group), centre_within(y, prepared.group)
        return [self.solve(gram, y, penalty) for penalty in prepared.penalties]

    def predict_inner_folds(self, prepared: PreparedRun, y: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        """Predict every source scan from the inner fold that withholds it, for each penalty.

        Closed-form models override this, because they need not fit every inner fold.

        Shapes: y [n], penalties [penalties]; returns [penalties, n].
        """
        margins = np.empty((len(penalties), len(y)))
        for inside, withheld in prepared.split_inner_folds():
            inner, across = prepared.centre_inner_fold(inside, withheld)
            for p, penalty in enumerate(penalties):
                margins[p, withheld] = across @ self.solve(inner, y[inside], penalty).weights
        return margins

    def solve_run(
        self, prepared: PreparedRun, y: np.ndarray, with_inner_folds: bool
    ) -> tuple[list[DualSolution], np.ndarray | None]:
        """Fit all source scans for each penalty, and predict inner folds if needed.

        Shapes: y [n]; returns margins [penalties, n].
        """
        solutions = self.solve_grid(prepared, y)
        return solutions, self.predict_inner_folds(prepared, y, prepared.penalties) if with_inner_folds else None

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        """Fit every run and score its test scans."""
        needed = self.estimate_run_bytes(len(connectomes), connectomes.n_rois)
        with full_precision():
            opened = self.open_scans(connectomes, runs)

            def fit_run(run: Run) -> FittedRun:
                return self._fit_run(connectomes, opened, run)

            fitted_runs = self.fit_distinct(fit_run, runs, needed, format_count(len(runs), "run"), progress)
        return [replace(fitted, run=run) for fitted, run in zip(fitted_runs, runs, strict=True)]

    def fit_distinct(
        self, fit_run: Callable[[Run], Fit], runs: Sequence[Run], bytes_each: float, message: str, progress: Progress
    ) -> list[Fit]:
        """Fit every run; runs with the same scans are fitted only once if nothing depends on the seed.

        Several runs are fitted at once, each on one core, if memory allows.
        """
        distinct: dict[tuple[object, ...], Run] = {}
        keys: list[tuple[object, ...]] = []
        for i, run in enumerate(runs):
            scans = (part.tobytes() for part in (run.fold.source, run.fold.validation, run.fold.test))
            keys.append((*scans, i if self.uses_seed else None))
            distinct.setdefault(keys[-1], run)
        to_fit = list(distinct.values())

        def report(position: int) -> None:
            progress(f"{message}, fold {to_fit[position].fold.name}", position / len(to_fit))

        fitted = dict(zip(distinct, map_on_cores(fit_run, to_fit, report=report, bytes_each=bytes_each), strict=True))
        return [fitted[key] for key in keys]

    def _fit_run(self, connectomes: Connectomes, opened: OpenedScans, run: Run) -> FittedRun:
        """Learn features, choose the penalty, and score the test scans of one run."""
        fold, prepared = run.fold, self.prepare_run(connectomes, opened, run)
        label, penalties, inner_fold = prepared.source.label, prepared.penalties, prepared.inner_fold
        y = 2.0 * label - 1.0
        validation_label = connectomes.cohort.labels[fold.validation]
        by_sites = self.settings.choose_by == "source-sites"
        solutions, inner = self.solve_run(prepared, y, by_sites or self.site_intercepts)
        inner_auc = np.empty(0) if inner is None else average_site_auc(inner, label, inner_fold)
        validation_auc = inner_auc
        if len(validation_label) and (not by_sites or len(np.unique(validation_label)) == 2):
            across = prepared.rows.multiply(fold.validation)
            validation_auc = np.array([auc(validation_label, across @ solution.weights) for solution in solutions])
        scores = inner_auc if by_sites else validation_auc
        best = int(choose_penalty(scores, penalties, self.settings.choose_by, fold.name))
        slope, intercept = 1.0, solutions[best].intercept
        details: dict[str, Any] = {"penalty": float(penalties[best])}
        if self.site_intercepts and inner is not None:
            slope, intercept = fit_calibration(inner[best], label, inner_fold).tolist()
        elif not self.features_use_labels and not self.margins_are_log_odds:
            chosen = penalties[best : best + 1]
            margin = self.predict_inner_folds(prepared, y, chosen)[0] if inner is None else inner[best]
            a, b = fit_calibration(margin, label, inner_fold).tolist()
            details["calibration"] = [a, b - a * intercept]  # inner margins have no intercept
        coefficients = prepared.rows.combine(slope * solutions[best].weights)
        return FittedRun(
            run=run,
            test_logit=prepared.rows.project(fold.test, coefficients) + intercept,
            validation_auc=float(validation_auc[best]),
            details=details,
            state=training.RunState.from_learned(**prepared.learned),
            parameters={
                "centre": torch.from_numpy(prepared.rows.centre),
                "coefficients": torch.from_numpy(coefficients),
                "intercept": torch.tensor(intercept, dtype=torch.float64),
            },
        )

    def declare_tensors(self, n_rois: int) -> dict[str, TensorSpec]:
        """Declare centre and coefficient of each feature, the intercept, and what the features need."""
        if self.changes_after("declare_features", "learn"):
            learned = {"features": TensorSpec(("features",)), "*": training.ANY_TENSOR}
        else:
            learned = self.declare_features(n_rois)
        d = learned.pop("features").shape
        return {
            "parameters.centre": TensorSpec(d),
            "parameters.coefficients": TensorSpec(d),
            "parameters.intercept": TensorSpec(()),
        } | {f"learned.{name}": spec for name, spec in learned.items()}

    def declare_features(self, n_rois: int) -> dict[str, TensorSpec]:
        """Declare what :meth:`learn` returns, and under ``features`` the axis of the features."""
        return {"features": TensorSpec((n_rois * (n_rois - 1) // 2,)), "mean": TensorSpec((n_rois, n_rois))}

    def predict(self, fitted: FittedRun, scans: Scans) -> training.Prediction:
        """Predict margins; the representation is the centred features."""
        p = fitted.parameters
        with full_precision():  # as in fit
            features = self.extract_features(scans._replace(A=self.transform(scans.A)), fitted.state.learned)
            centred = features - p["centre"].double().numpy()
        margin = project_rows(centred, p["coefficients"].double().numpy()) + float(p["intercept"])
        return training.Prediction(margin, centred)

    def explain(self, fitted: FittedRun) -> training.Explanation | None:
        """Return the coefficient of each edge."""
        if not self.edge_values:
            return None
        coefficients = self.pick_edges(fitted.parameters["coefficients"].double().numpy(), fitted.state.learned)
        return training.Explanation(self.edge_values, coefficients, self.beyond_edges)

    def read_explained(self, fitted: FittedRun, scans: Scans) -> training.ExplainedScans:
        """Read margins and values of edges."""
        margin, features = self.predict(fitted, scans)
        return training.ExplainedScans(margin, self.pick_edges(features, fitted.state.learned))

    def pick_edges(self, features: np.ndarray, learned: Tensors) -> np.ndarray:
        """Pick the features that belong to edges. Shape [..., d] -> [..., edges]."""
        return features

    def estimate_fit_bytes(self, n_scans: int, n_rois: int) -> float:
        """Estimate the memory of a fit: that of a run and, if edges are stored, of the edges and their products."""
        own = self.estimate_run_bytes(n_scans, n_rois)
        if not (self.can_store_edges and StoredEdges.are_needed(n_scans, n_rois)):
            return own
        return own + 4.0 * n_scans * (n_rois * (n_rois - 1) // 2) + 8.0 * n_scans**2

    def estimate_run_bytes(self, n_scans: int, n_rois: int, decomposed: bool = False) -> float:
        """Estimate the memory of one run: copies of its features, and of its Gram matrix."""
        stored = self.can_store_edges and StoredEdges.are_needed(n_scans, n_rois)
        features = READ_BYTES if stored else 8.0 * self.feature_copies * n_scans * n_rois**2 / 2
        n_decomposed = n_scans if decomposed or not stored else min(n_scans, self.most_decomposed)
        return features + 8.0 * max(6.0 * n_decomposed**2, 1.5 * n_scans**2)


class DualSolution(NamedTuple):
    """A linear model in terms of its source scans: margin = k(x, source) @ weights + intercept."""

    weights: np.ndarray  # [n] one for each source scan
    intercept: float


@dataclass(frozen=True)
class PreparedRun:
    """What a fit needs from the source scans of a run, whatever their labels.

    Shapes: gram [n, n], penalties [penalties], inner_fold [n], group [n].
    """

    source: SourceScans  # n scans
    learned: Tensors  # what their features needed
    rows: HeldRows | StoredRows  # centred features
    gram: np.ndarray  # their products
    penalties: np.ndarray  # the grid in units of the mean squared norm of the features
    inner_fold: np.ndarray
    group: np.ndarray  # which intercept a scan has: that of its site, or the same for all scans

    @cached_property
    def eigen(self) -> KernelEigen:
        """Eigenvectors of the Gram matrix, centred within groups."""
        return KernelEigen.of_kernel(self.gram, self.group)

    def split_inner_folds(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Positions of the scans that each inner fold is fitted to, and of those that it withholds."""
        for k in np.unique(self.inner_fold):
            yield np.flatnonzero(self.inner_fold != k), np.flatnonzero(self.inner_fold == k)

    def centre_inner_fold(self, inside: np.ndarray, withheld: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Centre the features on the scans that an inner fold is fitted to.

        Shapes: inside, withheld [n_inside] and [n_withheld]; returns inner [n_inside, n_inside], across [n_withheld,
        n_inside].
        """
        inner = self.gram[np.ix_(inside, inside)]
        row, total = inner.mean(0), inner.mean()
        across = self.gram[np.ix_(withheld, inside)]
        across = across - across.mean(1, keepdims=True) - row + total
        return inner - row - row[:, None] + total, across


def choose_penalty(scores: np.ndarray, penalties: np.ndarray, chosen_on: str, fold_name: str) -> np.ndarray:
    """Choose the penalty with the highest score; if several tie, the strongest, which gives the simplest model.

    ``chosen_on`` states what the scores are computed on: the validation scans, or inner folds over source sites.

    Shapes: scores [penalties] or [penalties, B], penalties [penalties]; returns [] or [B].
    """
    if np.isnan(scores).all(axis=0).any():
        raise BrioError(f"fold {fold_name}: {_WITHOUT_AUC[chosen_on]}")
    from_strongest = np.argsort(-penalties, kind="stable")
    return from_strongest[np.nanargmax(scores[from_strongest], axis=0)]


_WITHOUT_AUC = {
    "validation": "the validation scans have only one class, so no penalty can be chosen; reduce protocol.n_folds, or "
    "set choose_by=source-sites",
    "source-sites": "a source site has only one class, so its inner fold has no AUC and no penalty can be chosen; "
    "exclude the site, or choose on validation scans (choose_by=validation)",
}


LEAST_SLOPE = 0.1
"""Lower bound of the slope: if inner folds show no separation, logits are small, but keep their sign."""


def fit_calibration(f: np.ndarray, label: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Fit slope and intercept of the logit.

    The slope is that of a logistic regression on margins centred within each site, because it would otherwise be
    dominated by offsets between a few sites. If these margins separate the classes perfectly, the likelihood has no
    maximum; labels are then softened as in Platt (1999). The intercept makes the mean probability equal the share of
    patients among the source scans.

    Shapes: f [n], label [n], site [n]; returns [2].
    """
    from scipy.optimize import brentq
    from sklearn.linear_model import LogisticRegression

    centred, patient = centre_within(f, site), label == 1
    if centred[patient].min() < centred[~patient].max():
        fitted = LogisticRegression(C=1e6).fit(centred[:, None], patient)
    else:
        soft = np.where(patient, (patient.sum() + 1) / (patient.sum() + 2), 1 / ((~patient).sum() + 2))
        both, weights = np.repeat([1, 0], len(f)), np.concatenate([soft, 1 - soft])
        fitted = LogisticRegression(C=1e6, tol=1e-9).fit(np.tile(centred, 2)[:, None], both, weights)
    slope = max(LEAST_SLOPE, float(fitted.coef_[0, 0]))

    def excess_probability(intercept: float) -> float:
        return float(expit(slope * f + intercept).mean() - label.mean())

    bound = slope * np.abs(f).max() + 50.0
    return np.array([slope, brentq(excess_probability, -bound, bound)])


def average_site_auc(margins: np.ndarray, label: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Compute the mean over sites of the AUC within the site.

    Shapes: margins [k, n], label [n], site [n]; returns [k].

    Returns NaN if a site has only one class.
    """
    members = [site == e for e in np.unique(site)]
    # margins of inner folds are labels (-1 or 1) less their residuals, so they are right to the last bits of a label
    return np.mean([[auc(label[m], margin[m], scale=1.0) for margin in margins] for m in members], axis=0)


class KernelEigen(NamedTuple):
    """A kernel ridge regression with unpenalised intercepts: one eigendecomposition for all penalties and labels.

    Kernel and labels are centred within groups of scans that share an intercept. With the centred kernel K and
    H = (K + penalty I)^-1, the weights of the scans are w = H y.

    Shapes: size [n], axes [n, n], group [n].
    """

    size: np.ndarray  # eigenvalues of K
    axes: np.ndarray  # eigenvectors, one per column
    group: np.ndarray  # which intercept a scan has: that of its site, or the same for all scans

    @staticmethod
    def of_kernel(kernel: np.ndarray, group: np.ndarray) -> KernelEigen:
        """Decompose the kernel [n, n] of scans with the intercepts of groups [n]."""
        size, axes = np.linalg.eigh(centre_gram(kernel, group))
        return KernelEigen(size.clip(0.0), axes, group)

    def rotate(self, y: np.ndarray) -> np.ndarray:
        """Centre labels within groups and rotate them to the axes. Shape [n] or [n, c], as the result."""
        return self.axes.T @ centre_within(y, self.group)

    def rotate_part(self, values: np.ndarray, scans: np.ndarray) -> np.ndarray:
        """Rotate values of some scans, 0 for all others, to the axes. Shapes [m] and [m] -> [n]."""
        if np.isin(self.group, self.group[scans]).sum() == len(scans):
            return self.axes[scans].T @ values  # residuals of whole groups are centred already
        padded = np.zeros(len(self.group))
        padded[scans] = values
        return self.rotate(padded)

    def solve(self, rotated: np.ndarray, penalty: float) -> np.ndarray:
        """Compute H y from rotated labels. Shape [n] or [n, c], as the result."""
        return self.axes @ (rotated.T * (1.0 / (self.size + penalty))).T

    def find_residuals(self, weights: np.ndarray, withheld: np.ndarray, penalty: float) -> np.ndarray:
        """Find the difference between the labels of withheld scans and their predictions by a fit to all other scans.

        No fit is repeated. Without the scans e the weights are w - G_e v, where G maps labels to weights, G_e are its
        columns, and the residuals v solve G_ee v = w_e (An, Liu & Venkatesh, Pattern Recognition 2007).

        Shapes: weights [n] or [n, c], withheld [m]; returns [m] or [m, c].
        """
        axes, group = self.axes[withheld], self.group[withheld]
        block = (axes * (1.0 / (self.size + penalty))) @ axes.T
        for name in np.unique(group):
            here, members = group == name, (self.group == name).sum()
            if here.sum() < members:
                # G is H without the directions of intercepts. Those of whole groups stay, or no v would be the only one
                block[np.ix_(here, here)] -= 1.0 / (penalty * members)
        return np.linalg.solve(block, weights[withheld])


def centre_gram(gram: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Compute the products of features that are centred within groups of scans.

    Shapes: gram [n, n], group [n]; returns [n, n].
    """
    return centre_within(centre_within(gram, group).T, group)


def centre_within(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Subtract from each row the mean row of its group. Shapes: values [n, ...], group [n]; returns [n, ...]."""
    centred = values.astype(np.float64)
    for name in np.unique(group):
        centred[group == name] -= centred[group == name].mean(0)
    return centred


def project_rows(x: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Compute the product of the features of each scan with coefficients. Shapes [m, d] and [d] -> [m].

    Scans with equal features get equal products, so that the AUC counts them as a tie. A matrix product would not
    ensure this, because the order of its sums depends on the row.
    """
    return (x * coefficients).sum(1)


def vectorise_fc(scans: Scans, mean: Tensor) -> np.ndarray:
    """Read the upper triangle of the FC matrices, with edges of ROIs without signal filled in.

    Shapes: mean [P, P]; returns [n, P (P - 1) / 2].
    """
    edges, filled = read_edges(scans.A).double(), (scans.alive <= 0).any(-1)
    live = find_live_edges(scans.alive[filled])
    edges[filled] = torch.where(live, edges[filled], read_edges(mean.to(scans.A)).double())
    return edges.cpu().numpy()


class ScanReader:
    """Scans of a cohort by position, and products of their edges, which all runs share.

    Nothing here is learned: an entry depends on its own scans alone. Scans are held in main memory even if the job uses
    a GPU, because runs are fitted on the CPU.

    Shapes: matrices [N, P, P].
    """

    def __init__(self, inputs: training.Inputs, matrices: Tensor, share_products: bool = False) -> None:
        everyone = torch.arange(len(matrices), device=matrices.device)
        self._scans = inputs.take(everyone, matrices).map(Tensor.cpu)
        self._products = None
        if share_products:  # on one core, since the order of sums depends on how many there are
            x = read_edges(self._scans.A).double().numpy()
            (self._products,) = map_on_cores(lambda edges: edges @ edges.T, [x])

    def __call__(self, scans: np.ndarray) -> Scans:
        """Take scans by position [n]."""
        index = torch.from_numpy(scans)
        return self._scans.map(lambda t: t[index])

    def multiply(self, scans: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Compute the products of the features of scans with each other.

        Shapes: scans [n], x [n, d]; returns [n, n].
        """
        if self._products is None:
            return x @ x.T
        gram = self._products[np.ix_(scans, scans)]
        filled = np.flatnonzero(~self._scans.alive.numpy()[scans].all(1))
        across = x @ x[filled].T
        gram[:, filled], gram[filled] = across, across.T
        return gram


@dataclass(frozen=True)
class HeldRows:
    """The centred features of the source scans of a run, held in memory. Shapes: x [n, d], centre [d]."""

    x: np.ndarray  # centred features
    centre: np.ndarray  # mean of the features
    read: Callable[[np.ndarray], np.ndarray]

    def multiply(self, scans: np.ndarray) -> np.ndarray:
        """Compute the products of the centred features of scans [m] with those of the source scans. Shape [m, n]."""
        return (self.read(scans) - self.centre) @ self.x.T

    def combine(self, weights: np.ndarray) -> np.ndarray:
        """Compute the sum of the centred features, each source scan with its weight. Shape [n] -> [d]."""
        return self.x.T @ weights

    def project(self, scans: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """Compute the products of the centred features of scans [m] with coefficients [d]. Shape [m]."""
        return project_rows(self.read(scans) - self.centre, coefficients)


HELD_BYTES = 1 << 30
"""Up to this size in bytes of a cohort's features in float64, a run holds its own copy, which is faster."""


PORTION_BYTES = 1 << 24
"""Bytes of features in float64 that are read at once if they are not held in memory; few enough for caches."""


_BLOCK_SCANS, _BLOCK_EDGES = 1024, 1024
"""Sizes of one product. Sums over more edges would lose precision, because a product is summed in float32."""


_FILLED_PORTIONS = 16  # of rows with filled edges are multiplied at once: all other rows are read again for each


READ_BYTES = 4 * _FILLED_PORTIONS * PORTION_BYTES
"""Approximate memory for portions of features that are read and multiplied."""


class StoredEdges:
    """Edges of all scans of a cohort, and their products.

    Nothing here is learned: an entry depends on its own scans alone.

    Shapes: matrices [m, P, P], alive [N, P].
    """

    def __init__(self, matrices: Iterable[Tensor], alive: Tensor) -> None:
        self._alive = alive.cpu()
        self._complete = self._alive.all(1).numpy()
        n, n_rois = alive.shape
        self.n_edges, end = n_rois * (n_rois - 1) // 2, 0
        for part in matrices:
            edges = read_edges(part).cpu().numpy()
            if end == 0:
                self._edges = np.empty((n, self.n_edges), dtype=edges.dtype)
            self._edges[end : end + len(edges)] = edges
            end += len(edges)
        self._products = _multiply_rows(self._edges)

    @staticmethod
    def are_needed(n_scans: int, n_rois: int) -> bool:
        """Whether the features of a cohort are too large for each run to hold a copy."""
        return 8 * n_scans * (n_rois * (n_rois - 1) // 2) > HELD_BYTES

    def read(self, scans: np.ndarray, fill: np.ndarray) -> np.ndarray:
        """Read the edges of scans, with those of ROIs without signal filled in.

        Shapes: scans [m], fill [d]; returns [m, d].
        """
        x = self._edges[scans].astype(np.float64)
        for row in np.flatnonzero(~self._complete[scans]):
            x[row] = np.where(self._find_live(scans[row]), x[row], fill)
        return x

    def iterate(self, scans: np.ndarray, fill: np.ndarray, portions: int = 1) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield, part by part, which of the scans were read, and their edges as read by :meth:`read`.

        Shapes: scans [m], fill [d]; returns x [k, d].
        """
        size = max(1, portions * PORTION_BYTES // (8 * self.n_edges))
        for first in range(0, len(scans), size):
            part = slice(first, first + size)
            yield part, self.read(scans[part], fill)

    def multiply(self, rows: np.ndarray, columns: np.ndarray, fill: np.ndarray) -> np.ndarray:
        """Compute the products of edges of scans, with those of ROIs without signal filled in.

        Shapes: rows, columns [m] and [n], fill [d]; returns [m, n].
        """
        products = self._products[np.ix_(rows, columns)]
        self._multiply_filled(products, rows, columns, fill)
        if rows is columns:
            filled = np.flatnonzero(~self._complete[rows])
            products[:, filled] = products[filled].T
        else:
            self._multiply_filled(products.T, columns, rows, fill)
        return products

    def average_live(self, scans: np.ndarray) -> np.ndarray:
        """Compute the mean of each edge over the scans in which both of its ROIs have signal; 0 if there are none.

        Shapes: scans [m]; returns [d].
        """
        total = np.zeros(self.n_edges)
        count = np.full_like(total, self._complete[scans].sum())
        for _, x in self.iterate(scans, np.zeros_like(total)):
            total += x.sum(0)
        for scan in scans[~self._complete[scans]]:
            count += self._find_live(scan)
        return total / np.maximum(count, 1.0)

    def _find_live(self, scan: int) -> np.ndarray:
        """Which edges of a scan have signal at both ends. Shape [d]."""
        return find_live_edges(self._alive[scan]).numpy()

    def _multiply_filled(self, products: np.ndarray, rows: np.ndarray, columns: np.ndarray, fill: np.ndarray) -> None:
        """Replace the products of rows that have filled edges."""
        filled = np.flatnonzero(~self._complete[rows])
        for part, x in self.iterate(rows[filled], fill, _FILLED_PORTIONS):
            for other, y in self.iterate(columns, fill):
                products[filled[part], other] = x @ y.T


def _multiply_rows(x: np.ndarray) -> np.ndarray:
    """Compute x x' in blocks, on all cores; sums over many edges are in float64. Shape [n, d] -> [n, n]."""
    products = np.empty((len(x), len(x)))
    firsts = range(0, len(x), _BLOCK_SCANS)

    def multiply(pair: tuple[int, int]) -> None:
        i, j = (slice(first, first + _BLOCK_SCANS) for first in pair)
        block = products[i, j]
        block[:] = 0.0
        for first in range(0, x.shape[1], _BLOCK_EDGES):
            edges = slice(first, first + _BLOCK_EDGES)
            block += x[i, edges] @ x[j, edges].T
        products[j, i] = block.T

    map_on_cores(multiply, [(i, j) for i in firsts for j in firsts if j <= i])
    return products


@dataclass(frozen=True)
class StoredRows:
    """The features of the source scans of a run, as rows of stored edges minus their mean.

    Shapes: scans [n], fill [d], centre [d], along_centre [n].
    """

    stored: StoredEdges
    scans: np.ndarray  # positions of the source scans
    fill: np.ndarray  # what the run fills the edges of ROIs without signal with
    centre: np.ndarray  # mean of the features
    along_centre: np.ndarray  # products of the features with their mean

    @classmethod
    def prepare(cls, stored: StoredEdges, scans: np.ndarray, fill: np.ndarray) -> tuple[StoredRows, np.ndarray]:
        """Centre the features of source scans, and compute the products of the centred features.

        Shapes: scans [n], fill [d]; returns gram [n, n].
        """
        gram = stored.multiply(scans, scans, fill)
        along_centre = gram.mean(0)
        gram -= along_centre - along_centre.mean()  # in place: a copy would be as large as all other memory of a run
        gram -= along_centre[:, None]
        centre = np.zeros(len(fill))
        for _, x in stored.iterate(scans, fill):
            centre += x.sum(0) / len(scans)
        return cls(stored, scans, fill, centre, along_centre), gram

    def multiply(self, scans: np.ndarray) -> np.ndarray:
        """Compute the products of the centred features of scans [m] with those of the source scans. Shape [m, n]."""
        across = self.stored.multiply(scans, self.scans, self.fill)
        across -= across.mean(1, keepdims=True)
        across -= self.along_centre - self.along_centre.mean()
        return across

    def combine(self, weights: np.ndarray) -> np.ndarray:
        """Compute the sum of the centred features, each source scan with its weight. Shape [n] -> [d]."""
        total = -weights.sum() * self.centre
        for part, x in self.stored.iterate(self.scans, self.fill):
            total += weights[part] @ x
        return total

    def project(self, scans: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """Compute the products of the centred features of scans [m] with coefficients [d]. Shape [m]."""
        products = np.empty(len(scans))
        for part, x in self.stored.iterate(scans, self.fill):
            products[part] = project_rows(x, coefficients)
        return products - self.centre @ coefficients


OpenedScans: TypeAlias = ScanReader | StoredEdges
"""Sources from which the runs of a fit read scans."""
