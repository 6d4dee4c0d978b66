"""The page: everything gathered and drawn by the template."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from ...results import StoredStudy
from ...version import __version__
from . import words
from .brain import COLOURS, flat_views, turning_brain
from .cohort import cohort_section, exclusions, findings
from .factors import assignment, qualification, read_factors
from .figures import calibration, forest, looks, result_table, roc, training
from .reading import Evidence, EvidenceArm
from .repeat import commands, in_lines, settings_of, versions
from .verdict import Comparison, comparison, verdict

__all__ = ["render_page"]

LONGEST_OPEN = 8
"""Rows of a study's table that is shown as it is."""
LARGEST = 5_000_000
"""Bytes; what makes the page larger, the brain that turns first, is left out and said to be."""
LONGEST_TABLE = 30
LARGEST_FIGURE = 200_000


def render_page(evidence: Evidence, found: Comparison) -> str:
    """Render the report as one HTML page that needs no network and no other file.

    Parameters
    ----------
    evidence : Evidence
    found : Comparison
        Of the main arms of the evidence.
    """
    context = _context(evidence, found)
    text = _render(context)
    if len(text.encode()) > LARGEST and context["brain"] and context["brain"]["page"]:
        context["brain"]["page"] = None
        context["brain"]["why"] = "The brain that turns was left out to keep this page under 5 MB."
        text = _render(context)
    return text


def _context(evidence: Evidence, found: Comparison) -> dict[str, Any]:
    """All that the template draws."""
    arms = evidence.main
    other = [arm for arm in evidence.arms if arm.protocol != evidence.protocol]
    look = looks([*arms, *evidence.varied, *other], found)
    ordered = sorted(arms, key=lambda arm: look[arm.name].key)
    first = arms[0].job if arms else None
    kept = _factors(ordered)
    trained = _each(ordered, look, training)
    with_curves = {chart["look"] for chart in trained}
    facts = next((arm.job.cohort_facts for arm in arms if arm.job.cohort_facts), None)
    return {
        "evidence": evidence,
        "version": __version__,
        "summary": first.summary if first else None,
        "smoke": bool(evidence.smoke) or any(arm.job.summary.smoke_run for arm in found.ranked[:1]),
        "title": first.summary.cohort if first else evidence.folder.resolve().name,
        "unseen": evidence.protocol == "loso",
        "verdict": verdict(evidence, found),
        "found": found,
        "looks": [look[arm.name] for arm in ordered],
        "n_methods": len({arm.method for arm in ordered}),
        "look": look,
        "cohort": cohort_section(evidence),
        "findings": findings(evidence.audited) if evidence.audited else [],
        "results": result_table(arms, found) if arms else None,
        "others": _others(other),
        "varied": _others(evidence.varied),
        "forest": forest(arms, look, facts) if arms else None,
        "roc": _each(ordered, look, roc),
        "calibration": _each(ordered, look, calibration),
        "training": trained,
        "without_curves": [a.name for a in ordered if a.summary.epochs and look[a.name] not in with_curves],
        "qualification": {name: qualification(runs) for name, runs in kept.items()},
        "neural": any(arm.summary.family == "BRIO" for arm in arms),
        "brain": _brain(kept, facts),
        "studies": [_study(study) for study in evidence.studies],
        "exclusions": exclusions(evidence),
        "settings": [settings_of(arm) for arm in ordered],
        "plan": first.plan if first else None,
        "versions": versions(evidence),
        "commands": [in_lines(command) for command in commands(evidence)],
    }


def _each(
    arms: list[EvidenceArm], look: dict[str, Any], draw: Callable[[EvidenceArm], dict[str, Any] | None]
) -> list[dict[str, Any]]:
    """A small chart for each arm that has one."""
    drawn = [(look[arm.name], draw(arm)) for arm in arms]
    return [{"look": how, **chart} for how, chart in drawn if chart is not None]


def _others(arms: list[EvidenceArm]) -> dict[str, Any] | None:
    """A table of further arms, where there are some: of the other protocol, or with other settings."""
    if not arms:
        return None
    found = comparison(arms)
    return {"table": result_table(arms, found), "found": found}


def _factors(arms: list[EvidenceArm]) -> dict[str, Any]:
    """Factors of the arms that have them: of BRIO as it is meant, since an ablation has no qualification to show."""
    out = {}
    for arm in arms:
        settings = arm.plan.methods[arm.method].settings
        if settings.get("variant", "full") == "full" and (runs := read_factors(arm)):
            out[arm.name] = runs
    return out


def _brain(kept: dict[str, Any], facts: dict[str, Any] | None) -> dict[str, Any] | None:
    """The factors of the first arm that has some, on a brain; ``why`` says what is missing."""
    if not kept:
        return None
    name, runs = next(iter(kept.items()))
    told = assignment(runs)
    rois = (facts or {}).get("rois")
    told |= {"arm": name, "page": None, "views": [], "why": "", "groups": [], "colours": COLOURS}
    if rois is None or len(rois["name"]) != len(told["factor"]):
        told["why"] = "This folder does not say where the regions lie (it has no facts.json): run it again."
        return told
    told["groups"] = [
        [name for name, j in zip(rois["name"], told["factor"], strict=True) if j == group]
        for group in range(len(told["pi"]))
    ]
    if rois["xyz"] is None:
        told["why"] = f"The atlas '{(facts or {})['atlas']}' has no coordinates, so there is no brain to draw on."
        return told
    told["views"] = flat_views(rois["xyz"], told["factor"])
    labels = [f"{roi}, factor {j + 1}" for roi, j in zip(rois["name"], told["factor"], strict=True)]
    viewer = turning_brain(rois["xyz"], labels, told["factor"])
    if viewer is None:
        told["why"] = "The brain that turns needs nilearn, which is not installed where this page was made."
    else:  # packed to half its size; the script of the page unpacks it when it comes into sight
        told["page"] = base64.b64encode(gzip.compress(viewer.encode(), mtime=0)).decode()
    return told


def _study(study: StoredStudy) -> dict[str, Any]:
    """A study as the page shows it: its text with the small table in it, else the first rows of the long one."""
    record, shown = study.record, None
    text = _markdown(_without_frame(study.finding))
    if study.table is not None and "<table" not in text:
        head = study.table.head(LONGEST_TABLE)
        shown = {
            "columns": [str(c) for c in head.columns],
            "rows": [[_cell(v) for v in row] for row in head.itertuples(index=False, name=None)],
        }
    return {
        "name": study.name,
        "title": record.title or study.name,
        "paper": record.paper,
        "smoke": record.smoke,
        "figure": _figure(study.folder),
        "text": text,
        "table": shown,
        "n_rows": None if study.table is None else len(study.table),
    }


def _without_frame(text: str) -> str:
    """The text of a study without what the page has beside it: its title, the paper's word, the figure."""
    frame = ("# ", "![", "The paper: ", "This is a smoke run")
    return "\n".join(line for line in text.splitlines() if not line.startswith(frame))


def _cell(value: Any) -> dict[str, Any]:
    if isinstance(value, float):
        return {"text": words.MISSING if value != value else f"{value:.4g}", "value": None if value != value else value}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"text": str(value), "value": value}
    return {"text": str(value), "value": None}


def _figure(folder: Path) -> str | None:
    """The figure of a study as a data address: an image, in which no script runs."""
    svg, png = folder / "figure.svg", folder / "figure.png"
    large = svg.is_file() and svg.stat().st_size > LARGEST_FIGURE
    for path, kind in ((png, "png"), (svg, "svg+xml")) if large else ((svg, "svg+xml"), (png, "png")):
        if path.is_file():
            return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    return None


def _markdown(text: str) -> str:
    """Markdown as HTML; tags in the text stay text, and pictures, which may lie on the network, are not shown.

    A table that is long is folded.
    """
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text)
    return re.sub(r"<table>.*?</table>", lambda found: _folded(found[0]), made, flags=re.DOTALL)


def _folded(table: str) -> str:
    scroll = f'<div class="scroll" tabindex="0" role="region" aria-label="Table">{table}</div>'
    n = table.count("<tr>") - 1
    if n <= LONGEST_OPEN:
        return scroll
    return f'<details class="printed"><summary>Table, {n} rows</summary>{scroll}</details>'


def _render(context: dict[str, Any]) -> str:
    """The page as text. Everything that comes from data is escaped by the template."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    home = resources.files(__package__ or "brio.report.html")
    environment = Environment(
        loader=PackageLoader("brio.report.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": words.percent,
        "signed": words.signed,
        "interval": words.interval,
        "p_value": words.p_value,
        "number": words.number,
        "count": words.count,
        "listed": words.listed,
    }
    style = home.joinpath("report.css").read_text(encoding="utf-8")
    script = home.joinpath("report.js").read_text(encoding="utf-8")
    return environment.get_template("report.html.j2").render(**context, style=style, script=script) + "\n"
