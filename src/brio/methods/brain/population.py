"""Population graphs: scans hear others that resemble them, through attention typed by sex."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import draws
from ...training import Stack, StepContext
from ..layers import BatchNorm, Dropout

__all__ = ["Member", "Population", "PopulationLayer", "Relation", "bank_scans", "neighbours", "others"]


class Relation(nn.Module):
    """Dot-product attention of scans over others (Shi et al. 2021): skip(x_i) + sum_j a_ij value(x_j)."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out)
        self.value, self.skip = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out)

    def send(self, x: Tensor) -> Tensor:
        """What others hear of scans: their keys and values. Shape [n, 2 n_out]."""
        return torch.cat([self.key(x), self.value(x)], -1)

    def forward(self, x: Tensor, sent: Tensor, heard: Tensor) -> Tensor:
        """x: [B, n_in]; sent: [m, 2 n_out]; heard: bool, [B, m]. Who hears nobody keeps to the skip."""
        key, value = sent.chunk(2, -1)
        score = self.query(x) @ key.T / math.sqrt(key.shape[-1])
        share = torch.where(heard, score, torch.full_like(score, -1e9)).softmax(-1) * heard.to(x.dtype)
        return self.skip(x) + share @ value


class PopulationLayer(nn.Module):
    """Attention over scans of the same and of the other sex, weighed against each other; the weights sum to one."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.same, self.other = Relation(n_in, n_out), Relation(n_in, n_out)
        self.balance = nn.Parameter(torch.tensor([0.8, 0.2]).log())
        self.norm = BatchNorm(n_out)

    def forward(
        self,
        x: Tensor,
        same: Tensor,
        other: Tensor,
        bank: Tensor | None = None,
        step: StepContext | None = None,
    ) -> tuple[Tensor, Tensor]:
        """x: [B, n_in]; same, other: bool, [B, m]; bank: [m, 4 n_out]. The next state, and what the scans send."""
        sent = torch.cat([self.same.send(x), self.other.send(x)], -1)
        of_same, of_other = (sent if bank is None else bank).chunk(2, -1)
        weight = self.balance.softmax(0)
        x = weight[0] * self.same(x, of_same, same) + weight[1] * self.other(x, of_other, other)
        return F.leaky_relu(self.norm(x, step)), sent


class Population(nn.Module):
    """Layers over the population graph; a scan is described by its states of all layers."""

    def __init__(self, n_in: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PopulationLayer(a, width) for a in [n_in, *[width] * (layers - 1)])
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        same: Tensor,
        other: Tensor,
        bank: Tensor | None = None,
        step: StepContext | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Scans hear each other, or a bank.

        Parameters
        ----------
        x : Tensor, shape [B, n_in]
        same, other : Tensor of bool, shape [B, m]
            Who hears whom; m = B without a bank.
        bank : Tensor, shape [layers, m, 4 width], optional
            What the scans of the bank send at each layer.

        Returns
        -------
        states : Tensor, shape [B, layers * width]
        sent : Tensor, shape [layers, B, 4 width]
        """
        states, said = [], []
        for number, layer in enumerate(self.layers):
            x, sent = layer(self.dropout(x, step), same, other, None if bank is None else bank[number], step)
            states.append(x)
            said.append(sent)
        return torch.cat(states, -1), torch.stack(said)


class Member(NamedTuple):
    """What likeness is read from."""

    sex: Tensor  # [n]
    age: Tensor  # [n] in standard deviations of the source scans
    site: Tensor | None  # [n] None where it is not known, or does not count


def neighbours(who: Member, whom: Member, candidate: Tensor, age_window: float, beta: float) -> tuple[Tensor, Tensor]:
    """Whom each scan hears among those of its own sex and of the other. Shapes [B, m], bool.

    Likeness is [ages alike] + [site the same], and must exceed its mean over the candidates of that sex by ``beta``
    standard deviations. It is standardised within a sex: over both, no scan of an unknown site would ever come to hear
    one of the other sex.

    Parameters
    ----------
    candidate : Tensor of bool, shape [m] or [B, m]
    """
    alike = ((who.age[:, None] - whom.age).abs() < age_window).to(who.age.dtype)
    if who.site is not None and whom.site is not None:
        alike = alike + (who.site[:, None] == whom.site).to(alike.dtype)
    same_sex = who.sex[:, None] == whom.sex

    def strongest(among: Tensor) -> Tensor:
        share = among.to(alike.dtype)
        share = share / share.sum(-1, keepdim=True).clamp_min(1)
        mean = (share * alike).sum(-1, keepdim=True)
        deviation = (share * (alike - mean).square()).sum(-1, keepdim=True).sqrt()
        return among & (alike > mean + beta * deviation + 1e-5)  # likeness counts in wholes: a tie is not above

    return strongest(same_sex & candidate), strongest(~same_sex & candidate)


def others(n: int, device: torch.device) -> Tensor:
    """Everyone but oneself. Shape [n, n], bool."""
    return ~torch.eye(n, dtype=torch.bool, device=device)


def bank_scans(stack: Stack, per_cell: int) -> tuple[np.ndarray, np.ndarray]:
    """Scans of each run's bank, drawn from its seed: so many of each source site and class.

    Returns
    -------
    index : ndarray of int64, shape [R, E * 2 * per_cell]
        Positions in the cohort, padded.
    real : ndarray of bool, same shape
        Whether there is such a scan.
    """
    sources, slot = stack.sources, np.arange(per_cell)
    members, size = sources.members, sources.size[..., None]
    ids = draws.addresses(stack.connectomes.cohort.ids)
    key = draws.draw_uniform(sources.seeds[:, None, None, None], "bank", ids[members])
    order = np.argsort(np.where(np.arange(members.shape[-1]) < size, key, 2.0), axis=-1, kind="stable")
    index = np.take_along_axis(members, order[..., np.minimum(slot, members.shape[-1] - 1)], axis=-1)
    return index.reshape(len(stack), -1), (slot < size).reshape(len(stack), -1)
