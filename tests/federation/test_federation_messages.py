"""Files of requests and answers: what is written comes back, what is damaged or was changed is refused in one line."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from brio.errors import BrioError
from brio.federation import decode, describe_message, digest, encode, read_message, write_message
from brio.federation.messages import ALL, Request
from brio.version import __version__

WHERE = Path("mail.brio")


@pytest.fixture(scope="module")
def messages(project):
    """The third request and an answer to it, and the last answer."""
    run = project()
    return [run.requests[2], run.answers[2]["site01"], run.answers[-1]["site01"]]


def refuse(content: bytes, message: str) -> None:
    with pytest.raises(BrioError, match=message) as refused:
        decode(content, WHERE)
    assert "\n" not in str(refused.value)
    assert "mail.brio" in str(refused.value)


def alter(content: bytes, change_document=None, change_arrays=None) -> bytes:
    """The same file with other content, under a right hash of nothing but itself."""
    arrays, header = load(content), content[8 : 8 + struct.unpack("<Q", content[:8])[0]]
    document = json.loads(json.loads(header)["__metadata__"]["brio"])
    if change_document:
        change_document(document)
    return save(change_arrays(arrays) if change_arrays else arrays, metadata={"brio": json.dumps(document)})


def test_a_message_comes_back_as_it_was_written(tmp_path, messages):
    for message in messages:
        write_message(tmp_path / "one.brio", message)
        read = read_message(tmp_path / "one.brio", type(message))
        assert encode(read) == (tmp_path / "one.brio").read_bytes() == encode(message)
        assert digest(read) == digest(message)
    assert np.array_equal(read.sums[ALL]["covariance"], messages[-1].sums[ALL]["covariance"])
    assert read.score == messages[-1].score


def test_a_message_that_was_cut_or_changed_in_any_byte_is_refused(messages):
    for content in map(encode, messages):
        rng = np.random.default_rng(0)
        for end in (0, 7, 8, 100, len(content) // 2, len(content) - 1):
            refuse(content[:end], "is neither a request nor an answer")
        refuse(content + b"\0", "is neither a request nor an answer")
        for place in [*rng.integers(8, len(content), 120), len(content) - 1]:
            changed = bytearray(content)
            changed[place] ^= 1 << int(rng.integers(8))
            refuse(bytes(changed), "mail.brio")


def test_other_numbers_than_those_of_a_message_are_refused(messages):
    def put(values):
        return lambda arrays: {name: np.asarray(values(array)) for name, array in arrays.items()}

    for content in map(encode, messages):
        refuse(
            alter(content, change_arrays=put(lambda a: a.astype(np.float32))), "was changed|contains|unexpected shape"
        )
        refuse(alter(content, change_arrays=put(lambda a: a * 2)), "was changed after it was written|different number")
        refuse(alter(content, change_arrays=lambda arrays: {"x": np.ones(3)}), "is neither a request nor an answer")
        refuse(alter(content, lambda document: document.update(kind="Terms")), "is neither a request nor an answer")
        refuse(
            alter(content, lambda document: document.update(brio="0.0.1")),
            f"brio 0.0.1, but this is brio {__version__}",
        )
        refuse(alter(content, lambda document: document.update(more=1)), "was changed after it was written")
    refuse(alter(encode(messages[0]), change_arrays=put(lambda a: a * np.nan)), "not finite")
    refuse(
        alter(encode(messages[0]), change_arrays=put(lambda a: np.atleast_1d(a)[..., :1])), "or has an unexpected shape"
    )
    refuse(b"PK\x03\x04" + bytes(100), "is neither a request nor an answer")


def test_a_request_that_cannot_be_is_refused_when_it_is_made(terms, project):
    request, left_out = project().requests[2], project(evaluation="leave-one-site-out").requests[2]
    three = dict(list(request.sites.items())[:3])
    two = dict(list(request.sites.items())[:2])

    def refuse_made(message, one=request, **changes):
        with pytest.raises(BrioError, match=message):
            replace(one, **changes)

    refuse_made("only 2 sites answered.*, but at least 3 must answer", sites=two)
    refuse_made("only 3 sites answered.*, but at least 4 must answer", left_out, sites=three)
    refuse_made("over a different number of scans", sites=three)
    refuse_made("over a different number of scans", sites=request.sites | {"site01": (5, 5)})
    refuse_made("asks for round 7, but there are only 6 rounds", round=6)
    refuse_made("does not contain sums for exactly the expected", round=3)
    refuse_made("does not contain sums for exactly the expected", shown=left_out.shown)
    refuse_made("does not contain sums for exactly the expected", left_out, shown=request.shown)
    refuse_made("control character", sites={"a\nb": (9, 9), "c": (9, 9), "d": (9, 9)})
    first, second = request.shown[ALL]
    refuse_made("'distance' is missing", shown={ALL: [first, {}]})
    refuse_made("'extra' is missing, was not requested", shown={ALL: [first, second | {"extra": np.ones(2)}]})
    refuse_made(
        "'models' contains values that are not finite", shown={ALL: [first, second | {"models": np.full(28, np.inf)}]}
    )
    with pytest.raises(BrioError, match="no column 'name'"):
        replace(terms, rois={"x": [1.0, 2.0]})
    assert Request(terms).asked == "describe"


def test_every_number_that_leaves_is_described(project):
    for run in (project(), project(evaluation="leave-one-site-out")):
        for answers in run.answers:
            one = answers["site02"]
            text = describe_message(one)
            for model, sums in one.sums.items():
                whose = f"all sites except {model}" if model else "all sites"
                for name, values in sums.items():
                    count = "1 number" if values.size == 1 else f"{values.size} numbers"
                    assert f"- `{name}`, {count}, for the model of {whose}: " in text
            assert "unknown" not in text
        for name in ("n_controls", "auc", "variance", "quantiles"):
            assert f"`{name}` = " in text
        assert ("`brier` = " in text) == (len(run.requests[-1].shown) > 1)
        for request in run.requests:
            text = describe_message(request)
            assert f"Request {request.round + 1} of 6 of the project 'trial'" in text
            for sums in request.shown.get(ALL, ()):
                assert all(f"- `{name}`: " in text for name in sums)
            assert all(f"- sums over all sites except {site}:" in text for site in request.models[1:] if request.round)


@pytest.mark.parametrize("evaluation", ["site-models", "leave-one-site-out"])
def test_a_site_is_told_how_many_requests_with_a_vector_it_will_answer(project, evaluation):
    run = project(evaluation=evaluation)
    counted = [answers["site01"].sums for answers in run.answers[1:-1]]
    assert {request.n_vectors for request in run.requests} == {sum(map(len, counted))}
