"""Population graphs: scans receive messages from similar scans, through attention typed by sex."""

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


class ScanAttention(nn.Module):
    """Dot-product attention of scans over other scans (Shi et al. 2021): skip(x_i) + sum_j a_ij value(x_j)."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out)
        self.value, self.skip = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out)

    def compute_messages(self, x: Tensor) -> Tensor:
        """Compute the messages of scans: their keys and values. Shape [n, n_in] -> [n, 2 n_out]."""
        return torch.cat([self.key(x), self.value(x)], -1)

    def forward(self, x: Tensor, messages: Tensor, linked: Tensor) -> Tensor:
        """Update scans by the messages they receive.

        Shapes: x [B, n_in], messages [m, 2 n_out], linked [B, m]; returns [B, n_out].
        """
        key, value = messages.chunk(2, -1)
        score = self.query(x) @ key.T / math.sqrt(key.shape[-1])
        share = torch.where(linked, score, torch.full_like(score, -1e9)).softmax(-1) * linked.to(x.dtype)
        return self.skip(x) + share @ value


class PopulationLayer(nn.Module):
    """Attention over scans of the same sex and over those of the other sex, with weights that sum to one."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.same, self.other = ScanAttention(n_in, n_out), ScanAttention(n_in, n_out)
        # in memory, since elsewhere ("meta") torch imports its compiler for a logarithm
        self.balance = nn.Parameter(torch.tensor([0.8, 0.2], device="cpu").log())
        self.norm = BatchNorm(n_out)

    def forward(
        self,
        x: Tensor,
        same: Tensor,
        other: Tensor,
        bank: Tensor | None = None,
        step: StepContext | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Update scans by messages from each other, or from a bank.

        Shapes: x [B, n_in], same, other [B, m], bank [m, 4 n_out]; returns states [B, n_out], messages [B, 4 n_out].
        """
        messages = torch.cat([self.same.compute_messages(x), self.other.compute_messages(x)], -1)
        of_same, of_other = (messages if bank is None else bank).chunk(2, -1)
        weight = self.balance.softmax(0)
        x = weight[0] * self.same(x, of_same, same) + weight[1] * self.other(x, of_other, other)
        return F.leaky_relu(self.norm(x, step)), messages


class Population(nn.Module):
    """Layers over the population graph; a scan is represented by its states of all layers."""

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
        """Pass messages between the scans of a batch, or from a bank to them.

        Shapes: x [B, n_in], same, other [B, m], bank [layers, m, 4 width]; returns states [B, layers * width], messages
        [layers, B, 4 width].
        """
        states, messages = [], []
        for number, layer in enumerate(self.layers):
            x, message = layer(self.dropout(x, step), same, other, None if bank is None else bank[number], step)
            states.append(x)
            messages.append(message)
        return torch.cat(states, -1), torch.stack(messages)


class Demographics(NamedTuple):
    """What the similarity of scans is computed from."""

    sex: Tensor  # [n]
    age: Tensor  # [n] in standard deviations of the source scans
    site: Tensor | None  # [n] None where sites are unknown or play no part


def find_neighbours(
    receivers: Demographics, senders: Demographics, candidate: Tensor, age_window: float, beta: float
) -> tuple[Tensor, Tensor]:
    """Find the scans from which each scan receives messages, of its own sex and of the other.

    The similarity of two scans is [ages alike] + [same site]. It must exceed its mean over the candidates of that sex
    by ``beta`` standard deviations. It is standardised within a sex: over both, no scan of an unknown site would ever
    receive from the other sex.

    Shapes: candidate [m] or [B, m]; returns [B, m].
    """
    similarity = ((receivers.age[:, None] - senders.age).abs() < age_window).to(receivers.age.dtype)
    if receivers.site is not None and senders.site is not None:
        similarity = similarity + (receivers.site[:, None] == senders.site).to(similarity.dtype)
    same_sex = receivers.sex[:, None] == senders.sex

    def select_similar(among: Tensor) -> Tensor:
        share = among.to(similarity.dtype)
        share = share / share.sum(-1, keepdim=True).clamp_min(1)
        mean = (share * similarity).sum(-1, keepdim=True)
        deviation = (share * (similarity - mean).square()).sum(-1, keepdim=True).sqrt()
        return among & (similarity > mean + beta * deviation + 1e-5)  # similarity is 0, 1 or 2: a tie is not above

    return select_similar(same_sex & candidate), select_similar(~same_sex & candidate)


def exclude_self(n: int, device: torch.device) -> Tensor:
    """Make the mask that lets a scan receive from every scan but itself. Shape [n, n], bool."""
    return ~torch.eye(n, dtype=torch.bool, device=device)


def select_bank(stack: Stack, per_cell: int) -> tuple[np.ndarray, np.ndarray]:
    """Select the scans of each run's bank: so many of each source site and class, drawn by the seed of the run.

    Shapes: returns index [R, E * 2 * per_cell].
    """
    sources, slot = stack.sources, np.arange(per_cell)
    members, size = sources.members, sources.size[..., None]
    ids = draws.addresses(stack.connectomes.cohort.ids)
    key = draws.draw_uniform(sources.seeds[:, None, None, None], "bank", ids[members])
    order = np.argsort(np.where(np.arange(members.shape[-1]) < size, key, 2.0), axis=-1, kind="stable")
    index = np.take_along_axis(members, order[..., np.minimum(slot, members.shape[-1] - 1)], axis=-1)
    return index.reshape(len(stack), -1), (slot < size).reshape(len(stack), -1)
