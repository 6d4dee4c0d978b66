"""Every entry of a plan that differs is named in words, and nothing else is."""

import pytest

from brio.jobs.resume import describe_clash

PLAN = {
    "brio": "0.2.0",
    "cohort": "north",
    "atlas": "AAL116",
    "fingerprint_before_exclusions": "0123456789abcdef",
    "fingerprint": "fedcba",
    "n_scans": 40,
    "excluded": [],
    "methods": {
        "ridge": {"version": 1, "code": "a", "settings": {"penalties": 5}},
        "gcn": {"version": 2, "settings": {"patience": 25, "refit": False}, "configurations": 4, "tuned": "x"},
    },
    "protocol": "loso",
    "seeds": [0],
    "folds": None,
    "protocol_settings": {"validation_sites": 2},
    "harmonise": None,
    "audit": {"min_frames": 40},
    "device": "cpu",
    "threads": 1,
    "runs_per_stack": None,
}


def change_method(name: str, **entries: object) -> dict[str, object]:
    return {"methods": {**PLAN["methods"], name: {**PLAN["methods"][name], **entries}}}


CASES = [
    ({}, []),
    ({"brio": "0.3.0"}, ["it was computed by brio 0.2.0, now 0.3.0"]),
    (
        {"fingerprint_before_exclusions": "f" * 16, "fingerprint": "f", "cohort": "south", "n_scans": 30},
        [
            "it is on cohort 'north' (40 scans, fingerprint 0123456789ab), "
            "now 'south' (30 scans, fingerprint ffffffffffff)"
        ],
    ),
    ({"methods": {"gcn": PLAN["methods"]["gcn"]}}, ["it has methods ridge, gcn, now gcn"]),
    (change_method("ridge", version=2), ["its method ridge is in version 1, now 2"]),
    (change_method("ridge", code="b"), ["the file of method ridge has changed since"]),
    (
        change_method("gcn", settings={"patience": None, "refit": True}),
        ["its setting patience of gcn is 25, now none", "its setting refit of gcn is false, now true"],
    ),
    (change_method("gcn", configurations=8), ["its search tries other configurations of gcn"]),
    (change_method("gcn", tuned="y"), ["its tuned settings of gcn are others"]),
    ({"protocol": "kfold"}, ["its protocol is loso, now kfold"]),
    ({"seeds": [0, 1, 2]}, ["it has 1 seed, now 3"]),
    ({"seeds": [3, 5]}, ["it has 1 seed, now seeds 3, 5"]),
    ({"folds": ["site01", "site02"]}, ["it has all folds, now site01, site02"]),
    ({"protocol_settings": {"validation_sites": 1}}, ["its setting protocol.validation_sites is 2, now 1"]),
    ({"harmonise": {"kind": "combat"}}, ["its setting harmonise.kind is none, now combat"]),
    ({"audit": {"min_frames": 30}, "n_scans": 41}, ["its setting audit.min_frames is 40, now 30"]),
    ({"audit": None, "n_scans": 41}, ["it leaves out what the audit excludes, now --keep-all keeps it"]),
    (
        {"fingerprint": "a", "n_scans": 39, "excluded": ["x"]},
        ["it uses 40 scans, now 39: the audit excludes others, perhaps because of --with"],
    ),
    ({"device": "cuda"}, ["it was computed with --device cpu, now cuda"]),
    (
        {"threads": 2},
        [
            "it was computed with 1 threads, now 2 (see OMP_NUM_THREADS; numbers repeat exactly only with as many)",
        ],
    ),
    ({"runs_per_stack": 2}, ["its runs per stack is none, now 2"]),
    (
        {"device": "cuda", "protocol": "kfold"},
        ["its protocol is loso, now kfold", "it was computed with --device cpu, now cuda"],
    ),
]


@pytest.mark.parametrize(("changes", "described"), CASES)
def test_what_differs_is_described(changes, described):
    assert list(describe_clash(PLAN, {**PLAN, **changes})) == described


def test_scans_that_were_kept_are_named_from_the_other_side():
    kept = {**PLAN, "audit": None}
    assert list(describe_clash(kept, PLAN)) == [
        "it keeps all scans (--keep-all), now those that the audit excludes are left out"
    ]


def test_an_entry_that_the_older_plan_lacks_is_named():
    assert list(describe_clash(PLAN, {**PLAN, "new_option": True})) == ["its new option is none, now true"]
