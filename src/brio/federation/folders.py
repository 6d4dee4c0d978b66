"""Folders of a project: the coordinator's folder, and the record that each site keeps next to its cohort.

A site answers a request only if it follows from the previous request and this site's answer to it. A repeated request
gets the same answer. Refusals depend on counts, agreements, requests and earlier questions, and on whether the mean
connectome is like that of the other sites.

Questions are a budget of the participants, wherever their scans are imported: a folder outside of all cohorts records
the classes of every answer, and hashes by which scans and participants are recognised.
"""

import hashlib
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..cohort import Cohort
from ..cohort.scans import SESSION_FRAMES, index_participants
from ..cohort.values import write_value
from ..errors import BrioError
from ..formatting import format_count
from ..models.known_scans import hash_scans
from ..schemas import StoredCount, StoredLabel, StoredPositiveCount, from_json, parse_json, read_bounded, to_json
from ..storage import create_whole_folder, lock_folder, write_atomically
from .coordinator import LEAST_ALIKE, NOT_ALIKE, check_sums, combine, compare_means, start, subtract
from .messages import ALL, FEWEST, Answer, Request, Terms, describe_message, digest, read_message, write_message

if TYPE_CHECKING:
    from .site import Site

MODEL, SCORES, ANSWERS = "model", "scores", "answers"
RECORDS, AGREEMENT, LOG = "federation", "agreement.json", "log.md"
_LARGEST_QUESTION = 1 << 28
SCANS_FOR_EACH_VECTOR = 4
"""A site with fewer scans does not answer: as many vectors as scans would reveal the scans, except for a rotation."""
_RESTORE = "restore it from a copy of the cohort"
_WAIT = "wait until it has ended"  # no option names another folder


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
    with lock_folder(folder, remedy=_WAIT):
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

    vectors: StoredCount = 4  # most requests with a vector that it answers, over all models and projects of its scans
    leave_out: bool = False  # that sites are left out in turn, so that each can compute the sums of every other one
    least_per_class: StoredPositiveCount = 10  # fewest participants of each class for which it answers
    further_question: bool = False  # that answers to several questions about its scans single out few participants


@dataclass(frozen=True)
class Question:
    """A question that was answered from some scans, as it is recorded for all projects of these scans."""

    project: str
    request: str  # digest of the first request of the project
    classes: tuple[str, str]
    needed: StoredCount  # requests with a vector
    scans: dict[str, tuple[StoredLabel, StoredCount]]  # class and number of the participant, by hash of the frames
    facts: dict[str, tuple[str, ...]] = field(default_factory=dict)  # hashes of what the table says of each scan
    marks: dict[str, StoredCount] = field(default_factory=dict)  # number of the participant, by what else shows them

    @property
    def digest(self) -> str:
        """Hash of the scans, their classes and facts."""
        told = sorted((scan, label, self.facts.get(scan)) for scan, (label, _) in self.scans.items())
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    @property
    def people(self) -> dict[str, int]:
        """Number of the participant, by every hash."""
        return self.marks | {scan: number for scan, (_, number) in self.scans.items()}


def answer(request: Request, cohort: Cohort, least_per_class: int = 10) -> Answer:
    """Answer a request from the labelled scans of one site, without checking what the site agreed to."""
    from .site import Site  # needs torch

    return Site(request.terms, cohort, least_per_class).answer(request)


def answer_and_record(
    path: Path,
    cohort: Cohort,
    record: Path,
    agreement: Agreement | None = None,
    answered: Path | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> Answer:
    """Answer the request in a file, and record the request, the answer, the agreement and a log in a folder.

    Which scans have answered which question is recorded in the folder ``answered``, by default one of this user.
    """
    from .site import Site  # needs torch

    request = read_message(path, Request)
    with lock_folder(record, remedy=_WAIT):
        agreed, out = _settle_agreement(record, request, agreement), record / f"answer-{request.round + 1}.brio"
        _check_follows(record, request, path)
        _check_evaluation(request, agreed)
        if out.exists():
            return read_message(out, Answer)
        site = Site(request.terms, cohort, agreed.least_per_class)
        first = read_message(record / name_request(0), Request) if request.round else request
        question = _describe_question(first, request, site)
        if request.round and _read_agreement(record / AGREEMENT).get("scans") != question.digest:
            problem = "has other scans or labels than before, or another head motion or repetition time"
            remedy = "give the scans with which the first request was answered"
            raise BrioError(f"{cohort.name}: {problem}; {remedy}")
        made, log, now = site.answer(request), record / LOG, datetime.now(UTC)
        ledger = answered or find_answered()
        with lock_folder(ledger, wait=60.0, remedy="wait, or name another with --answered"):
            given_away = _check_budget(request, question, len(site.cohort), agreed, ledger)
            name = f"{question.request[:16]}-{question.digest[:16]}.json"
            write_atomically(ledger / name, json.dumps(to_json(question)) + "\n")
        if given_away:
            say(f"warning: {given_away}")
        title = f"## Round {request.round + 1}, "
        own = {"needed": question.needed, "cohort": cohort.fingerprint, "scans": question.digest}
        options = json.dumps(asdict(agreed) | own, indent=1)
        head = f"# Answers to '{request.terms.project}'\n\nAgreed to: {options}\n\n{describe_message(request)}"
        earlier = log.read_text(encoding="utf-8").partition(title)[0].rstrip() if log.exists() else head
        parts = [earlier, f"{title}{now:%Y-%m-%d %H:%M} UTC", given_away, describe_message(made)]
        write_atomically(record / AGREEMENT, options + "\n")
        write_message(record / name_request(request.round), request)
        write_atomically(log, "\n\n".join(filter(None, parts)) + "\n")
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
            "--agree-leave-out, --least-per-class and --agree-further-question"
        )
    return stored


def _read_agreement(path: Path) -> dict[str, Any]:
    """Read what a site agreed to, and under ``scans`` the hash of its scans and their classes."""
    return parse_json(read_bounded(path, 1 << 16, _RESTORE), path, _RESTORE)


def _check_follows(record: Path, request: Request, path: Path) -> None:
    """Refuse a request that does not follow from the one before, as this site answered it, or whose sums cannot be."""
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
        if digest(expected) == digest(request):
            try:
                _check_others(before, request, answered)
            except BrioError as error:
                expected, problem = before, f"has sums over the other sites that cannot be right: {error}"
    if digest(expected) != digest(request):
        raise BrioError(f"{path}: {problem}; no answer was written. Ask the coordinator for an explanation")


def _check_others(before: Request, request: Request, answered: Answer) -> None:
    """Refuse sums from which this site's answer can be subtracted, but leaves what no scans of other sites give."""
    for model, rounds in request.shown.items():
        own = answered.sums.get(model if before.round else ALL)
        others = rounds[-1] if own is None or model == answered.site else subtract(rounds[-1], own)
        counts = [sum(n) for name, n in request.sites.items() if name not in (model, answered.site)]
        check_sums(before, model, others, sum(counts), len(counts))
        if not before.round and compare_means(answered.sums[ALL], others) < LEAST_ALIKE:
            raise BrioError(NOT_ALIKE.replace("its", "this site's", 1))


def _check_evaluation(request: Request, agreed: Agreement) -> None:
    """Refuse an evaluation that a site has not agreed to."""
    if request.terms.leaves_sites_out and not agreed.leave_out:
        raise BrioError(
            f"project '{request.terms.project}' leaves out each site in turn, which reveals more about a site; to "
            "allow it, give --agree-leave-out"
        )


def find_answered() -> Path:
    """Find the folder of this user that records the questions that were answered."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:
        raise BrioError(
            "this user has no home folder to record answered questions in; name one with --answered"
        ) from None
    return state / "brio" / "answered-questions"


_FACTS = ("tr", "mean_fd", SESSION_FRAMES)
"""What a table says of a scan and enters a sum; all else that a site sends follows from frames and classes."""


def _describe_question(first: Request, request: Request, site: "Site") -> Question:
    """Describe a question and the scans that answer it; a joined scan counts with the sessions that it consists of."""
    cohort = site.cohort
    scans: dict[str, tuple[int, int]] = {}
    facts: dict[str, tuple[str, ...]] = {}
    table, numbers = cohort.participants, index_participants(cohort.participant_ids)[1].tolist()
    told = table.reindex(columns=_FACTS).map(lambda cell: _hash(write_value(cell))).itertuples(index=False, name=None)
    for hashes, label, number, own in zip(hash_scans(cohort), cohort.labels, numbers, told, strict=True):
        scans.update(dict.fromkeys(hashes, (int(label), number)))
        facts.update(dict.fromkeys(hashes, own))
    named = [_hash(json.dumps([site.name, str(one)])) for one in cohort.participant_ids]
    holders = defaultdict[str, set[int]](set)
    for number, name, shapes in zip(numbers, named, site.mark_scans(), strict=True):
        for mark in (name, *map(_hash, shapes)):
            holders[mark].add(number)
    marks = {mark: min(held) for mark, held in holders.items() if len(held) == 1}  # others show nobody
    return Question(first.terms.project, digest(first), cohort.classes, request.n_vectors, scans, facts, marks)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _check_budget(request: Request, own: Question, n_scans: int, agreed: Agreement, ledger: Path) -> str:
    """Refuse more vectors than agreed to, and a question that singles out participants; return what it gives away."""
    lost, stored = "restore it from a copy", []
    for path in sorted(ledger.glob("*.json")):
        document = parse_json(read_bounded(path, _LARGEST_QUESTION, lost), path, lost)
        stored.append(from_json(Question, document, path, lost))
    others = [one for one in stored if (one.request, one.digest) != (own.request, own.digest)]
    given = sum(one.needed for one in others if one.people.keys() & own.people.keys())
    needed, project = own.needed + given, f"project '{own.project}'"
    if needed > agreed.vectors:
        more = f" in addition to the {given} of other projects" if given else ""
        why = f"needs {own.needed} requests with a vector{more}, but this site answers at most {agreed.vectors}"
        remedy = f"to agree, give --vectors {needed} with the first answer"
        if request.round:
            remedy = "this number cannot be changed after the first answer; ask for a new project"
        raise BrioError(f"{project} {why}; {remedy}")
    if SCANS_FOR_EACH_VECTOR * needed > n_scans:
        least = f"at least {SCANS_FOR_EACH_VECTOR * needed} scans, but this site has {n_scans}"
        others_too = f" ({given} of them in other projects)" if given else ""
        remedy = "an evaluation by site models, or for fewer" if request.terms.leaves_sites_out else "fewer"
        raise BrioError(
            f"{project}: {needed} requests with a vector{others_too} need {least}; ask for {remedy} iterations"
        )
    if len(others) < len(stored) or not (groups := find_small_groups(own, others)):  # or was allowed before
        return ""
    why = f"together with earlier answers about these scans, its answers give away sums over {'; '.join(groups)}"
    if not agreed.further_question:
        raise BrioError(f"{project}: {why}; to allow it, give --agree-further-question with the first answer")
    return f"{project}: {why}"


def find_small_groups(own: Question, others: Sequence[Question]) -> list[str]:
    """Describe the groups of fewer than ten participants whose sums follow from answers to several questions.

    The answers to a question give the sums of each class. From the sums of several questions follow only sums over
    participants who have the same class in each (or are left out) and whose scans and facts changed alike, as long as
    all such groups are large. Between two questions, as many must change from either class to the other, since few
    changes would be seen in the difference.
    """
    known, related = set(own.people), [own]
    while more := [one for one in others if one not in related and known & one.people.keys()]:
        related += more
        known.update(*(one.people for one in more))
    if len(related) == 1:
        return []
    groups = [_number_versions(held) for held in _gather_people(related)]
    sizes = Counter(groups)
    earlier = Counter(group[1:] for group in sizes)  # groups that were large enough, or were given away already
    new = len(related) - 1  # version of scans or facts that only this question has
    small = {k for k, n in sizes.items() if n < FEWEST and (earlier[k[1:]] > 1 or (k[0] and new in k[0][1:]))}
    classes: dict[Any, list[Any]] = {k: [one and one[0] for one in k] for k in sizes}
    for i in range(1, len(related)):
        ways = [[k for k in sizes if (classes[k][0], classes[k][i]) == way] for way in ((0, 1), (1, 0))]
        if any(ways) and min(sum(sizes[k] for k in way) for way in ways) < FEWEST:
            small.update(*ways)
    described = []
    for group in sorted(small, key=lambda k: (sizes[k], str(k))):
        words = ["left out" if k is None else one.classes[k] for k, one in zip(classes[group], related, strict=True)]
        places = ["here", *(f"in project '{one.project}'" for one in related[1:])]
        told = ", ".join(f"{word} {place}" for word, place in zip(words, places, strict=True))
        described.append(f"{format_count(sizes[group], 'participant')} ({told})")
    return described


def _gather_people(questions: Sequence[Question]) -> list[list[list[tuple[Any, ...]]]]:
    """Gather, for each participant of several questions, the class, hash and facts of each scan in each question."""
    parent: dict[Any, Any] = {}

    def find(one: Any) -> Any:
        while parent.setdefault(one, one) != one:
            parent[one] = one = parent[parent[one]]
        return one

    for i, one in enumerate(questions):
        for mark, number in one.people.items():
            parent[find(mark)] = find((i, number))
    people: dict[Any, list[Any]] = defaultdict(lambda: [[] for _ in questions])
    for i, one in enumerate(questions):
        for scan, (label, number) in sorted(one.scans.items()):
            people[find((i, number))][i].append((label, scan, *one.facts.get(scan, [""] * len(_FACTS))))
    return list(people.values())


def _number_versions(held: Sequence[Sequence[tuple[Any, ...]]]) -> tuple[tuple[int, ...] | None, ...]:
    """Return the class of a participant in each question, and which version of the scans and of each fact it has.

    Versions are numbered from the second question on, so that only what is new in the first has the last number.
    """
    told = [list(zip(*scans, strict=True)) for scans in held]  # classes, hashes, and each fact
    order = [*told[1:], told[0]]

    def number(k: int, value: tuple[Any, ...]) -> int:
        return next(j for j, one in enumerate(order) if one and one[k] == value)

    return tuple((min(one[0]), *(number(k, one[k]) for k in range(1, len(one)))) if one else None for one in told)
