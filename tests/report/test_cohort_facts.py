"""What a run writes down of its cohort: counts and ranges, no row of anyone."""

import json

import numpy as np
import pandas as pd

from brio import Cohort
from brio.cohort.covariates import relabel
from brio.cohort.simulate import Simulation, simulate
from brio.results import StoredJob
from brio.results.cohort import describe_cohort, group_participants
from brio.results.files import COHORT_FACTS


def test_counts_and_ranges_are_those_of_the_participants_and_regions_those_of_the_atlas(cohort):
    facts = describe_cohort(cohort)
    table = cohort.participants.assign(frames=cohort.n_frames)
    assert facts["classes"] == ["control", "patient"]
    assert [s["site"] for s in facts["sites"]] == sorted(table["site"].unique())
    for described, rows in [(facts["all"], table), *((s, table[table["site"] == s["site"]]) for s in facts["sites"])]:
        assert described["n"] == [int((rows["label"] == y).sum()) for y in (0, 1)]
        assert described["frames"] == [rows["frames"].min(), rows["frames"].max()]
        assert described["tr"] == [rows["tr"].min(), rows["tr"].max()]
        for key, column in (("age", "age"), ("motion", "mean_fd")):
            assert np.isclose(described[key]["mean"], rows[column].mean(), atol=1e-4)
            assert np.isclose(described[key]["sd"], rows[column].std(), atol=1e-4)
        assert described["sex"] == rows["sex"].value_counts().to_dict()
    rois = facts["rois"]  # in their place
    assert rois["name"] == cohort.atlas.rois["name"].tolist()
    assert np.allclose(rois["xyz"], cohort.atlas.rois[["x", "y", "z"]])
    assert rois["hemi"] == cohort.atlas.rois["hemi"].tolist()


def test_nobody_is_named_and_few_people_are_not_described():
    made = simulate(Simulation(n_sites=3, per_class=4, n_rois=8, frames=60))
    keep = np.ones(len(made), dtype=bool)
    keep[np.flatnonzero(made.sites == "site01")[1:-2]] = False  # too few to average over without telling of one
    small = made.select(keep)
    n = int((small.sites == "site01").sum())
    facts = describe_cohort(small)
    assert not [who for who in made.ids if who in json.dumps(facts)]
    first = facts["sites"][0]
    assert sum(first["n"]) == n
    assert (n < 5) == (first["age"] is None) == (first["sex"] is None) == (first["motion"] is None)
    assert n < 5, "the test needs a small site"
    assert facts["sites"][1]["age"] is not None


def make_bare(**covariates):
    """Twelve scans at two sites, with nothing but these columns."""
    scans = np.random.default_rng(0).normal(size=(12, 50, 4))
    table = pd.DataFrame(covariates) if covariates else None
    return Cohort.from_scans(list(scans), site=["A"] * 6 + ["B"] * 6, label=[0, 1] * 6, covariates=table)


def test_what_is_not_known_is_none():
    facts = describe_cohort(make_bare(age=[np.nan] * 12, tr=[np.nan] * 12))
    assert facts["rois"]["xyz"] is None
    assert facts["rois"]["hemi"] is None
    assert [facts["all"][key] for key in ("tr", "age", "motion", "sex")] == [None] * 4
    json.dumps(facts, allow_nan=False)
    assert group_participants(make_bare()) is None


def test_groups_split_participants_and_hold_no_age():
    age = [21.25, 30.5, np.nan, 44.75, 50.125, np.nan, *[35.0] * 5, 18.375]
    cohort = make_bare(age=age, sex=["1", "2", None] * 4, mean_fd=[np.nan] * 12)
    groups = group_participants(cohort)
    assert list(groups) == ["participant_id", "sex", "age"], "no motion is known"
    assert groups["age"].tolist()[:6] == ["below 35.0", "below 35.0", "", "35.0 or above", "35.0 or above", ""]
    assert groups["sex"].tolist()[:3] == ["1", "2", ""]
    assert describe_cohort(cohort)["halves"] == {"age": ["below 35.0", "35.0 or above"]}
    assert not [value for value in ("21.25", "50.125", "18.375") if value in groups.to_csv()]


def test_every_run_writes_the_facts_and_groups_of_the_scans_it_uses(finished, cohort):
    job = StoredJob.read(finished)
    used = cohort.select(~np.isin(cohort.ids, list(job.plan.excluded)))
    written = json.loads((finished / COHORT_FACTS).read_text())
    assert written == json.loads(json.dumps(describe_cohort(used)))
    assert sum(written["all"]["n"]) == job.plan.n_scans == len(cohort) - 1
    pd.testing.assert_frame_equal(job.groups, group_participants(used).reset_index(drop=True), check_dtype=False)


def test_the_label_is_sex_if_sex_decides_it_however_it_is_written():
    sexes = ["F", "m", "female", "M", "f ", "male"] * 2
    assert describe_cohort(make_bare(sex=sexes))["label_is_sex"]
    assert not describe_cohort(make_bare(sex=["F", "M", "M", "F"] * 3))["label_is_sex"]
    assert not describe_cohort(make_bare())["label_is_sex"]


def test_covariates_are_those_that_someone_has_and_the_label_is_not_made_of():
    known = make_bare(sex=["F", "F", "M"] * 4, age=[np.nan] * 12, mean_fd=[0.1, *[np.nan] * 11])
    assert describe_cohort(known)["covariates"] == ["sex", "motion"]
    assert describe_cohort(relabel(known, "sex", min_class=1))["covariates"] == ["motion"]
