"""The folder of a coordinator: requests, answers as they come in, and at the end the model with its scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..cohort import Atlas, Cohort
from ..cohort.cohort import HEADER
from ..cohort.readers.rois import load_atlas
from ..errors import BrioError
from ..models.folder import write_model
from ..models.model import Model
from ..results.summarise import write_site_tables
from ..schemas import from_json
from ..storage import create_whole_folder, lock_folder, make_folders
from .coordinator import combine, start
from .messages import Answer, Request, Terms, digest, read_message, write_message
from .model import SiteScore, list_site_rows

MODEL, SCORES, ANSWERS = "model", "scores", "answers"


def name_request(number: int) -> str:
    """Name the file of a request by the number of its round."""
    return f"request-{number + 1}.brio"


def name_answer(answer: Answer) -> str:
    """Name the file of an answer by the number of its round and the site."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in answer.site)
    return f"answer-{answer.round + 1}-{safe}.brio"


def start_project(folder: Path, terms: Terms) -> Path:
    """Create the folder of a project with its first request."""
    with create_whole_folder(folder) as place:
        write_message(place / name_request(0), start(terms))
        (place / ANSWERS).mkdir()
    return folder / name_request(0)


def find_request(folder: Path) -> Path:
    """Find the newest request of a project."""
    found = sorted(folder.glob("request-*.brio"), key=lambda path: int(path.stem.partition("-")[2] or 0))
    if not found:
        raise BrioError(f"{folder}: holds no request; give a folder of 'brio federate start', or a file of it")
    return found[-1]


def combine_project(folder: Path, given: Sequence[Path] = ()) -> tuple[Path, Request | Model]:
    """Add up the answers to the newest request of a project, and write the next request, or the model.

    Answers lie in the folder ``answers``, into which those that are given are copied.
    """
    with lock_folder(folder):
        if (folder / MODEL).exists():
            raise BrioError(f"{folder / MODEL}: is there already, so the project has ended")
        request = read_request(find_request(folder))
        make_folders(folder / ANSWERS)
        for path in given:
            one = read_answer(path)
            if path.resolve().parent != (folder / ANSWERS).resolve():
                copy = folder / ANSWERS / name_answer(one)
                if copy.exists() and digest(read_answer(copy)) != digest(one):
                    raise BrioError(f"{path}: site '{one.site}' has answered differently in {copy}; keep one of them")
                write_message(copy, one)
        answers = [read_answer(path) for path in sorted((folder / ANSWERS).glob(f"answer-{request.round + 1}-*.brio"))]
        described = [read_answer(path) for path in sorted((folder / ANSWERS).glob("answer-1-*.brio"))]
        found = combine(request, answers, described)
        if isinstance(found, Request):
            out = folder / name_request(found.round)
            write_message(out, found)
            return out, found
        scores = {one.site: from_json(SiteScore, one.facts, folder) for one in answers}
        write_site_tables(folder / SCORES, *list_site_rows(request.terms.method, scores))
        write_model(found, folder / MODEL)
        return folder / MODEL, found


def read_rois(source: str) -> Atlas:
    """Read regions from a cohort folder, a table, or the name of a known atlas."""
    if (Path(source) / HEADER).is_file():
        return Cohort.load(source).atlas
    return load_atlas(source)[0]


def read_request(path: Path) -> Request:
    """Read the file of a request."""
    message = read_message(path)
    if not isinstance(message, Request):
        raise BrioError(f"{path}: is the answer of site '{message.site}', not a request; give the coordinator's file")
    return message


def read_answer(path: Path) -> Answer:
    """Read the file of an answer."""
    message = read_message(path)
    if not isinstance(message, Answer):
        raise BrioError(f"{path}: is request {message.round + 1}, not an answer; give the files that sites sent back")
    return message
