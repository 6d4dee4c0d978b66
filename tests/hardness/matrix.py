"""The matrix: every command on bad input of every kind, each case with a number and what is expected of it.

The list needs no folder and no content, so that it is the same everywhere; what is drawn at random is drawn from the
words of the case. Options are read from the commands themselves, so that a new one is tried as well. Absurd numbers are
tried in ``tests/cli/test_numeric_options.py`` and ``tests/test_domains.py``, odd configuration files in
``tests/cli/test_config_file.py``. ``PYTHONPATH=tests python tests/hardness/matrix.py 17`` tries case 17 and prints what
came of it.
"""

import functools
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd
import typer
from damaged_files import damage, place
from spoiling import SPOILS, UNREADABLE
from workplace import RECIPES, Recipe

from brio.cli import app
from brio.cli.config_file import find_kinds

Expected = Literal["refused", "same", "either", "result"]
Make = Callable[[Path], object]


def leave(box: Path) -> None:
    """Spoil nothing."""


class Case(NamedTuple):
    """A command on bad input, and what it must do.

    ``expected`` is ``refused``; ``same``: refused, or the result of good input; ``either``: refused, or a result that
    can be read; or ``result``. A refusal names one of ``names``, or anything if there are none. Only what is in
    ``outputs`` may change.
    """

    recipe: Recipe
    kind: str
    what: str
    outputs: tuple[str, ...]
    spoil: Make = leave
    expected: Expected = "either"
    names: tuple[str, ...] = ()
    number: int = -1

    @property
    def forbidden(self) -> bool:
        """Whether the command runs as a user without rights."""
        return self.kind == "no permission"

    def __str__(self) -> str:
        given = " ".join(word if len(word) < 60 else f"{word[:50]}..." for word in self.recipe.words)
        return f"case {self.number}, {self.kind}: brio {given!a} ({self.what!a})"


# ---------------------------------------------------------------- files that a command reads

COHORT = ("cohort.json", "participants.tsv", "atlas.tsv", "frames.npy", "SHA256SUMS")
STORED: dict[str, tuple[str, ...]] = {
    "cohort": COHORT,
    "hospital": COHORT,
    "job": (
        *("plan.json", "summary.json", "results.csv", "predictions.csv", "audit.json", "facts.json", "groups.csv"),
        *("sites.csv", "covariances.csv", "SHA256SUMS", "runs/*/run.json", "runs/*/weights.safetensors"),
    ),
    "tuned": (
        *("tuning.json", "configurations.csv", "plan.json", "results.csv"),
        *("search/plan.json", "search/runs/*/run.json"),
    ),
    "studies": (
        *("studies/comparison/study.json", "studies/comparison/table.csv", "studies/comparison/finding.md"),
        *("arms/loso/ridge/plan.json", "arms/loso/ridge/results.csv", "arms/loso/ridge/runs/*/run.json"),
    ),
    "model": (
        *("model.json", "rois.tsv", "mean.safetensors", "weights-0.safetensors", "patterns.safetensors"),
        *("MODEL_CARD.md", "SHA256SUMS"),
    ),
    "predicted": ("validation.json", "predictions.csv", "SHA256SUMS"),
}
"""Files that brio wrote: their damage is noticed, or does not matter."""

GIVEN: dict[str, tuple[str, ...]] = {
    "table": ("participants.tsv", "p1.npy"),
    "bids": ("participants.tsv", "sub-002/func/*.tsv", "sub-002/func/*.json"),
    "pcp": ("Phenotypic.csv", "North_002_rois_aal.1D"),
    "dpabi": ("ROISignals_S1-2-0001.mat",),
    "packed": ("participants.tsv", "aal116.npz"),
    "fc": ("participants.tsv", "p1.npy"),
    "scans": ("new1.npy",),
    "rois.tsv": ("",),
    "options.toml": ("",),
    "left.txt": ("",),
    "own.py": ("",),
}
"""Files of users: they are refused, or what is made of them can be read."""
NEEDED = ("participants.tsv", "Phenotypic.csv", "aal116.npz", "rois.tsv", "own.py")
"""Files of users that are refused if they cannot be read."""

CONTENT_DRAWS = 3


def list_file_cases() -> Iterator[Case]:
    """Every file of every part that a command reads, spoilt in every kind; of the ways of a kind one is drawn."""
    for name, recipe in RECIPES.items():
        for part in recipe.parts:
            stored = part in STORED
            for file in STORED.get(part) or GIVEN[part]:
                pattern = f"{part}/{file}".rstrip("/")
                for kind in SPOILS:
                    yield _spoil(recipe, pattern, kind, stored, seed=f"{name} {part} {file} {kind}")
            if "." not in part:
                for kind in ("missing", "folder for file", "symlink", "special file"):
                    yield _spoil(recipe, part, kind, True, seed=f"{name} {part} {kind}")


def _spoil(recipe: Recipe, pattern: str, kind: str, stored: bool, seed: str) -> Case:
    what = random.Random(seed).choice(sorted(SPOILS[kind]))
    file, part = Path(pattern).name, pattern.split("/")[0]

    def spoil(box: Path) -> None:
        SPOILS[kind][what](min(box.glob(pattern)), random.Random(seed))

    expected: Expected = "same" if stored else "refused" if file in NEEDED and kind in UNREADABLE else "either"
    names = (file, "changed or damaged", "SHA256SUMS") if stored else (file, file.split(".")[0], part)
    names = () if "*" in file or file == "options.toml" else names
    return Case(recipe, kind, f"{pattern}: {what}", recipe.outputs, spoil, expected, names)


def list_content_cases() -> Iterator[Case]:
    """Odd but valid content of stored files, whose hashes fit again; some draws for every command that reads them."""
    for name, recipe in RECIPES.items():
        for file, pattern in [(file, f"{part}/{file}") for part in recipe.parts for file in STORED.get(part, ())]:
            for k in range(CONTENT_DRAWS if file.endswith((".json", ".csv", ".tsv")) else 0):
                spoil = functools.partial(_place_odd, pattern=pattern, seed=f"{name} {file} {k}")
                yield Case(recipe, "odd content", f"{pattern}: draw {k}", recipe.outputs, spoil)


def _place_odd(box: Path, pattern: str, seed: str) -> None:
    for path in sorted(box.glob(pattern))[:1]:
        _, make = random.Random(seed).choice(list(damage(str(path.relative_to(box)), path.read_bytes())))
        place(path, make())


# ---------------------------------------------------------------- words of a command

HOSTILE = (
    *("", " ", "=1+1", "-x", "--", "../../x", "/", "a\nb", "x" * 5000, "caf\udce9", "<script>alert(1)</script>"),
    *("é\u202eß", "%s%n", "{0.__class__}", "a,b", "ALL", "\x1b[31m", "nul\u0000l", "`id`", "$HOME"),
)
"""Names that mean something to a shell, a spreadsheet, a page, a path or a terminal."""
DRAWS = 6
OUTPUTS = ("--out", "--figure", "--csv")

WRONG_PATHS: dict[str, tuple[str, Make]] = {
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


def _list_path_cases(name: str, recipe: Recipe) -> Iterator[Case]:
    """Give something else in the place of each input."""
    for k, word in enumerate(recipe.words):
        if word not in recipe.parts or recipe.words[k - 1] in OUTPUTS or (k == 1 and recipe.words[0] == "import"):
            continue
        for what in random.Random(f"{name} {word}").sample(sorted(WRONG_PATHS), 10):
            value, make = WRONG_PATHS[what]
            words = (*recipe.words[:k], value, *recipe.words[k + 1 :])
            changed = recipe._replace(words=words, parts=tuple(part for part in recipe.parts if part != word))
            yield Case(changed, "wrong path", f"{word}: {what}", recipe.outputs, make, "refused")


def list_option_cases() -> Iterator[Case]:
    """Hostile names given to every option, and wrong paths in the place of every folder and file of a command."""
    commands, seen = typer.main.get_command(app).commands, {"import"}
    for name, recipe in RECIPES.items():
        yield from _list_path_cases(name, recipe)
        if recipe.command in seen:
            continue
        seen.add(recipe.command)
        command = commands[recipe.words[0]]
        kinds = find_kinds(command)
        for param in command.params:
            option, kind = param.opts[-1], kinds.get(param.name, (bool,))[0]
            if param.param_type_name != "option" or kind in (bool, int, float) or option in OUTPUTS:
                continue
            for value in random.Random(f"{recipe.command} {option}").sample(HOSTILE, DRAWS):
                if "\0" not in value:  # no shell can give it
                    changed = recipe._replace(words=(*recipe.words, option, value))
                    yield Case(changed, "hostile names", f"{option} {value[:40]!a}", recipe.outputs)


# ---------------------------------------------------------------- places that a command is to write to

WRITING = ("simulate", "demo", "atlas", "select", "run", "tune", "study", "fit", "predict", "explain", "adapt")
WRITING += ("report",)


def _write_mine(*folders: str) -> Make:
    """Write folders of others."""

    def write(box: Path) -> None:
        for name in folders:
            (box / name).mkdir()
            (box / name / "mine.txt").write_text("mine")

    return write


def _link_outside(box: Path) -> None:
    _write_mine("inside")(box)
    (box / "new").symlink_to("inside")


FOLDERS = ("an empty folder", "a folder of others", "a link to a folder of others")
PLACES: dict[str, tuple[str, str, Make, Expected]] = {
    "an empty folder": ("already exists", "new", lambda box: (box / "new").mkdir(), "either"),
    "a file": ("already exists", "new", lambda box: (box / "new").write_text("mine"), "refused"),
    "a folder of others": ("already exists", "new", _write_mine("new"), "refused"),
    "a link to a folder of others": ("already exists", "new", _link_outside, "refused"),
    "a pipe": ("special file", "new", lambda box: os.mkfifo(box / "new"), "refused"),
    "a loop": ("symlink", "new", lambda box: (box / "new").symlink_to("new"), "refused"),
    "a broken link": ("symlink", "new", lambda box: (box / "new").symlink_to("gone"), "either"),
    "inside a file": ("folder for file", "file/new", lambda box: (box / "file").write_text("mine"), "refused"),
    "a long name": ("hostile names", "x" * 300, leave, "refused"),
    "not UTF-8": ("hostile names", "caf\udce9", leave, "either"),
    "odd letters": ("hostile names", "é <b>&\u202e'\" $HOME", leave, "either"),
    "a line break": ("hostile names", "a\nb", leave, "either"),
    "no name": ("hostile names", "", leave, "refused"),
    "here": ("already exists", ".", lambda box: (box / "mine.txt").write_text("mine"), "refused"),
    "no permission": ("no permission", "new", lambda box: box.chmod(0o555), "refused"),
    "neighbours with like names": (
        *("already exists", "new"),
        _write_mine("new.partial", ".new.partial", "new.tmp", "new.lock"),
        "result",
    ),
    "a folder that is not there": ("missing", "deep/er/new", leave, "either"),
}
"""What is there -> kind, name, what makes it, and what is expected."""


def list_output_cases() -> Iterator[Case]:
    """What is already in the place of an output stays as it is, or the command says so."""
    for name, recipe in RECIPES.items():
        if name not in WRITING and not name.startswith("import"):
            continue
        for what, (kind, out, make, expected) in PLACES.items():
            if name != "demo" or expected == "refused":  # a demonstration takes a minute
                yield _send(recipe, kind, what, out, make, expected)
    for name in ("atlas", "run", "fit", "predict", "explain", "adapt"):
        recipe = RECIPES[name]
        yield _send(recipe, "already exists", "the input", recipe.parts[0], leave, "refused")


def _send(recipe: Recipe, kind: str, what: str, out: str, make: Make, expected: Expected) -> Case:
    """Send the output of a command to a place."""
    words = list(recipe.words)
    at = words.index("--out") + 1
    is_page = words[at].endswith(".html")
    words[at] = out
    if is_page and what in FOLDERS:
        expected = "refused"  # a page is a file
    beside = ["MODEL_CARD.md", f"{out.rsplit('/', 1)[-1].removesuffix('.html')}.bib"] if is_page else []
    outputs = (out.split("/")[0], "gone", *beside)
    changed = recipe._replace(words=tuple(words), outputs=(out,) if out else ())
    return Case(changed, kind, f"--out: {what}", outputs, make, expected)


# ---------------------------------------------------------------- all of them


@functools.cache
def list_cases() -> tuple[Case, ...]:
    """List all cases; the number of a case is its place."""
    cases = (*list_file_cases(), *list_content_cases(), *list_option_cases(), *list_output_cases())
    return tuple(case._replace(number=number) for number, case in enumerate(cases))


def format_matrix() -> str:
    """Write counts by command and kind as a table in Markdown; kinds are rows."""
    cases = pd.DataFrame({"kind": case.kind, "command": case.recipe.words[0]} for case in list_cases())
    counts = pd.crosstab(cases["kind"], cases["command"], margins=True, margins_name="all")
    kinds, commands = ([*dict.fromkeys(cases[column]), "all"] for column in cases)
    lines = [["kind", *(f"`{command}`" for command in commands[:-1]), "all"], ["---", *["---:"] * len(commands)]]
    lines += [[kind, *(f"{n:,}" for n in counts.loc[kind, commands])] for kind in kinds]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    import tempfile

    from running import Runner

    with tempfile.TemporaryDirectory() as root:
        runner = Runner(Path(root))
        for number in map(int, sys.argv[1:]):
            trial = runner.try_case(list_cases()[number])
            print(trial.outcome, trial)
