"""The coordinator's part: check all answers of a round, add them up, and make the next request or the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BrioError
from ..schemas import check_fields, from_json, to_json
from .equations import LARGEST, Spread
from .messages import ALL, FEWEST, LARGEST_SITE, Answer, Arrays, Request, Terms, digest
from .progress import Progress

if TYPE_CHECKING:
    from ..models.model import Model

_ROUNDING = 1 + 1e-6
_LARGEST_EDGE = np.arctanh(1 - 1e-6)
"""Fisher z of the largest correlation that is accepted."""
_LARGEST_LOG = 40.0
"""Largest logarithm of a property of a scan, positive or negative."""
LEAST_ALIKE = 0.55
"""Least correlation of mean connectomes between sites: 20 real scans and those of two other sites have 0.84 or more,
and regions in another order 0.5 or less, unless few regions, or only those of both hemispheres, were exchanged."""
NOT_ALIKE = "its mean connectome is not like that of the other sites, so its regions may be in another order"


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
    if not request.round and len(by_site) > 1:
        whole = _add_up([one.sums[ALL] for one in by_site.values()])
        alike = {name: compare_means(one.sums[ALL], subtract(whole, one.sums[ALL])) for name, one in by_site.items()}
        if min(alike.values()) < LEAST_ALIKE:
            raise BrioError(f"site '{min(alike, key=lambda name: alike[name])}': {NOT_ALIKE}; ask for their order")
    sites: Any = request.sites or {k: tuple(one.sums[ALL]["n"].astype(int).tolist()) for k, one in by_site.items()}
    sums: dict[str, Arrays] = {}
    for model in [ALL, *sites] if request.terms.leaves_sites_out and request.asked != "score" else [ALL]:
        own = [one.sums[model if request.round else ALL] for name, one in by_site.items() if name != model]
        sums[model] = _add_up(own)
    if request.asked == "score":
        from .model import complete_model  # needs torch

        return complete_model(request, sums[ALL], {name: one.score for name, one in by_site.items() if one.score})
    return request.advance(sites, {name: digest(one) for name, one in by_site.items()}, sums)


def _add_up(sums: Sequence[Arrays]) -> Arrays:
    return {key: np.sum([one[key] for one in sums], axis=0, dtype=float) for key in (sums[0] if sums else ())}


def subtract(whole: Arrays, part: Arrays) -> Arrays:
    """Return the sums of the sites that are in the whole but not in the part."""
    return {key: whole[key] - part[key] for key in whole}


def _check_answer(request: Request, answer: Answer) -> None:
    """Refuse an answer with other values than expected, or with values that no scans could give."""
    from_json(
        Answer, to_json({k: v for k, v in vars(answer).items() if k != "sums"}), Path("its answer"), "send another"
    )
    if answer.request != digest(request) or answer.round != request.round:
        raise BrioError(f"its answer is to another request (round {answer.round + 1})")
    if sorted(answer.sums) != sorted(request.list_answered(answer.site)):
        raise BrioError("its answer is not about the requested models")
    is_calibrated = request.terms.leaves_sites_out if request.asked == "score" else None
    if (answer.score and bool(answer.score.calibrated)) != is_calibrated:
        raise BrioError("its answer lacks the requested scores, or contains others")
    counts = request.sites.get(answer.site, (0, 0))
    if answer.score and (answer.score.n_controls > counts[0] or answer.score.n_patients > counts[1]):
        raise BrioError("its scores are of more participants than it has scans")
    for model, own in answer.sums.items():
        check_sums(request, model, own, sum(counts))


def check_sums(request: Request, model: str, own: Arrays, n: int, n_sites: int = 1) -> None:
    """Refuse sums for a model that the n scans of some sites could not give."""
    request.terms.check_sums(request.round, own)
    with np.errstate(over="ignore", invalid="ignore"):  # absurd numbers are refused, not warned of
        if request.round:
            possible = _check_vectors(Progress(request.terms, request.shown[model]), n, n_sites, own)
        else:
            possible = _check_description(own, n_sites)
    for name, is_possible in possible.items():
        if not is_possible:
            raise BrioError(f"'{name}' contains values that no scans could give")


def _check_description(own: Arrays, n_sites: int) -> dict[str, bool]:
    """Find which values of a description the scans of some sites could give."""
    n, live, length = own["n"].sum(), own["live"], own["block_length"]
    largest = np.sqrt(np.maximum(live * own["squares"], 0)) * _ROUNDING
    means, known = np.abs(own["fc_means"]), own["fc_sites"]
    return {
        "n": bool((own["n"] >= n_sites).all() and n <= LARGEST_SITE * n_sites and (own["n"] % 1 == 0).all()),
        "live": bool((live >= 0).all() and (live <= n).all() and (live % 1 == 0).all()),
        "features": bool((np.abs(own["features"]) <= largest).all()),  # Cauchy and Schwarz
        "squares": bool(0 <= own["squares"] <= LARGEST * live.sum()),
        "fc_sites": bool(
            ((live > 0) <= known).all() and (known <= np.minimum(live, n_sites)).all() and (known % 1 == 0).all()
        ),
        "fc_means": bool((means <= known * _LARGEST_EDGE * _ROUNDING).all()),
        "block_length": bool(0 < length[0] <= LARGEST * length[1] and length[1] == n),
        "facts": all(_could_be_logs(logs, n) for logs in own["facts"]),
    }


def _could_be_logs(logs: np.ndarray, n: float) -> bool:
    """Whether number, sum and sum of squares could be those of a quantity of at most n scans."""
    count, total, squares = logs
    is_count = count % 1 == 0 and (count == 0 or FEWEST <= count <= n)
    return bool(is_count and total**2 <= count * squares * _ROUNDING and squares <= count * _LARGEST_LOG**2)


def _check_vectors(progress: Progress, n: int, n_sites: int, own: Arrays) -> dict[str, bool]:
    """Find which values of a later answer n scans could give; the squares of all sites bound those of some."""
    squares, share = progress.squares, n / progress.n_all
    residual, w = (float(np.linalg.norm(one)) for one in (progress.point.residual, progress.point.w))
    largest = {
        "labels": 2 * np.sqrt(squares * n),
        "models": share,
        "product": squares * np.linalg.norm(progress.directions[-1:]),
        "direction": residual * share / progress.penalty,
        "covariance": np.sqrt(squares * float(own.get("variance", 0))),
        "variance": squares * w**2,
    }
    possible = {name: bool(np.linalg.norm(own[name]) <= largest[name] * _ROUNDING) for name in largest if name in own}
    possible["distance"] = "distance" not in own or _could_be_logs(own["distance"], n)
    possible["spread"] = "spread" not in own or Spread(*own["spread"]).is_possible(n, n_sites, squares * _ROUNDING)
    possible["halves"] = "halves" not in own or bool(own["halves"][1] == n <= own["halves"][0] <= LARGEST * n)
    return possible


def compare_means(own: Arrays, others: Arrays) -> float:
    """Correlate the mean features, and the mean connectome, of some sites with those of others; return the smaller."""
    found = []
    for total, number in (("features", "live"), ("fc_means", "fc_sites")):
        both = (own[number] > 0) & (others[number] > 0)
        first, second = (one[total][both] / one[number][both] for one in (own, others))
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(float(np.corrcoef(first, second)[0, 1]) if both.sum() > 1 else 0.0)
    return float(np.nan_to_num(found).min())
