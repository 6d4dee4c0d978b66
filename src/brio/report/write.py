"""Write a report: the page, the model card, and the references that the page cites."""

from __future__ import annotations

from pathlib import Path

from ..errors import BrioError
from ..storage import make_folders, remove_leftovers, write_atomically
from ..version import __version__
from .evidence import Evidence, read_evidence
from .html import fill_template
from .html.page import render_page
from .html.paper import BIBLIOGRAPHY_MARK, write_bibliography
from .verdict import write_verdict


def write_model_card(evidence: Evidence) -> str:
    """Write a model card in Markdown, with the headings of Mitchell et al. 2019; it names no participant."""
    return fill_template("model_card.md.j2", {"evidence": evidence, "verdict": write_verdict(evidence)})


PAGE, CARD = "report.html", "MODEL_CARD.md"
_PAGE_MARK, _CARD_MARK = '<meta name="generator" content="brio ', "\n\nWritten by brio "
"""By which a page and a card that brio wrote are recognised."""


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a folder of results as one HTML file; ``MODEL_CARD.md`` and its references beside it.

    The page is self-contained and needs no network. Nothing is trained.
    """
    page = Path(folder) / PAGE if out is None else Path(out)
    evidence = read_evidence(Path(folder))
    if page.is_dir():
        raise BrioError(f"{page}: is a folder; give the name of the page, for example {page / PAGE}")
    card, references = page.with_name(CARD), page.with_suffix(".bib")
    _refuse_foreign(page, _PAGE_MARK)
    _refuse_foreign(card, _CARD_MARK)
    _refuse_foreign(references, BIBLIOGRAPHY_MARK)
    page_text, card_text = render_page(evidence), write_model_card(evidence)
    make_folders(page.parent)
    remove_leftovers(page.parent)
    write_atomically(card, card_text)
    write_atomically(references, write_bibliography(evidence, __version__))
    write_atomically(page, page_text)
    return page


def _refuse_foreign(path: Path, mark: str) -> None:
    """Refuse to replace a file that brio did not write."""
    if path.exists() and not path.is_file():  # opening a pipe would wait for a writer
        raise BrioError(f"{path}: is no ordinary file; give another --out")
    try:
        with path.open("rb") as file:
            start = file.read(10_000).decode(errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise BrioError(f"{path}: cannot be read ({error.strerror}); give another --out") from error
    if mark not in start:
        raise BrioError(f"{path}: was not written by brio, and is not replaced; move it, or give another --out")
