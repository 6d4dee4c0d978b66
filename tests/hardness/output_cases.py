"""Places that a command is to write to: what is there already stays as it is, or the command says so."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from matrix_case import Case, Expected, leave
from workplace import RECIPES, Recipe

WRITING = ("simulate", "demo", "atlas", "run", "tune", "study", "fit", "predict", "explain", "adapt", "report")


def _write_foreign(box: Path) -> None:
    (box / "new").mkdir()
    (box / "new" / "mine.txt").write_text("mine")


def _write_neighbours(box: Path) -> None:
    for name in ("new.partial", ".new.partial", "new.tmp", "new.lock"):
        (box / name).mkdir()
        (box / name / "mine.txt").write_text("mine")


def _link_outside(box: Path) -> None:
    (box / "inside").mkdir()
    (box / "inside" / "mine.txt").write_text("mine")
    (box / "new").symlink_to("inside")


def _forbid(box: Path) -> None:
    box.chmod(0o555)


FOLDERS = ("a folder of others", "a link to a folder of others")
PLACES: dict[str, tuple[str, str, Callable[[Path], object], Expected]] = {
    "an empty folder": ("exists already", "new", lambda box: (box / "new").mkdir(), "either"),
    "a file": ("exists already", "new", lambda box: (box / "new").write_text("mine"), "refused"),
    "a folder of others": ("exists already", "new", _write_foreign, "refused"),
    "a link to a folder of others": ("exists already", "new", _link_outside, "refused"),
    "a pipe": ("special file", "new", lambda box: os.mkfifo(box / "new"), "refused"),
    "a loop": ("symlink", "new", lambda box: (box / "new").symlink_to("new"), "refused"),
    "a broken link": ("symlink", "new", lambda box: (box / "new").symlink_to("gone"), "either"),
    "inside a file": ("folder for file", "file/new", lambda box: (box / "file").write_text("mine"), "refused"),
    "a long name": ("hostile names", "x" * 300, leave, "refused"),
    "not UTF-8": ("hostile names", "caf\udce9", leave, "either"),
    "odd letters": ("hostile names", "é <b>&\u202e'\" $HOME", leave, "either"),
    "a line break": ("hostile names", "a\nb", leave, "either"),
    "no name": ("hostile names", "", leave, "refused"),
    "here": ("exists already", ".", lambda box: (box / "mine.txt").write_text("mine"), "refused"),
    "no permission": ("no permission", "new", _forbid, "refused"),
    "neighbours with like names": ("exists already", "new", _write_neighbours, "result"),
    "a folder that is not there": ("missing", "deep/er/new", leave, "either"),
}
"""What is there -> kind, name, what makes it, and what is expected."""


def list_output_cases() -> Iterator[Case]:
    """List the cases of outputs."""
    for name, recipe in RECIPES.items():
        if name not in WRITING and not name.startswith("import"):
            continue
        for what, (kind, place, make, expected) in PLACES.items():
            if name != "demo" or expected == "refused":  # a demonstration takes a minute
                yield _send(recipe, kind, what, place, make, expected)
    for name in ("atlas", "run", "fit", "predict", "explain", "adapt"):
        recipe = RECIPES[name]
        yield _send(recipe, "exists already", "the input", recipe.parts[0], leave, "refused")


def _send(recipe: Recipe, kind: str, what: str, place: str, make: Callable[[Path], object], expected: Expected) -> Case:
    """Send the output of a command to a place."""
    words = list(recipe.words.split())
    at = words.index("--out") + 1
    is_page = words[at].endswith(".html")
    words[at] = place
    if is_page and what in ("an empty folder", *FOLDERS):
        expected = "refused"  # a page is a file
    outputs = (place.split("/")[0], "gone", *(["MODEL_CARD.md"] if is_page else []))
    return Case(
        recipe._replace(outputs=(place,) if place else ()),
        kind,
        f"--out: {what}",
        tuple(words),
        make,
        expected,
        outputs=outputs,
        forbidden=kind == "no permission",
    )
