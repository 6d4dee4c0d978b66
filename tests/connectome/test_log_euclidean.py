"""Log-connectomes against scipy, and the series that a GPU sums."""

import numpy as np
import pytest
import torch
from scipy.linalg import logm

from brio.connectome import differentiate_log, log_connectome
from brio.connectome.fc import log_by_chebyshev, log_by_eigenvectors


def close(a, b, tolerance):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def correlations(n, P, T, seed=0):
    """Correlation matrices of signals that share a part, so that one eigenvalue is large."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, P, T)) + 1.5 * rng.normal(size=(n, 1, T))
    return torch.from_numpy(np.stack([np.corrcoef(scan) for scan in x]))


def test_the_logarithm_is_that_of_the_shrunk_correlation_matrix():
    x = np.random.default_rng(0).normal(size=(40, 6))
    R = np.corrcoef(x.T)
    A = torch.from_numpy(np.arctanh(R * (1 - np.eye(6))))
    close(log_connectome(A, 0.3), torch.from_numpy(logm(0.7 * R + 0.3 * np.eye(6)).real), 1e-8)


def test_an_roi_without_signal_stays_a_row_of_zeros():
    A = torch.zeros(4, 4, dtype=torch.float64)
    A[0, 1] = A[1, 0] = 0.8
    log = log_connectome(A, 0.5)
    assert log[2:].abs().max() == 0
    assert log[0, 1] > 0.1


@pytest.mark.parametrize("shrinkage", [0.5, 0.1])
@pytest.mark.parametrize(("P", "T"), [(2, 30), (33, 200), (90, 60)])  # the last has fewer frames than ROIs
def test_the_series_is_the_logarithm(P, T, shrinkage):
    R = correlations(3, P, T)
    R[0] = 1.0  # all ROIs alike: the eigenvalue P, as large as one can be
    expected = torch.from_numpy(np.stack([logm((1 - shrinkage) * m + shrinkage * np.eye(P)).real for m in R.numpy()]))
    close(log_by_chebyshev(R, shrinkage), expected, 1e-8)
    rounded = R.float().double()  # so that eigenvalues fall below zero
    close(log_by_chebyshev(rounded, shrinkage), expected, 1e-5)


def test_a_matrix_with_a_negative_part_is_left_to_its_axes():
    R = correlations(3, 20, 100)
    R[1, 0, 1] = R[1, 1, 0] = -0.99
    R[1, 0, 2] = R[1, 2, 0] = R[1, 1, 2] = R[1, 2, 1] = 0.99
    assert torch.linalg.eigvalsh(R[1])[0] < -0.5
    close(log_by_chebyshev(R, 0.5), log_by_eigenvectors(R, 0.5), 1e-8)
    assert log_by_chebyshev(R, 0.5).isfinite().all()


def test_small_changes_are_those_of_the_logarithm():
    A, step = torch.atanh(0.9 * correlations(3, 7, 40)), 1e-5
    A[1, 2] = A[1, :, 2] = 0.0  # an ROI without signal: its eigenvalue may coincide with others
    A -= torch.diag_embed(A.diagonal(dim1=1, dim2=2))
    change = np.random.default_rng(1).normal(size=(5, 7, 7))
    change = torch.from_numpy(change + change.transpose(0, 2, 1))
    change.diagonal(dim1=1, dim2=2).zero_()
    for one in A:
        expected = (log_connectome(one + step * change, 0.4) - log_connectome(one - step * change, 0.4)) / (2 * step)
        close(torch.from_numpy(differentiate_log(one.numpy(), change.numpy(), 0.4)), expected, 1e-6)
    same = differentiate_log(np.zeros((3, 3)), change[:, :3, :3].numpy(), 0.4)  # equal eigenvalues
    close(torch.from_numpy(same), 0.6 * change[:, :3, :3], 1e-9)
