"""Functional connectivity and its re-estimates, against the same in numpy.

The floor of a connectome is one triangle of a matrix product in float32 and its Fisher z; re-estimates need the product
of the distinct frames alone, 63% of them.
"""

import numpy as np
import pytest
from brio_flops import DISTINCT

from brio.connectome import Connectomes, ReestimateRequest

K, BLOCK, REESTIMATED = 8, 10, 50


def correlate(scan, dtype):
    """Fisher z of one scan, with numpy."""
    r = np.corrcoef(scan.T, dtype=dtype)
    np.fill_diagonal(r, 0.0)
    return np.arctanh(r)


def count_work(n_frames, n_rois, copies=1, share=1.0):
    """Flops of one triangle of each product, and entries of it."""
    flops = copies * share * float(n_frames.sum()) * n_rois * (n_rois + 1)
    return {"flops": flops, "atanh": copies * len(n_frames) * n_rois * (n_rois - 1) / 2}


@pytest.mark.benchmark(group="FC of a cohort")
@pytest.mark.parametrize(
    "contender", ["brio", "np.corrcoef", "np.corrcoef (float64, its default)", "nilearn, EmpiricalCovariance (float64)"]
)
def bench_fc(measure, rates, cohort, device, contender):
    scans = [cohort.scan(i) for i in range(len(cohort))]
    if contender == "brio":
        p = cohort.n_rois
        moved = 4 * p * (2 * float(cohort.n_frames.sum()) + len(cohort) * p)  # frames read and kept, connectomes
        floor = rates.bound(moved=moved, **count_work(cohort.n_frames, p))
        fc = measure(lambda: Connectomes(cohort, device).full, floor=floor)[3].cpu().numpy()
        np.testing.assert_allclose(fc, correlate(scans[3], np.float64), atol=1e-4)
    elif contender.startswith("np"):
        single = contender == "np.corrcoef"
        dtype = np.float32 if single else np.float64
        measure(lambda: np.stack([correlate(scan, dtype) for scan in scans]), rounds=3, target=3 if single else None)
    else:
        from nilearn.connectome import ConnectivityMeasure
        from sklearn.covariance import EmpiricalCovariance

        estimator = ConnectivityMeasure(EmpiricalCovariance(), kind="correlation", standardize="zscore_sample")
        measure(lambda: estimator.fit_transform(scans), rounds=1, warm=False, target=20)


@pytest.mark.benchmark(group=f"K = {K} block re-estimates of {REESTIMATED} scans")
@pytest.mark.parametrize("contender", ["brio", "arch and np.corrcoef", "arch and np.corrcoef (float64, its default)"])
def bench_reestimates(measure, rates, cohort, device, contender):
    count = min(REESTIMATED, len(cohort))
    if contender == "brio":
        connectomes = Connectomes(cohort, device)
        request = ReestimateRequest(np.arange(count), np.full(count, BLOCK), 0, 0, K)
        work = count_work(cohort.n_frames[:count], cohort.n_rois, K, DISTINCT)
        floor = rates.bound(moved=4 * count * K * cohort.n_rois**2, **work)
        measure(lambda: sum(len(A) for _, A in connectomes.iterate_reestimates(request)), floor=floor)
        return
    from arch.bootstrap import CircularBlockBootstrap

    single = contender == "arch and np.corrcoef"
    dtype = np.float32 if single else np.float64

    def resample():
        for i in range(count):
            for (frames,), _ in CircularBlockBootstrap(BLOCK, cohort.scan(i), seed=i).bootstrap(K):
                correlate(frames, dtype)

    measure(resample, rounds=3, target=6 if single else None)
