"""The matrix: every command on bad input of every kind, each case with a number and what is expected of it.

The list needs no folder and no content, so that it is the same everywhere; what is drawn at random is drawn from the
words of the case. ``PYTHONPATH=tests python tests/hardness/matrix.py 17`` tries case 17 and prints what came of it.
"""

import dataclasses
import functools
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from damaged_files import damage
from damaged_files import place as place_damaged
from matrix_case import Case
from option_cases import list_option_cases
from output_cases import list_output_cases
from spoiling import SPOILS, UNREADABLE
from workplace import RECIPES, Recipe

JOB = (
    *("plan.json", "summary.json", "results.csv", "predictions.csv", "audit.json", "facts.json", "groups.csv"),
    *("sites.csv", "covariances.csv", "SHA256SUMS", "runs/*/run.json", "runs/*/weights.safetensors"),
)
STORED: dict[str, tuple[str, ...]] = {
    "cohort": ("cohort.json", "participants.tsv", "atlas.tsv", "frames.npy", "SHA256SUMS"),
    "hospital": ("cohort.json", "participants.tsv", "atlas.tsv", "frames.npy", "SHA256SUMS"),
    "job": JOB,
    "tuned": (
        "tuning.json",
        "configurations.csv",
        "plan.json",
        "results.csv",
        "search/plan.json",
        "search/runs/*/run.json",
    ),
    "studies": (
        *("studies/comparison/study.json", "studies/comparison/table.csv", "studies/comparison/finding.md"),
        *("arms/loso/ridge/plan.json", "arms/loso/ridge/results.csv", "arms/loso/ridge/runs/*/run.json"),
    ),
    "model": (
        *("model.json", "rois.tsv", "mean.safetensors", "weights-0.safetensors", "patterns.safetensors"),
        *("MODEL_CARD.md", "SHA256SUMS"),
    ),
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
                for kind in SPOILS:
                    yield _spoil(
                        recipe, f"{part}/{file}".rstrip("/"), kind, stored, seed=f"{name} {part} {file} {kind}"
                    )
            if "." not in part:
                for kind in ("missing", "folder for file", "symlink", "special file"):
                    yield _spoil(recipe, part, kind, True, seed=f"{name} {part} {kind}")


def _spoil(recipe: Recipe, pattern: str, kind: str, stored: bool, seed: str) -> Case:
    draw = random.Random(seed)
    what = draw.choice(sorted(SPOILS[kind]))
    file = Path(pattern).name

    def spoil(box: Path) -> None:
        SPOILS[kind][what](min(box.glob(pattern)), random.Random(seed))

    needed = file in NEEDED and kind in UNREADABLE
    part = pattern.split("/")[0]
    names = (
        file.replace("*", ""),
        *(("was changed or damaged", "SHA256SUMS") if stored else (file.split(".")[0], part)),
    )
    return Case(
        recipe,
        kind,
        f"{pattern}: {what}",
        tuple(recipe.words.split()),
        spoil,
        expected="same" if stored else "refused" if needed else "either",
        names=() if "*" in file or file == "options.toml" else names,
        outputs=recipe.outputs,
        forbidden=kind == "no permission",
    )


def list_content_cases() -> Iterator[Case]:
    """Odd but valid content of stored files, whose hashes fit again; some draws for every command that reads them."""
    for name, recipe in RECIPES.items():
        for part in recipe.parts:
            for file in STORED.get(part, ()):
                if not file.endswith((".json", ".csv", ".tsv")):
                    continue
                for k in range(CONTENT_DRAWS):
                    place = functools.partial(_place_odd, pattern=f"{part}/{file}", seed=f"{name} {file} {k}")
                    what, words = f"{part}/{file}: draw {k}", tuple(recipe.words.split())
                    yield Case(recipe, "odd content", what, words, place, outputs=recipe.outputs)


def _place_odd(box: Path, pattern: str, seed: str) -> None:
    for path in sorted(box.glob(pattern))[:1]:
        cases = list(damage(str(path.relative_to(box)), path.read_bytes()))
        place_damaged(box, random.Random(seed).choice(cases))


@functools.cache
def list_cases() -> tuple[Case, ...]:
    """List all cases; the number of a case is its place."""
    cases = (*list_file_cases(), *list_content_cases(), *list_option_cases(), *list_output_cases())
    return tuple(dataclasses.replace(case, number=number) for number, case in enumerate(cases))


def count_cases() -> Counter[tuple[str, str]]:
    """Count cases by command and kind."""
    return Counter((case.command, case.kind) for case in list_cases())


def format_matrix(counts: Counter[tuple[str, str]]) -> str:
    """Write counts by command and kind as a table in Markdown; kinds are rows."""
    commands = list(dict.fromkeys(command.split()[0] for command, _ in counts))
    kinds = list(dict.fromkeys(kind for _, kind in counts))
    table = Counter[tuple[str, str]]()
    for (command, kind), n in counts.items():
        table[command.split()[0], kind] += n
    rows = [[kind, *(table[command, kind] for command in commands)] for kind in kinds]
    rows = [[*row, sum(row[1:])] for row in rows]
    total = ["all", *(sum(row[k] for row in rows) for k in range(1, len(commands) + 2))]
    lines = [["kind", *(f"`{command}`" for command in commands), "all"], ["---", *["---:"] * (len(commands) + 1)]]
    lines += [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in (*rows, total)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    import tempfile

    from running import Runner

    with tempfile.TemporaryDirectory() as root:
        runner = Runner(Path(root))
        for number in map(int, sys.argv[1:]):
            trial = runner.try_case(list_cases()[number])
            print(trial.outcome, trial)
