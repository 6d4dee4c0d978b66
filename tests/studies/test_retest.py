"""Test and retest: the planted ratio of session to participant variance is found again."""

import numpy as np
import pandas as pd
import pytest

from brio import BrioError
from brio.cohort import Cohort
from brio.cohort.simulate import PARTICIPANT_SD, Simulation, simulate
from brio.jobs import JobSpec
from brio.studies import StudyContext, run_study

QUIET = {"unstable": 0.0, "spurious": 0.0, "dead_share": 0.0, "site_shift": 0.1}
SETTINGS = {"protocol.validation_sites": 0}


def run(cohort: Cohort, out) -> tuple[pd.DataFrame, str]:
    context = StudyContext(JobSpec(cohort, methods=("ridge",), seeds=1, settings=SETTINGS, device="cpu"), out)
    place = run_study("retest", context)
    names = {"table.csv", "figure.svg", "figure.png", "finding.md", "study.json", "SHA256SUMS"}
    assert {p.name for p in place.iterdir()} == names
    return pd.read_csv(place / "table.csv"), (place / "finding.md").read_text()


def recovered_ratio(table: pd.DataFrame) -> float:
    """Variance of sessions beyond re-estimates, over that of participants."""
    row = table.mean(numeric_only=True)
    return (row["between_sessions"] - row["within_scans"]) / row["between_participants"]


def test_planted_changes_between_sessions_are_seen(tmp_path):
    """Sessions vary twice as much as participants. The next test, a longer one, recovers the ratio."""
    options = {"n_sites": 3, "per_class": 6, "n_rois": 8, "frames": 200, "sessions": 2, "stable": 0.8}
    table, text = run(simulate(Simulation(**options, **QUIET, session_sd=2 * PARTICIPANT_SD)), tmp_path)
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
        options = {"n_sites": 4, "per_class": 24, "n_rois": 8, "frames": 600, "sessions": 3, "seed": seed}
        simulation = Simulation(**options, **QUIET, session_sd=ratio**0.5 * PARTICIPANT_SD)
        table, _ = run(simulate(simulation), tmp_path / str(seed))
        found = recovered_ratio(table)
        shares.append(found / (1 + found))
        over_scans.append(table["sessions_over_scans"].mean())
    assert -0.08 < np.mean(shares) - ratio / (1 + ratio) < (0.08 if ratio else 0.2)
    assert (np.mean(over_scans) < 1.5) == (ratio == 0)


def test_a_cohort_without_repeats_is_refused(tmp_path):
    cohort = simulate(Simulation(n_sites=4, per_class=3, n_rois=8, frames=50))
    with pytest.raises(BrioError, match="nobody in this cohort has several; import repeated scans with --sessions all"):
        run(cohort, tmp_path)


@pytest.mark.parametrize(
    ("repeated", "folds", "message"),
    [
        (["site02"], ["site01"], "nobody in fold site01 has several; .* or choose other folds"),
        (["site01"], None, "needs at least 2 with several, but only one in this cohort has several"),
    ],
)
def test_fewer_than_two_participants_with_repeats_are_refused_before_training(tmp_path, repeated, folds, message):
    cohort = simulate(Simulation(n_sites=4, per_class=3, n_rois=8, frames=50, sessions=2))
    second = (cohort.participants["session"].astype(str) == "2").to_numpy()
    twice = np.flatnonzero(second & np.isin(cohort.sites, repeated))
    keep = ~second
    keep[twice[: 1 if folds is None else None]] = True
    spec = JobSpec(cohort.select(keep), folds=folds, exclude=False, settings=SETTINGS, device="cpu")
    context = StudyContext(spec, tmp_path)
    with pytest.raises(BrioError, match=message):
        run_study("retest", context)
    assert not (tmp_path / "arms").exists()
