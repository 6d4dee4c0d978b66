"""BRIO plus: factors with additive contributions, re-estimation support and qualification-guided alignment, solved.

Nothing is trained by gradient steps: for a given qualification the model is a kernel ridge regression, and the
qualification is that of the paper, computed from the model's contributions and renewed a few times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import draws
from ...connectome import Connectomes, source_mean
from ...errors import BrioError
from ...progress import Progress, silent
from ...protocol import auc
from ...training import FittedRun, Method, MethodFacts, Prediction, Run, RunState, Scans
from ..brio.qualification import Qualification, qualify
from ..registry import Provenance, method, variant
from .calibration import calibration
from .factors import Factors, assign
from .model import Model
from .penalties import Functionals, Penalised
from .settings import BrioPlusSettings
from .solver import Fit, alignment_functionals, left_out, solve
from .views import Reestimates, edges, live_edges

__all__ = ["BrioPlus"]


@method(
    "brio-plus",
    family="BRIO",
    needs={"sites"},
    provenance=Provenance("ours", "the paper's mechanism on a closed-form model"),
    reference="docs/brio-plus.md",
)
class BrioPlus(Method):
    """BRIO's factors, support and alignment on log-connectomes, with a linear path, solved in closed form."""

    Settings = BrioPlusSettings
    settings: BrioPlusSettings
    needs_validation = False
    version = 2

    def fit(self, connectomes: Connectomes, runs: Sequence[Run], progress: Progress = silent) -> list[FittedRun]:
        log = edges(connectomes.full, self.settings.shrinkage)
        live = live_edges(connectomes.alive)
        lengths = [self._block_length(connectomes, run) for run in runs]
        groups: dict[tuple[int, int], list[int]] = {}
        for position, (run, length) in enumerate(zip(runs, lengths, strict=True)):
            groups.setdefault((run.seed, int(np.floor((length or 0.0) + 0.5))), []).append(position)
        done: dict[int, FittedRun] = {}
        for (seed, rounded), positions in groups.items():
            again = None
            if self.settings.reestimates:
                s = self.settings
                scans = np.unique(np.concatenate([runs[p].fold.source for p in positions]))
                again = Reestimates(connectomes, scans, rounded, s.block_rule, seed, s.K, s.shrinkage)
            for p in positions:
                progress(f"{len(runs)} runs, fold {runs[p].fold.name}", len(done) / len(runs))
                done[p] = _Solution(self.settings, connectomes, runs[p], log, live, again).fitted(lengths[p])
        return [done[p] for p in range(len(runs))]

    def predict(self, fitted: FittedRun, scans: Scans) -> Prediction:
        model = Model.from_tensors(fitted.parameters, scans.A)
        x = model.view(edges(scans.A, self.settings.shrinkage), live_edges(scans.alive))
        linear, own, r = model.parts(x)
        representation = r.transpose(0, 1).flatten(1)
        return Prediction(model.logit(linear + own).cpu().numpy(), representation.cpu().numpy())

    def contributions(self, fitted: FittedRun, scans: Scans) -> np.ndarray:
        """Contributions a of the factors, in units such that the logit is their sum / sqrt(J) + c_0. Shape [n, J]."""
        model = Model.from_tensors(fitted.parameters, scans.A)
        a = model.contributions(model.view(edges(scans.A, self.settings.shrinkage), live_edges(scans.alive)))
        return (a * model.calibration[0] * self.settings.J**0.5).cpu().numpy()

    def intercept(self, fitted: FittedRun) -> float:
        return float(fitted.parameters["calibration"][1])

    @property
    def facts(self) -> MethodFacts:
        s = self.settings
        return MethodFacts(reestimates=s.K if s.reestimates else None, relative_cost=4.0 if s.lambda_env else 2.0)

    def _block_length(self, connectomes: Connectomes, run: Run) -> float | None:
        s = self.settings
        if not s.reestimates or s.block_length is not None:
            return s.block_length if s.reestimates else None
        cohort, scans = connectomes.cohort, run.fold.source
        return connectomes.estimate_block_length(
            scans, cohort.sites[scans], cohort.labels[scans], s.block_rule, run.seed
        )


class _Solved(NamedTuple):
    model: Model
    penalty: float
    intercept: float  # the one in common, part of f at any site; 0 where each source site has its own
    left_out: Tensor  # [n] f of the source scans, each from the system without its site
    norm: Tensor  # [J] squared norm of each factor's part of f


class _Solution:
    """One run, from its source scans to its model."""

    def __init__(
        self,
        settings: BrioPlusSettings,
        connectomes: Connectomes,
        run: Run,
        log: Tensor,
        live: Tensor,
        again: Reestimates | None,
    ) -> None:
        self.s, self.run, self.connectomes = settings, run, connectomes
        self.log, self.live, self.again = log, live, again
        cohort, scans = connectomes.cohort, run.fold.source
        self.site, self.label = cohort.sites[scans], cohort.labels[scans]
        self.names = np.unique(self.site)
        if len(self.names) < 2 or any(len(np.unique(self.label[self.site == e])) < 2 for e in self.names):
            raise BrioError(
                f"fold {run.fold.name}: 'brio-plus' needs two source sites at least, each with both classes"
            )
        self.y = self._tensor(2.0 * self.label - 1.0)
        self.sites = self._tensor((self.site[:, None] == self.names).astype(float))
        self.intercepts = self.sites if settings.site_intercepts else torch.ones_like(self.sites[:, :1])
        cell = self.sites.unsqueeze(-1) * torch.stack([self.y < 0, self.y > 0], -1).unsqueeze(1)  # [n, E, 2]
        self.membership = (cell / cell.sum(0)).permute(1, 2, 0)
        self.position = np.full(len(connectomes), -1)
        self.position[scans] = np.arange(len(scans))
        self._look()

    def fitted(self, block_length: float | None) -> FittedRun:
        """Warm-up: nothing is penalised. Then, a few times: qualify the factors, and solve under what that says."""
        s = self.s
        solved = self._solve(None)
        warm: Qualification | None = None
        if s.reestimates:
            warm = found = self._qualification(solved)
            change = self._changes() if s.lambda_re else None
            # penalty and calibration come from here: alignment looks at the labels of every source site, so that under
            # it no site is left out any more
            judged = solved if change is None else self._solve([change] * s.J)
            for refresh in range(s.refreshes if s.lambda_env else 0):
                if refresh:
                    found = self._qualification(solved)
                solved = self._solve(self._functionals(change, found), judged)
            solved = solved if s.lambda_env else judged
        penalty, f = solved.penalty, solved.left_out
        slope, offset = calibration(f.cpu().numpy(), self.label, self.site)
        scale = self._tensor(np.array([slope, slope * solved.intercept + offset]))
        model = solved.model._replace(calibration=scale)
        fold, cohort = self.run.fold, self.connectomes.cohort
        left = self._site_auc(f)
        told = left  # what the penalty was chosen by; validation scans, where there are any, only tell
        if len(np.unique(cohort.labels[fold.validation])) == 2:
            told = auc(cohort.labels[fold.validation], self._margins(model, fold.validation)[0])
        test, share = self._margins(model, fold.test)
        notes: dict[str, Any] = {"penalty": penalty, "left_out_auc": left, "share_of_factors": share}
        state = RunState.from_learned()
        if warm is not None:  # what the evidence was worth before anything was done about it
            notes |= {"relevance": warm.pi_task.tolist(), "support": warm.q_re.mean((0, 1)).tolist()}
            notes["strength"] = float(warm.g.mean())
            qualification = {name: t.float().cpu().contiguous() for name, t in warm._asdict().items()}
            state = RunState({}, qualification, {"Pi_bar": self.Pi.float().cpu().contiguous()})
        return FittedRun(
            self.run,
            test,
            float(told),
            block_length=block_length,
            parameters=model.to_tensors(),
            state=state,
            details=notes,
        )

    @property
    def _shares(self) -> tuple[float, float, float]:
        """Weights of the linear and the own kernels, and the width of the latter."""
        return float(self.s.linear), self.s.rho / self.s.J, self.s.gamma

    def _look(self) -> None:
        """Source scans as the model sees them, and what their factors make of each other."""
        s, scans = self.s, torch.from_numpy(self.run.fold.source).to(self.log.device)
        log, live = self.log[scans].double(), self.live[scans]
        self.centre = torch.where(live, log, torch.zeros_like(log)).sum(0) / live.sum(0).clamp_min(1)
        self.x = torch.where(live, log - self.centre, torch.zeros_like(log))
        mean = source_mean([self.connectomes.site_mean(self.run.fold.source[self.site == e]) for e in self.names])
        self.Pi = assign(mean, s.J, s.temperature, s.assignment_iterations, self.run.seed).double()
        self.factors, linear, self.points = Factors.learn(self.x, self.Pi, s.d_t)
        share, own, gamma = self._shares
        self.K = share * linear + own * self.factors.kernel(self.points, self.points, gamma)

    def _again(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows among the source scans, and their re-estimates as the model sees them [n, K, edges], part by part."""
        assert self.again is not None
        for scans, log in self.again:
            row = self.position[scans]
            mine = torch.from_numpy(row >= 0).to(log.device)
            where = torch.from_numpy(scans[row >= 0]).to(log.device)
            x = torch.where(self.live[where].unsqueeze(1), log[mine].double() - self.centre, 0.0)
            yield torch.from_numpy(row[row >= 0]).to(log.device), x

    def _changes(self) -> Functionals:
        """Changes between scans and re-estimates, in random combinations whose squares add up to theirs on average.

        The re-estimates become points of the factors' own kernels, before the source scans.
        """
        s, n = self.s, len(self.x)
        seed = int(draws.key(self.run.seed, "sketch").view(np.int64))
        if n * s.K <= s.sketch:  # few enough to take each as it is
            omega = torch.eye(n * s.K, dtype=torch.float64).view(-1, n, s.K)
        else:
            draw = torch.Generator().manual_seed(seed)
            omega = torch.randn(s.sketch, n, s.K, generator=draw, dtype=torch.float64) / s.sketch**0.5
        omega = omega.to(self.x) * (s.lambda_re / s.K) ** 0.5
        edges = torch.zeros(len(omega), self.x.shape[1], dtype=self.x.dtype, device=self.x.device)
        r = self.points.new_zeros(s.J, n, s.K, self.points.shape[-1])
        for rows, x in self._again():
            edges += omega[:, rows].flatten(1) @ (x - self.x[rows].unsqueeze(1)).flatten(0, 1)
            r[:, rows] = self.factors.coordinates(x.flatten(0, 1)).unflatten(1, (len(rows), s.K))
        self.points = torch.cat([r.flatten(1, 2), self.points], 1)
        return Functionals(edges, torch.cat([omega.flatten(1), -omega.sum(-1)], 1))

    def _functionals(self, change: Functionals | None, found: Qualification) -> list[Functionals]:
        """What each factor is penalised for: changes under re-estimation, and qualified differences between sites."""
        before = self.points.shape[1] - len(self.x)
        out = []
        for j in range(self.s.J):
            rows = alignment_functionals(found.alpha_bar[:, :, j], found.g, self.membership)
            rows = rows * (self.s.lambda_env * len(self.x)) ** 0.5
            own = Functionals(rows @ self.x, torch.nn.functional.pad(rows, (before, 0)))
            out.append(own if change is None else change.joined(own))
        return out

    def _solve(self, T: list[Functionals] | None, judged: _Solved | None = None) -> _Solved:
        """The model whose penalty orders scans best at source sites left out in turn, or has that of another one."""
        s = self.s
        penalised = Penalised.of(self.K, T, self.x, self.factors, self.points, *self._shares)
        K = penalised.K.sum(0)
        if judged is not None:
            fit, penalty, f = solve(K, self.y, self.intercepts, judged.penalty), judged.penalty, judged.left_out
        else:
            best: tuple[float, Fit, float, Tensor] | None = None
            for tried in np.geomspace(s.largest_penalty, s.least_penalty, s.penalties).tolist():
                fit = solve(K, self.y, self.intercepts, tried)
                f = left_out(fit, self.y, self.sites)
                reached = self._site_auc(f)
                if best is None or reached > best[0]:
                    best = (reached, fit, tried, f)
            assert best is not None
            _, fit, penalty, f = best
        norm = torch.einsum("n,jnm,m->j", fit.alpha, penalised.K, fit.alpha)
        common = 0.0 if s.site_intercepts else float(fit.intercept)
        return _Solved(self._model(fit, penalised, T), penalty, common, f, norm.clamp_min(0))

    def _site_auc(self, f: Tensor) -> float:
        """Mean over source sites of the AUC within the site."""
        host = f.cpu().numpy()
        return float(np.mean([auc(self.label[self.site == e], host[self.site == e]) for e in self.names]))

    def _model(self, fit: Fit, penalised: Penalised, T: list[Functionals] | None) -> Model:
        """The model of a solution, not calibrated yet: its logit is f."""
        linear, own, gamma = self._shares
        seen = (fit.alpha @ self.x).expand(self.s.J, -1)
        weight = torch.nn.functional.pad(fit.alpha, (self.points.shape[1] - len(self.x), 0)).expand(self.s.J, -1)
        if T is not None:
            taken = penalised.taken @ fit.alpha  # [J, rows]
            seen = seen - torch.stack([t @ rows.edges for t, rows in zip(taken, T, strict=True)])
            weight = weight - torch.stack([t @ rows.points for t, rows in zip(taken, T, strict=True)])
        return Model(
            centre=self.centre,
            factors=self.factors,
            theta=linear * seen * self.factors.shares / self.factors.scale,
            points=self.points,
            beta=own * weight,
            gamma=self._tensor(np.array(gamma)),
            calibration=self._tensor(np.array([1.0, 0.0])),
        )

    def _qualification(self, solved: _Solved) -> Qualification:
        """Relevance, support and profiles of the factors, Eqs. (11)-(19); the norm of a factor is that of its space."""
        model, a = solved.model, solved.model.contributions(self.x)
        change = torch.zeros_like(a)
        for rows, x in self._again():
            again = model.contributions(x.flatten(0, 1)).unflatten(0, (len(rows), -1))
            change[rows] = (again - a[rows].unsqueeze(1)).square().mean(1)
        site_weight = a.new_full((len(self.names),), 1.0 / len(self.names))
        return qualify(a, change, solved.norm.sqrt().unsqueeze(-1), self.membership, site_weight, self.s.qualification)

    def _margins(self, model: Model, scans: np.ndarray) -> tuple[np.ndarray, float | None]:
        """Logits of scans of the cohort, and the share of their variance that comes from the factors' own kernels."""
        index = torch.from_numpy(scans).to(self.log.device)
        linear, own, _ = model.parts(model.view(self.log[index], self.live[index]))
        total, part = (linear + own).sum(-1), own.sum(-1)
        share = None
        if len(scans) > 1 and float(total.var()) > 0:
            share = float(((total - total.mean()) * (part - part.mean())).mean() / total.var(correction=0))
        return model.logit(linear + own).cpu().numpy(), share

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.asarray(array, dtype=np.float64)).to(self.log.device)


variant(
    "brio-plus-linear", BrioPlus, "its linear path alone, nothing penalised", rho=0.0, lambda_re=0.0, lambda_env=0.0
)
variant("brio-plus-factors", BrioPlus, "its factors' own kernels alone", linear=False)
variant("brio-plus-wo-qg", BrioPlus, "alignment without qualification", variant="w/o QG")
