"""The page of a federated project: how well the model works at each site, and what the sites sent."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from ..errors import BrioError
from ..federation import Request, read_message
from ..federation.folders import ANSWERS, MODEL, SCORES, name_request
from ..federation.messages import NUMBERS, CalibratedScore
from ..models.folder import read_model, write_card
from ..results.summarise import add_intervals, read_sites
from .html import fill_template
from .html.figures import make_scale
from .html.markdown import render_markdown


def is_project(folder: Path) -> bool:
    """Return whether a folder is that of a federated project."""
    return (folder / name_request(0)).is_file()


def render_project_page(folder: Path) -> str:
    """Render the page of a finished project; it needs no network and no other file."""
    if not (folder / MODEL).is_dir():
        raise BrioError(f"{folder}: the project has not ended; continue with 'brio federate combine {folder}'")
    model, rounds = read_model(folder / MODEL), list_rounds(folder)
    assert model.evidence is not None
    if (table := read_sites(folder / SCORES)) is None:
        raise BrioError(
            f"{folder / SCORES}: has no sites.csv; restore the file, which 'brio federate combine' wrote at the end"
        )
    sites = add_intervals(table.sort_values("fold"))
    context = {
        "model": model,
        "evidence": model.evidence,
        "terms": rounds[-1]["request"].terms,
        "sites": sites.to_dict("records"),
        "scale": make_scale([model.evidence.auc.low, model.evidence.auc.high, *sites["low"], *sites["high"]]),
        "rounds": rounds,
        "card": render_markdown(write_card(model)),
    }
    return fill_template("project.html.j2", context, ("report.css", "report_media.css"))


def list_rounds(folder: Path) -> list[dict[str, Any]]:
    """List the rounds of a project: the request, a description of what it asks for, and the sizes of its files."""
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
