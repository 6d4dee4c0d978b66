"""The simulated cohort holds what it says it holds, and qualification finds it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from file_layouts import check_scans

from brio import BrioError, audit
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import BlockRule, Connectomes, ReestimateRequest, clip_block_length
from brio.methods import BrioSettings
from brio.methods.brio.qualification import contribution_statistics, qualify

NETWORKS = ("stable", "unstable", "spurious", "site")
SMALL = Simulation(n_sites=4, per_class=5, n_rois=12, frames=80)


def mean_fc(A: torch.Tensor, simulation: Simulation) -> torch.Tensor:
    """Mean FC inside each planted network, [..., P, P] -> [..., 4]: contributions of factors that are the truth."""
    out = []
    for name in NETWORKS:
        rois = torch.from_numpy(simulation.network(name))
        u, v = torch.triu_indices(len(rois), len(rois), 1)
        out.append(A[..., rois[u], rois[v]].mean(-1))
    return torch.stack(out, -1)


class Qualified:
    """Contributions of the planted networks, their re-estimates and what qualification makes of both."""

    def __init__(self, simulation: Simulation, K: int = 8) -> None:
        self.cohort = simulate(simulation)
        graphs = Connectomes(self.cohort, dtype=torch.float64)
        scans, rule = np.arange(len(self.cohort)), BlockRule()
        l_b = graphs.estimate_block_length(scans, self.cohort.sites, self.cohort.labels, rule, seed=0)
        block = clip_block_length(int(np.floor(l_b + 0.5)), graphs.n_frames, rule)
        self.a = mean_fc(graphs.full, simulation)
        change = torch.zeros_like(self.a)
        for chunk, A in graphs.iterate_reestimates(ReestimateRequest(scans, block, 0, 0, K)):
            where = torch.from_numpy(chunk)
            change[where] = (mean_fc(A, simulation) - self.a[where, None]).square().mean(1)
        names = np.unique(self.cohort.sites)
        cell = [[(self.cohort.sites == e) & (self.cohort.labels == c) for c in (0, 1)] for e in names]
        self.cell_average = torch.from_numpy(np.array(cell) / np.array(cell).sum(-1, keepdims=True))
        sites = torch.full((len(names),), 1 / len(names), dtype=torch.float64)
        w = torch.ones(4, 3, dtype=torch.float64)  # equal norms: relevance is decided by the contributions alone
        found = qualify(self.a, change, w, self.cell_average, sites, BrioSettings())
        self.q_re = dict(zip(NETWORKS, found.q_re.unbind(-1), strict=True))  # each [E, 2]
        self.pi_task = dict(zip(NETWORKS, found.pi_task.tolist(), strict=True))
        mu, _, Delta = contribution_statistics(self.a, self.cell_average)
        self.mu = dict(zip(NETWORKS, mu.unbind(-1), strict=True))
        self.Delta = dict(zip(NETWORKS, Delta.unbind(-1), strict=True))


@pytest.fixture(scope="module")
def planted() -> Qualified:
    return Qualified(Simulation())


# ---------------------------------------------------------------- planted truth


def test_the_stable_network_has_more_support_than_the_unstable_one(planted):
    gap = planted.q_re["stable"] - planted.q_re["unstable"]
    assert (gap[:, 1] > 0.03).all()  # patients, who have the burst, at every site
    assert gap[:, 1].mean() > 0.2
    assert gap.mean() > 0.1
    assert (gap > 0).double().mean() > 0.8  # nearly every site and class


def test_the_burst_is_what_takes_the_support_away(planted):
    without = Qualified(Simulation(unstable=0.0))
    lost = planted.q_re["unstable"][:, 0] - planted.q_re["unstable"][:, 1]
    lost_without = without.q_re["unstable"][:, 0] - without.q_re["unstable"][:, 1]
    assert lost.mean() > 0.15
    assert abs(lost_without.mean()) < 0.1
    assert abs(without.Delta["unstable"].mean()) < 0.04


def test_relevance_knows_what_holds_at_every_site(planted):
    pi = planted.pi_task
    assert pi["stable"] == max(pi.values())
    assert pi["stable"] > 20 * pi["spurious"]
    assert pi["stable"] > 20 * pi["site"]
    assert pi["unstable"] > 3 * pi["spurious"]


def test_contrasts_are_as_planted(planted):
    assert (planted.Delta["stable"] > 0.05).all()
    assert planted.Delta["unstable"].mean() > 0.04
    signs = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(3)
    assert (signs * planted.Delta["spurious"] > 0.1).all()  # at one site stronger than the stable one, but cancels
    assert abs(planted.Delta["spurious"].mean()) < 0.05
    assert abs(planted.Delta["site"].mean()) < 0.05
    between = {name: planted.mu[name].mean(1).std() for name in NETWORKS}
    assert between["site"] > 3 * between["stable"]


# ---------------------------------------------------------------- what the cohort looks like


def test_the_seed_decides_everything(tmp_path):
    one, same = simulate(SMALL), simulate(SMALL)
    np.testing.assert_array_equal(one.frames, same.frames)
    assert one.fingerprint == same.fingerprint
    other = simulate(Simulation(n_sites=4, per_class=5, n_rois=12, frames=80, seed=1))
    assert other.fingerprint != one.fingerprint
    assert other.scan(0).shape != one.scan(0).shape or not np.allclose(other.scan(0), one.scan(0))
    assert one.save(tmp_path / "one").provenance["truth"]["site"] == [9, 10, 11]


def test_columns_sites_and_classes():
    cohort = simulate(SMALL)
    columns = ["participant_id", "site", "label", "age", "sex", "tr", "mean_fd", "n_frames"]
    assert cohort.participants.columns.tolist() == columns
    assert np.unique(cohort.sites).tolist() == ["site01", "site02", "site03", "site04"]
    assert cohort.classes == ("control", "patient")
    by_site = cohort.participants.groupby("site")
    assert (by_site["label"].mean() == 0.5).all()
    assert by_site.size().between(2 * 3, 2 * 7).all()
    assert (by_site["n_frames"].nunique() == 1).all()
    assert cohort.participants["n_frames"].between(0.7 * 80 - 1, 1.3 * 80 + 1).all()
    assert by_site["n_frames"].first().nunique() > 1
    assert (by_site["tr"].nunique() == 1).all()
    assert set(cohort.participants["tr"]) <= {1.5, 2.0, 2.5}
    assert cohort.participants["age"].between(8, 40).all()
    assert set(cohort.participants["sex"]) == {"F", "M"}
    assert np.isfinite(cohort.frames).all()
    x = np.asarray(cohort.scan(0), dtype=float)[:, SMALL.network("stable")]
    x = x - x.mean(0)
    lag_one = (x[1:] * x[:-1]).sum(0) / (x**2).sum(0)
    assert 0.3 < np.median(lag_one) < 0.85  # series remember the last frame


def test_the_truth_names_every_roi_once():
    cohort = simulate(SMALL)
    truth = cohort.provenance["truth"]
    assert tuple(truth) == NETWORKS
    assert sorted(u for rois in truth.values() for u in rois) == list(range(12))
    for name, rois in truth.items():
        assert rois == SMALL.network(name).tolist()
        assert all(cohort.atlas.rois["name"][u].startswith(name + "_") for u in rois)


def test_rois_outside_the_field_of_view():
    def dead(share: float) -> np.ndarray:
        cohort = simulate(Simulation(n_sites=3, per_class=8, n_rois=12, frames=60, dead_share=share))
        return np.array([(cohort.scan(i) == 0).all(0) for i in range(len(cohort))])

    assert not dead(0.0).any()
    assert (dead(1.0).sum(1) == 1).all()
    assert not dead(1.0)[:, SMALL.network("stable")].any()


@pytest.mark.parametrize(
    "wrong",
    [{"n_rois": 10}, {"n_sites": 0}, {"frames": 6}, {"seed": -1}, {"duplicates": 15}, {"last_site_per_class": 1}],
    ids=str,
)
def test_a_simulation_that_cannot_be(wrong):
    with pytest.raises(BrioError):
        simulate(Simulation(**wrong))


@pytest.mark.parametrize("sessions", [1, 2])
def test_copies_and_a_larger_last_site_leave_all_other_scans_alone(sessions):
    plain = simulate(replace(SMALL, sessions=sessions))
    cohort = simulate(replace(SMALL, sessions=sessions, duplicates=2, last_site_per_class=9))
    others = np.flatnonzero(plain.sites != "site04")
    assert (cohort.ids[others] == plain.ids[others]).all()
    check_scans(cohort.select(others), [plain.scan(i) for i in others])
    last = cohort.select(cohort.sites == "site04")
    assert np.bincount(last.labels).tolist() == [9 * sessions] * 2
    new = len(cohort) - 2
    for k in range(2):
        np.testing.assert_array_equal(cohort.scan(new + k), cohort.scan(k))
        assert cohort.participants["site"][new + k] == "site01"
    owners = cohort.participants["participant_id"].astype(str)
    assert not set(owners[new:]) & set(owners[:new])
    assert cohort.provenance["duplicates"] == [[owners[k], owners[new + k]] for k in range(2)]
    assert "duplicates" not in plain.provenance


def test_the_audit_names_the_copies():
    cohort = simulate(replace(SMALL, n_rois=24, duplicates=2))
    pairs = [[pair.first, pair.second] for pair in audit(cohort).duplicates]
    assert pairs == cohort.provenance["duplicates"]


def test_dynamics_lie_in_single_rois_and_in_no_correlation():
    plain, slow = (simulate(Simulation(2, 4, dead_share=0.0, dynamics=size)) for size in (0.0, 2.0))
    rois = slow.provenance["truth"]["dynamics"]
    assert "dynamics" not in plain.provenance["truth"]
    change = [slow.scan(i) - plain.scan(i) for i in range(len(slow))]
    for i, label in enumerate(slow.labels):
        moved = np.flatnonzero(np.abs(change[i]).max(0) > 0)
        assert moved.tolist() == (rois if label else [])
        if label:
            r = np.corrcoef(change[i][:, rois].T)
            assert np.abs(r - np.eye(8)).max() < 1e-3


def test_bursts_in_some_scans_or_in_the_stable_network_leave_all_else_alone():
    changes = ({}, {"burst_share": 0.5}, {"burst_in_stable": True})
    plain, few, inside = (simulate(replace(SMALL, dead_share=0.0, **extra)) for extra in changes)
    patients = np.flatnonzero(plain.labels == 1)
    rois = SMALL.network("unstable")
    moved = np.array([not np.array_equal(plain.scan(i), few.scan(i)) for i in range(len(plain))])
    assert not moved[plain.labels == 0].any()
    assert 0.2 < moved[patients].mean() < 0.8
    for i in np.flatnonzero(moved):
        assert set(np.flatnonzero((plain.scan(i) != few.scan(i)).any(0))) == set(rois.tolist())
    assert inside.provenance["truth"]["unstable"] == [1, 2]
    for i in patients:
        changed = set(np.flatnonzero((plain.scan(i) != inside.scan(i)).any(0)).tolist())
        assert changed == {1, 2, *rois.tolist()}


def test_a_large_last_site_counts_in_the_size():
    small = Simulation(n_sites=2, per_class=2, n_rois=8)
    large = Simulation(n_sites=2, per_class=2, n_rois=8, last_site_per_class=100_000)
    assert large.n_bytes - small.n_bytes == 4 * 2 * 100_000 * small.frames * 8
