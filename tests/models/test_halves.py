"""The factor on intervals: halves of scans against their re-estimates."""

from dataclasses import replace

import numpy as np

from brio.connectome import Connectomes
from brio.models.halves import halve_scans, learn_interval_factor


def test_halves_are_equally_long_and_share_no_frame(cohort):
    first, second = halve_scans(cohort)
    for i in range(0, len(cohort), 7):
        n = len(cohort.scan(i)) // 2
        np.testing.assert_array_equal(np.concatenate([first.scan(i), second.scan(i)]), cohort.scan(i)[: 2 * n])
        assert len(first.scan(i)) == len(second.scan(i)) == n


def test_scans_that_change_half_way_need_wider_intervals(cohort, ridge):
    connectomes, scans = Connectomes(cohort), np.arange(len(cohort))
    steady = learn_interval_factor(ridge, connectomes, scans)
    frames = cohort.frames.copy()
    rng = np.random.default_rng(0)
    for i in range(len(cohort)):  # a region that goes with another one in one half only
        start, n = int(cohort.starts[i]), int(cohort.n_frames[i])
        half = slice(start + n // 2, start + n) if rng.uniform() < 0.5 else slice(start, start + n // 2)
        frames[half, :4] += 3 * frames[half, 4:5]
    changed = Connectomes(replace(cohort, frames=frames, path=None))
    assert 1 <= steady < 2
    assert learn_interval_factor(ridge, changed, scans) > 1.5 * steady
