"""The splitters inside scikit-learn's own machinery, on scans of unequal length."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score, cross_validate

from brio.protocol.splitters import LeaveOneSiteOut, SiteStratifiedKFold
from cohort.file_layouts import refuse

SITES = np.repeat(["Yale", "KKI", "NYU", "UM"], [6, 9, 12, 13])
LABELS = np.concatenate([np.arange(n) % 2 for n in (6, 9, 12, 13)])
SCANS = [np.full((20 + i % 7, 3), float(i)) for i in range(len(SITES))]


class Remembers(ClassifierMixin, BaseEstimator):
    """Says the first class of everything and remembers which scans it was given."""

    def __init__(self, constant=0):
        self.constant = constant

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen_ = sorted(int(scan[0, 0]) for scan in X)
        return self

    def predict(self, X):
        assert not {int(scan[0, 0]) for scan in X} & set(self.seen_)
        return np.full(len(X), self.classes_[self.constant])


def test_leave_one_site_out_agrees_with_leave_one_group_out():
    ours = list(LeaveOneSiteOut().split(SCANS, LABELS, SITES))
    theirs = list(LeaveOneGroupOut().split(SCANS, LABELS, SITES))
    assert len(ours) == LeaveOneSiteOut().get_n_splits(groups=SITES) == 4
    for (train, test), (their_train, their_test) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(train, their_train)
        np.testing.assert_array_equal(test, their_test)
    assert [SITES[test[0]] for _, test in ours] == ["KKI", "NYU", "UM", "Yale"]


@pytest.mark.parametrize("sites", [SITES.tolist(), SITES.astype(object), np.unique(SITES, return_inverse=True)[1]])
def test_sites_may_be_lists_objects_or_numbers(sites):
    tests = [set(test) for _, test in LeaveOneSiteOut().split(SCANS, groups=sites)]
    assert sorted(map(len, tests)) == [6, 9, 12, 13]


def test_sites_with_one_class_are_split_off_and_named_once():
    labels = np.where(SITES == "NYU", 1, LABELS)
    with pytest.warns(UserWarning, match="only one class at NYU; .*AUC") as caught:
        splits = list(LeaveOneSiteOut().split(SCANS, labels, SITES))
    assert len(caught) == 1
    assert len(splits) == 4

    # none where every site has both classes, or labels are unknown
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(LeaveOneSiteOut().split(SCANS, LABELS, SITES))
        list(LeaveOneSiteOut().split(SCANS, None, SITES))


def test_kfold_is_a_partition_stratified_by_site_and_class():
    splits = list(SiteStratifiedKFold(4, random_state=3).split(SCANS, LABELS, SITES))
    tested = np.array([np.isin(np.arange(len(SITES)), test) for _, test in splits])
    assert (tested.sum(axis=0) == 1).all()
    np.testing.assert_array_equal([np.isin(np.arange(len(SITES)), train) for train, _ in splits], ~tested)
    cells = pd.Series(SITES) + LABELS.astype(str)
    for groups in (np.zeros(len(SITES)), cells):
        counts = pd.DataFrame(tested.T).groupby(groups).sum()
        assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()


def test_kfold_is_drawn_by_its_random_state():
    def folds(state):
        return [test.tolist() for _, test in SiteStratifiedKFold(4, random_state=state).split(SCANS, LABELS, SITES)]

    assert folds(0) == folds(0)
    assert folds(0) != folds(1)
    assert folds(np.random.RandomState(0)) == folds(0)
    shared = np.random.RandomState(0)
    assert folds(shared) != folds(shared)


@pytest.mark.parametrize("cv", [LeaveOneSiteOut(), SiteStratifiedKFold(4, random_state=0)])
def test_inside_cross_validation_with_and_without_routing(cv):
    plain = cross_val_score(Remembers(), SCANS, LABELS, cv=cv, groups=SITES, error_score="raise")
    with sklearn.config_context(enable_metadata_routing=True):
        options = {"error_score": "raise", "return_indices": True}
        found = cross_validate(Remembers(), SCANS, LABELS, cv=cv, params={"groups": SITES}, **options)
    assert len(plain) == 4
    np.testing.assert_array_equal(found["test_score"], plain)
    for k, test in enumerate(found["indices"]["test"]):
        assert plain[k] == np.mean(LABELS[test] == 0)


def test_inside_a_grid_search():
    labels = np.where(np.arange(len(SITES)) % 5 == 0, 1, 0)  # mostly 0
    search = GridSearchCV(Remembers(), {"constant": [1, 0]}, cv=LeaveOneSiteOut(), error_score="raise")
    search.fit(SCANS, labels, groups=SITES)
    assert search.best_params_ == {"constant": 0}
    assert search.n_splits_ == 4


def test_repr_and_clone():
    assert repr(LeaveOneSiteOut()) == "LeaveOneSiteOut()"
    assert repr(SiteStratifiedKFold(3, random_state=1)) == "SiteStratifiedKFold(n_splits=3, random_state=1)"
    assert clone(SiteStratifiedKFold(3), safe=False).n_splits == 3


@pytest.mark.parametrize("cv", [LeaveOneSiteOut(), SiteStratifiedKFold(4)])
def test_missing_sites_are_refused(cv):
    refuse(r"needs the site of every scan; pass groups=sites", next, cv.split(SCANS, LABELS))
    refuse("needs the site of every scan", cross_val_score, Remembers(), SCANS, LABELS, cv=cv)
    gap = [None, *SITES[1:]]
    refuse(r"groups\[0\] has no site", next, cv.split(SCANS, LABELS, gap))
    refuse("one site per scan", next, cv.split(SCANS, LABELS, SITES[:, None]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        next(cv.split(SCANS, LABELS, SITES[:-1]))


def test_other_refusals():
    refuse("needs the site", LeaveOneSiteOut().get_n_splits, SCANS, LABELS)
    alone = LeaveOneSiteOut().split(SCANS[:3], LABELS[:3], ["NYU"] * 3)
    refuse("at least two sites; all scans are from NYU", next, alone)
    refuse("pass the labels as y", next, SiteStratifiedKFold(3).split(SCANS, None, SITES))
    for n_splits in (1, 41):
        split = SiteStratifiedKFold(n_splits).split(SCANS, LABELS, SITES)
        refuse(f"n_splits={n_splits}, but it must be a whole number from 2 to 40, the number of scans", next, split)
    pairs = SiteStratifiedKFold(21, participants=np.arange(40) // 2).split(SCANS, LABELS, SITES)
    one = SiteStratifiedKFold(2, participants=["a"] * 40)
    refuse("1 participant, but two are needed", next, one.split(SCANS, LABELS, SITES))
    refuse("n_splits=21, but it must be a whole number from 2 to 20, the number of participants", next, pairs)
