"""The coordinator's part: check all answers of a round, add them up, and make the next request or the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BrioError
from ..schemas import check_fields, to_json
from .equations import Spread
from .messages import ALL, Answer, Arrays, Request, Terms, digest
from .progress import Progress

if TYPE_CHECKING:
    from ..models.model import Model

_ROUNDING = 1 + 1e-6
_LARGEST_EDGE = np.arctanh(1 - 1e-6)
"""Fisher z of the largest correlation that is accepted."""


def start(terms: Terms) -> Request:
    """Return the first request of a project."""
    return Request(check_fields(Terms, to_json(terms), Path("the terms"), "change the option"))


def combine(request: Request, answers: Sequence[Answer]) -> Request | Model:
    """Add up the answers of all sites to a request, one from each, and return the next request, or the model."""
    by_site: dict[str, Answer] = {}
    for one in sorted(answers, key=lambda answer: answer.site):
        if request.sites and one.site not in request.sites:
            project = request.terms.project
            raise BrioError(f"site '{one.site}': does not take part in project '{project}'; leave out its answer")
        try:
            _check_answer(request, one)
        except BrioError as error:
            remedy = f"ask for its answer to request {request.round + 1} of project '{request.terms.project}'"
            raise BrioError(f"site '{one.site}': {error}; {remedy}") from None
        if digest(by_site.setdefault(one.site, one)) != digest(one):
            raise BrioError(f"site '{one.site}': sent two different answers; ask which one is valid")
    if missing := [name for name in request.sites if name not in by_site]:
        problem = f"has not answered round {request.round + 1}; wait for its answer, or start a new project"
        raise BrioError(f"site '{missing[0]}': {problem}")
    sites: Any = request.sites or {k: tuple(one.sums[ALL]["n"].astype(int).tolist()) for k, one in by_site.items()}
    sums: dict[str, Arrays] = {}
    for model in [ALL, *sites] if request.terms.leaves_sites_out and request.asked != "score" else [ALL]:
        own = [one.sums[model if request.round else ALL] for name, one in by_site.items() if name != model]
        sums[model] = {key: np.sum([one[key] for one in own], axis=0, dtype=float) for key in (own[0] if own else ())}
    if request.asked == "score":
        from .model import complete_model  # needs torch

        return complete_model(request, sums[ALL], {name: one.score for name, one in by_site.items() if one.score})
    return request.advance(sites, {name: digest(one) for name, one in by_site.items()}, sums)


def _check_answer(request: Request, answer: Answer) -> None:
    """Refuse an answer with other values than expected, or with values that no scans could give."""
    if answer.request != digest(request) or answer.round != request.round:
        raise BrioError(f"its answer is to another request (round {answer.round + 1})")
    if sorted(answer.sums) != sorted(request.list_answered(answer.site)):
        raise BrioError("its answer is not about the requested models")
    is_calibrated = request.terms.leaves_sites_out if request.asked == "score" else None
    if (answer.score and bool(answer.score.calibrated)) != is_calibrated:
        raise BrioError("its answer lacks the requested scores, or contains others")
    for model, own in answer.sums.items():
        request.terms.check_sums(request.round, own)
        if request.round:
            progress = Progress(request.terms, request.shown[model])
            possible = _check_vectors(progress, sum(request.sites[answer.site]), own)
        else:
            possible = _check_description(own)
        for name, is_possible in possible.items():
            if not is_possible:
                raise BrioError(f"'{name}' contains values that no scans could give")


def _check_description(own: Arrays) -> dict[str, bool]:
    """Find which values of a description some scans could give."""
    n, live = own["n"].sum(), own["live"]
    largest = np.sqrt(np.maximum(live * own["squares"], 0)) * _ROUNDING
    return {
        "n": bool((own["n"] >= 1).all() and n <= 1e9 and (own["n"] % 1 == 0).all()),
        "live": bool((live >= 0).all() and (live <= n).all() and (live % 1 == 0).all()),
        "features": bool((np.abs(own["features"]) <= largest).all()),  # Cauchy and Schwarz
        "fc_means": bool((np.abs(own["fc_means"]) <= (live > 0) * _LARGEST_EDGE * _ROUNDING).all()),
        "fc_sites": np.array_equal(own["fc_sites"], live > 0),
        "block_length": bool(own["block_length"][0] > 0 and own["block_length"][1] == n),
        "facts": all(_could_be_logs(logs, n) for logs in own["facts"]),
    }


def _could_be_logs(logs: np.ndarray, n: float) -> bool:
    """Whether number, sum and sum of squares could be those of a quantity of at most n scans."""
    count, total, squares = logs
    return bool(0 <= count <= n and count % 1 == 0 and total**2 <= count * squares * _ROUNDING)


def _check_vectors(progress: Progress, n: int, own: Arrays) -> dict[str, bool]:
    """Find which values of a later answer the n scans of a site could give; the squares of all sites bound its own."""
    squares, share = progress.squares, n / progress.n_all
    residual, w = (float(np.linalg.norm(one)) for one in (progress.point.residual, progress.point.w))
    largest = {
        "labels": 2 * np.sqrt(squares * n),
        "models": share,
        "product": squares * np.linalg.norm(progress.directions[-1:]),
        "direction": residual * share / progress.penalty,
        "covariance": squares * w,
        "variance": squares * w**2,
    }
    possible = {name: bool(np.linalg.norm(own[name]) <= largest[name] * _ROUNDING) for name in largest if name in own}
    possible["distance"] = "distance" not in own or _could_be_logs(own["distance"], n)
    possible["spread"] = "spread" not in own or Spread(*own["spread"]).is_possible(n)
    possible["halves"] = "halves" not in own or bool(own["halves"][0] >= n == own["halves"][1])
    return possible
