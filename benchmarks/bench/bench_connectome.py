"""Functional connectivity and its re-estimates."""

import numpy as np
import pytest

from brio.connectome import Connectomes, ReestimateRequest

K, BLOCK, REESTIMATED = 8, 10, 50


def correlate(scan):
    """Fisher z of one scan, with numpy."""
    r = np.corrcoef(scan.T)
    np.fill_diagonal(r, 0.0)
    return np.arctanh(r)


@pytest.mark.benchmark(group="FC of a cohort")
@pytest.mark.parametrize("contender", ["brio", "nilearn, EmpiricalCovariance", "np.corrcoef, scan by scan"])
def bench_fc(measure, cohort, device, contender):
    scans = [cohort.scan(i) for i in range(len(cohort))]
    if contender == "brio":
        found = measure(lambda: Connectomes(cohort, device).full)[3].cpu().numpy()
        np.testing.assert_allclose(found, correlate(scans[3]), atol=1e-4)
    elif contender.startswith("np"):
        measure(lambda: np.stack([correlate(scan) for scan in scans]))
    else:
        from nilearn.connectome import ConnectivityMeasure
        from sklearn.covariance import EmpiricalCovariance

        estimator = ConnectivityMeasure(EmpiricalCovariance(), kind="correlation", standardize="zscore_sample")
        measure(lambda: estimator.fit_transform(scans), rounds=1)


@pytest.mark.benchmark(group=f"K = {K} re-estimates of {REESTIMATED} scans")
@pytest.mark.parametrize("contender", ["brio", "arch, CircularBlockBootstrap, and np.corrcoef"])
def bench_reestimates(measure, cohort, device, contender):
    count = min(REESTIMATED, len(cohort))
    if contender == "brio":
        connectomes = Connectomes(cohort, device)
        request = ReestimateRequest(np.arange(count), np.full(count, BLOCK), 0, 0, K)
        measure(lambda: sum(len(A) for _, A in connectomes.iterate_reestimates(request)))
        return
    from arch.bootstrap import CircularBlockBootstrap

    def resample():
        for i in range(count):
            for (frames,), _ in CircularBlockBootstrap(BLOCK, cohort.scan(i), seed=i).bootstrap(K):
                correlate(frames)

    measure(resample)
