"""Connectomes averaged over sessions: against numpy, and on sessions that would give themselves away if mixed."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import torch

from brio.cohort import Cohort
from brio.cohort.readers import import_cohort
from brio.cohort.scans import SESSION_FRAMES, read_session_frames
from brio.connectome import Connectomes, ReestimateRequest
from brio.diagnostics import estimate_window_connectomes
from brio.methods import make_method
from brio.models.ranges import halve_scans
from brio.training.contract import check_needs
from cohort.file_layouts import refuse

N_FRAMES = (60, 80, 70)


def opposite_sessions(i: int) -> np.ndarray:
    """Two ROIs that are equal in the first session, opposite in the second, and a third of its own."""
    rng = np.random.default_rng(i)
    x = rng.normal(size=(N_FRAMES[i], 3))
    x[:, 1] = (x[:, 0], -x[:, 0], x[:, 1])[i]
    return x.astype(np.float32)


@cache
def cohort(sessions: str) -> Cohort:
    src = Path(mkdtemp())
    rows = "participant_id\tsite\tlabel\tsession\ttr\np\tA\t0\t1\t2\np\tA\t0\t2\t2\nq\tA\t1\t1\t2\n"
    (src / "participants.tsv").write_text(rows)
    for i, name in enumerate(("p_1", "p_2", "q")):
        np.save(src / f"{name}.npy", opposite_sessions(i))
    return import_cohort("table", src, src / "cohort", sessions=sessions)


def request(n_scans: int, block: int = 7) -> ReestimateRequest:
    return ReestimateRequest(np.arange(n_scans), np.full(n_scans, block), 0, 0, 6)


def reestimate(connectomes: Connectomes) -> torch.Tensor:
    out = torch.empty(len(connectomes), 6, 3, 3)
    for chunk, A in connectomes.iterate_reestimates(request(len(connectomes))):
        out[torch.from_numpy(chunk)] = A
    return out


def test_full_scan_is_the_mean_of_fisher_z():
    parts = [np.corrcoef(opposite_sessions(i).T) for i in (0, 1)]
    expected = np.mean([np.arctanh(np.clip(r, -(1 - 1e-6), 1 - 1e-6)) for r in parts], axis=0)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(Connectomes(cohort("average")).full[0], expected, atol=2e-3)
    assert abs(expected[0, 1]) < 1e-9, "opposite sessions cancel"


@pytest.mark.parametrize("resident", [True, False])
def test_blocks_stay_inside_sessions(resident, monkeypatch):
    """A block across the seam would mix frames of both signs, and the means would no longer cancel."""
    if not resident:
        monkeypatch.setattr("brio.connectome.connectomes.resident_budget", lambda device: 0)
    A = reestimate(Connectomes(cohort("average")))
    assert A[0, :, 0, 1].abs().max() < 2e-3
    assert A[0, :, 0, 2].std() > 0.02, "re-estimates differ"
    joined = reestimate(Connectomes(cohort("join")))
    assert joined[0, :, 0, 1].abs().min() > 2e-3, "joined, the sessions do not cancel exactly"


def test_sessions_are_drawn_apart():
    """With the same frames in both sessions, a mean of two equal draws would be as variable as one."""
    frames = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    table = {"site": ["A"] * 3, "label": [0, 1, 1]}
    doubled = Cohort.from_scans([np.concatenate([frames, frames]), frames, frames], **table)
    doubled.participants[SESSION_FRAMES] = ["50+50", None, None]
    connectomes = Connectomes(doubled)
    many = ReestimateRequest(np.arange(2), np.full(2, 5), 0, 0, 300)
    ((_, averaged), (_, once)) = list(connectomes.iterate_reestimates(many, max_bytes=1))
    ratio = averaged.var(1).mean() / once.var(1).mean()
    assert 0.4 < float(ratio) < 0.6


def test_scans_of_one_session_are_as_ever():
    averaged, plain = Connectomes(cohort("average")), Connectomes(cohort("first"))
    assert torch.equal(averaged.full[1], plain.full[1])
    assert torch.equal(reestimate(averaged)[1], reestimate(plain)[1])


def test_halves_are_halves_of_all_sessions():
    first, second = halve_scans(cohort("average"))
    assert [part.tolist() for part in read_session_frames(first.participants)] == [[30, 40], []]
    scan = cohort("average").scan(0)
    np.testing.assert_array_equal(first.scan(0), np.concatenate([scan[:30], scan[60:100]]))
    np.testing.assert_array_equal(second.scan(0), np.concatenate([scan[30:60], scan[100:140]]))
    assert Connectomes(first).full.shape == (2, 3, 3)


def test_what_needs_one_series_is_refused():
    method = make_method("deci")
    asks = method, "method 'deci'"
    refuse("method 'deci' needs time series, but .* averaged .* --sessions join", check_needs, cohort("average"), *asks)
    check_needs(cohort("join"), *asks)
    averaged = Connectomes(cohort("average"))
    refuse("participant p: .* cannot be cut", estimate_window_connectomes, averaged, 0.5, "first")


def test_changes_of_blocks_are_those_of_each_session():
    """The mean over sessions varies as much as its sessions together, each divided by their number."""
    averaged, apart = Connectomes(cohort("average")), Connectomes(cohort("all"))
    own = [apart.find_block_changes(i, 5, 7) / 2 for i in (0, 1)]
    np.testing.assert_allclose(averaged.find_block_changes(0, 5, 7), np.concatenate(own), atol=1e-6)
    np.testing.assert_allclose(averaged.find_block_changes(1, 5, 7), apart.find_block_changes(2, 5, 7), atol=1e-6)
