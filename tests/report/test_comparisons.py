"""The comparison table: what it pairs, which test it takes, and what it says of the rest."""

import shutil

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from brio import run
from brio.errors import BrioError
from brio.formatting import format_p
from brio.protocol import ProtocolSettings
from brio.report.comparisons import compare_methods, comparison_table, gather_jobs, join_rows
from brio.results import StoredJob
from brio.studies.context import read_reused_results
from commands import refuse
from doctored import change_json

RUN = {"cohort": "small", "n_source": 70, "n_validation": 20, "n_test": 10}


def rows(auc: dict[str, float], folds: int = 8, seeds: int = 2, protocol: str = "loso") -> pd.DataFrame:
    """Results whose AUC at a site is the site's own, plus what the method adds, plus noise."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 0.08, folds)
    runs = [
        (m, s, k, v + hard[k] + rng.normal(0, 0.02)) for m, v in auc.items() for s in range(seeds) for k in range(folds)
    ]
    table = pd.DataFrame(runs, columns=["method", "seed", "fold", "auc"]).assign(protocol=protocol, **RUN)
    return table.assign(fold="s" + table["fold"].astype(str))


def lines(text: str) -> list[list[str]]:
    """The cells of the table's rows."""
    cells = [[c.strip() for c in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("|")]
    return cells[2:]


def test_seeds_are_averaged_and_sites_paired():
    made = rows({"ridge": 0.6, "brio": 0.65, "gcn": 0.6})
    differences = compare_methods(made, "ridge").set_index("method")
    wide = made.pivot_table(index="fold", columns="method", values="auc")  # the mean over seeds
    for method in ("brio", "gcn"):
        d = wide[method] - wide["ridge"]
        assert differences.loc[method, "mean_difference"] == pytest.approx(d.mean())
        t = d.mean() / np.sqrt((1 / 8 + 1 / 6) * d.var())
        assert differences.loc[method, "p"] == pytest.approx(2 * stats.t.sf(abs(t), 7))
        assert differences.loc[method, "n"] == 8
    cells = {row[0]: row[1:] for row in lines(comparison_table(made, "ridge"))}
    assert list(cells) == ["gcn", "brio"]  # as 'brio methods' lists them
    row = differences.loc["brio"]
    mean, low, high, *detectable = 100 * row[["mean_difference", "low", "high", "detectable", "detectable_in_family"]]
    counts = ["8", f"{mean:+.1f}", f"{low:+.1f} to {high:+.1f}", str(row["better"]), str(row["worse"])]
    assert cells["brio"] == [*counts, *map(format_p, row[["p", "p_holm"]]), *(f"{d:.1f}" for d in detectable)]


def test_the_table_says_what_was_done():
    text = comparison_table(rows({"ridge": 0.6, "brio": 0.65, "gcn": 0.6}), "ridge")
    assert text.startswith("Difference in AUC from ridge, in points: small, leave one site out\n")
    assert "corrected t test over test sites (Nadeau & Bengio 2003), scores averaged over 2 seeds" in text
    assert "adjusted for these 2 comparisons" in text
    assert "Missing" not in text
    assert "cannot show" not in text
    alone = comparison_table(rows({"ridge": 0.6, "brio": 0.65}, seeds=1), "ridge")
    assert "one seed" in alone
    assert "corrected for" not in alone


def test_only_common_sites_are_paired_and_the_others_named():
    made = rows({"ridge": 0.6, "brio": 0.65, "gcn": 0.6})
    made = made[~((made["method"] == "gcn") & made["fold"].isin(["s1", "s2"]))]
    made.loc[made["fold"] == "s4", "auc"] = np.nan
    made.loc[(made["fold"] == "s5") & (made["method"] == "brio"), "auc"] = np.nan
    differences = compare_methods(made, "ridge").set_index("method")
    assert differences["n"].to_dict() == {"brio": 6, "gcn": 5}
    paired = made[~made["fold"].isin(["s1", "s2", "s4"])].pivot_table(index="fold", columns="method", values="auc")
    assert differences.loc["gcn", "mean_difference"] == pytest.approx((paired["gcn"] - paired["ridge"]).mean())
    text = comparison_table(made, "ridge")
    assert (
        "Only sites with scores for both methods are compared. Missing: "
        "s1 (no run of gcn); s2 (no run of gcn); s4 (no AUC); s5 (no AUC for brio)." in text
    )
    assert {row[0]: row[1] for row in lines(text)} == {"brio": "6", "gcn": "5"}


def test_methods_that_differ_everywhere_alike_are_not_tested_and_level_ones_are_named():
    made = rows({"ridge": 0.6, "brio": 0.6, "gcn": 0.6})
    ridge = made.loc[made["method"] == "ridge", "auc"].to_numpy()
    made.loc[made["method"] == "gcn", "auc"] = ridge + 0.03
    made.loc[made["method"] == "brio", "auc"] = ridge + np.tile([0.002, -0.001], len(ridge) // 2)
    text = comparison_table(made, "ridge")
    assert "gcn: the difference is the same at every site, so its spread is unknown" in text
    assert "adjusted for" not in text, "one comparison was tested"
    assert "Difference below 2 points (two one-sided tests at level 0.05): brio." in text
    assert {row[0]: row[6] for row in lines(text)}["gcn"] == format_p(float("nan"))


def test_kfold_takes_the_corrected_test_over_the_folds_of_all_seeds():
    made = rows({"ridge": 0.6, "brio": 0.62}, folds=5, seeds=3, protocol="kfold")
    differences = compare_methods(made, "ridge").iloc[0]
    wide = made.pivot(index=["seed", "fold"], columns="method", values="auc")
    d = wide["brio"] - wide["ridge"]
    t = d.mean() / np.sqrt((1 / 5 + 10 / 50) * d.var())  # seeds are no further folds
    assert differences["n"] == 15
    assert differences["p"] == pytest.approx(2 * stats.t.sf(abs(t), 4))
    text = comparison_table(made, "ridge")
    assert "corrected t test over the folds of all seeds" in text
    assert "| method | folds |" in text
    some = made[~((made["method"] == "brio") & (made["seed"] == 2) & (made["fold"] == "s3"))]
    assert "Only folds with scores for both methods are compared. Missing: fold s3 of seed 2 (no run of brio)." in (
        comparison_table(some, "ridge")
    )


def test_each_cohort_and_protocol_has_a_table_of_its_own():
    first, second = rows({"ridge": 0.6, "brio": 0.7}), rows({"ridge": 0.6, "gcn": 0.5}, folds=9)
    third = rows({"gin": 0.6}, protocol="kfold")
    made = pd.concat([first, second.assign(cohort="other"), third])
    differences = compare_methods(made, "ridge")
    assert differences[["cohort", "protocol", "method", "n"]].to_numpy().tolist() == [
        ["small", "loso", "brio", 8],
        ["other", "loso", "gcn", 9],
    ]
    alone = compare_methods(second.assign(cohort="other"), "ridge")
    assert differences.loc[1, "p_holm"] == alone.loc[0, "p_holm"]  # one comparison a family
    text = comparison_table(made, "ridge")
    assert text.count("Difference in AUC from ridge") == 2
    assert "small, k-fold: nothing to compare with ridge (methods with results: gin)" in text


def test_methods_with_other_seeds_are_named():
    made = rows({"ridge": 0.6, "brio": 0.65})
    made = made[~((made["method"] == "ridge") & (made["seed"] == 1))]
    assert "different numbers of seeds (brio 2, ridge 1)" in comparison_table(made, "ridge")


def test_what_cannot_be_compared_is_an_error():
    made = pd.concat([rows({"ridge": 0.6, "brio": 0.65}), rows({"gin": 0.6}).assign(cohort="other")])
    for reference, message in (("rigde", "did you mean 'ridge'"), ("gin", "no other method was run")):
        refuse(message, comparison_table, made, reference)


def test_methods_tested_on_other_scans_are_not_compared():
    made = rows({"ridge": 0.6, "brio": 0.65})
    made.loc[(made["method"] == "ridge") & (made["fold"] == "s3"), "n_test"] = 9
    refuse("small, s3: some methods have 9 and others 10 test participants", compare_methods, made, "ridge")


def test_runs_of_several_jobs_come_together():
    one, two = rows({"ridge": 0.6, "brio": 0.65}), rows({"ridge": 0.6, "gcn": 0.5})
    two.loc[two["method"] == "ridge"] = one[one["method"] == "ridge"].to_numpy()  # run twice, with the same numbers
    made = join_rows({"a": one, "b": two.assign(seconds=3.0)})[0]
    assert made["method"].value_counts().to_dict() == {"ridge": 16, "brio": 16, "gcn": 16}
    assert list(compare_methods(made, "ridge")["n"]) == [8, 8]


def test_folds_of_two_rules_are_not_put_together(by_folds, cohort, tmp_path):
    """They share nothing but their numbers."""
    other = shutil.copytree(by_folds, tmp_path / "other")
    for name in ("summary.json", "plan.json"):
        change_json(other / name, lambda stored: stored.update(fold_rule=stored["fold_rule"] + 1))
    jobs = [StoredJob.read(folder) for folder in (by_folds, other)]
    refuse(
        "its folds and those of .* were made by different rules, .*; run both jobs with the same version of brio",
        gather_jobs,
        jobs,
    )
    assert len(gather_jobs(jobs[1:]).rows) == 12
    settings = ProtocolSettings(n_folds=4, validation_folds=1, validation_sites=2)
    fingerprint = jobs[0].summary.fingerprint
    assert read_reused_results(by_folds, fingerprint, settings)
    refuse("its folds follow the rule of another version", read_reused_results, other, fingerprint, settings)
    settings = {"protocol.n_folds": 4, "protocol.validation_folds": 1}
    with pytest.raises(BrioError, match="fold rule: 3, now 2"):
        run(cohort, ["ridge"], seeds=3, protocol="kfold", settings=settings, out=other, device="cpu")
