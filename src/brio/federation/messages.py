"""Requests and answers: one file each, with sums for numbers of scans, checked before anything of it is used."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from msgspec import Meta
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..cohort.values import refuse_unsafe_names
from ..errors import BrioError, file_error
from ..formatting import format_count
from ..schemas import StoredCount, StoredNonNegative, StoredShare, from_json, parse_json, read_bounded, to_json
from ..storage import write_atomically
from ..version import __version__

if TYPE_CHECKING:
    from ..methods.linear.ridge import KernelRidgeMethod

FORMAT = 1
"""Version of the format of requests and answers, and of what sites compute."""
LEAST_SITES = 3
"""Fewest sites in a sum, so that none of them learns the part of another by taking its own away."""
ALL = "all sites"
"""Name of the model of all sites; a model without one site has the name of that site."""
NUMBERS = tomllib.loads(resources.files(__package__).joinpath("numbers.toml").read_text(encoding="utf-8"))
_LARGEST_FILE = 1 << 30
_SEND_AGAIN = "ask for the file again"
_NOT_OURS = "is neither a request nor an answer of 'brio federate'"
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Terms:
    """What a project computes; every request states it, and a site agrees to it once."""

    project: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,59}\Z")]
    method: Literal["log-ridge", "ridge"]
    atlas: str
    rois: dict[str, list[Any]] = field(repr=False)  # columns of a table, in the order that scans must have
    classes: tuple[str, str]
    penalty: Annotated[float, Meta(gt=0, le=1e6)] = 3.0  # in units of the mean squared norm of the features
    iterations: Annotated[int, Meta(ge=1, le=100)] = 2
    evaluation: Literal["site-models", "leave-one-site-out"] = "site-models"
    label: str | None = None  # the question, where it is not the label of the cohorts
    brio: str = __version__

    def __post_init__(self) -> None:
        lengths = {len(column) for column in self.rois.values()}
        if "name" not in self.rois or len(lengths) != 1 or min(lengths) < 2:
            raise BrioError("rois needs a column 'name', and columns of one length of at least two")

    @property
    def leaves_sites_out(self) -> bool:
        """Whether each site is left out of a model in turn."""
        return self.evaluation == "leave-one-site-out"

    @property
    def rounds(self) -> list[str]:
        """What is asked in each round."""
        return ["describe", "begin", "multiply", *["solve", "multiply"] * (self.iterations - 1), "score"]

    def make_method(self) -> KernelRidgeMethod:
        """Make the method with the penalty of the project."""
        from ..methods import make_method  # needs torch
        from ..methods.linear.ridge import KernelRidgeMethod

        own = {"least_penalty": self.penalty, "largest_penalty": self.penalty, "penalties": 1}
        made = make_method(self.method, own | {"choose_by": "source-sites"})
        assert isinstance(made, KernelRidgeMethod)
        return made

    def count_vectors(self, n_sites: int) -> int:
        """Count the requests with a vector that a site will be asked: one for each model and round after the second."""
        return (1 + n_sites * self.leaves_sites_out) * (len(self.rounds) - 2)

    def require_enough(self, n_sites: int) -> None:
        """Refuse sums over too few sites."""
        if n_sites < LEAST_SITES:
            raise BrioError(f"{format_count(n_sites, 'site')} answered; every sum needs at least {LEAST_SITES}")
        if self.leaves_sites_out and n_sites == LEAST_SITES:
            remedy = "start again with the evaluation by site models"
            raise BrioError(f"with {n_sites} sites none can be left out: {n_sites - 1} would remain in a sum; {remedy}")

    def check_sums(self, number: int, sums: Mapping[str, Any]) -> None:
        """Refuse sums of a round with other names or shapes than expected."""
        n_rois, is_repeated = len(self.rois["name"]), "multiply" in self.rounds[:number]
        shapes: dict[str, tuple[int, ...]] = {}
        for name, one in NUMBERS[self.rounds[number]]["sums"].items():
            if not (name == "spread" and is_repeated):
                size = n_rois * (n_rois - 1) // 2 if one.get("size") == "edges" else one.get("size")
                shapes[name] = () if size is None else (size,)
        found = {name: values.shape for name, values in sums.items()}
        for name in {**shapes, **found}:
            if shapes.get(name) != found.get(name):
                raise BrioError(f"'{name}' has the shape {found.get(name)}, {shapes.get(name)} is expected")


@dataclass(frozen=True)
class Request:
    """What the coordinator asks of all sites in a round: sums and limits of all earlier answers, and nothing else.

    A site computes from these sums what it is asked about, so that no vector can be asked that does not follow.
    """

    terms: Terms
    round: StoredCount = 0
    sites: dict[str, tuple[StoredCount, StoredCount]] = field(default_factory=dict)  # controls and patients of each
    answers: dict[str, str] = field(default_factory=dict)  # digests of the answers in the newest sums
    before: str = ""  # digest of the request before
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)  # the widest of all sites
    shown: Any = field(default_factory=dict, repr=False)  # for each model, the Arrays of each round so far

    def __post_init__(self) -> None:
        if self.round >= len(self.terms.rounds):
            raise BrioError(f"asks round {self.round + 1} of {len(self.terms.rounds)}")
        if self.round:
            self.terms.require_enough(len(self.sites))
        refuse_unsafe_names([*self.terms.classes, *self.sites], "a name")
        models = self.models if self.round else []
        if sorted(self.shown) != sorted(models) or any(len(self.shown[model]) != self.round for model in models):
            raise BrioError("holds sums of other models or rounds than are due")
        for model in models:
            for number, sums in enumerate(self.shown[model]):
                self.terms.check_sums(number, sums)
            counts = [own for name, own in self.sites.items() if name != model]
            if not np.array_equal(self.shown[model][0]["n"], np.sum(counts, axis=0)):
                raise BrioError(f"holds sums of {model} over other numbers of scans than those of its sites")

    @property
    def asked(self) -> str:
        """What is asked."""
        return self.terms.rounds[self.round]

    @property
    def models(self) -> list[str]:
        """Names of the models: that of all sites, and those that leave one out."""
        return [ALL, *(self.sites if self.terms.leaves_sites_out else ())]

    def list_answered(self, site: str) -> list[str]:
        """List the models about which a site answers."""
        return [ALL] if self.asked in ("describe", "score") else [model for model in self.models if model != site]


@dataclass(frozen=True)
class SiteScore:
    """How well a model that has not seen a site does there. Participants count once, with the mean over their scans."""

    n_controls: StoredCount
    n_patients: StoredCount
    auc: StoredShare
    variance: StoredNonNegative  # of the AUC over participants (DeLong)
    quantiles: dict[str, float]  # of margins, those with ten participants beyond
    n_right: StoredCount | None = None
    brier: StoredNonNegative | None = None  # sum over participants
    calibration: tuple[float | None, float | None, float | None, float | None, float | None, float | None] | None = None
    spread: tuple[StoredNonNegative, float, StoredNonNegative, StoredNonNegative] | None = None

    def __post_init__(self) -> None:
        optional = (self.n_right, self.brier, self.calibration, self.spread)
        if any(one is None for one in optional) and optional != (None,) * 4:
            raise BrioError("holds some scores of a model that leaves the site out, and lacks others")
        if not (self.n_controls and self.n_patients and max(self.n_right or 0, self.brier or 0) <= self.n):
            raise BrioError("holds scores that no participants could give")

    @property
    def n(self) -> int:
        """Number of participants."""
        return self.n_controls + self.n_patients

    @property
    def is_complete(self) -> bool:
        """Whether it is that of a model that leaves the site out."""
        return self.spread is not None


@dataclass(frozen=True)
class Answer:
    """What a site answers: vectors and sums for each model, limits of its scans first, its scores last."""

    request: str  # its digest
    round: StoredCount
    site: Annotated[str, Meta(min_length=1)]
    limits: dict[Literal["frames", "tr", "dead_rois"], tuple[float, float]] = field(default_factory=dict)
    score: SiteScore | None = None
    brio: str = __version__
    sums: Any = field(default_factory=dict, repr=False)  # for each model, Arrays

    def __post_init__(self) -> None:
        refuse_unsafe_names([self.site], "name of a site")


Message = Request | Answer
_KINDS: dict[str, type[Message]] = {"request": Request, "answer": Answer}
T = TypeVar("T", Request, Answer)


def digest(message: Message) -> str:
    """Compute the hash of a message."""
    return hashlib.sha256(encode(message)).hexdigest()


def encode(message: Message) -> bytes:
    """Encode a message as a safetensors file, which is the same for the same message."""
    is_request = isinstance(message, Request)
    document = {"kind": type(message).__name__.lower(), "format": FORMAT, **to_json(message)}
    tree = document.pop("shown") if is_request else {model: [own] for model, own in document.pop("sums").items()}
    arrays = {
        f"{model}/{k}/{name}": np.array(values, dtype=np.float64, order="C")
        for model, rounds in sorted(tree.items())
        for k, own in enumerate(rounds)
        for name, values in sorted(own.items())
    }
    return save(arrays, metadata={"brio": json.dumps(document, sort_keys=True, allow_nan=False)})


def write_message(path: Path, message: Message) -> None:
    """Write a message to a file, whole or not at all."""
    write_atomically(path, encode(message))


def read_any_message(path: Path) -> Message:
    """Read a file that :func:`write_message` wrote; it may come from anywhere."""
    content = read_bounded(path, _LARGEST_FILE, _SEND_AGAIN)
    tree: dict[str, dict[int, Arrays]] = {}
    try:
        arrays = load(content)
        header = content[8 : 8 + int.from_bytes(content[:8], "little")]
        text = json.loads(header)["__metadata__"]["brio"]
        for name in sorted(arrays):
            model, k, own = name.rsplit("/", 2)
            tree.setdefault(model, {}).setdefault(int(k), {})[own] = arrays[name]
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise file_error(path, _NOT_OURS, _SEND_AGAIN) from error
    document = parse_json(text.encode(), path, _SEND_AGAIN)
    kind = _KINDS.get(str(document.get("kind")))
    if kind is None:
        raise file_error(path, _NOT_OURS, _SEND_AGAIN)
    if document.get("format") != FORMAT:
        problem = f"is in format {document.get('format')}, this brio reads format {FORMAT}"
        raise file_error(path, problem, "use one version at all sites")
    for name, values in arrays.items():
        if values.dtype != np.float64 or not np.isfinite(values).all():
            raise file_error(path, f"'{name}' holds values that are not finite numbers", _SEND_AGAIN)
    rounds = {model: [own for _, own in sorted(one.items())] for model, one in tree.items()}
    document |= {"shown": rounds} if kind is Request else {"sums": {model: own[0] for model, own in rounds.items()}}
    return from_json(kind, document, path, _SEND_AGAIN)


def read_message(path: Path, kind: type[T]) -> T:
    """Read a file that must hold a request, or an answer."""
    message = read_any_message(path)
    if not isinstance(message, kind):
        found = f"request {message.round + 1}" if isinstance(message, Request) else f"an answer of '{message.site}'"
        raise BrioError(f"{path}: is {found}; give {'a request' if kind is Request else 'an answer'}")
    return message


def describe_message(message: Message) -> list[str]:
    """Describe in words every number that a request or an answer holds, for who must agree to it."""
    if isinstance(message, Request):
        terms = message.terms
        lines = [
            f"Request {message.round + 1} of {len(terms.rounds)} of the project '{terms.project}': {terms.method}, "
            f"{len(terms.rois['name'])} regions ({terms.atlas}), {terms.classes[1]} against {terms.classes[0]}, "
            f"evaluation by {terms.evaluation}."
        ]
        if message.sites:
            lines.append(f"Sites: {', '.join(f'{name} ({a} and {b})' for name, (a, b) in message.sites.items())}.")
        for model, rounds in message.shown.items():
            whose = ALL if model == ALL else f"{ALL} but {model}"
            lines.append(f"- sums over {whose}: {', '.join(dict.fromkeys(name for own in rounds for name in own))}")
        known = dict.fromkeys(message.terms.rounds[: message.round])
        lines += [f"- `{k}`: {one['words']}" for asked in known for k, one in NUMBERS[asked]["sums"].items()]
        lines += [f"- `{k}` = {list(ends)}, the widest of all sites" for k, ends in message.limits.items()]
        return [*lines, f"Asked of each site: {NUMBERS[message.asked]['asked']}"]
    words = {name: one["words"] for asked in NUMBERS.values() for name, one in asked.get("sums", {}).items()}
    lines = [f"Answer {message.round + 1} of site '{message.site}' to request {message.request[:12]}:"]
    for model, own in message.sums.items():
        about = "" if len(message.sums) == 1 else f", for {ALL if model == ALL else f'{ALL} but {model}'}"
        for name, values in own.items():
            lines.append(f"- `{name}`, {format_count(values.size, 'number')}{about}: {words.get(name, 'unknown')}")
    lines += [f"- `{name}` = {list(ends)}: {NUMBERS['limits'][name]}" for name, ends in message.limits.items()]
    facts = {} if message.score is None else to_json(message.score)
    return lines + [f"- `{name}` = {v}: {NUMBERS['scores'][name]}" for name, v in facts.items() if v is not None]
