"""A complete example of a method. To run it: brio run COHORT --load my_method.py --method gated-profiles."""

from dataclasses import dataclass

import torch

from brio import authoring


@dataclass(frozen=True)
class GatedProfilesSettings(authoring.NeuralSettings):
    """Settings. Each has a default; some also have a range over which brio tunes them."""

    learning_rate: float = authoring.setting(1e-3, authoring.log_uniform(3e-4, 3e-3))
    dropout: float = authoring.setting(0.5, authoring.choice(0.2, 0.5, 0.8))
    width: int = 32


class GatedProfiles(torch.nn.Module):
    """A network for ONE run. It takes scans, and returns logits and the representations that the classifier reads."""

    def __init__(self, shape, s):
        super().__init__()
        self.gate = torch.nn.Parameter(torch.zeros(shape.n_rois))
        self.embed = torch.nn.Linear(shape.n_rois, s.width)
        self.dropout = authoring.Dropout(s.dropout)  # drops the same entries whether a run trains alone or in a stack
        self.classify = torch.nn.Linear(s.width, 1)

    def forward(self, scans, step=None):  # B scans; the training step, or None at inference
        states = self.embed(self.dropout(authoring.build_profiles(scans), step)).relu()  # [B, P, width]
        pooled = (self.gate.softmax(0)[:, None] * states).sum(1)
        return authoring.Output(self.classify(pooled).squeeze(-1), pooled)


@authoring.method("gated-profiles", family="mine", provenance="written for this example", reference="you")
class GatedProfilesMethod(authoring.NeuralMethod):
    """Average the connection profiles of ROIs, each weighted by a learned gate."""

    settings: GatedProfilesSettings

    def network(self, shape):
        return GatedProfiles(shape, self.settings)

    def loss(self, out, batch):
        return authoring.classification_loss(out.logit, batch)
