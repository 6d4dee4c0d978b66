"""The fit of one run of BRIO plus, from its source scans to its model."""

from __future__ import annotations

from collections.abc import Iterator
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
from .factors import FactorSpace, assign_rois
from .log_edges import ReestimatedLogEdges
from .model import FactorModel
from .penalties import Functionals, KernelWeights, PenalisedKernels, penalise_kernels
from .settings import BrioPlusSettings
from .solver import KernelRidgeFit, build_alignment_functionals, predict_inner_folds, solve_kernel_ridge

__all__ = ["RunFit"]


class _Solution(NamedTuple):
    model: FactorModel  # not calibrated yet
    penalty: float
    common_intercept: float  # part of f at any site; 0 where each source site has its own
    inner_f: Tensor  # [n] f of the source scans, each from the inner fold that withholds its site
    squared_norm: Tensor  # [J] of each factor's part of f


class RunFit:
    """The fit of one run.

    Parameters
    ----------
    settings : BrioPlusSettings
    connectomes : Connectomes
        Of the whole cohort.
    run : Run
    log : Tensor, shape [scans, edges]
        Log-connectomes of the whole cohort.
    live : Tensor of bool, shape [scans, edges]
        Edges whose two ends have signal.
    reestimates : ReestimatedLogEdges or None
        Of the source scans, and perhaps others; None where the settings ask for none.

    Raises
    ------
    BrioError
        If there are fewer than two source sites, or one lacks a class.
    """

    def __init__(
        self,
        settings: BrioPlusSettings,
        connectomes: Connectomes,
        run: Run,
        log: Tensor,
        live: Tensor,
        reestimates: ReestimatedLogEdges | None,
    ) -> None:
        self.s, self.run, self.source = settings, run, SourceScans.of_run(connectomes, run)
        self.log, self.live, self.reestimates = log, live, reestimates
        self.weights = KernelWeights(float(settings.linear), settings.rho / settings.J, settings.gamma)
        site, label = self.source.site, self.source.label
        self.site_names = np.unique(site)
        if len(self.site_names) < 2 or any(len(np.unique(label[site == e])) < 2 for e in self.site_names):
            raise BrioError(
                f"fold {run.fold.name}: 'brio-plus' needs at least two source sites, each with both classes"
            )
        self.y = self._tensor(2.0 * label - 1.0)
        self.sites = self._tensor((site[:, None] == self.site_names).astype(float))  # [n, E]
        self.intercepts = self.sites if settings.site_intercepts else torch.ones_like(self.sites[:, :1])
        # [E, 2, n], laid out scan by scan: the layout decides in which order a product adds up, hence its last bits
        scan_by_scan = cell_average_weights(site, label).permute(2, 0, 1).contiguous()
        self.cell_average = scan_by_scan.permute(1, 2, 0).to(self.log.device)
        self.row_of_scan = np.full(len(connectomes), -1)  # -1 for scans that are no source scans of this run
        self.row_of_scan[self.source.scans] = np.arange(len(self.source.scans))
        self._prepare_source()

    def fit(self, block_length: float | None) -> FittedRun:
        """Solve without penalties on functionals; then qualify the factors and solve under it, ``refreshes`` times.

        Parameters
        ----------
        block_length : float or None
            Fold-level block length of the re-estimates, stored with the fitted run.
        """
        s = self.s
        solution = self._solve(None)
        first: Qualification | None = None
        if s.reestimates:
            first = qualification = self._qualify_factors(solution)
            changes = self._sketch_changes() if s.lambda_re else None
            # Penalty and calibration are those of this solution. Alignment uses the labels of every source site, so
            # under it an inner fold would know the labels of its withheld site.
            unaligned = solution if changes is None else self._solve([changes] * s.J)
            for refresh in range(s.refreshes if s.lambda_env else 0):
                if refresh:
                    qualification = self._qualify_factors(solution)
                solution = self._solve(self._collect_functionals(changes, qualification), unaligned)
            solution = solution if s.lambda_env else unaligned
        return self._score(solution, first, block_length)

    def _score(self, solution: _Solution, first: Qualification | None, block_length: float | None) -> FittedRun:
        """Calibrate the model and score validation and test scans."""
        fold, labels = self.run.fold, self.source.connectomes.cohort.labels
        slope, offset = fit_calibration(solution.inner_f.cpu().numpy(), self.source.label, self.source.site)
        calibration = self._tensor(np.array([slope, slope * solution.common_intercept + offset]))
        model = solution.model._replace(calibration=calibration)
        inner_auc = self._average_site_auc(solution.inner_f)
        validation_auc = inner_auc  # validation scans choose nothing here; where there are any, their AUC is reported
        if len(np.unique(labels[fold.validation])) == 2:
            validation_auc = auc(labels[fold.validation], self._predict_margins(model, fold.validation)[0])
        test_logit, share = self._predict_margins(model, fold.test)
        details: dict[str, Any] = {"penalty": solution.penalty, "left_out_auc": inner_auc, "share_of_factors": share}
        state = RunState.from_learned()
        if first is not None:  # the quality of the evidence before any penalty acted on it
            details |= {"relevance": first.pi_task.tolist(), "support": first.q_re.mean((0, 1)).tolist()}
            details["strength"] = float(first.g.mean())
            training = {name: t.float().cpu().contiguous() for name, t in first._asdict().items()}
            state = RunState({}, training, {"Pi_bar": self.Pi.float().cpu().contiguous()})
        return FittedRun(
            self.run,
            test_logit,
            float(validation_auc),
            block_length=block_length,
            parameters=model.to_tensors(),
            state=state,
            details=details,
        )

    def _prepare_source(self) -> None:
        """Centre the source scans, learn the factors, and compute the kernels between source scans."""
        s, scans = self.s, torch.from_numpy(self.source.scans).to(self.log.device)
        log, live = self.log[scans].double(), self.live[scans]
        self.centre = torch.where(live, log, torch.zeros_like(log)).sum(0) / live.sum(0).clamp_min(1)
        self.x = torch.where(live, log - self.centre, torch.zeros_like(log))
        mean = source_mean([self.source.connectomes.site_mean(members) for members in self.source.by_site()])
        self.Pi = assign_rois(mean, s.J, s.temperature, s.assignment_iterations, self.run.seed).double()
        self.factors, linear, self.points = FactorSpace.learn(self.x, self.Pi, s.d_t)
        w = self.weights
        self.K = w.linear * linear + w.own * self.factors.kernel(self.points, self.points, w.gamma)

    def _iterate_reestimates(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows of source scans [n], and their re-estimates, centred [n, K, edges], part by part."""
        assert self.reestimates is not None
        for scans, log in self.reestimates:
            row = self.row_of_scan[scans]
            is_source = torch.from_numpy(row >= 0).to(log.device)
            source_scans = torch.from_numpy(scans[row >= 0]).to(log.device)
            x = torch.where(self.live[source_scans].unsqueeze(1), log[is_source].double() - self.centre, 0.0)
            yield torch.from_numpy(row[row >= 0]).to(log.device), x

    def _sketch_changes(self) -> Functionals:
        """Combine the changes between scans and re-estimates at random, so that squares are the same on average.

        The re-estimates become points of the factors' own kernels, before the source scans.
        """
        s, n = self.s, len(self.x)
        seed = int(draws.key(self.run.seed, "sketch").view(np.int64))
        if n * s.K <= s.sketch:  # few enough to use each change as it is
            omega = torch.eye(n * s.K, dtype=torch.float64).view(-1, n, s.K)
        else:
            generator = torch.Generator().manual_seed(seed)
            omega = torch.randn(s.sketch, n, s.K, generator=generator, dtype=torch.float64) / s.sketch**0.5
        omega = omega.to(self.x) * (s.lambda_re / s.K) ** 0.5
        edges = torch.zeros(len(omega), self.x.shape[1], dtype=self.x.dtype, device=self.x.device)
        r = self.points.new_zeros(s.J, n, s.K, self.points.shape[-1])
        for rows, x in self._iterate_reestimates():
            edges += omega[:, rows].flatten(1) @ (x - self.x[rows].unsqueeze(1)).flatten(0, 1)
            r[:, rows] = self.factors.project(x.flatten(0, 1)).unflatten(1, (len(rows), s.K))
        self.points = torch.cat([r.flatten(1, 2), self.points], 1)
        return Functionals(edges, torch.cat([omega.flatten(1), -omega.sum(-1)], 1))

    def _collect_functionals(self, changes: Functionals | None, qualification: Qualification) -> list[Functionals]:
        """What each factor is penalised for: changes under re-estimation, and qualified differences between sites."""
        n_reestimates = self.points.shape[1] - len(self.x)
        collected = []
        for j in range(self.s.J):
            rows = build_alignment_functionals(qualification.alpha_bar[:, :, j], qualification.g, self.cell_average)
            rows = rows * (self.s.lambda_env * len(self.x)) ** 0.5
            differences = Functionals(rows @ self.x, pad(rows, (n_reestimates, 0)))
            collected.append(differences if changes is None else changes.append(differences))
        return collected

    def _solve(self, T: list[Functionals] | None, unaligned: _Solution | None = None) -> _Solution:
        """Solve for the penalty with the best mean AUC over inner folds, or for that of the unaligned solution."""
        penalised = penalise_kernels(self.K, T, self.x, self.factors, self.points, self.weights)
        K = penalised.K.sum(0)
        if unaligned is not None:
            penalty, inner_f = unaligned.penalty, unaligned.inner_f
            fit = solve_kernel_ridge(K, self.y, self.intercepts, penalty)
        else:
            fit, penalty, inner_f = self._choose_penalty(K)
        squared_norm = torch.einsum("n,jnm,m->j", fit.alpha, penalised.K, fit.alpha)
        common = 0.0 if self.s.site_intercepts else float(fit.intercept)
        return _Solution(self._build_model(fit, penalised, T), penalty, common, inner_f, squared_norm.clamp_min(0))

    def _choose_penalty(self, K: Tensor) -> tuple[KernelRidgeFit, float, Tensor]:
        """The fit with the best mean AUC over inner folds, its penalty, and f of the inner folds [n]."""
        s = self.s
        chosen, best_auc = None, -np.inf
        for penalty in np.geomspace(s.largest_penalty, s.least_penalty, s.penalties).tolist():
            fit = solve_kernel_ridge(K, self.y, self.intercepts, penalty)
            inner_f = predict_inner_folds(fit, self.y, self.sites)
            reached = self._average_site_auc(inner_f)
            if chosen is None or reached > best_auc:
                chosen, best_auc = (fit, penalty, inner_f), reached
        assert chosen is not None
        return chosen

    def _average_site_auc(self, f: Tensor) -> float:
        """Mean over source sites of the AUC within the site."""
        host, site = f.cpu().numpy(), self.source.site
        return float(np.mean([auc(self.source.label[site == e], host[site == e]) for e in self.site_names]))

    def _build_model(
        self, fit: KernelRidgeFit, penalised: PenalisedKernels, T: list[Functionals] | None
    ) -> FactorModel:
        """Build the model of a solution, not calibrated yet: its logit is f."""
        edges = (fit.alpha @ self.x).expand(self.s.J, -1)
        weight = pad(fit.alpha, (self.points.shape[1] - len(self.x), 0)).expand(self.s.J, -1)
        if T is not None:
            removed = penalised.removed @ fit.alpha  # [J, rows]
            edges = edges - torch.stack([t @ rows.edges for t, rows in zip(removed, T, strict=True)])
            weight = weight - torch.stack([t @ rows.points for t, rows in zip(removed, T, strict=True)])
        return FactorModel(
            centre=self.centre,
            factors=self.factors,
            theta=self.weights.linear * edges * self.factors.shares / self.factors.scale,
            points=self.points,
            beta=self.weights.own * weight,
            gamma=self._tensor(np.array(self.weights.gamma)),
            calibration=self._tensor(np.array([1.0, 0.0])),
        )

    def _qualify_factors(self, solution: _Solution) -> Qualification:
        """Relevance, support and profiles of the factors, Eqs. (11)-(19); |w_j| is the norm of a factor's part of f."""
        model, a = solution.model, solution.model.contributions(self.x)
        change = torch.zeros_like(a)
        for rows, x in self._iterate_reestimates():
            reestimated = model.contributions(x.flatten(0, 1)).unflatten(0, (len(rows), -1))
            change[rows] = (reestimated - a[rows].unsqueeze(1)).square().mean(1)
        site_weight = a.new_full((len(self.site_names),), 1.0 / len(self.site_names))
        w = solution.squared_norm.sqrt().unsqueeze(-1)
        return qualify(a, change, w, self.cell_average, site_weight, self.s.qualification)

    def _predict_margins(self, model: FactorModel, scans: np.ndarray) -> tuple[np.ndarray, float | None]:
        """Logits of scans of the cohort, and the share of their variance that comes from the factors' own kernels."""
        index = torch.from_numpy(scans).to(self.log.device)
        linear, own, _ = model.split_contributions(model.centre_edges(self.log[index], self.live[index]))
        total, part = (linear + own).sum(-1), own.sum(-1)
        share = None
        if len(scans) > 1 and float(total.var()) > 0:
            share = float(((total - total.mean()) * (part - part.mean())).mean() / total.var(correction=0))
        return model.logit(linear + own).cpu().numpy(), share

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.asarray(array, dtype=np.float64)).to(self.log.device)
