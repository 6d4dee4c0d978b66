"""Brain Network Transformer: attention over connection profiles, orthonormal clustering readout, mixup."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...connectome.fc import fisher_z
from ...settings import Heads, Layers, LearningRate, ShareBelowOne, Width, choice, setting
from ...training import Batch, InputShape, NetworkCall, NeuralSettings, Output, Scans, StepContext, Tensors
from ..layers import Classifier, Dropout, Linear, average_losses, bce, build_profiles
from ..registry import follow_paper, method


@dataclass(frozen=True)
class BrainNetTFSettings(NeuralSettings):
    """Settings of the Brain Network Transformer.

    The published learning rate, 1e-4 for batches of 16, is scaled by the square root of the batch size.

    Attributes
    ----------
    layers, heads : int
        Number of transformer layers and of attention heads; fewer heads are used if ``heads`` does not divide the
        number of ROIs.
    feed_forward : int
        Hidden width of a transformer layer; at most 16 times the number of ROIs.
    dropout : float
        Dropout inside the transformer layers.
    centres : int
        Number of clusters in the readout; at most the number of ROIs.
    mixup : bool
        Whether to train on mixtures of pairs of scans and of their labels.
    """

    learning_rate: LearningRate = setting(3e-4, choice(1e-4, 3e-4, 1e-3))
    schedule: Literal["constant", "cosine"] = "cosine"
    layers: Layers = 2
    heads: Heads = 4
    feed_forward: Width = 1024
    dropout: ShareBelowOne = setting(0.1, choice(0.1, 0.3))
    centres: Width = setting(100, choice(10, 100))
    mixup: bool = True


class PlainAttention(nn.MultiheadAttention):
    """Self-attention by matrix products and a softmax, in training as at inference.

    The fused inference kernels of torch do not work with a runs axis. torch does not use them if attention weights are
    requested, nor if the keys are a different tensor from the queries.
    """

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        other = key.view_as(key)
        return super().forward(query, other, other, need_weights=True, average_attn_weights=False)


class EncoderLayer(nn.TransformerEncoderLayer):
    """torch's post-norm transformer layer, with dropout that takes the step.

    There is no dropout of attention weights: torch would draw it from its global generator.
    """

    def __init__(self, n_rois: int, heads: int, feed_forward: int, dropout: float) -> None:
        heads = max(h for h in range(1, heads + 1) if n_rois % h == 0)
        super().__init__(n_rois, heads, feed_forward, batch_first=True)
        self.self_attn = PlainAttention(n_rois, heads, batch_first=True)
        self.linear1, self.linear2 = Linear(n_rois, feed_forward), Linear(feed_forward, n_rois)
        for name in ("dropout", "dropout1", "dropout2"):
            setattr(self, name, Dropout(dropout))

    def forward(self, H: Tensor, step: StepContext | None = None) -> Tensor:  # type: ignore[override]
        """Update the states of ROIs. Shape [B, P, P] in and out."""
        H = self.norm1(H + self.dropout1(self.self_attn(H, H, H)[0], step))
        update = self.linear2(self.dropout(self.linear1(H).relu(), step))
        return self.norm2(H + self.dropout2(update, step))


class OCRead(nn.Module):
    """Orthonormal clustering readout: soft assignment of ROIs to frozen orthonormal centres.

    E = encode(H), a_uk = softmax_k((E_u . c_k)^2), and cluster k holds sum_u a_uk E_u.
    """

    centres: Tensor

    def __init__(self, n_rois: int, n_centres: int, width: int = 32) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Linear(n_rois * n_rois, width),
            nn.LeakyReLU(),
            nn.Linear(width, width),
            nn.LeakyReLU(),
            nn.Linear(width, n_rois * n_rois),
        )
        self.register_buffer("centres", nn.init.orthogonal_(torch.empty(min(n_centres, n_rois), n_rois)))

    def forward(self, H: Tensor) -> Tensor:
        """Pool the states of ROIs into clusters. Shape [B, P, P] -> [B, K, P]."""
        E = self.encode(H.flatten(1)).view_as(H)
        assignment = (E @ self.centres.T).square().softmax(-1)
        return assignment.transpose(-1, -2) @ E


class BrainNetTFNetwork(nn.Module):
    """A transformer whose tokens are ROIs, with rows of correlations as features and no positional encoding."""

    def __init__(self, shape: InputShape, s: BrainNetTFSettings) -> None:
        super().__init__()
        n_rois = shape.n_rois
        feed_forward = min(s.feed_forward, 16 * n_rois)
        self.layers = nn.ModuleList(EncoderLayer(n_rois, s.heads, feed_forward, s.dropout) for _ in range(s.layers))
        self.read = OCRead(n_rois, s.centres)
        self.narrow = nn.Sequential(Linear(n_rois, 8), nn.LeakyReLU())
        n_centres = len(self.read.centres)
        self.head = nn.Sequential(nn.Linear(8 * n_centres, 256), nn.LeakyReLU(), nn.Linear(256, 32), nn.LeakyReLU())
        self.classify = nn.Linear(32, 1)

    def forward(self, scans: Scans, step: StepContext | None = None) -> Output:
        """Compute logits and representations of scans."""
        H = undo_fisher_z(scans)
        for layer in self.layers:
            H = layer(H, step)
        h = self.head(self.narrow(self.read(H)).flatten(1))
        return Output(self.classify(h).squeeze(-1), h)


def undo_fisher_z(scans: Scans) -> Tensor:
    """Compute the Pearson correlations that the published network reads, with ones on the diagonal.

    Shapes: returns [B, P, P].
    """
    eye = torch.eye(scans.A.shape[-1], device=scans.A.device, dtype=scans.A.dtype)
    return build_profiles(scans).tanh() + eye


def mix_up(batch: Batch) -> tuple[Scans, Tensor]:
    """Mix every scan and its label with another one (mixup with alpha = 1, Zhang et al. 2018).

    One share is drawn for the whole batch. Correlations are mixed, not their Fisher z values.

    Shapes: returns label [B].
    """
    share, other = batch.step.draw_uniform((1,), batch.scans.A), batch.step.draw_permutation()
    r, y = undo_fisher_z(batch.scans), batch.label
    A = fisher_z(share * r + (1 - share) * r[other])
    return batch.scans._replace(A=A, alive=torch.ones_like(batch.scans.alive)), share * y + (1 - share) * y[other]


@method(
    "brainnettf",
    family="brain networks",
    reference="Kan et al., Brain Network Transformer, NeurIPS 2022",
    provenance=follow_paper("it does not scale the first of its orthogonal centres to unit length"),
)
class BrainNetTF(Classifier):
    """Transformer on connection profiles with an orthonormal clustering readout, trained on mixtures of scans."""

    settings: BrainNetTFSettings
    network_class = BrainNetTFNetwork
    peak_matrices_per_scan = 160.0

    def objective(self, call: NetworkCall, params: Tensors, batch: Batch) -> Tensor:
        """Binary cross-entropy with mixed labels."""
        scans, label = mix_up(batch) if self.settings.mixup else (batch.scans, batch.label)
        return average_losses(bce(call(params, scans, batch.step).logit, label), batch)
