"""Participants with several scans: on one side of every split, and counted once in every score."""

import hashlib
from functools import cache

import numpy as np
import pandas as pd
import pytest

from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.protocol import ProtocolSettings, average_margins, make_folds, make_training_fold
from brio.protocol.splitters import SiteStratifiedKFold
from brio.results.cohort import describe_cohort
from brio.studies.refits import keep_participants, permute_labels

SIMULATION = Simulation(n_sites=5, per_class=6, n_rois=8, frames=50, sessions=3, session_sd=0.1)


@cache
def cohort() -> Cohort:
    """A cohort in which participants have one, two or three scans."""
    everyone = simulate(SIMULATION)
    number = np.arange(len(everyone)) // 3
    return everyone.select(np.arange(len(everyone)) % 3 <= number % 3)


def people(scans: np.ndarray) -> set[str]:
    return set(cohort().participant_ids[scans].tolist())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("protocol", ["loso", "kfold"])
def test_nobody_is_on_both_sides(protocol, seed):
    folds = make_folds(cohort(), protocol, seed, ProtocolSettings(n_folds=5, validation_folds=1))
    for fold in [*folds, make_training_fold(cohort(), seed, 2)]:
        sides = [people(side) for side in (fold.source, fold.validation, fold.test)]
        assert sum(map(len, sides)) == len(set.union(*sides))
        source = fold.move_validation_to_source(cohort()).source
        assert not people(source) & people(fold.test)


def test_folds_of_participants_do_not_depend_on_their_scans():
    first = np.flatnonzero(cohort().participants["session"] == "1")
    settings = ProtocolSettings(n_folds=5, validation_folds=1)
    with_all, with_first = (make_folds(one, "kfold", 4, settings) for one in (cohort(), cohort().select(first)))
    for every, once in zip(with_all, with_first, strict=True):
        assert people(every.test) == people(first[once.test])


def test_the_folds_of_a_rule_stay():
    """Another rule for them needs another number in FOLD_RULE, so that results of both are never put together."""
    plain, digest = simulate(Simulation(n_sites=5, per_class=6, n_rois=8, frames=60)), hashlib.sha256()
    for fold in make_folds(plain, "kfold", 3, ProtocolSettings()):
        for scans in (fold.source, fold.validation, fold.test):
            digest.update(scans.tobytes())
    assert digest.hexdigest().startswith("d935629fa41e932f")


def test_splitter_keeps_participants_together():
    y, sites = cohort().labels, cohort().sites
    splitter = SiteStratifiedKFold(n_splits=4, random_state=0, participants=cohort().participant_ids)
    tested = []
    for train, test in splitter.split(y, y, groups=sites):
        assert not people(train) & people(test)
        tested.append(test)
    assert sorted(np.concatenate(tested).tolist()) == list(range(len(y)))


def test_permuted_labels_belong_to_participants():
    labels = permute_labels(cohort(), 20)
    by_participant = pd.DataFrame(labels).groupby(cohort().participant_ids)
    assert (by_participant.nunique() == 1).all(axis=None)
    counts = by_participant.first().groupby(lambda p: cohort().sites[cohort().participant_ids == p][0]).sum()
    assert (counts.nunique(axis=1) == 1).all(), "each site keeps its number of patients"


def test_a_learning_curve_keeps_participants_whole():
    fold = make_folds(cohort(), "loso", 0, ProtocolSettings())[0]
    part = keep_participants(fold, cohort(), 0.5, 0, 0)
    assert 0.4 < len(people(part.source)) / len(people(fold.source)) < 0.6
    assert set(part.source) == {i for i in fold.source if cohort().participant_ids[i] in people(part.source)}


def test_facts_of_a_report_count_participants():
    facts = describe_cohort(cohort())
    assert sum(facts["all"]["n"]) == len(people(np.arange(len(cohort()))))
    assert sum(facts["all"]["sex"].values()) == sum(facts["all"]["n"])


def test_margins_are_averaged_along_the_first_axis():
    scans = np.array([0, 1, 2, 3, 4])
    values = np.random.default_rng(0).normal(size=(5, 2))
    first, mean = average_margins(cohort(), scans, values)
    expected = pd.DataFrame(values).groupby(cohort().participant_ids[scans], sort=False).mean()
    assert cohort().participant_ids[first].tolist() == expected.index.tolist()
    np.testing.assert_allclose(mean, expected)
