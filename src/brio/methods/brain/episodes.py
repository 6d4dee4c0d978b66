"""Parts of XG-GNN's objective: episodes of source sites, mixtures within a site, and maps of class differences."""

from __future__ import annotations

import torch
from torch import Tensor

from ...connectome import fill_dead
from ...training import Scans


def split_episode(draw: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Split the source sites at random into meta-training (half of them, rounded down) and meta-test sites.

    A single source site is both.

    Shapes: draw [E], real [E]; returns [E].
    """
    rank = torch.argsort(torch.argsort(draw + 2.0 * (1.0 - real), stable=True), stable=True)
    count = real.sum()
    train = real * (rank < torch.floor(count / 2).clamp_min(1)).to(real.dtype)
    return train, torch.where(count > 1, real - train, real)


def pair_within_sites(draw: Tensor, site: Tensor) -> Tensor:
    """Pair each scan with a scan of its own site, by a random order of the scans of each site.

    Shapes: draw [B], site [B]; returns [B].
    """
    return torch.argsort(draw + 2.0 * site, stable=True)


def mix_scans(scans: Scans, label: Tensor, partner: Tensor, share: Tensor, mean: Tensor) -> tuple[Scans, Tensor]:
    """Mix scans and labels with those of their partners (mixup, Zhang et al. 2018).

    Edges of ROIs without signal are filled before connectomes are mixed, so the network fills nothing in a mixture.

    Shapes: label [B], partner [B], share [B], mean [P, P]; returns label [B].
    """

    def mix(x: Tensor) -> Tensor:
        own = share.view(-1, *[1] * (x.dim() - 1))
        return own * x + (1 - own) * x[partner]

    A, alive = mix(fill_dead(scans.A, scans.alive, mean)), mix(scans.alive.to(mean.dtype))
    return scans._replace(A=A, alive=alive, bold=mix(scans.bold)), mix(label)


def compute_difference_maps(learned: Tensor, label: Tensor, cells: tuple[int, int, int]) -> Tensor:
    """Compute where the learned connectomes of the classes differ at each site.

    |mean of class 0 - mean of class 1|, each column standardised, through a sigmoid. A mixed scan belongs to both
    classes, by its label.

    Shapes: learned [B, P, P], label [B]; returns [E, P, P].
    """
    n_sites = cells[0]
    y = label.reshape(n_sites, -1)
    m = learned.reshape(n_sites, -1, learned[0].numel())
    one, zero = (((w / w.sum(1, keepdim=True)).unsqueeze(1) @ m).squeeze(1) for w in (y, 1 - y))
    D = (one - zero).abs().unflatten(-1, learned.shape[1:])
    centred = D - D.mean(-2, keepdim=True)
    variance = centred.square().sum(-2, keepdim=True) / (D.shape[-2] - 1)
    return (centred * (variance + 1e-12).rsqrt()).sigmoid()


def map_entropy(S: Tensor) -> Tensor:
    """Sum over the rows of a map of -g log g, with g the geometric mean of the row. Shape [E, P, P] -> [E]."""
    log = (S + 1e-10).log().mean(-1)
    return -(log.exp() * log).sum(-1)


def dice_gap(S: Tensor) -> Tensor:
    """1 - Dice of the maps of every two sites. Shape [E, P, P] -> [E, E]."""
    flat = S.flatten(1)
    size = flat.sum(1)
    return 1 - 2 * (flat @ flat.T) / (size[:, None] + size + 1e-8)


def self_dice_gap(S: Tensor) -> Tensor:
    """1 - Dice of a map with itself, mean of the two sites of every pair. Shape [E, P, P] -> [E, E].

    The published code compares the one of the two maps that comes later in a random order with itself.
    """
    flat = S.flatten(1)
    gap = 1 - 2 * flat.square().sum(1) / (2 * flat.sum(1) + 1e-8)
    return 0.5 * (gap[:, None] + gap)


def first_adam_step(gradient: Tensor) -> Tensor:
    """Direction of Adam's first step, when its averages hold this gradient alone; without gradient."""
    return (gradient / (gradient.abs() + 1e-8)).detach()
