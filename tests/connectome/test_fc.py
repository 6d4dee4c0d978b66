"""Psi and the full-scan connectomes against nilearn, with the frames and ROIs that carry no signal."""

import numpy as np
import pytest
import torch
from sklearn.covariance import EmpiricalCovariance

from brio.cohort import Cohort
from brio.connectome import Connectomes, connectomes, fill_dead
from brio.connectome.fc import LARGEST_CORRELATION, psi, standardise
from cohort.file_layouts import refuse


def nilearn_fc(scan: np.ndarray) -> np.ndarray:
    """Pearson by nilearn's empirical covariance (its default shrinks), Fisher z, zero diagonal."""
    from nilearn.connectome import ConnectivityMeasure

    measure = ConnectivityMeasure(EmpiricalCovariance(store_precision=False), "correlation", standardize=False)
    r = measure.fit_transform([scan.astype(np.float64)])[0]
    np.fill_diagonal(r, 0.0)
    return np.arctanh(r)


def bold(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    """Correlated series with memory, an offset and a scale of their own."""
    x = rng.normal(size=(n, p)) @ rng.normal(size=(p, p))
    for t in range(1, n):
        x[t] += 0.6 * x[t - 1]
    return x * rng.uniform(0.1, 30, p) + rng.normal(0, 100, p)


def test_padding_and_batching_leave_psi_unchanged():
    rng = np.random.default_rng(3)
    scans = [bold(rng, n, 6) for n in (40, 55, 90)]
    z = [standardise(torch.from_numpy(scan)) for scan in scans]
    np.testing.assert_allclose(z[0], (scans[0] - scans[0].mean(0)) / scans[0].std(0), atol=1e-10)
    padded = torch.nn.utils.rnn.pad_sequence(z, batch_first=True)
    batched = psi(padded, torch.tensor([40, 55, 90]))
    for scan, found in zip(scans, batched, strict=True):
        np.testing.assert_allclose(found.numpy(), nilearn_fc(scan), atol=1e-10)


def test_copies_of_a_signal_stay_finite():
    rng = np.random.default_rng(4)
    s = rng.normal(size=(60, 1))
    x = standardise(torch.from_numpy(np.hstack([s, 3 * s + 1, -s])))
    A = psi(x, torch.tensor(60)).numpy()
    bound = np.arctanh(LARGEST_CORRELATION)
    np.testing.assert_allclose(A, [[0, bound, -bound], [bound, 0, -bound], [-bound, -bound, 0]], atol=1e-6)


@pytest.fixture(scope="module")
def ragged():
    """A ragged cohort with missing frames, an ROI of NaN, a flat ROI and one that lives in dropped frames only."""
    rng = np.random.default_rng(6)
    clean = [bold(rng, n, 6).astype(np.float32) for n in (60, 71, 48, 90, 64, 80, 55, 77)]
    scans = [s.copy() for s in clean]
    scans[1][[3, 10, 11], [0, 4, 2]] = np.nan  # three frames, each in another ROI
    scans[1][20, 1] = np.inf
    scans[2][:, 5] = np.nan
    scans[3][:, 0] = 7.0
    scans[4][:, 3] = 0.0
    scans[4][9, 1] = -np.inf
    scans[5][:, 2] = 1.0
    scans[5][30, 2] = 5.0
    scans[5][30, 0] = np.nan  # the only frame that moves ROI 2 is dropped for ROI 0
    cohort = Cohort.from_scans(scans, site=list("AABBCCDD"), label=[0, 1] * 4)
    expected = []
    for i, scan in enumerate(scans):
        dead = {2: [5], 3: [0], 4: [3], 5: [2]}.get(i, [])
        alive = [p for p in range(6) if p not in dead]
        kept = clean[i][np.isfinite(scan[:, alive]).all(1)][:, alive]
        A = np.zeros((6, 6))
        A[np.ix_(alive, alive)] = nilearn_fc(kept)
        expected.append((len(kept), alive, A))
    return cohort, expected


def test_full_connectomes_of_a_ragged_cohort_equal_nilearn(ragged):
    cohort, expected = ragged
    found = Connectomes(cohort, dtype=torch.float64)
    single = Connectomes(cohort)
    assert [n for n, _, _ in expected] == found.n_frames.tolist()
    assert found.n_frames.tolist() == [60, 67, 48, 90, 63, 79, 55, 77]
    for i, (_, alive, A) in enumerate(expected):
        assert np.flatnonzero(found.alive[i].numpy()).tolist() == alive
        np.testing.assert_allclose(found.full[i].numpy(), A, atol=1e-9)
        np.testing.assert_allclose(single.full[i].numpy(), A, atol=2e-5)


def test_connectomes_are_the_same_in_small_chunks_and_from_disk(ragged, monkeypatch):
    cohort, _ = ragged
    whole = Connectomes(cohort, dtype=torch.float64)
    monkeypatch.setattr(connectomes, "chunk_budget", lambda device: 1)
    monkeypatch.setattr(connectomes, "resident_budget", lambda device: 0)
    small = Connectomes(cohort, dtype=torch.float64)
    np.testing.assert_allclose(small.full, whole.full, atol=1e-12)
    assert all(torch.equal(small.scan(i), whole.scan(i)) for i in range(len(cohort)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("longest", [700, 1100])
def test_fc_of_a_scan_does_not_depend_on_the_length_of_others_bit_for_bit(dtype, longest):
    # otherwise the lengths of the test site's scans reach the weights through the order of summation
    rng = np.random.default_rng(7)
    mine = [bold(rng, n, 12) for n in (390, 500, 450)]  # matrix products block their sums from about 380 frames on

    def fc(length):
        others = [np.random.default_rng(8).normal(size=(length, 12))]
        return Connectomes(Cohort.from_scans(mine + others, site=list("AABB"), label=[0, 1, 0, 1]), dtype=dtype).full

    assert torch.equal(fc(60)[:3], fc(longest)[:3])


def test_a_scan_without_usable_frames_is_refused_by_name():
    rng = np.random.default_rng(9)
    scans = [rng.normal(size=(30, 4)) for _ in range(4)]
    scans[2][3:, 0] = np.nan
    refuse("s00003", Connectomes, Cohort.from_scans(scans, site=list("AABB"), label=[0, 1, 0, 1]))


def test_edges_of_a_dead_roi_take_the_source_mean():
    rng = np.random.default_rng(10)
    A, mean = rng.normal(size=(3, 5, 5)), rng.normal(size=(5, 5))
    np.fill_diagonal(mean, 0)
    alive = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 1], [0, 1, 1, 0, 1]], dtype=bool)
    A *= alive[:, :, None] & alive[:, None, :]
    found = fill_dead(torch.from_numpy(A), torch.from_numpy(alive), torch.from_numpy(mean)).numpy()
    np.testing.assert_allclose(found, np.where(alive[:, :, None] & alive[:, None, :], A, mean))
