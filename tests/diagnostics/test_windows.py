"""Windows of scans against scans that were cut by hand before anything was estimated."""

import numpy as np
import pytest
import torch
from diagnostic_cohorts import small

from brio.cohort import Cohort
from brio.connectome import Connectomes, HarmonisationRule, harmonise_connectomes
from brio.diagnostics import PLACEMENTS, estimate_window_connectomes
from brio.errors import BrioError
from commands import refuse
from made_cohorts import rebuild


@pytest.fixture(scope="module")
def awkward(cohort) -> Cohort:
    """Scans with frames to drop, an ROI without signal in the first half, and one without any."""
    scans = [cohort.scan(i).copy() for i in range(len(cohort))]
    scans[0][[0, 3, 4, 20], 2] = np.nan
    scans[1][: len(scans[1]) // 2 + 2, 5] = 7.5
    scans[2][:, 1] = np.nan
    scans[3][-5:] = np.inf
    return rebuild(cohort, scans)


def cut(cohort, share, placement):
    """The cohort whose scans hold their windows alone; frames that are not finite are dropped before."""
    scans = []
    for i in range(len(cohort)):
        x = cohort.scan(i)
        dead = ~np.isfinite(x).any(0)
        x = np.where(dead, 0.0, x)
        x = x[np.isfinite(x).all(1)]
        n = round(share * len(x) + 1e-9)
        start = {"first": 0, "middle": (len(x) - n) // 2, "last": len(x) - n}[placement]
        scans.append(x[start : start + n])
    return rebuild(cohort, scans)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("share", [0.5, 0.75])
def test_windows_equal_scans_cut_by_hand(awkward, share, placement):
    graphs = Connectomes(awkward, dtype=torch.float64)
    found = estimate_window_connectomes(graphs, share, placement)
    expected = Connectomes(cut(awkward, share, placement), dtype=torch.float64)
    odd = np.abs(found.n_frames - expected.n_frames)
    assert (odd <= 1).all()  # round halves up here, to even there
    same = odd == 0
    assert same.mean() > 0.6
    assert same[:4].any()
    assert torch.equal(found.full[same], expected.full[same])
    assert torch.equal(found.alive[same], expected.alive[same])
    assert np.array_equal(found.cohort.ids, awkward.ids)
    assert found.cohort.frames is awkward.frames  # no copy
    assert found.cohort.fingerprint != awkward.fingerprint


def test_a_share_of_one_is_the_full_scan(awkward):
    graphs = Connectomes(awkward)
    for placement in PLACEMENTS:
        assert torch.equal(estimate_window_connectomes(graphs, 1.0, placement).full, graphs.full)
    nearly = estimate_window_connectomes(graphs, 0.999, "last")  # all frames again, by the other way
    assert np.array_equal(nearly.n_frames, graphs.n_frames)
    assert torch.equal(nearly.full, graphs.full)
    assert torch.equal(nearly.alive, graphs.alive)


@pytest.mark.parametrize("name", ["ridge", "tangent-ridge", "deci"])
def test_fitted_runs_answer_for_windows(name, graphs, cohort, runs):
    method = small(name)
    (fitted,) = method.fit(graphs, runs[:1])
    test = runs[0].fold.test
    by_hand = Connectomes(cut(cohort, 0.75, "middle"), dtype=torch.float64)
    found = estimate_window_connectomes(graphs, 0.75, "middle")
    same = found.n_frames[test] == by_hand.n_frames[test]
    assert same.any()
    margins = method.predict_margins(fitted, found, test)
    np.testing.assert_allclose(margins[same], method.predict_margins(fitted, by_hand, test)[same], atol=1e-9)
    assert not np.allclose(margins, fitted.test_logit, atol=1e-3)
    np.testing.assert_allclose(
        method.predict_margins(fitted, estimate_window_connectomes(graphs, 1, "first"), test),
        fitted.test_logit,
        atol=1e-12,
    )


def test_what_cannot_be_cut_is_told(graphs, runs):
    refuse("share", estimate_window_connectomes, graphs, 0.0, "first")
    refuse("placement", estimate_window_connectomes, graphs, 0.5, "centre")
    refuse(r"participant sim0001.*needs at least 4", estimate_window_connectomes, graphs, 0.03, "first")
    with pytest.raises(BrioError, match="harmonised"):
        estimate_window_connectomes(
            harmonise_connectomes(graphs, runs[0].fold.source, HarmonisationRule(kind="combat")), 0.5, "first"
        )
