"""Writing a report: the page and the model card from the same evidence."""

from __future__ import annotations

from pathlib import Path

from ..errors import BrioError
from ..results.files import write_atomically
from .card import model_card
from .html.page import render_page
from .html.reading import read_evidence
from .html.verdict import comparison

__all__ = ["CARD", "PAGE", "write_report"]

PAGE, CARD = "report.html", "MODEL_CARD.md"


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a folder of results as one HTML file, and ``MODEL_CARD.md`` beside it.

    The page needs no network and no other file; it reads results and trains nothing.

    Parameters
    ----------
    folder : path
        What ``brio run``, ``brio tune`` or ``brio study`` left.
    out : path, optional
        The page to write, by default ``report.html`` in the folder.

    Returns
    -------
    Path
        Of the page.

    Raises
    ------
    BrioError
        If the folder holds no finished results, or a file of it cannot be read.

    Examples
    --------
    >>> import brio, tempfile
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> folder = tempfile.mkdtemp()
    >>> _ = brio.run(simulate(Simulation(n_sites=5, per_class=6)), ["ridge"], out=folder, device="cpu")
    >>> write_report(folder).name
    'report.html'
    """
    evidence = read_evidence(Path(folder))
    page = Path(folder) / PAGE if out is None else Path(out)
    if page.is_dir():
        raise BrioError(f"{page}: is a folder; give the name of the page, for example {page / PAGE}")
    compared = comparison(evidence.main)
    text, card = render_page(evidence, compared), model_card(evidence, compared)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page.with_name(CARD), card)
    write_atomically(page, text)
    return page
