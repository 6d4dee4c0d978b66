"""From the scores of runs to sites and means: one policy for missing scores, wherever they are averaged."""

import math

import numpy as np
import pandas as pd
import pytest
from planted_predictions import make_predictions
from scipy import stats

from brio.report.comparisons import compare_methods
from brio.results import METRICS, average_seeds, summarise_metrics, summarise_scores
from brio.results.summarise import summarise_ensemble
from brio.studies.summaries import summarise_arms
from commands import refuse


def rows_of(scores: dict[tuple[str, str, int], float]) -> pd.DataFrame:
    return pd.DataFrame([{"method": m, "fold": f, "seed": s, "auc": v} for (m, f, s), v in scores.items()])


def test_a_site_without_all_its_scores_has_none():
    a = {("a", "s1", 0): 0.5, ("a", "s1", 1): np.nan, ("a", "s2", 0): 0.7, ("a", "s2", 1): 0.8, ("a", "s3", 1): 0.9}
    scores = average_seeds(rows_of({**a, ("b", "s1", 0): 0.6, ("b", "s3", 0): 0.5}))
    assert scores["a"].isna().tolist() == [True, False, True]  # NaN under seed 1; both scores; no run of seed 0
    assert scores.loc["s2", "a"] == pytest.approx(0.75)
    assert list(scores) == ["a", "b"]
    assert math.isnan(scores.loc["s2", "b"])  # no run there
    assert scores.loc[["s1", "s3"], "b"].tolist() == [0.6, 0.5]  # averaged over its own seeds: one


@pytest.mark.parametrize(("protocol", "n", "n_diverged"), [("loso", 2, 1), ("kfold", 1, 0)])
def test_an_ensemble_with_a_missing_margin_has_no_score(protocol, n, n_diverged):
    predictions = make_predictions({"a": 9.0}, seeds=2, sizes=dict.fromkeys(("s1", "s2"), (1, 1)))
    whole = summarise_ensemble(predictions, protocol)
    assert (whole.mean, whole.n) == (1.0, n)
    predictions.loc[(predictions["seed"] == 1) & (predictions["fold"] == "s1"), "margin"] = np.nan
    assert summarise_ensemble(predictions, protocol).n == n_diverged


def test_runs_that_occur_twice_are_refused():
    rows = rows_of({("a", "s1", 0): 0.5, ("b", "s1", 0): 0.6})
    refuse("'a', fold s1, seed 0 occurs more than once", average_seeds, pd.concat([rows, rows.iloc[:1]]))


def test_one_policy_for_missing_scores_in_summaries_comparisons_and_studies():
    """A run of one seed has no score at s1: the site counts nowhere, for the method that lacks it."""
    auc = {"a": [0.5, 0.6, 0.7, 0.8], "b": [0.6, 0.65, 0.72, 0.81]}
    rows = rows_of({(m, f"s{k}", seed): auc[m][k] for m in auc for seed in range(2) for k in range(4)})
    run = {"cohort": "c", "protocol": "loso", "n_test": 10, "n_source": 90, "n_validation": 20, "epochs": 1, "K": None}
    rows = rows.assign(arm=rows["method"], **run, **dict.fromkeys((*METRICS, "validation_auc"), rows["auc"]))
    rows.loc[(rows["method"] == "a") & (rows["fold"] == "s1") & (rows["seed"] == 1), "auc"] = np.nan
    known = [0.5, 0.7, 0.8]
    job = summarise_metrics(rows[rows["method"] == "a"], "loso")
    assert (job["auc"].mean, job["auc"].n, job["acc"].n) == (pytest.approx(np.mean(known)), 3, 4)
    assert summarise_metrics(rows[rows["method"] == "a"], "kfold")["auc"].n == 7, "every fold of every seed counts"
    study = summarise_arms(rows, "a").set_index("arm")
    assert study.loc["a", "AUC"] == pytest.approx(100 * np.mean(known))
    assert study.loc["b", "better at"] == "3 of 3"
    table = compare_methods(rows, "a").iloc[0]
    assert (table["n"], table["left_out"]) == (3, 1)
    assert 100 * table["mean_difference"] == pytest.approx(study.loc["b", "minus a"])


def test_a_summary_is_mean_sd_and_t_interval_of_the_sites_that_have_a_score():
    scores = [0.5, math.nan, 0.75, 0.8]
    known = np.array([0.5, 0.75, 0.8])
    summary = summarise_scores(scores)
    assert (summary.mean, summary.sd) == (pytest.approx(known.mean()), pytest.approx(known.std(ddof=1)))
    half = stats.t(2).ppf(0.975) * known.std(ddof=1) * math.sqrt(1 / 3 + 1)
    assert summary.interval == pytest.approx((known.mean() - half, known.mean() + half))
    assert summarise_scores([1.0, 1.0, 1.0]).interval is None, "an AUC of 1 at every site is no certainty"
    assert summarise_scores(scores, limits=(0.5, 0.7)).interval == (0.5, 0.7)
    assert summary.n == 3
    one, none = summarise_scores([0.5, math.nan]), summarise_scores([math.nan])
    assert (one.mean, one.sd, one.interval, one.n) == (0.5, None, None, 1)
    assert (none.mean, none.n) == (None, 0)
