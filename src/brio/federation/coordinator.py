"""The coordinator's part: check all answers of a round, add them up, and make the next request or the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BrioError
from ..schemas import check_fields, to_json
from .messages import ALL, Answer, Arrays, Request, Terms, digest
from .progress import follow

if TYPE_CHECKING:
    from ..models.model import Model

_ROUNDING = 1 + 1e-6
_MOST_SCANS = 10**9


def start(terms: Terms) -> Request:
    """Return the first request of a project."""
    return Request(check_fields(Terms, to_json(terms), Path("the terms"), "change the option"))


def combine(request: Request, answers: Sequence[Answer]) -> Request | Model:
    """Add up the answers of all sites to a request, one from each, and return the next request, or the model."""
    by_site = _list_by_site(request, answers)
    for one in by_site.values():
        try:
            _check_answer(request, one)
        except BrioError as error:
            raise BrioError(f"site '{one.site}': {error}; it would spoil the model, ask the site again") from None
    sites, limits = request.sites, request.limits
    if not request.round:
        sites = {name: tuple(map(int, one.sums[ALL]["n"])) for name, one in by_site.items()}
        request.terms.require_enough(len(sites))
        pairs = [(name, ends) for one in by_site.values() for name, ends in one.limits.items()]
        limits = {name: _widen([ends for own, ends in pairs if own == name]) for name, _ in pairs}
    models = [ALL, *sites] if request.terms.leaves_sites_out and request.asked != "score" else [ALL]
    sums: dict[str, Arrays] = {}
    for model in models:
        own = [one.sums[model if request.round else ALL] for name, one in by_site.items() if name != model]
        sums[model] = {key: np.sum([one[key] for one in own], axis=0, dtype=float) for key in own[0]}
    if request.asked == "score":
        from .model import complete_model  # needs torch

        return complete_model(follow(request), sums[ALL], {name: one.score for name, one in by_site.items()})
    return advance(request, sites, {name: digest(one) for name, one in by_site.items()}, limits, sums)


def advance(
    request: Request,
    sites: dict[str, tuple[int, int]],
    answers: dict[str, str],
    limits: dict[str, tuple[float, float]],
    sums: Mapping[str, Arrays],
) -> Request:
    """Make the request that follows another one: the sums of the newest answers stand behind those before."""
    shown = {model: [*request.shown.get(model, ()), own] for model, own in sums.items()}
    return Request(request.terms, request.round + 1, sites, answers, digest(request), limits, shown)


def _widen(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, _ in pairs), max(high for _, high in pairs)


def _list_by_site(request: Request, answers: Sequence[Answer]) -> dict[str, Answer]:
    """List answers by site in sorted order; refuse those to another request, twice from one site, or missing."""
    by_site: dict[str, Answer] = {}
    own, terms, number = digest(request), request.terms, request.round + 1
    for one in sorted(answers, key=lambda answer: answer.site):
        problem = ""
        if one.request != own or one.round != request.round:
            which = "another request of this round" if one.round == request.round else f"round {one.round + 1}"
            problem = f"answers {which}, not this request; give its answer to round {number} of '{terms.project}'"
        elif one.brio != terms.brio:
            problem = f"was answered by brio {one.brio}; install brio {terms.brio} there and answer again"
        elif request.sites and one.site not in request.sites:
            problem = f"takes no part in '{terms.project}'; leave its answer out"
        elif one.site in by_site and digest(by_site[one.site]) != digest(one):
            problem = "answered twice, and differently; ask it which answer holds"
        if problem:
            raise BrioError(f"site '{one.site}': {problem}")
        by_site[one.site] = one
    if missing := [name for name in request.sites if name not in by_site]:
        remedy = "wait for it, or start again without it: earlier sums hold its part"
        raise BrioError(f"site '{missing[0]}': has not answered round {number}; {remedy}")
    return by_site


def _check_answer(request: Request, answer: Answer) -> None:
    """Refuse an answer with other values than expected, or with values that no scans could give."""
    score = answer.score
    if sorted(answer.sums) != sorted(request.list_answered(answer.site)):
        raise BrioError(f"answered about {', '.join(answer.sums) or 'nothing'}")
    if (score is not None) != (request.asked == "score"):
        raise BrioError("its scores are missing, or were not asked for")
    if score is not None and (
        score.is_complete != request.terms.leaves_sites_out or score.n > sum(request.sites[answer.site])
    ):
        raise BrioError("its scores are not those that were asked for")
    for model, own in answer.sums.items():
        request.terms.check_sums(request.round, own)
        for name, values in own.items():
            if not np.isfinite(values).all():
                raise BrioError(f"'{name}' holds values that are not finite")
        bounds, norms = (
            _bound_answer(request, model, answer.site, own) if request.round else (_bound_description(own), {})
        )
        for name, (low, high) in bounds.items():
            if name in own and not (np.all(own[name] >= low) and np.all(own[name] <= high)):
                raise BrioError(f"'{name}' holds values that no scans could give")
        for name, bound in norms.items():
            if name in own and np.linalg.norm(own[name]) > bound * _ROUNDING:
                raise BrioError(
                    f"'{name}' is too large ({np.linalg.norm(own[name]):.3g}, at most {bound:.3g} is possible)"
                )


Bounds = dict[str, tuple[Any, Any]]


def _bound_description(own: Arrays) -> Bounds:
    """Bound the values by which a site can describe its scans, some by others."""
    from ..connectome.fc import LARGEST_CORRELATION  # needs torch

    n, live, inf = own["n"].sum(), own["live"], np.inf
    some = np.minimum(live, 1)
    mean, size = some * np.arctanh(LARGEST_CORRELATION), np.sqrt(live * max(float(own["squares"]), 0.0)) * _ROUNDING
    return {
        "n": (np.maximum(np.floor(own["n"]), 1), np.minimum(np.floor(own["n"]), _MOST_SCANS)),
        "live": (np.maximum(np.floor(live), 0), np.minimum(np.floor(live), n)),
        "fc_sites": (some, some),
        "fc_means": (-mean * _ROUNDING, mean * _ROUNDING),
        "features": (-size, size),
        "squares": (0, inf),
        "block_length": ((0, n), (inf, n)),
        **{name: _bound_logs(own[name], n) for name in ("motion", "edge_sd")},
    }


def _bound_logs(own: np.ndarray, n: float) -> tuple[Any, Any]:
    """Bound number, sum and sum of squares of some values of at most n scans."""
    return (np.floor(own[0]), -np.inf, own[1] ** 2 / max(own[0], 1) / _ROUNDING), (min(n, own[0]), np.inf, np.inf)


def _bound_answer(request: Request, model: str, site: str, own: Arrays) -> tuple[Bounds, dict[str, float]]:
    """Bound values of later answers, and the norms of their vectors, by the counts of a site and the squares of all."""
    progress, (n_0, n_1), inf = follow(request, model), request.sites[site], np.inf
    n, squares, w = n_0 + n_1, progress.squares, float(np.linalg.norm(progress.point.w))
    pairs = n_0 * n_1 / n
    bounds: Bounds = {
        "spread": ((pairs, -inf, 0, n - 2), (pairs, inf, inf, n - 2)),
        "variance": (0, squares * w**2 * _ROUNDING),
        "halves": ((n, n), (inf, n)),
    }
    if "distance" in own:
        bounds["distance"] = _bound_logs(own["distance"], n)
    norms = {
        "labels": 2 * np.sqrt(squares * n),
        "models": n / progress.n_all,
        "product": squares * np.linalg.norm(progress.directions[-1:]),
        "direction": np.linalg.norm(progress.point.residual) * n / progress.n_all / progress.penalty,
        "covariance": squares * w,
    }
    return bounds, norms
