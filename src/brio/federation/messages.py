"""Requests and answers: one file each, with sums over scans, checked before any of its content is used."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from msgspec import Meta
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..cohort import Atlas
from ..cohort.values import parse_number, refuse_unsafe_names
from ..errors import BrioError, file_error
from ..formatting import format_count
from ..models.text import fill_text
from ..schemas import StoredCount, StoredShare, from_json, parse_json, read_bounded, to_json
from ..settings import FederatedIterations, FederatedSites
from ..storage import write_atomically
from ..version import __version__
from .equations import Finite, Size, Spread

LEAST_SITES = 3
"""Fewest sites in a sum, so that no site learns the part of another by subtracting its own."""
ALL = ""
"""Name of the model of all sites; a model that leaves out one site has the name of that site."""
FEWEST = 10
"""Fewest participants in a sum over a property that not all have, and beyond a quantile."""
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
UNCOUNTED_ROUNDS = ("describe", "score")
"""Rounds in which a site answers for the model of all sites only; they do not count as requests with a vector."""
NUMBERS = tomllib.loads(resources.files(__package__).joinpath("numbers.toml").read_text(encoding="utf-8"))
_LARGEST_FILE = 1 << 30
_SEND_AGAIN = "request the file again"
Arrays = dict[str, np.ndarray]
LARGEST_SITE = 1_000_000
Scans = Annotated[int, Meta(ge=1, le=LARGEST_SITE)]
"""Scans or participants of a class at a site."""
Counts = dict[str, tuple[Scans, Scans]]


@dataclass(frozen=True)
class Terms:
    """What a project computes; every request states it, and a site agrees to it once."""

    project: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,59}\Z")]
    method: Literal["log-ridge", "ridge"]
    atlas: str
    rois: dict[str, list[Any]] = field(repr=False)  # columns of a table, in the order that scans must have
    classes: tuple[str, str]
    penalty: Annotated[float, Meta(gt=0, le=1e6)] = 3.0  # in units of the mean squared norm of the features
    iterations: FederatedIterations = 2
    evaluation: Literal["site-models", "leave-one-site-out"] = "site-models"
    n_sites: FederatedSites = LEAST_SITES  # that answer before the first round is closed
    label: str | None = None  # the question, where it is not the label of the cohorts

    def __post_init__(self) -> None:
        if self.make_atlas().is_unnamed:  # it refuses tables without names, too
            problem = "the regions have no names, so no site can tell whether its own are in the same order"
            raise BrioError(f"{problem}; give a table of regions, or import the cohort with --atlas-table")
        value = (self.label or "").partition("=")[2]
        if codes := [name for name in (*self.classes, value) if parse_number(name.strip()) is not None]:
            problem = f"'{codes[0]}' is a code, which may mean patients at one site and controls at another"
            raise BrioError(f"{problem}; name both classes by words, and import with --class-names")

    def make_atlas(self) -> Atlas:
        """Return the regions in the order required of all scans."""
        return Atlas(self.atlas, pd.DataFrame(self.rois))

    @property
    def leaves_sites_out(self) -> bool:
        """Whether models are also fitted without each site in turn."""
        return self.evaluation == "leave-one-site-out"

    @property
    def rounds(self) -> list[str]:
        """What is requested in each round."""
        return ["describe", "begin", "compare", *["solve", "multiply"] * (self.iterations - 1), "score"]

    @property
    def least_sites(self) -> int:
        """Fewest sites that must answer the first round."""
        return max(self.n_sites, LEAST_SITES + self.leaves_sites_out)

    def check_sums(self, number: int, sums: Arrays) -> None:
        """Refuse sums of a round that have unexpected names or shapes, and values that are not finite."""
        edges, known = math.comb(len(self.rois["name"]), 2), NUMBERS[self.rounds[number]]["sums"]
        shapes = {(name, tuple(edges if k == "edges" else k for k in one["shape"])) for name, one in known.items()}
        if odd := shapes ^ {(name, values.shape) for name, values in sums.items()}:
            raise BrioError(f"'{min(odd)[0]}' is missing, was not requested, or has an unexpected shape")
        for name, values in sums.items():
            if not np.isfinite(values).all():
                raise BrioError(f"'{name}' contains values that are not finite numbers")


@dataclass(frozen=True)
class Request:
    """What the coordinator sends to all sites in a round: the sums of all earlier answers, and nothing else.

    A site computes from these sums the vectors by which it multiplies its scans; a coordinator who reports the sums of
    the answers cannot choose these vectors.
    """

    terms: Terms
    round: StoredCount = 0
    sites: Counts = field(default_factory=dict)  # controls and patients of each
    answers: dict[str, str] = field(default_factory=dict)  # digests of the answers in the newest sums
    before: str = ""  # digest of the request before
    shown: Any = field(default_factory=dict, repr=False)  # for each model, the Arrays of each round so far

    def __post_init__(self) -> None:
        if self.round >= len(self.terms.rounds):
            raise BrioError(f"asks for round {self.round + 1}, but there are only {len(self.terms.rounds)} rounds")
        if self.round and len(self.sites) < self.terms.least_sites:
            names = f": {', '.join(self.sites)}" if self.sites else ""
            raise BrioError(
                f"only {format_count(len(self.sites), 'site')} answered{names}, but at least {self.terms.least_sites} "
                "must answer; wait for more answers"
            )
        refuse_unsafe_names([*self.terms.classes, *self.sites], "a name")
        models = self.models if self.round else []
        if sorted(self.shown) != sorted(models) or any(len(self.shown[model]) != self.round for model in models):
            raise BrioError("does not contain sums for exactly the expected models and rounds")
        for model in models:
            for number, sums in enumerate(self.shown[model]):
                self.terms.check_sums(number, sums)
            counts = [own for name, own in self.sites.items() if name != model]
            if not np.array_equal(self.shown[model][0]["n"], np.sum(counts, axis=0)):
                raise BrioError("contains sums over a different number of scans than its sites have")

    @property
    def asked(self) -> str:
        """What is requested."""
        return self.terms.rounds[self.round]

    @property
    def models(self) -> list[str]:
        """Names of the models: the model of all sites, and those that leave one site out."""
        return [ALL, *(self.sites if self.terms.leaves_sites_out else ())]

    @property
    def n_vectors(self) -> int:
        """Number of requests with a vector that a site answers in all rounds, one for each model and round.

        With leave-one-site-out, a site answers for the model of all sites and for those that leave out another site. In
        the first round, the number of sites is not known, and the smallest possible one is used.
        """
        n_models = (len(self.sites) or self.terms.least_sites) if self.terms.leaves_sites_out else 1
        return n_models * (len(self.terms.rounds) - len(UNCOUNTED_ROUNDS))

    def advance(self, sites: Counts, answers: dict[str, str], sums: dict[str, Arrays]) -> Request:
        """Make the next request, which appends the sums of the newest answers to the earlier ones."""
        shown = {model: [*self.shown.get(model, ()), own] for model, own in sums.items()}
        return Request(self.terms, self.round + 1, sites, answers, digest(self), shown)

    def list_answered(self, site: str) -> list[str]:
        """List the models for which a site answers."""
        return [ALL] if self.asked in UNCOUNTED_ROUNDS else [model for model in self.models if model != site]


@dataclass(frozen=True)
class CalibratedScore:
    """Quality of the probabilities that a model gives to the participants of a site it was not fitted to."""

    n_right: StoredCount
    brier: Size  # sum over participants
    calibration: tuple[Finite | None, Size | None, Finite | None, Size | None, Finite | None, Size | None]
    spread: Spread


@dataclass(frozen=True)
class SiteScore:
    """Performance of a model at a site it has not seen. Each participant counts once (mean over scans)."""

    n_controls: Scans
    n_patients: Scans
    auc: StoredShare
    variance: StoredShare | None  # of the AUC over participants (DeLong); None if a class has only one
    quantiles: dict[str, Finite]  # of margins, those with ten participants beyond
    calibrated: CalibratedScore | None = None

    def __post_init__(self) -> None:
        n, own = self.n_controls + self.n_patients, self.calibrated
        is_possible = own is None or (max(own.n_right, own.brier) <= n and own.spread.is_possible(n))
        is_possible &= list(self.quantiles) == list_quantiles(n)
        is_possible &= sorted(self.quantiles.values()) == list(self.quantiles.values())
        fewest = min(self.n_controls, self.n_patients)
        if not (fewest >= 1 and is_possible and (self.variance is None) == (fewest == 1) and self._could_vary()):
            raise BrioError("contains impossible scores")

    def _could_vary(self) -> bool:
        """Whether placement values between 0 and 1, of which the AUC is the mean, could have the variance."""
        if not self.variance:  # all placement values of a class are equal
            return self.variance is None or self.auc in (0, 0.5, 1)
        largest = self.auc * (1 - self.auc) * (1 / (self.n_controls - 1) + 1 / (self.n_patients - 1))
        return self.variance <= largest * (1 + 1e-6)


def list_quantiles(n: int) -> list[str]:
    """List the quantiles of the margins of n participants that have enough of them beyond."""
    return [str(q) for q in QUANTILES if min(q, 1 - q) * n >= FEWEST]


@dataclass(frozen=True)
class Answer:
    """What a site answers: vectors and sums for each model, and its scores last."""

    request: str  # its digest
    round: StoredCount
    site: Annotated[str, Meta(min_length=1)]
    score: SiteScore | None = None
    sums: Any = field(default_factory=dict, repr=False)  # for each model, Arrays

    def __post_init__(self) -> None:
        refuse_unsafe_names([self.site], "name of a site")


def digest(message: Request | Answer) -> str:
    """Compute the hash of a message."""
    return hashlib.sha256(encode(message)).hexdigest()


def encode(message: Request | Answer) -> bytes:
    """Encode a message with its hash as a safetensors file, which is the same for the same message."""
    own = dict(vars(message))
    tree = own.pop("shown", None) or {model: [sums] for model, sums in own.pop("sums", {}).items()}
    document = {"kind": type(message).__name__, "brio": __version__, **to_json(own)}
    arrays = {
        f"{model}/{k}/{name}": np.array(values, dtype=np.float64, order="C")
        for model, rounds in sorted(tree.items())
        for k, own in enumerate(rounds)
        for name, values in sorted(own.items())
    }
    head = json.dumps([document, {name: a.shape for name, a in arrays.items()}], sort_keys=True, allow_nan=False)
    content = [head.encode(), *(a.tobytes() for a in arrays.values())]
    document["sha256"] = hashlib.sha256(b"".join(content)).hexdigest()
    return save(arrays, metadata={"brio": json.dumps(document, sort_keys=True)})


def decode(content: bytes, path: Path) -> Request | Answer:
    """Decode a message, which is not trusted: encoding it again with :func:`encode` must give the same bytes."""
    tree: dict[str, dict[int, Arrays]] = {}
    try:
        arrays = load(content)
        header = content[8 : 8 + int.from_bytes(content[:8], "little")]
        document = parse_json(json.loads(header)["__metadata__"]["brio"].encode(), path, _SEND_AGAIN)
        kind = {"Request": Request, "Answer": Answer}[document["kind"]]
        for name in sorted(arrays):
            model, k, own = name.rsplit("/", 2)
            tree.setdefault(model, {}).setdefault(int(k), {})[own] = arrays[name]
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise file_error(path, "is neither a request nor an answer of 'brio federate'", _SEND_AGAIN) from error
    if document.get("brio") != __version__:
        problem = f"was made by brio {document.get('brio')}, but this is brio {__version__}"
        raise file_error(path, problem, "use the same version of brio for the whole project")
    rounds = {model: [own for _, own in sorted(one.items())] for model, one in tree.items()}
    document |= {"shown": rounds} if kind is Request else {"sums": {model: own[0] for model, own in rounds.items()}}
    message: Request | Answer = from_json(kind, document, path, _SEND_AGAIN)
    if encode(message) != content:
        raise file_error(path, "was changed after it was written", _SEND_AGAIN)
    return message


def write_message(path: Path, message: Request | Answer) -> None:
    """Write a message to a file atomically."""
    write_atomically(path, encode(message))


def read_message(path: Path, kind: Any = Request | Answer) -> Any:
    """Read a file written by :func:`write_message`; ``kind`` may require a request or an answer."""
    message = decode(read_bounded(path, _LARGEST_FILE, _SEND_AGAIN), path)
    if not isinstance(message, kind):
        found, wanted = (one.__name__.lower() for one in (type(message), kind))
        raise BrioError(f"{path}: is {found} {message.round + 1} of a project; give one of its {wanted}s instead")
    return message


def describe_message(message: Request | Answer) -> str:
    """Describe every number in a request or an answer, for those who must agree to it."""
    score = to_json(message.score) if isinstance(message, Answer) else None
    words = {name: one["words"] for asked in NUMBERS.values() for name, one in asked.get("sums", {}).items()}
    context = {"message": message, "numbers": NUMBERS, "words": words, "score": score}
    return fill_text("federation.md.j2", version=__version__, **context)
