"""Circular moving-block resampling against arch's index rule and numpy, and what its draws depend on."""

import sys

import numpy as np
import pytest
import torch

from brio import draws
from brio.cohort import Cohort
from brio.connectome import Connectomes, ReestimateRequest, connectomes
from brio.connectome.fc import psi
from brio.connectome.resampling import (
    block_indices,
    draw_block_starts,
    find_design_scale,
    find_design_size,
    index_resamples,
    reestimate,
)


def numpy_fc(x: np.ndarray) -> np.ndarray:
    r = np.corrcoef(x.T)
    np.fill_diagonal(r, 0)
    return np.arctanh(r)


def frames_of(seed: int, refresh: int, who: str, k: int, kept: np.ndarray, block: int) -> np.ndarray:
    """Frames of one resample: uniform starts in time, circular blocks end to end less removed frames, cut to T."""
    frames: list[int] = []
    span, m = len(kept), 0
    while len(frames) < kept.sum():
        start = int(draws.draw_uniform(seed, "re-estimates", refresh, who, k, m) * span)
        frames += [t % span for t in range(start, start + block) if kept[t % span]]
        m += 1
    return np.array(frames[: kept.sum()])


@pytest.mark.parametrize(("n_frames", "block"), [(50, 7), (48, 8), (31, 30), (9, 2), (64, 1)])
def test_block_indices_follow_the_rule_of_arch(n_frames, block):
    reference = pytest.importorskip("arch.bootstrap", reason="arch is not installed")
    bootstrap = reference.CircularBlockBootstrap(block, np.arange(n_frames), seed=np.random.default_rng(3))
    starts = np.random.default_rng(3).integers(n_frames, size=-(-n_frames // block))
    expected = bootstrap.update_indices()
    width = n_frames + 13  # padding beyond the scan must not shift anything
    more = np.concatenate([starts, np.zeros(20, dtype=np.int64)])
    found = block_indices(torch.from_numpy(more)[None, None], torch.tensor([block]), torch.tensor([n_frames]), width)
    assert found[0, 0, :n_frames].tolist() == expected.tolist()


def test_the_largest_draw_stays_inside_the_scan(monkeypatch):
    # u < 1, yet u * T must not round up to T
    module = sys.modules["brio.connectome.resampling"]  # the function of that name hides the module
    monkeypatch.setattr(module, "draw_uniform_tensor", lambda *_: torch.tensor(1.0 - 2.0**-53, dtype=torch.float64))
    n = torch.tensor([2, 3, 7, 1000, 2**31])
    assert draw_block_starts(torch.zeros(5, dtype=torch.int64), n, 1, 1).flatten().tolist() == (n - 1).tolist()


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(0)
    scans = []
    for n in (60, 75, 60, 91, 48, 60):
        x = rng.normal(size=(n, 12)) @ rng.normal(size=(12, 12))
        for t in range(1, n):
            x[t] += 0.7 * x[t - 1]
        scans.append(x)
    scans[4][5, 3] = np.nan
    names = [f"sub-{i}" for i in "uvwxyz"]
    cohort = Cohort.from_scans(scans, site=list("AABBCC"), label=[0, 1] * 3, participant_id=names)
    return Connectomes(cohort, dtype=torch.float64)


def collected(graphs, scans, block, seed=5, refresh=2, K=3):
    """Re-estimates by participant."""
    out = {}
    request = ReestimateRequest(np.asarray(scans), np.asarray(block), seed, refresh, K)
    for chunk, A in graphs.iterate_reestimates(request):
        out |= {str(graphs.cohort.ids[scans[i]]): a for i, a in zip(chunk, A, strict=True)}
    return out


def test_reestimates_are_psi_of_the_gathered_frames(graphs):
    block = np.array([7, 5, 7, 12, 3, 8])
    found = collected(graphs, np.arange(6), block)
    for i, who in enumerate(graphs.cohort.ids):
        scan = graphs.cohort.scan(i).astype(float)
        kept = np.isfinite(scan).all(1)
        for k in range(3):
            frames = frames_of(5, 2, str(who), k, kept, int(block[i]))
            np.testing.assert_allclose(found[str(who)][k].numpy(), numpy_fc(scan[frames]), atol=1e-9)


@pytest.mark.parametrize("removed", [[], [0, 1], [30], range(10, 50), [*range(0, 60, 2), 59]])
def test_blocks_are_stretches_of_time_whatever_was_removed(removed):
    """No block joins what a gap separates: neighbours in a resample lie within a block of time, or begin a new one."""
    scan = np.random.default_rng(1).normal(size=(60, 3)) + np.arange(60)[:, None] / 30
    scan[list(removed)] = np.nan
    cohort = Cohort.from_scans([scan, scan[::-1]], site=["A", "A"], label=[0, 1], participant_id=["p", "q"])
    graphs = Connectomes(cohort, dtype=torch.float64)
    found = collected(graphs, [0, 1], np.array([7, 7]), K=20)["p"]
    kept = np.isfinite(scan).all(1)
    inner = kept[kept.argmax() : 60 - kept[::-1].argmax()]  # what was removed at the ends leaves no gap
    for k in range(20):
        frames = scan[kept.argmax() :][frames_of(5, 2, "p", k, inner, 7)].astype(np.float32)
        np.testing.assert_allclose(found[k].numpy(), numpy_fc(frames), atol=1e-7)


def test_an_roi_that_is_flat_in_a_resample_has_zero_rows():
    x = torch.randn(1, 20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[..., 1] = 0
    x[0, 4, 1] = 1.0  # one frame carries the ROI: most resamples of few long blocks miss it
    A = reestimate(x[0], np.array([0]), np.array([20]), np.array([10]), np.array([1]), 40)[0]
    flat = [(x[0, frames, 1] == x[0, frames[0], 1]).all().item() for frames in resampled(20, 10, 40)]
    assert 0 < sum(flat) < 40
    for a, is_flat in zip(A, flat, strict=True):
        assert bool((a[1] == 0).all()) is is_flat
        assert a.isfinite().all()


@pytest.mark.parametrize("resident", [True, False])
def test_scans_that_go_together_are_found_whether_kept_or_read_again(graphs, resident, monkeypatch):
    scans, block = np.array([3, 0, 5, 1]), np.array([9, 7, 4, 7])
    alone = collected(graphs, scans, block)
    monkeypatch.setattr(Connectomes, "_batches", lambda self, chunk, lengths: [chunk])
    if not resident:
        monkeypatch.setattr(graphs, "_resident", None)
    together = collected(graphs, scans, block.astype(float))
    for who, a in alone.items():
        assert torch.equal(together[who], a)


def resampled(n, block, K):
    starts = draw_block_starts(torch.tensor([1]), torch.tensor([n]), K, -(-n // block))
    return block_indices(starts, torch.tensor([block]), torch.tensor([n]), n)[0]


def test_more_resamples_leave_the_first_ones_where_they_are(graphs):
    few, many = (collected(graphs, np.arange(6), np.full(6, 7), K=K) for K in (2, 5))
    assert all(torch.equal(few[who], many[who][:2]) for who in few)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_subset_order_and_chunks_leave_ragged_reestimates_bit_for_bit(graphs, dtype, monkeypatch):
    # scans of other lengths share the batch: their padding must not reach the order of summation
    graphs = Connectomes(graphs.cohort, dtype=dtype)
    base = collected(graphs, np.arange(6), np.full(6, 7))
    alone = {who: a for i in range(6) for who, a in collected(graphs, [i], np.array([7])).items()}
    monkeypatch.setattr(connectomes, "chunk_budget", lambda device: 1)
    chunked = collected(graphs, np.arange(6)[::-1], np.full(6, 7))
    for who in base:
        torch.testing.assert_close(alone[who], base[who], atol=1e-5, rtol=0)
    assert [who for who in base if not torch.equal(alone[who], base[who])] == []
    assert [who for who in base if not torch.equal(chunked[who], base[who])] == []


# ---------------------------------------------------------------- balanced designs


def mean_of_resamples(series, l_b, K, balanced):
    """Mean of a series over each resample. Shape [K]."""
    index, size = index_resamples(np.array([len(series)]), np.array([l_b]), np.array([1]), K, balanced)
    return series[index[0, :, : size[0]].numpy()].mean(1)


@pytest.mark.parametrize(("n_frames", "l_b"), [(60, 7), (177, 7), (590, 4)])
def test_a_balanced_design_has_the_variance_of_infinitely_many_draws(n_frames, l_b):
    """For a mean over frames, which is linear, against the variance in closed form."""
    series = np.convolve(np.random.default_rng(0).normal(size=n_frames + 9), np.ones(10), "valid")
    K = 59
    found = mean_of_resamples(series, l_b, K, balanced=True)
    length = max(l_b, -(-n_frames // K))
    starts = np.arange(K) * n_frames // K
    blocks = np.array([series[(s + np.arange(length)) % n_frames].mean() for s in starts])
    exact = blocks.var() * length / n_frames  # of a mean over n_frames / length independent blocks
    scale = find_design_scale(np.array([l_b]), np.array([n_frames]), K)[0]
    assert scale * found.var(ddof=1) == pytest.approx(exact, rel=1e-9)
    if length == l_b:
        drawn = mean_of_resamples(series, l_b, 20_000, balanced=False)
        assert scale * found.var(ddof=1) == pytest.approx(drawn.var(), rel=0.1)


def test_sizes_of_designs_are_primes_whose_squares_are_balanced():
    for least in (2, 8, 32, 47, 100):
        q = find_design_size(least)
        assert q >= least
        sets = np.array([np.isin(np.arange(q), (np.arange(1, q) ** 2 + k) % q) for k in range(q)]).astype(int)
        together = sets.T @ sets
        assert (np.diag(together) == (q - 1) // 2).all()
        assert (together[~np.eye(q, dtype=bool)] == (q - 3) // 4).all()


def test_a_balanced_re_estimate_is_the_connectome_of_its_frames():
    rng = np.random.default_rng(4)
    lengths = (40, 57, 90)
    noise = [rng.normal(size=(n, 5)) for n in lengths]
    graphs = Connectomes(Cohort.from_scans(noise, site=["A", "B", "B"], label=[0, 1, 0]))
    scans, blocks, K = np.arange(3), np.array([5, 6, 7]), 7
    ((_, A),) = graphs.iterate_reestimates(ReestimateRequest(scans, blocks, 0, 0, K, balanced=True))
    for i in range(3):
        n = graphs.n_frames[[i]]
        index, size = index_resamples(n, blocks[[i]], np.array([1]), K, balanced=True)
        for k in range(K):
            x = graphs.scan(i)[index[0, k, : size[0]]]
            torch.testing.assert_close(A[i, k], psi(x - x.mean(0), torch.tensor(len(x))), atol=2e-5, rtol=1e-5)


def test_changes_of_blocks_have_the_variance_of_drawn_re_estimates():
    """In closed form for statistics that are linear in the frames; Fisher z of many frames nearly are."""
    rng, n_frames, length = np.random.default_rng(3), 400, 9
    x = np.cumsum(rng.normal(size=(n_frames, 5)), axis=0)
    x = x[4:] - x[:-4] + rng.normal(size=(n_frames - 4, 1))  # correlated in time and over ROIs
    graphs = Connectomes(Cohort.from_scans([x, x[::-1]], site=["A", "A"], label=[0, 1]), dtype=torch.float64)
    request = ReestimateRequest(np.array([0]), np.array([length]), 0, 0, 4000)
    ((_, drawn),) = graphs.iterate_reestimates(request)
    weights = rng.normal(size=(20, 5, 5))
    expected = np.einsum("wuv,kuv->kw", weights, drawn[0].numpy()).var(axis=0)
    assert expected.max() > 2 * expected.min()
    for count, tolerance in ((len(x), 0.1), (len(x) // 3, 0.15)):
        change = graphs.find_block_changes(0, count, length)
        assert change.shape == (count, 5, 5)
        np.testing.assert_allclose(np.diagonal(change, axis1=1, axis2=2), 0.0, atol=1e-9)
        found = np.square(np.einsum("wuv,kuv->kw", weights, change)).sum(axis=0)
        np.testing.assert_allclose(found, expected, rtol=tolerance)
    assert graphs.find_block_changes(0, 4).shape == (4, 5, 5)  # blocks of 20 frames
