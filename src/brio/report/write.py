"""Write a report: the page and the model card, from the same contents."""

from __future__ import annotations

from pathlib import Path

from ..errors import BrioError
from ..results.files import write_atomically
from .card import write_model_card
from .contents import gather_contents
from .html.page import render_page

__all__ = ["CARD", "PAGE", "write_report"]

PAGE, CARD = "report.html", "MODEL_CARD.md"


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a folder of results as one HTML file, and ``MODEL_CARD.md`` beside it.

    The page is self-contained and needs no network. Nothing is trained.

    Parameters
    ----------
    folder : path
        Folder of ``brio run``, ``brio tune`` or ``brio study``.
    out : path, optional
        The page to write, by default ``report.html`` in the folder.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    BrioError
        If the folder holds no finished results, a file in it cannot be read, or ``out`` is a folder.

    Examples
    --------
    >>> import brio, tempfile
    >>> from brio.cohort.simulate import Simulation, simulate
    >>> folder = tempfile.mkdtemp()
    >>> _ = brio.run(simulate(Simulation(n_sites=5, per_class=6)), ["ridge"], out=folder, device="cpu")
    >>> write_report(folder).name
    'report.html'
    """
    page = Path(folder) / PAGE if out is None else Path(out)
    contents = gather_contents(Path(folder))
    if page.is_dir():
        raise BrioError(f"{page}: is a folder; give the name of the page, for example {page / PAGE}")
    page_text, card_text = render_page(contents), write_model_card(contents)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page.with_name(CARD), card_text)
    write_atomically(page, page_text)
    return page
