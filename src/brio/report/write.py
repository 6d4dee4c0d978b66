"""Write a report: the page, the model card, and the references that the page cites."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..errors import BrioError
from ..models.external import read_validation
from ..storage import make_folders, name_beside, remove_leftovers, write_atomically
from ..version import __version__
from .evidence import Evidence, read_evidence
from .html import fill_template
from .html.page import render_page
from .html.paper import write_bibliography
from .project import is_project, render_project_page
from .verdict import describe_validation, write_verdict


def write_model_card(evidence: Evidence) -> str:
    """Write a model card in Markdown, with the headings of Mitchell et al. 2019; it names no participant."""
    new_scans = [describe_validation(one) for one in evidence.validations]
    context = {"evidence": evidence, "verdict": write_verdict(evidence), "new_scans": new_scans}
    return fill_template("model_card.md.j2", context)


PAGE, CARD = "report.html", "MODEL_CARD.md"
_WRITER = re.compile(r'(?:<meta name="generator" content="|^(?:% )?Written by )brio ([^\s"]+)', re.MULTILINE)
"""The text by which a page, a card or references written by brio are recognised."""


def format_report(evidence: Evidence, page: Path) -> dict[Path, str]:
    """Return the texts of a report by their files: the model card, the references, and last the page."""
    texts = {page.with_name(CARD): write_model_card(evidence)}
    references = name_beside(page.with_suffix(""), ".bib")
    return texts | {references: write_bibliography(evidence, __version__), page: render_page(evidence)}


def write_report(folder: str | Path, out: str | Path | None = None, predictions: Iterable[str | Path] = ()) -> Path:
    """Write the report of a folder of results, or of a federated project, as one HTML file.

    A report of results comes with ``MODEL_CARD.md`` and references. Folders of predictions with labels add the scores
    of models at new sites.

    The page is self-contained and needs no network. Nothing is trained.
    """
    page = Path(folder) / PAGE if out is None else Path(out)
    validations = [read_validation(one) for one in predictions]
    if page.is_dir():
        raise BrioError(f"{page}: is a folder; give a file name, such as {page / PAGE}")
    if is_project(Path(folder)):
        if validations:
            raise BrioError(f"{folder}: is a federated project; leave out --predictions")
        texts = {page: render_project_page(Path(folder))}
    else:
        texts = format_report(replace(read_evidence(Path(folder)), validations=validations), page)
    for path in texts:
        if read_writer(path) == "":
            raise BrioError(f"{path}: exists and was not written by brio; move it, or choose another --out")
    make_folders(page.parent)
    remove_leftovers(page.parent)
    for path, text in texts.items():
        write_atomically(path, text)
    return page


def read_writer(path: Path) -> str | None:
    """Read which version of brio wrote a file of a report; empty if none did, None if there is no file."""
    if path.exists() and not path.is_file():  # opening a pipe would wait for a writer
        raise BrioError(f"{path}: is not a regular file; choose another --out")
    try:
        with path.open("rb") as file:
            start = file.read(10_000).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BrioError(f"{path}: cannot be read ({error.strerror}); choose another --out") from error
    writer = _WRITER.search(start)
    return writer[1] if writer else ""
