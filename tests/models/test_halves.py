"""The factor on intervals: halves of scans against their re-estimates."""

from dataclasses import replace

import numpy as np
import pytest

from brio import Cohort
from brio.connectome import Connectomes
from brio.models.fit import halve_scans, learn_interval_factor


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


def rebuild(cohort, first_scan):
    """The same cohort with another first scan."""
    scans = [first_scan, *(cohort.scan(i) for i in range(1, len(cohort)))]
    return Cohort.from_scans(scans, site=cohort.sites, label=cohort.labels, participant_id=cohort.ids)


def test_a_censored_scan_is_halved_as_if_it_had_its_valid_frames_alone(cohort, ridge):
    scan, everyone = cohort.scan(0), np.arange(len(cohort))
    gap = np.full((len(scan) + 10, scan.shape[1]), np.nan, dtype=np.float32)
    censored, plain = rebuild(cohort, np.concatenate([gap, scan])), rebuild(cohort, scan)
    for half, expected in zip(halve_scans(censored), halve_scans(plain), strict=True):
        np.testing.assert_array_equal(half.frames, expected.frames)
    factors = [learn_interval_factor(ridge, Connectomes(one), everyone) for one in (censored, plain)]
    assert factors[0] == factors[1]


def test_scans_with_halves_that_are_too_short_are_left_out_of_the_factor(cohort, ridge):
    scan, everyone = cohort.scan(0), np.arange(len(cohort))
    flat = np.concatenate([np.ones_like(scan), scan])  # its first half has no signal
    expected = learn_interval_factor(ridge, Connectomes(cohort), everyone[1:])
    for changed in (scan[:7], flat):
        assert learn_interval_factor(ridge, Connectomes(rebuild(cohort, changed)), everyone) == expected
    short = Connectomes(rebuild(cohort, scan[:7]))
    with pytest.warns(UserWarning, match="no source scan has two halves of at least 4 usable frames"):
        assert learn_interval_factor(ridge, short, np.array([0])) == 1.0
