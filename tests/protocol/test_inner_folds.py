"""What the number of sites allows, and inner folds of the source scans."""

import dataclasses

import numpy as np
import pytest
from test_folds import EVEN, cohort

from brio.cohort.simulate import Simulation, simulate
from brio.errors import BrioError
from brio.protocol import (
    Fold,
    ProtocolSettings,
    assign_inner_folds,
    count_inner_folds,
    describe_allowed_protocols,
    leave_one_site_out,
    make_folds,
    make_inner_folds,
    make_training_fold,
    settle_protocol,
)
from brio.settings import replace_values


def sites(n: int, **others: tuple[int, int]) -> dict[str, tuple[int, int]]:
    return {f"s{k}": (6 + k, 7) for k in range(n)} | others


def same_fold(a: Fold, b: Fold) -> bool:
    parts = ("source", "validation", "test")
    return a.name == b.name and all(np.array_equal(getattr(a, part), getattr(b, part)) for part in parts)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (sites(7), 2),
        (sites(5), 2),
        (sites(4), 0),
        (sites(3), 0),
        (sites(4, one=(5, 0), other=(0, 5)), 0),
        (sites(5, one=(5, 0)), 2),
    ],
)
def test_two_validation_sites_from_five_sites_with_both_classes_on(sizes, expected):
    c = cohort(sizes)
    assert settle_protocol(ProtocolSettings(), c, "loso").validation_sites == expected
    for given in (0, 1):  # what the user says stays
        assert settle_protocol(ProtocolSettings(validation_sites=given), c, "loso").validation_sites == given
    assert settle_protocol(ProtocolSettings(), c, "kfold").validation_sites == 2  # part of keys, and read by nothing
    for fold in make_folds(c, "loso", 0, ProtocolSettings()):
        assert len(fold.validation_sites) == expected


@pytest.mark.parametrize("seed", range(3))
def test_nothing_changes_from_five_sites_on(seed):
    c = cohort(EVEN)
    default, two = make_folds(c, "loso", seed, ProtocolSettings()), leave_one_site_out(c, seed, 2)
    explicit = make_folds(c, "loso", seed, ProtocolSettings(validation_sites=2))
    assert all(same_fold(a, b) and same_fold(a, d) for a, b, d in zip(default, two, explicit, strict=True))
    assert same_fold(make_training_fold(c, seed, "auto"), make_training_fold(c, seed, 2))


def test_settings_read_auto_and_numbers():
    for text, value in (("auto", "auto"), ("0", 0), ("3", 3), (1, 1)):
        assert replace_values(ProtocolSettings(), {"validation_sites": text}).validation_sites == value
    for text in ("none", "two", "-1", "1.5"):
        with pytest.raises(BrioError, match="auto"):
            replace_values(ProtocolSettings(), {"validation_sites": text})


@pytest.mark.parametrize(("n", "words"), [(5, "2 validation"), (4, "inner folds"), (2, "at least 3"), (1, "kfold")])
def test_an_audit_says_what_is_allowed(n, words):
    said = " ".join(describe_allowed_protocols(cohort(sites(n, one=(4, 0)))))
    assert f"{n} site" in said
    assert words in said
    assert "no site" in describe_allowed_protocols(cohort({"a": (3, 0), "b": (0, 3)}))[0]


@pytest.mark.parametrize("n", [3, 5])
def test_each_source_site_validates_in_turn(n):
    c = cohort(sites(n + 1))
    fold = leave_one_site_out(c, 0, 0)[0]
    inner = make_inner_folds(c, fold, 0)
    assert len(inner) == count_inner_folds(c, fold) == n
    assert [f.validation_sites for f in inner] == [(s,) for s in sorted(set(c.sites[fold.source]))]
    for f in inner:
        assert len(f.test) == 0
        assert sorted([*f.source, *f.validation]) == fold.source.tolist()
        assert not set(c.sites[f.source]) & set(c.sites[f.validation])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [{"a": (2, 3), "b": (3, 2)}, {"a": (11, 6), "b": (2, 9)}, {"a": (5, 5)}])
def test_fifths_hold_both_classes_and_leave_both_at_every_site(sizes, seed):
    c = cohort(sizes)
    fold = make_training_fold(c, seed, 0)
    inner = make_inner_folds(c, fold, seed)
    assert len(inner) == count_inner_folds(c, fold) == 5
    assert sorted(np.concatenate([f.validation for f in inner]).tolist()) == fold.source.tolist()
    for f in inner:
        assert set(c.labels[f.validation]) == {0, 1}
        for site in sizes:
            assert set(c.labels[f.source[c.sites[f.source] == site]]) == {0, 1}
    sizes_of_fifths = [len(f.validation) for f in inner]
    assert max(sizes_of_fifths) - min(sizes_of_fifths) <= 1


def test_fifths_follow_participants_and_seed():
    c = cohort({"a": (9, 9), "b": (9, 9)})
    turned = c.select(np.random.default_rng(1).permutation(len(c)))

    def fifths(c, seed):
        return [set(c.ids[f.validation]) for f in make_inner_folds(c, make_training_fold(c, 0, 0), seed)]

    assert fifths(c, 0) == fifths(turned, 0)
    assert fifths(c, 0) != fifths(c, 1)


@pytest.mark.parametrize("n_sites", [1, 2])
def test_no_participant_is_on_both_sides_of_a_fifth(n_sites):
    c = simulate(Simulation(n_sites=n_sites, per_class=7, n_rois=8, frames=50, sessions=3))
    fold = make_training_fold(c, 0, 0)
    for f in make_inner_folds(c, fold, 0):
        assert not set(c.participant_ids[f.source]) & set(c.participant_ids[f.validation])
        assert len(f.validation) == 3 * len(set(c.participant_ids[f.validation]))


def test_fifths_count_participants_and_not_scans():
    c = simulate(Simulation(n_sites=1, per_class=4, n_rois=8, frames=50, sessions=3))
    four = np.unique(c.participant_ids[c.labels == 0])[:4]
    fold = make_training_fold(c.select((c.labels == 1) | np.isin(c.participant_ids, four)), 0, 0)
    with pytest.raises(BrioError, match="at least 5 participants"):
        make_inner_folds(c.select((c.labels == 1) | np.isin(c.participant_ids, four)), fold, 0)


def test_closed_form_models_withhold_sites_from_two_on():
    c = cohort({"a": (6, 6), "b": (6, 6)})
    fold = make_training_fold(c, 0, 0)
    np.testing.assert_array_equal(assign_inner_folds(c, fold, 2), (c.sites[fold.source] == "b").astype(int))
    one = dataclasses.replace(fold, source=np.flatnonzero(c.sites == "a"))
    assert np.bincount(assign_inner_folds(c, one, 2)).tolist() == [3, 3, 2, 2, 2]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"a": (2, 9), "b": (2, 9)}, "at least 5 participants of each class .* one class has 4"),
        ({"a": (1, 9), "b": (9, 9)}, "at least 2 of each class at every source site, but site a has 1"),
    ],
)
def test_too_few_participants_for_fifths(sizes, message):
    c = cohort(sizes)
    with pytest.raises(BrioError, match=message):
        make_inner_folds(c, make_training_fold(c, 0, 0), 0)
