"""Draws: splitmix64 by address, the same on host and device, uniform, and free of neighbours."""

import hashlib

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from brio import draws

WORD = 1 << 64
int64 = st.integers(-(1 << 63), (1 << 63) - 1)


def splitmix64(*parts: int) -> int:
    """Chained finaliser in whole numbers of unlimited size."""
    state = 0
    for part in parts:
        z = (state + part * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % WORD
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
        state = z ^ (z >> 31)
    return state


def test_key_of_zero_is_the_published_first_output_of_splitmix64():
    assert int(draws.key(0)) == 0xE220A8397B1DCDAF


@settings(max_examples=40)
@given(st.lists(int64, min_size=1, max_size=5))
def test_key_is_the_chained_finaliser(parts):
    assert int(draws.key(*parts)) == splitmix64(*parts)


@settings(max_examples=40)
@given(st.lists(int64, min_size=1, max_size=3), int64, int64)
def test_uniform_tensor_draws_the_numbers_of_uniform(parts, first, second):
    start = torch.from_numpy(np.atleast_1d(draws.key(*parts).view(np.int64)))
    on_device = draws.draw_uniform_tensor(start, torch.tensor([first]), torch.tensor([second]))
    assert float(on_device) == float(draws.draw_uniform(*parts, first, second))


def test_uniform_tensor_broadcasts_as_uniform_does():
    ids, k, b = draws.addresses(["a", "b", "c"]), np.arange(4), np.arange(7)
    host = draws.draw_uniform(5, "re-estimates", 2, ids[:, None, None], k[None, :, None], b)
    start = torch.from_numpy(draws.key(5, "re-estimates", 2, ids).view(np.int64))
    there = draws.draw_uniform_tensor(start[:, None, None], torch.arange(4)[None, :, None], torch.arange(7))
    assert np.array_equal(host, there.numpy())


def test_uniform_is_the_top_53_bits_of_the_key():
    ids = draws.addresses(f"p{i}" for i in range(200))
    assert draws.draw_uniform(1, ids).tolist() == [(splitmix64(1, int(i)) >> 11) / 2**53 for i in ids]


def test_address_is_stable_over_versions():
    # finished runs are named by what they drew: a change of this number would silently change every draw
    digest = hashlib.blake2b(b"sub-01", digest_size=8).digest()
    assert draws.address("sub-01") == int.from_bytes(digest, "little", signed=True)
    assert draws.addresses(["sub-01", "sub-02"]).tolist() == [draws.address("sub-01"), draws.address("sub-02")]


def test_draws_are_uniform_over_counters_ids_and_seeds():
    ids = draws.addresses(f"sub-{i:04d}" for i in range(4000))
    for sample in (
        draws.draw_uniform(0, "x", np.arange(4000)),
        draws.draw_uniform(0, "x", 1, ids),
        draws.draw_uniform(np.arange(4000), "x", 1),
    ):
        assert 0 <= sample.min() < 0.002
        assert 0.998 < sample.max() < 1
        assert stats.kstest(sample, "uniform").pvalue > 1e-3
