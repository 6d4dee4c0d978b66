"""The block length: horizon of a series, aggregation over series, subjects and sites, clipping."""

import numpy as np
import pytest
import torch

from brio import draws
from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.connectome import BlockRule, Connectomes, clip_block_length
from brio.connectome.resampling import autocorrelation_horizon, choose_balanced_subset, estimate_horizon, pool_horizons


def horizon(series: np.ndarray, tau: float, largest: int) -> int:
    """Smallest lag whose |autocorrelation| and that of the next lag are below tau; the last lag if there is none."""
    x = series - series.mean()
    last = min(largest, len(x) // 2)
    r = {lag: abs(sum(x[t] * x[t + lag] for t in range(len(x) - lag)) / sum(x**2)) for lag in range(1, last + 1)}
    for lag in range(1, last):
        if r[lag] < tau and r[lag + 1] < tau:
            return lag
    return last


def ar(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    x = rng.normal(size=n)
    for t in range(1, n):
        x[t] += phi * x[t - 1]
    return x


def padded(series: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [torch.from_numpy(s - s.mean()) for s in series]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(s) for s in series])


def test_horizon_equals_a_plain_loop_on_autoregressive_series():
    rng = np.random.default_rng(0)
    series = [ar(rng, int(rng.integers(12, 160)), phi) for phi in np.linspace(0, 0.98, 60)]
    x, n = padded(series)
    expected = [horizon(s, 0.1, 30) for s in series]
    assert autocorrelation_horizon(x, n, 0.1, 30).tolist() == expected
    assert len(set(expected)) > 8


def series_of(scan, alive, who, rule, seed):
    """ROI signals and products of ROI pairs that a participant's address draws, in plain loops."""
    live = np.flatnonzero(alive)
    order = sorted(live, key=lambda u: float(draws.draw_uniform(seed, "block length signals", who, int(u))))
    chosen = [scan[:, u] for u in order[: rule.signals]]
    pairs = set()
    for slot in range(rule.products):
        u = int(float(draws.draw_uniform(seed, "product, first ROI", who, slot)) * len(live))
        step = 1 + int(float(draws.draw_uniform(seed, "product, second ROI", who, slot)) * (len(live) - 1))
        pairs.add(tuple(sorted((live[u], live[(u + step) % len(live)]))))
    assert all(u != v for u, v in pairs)
    return chosen + [scan[:, u] * scan[:, v] for u, v in sorted(pairs)]


def block_length(scans, alive, ids, site, rule, seed):
    those = zip(scans, alive, ids, strict=True)
    return pool_horizons(np.array([estimate_horizon(torch.from_numpy(x), a, i, rule, seed) for x, a, i in those]), site)


def test_fold_block_length_is_quantile_then_median_then_median():
    rng = np.random.default_rng(2)
    rule = BlockRule(signals=5, products=6, largest_lag=20)
    site = np.array(list("AAABBBBC"))
    ids = draws.addresses(f"p{i}" for i in range(8))
    scans = [np.stack([ar(rng, int(n), 0.5 + 0.05 * i) for _ in range(7)], 1) for i, n in enumerate(range(60, 140, 10))]
    alive = np.ones((8, 7), dtype=bool)
    alive[3, [0, 4]] = False
    alive[5, 1:] = False  # one live ROI has no pair to multiply
    per_site = {}
    for i in range(8):
        series = series_of(scans[i], alive[i], ids[i], rule, 3) if i != 5 else [scans[5][:, 0]]
        h = [horizon(s, rule.tau_ac, rule.largest_lag) for s in series]
        per_site.setdefault(site[i], []).append(np.quantile(h, 0.75))
    expected = np.median([np.median(v) for v in per_site.values()])
    found = block_length(scans, alive, ids, site, rule, 3)
    assert found == pytest.approx(expected, abs=1e-12)


def test_block_length_of_a_fold_reads_its_source_scans_alone():
    rng = np.random.default_rng(4)
    scans = [np.stack([ar(rng, 70, 0.7) for _ in range(5)], 1) for _ in range(12)]
    site, label = np.repeat(list("ABC"), 4), np.tile([0, 1], 6)
    source = np.arange(8)

    def length(tail):
        c = Cohort.from_scans(scans[:8] + tail, site=site, label=label)
        return Connectomes(c, dtype=torch.float64).estimate_block_length(source, site[:8], label[:8], BlockRule(), 1)

    other = [rng.normal(size=(200, 5)) for _ in range(4)]
    assert length(scans[8:]) == length(other)


def test_clip_of_the_paper():
    lengths = clip_block_length(6.6, np.array([200, 12, 10, 4]), BlockRule())
    assert lengths.tolist() == [7, 6, 5, 2]
    assert clip_block_length(45.0, np.array([200, 40]), BlockRule()).tolist() == [30, 20]
    assert clip_block_length(0.3, np.array([200]), BlockRule()).tolist() == [2]


def test_balanced_subset_takes_equally_many_of_each_site_and_class():
    rng = np.random.default_rng(5)
    site = rng.choice(list("ABCD"), 300, p=[0.5, 0.3, 0.15, 0.05])
    label = rng.integers(0, 2, 300)
    ids = draws.addresses(f"p{i}" for i in range(300))
    chosen = choose_balanced_subset(ids, site, label, 64, seed=2)
    assert len(set(chosen.tolist())) == len(chosen) <= 64
    for e in "ABCD":
        for c in (0, 1):
            there = int(((site == e) & (label == c)).sum())
            assert int(((site[chosen] == e) & (label[chosen] == c)).sum()) == min(8, there)


@pytest.mark.parametrize("n_sites", [3, 18])  # of which the last has more cells than the subset has places
def test_balanced_subset_follows_participants_not_rows(n_sites):
    rng = np.random.default_rng(6)
    site, label = np.repeat([f"s{i:02d}" for i in range(n_sites)], 90 // n_sites), np.tile([0, 1], 45)
    ids = draws.addresses(f"p{i}" for i in range(90))
    order = rng.permutation(90)
    first = set(ids[choose_balanced_subset(ids, site, label, 24, 1)].tolist())
    again = set(ids[order][choose_balanced_subset(ids[order], site[order], label[order], 24, 1)].tolist())
    assert first == again
    assert len(first) <= 24
    assert first != set(ids[choose_balanced_subset(ids, site, label, 24, 2)].tolist())


def test_horizons_are_shared_within_a_seed_and_a_rule_alone():
    cohort = simulate(Simulation(n_sites=3, per_class=2, n_rois=8, frames=60))
    shared = Connectomes(cohort)
    everyone = np.arange(len(cohort))
    asked = [(everyone, s, r) for s in (0, 1, 0) for r in (BlockRule(), BlockRule(signals=2, products=0))]
    asked += [(everyone[cohort.sites != "site02"], 1, BlockRule())]
    found = []
    for source, seed, rule in asked:
        words = source, cohort.sites[source], cohort.labels[source], rule, seed
        found.append(shared.estimate_block_length(*words))
        assert found[-1] == Connectomes(cohort).estimate_block_length(*words)
    assert len(set(found)) > 2  # else nothing could have been mixed up
