"""Hostile names given to every option, and wrong paths in the place of every folder and file of a command.

Options are read from the commands themselves, so that a new one is tried as well. Absurd numbers are tried in
``tests/cli/test_numeric_options.py`` and ``tests/test_domains.py``, odd configuration files in
``tests/cli/test_config_file.py``.
"""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from matrix_case import Case, leave
from workplace import RECIPES, Recipe

from brio.cli import app
from brio.cli.config_file import find_kinds

HOSTILE = (
    *("", " ", "=1+1", "-x", "--", "../../x", "/", "a\nb", "x" * 5000, "caf\udce9", "<script>alert(1)</script>"),
    *("é\u202eß", "%s%n", "{0.__class__}", "a,b", "ALL", "\x1b[31m", "nul\u0000l", "`id`", "$HOME"),
)
"""Names that mean something to a shell, a spreadsheet, a page, a path or a terminal."""
DRAWS = 6
OUTPUTS = ("--out", "--figure", "--csv")

WRONG_PATHS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no such place": ("gone", leave),
    "no such place, deep": ("gone/deep/er", leave),
    "empty": ("", leave),
    "here": (".", leave),
    "long name": ("x" * 300, leave),
    "long path": ("/".join(["x" * 100] * 50), leave),
    "not UTF-8": ("caf\udce9", leave),
    "line break": ("a\nb", leave),
    "inside a file": ("file/inside", lambda box: (box / "file").write_text("x")),
    "a file": ("file", lambda box: (box / "file").write_text("x")),
    "an empty folder": ("folder", lambda box: (box / "folder").mkdir()),
    "a pipe": ("pipe", lambda box: os.mkfifo(box / "pipe")),
    "a loop": ("loop", lambda box: (box / "loop").symlink_to("loop")),
    "no end": ("zero", lambda box: (box / "zero").symlink_to("/dev/zero")),
    "a dash": ("-", leave),
    "home": ("~nobody-at-all", leave),
}
"""What stands in the place of an input: its name, and what makes it."""


def _walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from _walk(one, (*words, name))
    if words and not hasattr(command, "commands"):
        yield words, command


def _list_path_cases(name: str, recipe: Recipe) -> Iterator[Case]:
    """Give something else in the place of each input."""
    words = recipe.words.split()
    for k, word in enumerate(words):
        if word not in recipe.parts or words[k - 1] in OUTPUTS or (k == 1 and words[0] == "import"):
            continue
        draw = random.Random(f"{name} {word}")
        for what in draw.sample(sorted(WRONG_PATHS), 10):
            value, make = WRONG_PATHS[what]
            given = (*words[:k], value, *words[k + 1 :])
            kept = tuple(part for part in recipe.parts if part != word)
            yield Case(
                recipe._replace(parts=kept), "wrong path", f"{word}: {what}", given, make, "refused", (), recipe.outputs
            )


def list_option_cases() -> Iterator[Case]:
    """List the cases of options and of paths."""
    commands = dict(_walk(typer.main.get_command(app)))
    seen = set()
    for name, recipe in RECIPES.items():
        yield from _list_path_cases(name, recipe)
        command = commands.get((recipe.words.split()[0],))
        if recipe.command in seen or command is None:
            continue
        seen.add(recipe.command)
        kinds = find_kinds(command)
        for param in command.params:
            option, kind = param.opts[-1], kinds.get(param.name, (bool,))[0]
            if param.param_type_name != "option" or kind in (bool, int, float) or option in OUTPUTS:
                continue
            for value in random.Random(f"{recipe.command} {option}").sample(HOSTILE, DRAWS):
                if "\0" not in value:  # no shell can give it
                    words = (*recipe.words.split(), option, value)
                    what = f"{option} {value[:40]!a}"
                    yield Case(recipe, "hostile names", what, words, outputs=recipe.outputs)
