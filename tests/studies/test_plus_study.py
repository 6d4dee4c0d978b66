"""The study of BRIO plus: its rows are those of the arms, its sentence is the paired gain."""

from unittest import mock

import numpy as np
import pandas as pd
import pytest

import brio
from brio.cohort.simulate import Simulation, simulate
from brio.jobs import JobSpec
from brio.results.format import format_signed
from brio.studies import StudyContext, run_study, study
from brio.studies.plus import LINEAR, PARTS, WHOLE

SETTINGS = {"d_t": 4, "sketch": 32, "penalties": 2, "block_length": 6, "K": 4}
FOLDS = ["site01", "site04"]


@pytest.fixture(scope="module")
def cohort():
    return simulate(Simulation(n_sites=6, per_class=6, n_rois=12, frames=60, stable=0.5))


@pytest.fixture(scope="module")
def place(cohort, tmp_path_factory):
    context = StudyContext(JobSpec(cohort, seeds=2, settings=SETTINGS, folds=FOLDS), tmp_path_factory.mktemp("plus"))
    with mock.patch.object(study, "render_figure", return_value=b""):
        return run_study("plus", context)


@pytest.fixture(scope="module")
def rows(place):
    return pd.read_csv(place / "table.csv")


def test_every_part_is_a_row_and_changes_something(rows):
    assert list(dict.fromkeys(rows["arm"])) == [a.name for a in PARTS]
    scores = rows.pivot(index=["fold", "seed"], columns="arm", values="brier")
    for name in scores.columns:
        if name != WHOLE.name:
            assert not np.allclose(scores[name], scores[WHOLE.name], atol=1e-9), name


def test_rows_are_those_of_an_ordinary_run(rows, cohort, tmp_path):
    plain = brio.run(cohort, ["brio-plus"], out=tmp_path / "run", seeds=2, settings=SETTINGS, folds=FOLDS)
    mine = rows[rows["arm"] == WHOLE.name]
    assert mine["auc"].tolist() == plain.rows["auc"].tolist()


def test_the_gain_is_paired_over_sites(rows, place):
    by_site = rows.groupby(["fold", "arm"])["auc"].mean().unstack("arm")
    gain = 100 * (by_site[WHOLE.name] - by_site[LINEAR.name]).mean()
    told = (place / "finding.md").read_text()
    sentence = "The AUC of BRIO plus minus that of BRIO plus without factor kernels is {} points"
    assert sentence.format(format_signed(gain)) in told


def test_shares_of_the_two_paths(rows):
    share = rows.groupby("arm")["share_of_factors"].mean()
    assert share[LINEAR.name] == pytest.approx(0.0, abs=1e-9)
    assert 0.05 < share[WHOLE.name] < 0.95


def test_readers_see_words(place):
    told = (place / "finding.md").read_text()
    for words in PARTS.values():
        assert words in told
    assert "brio-plus,J=1" not in told
