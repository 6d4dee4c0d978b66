"""What a site keeps of a project: what it agreed to, every request and answer, and a log in words.

A request is answered only if it follows from the one before it, as this site answered it. The same request twice gets
the same answer. Refusals depend on counts, agreements and requests, never on the values of scans.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BrioError
from ..formatting import format_count
from ..schemas import StoredCount, from_json, parse_json, read_bounded
from ..storage import lock_folder, write_atomically
from ..version import __version__
from .coordinator import advance
from .messages import LEAST_SITES, Answer, Request, describe_message, digest, read_message, write_message
from .project import find_request, name_request

if TYPE_CHECKING:
    from ..cohort import Cohort

FOLDER, AGREEMENT, LOG = "federation", "agreement.json", "log.md"
_RESTORE = "restore it from a copy of the cohort"
_LARGEST_AGREEMENT = 1 << 16


@dataclass(frozen=True)
class Agreement:
    """What a site agrees to before its first answer.

    Attributes
    ----------
    vectors : int
        Most requests with a vector that it answers, over all models of a project and all projects of the cohort. Two
        iterations and site models need four.
    leave_out : bool
        Whether it agrees that sites are left out in turn: then every site can compute the sums of every other one.
    least_per_class : int
        Fewest participants of each class for which it answers.
    """

    vectors: StoredCount = 4
    leave_out: bool = False
    least_per_class: StoredCount = 10


def answer_and_record(path: Path, cohort: Cohort, record: Path, agreement: Agreement | None = None) -> Answer:
    """Answer the request of a file, and record it in a folder: request, answer, agreement, and a log of it in words."""
    request = read_message(path, Request)
    if request.terms.brio != __version__:
        remedy = f"install brio {request.terms.brio}, or agree on one version"
        raise BrioError(f"{path}: was made by brio {request.terms.brio}, this is {__version__}; {remedy}")
    with lock_folder(record):
        agreed, out = _settle_agreement(record, request, agreement), record / f"answer-{request.round + 1}.brio"
        _check_follows(record, request, path)
        _check_agreed(record, request, agreed)
        if out.exists():
            return read_message(out, Answer)
        from .site import answer  # needs torch

        made, log = answer(request, cohort, agreed.least_per_class), record / LOG
        title = f"## Round {request.round + 1}, "
        terms = "\n".join([f"# Answers to '{request.terms.project}'", "", *describe_message(request)[:1]])
        options = ", ".join(f"{name}: {value}" for name, value in asdict(agreed).items())
        earlier = log.read_text(encoding="utf-8") if log.exists() else f"{terms}\nAgreed to: {options}.\n"
        words = [f"{title}{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "", *describe_message(made)]
        write_atomically(record / AGREEMENT, json.dumps(asdict(agreed), indent=1) + "\n")
        write_message(record / name_request(request.round), request)
        write_atomically(log, "\n".join([earlier.partition(title)[0].rstrip("\n"), "", *words]) + "\n")
        write_message(out, made)
    return made


def _settle_agreement(record: Path, request: Request, agreement: Agreement | None) -> Agreement:
    """Return what a site agrees to; after its first answer it stands."""
    path = record / AGREEMENT
    if path.exists():
        document = parse_json(read_bounded(path, _LARGEST_AGREEMENT, _RESTORE), path, _RESTORE)
        stored = from_json(Agreement, document, path, _RESTORE)
        if agreement not in (None, stored):
            raise BrioError(f"{path}: other terms were agreed to for this project; they stand until it ends")
        return stored
    if request.round:
        raise BrioError(f"{record}: has no answer to the first request; answer the requests in their order")
    return agreement or Agreement()


def _check_follows(record: Path, request: Request, path: Path) -> None:
    """Refuse a request that does not follow from the one before, as this site answered it."""
    number, own, problem = request.round + 1, record / name_request(request.round), ""
    if own.exists():
        if digest(read_message(own, Request)) != digest(request):
            problem = f"differs from the request of round {number} that was answered before; a round is answered once"
    elif request.round:
        given = record / f"answer-{request.round}.brio"
        if not given.exists():
            raise BrioError(f"{path}: asks round {number}, but round {request.round} was not answered here")
        before, answered = read_message(record / name_request(request.round - 1), Request), read_message(given, Answer)
        newest = {model: rounds[-1] for model, rounds in request.shown.items()}
        sites, limits = (before.sites, before.limits) if before.round else (request.sites, request.limits)
        if request.answers.get(answered.site) != digest(answered):
            problem = "does not count the answer that was given here"
        elif digest(advance(before, sites, request.answers, limits, newest)) != digest(request):
            problem = "does not follow from the request that was answered here: other terms, sites or earlier sums"
    if problem:
        raise BrioError(f"{path}: {problem}. Nothing was answered; ask the coordinator for an explanation")


def _count_vectors(request: Request) -> int:
    """Count the requests with a vector of a project, at least; before the first sums, as for the fewest sites."""
    return request.terms.count_vectors(len(request.sites) or LEAST_SITES + 1)


def _check_agreed(record: Path, request: Request, agreed: Agreement) -> None:
    """Refuse what a site has not agreed to, before anything is computed."""
    project, needed = request.terms.project, _count_vectors(request)
    if request.terms.leaves_sites_out and not agreed.leave_out:
        raise BrioError(
            f"'{project}' leaves sites out in turn, by which each site can compute the sums of every other one; "
            "agree with --agree-leave-out, or ask for the evaluation by site models"
        )
    others = [one.parent for one in record.parent.glob(f"*/{AGREEMENT}") if one.parent != record]
    given = sum(_count_vectors(read_message(find_request(one), Request)) for one in others)
    if needed + given > agreed.vectors:
        more = f" and {given} were answered for other projects" if given else ""
        raise BrioError(
            f"'{project}' needs {format_count(needed, 'request')} with a vector{more}, {agreed.vectors} are agreed to; "
            f"agree with --vectors {needed + given} before the first answer, or ask for fewer iterations"
        )
