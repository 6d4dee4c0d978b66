"""Spearman, discordance and mismatch rates against plain loops over runs."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from brio import diagnostics
from brio.diagnostics import discordance, mark_mismatches, spearman
from brio.errors import BrioError
from commands import refuse

METHODS = ["backbone", "coral", "brio"]


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch):
    monkeypatch.setattr(diagnostics, "_RESAMPLES", 400)


def table(seed, folds=4, seeds=2, digits=None):
    """Rows of three methods; few digits make ties."""
    rng = np.random.default_rng(seed)
    rows = [
        {"arm": m, "fold": f"site{f}", "seed": s, "D_site": x, "D_re_pred": y, "validation_auc": z}
        for f in range(folds)
        for s in range(seeds)
        for m, (x, y, z) in zip(METHODS, rng.uniform(size=(3, 3)), strict=True)
    ]
    out = pd.DataFrame(rows).sample(frac=1, random_state=seed).reset_index(drop=True)
    return out if digits is None else out.round({"D_site": digits, "D_re_pred": digits, "validation_auc": 2})


def test_spearman_without_any_spread_is_not_a_number():
    rows = table(0)
    assert np.isnan(spearman(rows.assign(D_site=1.0))[0])
    assert np.isnan(spearman(rows[:1])).all()
    assert spearman(rows.assign(D_re_pred=rows["D_site"] ** 3))[0] == pytest.approx(1)


def test_runs_of_other_folds_and_seeds_are_never_compared():
    rows = pd.DataFrame({"fold": ["a", "b"], "seed": [0, 0], "D_site": [1.0, 2.0], "D_re_pred": [2.0, 1.0]})
    assert np.isnan(discordance(rows)[0])
    assert np.isnan(discordance(rows.assign(fold="a", seed=[0, 1]))[0])
    assert discordance(rows.assign(fold="a"))[0] == 1
    assert np.isnan(discordance(rows.assign(fold="a", D_site=1.0))[0])


def correlate_ranks(D_site, D_re, group):
    return np.corrcoef(rankdata(D_site), rankdata(D_re))[0, 1]


def compare_pairs(D_site, D_re, group):
    """The share of discordant pairs within groups, by differences of all runs with all runs."""
    direction = np.subtract.outer(D_site, D_site) * np.subtract.outer(D_re, D_re) * np.equal.outer(group, group)
    return (direction < 0).sum() / (direction != 0).sum()


@pytest.mark.parametrize(("statistic", "oracle"), [(spearman, correlate_ranks), (discordance, compare_pairs)])
def test_intervals_draw_whole_folds(statistic, oracle):
    rows, rng = table(0, folds=6), np.random.default_rng(1)
    parts = [part for _, part in rows.groupby("fold")]
    values = np.stack([part[["D_site", "D_re_pred", "seed"]].to_numpy() for part in parts])
    fold = np.repeat(np.arange(6), values.shape[1])
    found = []
    for n in range(400):  # other draws than those of the interval; a fold drawn twice is two folds
        drawn = rng.integers(0, 6, 6)
        D_site, D_re, seed = np.concatenate(values[drawn]).T
        found.append(oracle(D_site, D_re, 2 * fold + seed))
        if n == 0:
            again = pd.concat([parts[i].assign(fold=str(k)) for k, i in enumerate(drawn)])
            assert found[-1] == pytest.approx(statistic(again)[0])
    value, low, high = statistic(rows)
    assert low < value < high
    assert np.quantile(found, [0.025, 0.975]) == pytest.approx([low, high], abs=0.06)
    value, low, high = statistic(pd.concat([parts[0].assign(fold=str(k)) for k in range(4)]))
    assert value == pytest.approx(low) == pytest.approx(high), "folds that say the same"
    assert np.isnan(statistic(parts[0])[1:]).all(), "one fold"


def test_an_auc_at_the_tolerance_is_preserved(monkeypatch):
    measures = {"D_site": [2.0, 1.0, 3.0], "D_re_pred": [2.0, 3.0, 1.0], "validation_auc": [0.7, 0.69, 0.7]}
    rows = pd.DataFrame({"arm": ["backbone", "brio", "coral"], "fold": "a", "seed": 0, **measures})
    found = mark_mismatches(rows, "backbone")
    assert found["mismatch"].tolist() == [False, True, False]
    assert found["auc_preserved_mismatch"].tolist() == [False, True, False]
    monkeypatch.setattr(diagnostics, "DELTA_AUC", 0.009)
    assert not mark_mismatches(rows, "backbone")["auc_preserved_mismatch"].any()


@pytest.mark.parametrize("at_median", ["D_site", "D_re_pred"])
def test_a_run_at_a_median_is_neither_below_nor_above(at_median):
    other = {"D_site": "D_re_pred", "D_re_pred": "D_site"}[at_median]
    extreme = {"D_site": [1.0, 2.0, 3.0], "D_re_pred": [3.0, 2.0, 1.0]}
    measures = {at_median: [2.0, 1.0, 3.0], other: extreme[other], "validation_auc": 0.7}
    rows = pd.DataFrame({"arm": METHODS, "fold": "a", "seed": 0, **measures})
    assert not mark_mismatches(rows, "backbone")["mismatch"][0]


def test_a_reference_that_is_missing_or_double_is_named():
    rows = table(6)
    with pytest.raises(BrioError, match=r"fold site1, seed 1.*'backbone'"):
        mark_mismatches(rows[(rows["arm"] != "backbone") | (rows["fold"] != "site1") | (rows["seed"] != 1)], "backbone")
    refuse("several runs", mark_mismatches, pd.concat([rows, rows[rows["arm"] == "backbone"]]), "backbone")
