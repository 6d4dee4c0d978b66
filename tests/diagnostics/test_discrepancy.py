"""Site discrepancy against POT and loops, predictive variation against loops, and what must leave each unchanged."""

import numpy as np
import pytest
from diagnostic_cohorts import collect_outputs, small

from brio import diagnostics
from brio.diagnostics import FrozenRuns, measure_discrepancies, predictive_variation, site_discrepancy
from commands import refuse

SIZES = [(3, 5), (6, 2), (9, 4), (2, 8)]  # scans of class 0 and 1 at each site, in no power of two


def scans(seed, sizes=SIZES, d=4, shift=0.8):
    """Representations of sites of unlike size that lie apart, in a mixed order."""
    rng = np.random.default_rng(seed)
    site = np.concatenate([[f"site{e}"] * (a + b) for e, (a, b) in enumerate(sizes)])
    label = np.concatenate([[0] * a + [1] * b for a, b in sizes])
    x = rng.normal(size=(len(site), d)) + shift * rng.normal(size=(len(sizes), d))[[int(s[4:]) for s in site]]
    order = rng.permutation(len(site))
    return x[order] * rng.uniform(0.2, 5, (len(site), 1)), site[order], label[order]


def entropic(x, y, epsilon):
    """<Gamma, C> + eps KL(Gamma | eta zeta'), from POT's coupling."""
    import ot

    C = ((x[:, None] - y[None]) ** 2).sum(-1)
    a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
    plan = ot.solve(C, a, b, reg=epsilon, reg_type="KL", max_iter=10_000, tol=1e-10).plan
    q = a[:, None] * b
    ratio = np.where(plan > 0, plan / q, 1.0)
    return float((plan * C).sum() + epsilon * (plan * np.log(ratio) - plan + q).sum())


def by_loops(x, site, label, epsilon):
    """The equation as the appendix writes it."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    names = sorted(set(site))
    E, total = len(names), 0.0
    for i in range(E):
        for k in range(i + 1, E):
            for c in (0, 1):
                p, q = (x[(site == names[e]) & (label == c)] for e in (i, k))
                total += entropic(p, q, epsilon) - 0.5 * entropic(p, p, epsilon) - 0.5 * entropic(q, q, epsilon)
    return total / (E * (E - 1))


def test_site_discrepancy_equals_pot_pair_by_pair():
    epsilon = 0.4
    x, site, label = scans(0)
    found = float(site_discrepancy(x, site, label, epsilon, 400).mean())
    assert found == pytest.approx(by_loops(x, site, label, epsilon), abs=1e-8)
    assert found > 0.01


def test_batches_of_any_size_give_the_same(monkeypatch):
    x, site, label = scans(1)
    whole = site_discrepancy(x, site, label)
    assert whole.shape == (6, 2)
    solved, entropic_cost = [], diagnostics.entropic_cost

    def recorded(C, *rest):
        solved.append(C.shape)
        return entropic_cost(C, *rest)

    monkeypatch.setattr(diagnostics, "_COSTS_AT_A_TIME", 40)
    monkeypatch.setattr(diagnostics, "entropic_cost", recorded)
    np.testing.assert_allclose(site_discrepancy(x, site, label), whole, atol=1e-13)
    assert sum(shape[0] for shape in solved) == 6 * 2 + 4 * 2  # every pair and class, every site and class once
    assert all(shape[0] == 1 or shape.numel() <= 40 for shape in solved)
    # a pair of sites alone gives the value it has among others
    for row, (i, k) in enumerate([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]):
        two = np.isin(site, [f"site{i}", f"site{k}"])
        np.testing.assert_allclose(site_discrepancy(x[two], site[two], label[two])[0], whole[row], atol=1e-13)


def test_a_lone_site_or_class_is_a_user_facing_error():
    x, site, label = scans(3)
    refuse("two source sites", site_discrepancy, x[site == "site1"], site[site == "site1"], label[site == "site1"])
    refuse("site2 has one class only", site_discrepancy, x, site, np.where(site == "site2", 1, label))


def margins(seed, K=4):
    x, site, label = scans(seed)
    rng = np.random.default_rng(seed)
    margin = x[:, 0] + label
    return margin, margin[:, None] + 0.3 * rng.normal(size=(len(margin), K)), site, label


def variation_by_loops(margin, again, site, label):
    total, names = 0.0, sorted(set(site))
    for e in names:
        mean = [np.mean([m for m, s, y in zip(margin, site, label, strict=True) if s == e and y == c]) for c in (0, 1)]
        for c in (0, 1):
            cell = [i for i in range(len(site)) if site[i] == e and label[i] == c]
            moved = np.mean([(again[i, k] - margin[i]) ** 2 for i in cell for k in range(again.shape[1])])
            spread = np.mean([(margin[i] - mean[c]) ** 2 for i in cell])
            total += moved / (spread + 0.25 * (mean[1] - mean[0]) ** 2)
    return total / (2 * len(names))


@pytest.mark.parametrize("seed", range(3))
def test_predictive_variation_equals_the_loop(seed):
    data = margins(seed)
    assert predictive_variation(*data) == pytest.approx(variation_by_loops(*data), rel=1e-8)


def test_predictions_that_do_not_move_have_no_variation():
    margin, _, site, label = margins(5)
    assert predictive_variation(margin, np.repeat(margin[:, None], 3, 1), site, label) == 0
    constant = np.ones(len(site))
    assert predictive_variation(constant, np.ones((len(site), 3)), site, label) == 0


def test_rows_of_runs_hold_both_measures_of_their_outputs(graphs, fitted):
    method, fitted_runs = fitted
    lengths = [4.0, 5.0, 4.0, 6.0]
    rows = measure_discrepancies(FrozenRuns(method, fitted_runs, graphs, lengths, 3))
    assert rows["fold"].tolist() == ["site06", "site01", "site03", "site02"]
    assert rows["seed"].tolist() == [0, 1, 0, 0]
    outputs = collect_outputs(method, fitted_runs, graphs, lengths, 3)
    for row, fitted, (full, reestimated) in zip(rows.itertuples(), fitted_runs, outputs, strict=True):
        source = fitted.run.fold.source
        cells = graphs.cohort.sites[source], graphs.cohort.labels[source]
        assert pytest.approx(float(site_discrepancy(full["representation"], *cells).mean()), abs=1e-9) == row.D_site
        assert row.D_re_pred == pytest.approx(variation_by_loops(full["logit"], reestimated["logit"], *cells), rel=1e-6)
        assert row.validation_auc == fitted.validation_auc


def test_representations_of_single_precision_are_measured_in_double(graphs, runs):
    x, site, label = scans(7)
    single, double = (site_discrepancy(values, site, label) for values in (x.astype(np.float32), x))
    np.testing.assert_allclose(single, double, atol=1e-6)
    ridge = small("ridge")
    rows = measure_discrepancies(FrozenRuns(ridge, ridge.fit(graphs, runs[:1]), graphs, [4.0], 2))
    assert (rows[["D_site", "D_re_pred"]] > 0).all(axis=None)
