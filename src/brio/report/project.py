"""The page of a project of sites that share no scan: how well the model does at each site, and what the sites sent."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BrioError
from ..federation import Request, read_message
from ..federation.folders import ANSWERS, MODEL, SCORES, name_request
from ..federation.messages import NUMBERS, CalibratedScore
from ..models.folder import read_model, write_card
from ..protocol.metrics import assess_over_people
from ..results.summarise import collect_areas, read_covariances, read_sites
from .html import fill_template
from .html.figures import make_scale
from .html.page import render_markdown


def is_project(folder: Path) -> bool:
    """Whether a folder is that of a project."""
    return (folder / name_request(0)).is_file()


def render_project_page(folder: Path) -> str:
    """Render the page of a project that has ended; it needs no network and no other file."""
    if not (folder / MODEL).is_dir():
        raise BrioError(f"{folder}: the project has not ended; 'brio federate combine {folder}' goes on with it")
    model, rounds = read_model(folder / MODEL), list_rounds(folder)
    assert model.evidence is not None
    sites = score_sites(folder / SCORES, model.method.name)
    ends = [site[end] for site in sites for end in ("low", "high")]
    context = {
        "model": model,
        "evidence": model.evidence,
        "terms": rounds[-1]["request"].terms,
        "sites": sites,
        "scale": make_scale([model.evidence.auc.low, model.evidence.auc.high, *ends]),
        "rounds": rounds,
        "card": render_markdown(write_card(model)),
    }
    return fill_template("project.html.j2", context, ("report.css", "report_media.css"))


def score_sites(folder: Path, method: str) -> list[dict[str, Any]]:
    """List the sites with the AUC at each, and its interval over the participants there."""
    sites, covariances = read_sites(folder), read_covariances(folder)
    areas = collect_areas(sites, covariances, [method]) if sites is not None and covariances is not None else None
    if sites is None or areas is None:
        raise BrioError(
            f"{folder}: has no scores of {method}; 'brio federate combine' wrote them when the project ended"
        )
    rows = sites.set_index("fold").sort_index()  # as the areas are
    alone = [assess_over_people(areas, np.ones(1), one, correction=0.0) for one in np.eye(len(rows))]
    rows = rows.assign(low=[max(0.0, one.low) for one in alone], high=[min(1.0, one.high) for one in alone])
    return rows.reset_index().to_dict("records")


def list_rounds(folder: Path) -> list[dict[str, Any]]:
    """List the rounds of a project: the request, what it asks in words, and the sizes of its files."""
    rounds: list[dict[str, Any]] = []
    while (path := folder / name_request(len(rounds))).is_file():
        answers = (folder / ANSWERS).glob(f"answer-{len(rounds) + 1}-*.brio")
        request, sizes = read_message(path, Request), [one.stat().st_size for one in (path, *answers)]
        about = NUMBERS[request.asked] | {"request": request, "scores": {}}
        if request.asked == "score":  # by site models, none of probabilities
            unsent = set() if request.terms.leaves_sites_out else {one.name for one in fields(CalibratedScore)}
            about["scores"] = {name: words for name, words in NUMBERS["scores"].items() if name not in unsent}
        rounds.append(about | {"request_kb": sizes[0] / 1e3, "answer_kb": max(sizes[1:], default=0) / 1e3})
    return rounds
