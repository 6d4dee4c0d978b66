"""A guided epoch of BRIO as one would write it first in PyTorch: one run, an ordinary module, scan by scan.

It computes what brio does (same network, batches, losses and refreshes; other draws of re-estimates), without what brio
adds: no envelope gradient (autograd runs through the Sinkhorn iterations), re-estimates one after the other, one pass
over the network for the re-estimates of each scan, torch's own AdamW.
"""

import copy

import numpy as np
import torch
from torch.nn import functional as F

from brio.connectome import clip_block_length
from brio.methods.brio.qualification import cosines, extend_clouds, qualify, weighted_cost
from brio.training import RunState, Scans


class PlainRun:
    """One run that starts its guided stage where the first run of a stack does."""

    def __init__(self, method, stack):
        self.settings, self.connectomes = method.settings, stack.connectomes
        self.network = copy.deepcopy(stack.network)
        self.network.load_state_dict({name: p[0].detach().clone() for name, p in stack.params.items()})
        self.network.assignment.requires_grad_(False)
        first = [{name: t[0].clone() for name, t in group.items()} for group in stack.state]
        self.state = RunState(*first)
        epochs = range(method.settings.T_w + 1, method.settings.T_w + 1 + method.settings.M)
        self.batches = [stack.sources.batches(epoch, method.settings.cell_batch)[0][:, 0] for epoch in epochs]
        self.cell_weight, self.pair_weight = (
            torch.from_numpy(weight[0]).float() for weight in (stack.sources.cell_weight, stack.sources.pair_weight)
        )
        scans, average = stack.sources.cell_average()
        self.source, self.cell_average = scans[0], torch.from_numpy(average[0]).float()
        trained = [p for p in self.network.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(
            trained, lr=method.settings.learning_rate, weight_decay=method.settings.weight_decay
        )

    def train_epochs(self):
        """Train the first guided epochs, up to the second refresh; return the loss of the last step."""
        self.refresh()
        for batch in np.concatenate(self.batches):
            loss = self.find_loss(torch.from_numpy(batch))
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        return float(loss.detach())

    def compute_outputs(self, A, scans):
        """Outputs of the network for connectomes of these scans."""
        return self.network(Scans.of(A, self.connectomes.alive[scans])._replace(state=self.state))

    def find_loss(self, batch):
        """Classification and alignment, Eq. (27), of scans [E, 2, n]."""
        scans, settings = batch.flatten(), self.settings
        out = self.compute_outputs(self.connectomes.full[scans], scans)
        label = torch.arange(2.0)[None, :, None].expand(batch.shape).flatten()
        cells = F.binary_cross_entropy_with_logits(out.logit, label, reduction="none").unflatten(0, batch.shape)
        clouds, log_weight = extend_clouds(out.factors.unflatten(0, batch.shape), self.state.training)
        first, second = torch.triu_indices(len(batch), len(batch), 1)
        alpha, g = self.state.training["alpha_bar"], self.state.training["g"]
        xy, xx, yy = (
            transport(
                weighted_cost(cosines(clouds[one], clouds[other]), alpha),
                log_weight[one],
                log_weight[other],
                settings.epsilon,
                settings.sinkhorn_iterations,
            )
            for one, other in ((first, second), (first, first), (second, second))
        )
        aligned = (self.pair_weight * (g * (xy - xx / 2 - yy / 2)).mean(-1)).sum()
        return (self.cell_weight * cells.mean(-1)).sum() + settings.lambda_env * aligned

    @torch.no_grad()
    def refresh(self):
        """Recompute the qualification from re-estimates of every source scan."""
        rng, settings = np.random.default_rng(0), self.settings
        length = float(self.state.learned["block_length"])
        blocks = clip_block_length(length, self.connectomes.n_frames[self.source], settings.block_rule)
        a, change = [], []
        for scan, block in zip(self.source, blocks, strict=True):
            frames = self.connectomes.scan(scan)
            reestimates = torch.stack([correlate(resample(frames, int(block), rng)) for _ in range(settings.K)])
            own = self.compute_outputs(self.connectomes.full[scan][None], [scan]).contributions
            a.append(own[0])
            moved = self.compute_outputs(reestimates, [scan] * settings.K).contributions - own
            change.append(moved.square().mean(0))
        sites = torch.full((len(self.cell_weight),), 1.0 / len(self.cell_weight))
        qualified = qualify(torch.stack(a), torch.stack(change), self.network.w, self.cell_average, sites, settings)
        self.state.training.update(qualified._asdict())


def resample(frames, block, rng):
    """Draw a circular moving-block resample of the frames [T, P]."""
    starts = rng.integers(len(frames), size=-(-len(frames) // block))
    return frames[torch.from_numpy(((starts[:, None] + np.arange(block)) % len(frames)).ravel()[: len(frames)])]


def correlate(frames):
    """Fisher z of one scan, zero for ROIs without signal."""
    r = torch.corrcoef(frames.T).nan_to_num().fill_diagonal_(0.0)
    return r.clamp(-1 + 1e-6, 1 - 1e-6).atanh()


def transport(C, log_eta, log_zeta, epsilon, iterations):
    """Entropic cost of clouds, by log-domain iterations that autograd records."""
    phi, psi = C.new_zeros(C.shape[:-1]), C.new_zeros(*C.shape[:-2], C.shape[-1])
    for _ in range(iterations):
        phi = -epsilon * torch.logsumexp((log_zeta + psi / epsilon).unsqueeze(-2) - C / epsilon, -1)
        psi = -epsilon * torch.logsumexp((log_eta + phi / epsilon).unsqueeze(-1) - C / epsilon, -2)
    return (log_eta.exp() * phi).sum(-1) + (log_zeta.exp() * psi).sum(-1)
