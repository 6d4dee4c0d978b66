"""The study of adaptation: local scans and scored scans never meet, and its changes follow from the rows."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.formatting import format_signed
from brio.jobs import JobSpec
from brio.models import PriorWidths, fit_adaptation
from brio.results import StoredStudy
from brio.studies import StudyContext, calibration, run_study
from brio.studies.summaries import score_runs


def score(predictions):
    return score_runs(predictions, calibration._score_sizes)


def make_predictions(n, rng, intercept, fold="a", seed=0):
    logits = rng.normal(size=n)
    label = (rng.uniform(size=n) < expit(logits + intercept)).astype(int)
    label[:2] = 0, 1
    ids = [f"{fold}{i}" for i in range(n)]
    columns = {"participant_id": ids, "label": label, "probability": expit(logits)}
    return pd.DataFrame({"fold": fold, "seed": seed, **columns})


def test_local_scans_keep_the_share_of_patients_and_are_nested():
    rng = np.random.default_rng(0)
    label, order = (rng.uniform(size=80) < 0.3).astype(int), rng.uniform(size=80)
    before = np.zeros(80, dtype=bool)
    for size in calibration.SIZES:
        chosen = calibration.choose_local_scans(label, order, size)
        assert chosen.sum() == size
        assert label[chosen].sum() == round(size * label.mean())
        assert (chosen | before == chosen).all()
        before = chosen
    rare = np.zeros(30, dtype=int)
    rare[3] = 1
    assert calibration.choose_local_scans(rare, np.arange(30), 10)[3]


def test_scored_scans_are_not_those_adapted_to():
    """Labels of the scored scans change the scores, and nothing that was fitted."""
    rng = np.random.default_rng(1)
    label, logits = (rng.uniform(size=50) < 0.5).astype(int), rng.normal(size=50)
    local = calibration.choose_local_scans(label, rng.uniform(size=50), 20)
    scores = calibration._adapt_once(label, logits, local)
    other = calibration._adapt_once(np.where(local, label, 1 - label), logits, local)
    assert (scores["slope"], scores["intercept"]) == (other["slope"], other["intercept"])
    assert scores["accuracy_adapted"] == pytest.approx(1 - other["accuracy_adapted"])
    fitted = fit_adaptation(label[local], logits[local], PriorWidths())
    rest = expit(fitted.apply(logits[~local])) - label[~local]
    assert scores["brier_adapted"] == pytest.approx((rest**2).mean())


def test_a_planted_shift_is_corrected_and_shrinkage_avoids_harm(monkeypatch):
    monkeypatch.setattr(calibration, "DRAWS", 2)
    rng = np.random.default_rng(2)
    shifted = pd.concat([make_predictions(90, rng, -1.5, name) for name in "abcdef"])
    points = calibration.summarise_sizes(score(shifted))
    assert points.index.tolist() == [0, 10, 20, 40]
    assert (points.loc[10:, "brier adapted high"] < 0).all()
    assert points.loc[10:, "brier adapted"].is_monotonic_decreasing
    same = pd.concat([make_predictions(90, rng, 0.0, name) for name in "abcdef"])
    points = calibration.summarise_sizes(score(same))
    assert points.loc[10, "brier adapted"] < 0.005
    assert points.loc[10, "brier unshrunk"] > points.loc[10, "brier adapted"]


def test_small_sites_are_left_out_and_named(monkeypatch):
    monkeypatch.setattr(calibration, "DRAWS", 2)
    rng = np.random.default_rng(3)
    sites = [make_predictions(n, rng, 0.0, name) for name, n in (("a", 19), ("b", 30), ("c", 50), ("d", 60))]
    rows = score(pd.concat(sites))
    assert rows.groupby("size")["fold"].apply("".join).to_dict() == {0: "abcd", 10: "bcd", 20: "bcd", 40: "cd"}
    assert (
        "for 10 local scans: a; for 20 local scans: a; for 40 local scans: a and b"
        in (calibration._name_small_sites(rows)[0])
    )


def study(out, per_class):
    cohort = simulate(Simulation(n_sites=3, per_class=per_class, n_rois=8, frames=40, seed=4))
    settings = {"protocol.validation_sites": 0}
    return run_study("adaptation", StudyContext(JobSpec(cohort, settings=settings, exclude=False, device="cpu"), out))


def test_the_study_writes_what_its_rows_say(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "DRAWS", 2)
    stored = StoredStudy.read(study(tmp_path / "large", per_class=10))
    rows = stored.table
    assert set(rows["size"]) == {0, 10}
    change = rows[rows["size"] == 10].set_index("fold").eval("brier_adapted - brier")
    points = calibration.summarise_sizes(rows)
    assert points.loc[10, "brier adapted"] == pytest.approx(change.mean())
    half = stats.t.ppf(0.975, len(change) - 1) * stats.sem(change) * (1 + len(change) / max(len(change) - 2, 1)) ** 0.5
    ends = points.loc[10, ["brier adapted low", "brier adapted high"]]
    assert ends.tolist() == pytest.approx([change.mean() - half, change.mean() + half])
    assert f"10 local scans {format_signed(change.mean(), 3)}" in stored.finding
    with pytest.raises(BrioError, match="no test site has 20 scans"):
        study(tmp_path / "small", per_class=3)
