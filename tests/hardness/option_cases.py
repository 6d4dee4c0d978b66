"""Absurd and hostile values of every option, and wrong paths in the place of every folder and file of a command.

Options are read from the commands themselves, so that a new one is tried as well.
"""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from matrix_case import Case, leave
from spoiling import remove
from workplace import CONFIG_FILE, RECIPES, Recipe

from brio.cli import app
from brio.cli.config_file import find_kinds

ABSURD = (
    "nan",
    "-inf",
    "1e400",
    "-1",
    "1" + "0" * 12,
    "9" * 30,
    "9" * 5000,
    "true",
    "",
    "0x10",
    "1,5",
    "٣٣٣٣٣٣٣٣٣٣٣٣٣",
)
"""No option takes any of these as a number."""
HOSTILE = (
    *("", " ", "=1+1", "-x", "--", "../../x", "/", "a\nb", "x" * 5000, "caf\udce9", "<script>alert(1)</script>"),
    *("é\u202eß", "%s%n", "{0.__class__}", "a,b", "ALL", "\x1b[31m", "nul\u0000l", "`id`", "$HOME"),
)
"""Names that mean something to a shell, a spreadsheet, a page, a path or a terminal."""
DRAWS = 6
OUTPUTS = ("--out", "--figure", "--csv")
ASSIGNMENTS = (
    *("", "=", "a", "=3", "a=", "penalties", "penalties=", "penalties==3", "penalties=nan", "penalties=1e400"),
    *("penalties=-1", f"penalties={'9' * 30}", "penalties=[1]", "penalties=true", "penalties=\udce9", "audit.=3"),
    *(".=3", "protocol.x=1", "audit.min_frames=inf", "audit.min_frames=-5", f"{'x' * 3000}=1"),
    f"harmonise.kind={'y' * 3000}",
)
"""What is given to ``--set``."""

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

CONFIGS: dict[str, str] = {
    "an infinite number": "seeds = inf",
    "not a number": "seeds = nan",
    "a large number": "seeds = 1e300",
    "a number of 5,000 digits": f"seeds = {'9' * 5000}",
    "a date": "seeds = 1979-05-27",
    "a list of lists": 'method = [["ridge"]]',
    "a number as method": "method = 3",
    "a truth as path": "out = true",
    "a null character": 'method = ["a\\u0000b"]',
    "a null character in a path": 'with = ["a\\u0000b"]',
    "an unknown option": "colour = 3",
    "an unknown setting": "[set]\ncolour = 3",
    "a nested setting": "[set.a.b.c]\nd = 1",
    "an infinite setting": "[set]\npenalties = inf",
    "a list as setting": "[set]\npenalties = [1, 2]",
    "a table as setting": "[set]\npenalties = {a = 1}",
    "an option twice": "seeds = 1\nseeds = 2",
    "deep lists": f"method = {'[' * 5000}{']' * 5000}",
    "no TOML": "seeds 3",
    "a file in itself": 'config = "options.toml"',
    "an empty key": '"" = 3',
    "an odd device": 'device = "cuda:9999999999"',
}
"""Lines of a configuration file."""


def _walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from _walk(one, (*words, name))
    if words and not hasattr(command, "commands"):
        yield words, command


def list_option_cases() -> Iterator[Case]:
    """List the cases of options, of paths, of settings and of configuration files."""
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
            kind = kinds.get(param.name, (bool,))[0]
            if param.param_type_name == "option" and kind is not bool and param.opts[-1] not in OUTPUTS:
                yield from _list_values(recipe, param.opts[-1], kind)
    for text in ASSIGNMENTS:
        for name in ("run", "tune", "fit", "audit"):
            yield _append(RECIPES[name], "absurd options", "--set", text, "either")
    for what, text in CONFIGS.items():
        yield _configure(RECIPES["run --config"], what, text)


def _list_values(recipe: Recipe, option: str, kind: type) -> Iterator[Case]:
    if kind in (int, float):
        for value in ABSURD:
            yield _append(recipe, "absurd options", option, value, "refused", (option.strip("-"),))
        return
    draw = random.Random(f"{recipe.command} {option}")
    for value in draw.sample(HOSTILE, DRAWS):
        if "\0" not in value:  # no shell can give it
            yield _append(recipe, "hostile names", option, value, "either")


def _append(recipe: Recipe, kind: str, option: str, value: str, expected: Any, names: tuple[str, ...] = ()) -> Case:
    words = (*recipe.words.split(), option, value)
    what = f"{option} {value[:40]!a}"
    return Case(recipe, kind, what, words, leave, expected, names, recipe.outputs)


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


def _configure(recipe: Recipe, what: str, text: str) -> Case:
    def spoil(box: Path) -> None:
        remove(box / "options.toml")
        (box / "options.toml").write_text(f"{text}\n" if "seeds" in text else f"{text}\n{CONFIG_FILE}")

    return Case(
        recipe,
        "odd content",
        f"options.toml: {what}",
        tuple(recipe.words.split()),
        spoil,
        "refused",
        ("options.toml: ",),
    )
