"""What a site keeps of a project: what it agreed to, every request and answer, and a log in words.

A request is answered only if it follows from the one before it, as this site answered it. The same request twice gets
the same answer. Refusals depend on counts, agreements and requests, never on the values of scans.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ..cohort import Cohort
from ..errors import BrioError
from ..formatting import format_count
from ..schemas import from_json, parse_json
from ..storage import lock_folder, write_atomically
from ..version import __version__
from .coordinator import LEAST_SITES
from .messages import Request, digest, write_message
from .project import name_request, read_answer, read_request
from .site import answer
from .words import describe_message

AGREEMENT, LOG = "agreement.json", "log.md"
RESTORE = "restore it from a copy of the cohort"


@dataclass(frozen=True)
class Agreement:
    """What a site agrees to before its first answer.

    Attributes
    ----------
    vectors : int
        Most requests with a vector that it answers, over all models of a project. Two iterations and site models need
        four.
    leave_out : bool
        Whether it agrees that sites are left out in turn: then every site can compute the sums of every other one.
    least_per_class : int
        Fewest participants of each class for which it answers.
    """

    vectors: int = 4
    leave_out: bool = False
    least_per_class: int = 10


def answer_and_record(
    path: Path, cohort: Cohort, record: Path, agreement: Agreement | None = None
) -> tuple[Path, list[str]]:
    """Answer a request and record it; returns the file of the answer, and the log of it in words."""
    request = read_request(path)
    if request.terms.brio != __version__:
        remedy = f"install brio {request.terms.brio}, or agree on one version"
        raise BrioError(f"{path}: was made by brio {request.terms.brio}, this is {__version__}; {remedy}")
    with lock_folder(record):
        agreed = _settle_agreement(record, request, agreement)
        _check_follows(record, request, path)
        _check_agreed(request, agreed)
        out = record / f"answer-{request.round + 1}.brio"
        if not out.exists():
            made = answer(request, cohort, agreed.least_per_class)
            title, log = f"## Round {request.round + 1}, ", record / LOG
            earlier = log.read_text(encoding="utf-8") if log.exists() else _begin_log(request, agreed)
            words = [f"{title}{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "", *describe_message(made)]
            write_atomically(record / AGREEMENT, json.dumps(asdict(agreed), indent=1) + "\n")
            write_message(record / name_request(request.round), request)
            write_atomically(log, "\n".join([earlier.partition(title)[0].rstrip("\n"), "", *words]) + "\n")
            write_message(out, made)
    return out, describe_message(read_answer(out))


def _settle_agreement(record: Path, request: Request, agreement: Agreement | None) -> Agreement:
    """Return what a site agrees to; after its first answer it stands."""
    path = record / AGREEMENT
    if path.exists():
        stored = from_json(Agreement, parse_json(path.read_bytes(), path, RESTORE), path, RESTORE)
        if agreement not in (None, stored):
            raise BrioError(f"{path}: other terms were agreed to for this project; they stand until it ends")
        return stored
    if request.round:
        raise BrioError(f"{record}: has no answer to the first request; answer the requests in their order")
    return agreement or Agreement()


def _begin_log(request: Request, agreed: Agreement) -> str:
    terms = request.terms
    values = ", ".join(f"{one.name}: {getattr(agreed, one.name)}" for one in fields(Agreement))
    return (
        f"# Answers to '{terms.project}'\n\nMethod {terms.method}, {len(terms.rois['name'])} regions ({terms.atlas}), "
        f"{terms.classes[1]} against {terms.classes[0]}, evaluation by {terms.evaluation}.\nAgreed to: {values}.\n"
    )


def _check_follows(record: Path, request: Request, path: Path) -> None:
    """Refuse a request that does not follow from the one before, as this site answered it."""
    own = record / name_request(request.round)
    if own.exists():
        if digest(read_request(own)) != digest(request):
            problem = f"differs from the request of round {request.round + 1} that was answered before"
            raise BrioError(f"{path}: {problem}; a round is answered once. Ask the coordinator which one holds")
        return
    if not request.round:
        return
    earlier, given = record / name_request(request.round - 1), record / f"answer-{request.round}.brio"
    if not given.exists():
        raise BrioError(f"{path}: asks round {request.round + 1}, but round {request.round} was not answered here")
    before, answered = read_request(earlier), read_answer(given)
    problem = ""
    if request.before != digest(before):
        problem = "does not follow the request that was answered here"
    elif request.terms != before.terms or (before.sites and request.sites != before.sites):
        problem = "has other terms or sites than the request before"
    elif request.answers.get(answered.site) != digest(answered):
        problem = "does not count the answer that was given here"
    elif any(
        set(one) != set(other) or any(not np.array_equal(one[name], other[name]) for name in one)
        for model, rounds in before.shown.items()
        for one, other in zip(rounds, request.shown.get(model, []), strict=False)
    ):
        problem = "shows other sums of earlier rounds than the request before"
    if problem:
        raise BrioError(f"{path}: {problem}; nothing was answered. Ask the coordinator for an explanation")


def _check_agreed(request: Request, agreed: Agreement) -> None:
    """Refuse what a site has not agreed to, before anything is computed."""
    terms, n = request.terms, len(request.sites)
    needed = terms.count_vectors(max(n, LEAST_SITES + 1) if terms.evaluation != "site-models" and not n else n)
    if terms.evaluation == "leave-one-site-out" and not agreed.leave_out:
        raise BrioError(
            f"'{terms.project}' leaves sites out in turn, by which each site can compute the sums of every other one; "
            "agree with --agree-leave-out, or ask for the evaluation by site models"
        )
    if needed > agreed.vectors:
        more = "at least " if terms.evaluation == "leave-one-site-out" and not n else ""
        raise BrioError(
            f"'{terms.project}' needs {more}{format_count(needed, 'request')} with a vector, {agreed.vectors} are agreed "
            f"to; agree with --vectors {needed} before the first answer, or ask for fewer iterations"
        )
    if request.round and n < LEAST_SITES:
        raise BrioError(f"'{terms.project}' has sums over {n} sites; at least {LEAST_SITES} are needed")
