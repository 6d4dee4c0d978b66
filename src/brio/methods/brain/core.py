"""CORE: sliding-window trajectories of reproducible edges, with gated message passing on their line graph."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor, nn

from ...connectome import fill_dead
from ...settings import Count, Layers, LearningRate, ShareBelowOne, Weight, Width, choice, log_uniform, setting
from ...training import Batch, InputShape, Scans, SourceScans, StepContext, Tensors, TensorSpec
from ..layers import BatchNorm, Dropout, Linear, average_losses, build_mlp, classification_loss, normalise_adjacency
from ..registry import method, reconstruct
from ..scaffold import Confounds, ScaffoldSettings, build_scaffold, declare_confounds, fit_confounds, remove_confounds
from .deci import BoldMethod, BoldSettings, split_windows

DESCRIPTORS = ("full-scan FC", "mean", "spread", "range", "lag-1 autocorrelation", "mean step", "share above zero")
"""Features of an edge, in order; all except the first describe its trajectory over sliding windows."""


@dataclass(frozen=True)
class CORESettings(ScaffoldSettings, BoldSettings):
    """Settings of CORE.

    Attributes
    ----------
    window, step : int
        Length of a sliding window and distance between windows, in frames; both shrink if the BOLD series is too short
        for three windows.
    width, layers : int
        Hidden width and number of message-passing layers.
    dropout : float
        Share of the hidden values dropped in training.
    sparsity : float
        Weight of the mean gate in the loss.
    """

    learning_rate: LearningRate = setting(1e-3, choice(3e-4, 1e-3, 3e-3))
    window: Annotated[int, Meta(ge=4, le=10_000)] = 30
    step: Count = 5
    width: Width = 64
    layers: Layers = 2
    dropout: ShareBelowOne = setting(0.5, choice(0.2, 0.5))
    sparsity: Weight = setting(0.01, log_uniform(0.001, 0.1))


class COREOutput(NamedTuple):
    """Output of CORE."""

    logit: Tensor  # [B]
    representation: Tensor  # [B, d]
    gate: Tensor  # [B, M] of each scaffold edge


def build_window_matrix(n_frames: int, window: int, step: int, like: Tensor) -> Tensor:
    """Build the matrix that averages the frames of each sliding window. Shapes: returns [windows, n_frames]."""
    window = min(window, n_frames // 2)
    step = min(step, (n_frames - window) // 2)
    start = torch.arange(0, n_frames - window + 1, step, device=like.device)
    frame = torch.arange(n_frames, device=like.device)
    inside = (frame >= start[:, None]) & (frame < start[:, None] + window)
    return inside.to(like.dtype) / window


def compute_trajectories(bold: Tensor, u: Tensor, v: Tensor, window: int, step: int) -> Tensor:
    """Compute the Fisher z of the correlation of two ROIs in each sliding window.

    Shapes: bold [B, T, P], u, v [M]; returns [B, windows, M].
    """
    matrix = build_window_matrix(bold.shape[1], window, step, bold)

    def average(x: Tensor) -> Tensor:
        return torch.einsum("wt,btm->bwm", matrix, x)

    mean = average(bold)
    variance = (average(bold.square()) - mean.square()).clamp_min(1e-6)
    covariance = average(bold[:, :, u] * bold[:, :, v]) - mean[:, :, u] * mean[:, :, v]
    r = covariance * (variance[:, :, u] * variance[:, :, v]).rsqrt()
    return r.clamp(-0.999, 0.999).atanh()


def describe_trajectories(full: Tensor, z: Tensor) -> Tensor:
    """Compute the :data:`DESCRIPTORS` of edges.

    Shapes: full [B, M], z [B, windows, M] or [B, pieces, windows, M]; returns [B, M, 7].
    """
    time = tuple(range(1, z.dim() - 1))
    mean = z.mean(time, keepdim=True)
    centred = z - mean
    power = centred.square().sum(time)
    lagged = (centred[..., 1:, :] * centred[..., :-1, :]).sum(time) / power.clamp_min(1e-9)
    mean, n_windows = mean.flatten(1, -2).squeeze(1), z[0, ..., 0].numel()
    spread = (power / n_windows).sqrt()
    extent = z.amax(time) - z.amin(time)
    mean_step = (z[..., 1:, :] - z[..., :-1, :]).abs().mean(time)
    above_zero = (z > 0).to(z.dtype).mean(time)
    return torch.stack([full, mean, spread, extent, lagged, mean_step, above_zero], -1)


def build_line_graph(u: Tensor, v: Tensor) -> Tensor:
    """Build the line graph of edges with ends u and v [M]: 1 where two edges share an ROI. Shape [M, M].

    The diagonal is 0.
    """
    ends = torch.stack([u, v], -1)
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).any(-1).any(-1)
    return (shared & ~torch.eye(len(u), dtype=torch.bool, device=u.device)).float()


class CORENetwork(nn.Module):
    """Message passing between scaffold edges, the nodes of a line graph.

    Gates, computed from the state and the prior of an edge, weight its messages and its share of the readout.
    """

    def __init__(self, s: CORESettings) -> None:
        super().__init__()
        self.window, self.step, self.bold_windows = s.window, s.step, s.bold_windows
        n_prior, d = 4, s.width
        self.embed = Linear(2 * len(DESCRIPTORS) + n_prior, d)
        self.embed_norm = BatchNorm(d)
        self.gates = nn.ModuleList(build_mlp(d + n_prior, d // 2 or 1, 1) for _ in range(s.layers + 1))
        self.own = nn.ModuleList(Linear(d, d) for _ in range(s.layers))
        self.message = nn.ModuleList(Linear(d, d, bias=False) for _ in range(s.layers))
        self.norms = nn.ModuleList(BatchNorm(d) for _ in range(s.layers))
        self.dropout = Dropout(s.dropout)
        self.classify = build_mlp(d, d, 1, dropout=s.dropout)

    def forward(self, scans: Scans, step: StepContext | None = None) -> COREOutput:
        """Compute logits, representations and gates of scans."""
        learned = scans.state.learned
        confounds = Confounds(*(learned[name] for name in Confounds._fields))
        u, v, prior = learned["u"], learned["v"], learned["prior"].expand(len(scans.A), -1, -1)
        live = (scans.alive[:, u] & scans.alive[:, v]).to(scans.A.dtype).unsqueeze(-1)  # [B, M, 1]
        x = describe_edges(scans, learned, self.window, self.step, self.bold_windows)
        x = remove_confounds(x, live, scans.covariates, confounds)
        towards_patients = x * prior[..., :1].sign()
        H = self.embed_norm(self.embed(torch.cat([x, towards_patients, prior], -1)), step).relu()
        for gate, own, message, norm in zip(self.gates, self.own, self.message, self.norms, strict=False):
            g = live * gate(torch.cat([H, prior], -1), step).sigmoid()
            messages = torch.einsum("ef,bfd->bed", learned["line"], g * message(H))  # one product for all scans
            H = H + self.dropout(norm(own(H) + messages, step).relu(), step)
        g = live * self.gates[-1](torch.cat([H, prior], -1), step).sigmoid()
        pooled = (g * H).sum(1) / g.sum(1).clamp_min(1e-6)
        return COREOutput(self.classify(pooled, step).squeeze(-1), pooled, g.squeeze(-1))


def describe_edges(scans: Scans, learned: Tensors, window: int, step: int, bold_windows: int = 1) -> Tensor:
    """Describe the scaffold edges of each scan. Shapes: returns [B, M, 7]."""
    u, v = learned["u"], learned["v"]
    full = fill_dead(scans.A, scans.alive, learned["mean"])[:, u, v]
    z = compute_trajectories(split_windows(scans.bold, bold_windows), u, v, window, step)
    return describe_trajectories(full, z.unflatten(0, (-1, bold_windows)))


@method(
    "core",
    family="brain networks",
    needs={"bold", "sites", "sex", "age"},
    provenance=reconstruct(
        "based on the abstract and a public summary, which name its parts but give no details; formulas, layer sizes "
        "and training are our choice"
    ),
    reference="Wang, Zhang et al., When Brain Networks Travel (CORE), arXiv 2605.06050",
)
class CORE(BoldMethod):
    """Gated line-graph network on trajectories of edges whose diagnosis effect is reproducible across sites."""

    settings: CORESettings
    peak_matrices_per_scan = 70.0

    def network(self, shape: InputShape) -> nn.Module:
        return CORENetwork(self.settings)

    def learn(self, source: SourceScans) -> Tensors:
        """Learn from source scans: the scaffold, its line graph, and the confounds of the descriptors."""
        graphs = source.connectomes
        scans = self.gather_inputs(graphs).take(torch.from_numpy(source.scans).to(graphs.device))
        edges = build_scaffold(source, scans, self.settings)
        learned = super().learn(source) | {"u": edges.u, "v": edges.v, "prior": edges.compute_priors()}
        learned["line"] = normalise_adjacency(build_line_graph(edges.u, edges.v).to(graphs.dtype))
        s = self.settings
        x = torch.cat([describe_edges(p, learned, s.window, s.step, s.bold_windows) for p in scans.split(128)])
        live = (scans.alive[:, edges.u] & scans.alive[:, edges.v]).to(x.dtype).unsqueeze(-1).expand_as(x)
        return learned | fit_confounds(source, x, live, scans.covariates)._asdict()

    def declare_state(self, n_rois: int) -> dict[str, TensorSpec]:
        end = TensorSpec(("edges",), 0, n_rois - 1, whole=True)
        declared = super().declare_state(n_rois) | {"learned.u": end, "learned.v": end}
        declared |= {"learned.prior": TensorSpec(("edges", 4)), "learned.line": TensorSpec(("edges", "edges"))}
        return declared | declare_confounds(2, "edges", "descriptors")

    def loss(self, out: COREOutput, batch: Batch) -> Tensor:
        """Cross-entropy + sparsity * mean gate."""
        return classification_loss(out.logit, batch) + self.settings.sparsity * average_losses(out.gate.mean(-1), batch)
