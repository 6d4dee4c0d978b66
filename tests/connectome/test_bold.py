"""BOLD of one length on one clock against numpy, and the BOLD of re-estimates against the connectomes it belongs to."""

import numpy as np
import pytest
import torch

from brio import draws
from brio.cohort import Cohort
from brio.connectome import BoldRule, Connectomes, ReestimateRequest
from brio.connectome.connectomes import bold_positions
from cohort.file_layouts import refuse

P = 5
LENGTHS = (60, 75, 60, 33, 48)
TR = np.array([2.0, 1.5, 3.0, 2.5, 2.0])


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(0)
    scans = [rng.normal(3, 7, size=(n, P)).cumsum(0) for n in LENGTHS]
    scans[1][:, 2] = 0.0  # outside the field of view
    scans[4][11, 3] = np.nan  # a frame that is dropped
    cohort = Cohort.from_scans(scans, site=list("aabbb"), label=[0, 1, 0, 1, 0], participant_id=list("uvwxy"))
    return Connectomes(cohort, dtype=torch.float64)


def on_the_clock(x, tr, clock):
    """The scan at 0, clock, 2 clock, ... seconds for as long as it lasts, by numpy's interpolation."""
    own = np.arange(len(x)) * tr
    times = np.arange(int(np.floor(own[-1] / clock + 1e-9)) + 1) * clock
    return np.stack([np.interp(times, own, x[:, u]) for u in range(x.shape[1])], axis=1)


def window_of(x, tr, rule):
    """Middle of the interpolated scan, or the scan with mirrored ends."""
    y = x if rule.tr is None else on_the_clock(x, tr, rule.tr)
    spare = len(y) - rule.frames
    if spare >= 0:
        return y[spare // 2 : spare // 2 + rule.frames]
    front = -(spare // 2)  # of an odd number the front gets one more
    return np.pad(y, ((front, -spare - front), (0, 0)), mode="reflect")


RULES = [BoldRule(20, 2.0), BoldRule(100, 2.0), BoldRule(41, None), BoldRule(200, 1.1), BoldRule(60, 2.0)]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_windows_are_the_middle_of_the_interpolated_scan_or_its_mirror_image(graphs, rule):
    found = graphs.bold(rule, None if rule.tr is None else TR)
    assert found.shape == (len(LENGTHS), rule.frames, P)
    for i, tr in enumerate(TR):
        np.testing.assert_allclose(found[i], window_of(graphs.scan(i).numpy(), tr, rule), atol=1e-9)


def test_scans_are_z_scored_over_all_their_frames_and_rois_without_signal_stay_flat(graphs):
    whole = graphs.bold(BoldRule(60, None), None)
    for i in (0, 2):  # the window is the whole scan
        torch.testing.assert_close(whole[i].mean(0), torch.zeros(P, dtype=torch.float64), atol=1e-9, rtol=0)
        torch.testing.assert_close(whole[i].std(0, correction=0), torch.ones(P, dtype=torch.float64))
    assert (whole[1, :, 2] == 0).all()


def test_a_scan_of_any_length_fills_the_window():
    for n in (4, 5, 9, 80, 81, 1000):
        for tr in (0.7, 2.0, 3.3):
            at = bold_positions(n, tr, BoldRule(81, 2.0))
            assert len(at) == 81
            assert 0 <= at.min() <= at.max() <= n - 1
    # a scan shorter than one tick of the clock is one frame
    assert bold_positions(4, 0.1, BoldRule(8, 2.0)).tolist() == [0.0] * 8


def test_several_windows_lie_end_to_end(graphs):
    one, three = BoldRule(30, 2.0), BoldRule(30, 2.0, windows=3)
    found = graphs.bold(three, TR)
    assert found.shape == (len(LENGTHS), 90, P)
    for i, tr in enumerate(TR):
        y = on_the_clock(graphs.scan(i).numpy(), tr, 2.0)
        spare = len(y) - 30
        for k, window in enumerate(found[i].split(30)):
            expected = y[spare * k // 2 :][:30] if spare > 0 else window_of(graphs.scan(i).numpy(), tr, one)
            np.testing.assert_allclose(window, expected, atol=1e-9)


def test_the_window_of_a_scan_does_not_depend_on_other_scans(graphs):
    rule = BoldRule(50, 2.0)
    c = graphs.cohort
    few = Cohort.from_scans([c.scan(3), c.scan(1)], site=["b", "a"], label=[1, 0], participant_id=["x", "v"])
    alone = Connectomes(few, dtype=torch.float64).bold(rule, TR[[3, 1]])
    assert torch.equal(alone, graphs.bold(rule, TR)[[3, 1]])
    assert graphs.bold(rule, TR) is graphs.bold(rule, TR)


def test_resampled_bold_is_the_window_of_the_resampled_frames(graphs):
    rule, block, K = BoldRule(50, 2.0), np.array([7, 5, 6]), 2
    scans = np.array([1, 3, 4])
    found = graphs.resampled_bold(ReestimateRequest(scans, block, 9, 1, K), rule, TR).unflatten(0, (3, K))
    for j, i in enumerate(scans):
        x = graphs.scan(int(i)).numpy()
        n, b, who = LENGTHS[i], int(block[j]), graphs.cohort.ids[i]
        place = np.cumsum(np.isfinite(graphs.cohort.scan(int(i))).all(axis=1)) - 1  # among the frames that are left
        for k in range(K):
            starts = [int(draws.draw_uniform(9, "re-estimates", 1, str(who), k, m) * n) for m in range(1 - (-n // b))]
            times = [(s + t) % n for s in starts for t in range(b)]
            frames = place[[t for t in times if i != 4 or t != 11][: len(x)]]
            np.testing.assert_allclose(found[j, k], window_of(x[frames], TR[i], rule), atol=1e-9)
    alone = graphs.resampled_bold(ReestimateRequest(scans[1:2], block[1:2], 9, 1, K), rule, TR)
    assert torch.equal(alone, found[1])


@pytest.mark.parametrize(("values", "name"), [({"frames": 7}, "bold_frames"), ({"tr": 0.0}, "bold_tr")])
def test_rules_that_make_no_sense_are_refused(values, name):
    refuse(name, BoldRule, **values)
