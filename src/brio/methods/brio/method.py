"""BRIO: its network, from graphs to factors, contributions and a logit, Eqs. (8)-(10), and how it is trained."""

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import draws, training
from ...cohort import Cohort
from ...connectome import ReestimateRequest, clip_block_length, source_strength, sym_top
from ...training import Batch, FittedRun, NeuralMethod, Run, RunState, Scans, Stack, Stage, Tensors, TensorSpec
from ..layers import classification_loss
from ..registry import PAPERS_OWN, method, variant
from .encoder import SignedEncoder, find_gpu_twin, measure_descriptors
from .qualification import Assignment, alignment_loss, extend_clouds, qualify
from .settings import BrioSettings


class FactorOutput(NamedTuple):
    """What the network returns for each graph."""

    logit: Tensor  # [B] z, Eq. (10)
    representation: Tensor  # [B, J * d_t] s, Eq. (9)
    factors: Tensor  # [B, J, d_t] r, Eq. (8), unit norm
    contributions: Tensor  # [B, J] a, Eq. (10)


class FactorMap(nn.Module):
    """F_phi of Eq. (8): a bias-free projection and an MLP, each with outputs on the unit sphere."""

    def __init__(self, d_h: int, d_t: int, d_mlp: int, bias: bool) -> None:
        super().__init__()
        self.project = nn.Linear(d_h, d_t, bias=False)
        self.widen = nn.Linear(d_t, d_mlp, bias=bias)
        self.narrow = nn.Linear(d_mlp, d_t, bias=bias)

    def forward(self, pooled: Tensor) -> Tensor:
        """Shape [..., d_h] -> [..., d_t], unit norm."""
        x = F.normalize(self.project(pooled), dim=-1)
        return F.normalize(self.narrow(F.gelu(self.widen(x))), dim=-1)


class BrioNetwork(nn.Module):
    """The whole neural network of one run.

    It reads the learned support ``S`` and the ``mean`` connectome, which fills ROIs without signal. It also reads the
    mean and SD of the descriptors (``c_mean``, ``c_sd``), if these are standardised, and, after the warm-up, the cached
    assignment ``Pi_bar``.
    """

    def __init__(self, n_rois: int, s: BrioSettings) -> None:
        super().__init__()
        self.encoder = SignedEncoder(n_rois, s.d_e, s.d_h, s.layers, s.roi_scale)
        self.assignment = Assignment(s.J, s.d_e, s.d_qk, s.temperature, s.assignment_iterations)
        self.factor_map = FactorMap(s.d_h, s.d_t, s.d_mlp, s.mlp_bias)
        bound = 1.0 / math.sqrt(s.J * s.d_t)  # as a linear layer on the concatenated factors would start
        self.w = nn.Parameter(torch.empty(s.J, s.d_t).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(()))

    def forward(self, scans: Scans, step: training.StepContext | None = None) -> FactorOutput:
        """Compute factors, contributions and logits of B graphs."""
        J = len(self.w)
        learned, inference = scans.state.learned, scans.state.inference
        standard = (learned.get("c_mean"), learned.get("c_sd"))
        H = self.encoder(scans.A, learned["S"], scans.alive, learned["mean"], *standard)
        Pi = inference["Pi_bar"] if "Pi_bar" in inference else self.assignment(self.encoder.roi)
        factors = self.factor_map(J * (Pi @ H))
        contributions = (factors * self.w).sum(-1)
        return FactorOutput(
            logit=contributions.sum(-1) / math.sqrt(J) + self.b,
            representation=factors.flatten(-2) / math.sqrt(J),
            factors=factors,
            contributions=contributions,
        )


@method(
    "brio",
    family="BRIO",
    needs={"sites"},
    provenance=PAPERS_OWN,
    reference="Wang, Zhang et al., Beyond Site Agreement (BRIO)",
)
class Brio(NeuralMethod):
    """Brain network re-estimation-informed out-of-distribution learning; the page on decisions lists our choices."""

    version = 3  # clouds of eight scans, refreshes between epochs
    settings: BrioSettings

    def network(self, shape: training.InputShape) -> nn.Module:
        return BrioNetwork(shape.n_rois, self.settings)

    def name_sites(self, cohort: Cohort, run: Run) -> np.ndarray:
        if self.settings.sites == "own":
            return cohort.sites
        sites, source = cohort.sites.copy(), run.fold.source
        for label in (0, 1):
            scans = source[cohort.labels[source] == label]
            order = np.argsort(draws.draw_uniform(run.seed, "shuffled sites", draws.addresses(cohort.ids[scans])))
            sites[scans[order]] = np.sort(sites[scans])
        return sites

    def learn(self, source: training.SourceScans) -> Tensors:
        """Learn the support S (Eq. 3), the fill of ROIs, the mean and SD of the descriptors, and the block length."""
        settings, connectomes = self.settings, source.connectomes
        strength = source_strength([connectomes.site_median(m) for m in source.by_site()], connectomes.n_rois)
        learned = {"S": sym_top(strength, settings.rho_g).to(connectomes.dtype)}
        learned["mean"] = source.mean_connectome(settings.dead_rois)
        if settings.descriptors == "standardised":
            index = torch.from_numpy(source.scans).to(connectomes.device)
            parts = ((connectomes.full[i], connectomes.alive[i]) for i in index.split(256))  # never a copy of all
            learned["c_mean"], learned["c_sd"] = measure_descriptors(parts, learned["S"], learned["mean"])
        if self._reestimates:
            l_b = settings.block_length
            if l_b is None:
                estimate = connectomes.estimate_block_length(
                    source.scans, source.site, source.label, settings.block_rule, source.seed
                )
                l_b = settings.block_scale * estimate
            learned["block_length"] = torch.tensor(l_b, dtype=torch.float64, device=connectomes.device)
        return learned

    def declare_state(self, n_rois: int) -> dict[str, TensorSpec]:
        square, c = TensorSpec((n_rois, n_rois)), TensorSpec((n_rois, "descriptors"))
        declared = {"learned.S": square, "learned.mean": square}
        if self.settings.descriptors == "standardised":
            declared |= {"learned.c_mean": c, "learned.c_sd": c._replace(low=0.0)}
        if self._reestimates:
            declared["learned.block_length"] = TensorSpec((), low=0.0)
        return declared | {"inference.Pi_bar": TensorSpec((self.settings.J, n_rois), low=0.0)}

    def stages(self) -> list[Stage]:
        settings = self.settings
        every = settings.M if self._aligns else None
        guided = Stage("guided", settings.epochs - settings.T_w, frozen=("assignment.",), refresh_every=every)
        return [Stage("warm-up", settings.T_w, selectable=False), guided]

    def loss(self, out: FactorOutput, batch: Batch) -> Tensor:
        """Compute the overall objective, Eq. (27); classification alone during warm-up."""
        settings, training = self.settings, batch.scans.state.training
        loss = classification_loss(out.logit, batch)
        if batch.stage.name == "guided" and self._aligns:
            clouds, log_weight = extend_clouds(out.factors.unflatten(0, batch.cells), training)
            qualified, rule = (training["alpha_bar"], training["g"]), (settings.epsilon, settings.sinkhorn_iterations)
            aligned = alignment_loss(clouds, *qualified, batch.pair_weight, *rule, log_weight)
            loss = loss + settings.lambda_env * aligned
        return loss

    def begin_stage(self, stack: Stack, stage: Stage) -> None:
        """Cache the assignment, which no longer changes, and create the qualification and the empty clouds."""
        if stage.name != "guided":
            return
        roi, module = stack.params["encoder.roi"], stack.network.get_submodule("assignment")
        params = {name: stack.params[f"assignment.{name}"] for name, _ in module.named_parameters()}
        assign = torch.vmap(partial(torch.func.functional_call, module))
        with torch.no_grad():
            stack.state.inference["Pi_bar"] = assign(params, (roi,))
        if self._aligns:
            J, E = self.settings.J, stack.sources.size.shape[1]
            pairs = E * (E - 1) // 2
            qualification = stack.state.training
            qualification["pi_task"] = roi.new_zeros(len(stack), J)
            qualification["q_re"] = roi.new_ones(len(stack), E, 2, J)
            qualification["alpha_bar"] = roi.new_full((len(stack), pairs, 2, J), 1.0 / J)
            qualification["g"] = roi.new_zeros(len(stack), pairs, 2)
            past = self.settings.cloud - self.settings.cell_batch
            qualification["past_factors"] = roi.new_zeros(len(stack), E, 2, past, J, self.settings.d_t)
            qualification["past_scans"] = roi.new_zeros(len(stack))
            qualification["cell_size"] = stack.to_tensor(stack.sources.size.astype(float))

    def refresh(self, stack: Stack, due: np.ndarray, number: int) -> None:
        """Recompute the qualification of the runs in ``due`` with their current weights."""
        rows = np.flatnonzero(due)
        index = torch.from_numpy(rows).to(stack.connectomes.device)
        a, change = self._contributions_and_changes(stack, rows, number)
        sources = stack.sources.select(due)
        scans, cell_average = (t[index] for t in stack.cell_average)
        own_scans = scans.unsqueeze(-1).expand(-1, -1, self.settings.J)
        a, change = a.gather(1, own_scans), change.gather(1, own_scans)  # from all scans to those of each run
        site_weight = stack.to_tensor((sources.size[:, :, 0] > 0) / sources.n_sites[:, None].astype(float))
        qualify_run = torch.vmap(partial(qualify, settings=self.settings))
        with torch.no_grad():
            qualification = qualify_run(a, change, stack.params["w"][index], cell_average, site_weight)
        for name, value in qualification._asdict().items():
            stack.state.training[name][index] = value

    def remove_padding(self, parameters: Tensors, state: RunState, n_sites: int) -> tuple[Tensors, RunState]:
        """Keep the qualification of the run's own source sites and pairs, but no factors of single scans.

        Drop ``q_re`` if the variant computes no re-estimates, because it is then constant at 1.
        """
        kept = ("pi_task", "q_re", "alpha_bar", "g")
        training = {name: state.training[name] for name in kept if name in state.training}
        if not training:
            return parameters, state
        q_re = training["q_re"]
        first, second = torch.triu_indices(len(q_re), len(q_re), 1)
        real = (first < n_sites) & (second < n_sites)
        own = {"q_re": q_re[:n_sites], "alpha_bar": training["alpha_bar"][real], "g": training["g"][real]}
        training = training | {name: t.contiguous().clone() for name, t in own.items()}
        if not self._reestimates:
            del training["q_re"]
        return parameters, state._replace(training=training)

    def block_length(self, state: RunState) -> float | None:
        return float(state.learned["block_length"]) if "block_length" in state.learned else None

    @property
    def facts(self) -> training.MethodFacts:
        facts = super().facts
        cost = facts.relative_cost * (2.0 if self._aligns else 1.0)  # refreshes and alignment about double an epoch
        reestimates = self.settings.K if self._reestimates else None
        return replace(facts, reestimates=reestimates, relative_cost=cost, explains="factors")

    def compute_contributions(self, fitted: FittedRun, scans: Scans) -> np.ndarray:
        out = Stack.restore(self, scans, [fitted]).forward(scans, shared=True)
        return out.contributions[0].double().cpu().numpy()

    def intercept(self, fitted: FittedRun) -> float:
        return float(fitted.parameters["b"])

    def explain(self, fitted: FittedRun) -> training.Explanation:
        """Return the assignment of ROIs to factors, which is fixed after the warm-up."""
        return training.Explanation(assignment=fitted.state.inference["Pi_bar"].double().cpu().numpy())

    def read_explained(self, fitted: FittedRun, scans: Scans) -> training.ExplainedScans:
        """Read margins and the contribution of each factor to them, Eq. (10)."""
        out = Stack.restore(self, scans, [fitted]).forward(scans, shared=True)
        margin, a = (t[0].double().cpu().numpy() for t in (out.logit, out.contributions))
        return training.ExplainedScans(margin, contributions=a / self.settings.J**0.5)

    def _contributions_and_changes(self, stack: Stack, rows: np.ndarray, number: int) -> tuple[Tensor, Tensor]:
        """Full-scan contributions a^(0) and their mean squared changes under re-estimation. Shapes [runs, N, J].

        Runs of the same seed and block length share their re-estimates: the draws depend on nothing else. ``rows`` are
        positions in the stack; ``positions`` below are positions in ``rows`` and in the output.
        """
        connectomes, settings = stack.connectomes, self.settings
        a = connectomes.full.new_zeros(len(rows), len(connectomes), settings.J)
        change = torch.zeros_like(a)
        lengths = stack.state.learned["block_length"].cpu().numpy() if self._reestimates else np.zeros(len(stack))
        groups: dict[tuple[int, int], list[int]] = {}
        for position, row in enumerate(rows):
            key = (stack.runs[row].seed, int(np.floor(lengths[row] + 0.5)))
            groups.setdefault(key, []).append(position)
        for (seed, block_length), positions in groups.items():
            output_rows = torch.tensor(positions, device=connectomes.device)
            runs = torch.from_numpy(rows[positions]).to(connectomes.device)
            scans = np.unique(np.concatenate([stack.runs[rows[p]].fold.source for p in positions]))
            on_device = torch.from_numpy(scans).to(connectomes.device)
            passes = on_device.split(stack.scans_per_pass(len(positions)))  # never a copy of all connectomes
            parts = [stack.forward(stack.inputs.take(i), shared=True, runs=runs) for i in passes]
            full_contributions = torch.cat([part.contributions for part in parts], 1)
            a[output_rows[:, None], on_device] = full_contributions
            if not self._reestimates:
                continue
            block = clip_block_length(block_length, connectomes.n_frames[scans], settings.block_rule)
            request = ReestimateRequest(scans, block, seed, number, settings.K)
            for chunk, resampled in stack.inputs.iterate_reestimates(request, stack.step_bytes):
                chunk_index = torch.from_numpy(chunk).to(connectomes.device)
                reestimated = stack.forward(resampled, shared=True, runs=runs).contributions
                reestimated = reestimated.unflatten(1, (len(chunk), settings.K))
                squared = (reestimated - full_contributions[:, chunk_index].unsqueeze(2)).square().mean(2)
                change[output_rows[:, None], on_device[chunk_index]] = squared
        return a, change

    def bytes_per_scan(self, A: Tensor) -> float:
        if find_gpu_twin(A, self.settings.d_h) is None:
            return super().bytes_per_scan(A)
        P = A.shape[-1]
        return (P**2 + 5 * P * self.settings.d_h) * A.element_size()  # A; H before and after a layer, and small tensors

    @property
    def _aligns(self) -> bool:
        return self.settings.lambda_env > 0

    @property
    def _reestimates(self) -> bool:
        """Whether re-estimates are computed: only if sites are aligned and the variant uses support."""
        return self._aligns and self.settings.variant not in ("w/o RS", "w/o QG")


# Ablations of the paper: without re-estimation support (RS), task relevance (TR), strength modulation (SM), weights
# that favour supported factors (SF), qualification guidance (QG). See variant_profile.
variant("brio-wo-rs", Brio, "Factors weighted by relevance alone, with strength fixed at one.", variant="w/o RS")
variant("brio-wo-tr", Brio, "Uniform weights instead of relevance; support is kept.", variant="w/o TR")
variant("brio-wo-sm", Brio, "Qualified weights, with strength fixed at one.", variant="w/o SM")
variant("brio-wo-sf", Brio, "Factors weighted by relevance alone, with modulated strength.", variant="w/o SF")
variant(
    "brio-wo-qg",
    Brio,
    "Uniform weights, with strength fixed at one: alignment without qualification.",
    variant="w/o QG",
)
variant("backbone", Brio, "No alignment.", variant="w/o QG", lambda_env=0.0)
# Controls: if alignment uses what names of sites mean, it should gain less with shuffled ones.
variant("brio-shuffled", Brio, "Site names shuffled among the source scans of each class.", sites="shuffled")
variant(
    "backbone-shuffled",
    Brio,
    "No alignment, with shuffled names of source sites.",
    variant="w/o QG",
    lambda_env=0.0,
    sites="shuffled",
)
