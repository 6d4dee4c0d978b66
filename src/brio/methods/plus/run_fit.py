"""The fit of one run of BRIO plus, from its source scans to its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ... import draws
from ...connectome import Connectomes, source_mean
from ...errors import BrioError
from ...protocol import auc
from ...training import FittedRun, Run, RunState, SourceScans
from ...training.cells import cell_average_weights
from ..brio.qualification import Qualification, qualify
from ..linear.calibration import fit_calibration
from ..linear.penalty_choice import choose_penalty
from ..linear.ridge import solve_ridge
from ..linear.sites import average_site_auc, centre_gram, centre_within, predict_withheld_sites
from .factors import FactorSpace, assign_rois
from .model import FactorModel
from .penalties import Changes, PenalisedKernels, penalise_kernels
from .settings import BrioPlusSettings
from .views import VIEWS, ReestimatedEdges

__all__ = ["RunFit"]


class _Space(NamedTuple):
    """What is learned from the source scans under one view, before the penalty on changes."""

    centre: Tensor  # [edges]
    x: Tensor  # [n, edges] centred, 0 without signal
    factors: FactorSpace
    K: Tensor  # [J, n, n] kernels of the factors
    points: Tensor  # [J, n, d_t] coordinates
    inner_f: np.ndarray  # [penalties, n] f of the source scans, each from the inner fold that withholds its site
    inner_auc: np.ndarray  # [penalties] its mean AUC over source sites


class _Solution(NamedTuple):
    model: FactorModel  # not calibrated yet
    penalty: float
    inner_f: np.ndarray  # [n] f of the source scans, each from the inner fold that withholds its site
    inner_auc: float  # mean over source sites
    squared_norm: Tensor  # [J] of each factor's part of f


def _choose_precision(edges: Tensor) -> torch.dtype:
    """Precision of products over edges: that of the edges. A GPU multiplies as fast in float64."""
    return torch.float64 if edges.is_cuda else edges.dtype


class RunFit:
    """The fit of one run. The view is chosen at once; :meth:`fit` needs re-estimates under it.

    Parameters
    ----------
    settings : BrioPlusSettings
    connectomes : Connectomes
        Of the whole cohort.
    run : Run
    views : dict of Tensor, shape [scans, edges]
        Edges of the whole cohort under each view to choose from.
    live : Tensor of bool, shape [scans, edges]
        Edges whose two ends have signal.

    Attributes
    ----------
    view : str
        The chosen view.

    Raises
    ------
    BrioError
        If a source site lacks a class.
    """

    def __init__(
        self,
        settings: BrioPlusSettings,
        connectomes: Connectomes,
        run: Run,
        views: Mapping[str, Tensor],
        live: Tensor,
    ) -> None:
        self.s, self.run, self.source = settings, run, SourceScans.of_run(connectomes, run)
        self.live, self.own_weight = live, settings.rho / settings.J
        site, label = self.source.site, self.source.label
        if any(len(np.unique(label[site == e])) < 2 for e in np.unique(site)):
            raise BrioError(f"fold {run.fold.name}: 'brio-plus' needs both classes at every source site")
        self.inner_fold = self.source.assign_inner_folds(run.fold)
        self.y = 2.0 * label - 1.0
        self.row_of_scan = np.full(len(connectomes), -1)  # -1 for scans that are no source scans of this run
        self.row_of_scan[self.source.scans] = np.arange(len(self.source.scans))
        mean = source_mean([connectomes.site_mean(members) for members in self.source.by_site()])
        self.Pi = assign_rois(mean, settings.J, settings.temperature, settings.assignment_iterations, run.seed).double()
        self.view_auc: dict[str, float] = {}
        for view, edges in views.items():
            space = self._learn_space(edges)
            self.view_auc[view] = float(space.inner_auc.max())
            if self.view_auc[view] == max(self.view_auc.values()):
                self.view, self.edges, self.space = view, edges, space
        self.centre, self.x, self.factors, self.K, self.points = self.space[:5]

    def fit(self, block_length: float, reestimates: ReestimatedEdges) -> FittedRun:
        """Solve without the penalty, to describe the factors, then with it; calibrate and score.

        Parameters
        ----------
        block_length : float
            Fold-level block length of the re-estimates, stored with the fitted run.
        reestimates : ReestimatedEdges
            Of the source scans, and perhaps others, under the chosen view.
        """
        solution = self._solve(None, self.space.inner_f, self.space.inner_auc)
        described, r = self._qualify_factors(solution, reestimates)
        if self.s.lambda_re:
            changes = self._sketch_changes(reestimates, r)
            penalised = penalise_kernels(
                self.K, changes, self.x, self.factors, self.points, self.own_weight, _choose_precision(self.edges)
            )
            solution = self._solve((changes, penalised), *self._predict_inner_folds(penalised.K))
        return self._score(solution, described, block_length)

    def _learn_space(self, edges: Tensor) -> _Space:
        """Centre the source scans under a view, learn the factors, and score the inner folds."""
        scans = torch.from_numpy(self.source.scans).to(edges.device)
        x, live = edges[scans].double(), self.live[scans]
        centre = torch.where(live, x, 0.0).sum(0) / live.sum(0).clamp_min(1)
        x = torch.where(live, x - centre, 0.0)
        factors, K, points = FactorSpace.learn(x, self.Pi, self.s.d_t, _choose_precision(edges))
        if self.own_weight:
            K = K + self.own_weight * factors.kernel(points, points)
        return _Space(centre, x, factors, K, points, *self._predict_inner_folds(K))

    def _predict_inner_folds(self, K: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """f of the source scans from inner folds [penalties, n], and its mean AUC over sites [penalties]."""
        gram = K.sum(0).cpu().numpy()
        margins = predict_withheld_sites(gram, self.y, self.source.site, self.s.grid, self.inner_fold)
        return margins, average_site_auc(margins, self.source.label, self.inner_fold)

    def _solve(
        self, penalised: tuple[Changes, PenalisedKernels] | None, inner_f: np.ndarray, inner_auc: np.ndarray
    ) -> _Solution:
        """Solve with the ridge penalty that has the best mean AUC over inner folds."""
        best = int(choose_penalty(inner_auc, self.s.grid, "source-sites", self.run.fold.name))
        site = self.source.site
        K = self.K if penalised is None else penalised[1].K
        gram, penalty = centre_gram(K.sum(0).cpu().numpy(), site), float(self.s.grid[best])
        alpha = torch.from_numpy(solve_ridge(gram, centre_within(self.y, site), penalty).weights).to(self.x)
        squared_norm = torch.einsum("n,jnm,m->j", alpha, K, alpha).clamp_min(0)
        model = self._build_model(alpha, penalised)
        return _Solution(model, penalty, inner_f[best], float(inner_auc[best]), squared_norm)

    def _build_model(self, alpha: Tensor, penalised: tuple[Changes, PenalisedKernels] | None) -> FactorModel:
        """Build the model of a solution, not calibrated yet: its logit is f."""
        edges = (alpha @ self.x).expand(self.s.J, -1)
        weight = pad(alpha, (self.points.shape[1] - len(self.x), 0)).expand(self.s.J, -1)
        if penalised is not None:
            changes, kernels = penalised
            removed = kernels.removed @ alpha  # [J, rows]
            edges, weight = edges - removed @ changes.edges, weight - removed @ changes.points
        return FactorModel(
            view=torch.tensor(float(list(VIEWS).index(self.view))),
            centre=self.centre,
            factors=self.factors,
            theta=edges * self.factors.shares / self.factors.scale,
            points=self.points,
            beta=self.own_weight * weight,
            calibration=torch.tensor([1.0, 0.0]).to(self.x),
        )

    def _iterate_reestimates(self, reestimates: ReestimatedEdges) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows of source scans [n], and their re-estimates, centred [n, K, edges], part by part."""
        for scans, edges in reestimates:
            row = self.row_of_scan[scans]
            if (row < 0).all():  # a part with scans of other runs alone
                continue
            is_source = torch.from_numpy(row >= 0).to(edges.device)
            live = self.live[torch.from_numpy(scans[row >= 0]).to(edges.device)]
            x = torch.where(live.unsqueeze(1), edges[is_source].double() - self.centre, 0.0)
            yield torch.from_numpy(row[row >= 0]).to(edges.device), x

    def _sketch_changes(self, reestimates: ReestimatedEdges, r: Tensor) -> Changes:
        """Combine the changes between scans and re-estimates at random, so that squares are the same on average.

        The re-estimates, with their coordinates r [J, n, K, d_t], become points of the factors' own kernels, before
        the source scans.
        """
        s, n = self.s, len(self.x)
        seed = int(draws.key(self.run.seed, "sketch").view(np.int64))
        if n * s.K <= s.sketch:  # few enough to use each change as it is
            omega = torch.eye(n * s.K, dtype=torch.float64).view(-1, n, s.K)
        else:
            generator = torch.Generator().manual_seed(seed)
            omega = torch.randn(s.sketch, n, s.K, generator=generator, dtype=torch.float64) / s.sketch**0.5
            ids = self.source.connectomes.ids[self.source.scans]
            omega = omega[:, np.argsort(np.argsort(ids, kind="stable"))]  # whatever the order of the scans
        omega = omega.to(self.x) * (s.lambda_re / s.K) ** 0.5
        edges = torch.zeros(len(omega), self.x.shape[1], dtype=self.x.dtype, device=self.x.device)
        precision = _choose_precision(self.edges)
        for rows, x in self._iterate_reestimates(reestimates):
            change = (x - self.x[rows].unsqueeze(1)).flatten(0, 1)
            edges += omega[:, rows].flatten(1).to(precision) @ change.to(precision)
        self.points = torch.cat([r.flatten(1, 2), self.points], 1)
        return Changes(edges, torch.cat([omega.flatten(1), -omega.sum(-1)], 1))

    def _qualify_factors(self, solution: _Solution, reestimates: ReestimatedEdges) -> tuple[Qualification, Tensor]:
        """Relevance and support of the factors, Eqs. (11)-(19); |w_j| is the norm of a factor's part of f.

        With them come the coordinates of the re-estimates, [J, n, K, d_t].
        """
        model, a = solution.model, solution.model.contributions(self.x)
        change = torch.zeros_like(a)
        r = self.points.new_zeros(self.s.J, len(self.x), self.s.K, self.points.shape[-1])
        for rows, x in self._iterate_reestimates(reestimates):
            linear, own, projected = model.split_contributions(x.flatten(0, 1))
            change[rows] = ((linear + own).unflatten(0, (len(rows), -1)) - a[rows].unsqueeze(1)).square().mean(1)
            r[:, rows] = projected.unflatten(1, (len(rows), -1))
        # [E, 2, n], laid out scan by scan: the layout decides in which order a product adds up, hence its last bits
        scan_by_scan = cell_average_weights(self.source.site, self.source.label).permute(2, 0, 1).contiguous()
        cell_average = scan_by_scan.permute(1, 2, 0).to(a.device)
        site_weight = a.new_full((len(cell_average),), 1.0 / len(cell_average))
        w = solution.squared_norm.sqrt().unsqueeze(-1)
        return qualify(a, change, w, cell_average, site_weight, self.s.qualification), r

    def _score(self, solution: _Solution, described: Qualification, block_length: float) -> FittedRun:
        """Calibrate the model and score validation and test scans."""
        fold, labels = self.run.fold, self.source.connectomes.cohort.labels
        calibration = fit_calibration(solution.inner_f, self.source.label, self.inner_fold)
        model = solution.model._replace(calibration=torch.from_numpy(calibration).to(self.x))
        validation_auc = solution.inner_auc  # nothing is chosen on validation scans, only reported
        if len(np.unique(labels[fold.validation])) == 2:
            validation_auc = auc(labels[fold.validation], self._predict_margins(model, fold.validation)[0])
        test_logit, share = self._predict_margins(model, fold.test)
        details: dict[str, Any] = {"view": self.view, "view_auc": self.view_auc, "penalty": solution.penalty}
        details |= {"inner_auc": solution.inner_auc, "share_of_factors": share}
        # relevance and support before the penalty acted on the evidence
        details |= {"relevance": described.pi_task.tolist(), "support": described.q_re.mean((0, 1)).tolist()}
        training = {name: t.float().cpu().contiguous() for name, t in described._asdict().items()}
        return FittedRun(
            self.run,
            test_logit,
            float(validation_auc),
            block_length=block_length,
            parameters=model.to_tensors(),
            state=RunState({}, training, {"Pi_bar": self.Pi.float().cpu().contiguous()}),
            details=details,
        )

    def _predict_margins(self, model: FactorModel, scans: np.ndarray) -> tuple[np.ndarray, float | None]:
        """Logits of scans of the cohort, and the share of their variance that comes from the factors' own kernels."""
        index = torch.from_numpy(scans).to(self.edges.device)
        linear, own, _ = model.split_contributions(model.centre_edges(self.edges[index], self.live[index]))
        total, part = (linear + own).sum(-1), own.sum(-1)
        share = None
        if len(scans) > 1 and float(total.var()) > 0:
            share = float(((total - total.mean()) * (part - part.mean())).mean() / total.var(correction=0))
        return model.logit(linear + own).cpu().numpy(), share
