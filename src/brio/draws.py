"""Random numbers that depend only on their purpose.

Every draw is addressed by integers and names (a seed, a purpose, a participant, a refresh, ...) and not by its position
in a stream. A draw for one participant therefore does not change when the job includes another participant, another run
in the stack or another device. This makes a run inside a stack equal to the run alone, and ensures that the test site
does not affect the draws of the source sites.

The generator is the finaliser of splitmix64 (Steele, Lea & Flood 2014), chained over the parts of the address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB


def address(name: str) -> int:
    """Hash a name (of a participant, a site, a purpose) to a signed 64-bit integer, the same on every machine."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def addresses(names: Iterable[str]) -> np.ndarray:
    """Hash many names by :func:`address`. Shape [n], int64."""
    return np.array([address(str(n)) for n in names], dtype=np.int64)


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX2)
    return z ^ (z >> np.uint64(31))


def key(*parts: int | str | np.ndarray) -> np.ndarray:
    """Chain the parts of an address into one key."""
    with np.errstate(over="ignore"):
        state = np.zeros((), np.uint64)
        for part in parts:
            number = address(part) if isinstance(part, str) else part
            word = np.asarray(number).astype(np.int64).view(np.uint64)
            state = _mix(state + word * np.uint64(_GAMMA) + np.uint64(_GAMMA))
        return state


def draw_uniform(*parts: int | str | np.ndarray) -> np.ndarray:
    """Draw uniform numbers in [0, 1) for an address."""
    return (key(*parts) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch shifts arithmetically)."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def draw_uniform_tensor(start: Tensor, *counters: Tensor | int) -> Tensor:
    """Draw on a device the same numbers that :func:`draw_uniform` draws on the host."""
    gamma, mix1, mix2 = _signed(_GAMMA), _signed(_MIX1), _signed(_MIX2)
    state = start
    for counter in counters:
        if isinstance(counter, int):
            z = state + _signed((counter * _GAMMA + _GAMMA) % (1 << 64))
        else:
            z = state + counter * gamma + gamma
        z = (z ^ _shift(z, 30)) * mix1
        z = (z ^ _shift(z, 27)) * mix2
        state = z ^ _shift(z, 31)
    return _shift(state, 11).double() * 2.0**-53
