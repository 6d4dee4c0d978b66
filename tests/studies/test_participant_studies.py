"""Subgroups and repeated sessions: what is planted is found, and the numbers are those of plain loops."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from study_contexts import bare, make_study

from brio.cohort import Cohort
from brio.cohort.simulate import PARTICIPANT_SD, Simulation, simulate
from brio.errors import BrioError
from brio.studies import participants
from brio.studies.participants import collect_site_pairs, divide_into_thirds, score_subgroups
from commands import refuse
from made_cohorts import rebuild

QUIET = {"unstable": 0.0, "spurious": 0.0, "dead_share": 0.0}
SIZE = {"n_sites": 5, "per_class": 16, "n_rois": 12, "frames": 60, **QUIET}

# ---------------------------------------------------------------- subgroups


def plant(of_women: float, of_men: float) -> Cohort:
    """Women as in a simulation with one strength of the planted network, men with another."""
    women, men = (simulate(Simulation(stable=strength, **SIZE)) for strength in (of_women, of_men))
    female = (women.participants["sex"] == "F").to_numpy()
    return rebuild(women, [(women if f else men).scan(i) for i, f in enumerate(female)])


def difference(place, variable):
    table = pd.read_csv(place / "table.csv")
    return table[(table["variable"] == variable) & table["p"].notna()].iloc[0]


@pytest.fixture
def fewer(monkeypatch):
    monkeypatch.setattr(participants, "RESAMPLES", 400)


@pytest.mark.usefixtures("undrawn", "fewer")
def test_a_planted_difference_between_sexes_is_found(tmp_path):
    place = make_study("subgroups", plant(1.0, 0.1), tmp_path)
    sex = difference(place, "sex")
    assert sex["subgroup"] == "male minus female"
    assert sex["high"] < 0
    assert sex["AUC"] < sex["random low"]
    assert sex["p"] < 0.01
    assert "Sex, male minus female: the AUC differs by -" in (place / "finding.md").read_text()


@pytest.mark.usefixtures("fewer")
def test_rows_are_pairs_within_site_and_subgroup_and_nothing_is_found_where_nothing_is_planted(tmp_path):
    cohort = plant(0.5, 0.5)
    place = make_study("subgroups", cohort, tmp_path, seeds=2)
    for variable in ("sex", "age, years", "motion, mean FD in mm", "scan length, frames"):
        assert difference(place, variable)["p Holm"] > 0.05, "four variables are one family"
    arm = tmp_path / "arms" / "loso" / "ridge,choose_by=source-sites"
    predictions = pd.read_csv(arm / "predictions.csv", dtype={"participant_id": str})
    predictions = predictions.merge(cohort.participants[["participant_id", "sex"]], on="participant_id")
    table = pd.read_csv(place / "table.csv")
    for name, sex in (("female", "F"), ("male", "M")):
        own, wins = predictions[predictions["sex"] == sex], []
        for _, run in own.groupby(["site", "seed"]):
            patients, controls = run[run["label"] == 1]["margin"], run[run["label"] == 0]["margin"]
            wins += [float(p > c) + 0.5 * (p == c) for p in patients for c in controls]
        row = table[table["subgroup"] == name].iloc[0]
        assert row["AUC"] == pytest.approx(100 * np.mean(wins), abs=1e-3)
        assert (row["pairs"], row["patients"]) == (len(wins) / 2, (own["label"] == 1).sum() / 2)
        assert row["controls"] == (own["label"] == 0).sum() / 2
    assert "participant_id" not in table


@pytest.mark.usefixtures("undrawn", "fewer")
def test_columns_that_are_missing_are_named(tmp_path):
    cohort = simulate(Simulation(**SIZE | {"per_class": 6}))
    text = (make_study("subgroups", bare(cohort), tmp_path) / "finding.md").read_text()
    for column in ("sex", "mean_fd"):
        assert f"has no column '{column}'" in text
    scans = [cohort.scan(i)[:40] for i in range(len(cohort))]
    with pytest.raises(BrioError, match="no variable for subgroups"):
        make_study("subgroups", Cohort.from_scans(scans, site=cohort.sites, label=cohort.labels), tmp_path / "same")


def draw_pairs(seed, n_sites=8, n=24, shift=(1.0, 1.0), site_sd=0.0):
    """Pairs of a made-up method, and a subgroup for each participant."""
    rng, rows = np.random.default_rng(seed), []
    for e in range(n_sites):
        effect = site_sd * rng.normal()
        for k in range(n):
            label, group = k % 2, int(rng.uniform() < 0.4)
            margin = rng.normal() + label * (shift[group] + effect)
            row = {"participant_id": f"{e}-{k:02d}", "site": f"s{e}", "seed": 0, "label": label, "margin": margin}
            rows.append(row)
            rows[-1]["group"] = group
    table = pd.DataFrame(rows)
    people, pairs = collect_site_pairs(table)
    return pairs, table.set_index("participant_id")["group"].loc[people["participant_id"]].to_numpy()


def compare_made_up_subgroups(count, true, **options):
    """P values of differences of made-up subgroups, and whether their intervals cover the true difference."""
    p, covered = [], []
    for seed in range(count):
        pairs, code = draw_pairs(seed, **options)
        _, (low, high), _, one = score_subgroups(pairs, code, 2, seed=seed).difference(1, 0)
        p.append(one)
        covered.append(low <= true <= high)
    return np.array(p), np.mean(covered)


@pytest.mark.usefixtures("fewer")
def test_p_is_uniform_and_intervals_cover_where_subgroups_do_not_differ():
    p, covered = compare_made_up_subgroups(25, 0.0, site_sd=0.5)
    assert stats.kstest(p, "uniform").pvalue > 0.05
    assert covered >= 0.85


@pytest.mark.soak
def test_intervals_cover_a_planted_difference():
    true = stats.norm.cdf(1.8 / 2**0.5) - stats.norm.cdf(0.4 / 2**0.5)
    p, covered = compare_made_up_subgroups(200, true, shift=(0.4, 1.8))
    assert 0.91 < covered < 0.99
    assert (p < 0.05).mean() > 0.8


def test_random_subgroups_keep_their_sizes_and_have_the_auc_of_their_sites():
    pairs, code = draw_pairs(3)
    scores = score_subgroups(pairs, code, 2)
    by_site = np.array([site.in_order.mean() for site in pairs])
    for g in (0, 1):
        n_pairs = np.array([(code[site.patients] == g).sum() * (code[site.controls] == g).sum() for site in pairs])
        assert scores.n_pairs[g] == n_pairs.sum()
        expected = (n_pairs * by_site).sum() / n_pairs.sum()  # any pair of a site is as likely as any other
        assert scores.random[:, g].mean() == pytest.approx(expected, abs=0.005)


def test_properties_of_a_site_are_divided_by_site():
    site = np.repeat([f"s{e}" for e in range(9)], 10)
    length = np.repeat(100.0 + 20 * np.arange(9), 10)
    length[3] += 4  # one scan is a little longer
    code, _, by_site = divide_into_thirds(length, site)
    assert by_site
    assert (pd.Series(code).groupby(site).nunique() == 1).all()
    assert np.bincount(code).tolist() == [30, 30, 30]
    values = np.random.default_rng(0).normal(size=90)
    values[:5] = np.nan
    code, _, by_site = divide_into_thirds(values, site)
    assert not by_site
    assert (code[:5] == -1).all()
    assert sorted(np.bincount(code[5:]).tolist()) == [28, 28, 29]


def test_sites_are_drawn_and_exchanged_where_they_are_the_units():
    pairs, _ = draw_pairs(5, n_sites=12, site_sd=1.0)
    scores = score_subgroups(pairs, np.repeat(np.arange(12) % 2, 24), 2, by_site=True)
    by_site = np.array([site.in_order.mean() for site in pairs])  # all sites have the same number of pairs
    assert scores.auc == pytest.approx([by_site[::2].mean(), by_site[1::2].mean()])
    assert scores.drawn.std(axis=0) == pytest.approx([by_site[k::2].std() / 6**0.5 for k in (0, 1)], rel=0.1)
    assert scores.random.mean() == pytest.approx(by_site.mean(), abs=0.01)
    assert scores.n_sites.tolist() == [6, 6]


def test_intervals_of_an_auc_allow_for_shared_training_scans():
    scores = score_subgroups(*draw_pairs(5, n_sites=12), 2)
    drawn = np.quantile(scores.drawn[:, 0], [0.025, 0.975])
    factor = (1 + 12 / 10) ** 0.5  # as in all intervals over participants at 12 sites
    assert scores.interval(0) == pytest.approx(tuple(scores.auc[0] + factor * (drawn - scores.auc[0])))


# ---------------------------------------------------------------- test and retest


def retest(out, **options) -> tuple[pd.DataFrame, str]:
    simulation = Simulation(n_rois=8, site_shift=0.1, **QUIET, **options)
    place = make_study("retest", simulate(simulation), out, ["ridge"])
    return pd.read_csv(place / "table.csv"), (place / "finding.md").read_text()


def test_planted_changes_between_sessions_are_seen(tmp_path):
    """Sessions vary twice as much as participants. The next test, a longer one, recovers the ratio."""
    options = {"n_sites": 3, "per_class": 6, "frames": 200, "sessions": 2, "stable": 0.8}
    table, text = retest(tmp_path, **options, session_sd=2 * PARTICIPANT_SD)
    row = table.iloc[0]
    assert row["participants"] > 30
    assert row["icc"] > row["icc_within_classes"], "the classes differ"
    assert row["between_sessions"] > row["between_participants"]
    assert row["sessions_over_scans"] > 2
    assert row["same_decision"] < row["same_decision_reestimates"]
    assert f"{row['icc']:.2f} (" in text


@pytest.mark.soak
@pytest.mark.parametrize("ratio", [0.0, 1.0, 4.0])
def test_the_planted_ratio_is_recovered(tmp_path, ratio):
    """As the share of sessions in the variance of sessions and participants, mean of three cohorts, to within 0.08.

    About 190 participants each, three sessions of 600 frames. Shares are averaged because ratios of noisy variances are
    too large in the mean. Blocks of a few frames understate how much a scan leaves open, and the rest is taken for a
    difference of sessions: without any, its share is still about 0.13, which is allowed for.
    """
    shares, over_scans = [], []
    for seed in range(3):
        options = {"n_sites": 4, "per_class": 24, "frames": 600, "sessions": 3, "seed": seed}
        table, _ = retest(tmp_path / str(seed), **options, session_sd=ratio**0.5 * PARTICIPANT_SD)
        row = table.mean(numeric_only=True)
        found = (row["between_sessions"] - row["within_scans"]) / row["between_participants"]
        shares.append(found / (1 + found))
        over_scans.append(row["sessions_over_scans"])
    assert -0.08 < np.mean(shares) - ratio / (1 + ratio) < (0.08 if ratio else 0.2)
    assert (np.mean(over_scans) < 1.5) == (ratio == 0)


@pytest.mark.parametrize(
    ("repeated", "folds", "message"),
    [
        ([], None, "no participant in this cohort has several; import repeated scans with --sessions all"),
        (["site02"], ["site01"], "no participant at site01 has several; .* or choose other folds"),
        (["site01"], None, "needs at least 2 participants with several scans, but only one participant in this cohort"),
    ],
)
def test_fewer_than_two_participants_with_repeats_are_refused_before_training(tmp_path, repeated, folds, message):
    cohort = simulate(Simulation(n_sites=4, per_class=3, n_rois=8, frames=50, sessions=2))
    second = (cohort.participants["session"].astype(str) == "2").to_numpy()
    twice = np.flatnonzero(second & np.isin(cohort.sites, repeated))
    keep = ~second
    keep[twice[: 1 if folds is None else None]] = True
    refuse(message, make_study, "retest", cohort.select(keep), tmp_path, folds=folds, exclude=False)
    assert not (tmp_path / "arms").exists()
