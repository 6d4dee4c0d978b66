"""Records are read as they are declared: types, domains and lengths; what does not fit is named with its place."""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brio import schemas
from brio.cohort.cohort import CohortHeader
from brio.errors import BrioError
from brio.estimator import EstimatorRecord
from brio.models.folder import ModelRecord
from brio.results import Plan, RunRecord, Summary, TuningRecord
from brio.results.cohort import AuditRecord, CohortFacts
from brio.results.records import StudyRecord

PATH = Path("stored.json")
KINDS = (
    *(Plan, Summary, RunRecord, TuningRecord, StudyRecord, AuditRecord),
    *(CohortFacts, CohortHeader, ModelRecord, EstimatorRecord),
)

numbers = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 0.5, 2**62])
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@dataclass(frozen=True)
class Part:
    n: schemas.StoredCount
    share: schemas.StoredShare | None = None


@dataclass(frozen=True)
class Rule:
    kind: Literal["none", "all"] = "none"
    least: int | Literal["auto"] = 2

    def __post_init__(self) -> None:
        if self.least == 0:
            raise BrioError("least is 0")


@dataclass(frozen=True)
class Whole:
    name: schemas.Name
    pair: tuple[float, float]
    parts: Annotated[dict[str, Part], schemas.NOT_EMPTY]
    labels: tuple[Literal[0, 1], ...] = ()
    ids: tuple[str, ...] | None = None
    seconds: dict[schemas.StoredPositive, schemas.StoredCount] = dataclasses.field(default_factory=dict)
    rule: Rule | None = None
    values: dict[str, schemas.Setting] = dataclasses.field(default_factory=dict)
    anything: Any = None

    def __post_init__(self) -> None:
        schemas.check_lengths(self, "labels", "ids")


ANY_SETTING = "true or false or a whole number or a finite number or text or null"
GOOD = {"name": "a", "pair": [1, 2.5], "parts": {"x": {"n": 3}}}


def test_a_record_is_read_with_its_defaults_and_without_unknown_keys():
    record = schemas.from_json(Whole, GOOD | {"later": {"anything": None}}, PATH)
    assert record == Whole("a", (1.0, 2.5), {"x": Part(3)})
    assert schemas.to_json(record)["pair"] == [1.0, 2.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name is '', expected non-empty text on one line"),
        ({"name": 3}, "name is 3, expected non-empty text on one line"),
        ({"pair": [1]}, "pair is [1], expected a list of 2"),
        ({"pair": [1, math.inf]}, "pair[1] is Infinity, expected a finite number"),
        ({"pair": [1, True]}, "pair[1] is true, expected a finite number"),
        ({"parts": {}}, "parts is {}, expected at least one item"),
        ({"parts": {"x": {}}}, "parts.x.n is missing"),
        ({"parts": {"x": {"n": 1.0}}}, "parts.x.n is 1.0, expected a whole number of at least 0"),
        ({"parts": {"x": {"n": -1}}}, "parts.x.n is -1, expected a whole number of at least 0"),
        ({"parts": {"a b": {"n": 1, "share": 2}}}, "parts['a b'].share is 2, expected a number from 0 to 1 or null"),
        ({"labels": [0, True], "ids": ["a", "b"]}, "labels[1] is true, expected 0 or 1"),
        ({"labels": [0, 1], "ids": ["a"]}, "ids has 1 values, but labels has 2"),
        ({"ids": ["a"]}, "ids has 1 values, but labels has 0"),
        ({"seconds": {"two": 1}}, "a key of seconds is 'two', expected a number above 0"),
        ({"seconds": {"1": 1, "nan": 1}}, "a key of seconds is 'nan', expected a number above 0"),
        ({"values": {"x": math.nan}}, f"values.x is NaN, expected {ANY_SETTING}"),
        ({"rule": {"kind": "some"}}, "rule.kind is 'some', expected all or none"),
        ({"rule": {"least": "2"}}, "rule.least is '2', expected a whole number or auto"),
        ({"rule": {"least": 0}}, "rule: least is 0"),
        ({"values": {"w": 1, "x": [1]}}, f"values.x is [1], expected {ANY_SETTING}"),
        ({"name": "z" * 90 + "\n"}, f"name is '{'z' * 38}…, expected non-empty text on one line"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(change, message):
    document = schemas.parse_json(json.dumps(GOOD | change).encode(), PATH)
    with pytest.raises(BrioError) as told:
        schemas.from_json(Whole, document, PATH, "mend it")
    assert str(told.value) == f"stored.json: {message}; mend it"
    assert json.dumps(document) == json.dumps(GOOD | change), "reading changes nothing"


def test_what_is_not_declared_may_hold_anything():
    document = schemas.parse_json(b'{"anything": [NaN, -Infinity, 1e400]}', PATH)
    assert json.dumps(schemas.from_json(Whole, GOOD | document, PATH).anything) == "[NaN, -Infinity, Infinity]"


def test_nan_is_stored_as_missing_and_numpy_as_numbers():
    record = {"a": float("nan"), "b": [np.float64("nan"), np.float32(0.5), np.int64(3)], "c": np.array([[1.0, np.nan]])}
    stored = json.dumps(schemas.to_json(record), allow_nan=False)
    assert json.loads(stored) == {"a": None, "b": [None, 0.5, 3], "c": [[1.0, None]]}


def test_settings_have_known_names():
    with pytest.raises(BrioError, match=r"stored\.json: rule\.kinds is unknown \(did you mean 'kind'\?\); mend it"):
        schemas.check_fields(Rule, {"kinds": "all"}, PATH, "mend it", "rule")
    with pytest.raises(BrioError, match=r"rule\.kind is 'some', expected all or none"):
        schemas.check_fields(Rule, {"kind": "some"}, PATH, "mend it", "rule")


def documents(kind: type) -> st.SearchStrategy[Any]:
    """Objects that have some keys of a record, with values of all types, and other JSON."""
    values = {f.name: json_values for f in dataclasses.fields(kind)}
    return st.fixed_dictionaries({}, optional=values) | json_values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[]", "is not a JSON object"),
        ('{"a": 1, "a": 2}', 'has the key "a" more than once'),
        ('{"b": [{"a": 1, "a": 1}]}', 'has the key "a" more than once'),
        (f'{{"a": {"1" * 100_000}}}', "contains a whole number that is too large (100000 digits)"),
        (f'{{"a": {2**63}}}', "contains a whole number that is too large (19 digits)"),
        ('{"a": "\\ud800"}', 'contains the text "\\ud800"'),
        ('{"a": ["\\u001b[2J"]}', 'contains the text "\\u001b[2J"'),
        ('{"a\\u202e": 1}', 'contains the text "a\\u202e"'),
        ('{"\\u0000": 1}', 'contains the text "\\u0000"'),
        ('{"a":' * 40 + "1" + "}" * 40, "is nested deeper than 32 levels"),
        ("[" * 100_000, "is nested deeper than 32 levels"),
    ],
    ids=str.__len__,
)
def test_json_that_brio_never_writes_is_refused(text, message):
    with pytest.raises(BrioError) as told:
        schemas.parse_json(text.encode(), PATH, "mend it")
    assert str(told.value).startswith(f"stored.json: {message}")
    assert str(told.value).endswith("; mend it")
    assert len(str(told.value)) < 200


def test_bytes_that_are_not_utf8_are_named():
    with pytest.raises(BrioError, match=r"stored\.json: is not UTF-8 text \(byte 0xe9 at position 7\)"):
        schemas.parse_json('{"a": "é"}'.encode("latin-1"), PATH)


@given(json_values)
@settings(max_examples=30)
def test_json_that_brio_writes_is_read_as_json_reads_it(value):
    text, read, message = json.dumps({"a": value}), None, ""
    try:
        read = schemas.parse_json(text.encode(), PATH)
    except BrioError as error:
        message = str(error)
    assert json.dumps(read) == text or "contains a whole number" in message or "contains the text" in message


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "params is missing"),
        ({"params": {"predict": 1}}, "params.predict is unknown"),
        ({"params": {"fitted": {"predict": 1}}}, "params.fitted is unknown"),
        ({"params": {"J": "many"}}, "params.J is 'many'"),
        ({"params": {}, "classes": ["a", "b"], "dtype": "int64"}, "classes do not have the type int64"),
        ({"params": {}, "classes": ["a", "a"], "dtype": "<U1"}, "both classes have the same label"),
        ({"params": {}, "classes": ["a"]}, "classes is"),
        ({"params": {}, "dtype": "V8"}, "dtype is 'V8', expected the type of an array"),
    ],
)
def test_a_damaged_estimator_is_refused(record, message):
    with pytest.raises(BrioError) as told:
        EstimatorRecord.read(record, PATH)
    assert str(told.value).startswith(f"stored.json: {message}")


@given(st.one_of([st.tuples(st.just(kind), documents(kind)) for kind in KINDS]))
@settings(max_examples=60)
def test_any_json_is_a_record_or_one_sentence(case):
    """What is read is read again from what is written; all else is one sentence."""
    kind, document = case
    record, message = None, None
    try:
        record = schemas.from_json(kind, document, PATH)
    except BrioError as error:
        message = str(error)
    if message is None:
        assert schemas.from_json(kind, json.loads(json.dumps(schemas.to_json(record))), PATH) == record
    else:
        assert message.startswith("stored.json: ")
        assert "\n" not in message
        assert len(message) < 400
