"""The folder of a coordinator: requests, answers as they come in, and at the end the model with its scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..errors import BrioError
from ..storage import create_whole_folder, lock_folder
from .coordinator import combine, start
from .messages import Answer, Request, Terms, read_message, write_message

if TYPE_CHECKING:
    from ..models.model import Model

MODEL, SCORES, ANSWERS = "model", "scores", "answers"


def name_request(number: int) -> str:
    """Name the file of a request by the number of its round."""
    return f"request-{number + 1}.brio"


def name_answer(answer: Answer) -> str:
    """Name the file of an answer by the number of its round and the site."""
    return f"answer-{answer.round + 1}-{quote(answer.site, safe='')}.brio"


def start_project(folder: Path, terms: Terms) -> Path:
    """Create the folder of a project with its first request."""
    with create_whole_folder(folder) as place:
        write_message(place / name_request(0), start(terms))
        (place / ANSWERS).mkdir()
    return folder / name_request(0)


def find_request(folder: Path) -> Path:
    """Find the newest request of a project."""
    found = [path for path in folder.glob("request-*.brio") if path.stem.removeprefix("request-").isdigit()]
    if not found:
        raise BrioError(f"{folder}: holds no request; give a folder of 'brio federate start', or a file of it")
    return max(found, key=lambda path: int(path.stem.removeprefix("request-")))


def combine_project(folder: Path, given: Sequence[Path] = ()) -> tuple[Path, Request | Model]:
    """Add up the answers to the newest request of a project, and write the next request, or the model.

    Answers lie in the folder ``answers``, into which those that are given are copied once all of them are right.
    """
    find_request(folder)  # before a lock is written to a folder that is none of a project
    with lock_folder(folder):
        if (folder / MODEL).exists():
            raise BrioError(f"{folder / MODEL}: is there already, so the project has ended")
        request = read_message(find_request(folder), Request)
        stored = sorted((folder / ANSWERS).glob(f"answer-{request.round + 1}-*.brio"))
        answers = [read_message(path, Answer) for path in (*stored, *given)]
        result = combine(request, answers)
        for one in answers:
            write_message(folder / ANSWERS / name_answer(one), one)
        if isinstance(result, Request):
            out = folder / name_request(result.round)
            write_message(out, result)
            return out, result
        from ..models.folder import write_model
        from ..results.summarise import write_site_tables
        from .model import list_site_rows

        scores = {one.site: one.score for one in answers if one.score is not None}
        write_site_tables(folder / SCORES, *list_site_rows(request.terms.method, scores))
        write_model(result, folder / MODEL)
        return folder / MODEL, result
