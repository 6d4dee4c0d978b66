"""Subgroups: a planted difference is found, none is found where none is, and the numbers are those of plain loops."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from study_contexts import bare

from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.jobs import JobSpec
from brio.studies import StudyContext, participants, run_study
from brio.studies.participants import collect_site_pairs, divide_into_thirds, score_subgroups

SIZE = {"n_sites": 5, "per_class": 16, "n_rois": 12, "frames": 60, "unstable": 0.0, "spurious": 0.0, "dead_share": 0.0}


def plant(strong: float, weak: float) -> Cohort:
    """Women as in a simulation with one strength of the planted network, men with another."""
    of_women, of_men = (simulate(Simulation(stable=s, **SIZE)) for s in (strong, weak))
    female = (of_women.participants["sex"] == "F").to_numpy()
    scans = [(of_women if f else of_men).scan(i) for i, f in enumerate(female)]
    columns = of_women.participants[["age", "sex", "tr", "mean_fd"]]
    return (
        bare(of_women, covariates=columns)
        if strong == weak
        else Cohort.from_scans(
            scans, site=of_women.sites, label=of_women.labels, participant_id=of_women.ids, covariates=columns
        )
    )


def study(cohort, out, **options):
    spec = JobSpec(cohort, device="cpu", settings={"protocol.validation_sites": 0}, **options)
    return run_study("subgroups", StudyContext(spec, out))


def difference(place, variable):
    table = pd.read_csv(place / "table.csv")
    return table[(table["variable"] == variable) & table["p"].notna()].iloc[0]


@pytest.fixture
def fewer(monkeypatch):
    monkeypatch.setattr(participants, "RESAMPLES", 400)


@pytest.mark.usefixtures("undrawn", "fewer")
def test_a_planted_difference_between_sexes_is_found(tmp_path):
    place = study(plant(1.0, 0.1), tmp_path)
    sex = difference(place, "sex")
    assert sex["subgroup"] == "male minus female"
    assert sex["high"] < 0
    assert sex["AUC"] < sex["random low"]
    assert sex["p"] < 0.01
    assert "Sex, male minus female: the AUC differs by -" in (place / "finding.md").read_text()


@pytest.mark.usefixtures("undrawn", "fewer")
def test_no_difference_is_found_where_none_is_planted(tmp_path):
    place = study(plant(0.5, 0.5), tmp_path)
    for variable in ("sex", "age, years", "motion, mean FD in mm", "scan length, frames"):
        assert difference(place, variable)["p Holm"] > 0.05, "four variables are one family"


@pytest.mark.usefixtures("fewer")
def test_rows_are_pairs_within_site_and_subgroup_of_an_ordinary_run(tmp_path):
    cohort = plant(0.6, 0.6)
    place = study(cohort, tmp_path, seeds=2)
    arm = tmp_path / "arms" / "loso" / "ridge,choose_by=source-sites"
    predictions = pd.read_csv(arm / "predictions.csv", dtype={"participant_id": str})
    predictions = predictions.merge(cohort.participants[["participant_id", "sex"]], on="participant_id")
    table = pd.read_csv(place / "table.csv")
    for name, sex in (("female", "F"), ("male", "M")):
        own, wins = predictions[predictions["sex"] == sex], []
        for _, run in own.groupby(["site", "seed"]):
            patients, controls = run[run["label"] == 1]["logit"], run[run["label"] == 0]["logit"]
            wins += [float(p > c) + 0.5 * (p == c) for p in patients for c in controls]
        row = table[table["subgroup"] == name].iloc[0]
        assert row["AUC"] == pytest.approx(100 * np.mean(wins), abs=1e-3)
        assert row["pairs"] == len(wins) / 2
        assert row["patients"] == (own["label"] == 1).sum() / 2
    assert "participant_id" not in table


@pytest.mark.usefixtures("undrawn", "fewer")
def test_columns_that_are_missing_are_named(tmp_path):
    cohort = simulate(Simulation(**SIZE | {"per_class": 6}))
    text = (study(bare(cohort), tmp_path) / "finding.md").read_text()
    assert "has no column 'sex'" in text
    assert "has no column 'mean_fd'" in text
    scans = [cohort.scan(i)[:40] for i in range(len(cohort))]
    same = Cohort.from_scans(scans, site=cohort.sites, label=cohort.labels)
    with pytest.raises(BrioError, match="no variable to divide"):
        study(same, tmp_path / "same")


# ---------------------------------------------------------------- statistics


def draw_pairs(rng, n_sites=8, n=24, shift=(1.0, 1.0), site_sd=0.0):
    """Predictions of a made-up method, and a subgroup for each participant."""
    rows = []
    for e in range(n_sites):
        effect = site_sd * rng.normal()
        for k in range(n):
            label, group = k % 2, int(rng.uniform() < 0.4)
            logit = rng.normal() + label * (shift[group] + effect)
            rows.append({"participant_id": f"{e}-{k:02d}", "site": f"s{e}", "seed": 0, "label": label, "logit": logit})
            rows[-1]["group"] = group
    table = pd.DataFrame(rows)
    participants, pairs = collect_site_pairs(table)
    code = table.set_index("participant_id")["group"].loc[participants["participant_id"]].to_numpy()
    return participants, pairs, code


@pytest.mark.usefixtures("fewer")
def test_p_is_uniform_and_intervals_cover_where_subgroups_do_not_differ():
    p, covered = [], []
    for seed in range(25):
        _, pairs, code = draw_pairs(np.random.default_rng(seed), site_sd=0.5)
        _, (low, high), _, one = score_subgroups(pairs, code, 2, seed=seed).difference(1, 0)
        p.append(one)
        covered.append(low <= 0 <= high)
    assert stats.kstest(p, "uniform").pvalue > 0.05
    assert np.mean(covered) >= 0.85


@pytest.mark.soak
def test_intervals_cover_a_planted_difference():
    true = stats.norm.cdf(1.8 / 2**0.5) - stats.norm.cdf(0.4 / 2**0.5)
    covered, found = [], []
    for seed in range(200):
        _, pairs, code = draw_pairs(np.random.default_rng(seed), shift=(0.4, 1.8))
        _, (low, high), _, p = score_subgroups(pairs, code, 2, seed=seed).difference(1, 0)
        covered.append(low <= true <= high)
        found.append(p < 0.05)
    assert 0.91 < np.mean(covered) < 0.99
    assert np.mean(found) > 0.8


def test_random_subgroups_keep_their_sizes_and_have_the_auc_of_their_sites():
    _, pairs, code = draw_pairs(np.random.default_rng(3))
    scores = score_subgroups(pairs, code, 2)
    by_site = np.array([site.in_order.mean() for site in pairs])
    for g in (0, 1):
        n_pairs = np.array([(code[site.patients] == g).sum() * (code[site.controls] == g).sum() for site in pairs])
        assert scores.n_pairs[g] == n_pairs.sum()
        expected = (n_pairs * by_site).sum() / n_pairs.sum()  # any pair of a site is as likely as any other
        assert scores.random[:, g].mean() == pytest.approx(expected, abs=0.005)


def test_properties_of_a_site_are_divided_by_site():
    rng = np.random.default_rng(0)
    site = np.repeat([f"s{e}" for e in range(9)], 10)
    length = np.repeat(100.0 + 20 * np.arange(9), 10)
    length[3] += 4  # one scan is a little longer
    code, _, by_site = divide_into_thirds(length, site)
    assert by_site
    assert all(len(np.unique(code[site == e])) == 1 for e in np.unique(site))
    assert np.bincount(code).tolist() == [30, 30, 30]
    values = rng.normal(size=90)
    values[:5] = np.nan
    code, _, by_site = divide_into_thirds(values, site)
    assert not by_site
    assert (code[:5] == -1).all()
    assert sorted(np.bincount(code[5:]).tolist()) == [28, 28, 29]


def test_sites_are_drawn_and_exchanged_where_they_are_the_units():
    _, pairs, _ = draw_pairs(np.random.default_rng(5), n_sites=12, site_sd=1.0)
    code = np.repeat(np.arange(12) % 2, 24)
    scores = score_subgroups(pairs, code, 2, by_site=True)
    by_site = np.array([site.in_order.mean() for site in pairs])  # all sites have the same number of pairs
    assert scores.auc == pytest.approx([by_site[::2].mean(), by_site[1::2].mean()])
    assert scores.drawn.std(axis=0) == pytest.approx([by_site[k::2].std() / 6**0.5 for k in (0, 1)], rel=0.1)
    assert scores.random.mean() == pytest.approx(by_site.mean(), abs=0.01)
    assert scores.n_sites.tolist() == [6, 6]


def test_intervals_of_an_auc_allow_for_shared_training_scans():
    _, pairs, code = draw_pairs(np.random.default_rng(5), n_sites=12)
    scores = score_subgroups(pairs, code, 2)
    low, high = scores.interval(0)
    drawn = np.quantile(scores.drawn[:, 0], [0.025, 0.975])
    factor = (1 + 12 / 10) ** 0.5  # as in all intervals over participants at 12 sites
    assert [low, high] == pytest.approx(scores.auc[0] + factor * (drawn - scores.auc[0]))
