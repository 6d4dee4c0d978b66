"""Requests and answers: one file each, with sums for numbers of scans, checked before anything of it is used."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from msgspec import Meta
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..cohort import Atlas
from ..cohort.values import refuse_unsafe_names
from ..errors import file_error
from ..methods import make_method
from ..methods.linear.ridge import KernelRidgeMethod
from ..schemas import StoredCount, check_fields, from_json, parse_json, read_bounded, to_json
from ..storage import write_atomically
from ..version import __version__

FORMAT = 1
"""Version of the format of requests and answers, and of what sites compute."""
METHODS = ("log-ridge", "ridge")
EVALUATIONS = ("site-models", "leave-one-site-out")
SEND_AGAIN = "ask for the file again"
ALL = "all sites"
"""Name of the model of all sites; a model without one site has the name of that site."""
_LARGEST_FILE = 1 << 30
Arrays = dict[str, np.ndarray]
Shown = dict[str, list[Arrays]]
"""For each model, the sums of the answers to each round so far."""


@dataclass(frozen=True)
class Terms:
    """What a project computes; every request states it, and a site agrees to it once."""

    project: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w.-]{0,59}$")]
    method: Literal["log-ridge", "ridge"]
    atlas: str
    rois: dict[str, list[Any]] = field(repr=False)  # columns of a table, in the order that scans must have
    classes: tuple[str, str]
    penalty: Annotated[float, Meta(gt=0, le=1e6)] = 3.0  # in units of the mean squared norm of the features
    iterations: Annotated[int, Meta(ge=1, le=100)] = 2
    evaluation: Literal["site-models", "leave-one-site-out"] = "site-models"
    label: str | None = None  # the question, where it is not the label of the cohorts
    brio: str = __version__
    format: int = FORMAT

    @classmethod
    def check(cls, **values: Any) -> Terms:
        """Make terms from values of a user."""
        return check_fields(cls, values, Path("terms"), "change the option")

    @property
    def rounds(self) -> list[str]:
        """What is asked in each round."""
        steps = ["multiply", *["solve", "multiply"] * (self.iterations - 1)]
        return ["describe", "begin", *steps, "score"]

    def make_method(self) -> KernelRidgeMethod:
        """Make the method with the penalty of the project."""
        own = {"least_penalty": self.penalty, "largest_penalty": self.penalty, "penalties": 1}
        made = make_method(self.method, own | {"choose_by": "source-sites"})
        assert isinstance(made, KernelRidgeMethod)
        return made

    def make_atlas(self) -> Atlas:
        """Return the regions in the order that scans must have."""
        return Atlas(self.atlas, pd.DataFrame(self.rois))

    def count_vectors(self, n_sites: int) -> int:
        """Count the requests with a vector that a site will be asked: one for each model and round after the second."""
        n_models = 1 + n_sites * (self.evaluation == "leave-one-site-out")
        return n_models * (len(self.rounds) - 2)


@dataclass(frozen=True)
class Request:
    """What the coordinator asks of all sites in a round: the sums of all earlier answers, and nothing else.

    A site computes from these sums what it is asked about, so that no vector can be asked that does not follow.
    """

    terms: Terms
    round: Annotated[int, Meta(ge=0)]
    sites: dict[str, tuple[StoredCount, StoredCount]] = field(default_factory=dict)  # controls and patients of each
    answers: dict[str, str] = field(default_factory=dict)  # digests of the answers in the newest sums
    before: str = ""  # digest of the request before
    shown: Any = field(default_factory=dict, repr=False)  # Shown

    @property
    def asked(self) -> str:
        """What is asked."""
        return self.terms.rounds[self.round]

    @property
    def n_all(self) -> int:
        """Number of scans of all sites."""
        return sum(map(sum, self.sites.values()))


@dataclass(frozen=True)
class Answer:
    """What a site answers: vectors and sums for each model, and a few facts of the whole site."""

    request: str  # its digest
    round: Annotated[int, Meta(ge=0)]
    site: Annotated[str, Meta(min_length=1)]
    facts: dict[str, Any] = field(default_factory=dict)
    brio: str = __version__
    sums: Any = field(default_factory=dict, repr=False)  # for each model, Arrays


def digest(message: Request | Answer) -> str:
    """Compute the hash of a message."""
    return hashlib.sha256(encode(message)).hexdigest()


def encode(message: Request | Answer) -> bytes:
    """Encode a message as a safetensors file, which is the same for the same message."""
    document, arrays = to_json(message), {}
    if isinstance(message, Request):
        del document["shown"]
        for model, rounds in message.shown.items():
            arrays |= {f"{model}/{k}/{name}": a for k, own in enumerate(rounds) for name, a in own.items()}
    else:
        del document["sums"]
        arrays = {f"{model}/{name}": a for model, own in message.sums.items() for name, a in own.items()}
    text = json.dumps({"kind": type(message).__name__.lower(), **document}, sort_keys=True, allow_nan=False)
    arrays = {name: np.array(a, dtype=np.float64, order="C") for name, a in sorted(arrays.items())}
    return save(arrays, metadata={"brio": text})


def write_message(path: Path, message: Request | Answer) -> None:
    """Write a message to a file, whole or not at all."""
    write_atomically(path, encode(message))


def read_message(path: Path) -> Request | Answer:
    """Read a file that :func:`write_message` wrote; it may come from anywhere."""
    content = read_bounded(path, _LARGEST_FILE, SEND_AGAIN)
    try:
        arrays = load(content)
        length = int.from_bytes(content[:8], "little")
        text = json.loads(content[8 : 8 + length])["__metadata__"]["brio"]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise file_error(path, "is neither a request nor an answer of 'brio federate'", SEND_AGAIN) from error
    document = parse_json(text.encode(), path, SEND_AGAIN)
    kind = document.pop("kind", None)
    fmt = (document.get("terms") or {}).get("format", FORMAT) if kind == "request" else FORMAT
    if fmt != FORMAT:
        raise file_error(path, f"is in format {fmt}, this brio reads format {FORMAT}", "use one version at all sites")
    for name, array in arrays.items():
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise file_error(path, f"holds values of '{name}' that are not finite numbers", SEND_AGAIN)
    message: Request | Answer
    if kind == "request":
        request = from_json(Request, document, path, SEND_AGAIN)
        refuse_unsafe_names([request.terms.project, *request.sites, *request.terms.classes], f"{path}, a name")
        if request.round >= len(request.terms.rounds):
            raise file_error(path, f"asks round {request.round}, which there is not", SEND_AGAIN)
        shown: Shown = {}
        for name, array in arrays.items():
            model, k, own = name.rsplit("/", 2)
            rounds = shown.setdefault(model, [{} for _ in range(request.round)])
            if not k.isdigit() or int(k) >= len(rounds):
                raise file_error(path, f"holds '{name}', which does not belong to a round before", SEND_AGAIN)
            rounds[int(k)][own] = array
        object.__setattr__(request, "shown", shown)
        return request
    if kind != "answer":
        raise file_error(path, "is neither a request nor an answer of 'brio federate'", SEND_AGAIN)
    message = from_json(Answer, document, path, SEND_AGAIN)
    refuse_unsafe_names([message.site], f"{path}, name of a site")
    sums: dict[str, Arrays] = {}
    for name, array in arrays.items():
        model, _, own = name.rpartition("/")
        sums.setdefault(model, {})[own] = array
    object.__setattr__(message, "sums", sums)
    return message
