"""CORE: sliding-window trajectories of reproducible edges, gated message passing on the line graph they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...connectome import fill_dead
from ...settings import require, setting
from ...spaces import choice, log_uniform
from ...training import Batch, InputShape, NeuralMethod, RunState, Scans, SourceScans, Stage, StepContext, Tensors
from ..graphs import normalise_adjacency
from ..layers import BatchNorm, Dropout, Linear, build_mlp
from ..losses import average_losses, classification_loss
from ..registry import method, reconstruct
from ..scaffold import Confounds, ScaffoldSettings, adjusted, confounds, scaffold
from ..settings import BoldSettings

__all__ = [
    "CORE",
    "DESCRIPTORS",
    "CORENetwork",
    "COREOutput",
    "CORESettings",
    "describe",
    "line_graph",
    "trajectories",
    "windows",
]

DESCRIPTORS = ("full-scan FC", "mean", "spread", "range", "lag-1 autocorrelation", "mean step", "share above zero")
"""What is said of the trajectory of an edge."""


@dataclass(frozen=True)
class CORESettings(ScaffoldSettings, BoldSettings):
    """Settings of CORE.

    Attributes
    ----------
    window, step : int
        Frames of a sliding window, and from one to the next; both shrink where the BOLD is too short for three windows.
    width, layers : int
        Hidden width and layers of message passing.
    dropout : float
    sparsity : float
        Weight of the mean gate in the loss.
    """

    learning_rate: float = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    window: int = 30
    step: int = 5
    width: int = 64
    layers: int = 2
    dropout: float = setting(0.5, choice(0.2, 0.5))
    sparsity: float = setting(0.01, log_uniform(0.001, 0.1))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("step", "width", "layers"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.window >= 4, "window", self.window, "at least 4")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "0 or more and below 1")
        require(self.sparsity >= 0, "sparsity", self.sparsity, "0 or more")


class COREOutput(NamedTuple):
    """Output of CORE."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, d]
    gate: Tensor  # [B, M] of each scaffold edge


def windows(n_frames: int, window: int, step: int, like: Tensor) -> Tensor:
    """Rows that average the frames of each window, at least three of them. Shape [windows, n_frames]."""
    window = min(window, n_frames // 2)
    step = min(step, (n_frames - window) // 2)
    start = torch.arange(0, n_frames - window + 1, step, device=like.device)
    frame = torch.arange(n_frames, device=like.device)
    inside = (frame >= start[:, None]) & (frame < start[:, None] + window)
    return inside.to(like.dtype) / window


def trajectories(bold: Tensor, u: Tensor, v: Tensor, window: int, step: int) -> Tensor:
    """Fisher z of the correlation of two ROIs in each window, for some edges. Shape [B, windows, M]."""
    rows = windows(bold.shape[1], window, step, bold)

    def average(x: Tensor) -> Tensor:
        return torch.einsum("wt,btm->bwm", rows, x)

    mean = average(bold)
    variance = (average(bold.square()) - mean.square()).clamp_min(1e-6)
    covariance = average(bold[:, :, u] * bold[:, :, v]) - mean[:, :, u] * mean[:, :, v]
    r = covariance * (variance[:, :, u] * variance[:, :, v]).rsqrt()
    return r.clamp(-0.999, 0.999).atanh()


def describe(full: Tensor, z: Tensor) -> Tensor:
    """Descriptors of trajectories, see :data:`DESCRIPTORS`. Shapes [B, M] and [B, windows, M] -> [B, M, 7]."""
    mean = z.mean(1)
    centred = z - mean.unsqueeze(1)
    power = centred.square().sum(1)
    lagged = (centred[:, 1:] * centred[:, :-1]).sum(1) / power.clamp_min(1e-9)
    spread = (power / z.shape[1]).sqrt()
    reach = z.amax(1) - z.amin(1)
    moved = (z[:, 1:] - z[:, :-1]).abs().mean(1)
    above = (z > 0).to(z.dtype).mean(1)
    return torch.stack([full, mean, spread, reach, lagged, moved, above], -1)


def line_graph(u: Tensor, v: Tensor) -> Tensor:
    """1 where two edges share an ROI, 0 elsewhere and on the diagonal. Shape [M, M]."""
    ends = torch.stack([u, v], -1)
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).any(-1).any(-1)
    return (shared & ~torch.eye(len(u), dtype=torch.bool, device=u.device)).float()


class CORENetwork(nn.Module):
    """Scaffold edges as nodes of a line graph; gates from state and prior weigh messages and readout."""

    def __init__(self, s: CORESettings) -> None:
        super().__init__()
        self.window, self.step = s.window, s.step
        n_prior, d = 4, s.width
        self.embed = Linear(2 * len(DESCRIPTORS) + n_prior, d)
        self.embed_norm = BatchNorm(d)
        self.gates = nn.ModuleList(build_mlp(d + n_prior, d // 2 or 1, 1) for _ in range(s.layers + 1))
        self.own = nn.ModuleList(Linear(d, d) for _ in range(s.layers))
        self.heard = nn.ModuleList(Linear(d, d, bias=False) for _ in range(s.layers))
        self.norms = nn.ModuleList(BatchNorm(d) for _ in range(s.layers))
        self.dropout = Dropout(s.dropout)
        self.classify = build_mlp(d, d, 1, dropout=s.dropout)

    def forward(self, scans: Scans, state: RunState, step: StepContext | None = None) -> COREOutput:
        learned = state.learned
        confounds = Confounds(*(learned[name] for name in Confounds._fields))
        u, v, prior = learned["u"], learned["v"], learned["prior"].expand(len(scans.A), -1, -1)
        live = (scans.alive[:, u] & scans.alive[:, v]).to(scans.A.dtype).unsqueeze(-1)  # [B, M, 1]
        x = adjusted(describe_edges(scans, learned, self.window, self.step), live, scans.covariates, confounds)
        toward = x * prior[..., :1].sign()  # the same, positive where patients lie
        H = self.embed_norm(self.embed(torch.cat([x, toward, prior], -1)), step).relu()
        for gate, own, heard, norm in zip(self.gates, self.own, self.heard, self.norms, strict=False):
            g = live * gate(torch.cat([H, prior], -1), step).sigmoid()
            messages = torch.einsum("ef,bfd->bed", learned["line"], g * heard(H))  # one product for all scans
            H = H + self.dropout(norm(own(H) + messages, step).relu(), step)
        g = live * self.gates[-1](torch.cat([H, prior], -1), step).sigmoid()
        pooled = (g * H).sum(1) / g.sum(1).clamp_min(1e-6)
        return COREOutput(self.classify(pooled, step).squeeze(-1), pooled, g.squeeze(-1))


def describe_edges(scans: Scans, learned: Tensors, window: int, step: int) -> Tensor:
    """Describe the scaffold edges of each scan.

    Parameters
    ----------
    scans : Scans
    learned : dict of Tensor
        ``mean`` connectome [P, P], and the ends ``u`` and ``v`` [M] of the scaffold edges.
    window, step : int
        Frames of a sliding window, and from one to the next.

    Returns
    -------
    Tensor, shape [B, M, 7]
    """
    u, v = learned["u"], learned["v"]
    full = fill_dead(scans.A, scans.alive, learned["mean"])[:, u, v]
    return describe(full, trajectories(scans.bold, u, v, window, step))


@method(
    "core",
    family="brain networks",
    needs={"bold", "sites", "sex", "age"},
    provenance=reconstruct("its parts are named in the abstract and a public summary; sizes and formulas are ours"),
    reference="Wang, Zhang et al., When Brain Networks Travel (CORE), arXiv 2605.06050",
)
class CORE(NeuralMethod):
    """Trajectories of edges whose diagnosis effect is reproducible over sites, gated line graph network."""

    Settings = CORESettings
    settings: CORESettings
    peak_matrices_per_scan = 70.0

    def network(self, shape: InputShape) -> nn.Module:
        return CORENetwork(self.settings)

    def learn(self, source: SourceScans) -> Tensors:
        """Scaffold, its line graph, and what covariates explain of the descriptors, all from source scans."""
        graphs = source.connectomes
        scans = self.inputs(graphs).take(torch.from_numpy(source.scans).to(graphs.device))
        edges = scaffold(source, scans, self.settings)
        learned = {"mean": self.dead_roi_fill(source), "u": edges.u, "v": edges.v, "prior": edges.priors()}
        learned["line"] = normalise_adjacency(line_graph(edges.u, edges.v).to(graphs.dtype))
        s, pieces = self.settings, zip(*(field.split(128) for field in scans), strict=True)
        x = torch.cat([describe_edges(Scans(*piece), learned, s.window, s.step) for piece in pieces])
        live = (scans.alive[:, edges.u] & scans.alive[:, edges.v]).to(x.dtype).unsqueeze(-1).expand_as(x)
        return learned | confounds(source, x, live, scans.covariates)._asdict()

    def loss(self, out: COREOutput, batch: Batch, state: RunState, stage: Stage) -> Tensor:
        return classification_loss(out.logit, batch) + self.settings.sparsity * average_losses(out.gate.mean(-1), batch)
