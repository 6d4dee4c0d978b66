"""A folder with good input for every command, and the commands that the matrix spoils it for.

Commands run inside a copy of the parts that they need, so that all names are short and relative.
"""

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from brio.cohort.simulate import Simulation, simulate
from cohort.file_layouts import LABELS, scan, write_layout
from commands import command

QUIET = "--quiet --device cpu"
RIDGE = f"--method ridge --seeds 1 {QUIET}"
TUNED = f"--method ridge --budget 2 --seeds 1 {QUIET}"
STUDIED = f"--method ridge --method logistic --seeds 1 {QUIET}"
COHORT = Simulation(n_sites=4, per_class=5, n_rois=8, frames=60)
HOSPITAL = dataclasses.replace(COHORT, n_sites=2, seed=9)
LAYOUTS = ("table", "bids", "pcp", "dpabi", "packed", "fc")

OWN_METHOD = """from brio.methods import Ridge, method


@method("own-ridge", family="mine", provenance="a copy", reference="none")
class OwnRidge(Ridge):
    pass
"""
CONFIG_FILE = 'seeds = 1\nmethod = ["ridge"]\nquiet = true\ndevice = "cpu"\n[set]\nchoose_by = "source-sites"\n'


class Recipe(NamedTuple):
    """A command, the files and folders that it needs, and those that it may write; without any, it prints a result."""

    words: tuple[str, ...]
    parts: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def command(self) -> str:
        """Name of the command, that of the layout included."""
        return " ".join(self.words[: 2 if self.words[0] == "import" else 1])


COMMANDS = {
    **{f"import {kind}": f"import {kind} {kind} --out new" for kind in LAYOUTS},
    "import dpabi": "import dpabi dpabi --atlas aal116 --out new",
    "simulate": "simulate --sites 2 --per-class 2 --rois 8 --frames 40 --out new",
    "atlas": "atlas cohort rois.tsv --by-order --out new",
    "select": "select cohort --where label<2 --exclude left.txt --out new",
    "audit": "audit cohort",
    "run": f"run cohort {RIDGE} --out new",
    "run again": f"run cohort {RIDGE} --out job",
    "run --tuned": f"run cohort {RIDGE} --tuned tuned --out new",
    "run --config": "run cohort --config options.toml --method ridge --device cpu --quiet --out new",
    "run --load": f"run cohort --load own.py --seeds 1 {QUIET} --out new",
    "tune": f"tune cohort {TUNED} --out new",
    "tune again": f"tune cohort {TUNED} --out tuned",
    "study": f"study comparison cohort {STUDIED} --out new",
    "study again": f"study comparison cohort {STUDIED} --out studies",
    "study --reuse": f"study comparison cohort {RIDGE} --reuse job --out new",
    "fit": f"fit cohort --method ridge {QUIET} --out new",
    "fit --evidence": f"fit cohort --method ridge {QUIET} --evidence job --out new",
    "predict": "predict model cohort --reestimates 2 --device cpu --out new",
    "predict files": "predict model scans --reestimates 2 --device cpu --out new",
    "explain": f"explain model {QUIET} --out new",
    "explain --cohort": f"explain model --cohort cohort --reestimates 2 {QUIET} --out new",
    "adapt": "adapt model hospital --device cpu --out new",
    "table": "table job",
    "compare": "compare job",
    "report": "report job --out new/page.html",
    "report studies": "report studies --out new/page.html",
    "report tuned": "report tuned --out new/page.html",
    "report --predictions": "report job --predictions predicted --out new/page.html",
    "verify": "verify job",
    "verify --cohort": "verify job --cohort cohort --again 1 --device cpu",
    "verify studies": "verify studies",
    "verify tuned": "verify tuned",
    "status": "status job",
    "config": "config job",
    "config tuned": "config tuned",
    "config run": "config run cohort --method ridge --seeds 3 --out new",
    "settings": "settings ridge",
    "settings --load": "settings own-ridge --load own.py",
    "methods": "methods ridge",
    "demo": "demo --quiet --out new",
}
"""Commands that work, by a name for each."""
MADE = {
    "job": COMMANDS["run again"],
    "tuned": COMMANDS["tune again"],
    "studies": COMMANDS["study again"],
    "model": f"fit cohort --method ridge {QUIET} --evaluate --out model",
    "predicted": "predict model hospital --reestimates 2 --device cpu --out predicted",
}
"""Parts that a command makes."""


def _write_connectomes(src: Path) -> None:
    write_layout("table", src)
    for i, path in enumerate(sorted(src.glob("*.npy"))):
        np.save(path, np.corrcoef(scan(i, 6).T + np.random.default_rng(i).normal(size=(6, 8 + i))))


def _write_scans(src: Path) -> None:
    src.mkdir()
    for i in range(3):
        np.save(src / f"new{i}.npy", np.random.default_rng(i).normal(size=(60, 8)).astype(np.float32))


WRITTEN: dict[str, Callable[[Path], object]] = {
    **{kind: functools.partial(write_layout, kind, labels=LABELS) for kind in LAYOUTS},
    "fc": _write_connectomes,
    "scans": _write_scans,
    "cohort": lambda path: simulate(COHORT).save(path),
    "hospital": lambda path: simulate(HOSPITAL).save(path),
    "rois.tsv": lambda path: path.write_text("name\tx\ty\tz\n" + "".join(f"r{i}\t{i}\t0\t9\n" for i in range(8))),
    "options.toml": lambda path: path.write_text(CONFIG_FILE),
    "left.txt": lambda path: path.write_text("sim0001\n"),
    "own.py": lambda path: path.write_text(OWN_METHOD),
}
"""Parts that are written; those in a layout of ``brio import`` by their own writer."""


def _read_recipe(text: str) -> Recipe:
    """A command needs the parts that it names and writes to ``--out``; ``brio config`` does neither but for a job."""
    words = tuple(text.split())
    named = words[2 if words[0] == "import" else 1 :]
    out = words[words.index("--out") + 1].split("/")[0] if "--out" in words else None
    if words[:2] == ("config", "run"):
        return Recipe(words, (), ())
    return Recipe(words, tuple(w for w in dict.fromkeys(named) if w in WRITTEN or w in MADE), (out,) if out else ())


RECIPES = {name: _read_recipe(text) for name, text in COMMANDS.items()}


def make_part(root: Path, part: str) -> Path:
    """Return the place of a part in a folder; it is made if it is not there yet."""
    path = root / part
    if part in WRITTEN and not path.exists():
        WRITTEN[part](path)
    elif not path.exists():
        for other in _read_recipe(MADE[part]).parts:
            if other != part:
                make_part(root, other)
        with contextlib.chdir(root):
            command(*MADE[part].split()).succeed()
    return path


def copy_parts(root: Path, parts: tuple[str, ...], box: Path) -> None:
    """Copy parts into a folder."""
    for part in parts:
        source = make_part(root, part)
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, box / part)
