"""Folds: who is source, validation and test scan, and inner folds."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brio.cohort import Cohort
from brio.cohort.simulate import Simulation, simulate
from brio.protocol import (
    ProtocolSettings,
    count_inner_folds,
    leave_one_site_out,
    make_folds,
    make_inner_folds,
    make_training_fold,
)
from brio.protocol.folds import (
    assign_inner_folds,
    assign_stratified_folds,
    describe_allowed_protocols,
    settle_protocol,
    site_stratified_kfold,
)
from brio.settings import replace_values
from cohort.file_layouts import refuse


def cohort(sizes: dict[str, tuple[int, int]], seed: int = 0) -> Cohort:
    """Scans of noise, so many of each class at each site, in an order that mixes sites."""
    rng = np.random.default_rng(seed)
    rows = [(site, c) for site, counts in sizes.items() for c in (0, 1) for _ in range(counts[c])]
    site, label = zip(*(rows[i] for i in rng.permutation(len(rows))), strict=True)
    return Cohort.from_scans(rng.normal(size=(len(rows), 5, 3)), site=site, label=label)


EVEN = {f"site{k}": (4 + k, 9 - k) for k in range(7)}


@pytest.mark.parametrize("seed", range(5))
def test_loso_splits_the_cohort_into_disjoint_sites(seed):
    c = cohort(EVEN)
    folds = leave_one_site_out(c, seed)
    assert [f.name for f in folds] == sorted(EVEN)
    for f in folds:
        parts = [f.source, f.validation, f.test]
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(c)))
        source, validation, test = (set(c.sites[p]) for p in parts)
        assert test == {f.name} == set(f.test_sites)
        assert validation == set(f.validation_sites)
        assert (len(validation), len(source | validation | test)) == (2, len(source) + 3)
        assert f.one_class_sites == ()


@pytest.mark.parametrize("validation_sites", [1, 2, 3])
def test_loso_validation_sites_follow_the_test_site_in_a_ring_of_all_sites(validation_sites):
    folds = {f.name: f for f in leave_one_site_out(cohort(EVEN), 3, validation_sites)}
    times = Counter(s for f in folds.values() for s in f.validation_sites)
    assert times == dict.fromkeys(EVEN, validation_sites)
    if validation_sites == 1:
        seen, here = [], "site0"
        for _ in folds:
            seen.append(here)
            (here,) = folds[here].validation_sites
        assert here == "site0"
        assert sorted(seen) == sorted(EVEN)


def test_loso_ring_depends_on_the_seed_and_the_names_alone():
    first = {f.name: f.validation_sites for f in leave_one_site_out(cohort(EVEN), 1)}
    other_data = {s: (n0 + 3, n1 + 1) for s, (n0, n1) in EVEN.items()}
    assert first == {f.name: f.validation_sites for f in leave_one_site_out(cohort(other_data, seed=9), 1)}
    assert any(first != {f.name: f.validation_sites for f in leave_one_site_out(cohort(EVEN), s)} for s in range(2, 6))


def test_a_site_with_one_class_is_tested_but_never_source_or_validation():
    sizes = EVEN | {"only0": (6, 0), "only1": (0, 5)}
    c = cohort(sizes)
    folds = {f.name: f for f in leave_one_site_out(c, 0)}
    assert set(folds) == set(sizes)
    for name, f in folds.items():
        assert not set(c.sites[np.concatenate([f.source, f.validation])]) & {"only0", "only1"}
        assert set(f.one_class_sites) == {"only0", "only1"} - {name}
        for s in set(c.sites[f.source]):
            assert len(set(c.labels[f.source[c.sites[f.source] == s]])) == 2
    assert set(c.sites[folds["only0"].test]) == {"only0"}
    assert len(folds["only1"].test) == 5


def test_labels_of_the_test_site_do_not_move_its_own_fold():
    c = cohort(EVEN)
    flipped = cohort(EVEN | {"site3": (13, 0)})  # as many scans, one class left
    for a, b in zip(leave_one_site_out(c, 2), leave_one_site_out(flipped, 2), strict=True):
        if a.name == "site3":
            assert a.validation_sites == b.validation_sites
            assert set(c.sites[a.source]) == set(flipped.sites[b.source])


@pytest.mark.parametrize(
    ("n_sites", "validation_sites", "enough"), [(5, 2, True), (4, 2, False), (4, 1, True), (3, 1, False)]
)
def test_loso_needs_two_source_sites(n_sites, validation_sites, enough):
    c = cohort({f"s{k}": (3, 3) for k in range(n_sites)})
    if enough:
        assert all(len(set(c.sites[f.source])) == 2 for f in leave_one_site_out(c, 0, validation_sites))
    else:
        more = cohort({f"s{k}": (3, 3) for k in range(n_sites)} | {"x": (3, 0), "y": (0, 3)})  # not enough either
        for too_few in (c, more):
            refuse("validation_sites", leave_one_site_out, too_few, 0, validation_sites)


def test_kfold_is_a_7_2_1_rotation_that_tests_everyone_once():
    c = cohort({f"s{k}": (20, 30) for k in range(4)})
    folds = site_stratified_kfold(c, 0)
    assert [f.name for f in folds] == [str(k + 1) for k in range(10)]
    assert sorted(np.concatenate([f.test for f in folds]).tolist()) == list(range(200))
    for k, f in enumerate(folds):
        assert (len(f.source), len(f.validation), len(f.test)) == (140, 40, 20)
        following = np.concatenate([folds[(k + 1) % 10].test, folds[(k + 2) % 10].test])
        assert sorted(f.validation.tolist()) == sorted(following.tolist())
        assert sorted(np.concatenate([f.source, f.validation, f.test]).tolist()) == list(range(200))
        cells = Counter(zip(c.sites[f.test].tolist(), c.labels[f.test].tolist(), strict=True))
        assert cells == {(f"s{s}", label): 2 + label for s in range(4) for label in (0, 1)}


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(st.integers(0, 14), min_size=2, max_size=2) | st.lists(st.integers(0, 3), min_size=4, max_size=4)
    ),
    st.integers(2, 12),
    st.integers(0, 2**32 - 1),
    st.integers(0, 99),
)
def test_folds_are_balanced_in_size_by_site_by_class_and_in_every_cell(table, n_folds, seed, repeats):
    cells = [(f"s{s}", c) for s, counts in enumerate(table) for c, n in enumerate(counts) for _ in range(n)]
    cells = cells or [("s", 0)]
    scans = np.random.default_rng(repeats).permutation(np.repeat(np.arange(len(cells)), 1 + np.arange(len(cells)) % 3))
    sites, labels = np.array([cells[i][0] for i in scans]), np.array([cells[i][1] for i in scans])
    fold = assign_stratified_folds(scans, sites, labels, n_folds, seed)
    fold_of = dict(zip(scans.tolist(), fold.tolist(), strict=True))
    assert [fold_of[i] for i in scans] == fold.tolist(), "all scans of a participant are in one fold"
    for group in (lambda cell: 0, lambda cell: cell[0], lambda cell: cell[1], lambda cell: cell):
        counts = Counter((group(cells[i]), k) for i, k in fold_of.items())
        for one in {group(cell) for cell in cells}:
            sizes = [counts[one, k] for k in range(n_folds)]
            assert max(sizes) - min(sizes) <= 1, one


def list_fifths(c, seed):
    return [set(c.ids[f.validation]) for f in make_inner_folds(c, make_training_fold(c, 0, 0), seed)]


def list_tested(c, seed):
    return [set(c.ids[f.test]) for f in site_stratified_kfold(c, seed)]


@pytest.mark.parametrize("divide", [list_tested, list_fifths])
def test_kfold_and_fifths_follow_participants_and_seed(divide):
    c = cohort({f"s{k}": (12, 12) for k in range(2)})
    turned = c.select(np.random.default_rng(1).permutation(len(c)))
    assert divide(c, 0) == divide(turned, 0)
    assert divide(c, 0) != divide(c, 1)


def test_kfold_leaves_sites_without_both_classes_out_of_the_source():
    c = cohort({"a": (20, 20), "b": (20, 20), "one": (15, 0), "few": (20, 1)})
    folds = site_stratified_kfold(c, 0)
    for f in folds:
        assert "one" in f.one_class_sites
        for site in set(c.sites[f.source]):
            assert set(c.labels[f.source[c.sites[f.source] == site]]) == {0, 1}
    assert sum("few" in f.one_class_sites for f in folds) == 3  # while its one patient tests or validates
    assert sorted(np.concatenate([f.test for f in folds]).tolist()) == list(range(len(c)))


def test_kfold_refuses_too_few_folds_and_sites():
    refuse("n_folds", ProtocolSettings, n_folds=3)
    apart = cohort({"a": (20, 0), "b": (0, 20)})
    refuse("none of its source sites has both classes", site_stratified_kfold, apart, 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_model_to_keep_learns_from_all_sites_but_those_that_validate(seed):
    c = cohort(EVEN | {"only0": (6, 0)})
    fold = make_training_fold(c, seed, 2)
    assert len(fold.test) == 0
    assert fold.one_class_sites == ("only0",)
    assert set(c.sites[fold.validation]) == set(fold.validation_sites)
    assert len(fold.validation_sites) == 2
    assert set(c.sites[fold.source]) == set(EVEN) - set(fold.validation_sites)
    refuse("both classes", make_training_fold, cohort({"a": (3, 3), "b": (3, 3), "c": (3, 3)}), seed, 2)


@pytest.mark.parametrize("number", [np.int64(2), np.uint8(2)])
def test_validation_sites_may_be_a_number_of_numpy(number):
    c = cohort(EVEN)
    assert make_training_fold(c, 0, number).validation_sites == make_training_fold(c, 0, 2).validation_sites
    refuse(r"setting 'validation_sites'=1.5: must be a whole number", make_training_fold, c, 0, np.float32(1.5))


def test_protocols_by_name():
    c = cohort(EVEN)
    settings = ProtocolSettings(validation_sites=1, n_folds=5, validation_folds=1)
    assert {len(f.validation_sites) for f in make_folds(c, "loso", 0, settings)} == {1}
    assert len(make_folds(c, "kfold", 0, settings)) == 5
    refuse("loso", make_folds, c, "holdout", 0, settings)


def sites(n: int, **others: tuple[int, int]) -> dict[str, tuple[int, int]]:
    return {f"s{k}": (6 + k, 7) for k in range(n)} | others


ONE_CLASS = {"one": (5, 0), "other": (0, 5)}


@pytest.mark.parametrize(
    ("sizes", "expected"), [(sites(7), 2), (sites(5, one=(5, 0)), 2), (sites(4, **ONE_CLASS), 0), (sites(3), 0)]
)
def test_two_validation_sites_from_five_sites_with_both_classes_on(sizes, expected):
    c = cohort(sizes)
    assert settle_protocol(ProtocolSettings(), c, "loso").validation_sites == expected
    for n_sites in (0, 1):  # what the user says stays
        assert settle_protocol(ProtocolSettings(validation_sites=n_sites), c, "loso").validation_sites == n_sites
    assert settle_protocol(ProtocolSettings(), c, "kfold").validation_sites == 2  # part of keys, and read by nothing
    for fold in make_folds(c, "loso", 0, ProtocolSettings()):
        assert len(fold.validation_sites) == expected


def test_settings_read_auto_and_numbers():
    for text, value in (("auto", "auto"), ("0", 0), ("3", 3), (1, 1)):
        assert replace_values(ProtocolSettings(), {"validation_sites": text}).validation_sites == value
    for text in ("none", "two", "-1", "1.5"):
        refuse("auto", replace_values, ProtocolSettings(), {"validation_sites": text})


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


@pytest.mark.parametrize("n_sites", [1, 2])
def test_no_participant_is_on_both_sides_of_a_fifth(n_sites):
    c = simulate(Simulation(n_sites=n_sites, per_class=7, n_rois=8, frames=50, sessions=3))
    fold = make_training_fold(c, 0, 0)
    for f in make_inner_folds(c, fold, 0):
        assert not set(c.participant_ids[f.source]) & set(c.participant_ids[f.validation])
        assert len(f.validation) == 3 * len(set(c.participant_ids[f.validation]))


def test_fifths_count_participants_and_not_scans():
    c = simulate(Simulation(n_sites=1, per_class=4, n_rois=8, frames=50, sessions=3))
    c = c.select((c.labels == 1) | np.isin(c.participant_ids, np.unique(c.participant_ids[c.labels == 0])[:4]))
    refuse("at least 5 participants of each class", make_inner_folds, c, make_training_fold(c, 0, 0), 0)


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
        ({"a": (1, 9), "b": (9, 9)}, "at least 2 participants of each class at every source site, but site a has 1"),
    ],
)
def test_too_few_participants_for_fifths(sizes, message):
    c = cohort(sizes)
    refuse(message, make_inner_folds, c, make_training_fold(c, 0, 0), 0)
