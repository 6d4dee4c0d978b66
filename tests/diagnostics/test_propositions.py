"""Both propositions on trained runs, and checks that fail where a quantity is doctored."""

import math

import numpy as np
import pytest

from brio.diagnostics import check_proposition_1, check_proposition_2, contrast_stability
from brio.methods.brio.qualification import contribution_statistics, pair_support, reestimation_variation


def statistics(found):
    _, V, Delta = contribution_statistics(found.a, found.cell_average)
    _, _, Delta_re = contribution_statistics(found.a_reestimated.mean(1), found.cell_average)
    return V, Delta, Delta_re, reestimation_variation(found.squared_change, found.cell_average)


def test_proposition_1_holds_for_every_site_and_factor_of_trained_runs(evidence, graphs, runs):
    for found, run in zip(evidence, runs, strict=True):
        table = check_proposition_1(found)
        sites = sorted(set(graphs.cohort.sites[run.fold.source]))
        assert table[["site", "factor"]].values.tolist() == [[s, j] for s in sites for j in range(3)]
        assert table["holds"].all()
        assert table.loc[table["sign_condition"], "sign_kept"].all()
        assert (table["bound"] > 0).all()


def test_proposition_1_rows_equal_the_loops(evidence, graphs, runs):
    found, run = evidence[1], runs[1]
    site, label = graphs.cohort.sites[run.fold.source], graphs.cohort.labels[run.fold.source]
    a, again, eps = found.a.numpy(), found.a_reestimated.numpy(), found.settings.eps_q
    for row in check_proposition_1(found).itertuples():
        cells = [(site == row.site) & (label == c) for c in (0, 1)]
        j = row.factor
        Delta = a[cells[1], j].mean() - a[cells[0], j].mean()
        Delta_re = again[cells[1], :, j].mean() - again[cells[0], :, j].mean()
        assert pytest.approx(Delta, abs=1e-12) == row.Delta
        assert pytest.approx(Delta_re, abs=1e-12) == row.Delta_re
        assert row.change == pytest.approx(abs(Delta_re - Delta), abs=1e-12)
        D = [((again[cell, :, j] - a[cell, j][:, None]) ** 2).mean() for cell in cells]
        assert row.bound == pytest.approx(sum(map(math.sqrt, D)), rel=1e-6)
        for c, (q, threshold) in enumerate([(row.q_0, row.threshold_0), (row.q_1, row.threshold_1)]):
            V = a[cells[c], j].var()
            T, kappa = V + Delta**2 / 4, Delta**2 / (4 * (V + eps))
            assert q == pytest.approx((T + eps) / (T + D[c] + eps), abs=1e-10)
            assert threshold == pytest.approx((1 + kappa) / (1 + 2 * kappa), abs=1e-10)
        assert row.sign_condition == all(d < Delta**2 / 4 for d in D)
        assert row.sign_kept == (np.sign(Delta) == np.sign(Delta_re))


def test_a_variation_that_is_told_too_small_breaks_the_bound(evidence):
    broken = 0
    for found in evidence:
        V, Delta, Delta_re, D_re = statistics(found)
        assert contrast_stability(V, Delta, Delta_re, D_re, 1e-6)["holds"].all()
        broken += int((~contrast_stability(V, Delta, Delta_re, 1e-4 * D_re, 1e-6)["holds"]).sum())
    assert broken > 5


def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def test_proposition_2_on_trained_runs_equals_the_loops(evidence, graphs, runs):
    for found, run in zip(evidence, runs, strict=True):
        table = check_proposition_2(found)
        sites = sorted(set(graphs.cohort.sites[run.fold.source]))
        pairs = [(s, t) for i, s in enumerate(sites) for t in sites[i + 1 :]]
        assert table[["site_1", "site_2", "label"]].values.tolist() == [[*p, c] for p in pairs for c in (0, 1)]
        assert table["holds"].all()
        pi = found.qualification.pi_task.tolist()
        q_pair = pair_support(found.qualification.q_re).flatten(0, 1).tolist()
        alpha_bar = found.qualification.alpha_bar.flatten(0, 1).tolist()
        for row, q, weights in zip(table.itertuples(), q_pair, alpha_bar, strict=True):
            g = sum(p * x for p, x in zip(pi, q, strict=True))
            penalty = sum(p * math.log(1 / x) for p, x in zip(pi, q, strict=True))
            assert row.g == pytest.approx(g, abs=1e-12)
            assert row.penalty_relevance == pytest.approx(penalty, abs=1e-12)
            assert row.penalty == pytest.approx(-math.log(g), abs=1e-12)
            assert row.gain == pytest.approx(kl(pi, weights), abs=1e-9)
            assert row.kl == pytest.approx(kl(pi, weights), abs=1e-12)
            assert row.gain > 0
            at_weights = kl(weights, pi) + sum(w * math.log(1 / x) for w, x in zip(weights, q, strict=True))
            assert row.objective == pytest.approx(at_weights, abs=1e-12)
