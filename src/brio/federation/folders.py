"""Folders of a project: the coordinator's folder, and the record that each site keeps next to its cohort.

A site answers a request only if it follows from the previous request and this site's answer to it. A repeated request
gets the same answer. Refusals depend on counts, agreements and requests, never on the values of scans.
"""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..cohort import Cohort
from ..errors import BrioError
from ..schemas import StoredCount, from_json, parse_json, read_bounded
from ..storage import create_whole_folder, lock_folder, write_atomically
from .coordinator import combine, start
from .messages import ALL, Answer, Request, Terms, describe_message, digest, read_message, write_message

MODEL, SCORES, ANSWERS = "model", "scores", "answers"
RECORDS, AGREEMENT, LOG = "federation", "agreement.json", "log.md"
SCANS_FOR_EACH_VECTOR = 4
"""A site with fewer scans does not answer: as many vectors as scans would reveal the scans, except for a rotation."""
_RESTORE = "restore it from a copy of the cohort"


def name_request(number: int) -> str:
    """Name the file of a request by the number of its round."""
    return f"request-{number + 1}.brio"


def name_answer(answer: Answer) -> str:
    """Name the file of an answer by the number of its round and the site."""
    return f"answer-{answer.round + 1}-{quote(answer.site, safe='')}.brio"


def name_project(folder: Path) -> str:
    """Name a project like its folder; a hash tells apart what messages have no room or letters for."""
    name = folder.name
    if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,59}", name):
        return name
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:51]
    return f"{plain or 'project'}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}"


def start_project(folder: Path, terms: Terms) -> Path:
    """Create the folder of a project with its first request."""
    with create_whole_folder(folder) as place:
        write_message(place / name_request(0), start(terms))
        (place / ANSWERS).mkdir()
    return folder / name_request(0)


def find_request(folder: Path) -> Path:
    """Find the newest request of a project."""
    newest = max(folder.glob("request-*.brio"), key=lambda path: (len(path.name), path.name), default=None)
    if newest is None:
        raise BrioError(f"{folder}: contains no request; give the folder that 'brio federate start' wrote")
    return newest


def combine_project(folder: Path, given: Sequence[Path] = ()) -> Path:
    """Add up the answers to the newest request of a project, and write the next request or the model.

    Returns the path of the file or folder that was written.

    Answers are read from the folder ``answers``. Those given as arguments are copied into it once all of them have
    passed the checks.
    """
    find_request(folder)  # before a lock is written to a folder that is none of a project
    with lock_folder(folder):
        if (folder / MODEL).exists():
            raise BrioError(
                f"{folder / MODEL}: already exists, so the project has ended; to fit another model, start a new project"
            )
        request = read_message(find_request(folder), Request)
        stored = sorted((folder / ANSWERS).glob(f"answer-{request.round + 1}-*.brio"))
        answers = [read_message(path, Answer) for path in (*stored, *given)]
        result = combine(request, answers)
        for one in answers:
            write_message(folder / ANSWERS / name_answer(one), one)
        if isinstance(result, Request):
            write_message(folder / name_request(result.round), result)
            return find_request(folder)
        from ..models.folder import write_model
        from ..results.summarise import write_site_tables
        from .model import list_site_rows

        scores = {one.site: one.score for one in answers if one.score is not None}
        write_site_tables(folder / SCORES, *list_site_rows(request.terms.method, scores))
        write_model(result, folder / MODEL)
        return folder / MODEL


@dataclass(frozen=True)
class Agreement:
    """The terms that a site agrees to before its first answer."""

    vectors: StoredCount = 4  # most requests with a vector that it answers, over all models and projects of a cohort
    leave_out: bool = False  # that sites are left out in turn, so that each can compute the sums of every other one
    least_per_class: StoredCount = 10  # fewest participants of each class for which it answers


def answer(request: Request, cohort: Cohort, least_per_class: int = 10) -> Answer:
    """Answer a request from the labelled scans of one site, without checking what the site agreed to."""
    from .site import Site  # needs torch

    return Site(request.terms, cohort, least_per_class).answer(request)


def answer_and_record(path: Path, cohort: Cohort, record: Path, agreement: Agreement | None = None) -> Answer:
    """Answer the request in a file, and record the request, the answer, the agreement and a log in a folder."""
    request = read_message(path, Request)
    with lock_folder(record):
        agreed, out = _settle_agreement(record, request, agreement), record / f"answer-{request.round + 1}.brio"
        _check_follows(record, request, path)
        _check_agreed(record, request, agreed, len(cohort))
        if out.exists():
            return read_message(out, Answer)
        made, log, now = answer(request, cohort, agreed.least_per_class), record / LOG, datetime.now(UTC)
        title = f"## Round {request.round + 1}, "
        options = json.dumps(asdict(agreed) | {"needed": request.n_vectors, "cohort": cohort.fingerprint}, indent=1)
        first = f"# Answers to '{request.terms.project}'\n\nAgreed to: {options}\n\n{describe_message(request)}"
        earlier = log.read_text(encoding="utf-8").partition(title)[0].rstrip() if log.exists() else first
        write_atomically(record / AGREEMENT, options + "\n")
        write_message(record / name_request(request.round), request)
        write_atomically(log, f"{earlier}\n\n{title}{now:%Y-%m-%d %H:%M} UTC\n\n{describe_message(made)}\n")
        write_message(out, made)
    return made


def _settle_agreement(record: Path, request: Request, agreement: Agreement | None) -> Agreement:
    """Return what a site agrees to, which is fixed after its first answer."""
    path = record / AGREEMENT
    if not path.exists():
        return agreement or Agreement()
    stored = from_json(Agreement, _read_agreement(path), path, _RESTORE)
    if agreement not in (None, stored):
        raise BrioError(
            f"{path}: what this site agreed to in its first answer cannot be changed; leave out --vectors, "
            "--agree-leave-out and --least-per-class"
        )
    return stored


def _read_agreement(path: Path) -> dict[str, Any]:
    """Read what a site agreed to, and under ``needed`` the requests with a vector of the project."""
    return parse_json(read_bounded(path, 1 << 16, _RESTORE), path, _RESTORE)


def _check_follows(record: Path, request: Request, path: Path) -> None:
    """Refuse a request that does not follow from the one before, as this site answered it."""
    expected, problem = request, "does not follow from the previous request and this site's answer to it"
    if (own := record / name_request(request.round)).exists():
        expected, problem = read_message(own, Request), "differs from the request answered here for this round"
    elif request.round:
        if not (given := record / f"answer-{request.round}.brio").exists():
            raise BrioError(
                f"{path}: round {request.round} was not answered from this cohort; answer it, or give the right cohort"
            )
        before, answered = read_message(record / name_request(request.round - 1), Request), read_message(given, Answer)
        newest = {model: rounds[-1] for model, rounds in request.shown.items()}
        answers = request.answers | {answered.site: digest(answered)}
        expected = before.advance(before.sites or request.sites, answers, newest)
    if digest(expected) != digest(request):
        raise BrioError(f"{path}: {problem}; no answer was written. Ask the coordinator for an explanation")


def _check_agreed(record: Path, request: Request, agreed: Agreement, n_scans: int) -> None:
    """Refuse what a site has not agreed to, or what would give its scans away, before anything is computed."""
    project, needed = request.terms.project, request.n_vectors
    if request.terms.leaves_sites_out and not agreed.leave_out:
        raise BrioError(
            f"project '{project}' leaves out each site in turn, which reveals more about a site; to allow it, give "
            "--agree-leave-out"
        )
    first = record / "answer-1.brio"
    others = {*record.parent.glob(f"*/{AGREEMENT}")} - {record / AGREEMENT}
    given = sum(_read_agreement(one).get("needed", 0) for one in others)
    if needed + given > agreed.vectors:
        more = f" in addition to the {given} of other projects" if given else ""
        why = f"needs {needed} requests with a vector{more}, but this site answers at most {agreed.vectors}"
        remedy = f"to agree, give --vectors {needed + given} with the first answer"
        if first.exists():
            remedy = "this number cannot be changed after the first answer; ask for a new project"
        raise BrioError(f"project '{project}' {why}; {remedy}")
    if first.exists():  # without those that audit and question leave out
        n_scans = int(read_message(first, Answer).sums[ALL]["n"].sum())
    if SCANS_FOR_EACH_VECTOR * (needed + given) > n_scans:
        least = f"at least {SCANS_FOR_EACH_VECTOR * (needed + given)} scans, but this site has {n_scans}"
        others_too = f" ({given} of them in other projects)" if given else ""
        why = f"{needed + given} requests with a vector{others_too} need {least}"
        remedy = "an evaluation by site models, or for fewer" if request.terms.leaves_sites_out else "fewer"
        raise BrioError(f"project '{project}': {why}; ask for {remedy} iterations")
