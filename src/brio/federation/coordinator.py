"""The coordinator's part: check all answers of a round, add them up, and make the next request or the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import BrioError
from ..formatting import format_count
from ..models.model import Model
from ..schemas import from_json
from .messages import ALL, Answer, Request, Terms, digest
from .model import SiteScore, complete_model
from .progress import add_up, follow, name_models

LEAST_SITES = 3
"""Fewest sites in a sum, so that none of them learns the part of another by taking its own away."""
_ROUNDING = 1 + 1e-6


def start(terms: Terms) -> Request:
    """Return the first request of a project."""
    return Request(terms, 0)


def combine(request: Request, answers: Sequence[Answer], described: Sequence[Answer] = ()) -> Request | Model:
    """Add up the answers of all sites to a request, and return the next request, or the model.

    Parameters
    ----------
    request : Request
    answers : sequence of Answer
        One from each site.
    described : sequence of Answer
        The answers to the first request, needed with the last ones: their limits become the ranges of the model.

    Returns
    -------
    Request or Model
    """
    terms, asked, own_digest = request.terms, request.asked, digest(request)
    by_site = _list_by_site(request, answers)
    if asked == "describe":
        sites = {name: tuple(map(int, one.sums[ALL]["n"])) for name, one in by_site.items()}
        request = replace(request, sites=sites)
    _require_enough_sites(request)
    for name, one in by_site.items():
        check_answer(request, one)
    models, shown = name_models(request), {}
    for model in models:
        counted = [name for name in by_site if name != model]
        if asked == "score" and model != ALL:
            continue
        own = [by_site[name].sums[ALL if asked == "describe" else model] for name in counted]
        sums = {key: np.sum([one[key] for one in own], axis=0) for key in own[0]}
        shown[model] = [*request.shown.get(model, ()), sums]
    if asked == "score":
        scores = {name: from_json(SiteScore, one.facts, Path(name)) for name, one in by_site.items()}
        facts = {one.site: one.facts for one in described}
        return complete_model(request, follow(terms, request.shown[ALL]), shown[ALL][-1], facts, scores)
    return Request(
        terms,
        request.round + 1,
        request.sites,
        {name: digest(one) for name, one in by_site.items()},
        own_digest,
        shown,
    )


def _list_by_site(request: Request, answers: Sequence[Answer]) -> dict[str, Answer]:
    """List answers by site in sorted order; refuse those to another request, twice from one site, or missing."""
    by_site: dict[str, Answer] = {}
    own = digest(request)
    for one in sorted(answers, key=lambda answer: answer.site):
        if one.request != own:
            what = f"round {one.round + 1}" if one.round != request.round else "another request of this round"
            remedy = f"give its answer to round {request.round + 1} of '{request.terms.project}'"
            raise BrioError(f"site '{one.site}': answers {what}, not this request; {remedy}")
        if one.brio != request.terms.brio:
            remedy = f"install brio {request.terms.brio} there and answer again"
            raise BrioError(f"site '{one.site}': was answered by brio {one.brio}; {remedy}")
        if one.site in by_site and digest(by_site[one.site]) != digest(one):
            raise BrioError(f"site '{one.site}': answered twice, and differently; ask it which answer holds")
        by_site[one.site] = one
    if missing := [name for name in request.sites if name not in by_site]:
        remedy = "wait for it, or start again without it: earlier sums hold its part"
        raise BrioError(f"site '{missing[0]}': has not answered round {request.round + 1}; {remedy}")
    if unknown := [name for name in by_site if request.sites and name not in request.sites]:
        raise BrioError(f"site '{unknown[0]}': takes no part in '{request.terms.project}'; leave its answer out")
    return by_site


def _require_enough_sites(request: Request) -> None:
    """Refuse sums over too few sites."""
    n, terms = len(request.sites), request.terms
    if n < LEAST_SITES:
        raise BrioError(f"{format_count(n, 'site')} answered; every sum needs at least {LEAST_SITES}")
    if terms.evaluation == "leave-one-site-out" and n <= LEAST_SITES:
        remedy = "start again with the evaluation by site models"
        raise BrioError(f"with {n} sites none can be left out: {n - 1} would remain in a sum; {remedy}")


def check_answer(request: Request, answer: Answer) -> None:
    """Refuse an answer with other values than expected, or with vectors that no scans could give."""
    terms, where = request.terms, f"site '{answer.site}'"
    d = len(terms.rois["name"]) * (len(terms.rois["name"]) - 1) // 2
    models = [ALL] if request.asked in ("describe", "score") else [m for m in name_models(request) if m != answer.site]
    if sorted(answer.sums) != sorted(models):
        raise BrioError(f"{where}: answered about {', '.join(answer.sums) or 'nothing'}; ask it to answer again")
    for model, own in answer.sums.items():
        shapes = _list_shapes(request, d)
        found = {name: values.shape for name, values in own.items()}
        if found != shapes:
            odd = next(name for name in {**shapes, **found} if shapes.get(name) != found.get(name))
            problem = f"'{odd}' has the shape {found.get(odd)}, expected is {shapes.get(odd)}"
            raise BrioError(f"{where}: {problem}; ask it to answer again")
        for name, values in own.items():
            if not np.isfinite(values).all():
                raise BrioError(f"{where}: '{name}' holds values that are not finite; ask it to answer again")
            bound = _bound(request, model, answer.site, name)
            if bound is not None and np.linalg.norm(values) > bound * _ROUNDING:
                size = f"{np.linalg.norm(values):.3g}, at most {bound:.3g} is possible"
                raise BrioError(f"{where}: '{name}' is too large ({size}); it would spoil the model, ask for it again")


def _list_shapes(request: Request, d: int) -> dict[str, tuple[int, ...]]:
    """List the shapes of what a site answers."""
    is_first = request.asked == "multiply" and request.round == 2
    return {
        "describe": dict.fromkeys(("features", "live", "fc_means", "fc_sites"), (d,))
        | {"n": (2,), "squares": (), "block_length": (2,), "motion": (3,), "edge_sd": (3,)},
        "begin": {"labels": (d,), "models": (d,), "distance": (3,)},
        "multiply": {"product": (d,)} | ({"spread": (4,)} if is_first else {}),
        "solve": {"direction": (d,)},
        "score": {"covariance": (d,), "variance": (), "halves": (2,)},
    }[request.asked]


def _bound(request: Request, model: str, site: str, name: str) -> float | None:
    """Bound the norm of what a site can answer, from the counts and squares of all; None where nothing bounds it."""
    if request.asked == "describe":
        return None
    rounds, n = request.shown[model], sum(request.sites[site])
    totals = add_up(request.terms, rounds[0])
    squares = float(totals.penalty / request.terms.penalty) * totals.n_all  # of all features: no site has more
    n_all = totals.n_all
    if name == "models":
        return n / n_all
    if name == "labels":
        return 2 * float(np.sqrt(squares * n))
    if len(rounds) < 2:
        return None
    progress = follow(request.terms, rounds)
    if name == "product":
        return squares * float(np.linalg.norm(progress.directions[-1]))
    if name == "direction":
        return float(np.linalg.norm(progress.point.residual)) * n / n_all / totals.penalty
    return None
